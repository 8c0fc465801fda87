//! Repair: frames that are missing are pulled, promises that are missing are asked for (section 5.2, PULL and ASK).
//!
//! **Why.** Datagrams get lost. Numbers show a gap at once, from the next frame, a header, or anybody's
//! acknowledgements; ordering waits until it is filled, so filling must not wait for a timer of seconds.
//! **Limits**: a PULL names at most 64 frames, the next goes when they have come; waits double up to a beat.
//! **Not here**: second copies and relays on a failing sender's behalf.
use super::machine::{Core, Now, Outbox, Sender, To};
use super::merge::Blocked;
use super::{FrameNo, LocalTime, ServerId, Span, StreamId};
use crate::wire::frame::put_frame;
use crate::wire::peer::{Ask as AskMessage, Gone, Own, PeerMessage, Pull};

/// Shortest wait before what was pulled is pulled again.
const WAIT_MIN: Span = Span::micros(200);

/// The asking for promises and acknowledgements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask {
    /// For which time stamp was asked last.
    ts: super::Timestamp,
    /// When to ask again.
    due: LocalTime,
    /// How often it was asked for.
    tries: u32,
}

impl<W: Copy> Core<W> {
    /// How long an acknowledgement may take before it is reckoned late: the 99 % point of a round trip as its smoothed
    /// delays give it, plus `ack_delay`; between 100 us and a beat.
    #[must_use]
    pub fn eta(&self) -> Span {
        let worst = self.peers.iter().filter_map(|peer| peer.delay).map(|(mean, off)| mean.get() + 4 * off.get()).max();
        let round_trip = worst.unwrap_or(0).saturating_mul(2);
        let eta = Span::new(round_trip.saturating_add(self.settings.ack_delay.get()));
        eta.clamp(Span::micros(100), self.settings.beat.max(Span::micros(100)))
    }

    fn wait(&self, tries: u32) -> Span {
        let wait = self.eta().max(WAIT_MIN).get() << tries.min(6);
        Span::new(wait.min(self.settings.beat.max(WAIT_MIN).get()))
    }

    /// Pulls and asks what is due; returns when to look again.
    pub(super) fn repair(&mut self, now: Now, out: &mut impl Outbox<W>) -> LocalTime {
        let mut next = LocalTime::NEVER;
        for row in 0..self.streams.len() {
            let Some(due) = self.streams[row].gap.due else { continue };
            if due <= now.local {
                self.pull(now, row, out);
            }
            next = next.min(self.streams[row].gap.due.unwrap_or(LocalTime::NEVER));
        }
        next.min(self.ask(now, out))
    }

    /// PULL: from the owner first, then from whoever acknowledged what is missing, in turn.
    fn pull(&mut self, now: Now, row: usize, out: &mut impl Outbox<W>) {
        let Some((from, to)) = self.streams[row].missing() else {
            self.streams[row].gap.due = None;
            return;
        };
        let tries = self.streams[row].gap.tries;
        let target = self.holder(row, from, tries);
        let wait = self.wait(tries);
        let stream = &mut self.streams[row];
        stream.gap.due = Some(now.local.plus(wait));
        stream.gap.tries = tries.saturating_add(1);
        (stream.gap.asked_to, stream.gap.known_then) = (to, stream.gap.known);
        let id = stream.id;
        self.counters.pulls_sent += 1;
        let header = self.header(now);
        self.send(To::One(target), out, |body, _| {
            let fits = header.put(body).and_then(|()| Pull { stream: id, from, to }.put(body));
            assert!(fits.is_ok(), "a header and a PULL must fit a datagram");
        });
    }

    fn holder(&self, row: usize, s: FrameNo, tries: u32) -> ServerId {
        let owner = self.streams[row].id.server;
        let Some(acks) = self.acks.as_ref() else { return owner };
        let holds = |server: &ServerId| {
            *server == owner
                || (*server != self.settings.me && acks.of(*server).get(row).is_some_and(|held| *held >= s))
        };
        let servers = (0..self.settings.servers).filter_map(ServerId::from_place);
        // The owner comes first; after it the others in order of their places, round and round.
        let holders = servers.clone().filter(holds).count().max(1);
        let turn = usize::try_from(tries).unwrap_or(0) % holders;
        let others = servers.filter(|server| *server != owner).filter(holds);
        core::iter::once(owner).chain(others).nth(turn).unwrap_or(owner)
    }

    /// ASK: eta + omega after the entry that waits was accepted, a missing promise is asked for, of its owner and of
    /// everybody who may have heard it; a missing acknowledgement of those who owe it.
    fn ask(&mut self, now: Now, out: &mut impl Outbox<W>) -> LocalTime {
        let Blocked::Head { row, ts, unpromised, undecided } = self.blocked() else { return LocalTime::NEVER };
        if unpromised == 0 && !undecided {
            return LocalTime::NEVER;
        }
        let first = self.eta().get() + self.settings.omega.get();
        if self.ask.ts != ts {
            let accepted = self.streams[row].head_accepted().unwrap_or(now.local);
            self.ask = Ask { ts, due: accepted.plus(Span::new(first)), tries: 0 };
        }
        if now.local < self.ask.due {
            return self.ask.due;
        }
        let header = self.header(now);
        for at in 0..self.streams.len() {
            let missing = unpromised & (1 << at) != 0;
            let owes = undecided && self.owes_acknowledgement(at, row);
            if Some(at) == self.own || !(missing || owes) {
                continue;
            }
            let id = self.streams[at].id;
            // At first only the owner is asked; later everybody, since the owner may not be heard here.
            let to = if self.ask.tries == 0 || !missing { To::One(id.server) } else { To::Others };
            self.counters.asks_sent += 1;
            self.send(to, out, |body, _| {
                let fits = header.put(body).and_then(|()| AskMessage { stream: id }.put(body));
                assert!(fits.is_ok(), "a header and an ASK must fit a datagram");
            });
        }
        let wait = self.wait(self.ask.tries);
        self.ask.tries = self.ask.tries.saturating_add(1);
        self.ask.due = now.local.plus(wait);
        self.ask.due
    }

    /// Whether the owner of the stream in row `at` has not acknowledged the undelivered head frame of `row`.
    fn owes_acknowledgement(&self, at: usize, row: usize) -> bool {
        let Some(acks) = self.acks.as_ref() else { return false };
        let held = acks.of(self.streams[at].id.server).get(row).copied().unwrap_or_default();
        held < self.streams[row].head_frame()
    }

    /// A PULL, ASK, OWN, CONFIG_REQ or HELLO of a peer of this instance.
    pub(super) fn request_of_peer(
        &mut self,
        now: Now,
        from: Sender,
        message: &PeerMessage<'_>,
        out: &mut impl Outbox<W>,
    ) {
        match *message {
            PeerMessage::Pull(pull) => self.answer_pull(now, from.server, &pull, out),
            PeerMessage::Ask(AskMessage { stream }) => self.answer_ask(now, from.server, stream, out),
            PeerMessage::Own(Own { stream, last, promise }) => self.take_own_part(now, stream, last, promise),
            PeerMessage::Hello(_) | PeerMessage::ConfigRequest(_) => self.tell_configuration(from, out),
            // A decided configuration of this epoch says nothing new; the rest belongs to rules of later versions.
            PeerMessage::Config(_) => {}
            _ => self.counters.messages_refused += 1,
        }
    }

    fn answer_pull(&mut self, now: Now, to: ServerId, pull: &Pull, out: &mut impl Outbox<W>) {
        let (stream, first) = (pull.stream, pull.from);
        self.close_frame(now);
        let Some(row) = self.streams.iter().position(|held| held.id == stream) else { return };
        let held_first = self.streams[row].store.first();
        let last = pull.to.min(self.streams[row].len());
        let header = self.header(now);
        if first < held_first {
            self.send(To::One(to), out, |body, _| {
                let fits = header.put(body).and_then(|()| Gone { stream, s: first }.put(body));
                assert!(fits.is_ok(), "a header and a GONE must fit a datagram");
            });
        }
        let mut next = first.max(held_first);
        while next <= last {
            let start = next;
            self.send(To::One(to), out, |body, core| {
                let fits = header.put(body);
                assert!(fits.is_ok(), "a header must fit a datagram");
                while next <= last {
                    let Some(bytes) = core.streams[row].store.bytes(next) else { break };
                    if put_frame(body, bytes).is_err() {
                        break;
                    }
                    next = next.next();
                }
            });
            assert!(next > start, "frame {next} of {stream} does not fit a datagram");
            self.counters.frames_pulled += next.get() - start.get();
        }
    }

    /// An ASK of the own stream is answered with a header, of another with the newest own-part held.
    fn answer_ask(&mut self, now: Now, to: ServerId, stream: StreamId, out: &mut impl Outbox<W>) {
        self.close_frame(now);
        let Some(held) = self.streams.iter().find(|held| held.id == stream) else { return };
        if stream.server == self.settings.me {
            self.send_header(now, To::One(to), out);
            return;
        }
        // What was promised past the prefix held is promised past any longer prefix of it.
        let (last, promise) = (held.len(), held.promise());
        let header = self.header(now);
        self.send(To::One(to), out, |body, _| {
            let fits = header.put(body).and_then(|()| Own { stream, last, promise }.put(body));
            assert!(fits.is_ok(), "a header and an OWN must fit a datagram");
        });
    }
}
