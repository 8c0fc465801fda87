//! The normal path: R-STAMP, R-PROMISE, R-ACCEPT, R-ACK, R-TAKE, and when to speak.
//!
//! **Why one file.** These five rules carry every entry; together they are the one round trip that ordering costs.
//! **Invariants**: a header is only made when the frame of the round is closed, so that its promise speaks of all that
//! was stamped; acknowledgements count what is held without a gap, nothing else.
//! **Limits**: a header goes out at most once a round, and at least once a `beat`.
//! **Not here**: delivery (`merge`), pulling (`repair`).
use super::machine::{Core, Event, Now, Outbox, Request, Sender, To};
use super::plant::Fault;
use super::stream::Acceptance;
use super::{FrameNo, LocalTime, ROWS_MAX, SERVERS_MAX, ServerId, Span, StreamId};
use crate::wire::Few;
use crate::wire::bytes::HEAD_LEN;
use crate::wire::frame::{EntryView, FrameView, put_frame};
use crate::wire::header::{Header, HeaderFlags, OwnPart};
use crate::wire::peer::{PeerMessage, messages};

impl<W: Copy> Core<W> {
    /// A datagram of a peer, authenticated: who sent it, its body. Messages that do not parse are counted and dropped.
    ///
    /// Frames are taken before the header they came with: the header's promise speaks of them.
    pub fn datagram(&mut self, now: Now, from: Sender, sent: super::Timestamp, body: &[u8], out: &mut impl Outbox<W>) {
        if from.server == self.settings.me || from.server.place() >= self.settings.servers {
            self.counters.messages_refused += 1;
            return;
        }
        if from.instance != self.instance() || self.configuration.is_none() {
            self.foreign_datagram(now, from, body, out);
            return;
        }
        self.hear(now, from, sent, out);
        let mut header = None;
        let mut repeated = false;
        for message in messages(body) {
            match message {
                Ok(PeerMessage::Header(got)) => header = Some(got),
                Ok(PeerMessage::Frame(frame)) => {
                    repeated |= self.accept(now, &frame, out) == Some(Acceptance::Duplicate)
                }
                Ok(other) => self.request_of_peer(now, from, &other, out),
                Err(_) => {
                    self.counters.messages_refused += 1;
                    break;
                }
            }
        }
        if let Some(header) = header {
            self.take(now, &header, header.from == from.server, out);
        }
        if repeated {
            // R-ACCEPT: its sender has not heard that it is held. Once, however many of its frames were held.
            self.owe_header(from.server);
        }
    }

    /// A peer is to hear a header by the end of the round: one, however often it asked, and none if all hear one.
    pub(super) fn owe_header(&mut self, to: ServerId) {
        self.owed_to |= 1 << to.place();
    }

    /// Sends the headers that single peers are owed, unless a broadcast of this round was one.
    pub(super) fn pay_headers(&mut self, now: Now, out: &mut impl Outbox<W>) {
        let owed = core::mem::take(&mut self.owed_to);
        for server in (0..self.settings.servers).filter_map(ServerId::from_place) {
            if owed & (1 << server.place()) != 0 {
                self.send_header(now, To::One(server), out);
            }
        }
    }

    /// Notes that a peer lives, and how long its datagram took.
    fn hear(&mut self, now: Now, from: Sender, sent: super::Timestamp, out: &mut impl Outbox<W>) {
        let standing = self.configuration.as_ref().and_then(|held| held.incarnation(from.server));
        if standing != Some(from.incarnation) {
            out.event(Event::PeerNotNamed { server: from.server, incarnation: from.incarnation });
            return;
        }
        let Some(peer) = self.peers.get_mut(from.server.place()) else { return };
        peer.heard = Some(now.local);
        // RFC 6298's smoothing, of one-way delays: only waits depend on it. Clocks out of step show as long delays,
        // and waits are clamped where they are used.
        let sample = now.clock.since(sent).get().min(Span::millis(100).get());
        peer.delay = Some(match peer.delay {
            None => (Span::new(sample), Span::new(sample / 2)),
            Some((mean, deviation)) => {
                let off = mean.get().abs_diff(sample);
                (Span::new((mean.get() * 7 + sample) / 8), Span::new((deviation.get() * 3 + off) / 4))
            }
        });
    }

    /// R-STAMP: `ts := max(hlc + 1, clock)`, appended to the frame of this round. False if there is no room for it.
    pub(super) fn stamp(&mut self, now: Now, request: &Request<'_>) -> bool {
        let Some(own) = self.own.and_then(|row| self.streams.get(row)) else { return false };
        // Room is asked for a whole frame, so that what is stamped can always be closed.
        if !own.store.has_room(self.building.capacity()) {
            return false;
        }
        let entry = EntryView {
            ts: self.hlc.stamp(now.clock),
            principal: request.principal,
            session: request.session,
            request: request.request,
            tx: request.tx,
            participants: request.participants,
        };
        if self.building.is_empty() {
            self.building.start(own.id, own.len().next());
        }
        if self.building.push(&entry).is_err() {
            // Full: it closes, and the entry begins the next one, if that still finds room.
            self.close_frame(now);
            let Some(own) = self.own.and_then(|row| self.streams.get(row)) else { return false };
            if !own.store.has_room(self.building.capacity()) {
                return false;
            }
            self.building.start(own.id, own.len().next());
            let pushed = self.building.push(&entry);
            assert!(pushed.is_ok(), "an entry must fit an empty frame");
        }
        self.counters.stamped += 1;
        true
    }

    /// Closes the frame of this round, if anything was stamped.
    ///
    /// # Panics
    /// If the frame does not continue the own stream: its order is broken, so this server must stop.
    pub(super) fn close_frame(&mut self, now: Now) {
        if self.building.is_empty() {
            return;
        }
        let Some(own) = self.own.and_then(|row| self.streams.get_mut(row)) else { return };
        let appended = own.append_own(&self.building.finish(), now.local);
        assert!(appended, "room for the frame was asked for before stamping");
        // Not the clock's last: the entry that did not fit this frame any more is stamped already.
        own.promise_own(own.last_ts());
    }

    /// R-ACCEPT: a frame is stored iff its stream takes frames here and it is the next of it. What is early waits.
    /// `None`: its stream takes no frames here.
    fn accept(&mut self, now: Now, frame: &FrameView<'_>, out: &mut impl Outbox<W>) -> Option<Acceptance> {
        let row = self.configuration.as_ref().and_then(|held| held.row_of(frame.stream()));
        let Some(row) = row.filter(|row| Some(*row) != self.own) else {
            // Of the own stream there is nothing to learn; an unknown stream is of a configuration this version has not.
            self.counters.messages_refused += u64::from(row.is_none());
            return None;
        };
        let stream = self.streams.get_mut(row)?;
        let accepted = stream.accept(frame, now.local, self.settings.omega);
        match accepted {
            Acceptance::Accepted => {
                self.hlc.raise(stream.last_ts());
                self.counters.frames_accepted += 1;
            }
            Acceptance::Duplicate => {
                self.counters.frame_duplicate += 1;
            }
            Acceptance::Early => {
                stream.note_known(frame.number(), now.local, self.settings.omega);
                self.counters.frame_early += 1;
            }
            Acceptance::NoRoom => {
                stream.note_known(frame.number(), now.local, self.settings.omega);
                self.counters.frame_no_room += 1;
            }
            Acceptance::NotRising => {
                self.counters.frame_defect += 1;
                out.event(Event::PeerDefect { server: frame.stream().server });
            }
        }
        Some(accepted)
    }

    /// R-ACK: `ack[me] := own lens`, in the configuration entered.
    pub(super) fn acknowledge(&mut self) {
        let mine = self.lens();
        if let Some(acks) = self.acks.as_mut() {
            acks.take(self.settings.me, mine.as_slice());
        }
    }

    pub(super) fn lens(&self) -> Few<FrameNo, SERVERS_MAX> {
        let mut lens = Few::new();
        for stream in &self.streams {
            // At most one open stream a server.
            let fits = lens.push(stream.len());
            assert!(fits.is_ok(), "more open streams than servers");
        }
        lens
    }

    /// R-TAKE: a header's acknowledgements count iff epoch and incarnation are those of the configuration (I9), its
    /// promise iff its very stream is open here and the prefix is held (S16, S29). What it shows to exist and is
    /// missing will be pulled.
    fn take(&mut self, now: Now, header: &Header, first_hand: bool, out: &mut impl Outbox<W>) {
        let Some(configuration) = &self.configuration else { return };
        if header.from == self.settings.me || header.from.place() >= self.settings.servers {
            return;
        }
        self.counters.headers_taken += 1;
        let named = header.epoch == configuration.epoch && configuration.incarnation(header.from) == Some(header.inc);
        if named || self.settings.plant.is(Fault::CountForeignAcks) {
            if let Some(acks) = self.acks.as_mut() {
                acks.take(header.from, header.acks.as_slice());
            }
            for (stream, held) in self.streams.iter_mut().zip(header.acks.as_slice()) {
                if stream.id.server != self.settings.me {
                    stream.note_known(*held, now.local, self.settings.omega);
                }
            }
        }
        if let Some(own) = header.own {
            let stream = StreamId { server: header.from, opened: own.opened };
            self.take_own_part(now, stream, own.last, own.promise);
        }
        // News, and the word on whose order is right, are taken from their author alone, not from who relays them.
        if named && first_hand {
            self.take_news(now, header, out);
        }
    }

    /// The own-part of a header, or an OWN, whoever relays it.
    pub(super) fn take_own_part(&mut self, now: Now, stream: StreamId, last: FrameNo, promise: super::Timestamp) {
        let omega = self.settings.omega;
        let me = self.settings.me;
        let other_life = self.settings.plant.is(Fault::PromiseOfOtherStream);
        let open =
            |held: &&mut super::stream::Stream| held.id == stream || (other_life && held.id.server == stream.server);
        if let Some(held) = self.streams.iter_mut().find(open)
            && held.id.server != me
        {
            held.take_promise(last, promise, now.local, omega);
        }
    }

    /// Of its news only the newest of an incarnation counts; its prefix hash is compared at every occasion.
    fn take_news(&mut self, now: Now, header: &Header, out: &mut impl Outbox<W>) {
        let differs = self.ledger.hash_at(header.ordered).is_some_and(|hash| hash != header.hash);
        let Some(peer) = self.peers.get_mut(header.from.place()) else { return };
        // A time stamp from far ahead would make all later news look stale.
        peer.newest = peer.newest.max(header.sent.min(now.clock.plus(Span::secs(1))));
        if differs && !peer.hash_differs {
            peer.hash_differs = true;
            out.event(Event::PeerDefect { server: header.from });
        }
        let against = self.peers.iter().filter(|peer| peer.hash_differs).count();
        let majority = self.settings.servers / 2 + 1;
        // Section 11: a server whose hash differs from f + 1 others' is the one that erred, and stops.
        assert!(against < majority, "this server's order differs from a majority's at number {}", header.ordered);
    }

    /// Speaks, if there is reason to: own frames with a header on top; else a header *now* iff acknowledgements or flags
    /// changed since the last broadcast, or an accepted undelivered time stamp exceeds the promise last broadcast; else
    /// at the beat. Under load (`more_input`) a header that is due waits up to `ack_delay` for a frame to ride on.
    /// So no acknowledgement is ever acknowledged. Returns when to look again.
    pub(super) fn speak(&mut self, now: Now, more_input: bool, out: &mut impl Outbox<W>) -> LocalTime {
        let beat_at = self.spoken.at.plus(self.settings.beat);
        if self.settings.servers == 1 {
            self.sent_through = self.own.and_then(|row| self.streams.get(row)).map(|own| own.len()).unwrap_or_default();
            return LocalTime::NEVER;
        }
        let own_len = self.own.and_then(|row| self.streams.get(row)).map(super::stream::Stream::len);
        if own_len.is_some_and(|len| len > self.sent_through) {
            let all = self.broadcast_frames(now, out);
            return if all { now.local.plus(self.settings.beat) } else { now.local };
        }
        if self.header_due() {
            let owed = *self.owed.get_or_insert(now.local);
            let until = owed.plus(self.settings.ack_delay);
            if more_input && now.local < until.min(beat_at) {
                return until.min(beat_at);
            }
            self.counters.headers_alone += 1;
        } else if now.local >= beat_at || !self.spoken.ever {
            self.counters.headers_beat += 1;
        } else {
            return beat_at;
        }
        self.send_header(now, To::Others, out);
        now.local.plus(self.settings.beat)
    }

    fn header_due(&self) -> bool {
        let lens = self.lens();
        let acks_changed = lens.as_slice().iter().zip(&self.spoken.acks).any(|(now, then)| now != then);
        let unpromised =
            |stream: &super::stream::Stream| stream.head().is_some() && stream.last_ts() > self.spoken.promise;
        acks_changed || self.draining != self.spoken.draining || self.streams.iter().any(unpromised)
    }

    /// Broadcasts the own frames not sent yet, as many to a datagram as fit beside the header. False if some must wait for
    /// the next round: no more datagrams would leave in this one.
    ///
    /// The header of a datagram speaks of the frames up to its last, with that one's time stamp as the promise; only the
    /// last datagram promises all: so a receiver is not told of frames that are behind it in the same burst.
    fn broadcast_frames(&mut self, now: Now, out: &mut impl Outbox<W>) -> bool {
        let mut header = self.header(now);
        let Some(row) = self.own else { return true };
        let (last, promised) = (self.streams[row].len(), header.own);
        let room = self.settings.body_max - header.len() - HEAD_LEN;
        while self.sent_through < last {
            if out.room(To::Others) == 0 {
                return false;
            }
            let first = self.sent_through.next();
            let through = self.fitting(row, first, room);
            let held = self.streams[row].store.held(through).map(|held| held.last_ts);
            let (Some(opened), Some(promise)) = (promised.map(|own| own.opened), held) else { return true };
            header.own = if through == last { promised } else { Some(OwnPart { opened, last: through, promise }) };
            self.send(To::Others, out, |body, core| {
                let mut fits = header.put(body);
                let mut next = first;
                while next <= through {
                    let bytes = core.streams[row].store.bytes(next).unwrap_or_default();
                    fits = fits.and_then(|()| put_frame(body, bytes));
                    next = next.next();
                }
                assert!(fits.is_ok(), "frames {first} to {through} must fit a datagram");
            });
            self.counters.frames_sent += through.get() - self.sent_through.get();
            self.counters.frame_datagrams += 1;
            self.sent_through = through;
        }
        self.note_spoken(now, &header);
        true
    }

    /// The last of the own frames from `first` on that fit into `room` bytes together; `first` itself always does.
    fn fitting(&self, row: usize, first: FrameNo, room: usize) -> FrameNo {
        let size = |s| self.streams[row].store.bytes(s).map(|bytes| bytes.len() + HEAD_LEN);
        let (mut through, mut used) = (first, size(first).unwrap_or_default());
        while let Some(more) = size(through.next())
            && used + more <= room
        {
            used += more;
            through = through.next();
        }
        through
    }

    /// Sends a header alone. The frame of the round must be closed.
    pub(super) fn send_header(&mut self, now: Now, to: To, out: &mut impl Outbox<W>) {
        let header = self.header(now);
        self.send(to, out, |body, _| {
            let fits = header.put(body);
            assert!(fits.is_ok(), "a header must fit a datagram");
        });
        if to == To::Others {
            self.note_spoken(now, &header);
        }
    }

    fn note_spoken(&mut self, now: Now, header: &Header) {
        self.owed_to = 0;
        self.spoken.at = now.local;
        self.spoken.ever = true;
        self.spoken.draining = header.flags.draining;
        self.spoken.promise = self.hlc.last();
        self.spoken.acks = [FrameNo::default(); ROWS_MAX];
        self.spoken.acks.iter_mut().zip(header.acks.as_slice()).for_each(|(to, from)| *to = *from);
        self.owed = None;
    }

    /// R-PROMISE: `own := (g, last frame number, promise := hlc := max(hlc, clock))`, and what else a header says.
    ///
    /// # Panics
    /// If stamped entries are not in a closed frame: the promise would not speak of them.
    pub(super) fn header(&mut self, now: Now) -> Header {
        assert!(self.building.is_empty(), "a promise must not overtake what is stamped");
        let promise = self.hlc.promise(now.clock);
        let own = self.own.and_then(|row| self.streams.get_mut(row)).map(|own| {
            own.promise_own(promise);
            OwnPart { opened: own.id.opened, last: own.len(), promise }
        });
        let is_member = self.is_member();
        let mut echo = Few::new();
        for peer in self.peers.iter().take(self.settings.servers) {
            let fits = echo.push(peer.newest);
            assert!(fits.is_ok(), "more peers than servers");
        }
        Header {
            from: self.settings.me,
            inc: self.incarnation,
            epoch: self.configuration.as_ref().map(|held| held.epoch).unwrap_or_default(),
            own,
            acks: if is_member { self.lens() } else { Few::new() },
            ordered: self.ledger.last_order(),
            hash: self.ledger.hash(),
            sent: now.clock,
            flags: HeaderFlags { member: is_member, draining: self.draining, clock_ok: true, ..HeaderFlags::default() },
            eta_ns: u32::try_from(self.eta().get()).unwrap_or(u32::MAX),
            echo,
            ..Header::default()
        }
    }

    /// R-DISCARD, as far as it goes without snapshots: a frame is dropped once delivered here and held by every place.
    pub(super) fn discard(&mut self) {
        let Some(acks) = self.acks.as_ref() else { return };
        for (row, stream) in self.streams.iter_mut().enumerate() {
            stream.discard(acks.everywhere(row));
        }
    }
}
