//! The protocol core of one server: datagrams, requests and time in; datagrams, answers and timers out.
//!
//! **Why.** No I/O inside, so the same code runs under the engine and under the simulator, and every run can be
//! replayed. The caller's duties: hand in authenticated datagrams and validated requests, then call [`Core::turn`] once
//! per round of its loop, and again at the time it returned at the latest.
//! **Invariants**: entries stamped in a round are in a closed frame before any header or delivery of that round, so a
//! promise never overtakes what it speaks of; nothing is allocated after [`Core::new`].
//! **Limits**: [`Settings::inflight`] own requests under way, [`Settings::frames`] bytes of frames; full is refused as
//! `overloaded` and counted.
//! **Not here**: the rules themselves: `normal` (R-STAMP to R-TAKE), `merge` (R-DELIVER), `repair` (PULL, ASK),
//! `genesis`. Epoch changes: a configuration never changes after genesis in this version.
use super::acks::Acks;
use super::config::Configuration;
use super::hlc::Hlc;
use super::inflight::{Inflight, RequestKey, Waiting};
use super::ledger::hash;
use super::ledger::{Ledger, Limits, Lookup, Participants};
use super::plant::Plant;
use super::stream::Stream;
use super::{
    Epoch, FrameNo, Incarnation, Instance, LocalTime, OrderNo, Principal, ROWS_MAX, Refusal, RequestNo, SERVERS_MAX,
    ServerId, SessionId, Span, Timestamp, TxId, genesis,
};
use crate::wire::BodyWriter;
use crate::wire::builder::FrameBuilder;
use crate::wire::bytes::HEAD_LEN;
use crate::wire::header::HEADER_LEN_MAX;
use crate::wire::peer::Terms;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// What a core is told at construction.
#[derive(Clone, Debug)]
pub struct Settings {
    /// This server's place.
    pub me: ServerId,
    /// How many places there are: 1, 3, 5 or 7.
    pub servers: usize,
    /// Randomness: incarnations and the instance are drawn from it. Never the same twice in production.
    pub seed: u64,
    /// Largest body of a datagram to a peer: the payload less envelope and tag.
    pub body_max: usize,
    /// A header when nothing else was sent for so long.
    pub beat: Span,
    /// How long what is missing may still be on its way.
    pub omega: Span,
    /// How long an acknowledgement may wait for a frame to ride on, under load.
    pub ack_delay: Span,
    /// Most own requests under way.
    pub inflight: usize,
    /// Bytes of frames held, all streams together.
    pub frames: usize,
    /// The ledger's sizes.
    pub limits: Limits,
    /// What must be the same at every server; compared at genesis.
    pub terms: Terms,
    /// A rule removed, in tests.
    pub plant: Plant,
}

/// The two clocks, read once per round.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// Cluster time.
    pub clock: Timestamp,
    /// This host's monotonic clock.
    pub local: LocalTime,
}

/// Who a datagram is from: what the envelope says of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The place.
    pub server: ServerId,
    /// The life.
    pub incarnation: Incarnation,
    /// The instance it belongs to; none before genesis.
    pub instance: Instance,
}

/// Who a datagram goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// Every other place.
    Others,
    /// One place.
    One(ServerId),
}

/// A request, as a client sent it. Its content has been validated on parsing.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Whose it is.
    pub principal: Principal,
    /// Its session.
    pub session: SessionId,
    /// Its number in the session.
    pub request: RequestNo,
    /// The transaction.
    pub tx: TxId,
    /// Its participants.
    pub participants: Participants<'a>,
    /// How deep a history the answer shall have.
    pub depth: u8,
    /// The instance the client believes in; none if it does not know yet.
    pub instance: Instance,
}

/// An answer: a place in the order, and the ledger to read histories from.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// Which request.
    pub key: RequestKey,
    /// Its place.
    pub order: OrderNo,
    /// How deep a history was asked for.
    pub depth: u8,
    /// The life of the numbering.
    pub instance: Instance,
    /// Where record and histories are.
    pub ledger: &'a Ledger,
}

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Which request.
    pub key: RequestKey,
    /// Why.
    pub why: Refusal,
    /// Asking again, here or elsewhere, cannot end otherwise.
    pub is_final: bool,
    /// When to ask again, if it is not.
    pub retry_after: Span,
}

/// A change of state worth telling an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The cluster formed, and this server entered its first configuration.
    Entered {
        /// The configuration's number.
        epoch: Epoch,
        /// The life of the numbering.
        instance: Instance,
    },
    /// An instance lives in which this process has no place: it was restarted, and cannot take part.
    NotNamed {
        /// The instance that lives.
        instance: Instance,
        /// The life that fills this server's place in it.
        standing: Incarnation,
    },
    /// A peer's process is not the one in the configuration: it was restarted and is refused.
    PeerNotNamed {
        /// Which server.
        server: ServerId,
        /// The life that asked.
        incarnation: Incarnation,
    },
    /// A value that must be the same everywhere is not.
    SettingsDiffer {
        /// Which peer differs.
        server: ServerId,
        /// Which value: its place in [`Terms::settings`], or one of `SettingsMismatch`'s names.
        index: u8,
        /// This server's.
        mine: u64,
        /// The peer's.
        theirs: u64,
    },
    /// A peer sent a frame or header that no server following the protocol sends.
    PeerDefect {
        /// Which server.
        server: ServerId,
    },
}

/// Where a core's output goes.
pub trait Outbox<W> {
    /// A datagram to peers: an envelope that says `sender`, and this body.
    fn datagram(&mut self, to: To, sender: Sender, body: &[u8]);
    /// The answer for who waits.
    fn answer(&mut self, waiter: W, answer: &Answer<'_>);
    /// A refusal for who waits.
    fn refuse(&mut self, waiter: W, refused: &Refused);
    /// Something for the log.
    fn event(&mut self, event: Event);
    /// How many more datagrams to `to` would leave in this round; what is beyond would be lost.
    fn room(&self, _to: To) -> usize {
        usize::MAX
    }
    /// An entry got its number here: every server tells this, in the total order.
    fn delivered(&mut self, _order: OrderNo, _ledger: &Ledger) {}
}

/// What is counted. All only ever grow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Requests stamped.
    pub stamped: u64,
    /// Own frames broadcast.
    pub frames_sent: u64,
    /// Datagrams that carried own frames.
    pub frame_datagrams: u64,
    /// Headers broadcast with no frame to ride on.
    pub headers_alone: u64,
    /// Headers sent because their beat had come.
    pub headers_beat: u64,
    /// Frames of others accepted.
    pub frames_accepted: u64,
    /// Frames that were held already.
    pub frame_duplicate: u64,
    /// Frames that came before an earlier one.
    pub frame_early: u64,
    /// Frames there was no room for.
    pub frame_no_room: u64,
    /// Frames no protocol-following server sends.
    pub frame_defect: u64,
    /// Headers taken.
    pub headers_taken: u64,
    /// PULLs sent.
    pub pulls_sent: u64,
    /// Frames sent because they were pulled.
    pub frames_pulled: u64,
    /// ASKs sent.
    pub asks_sent: u64,
    /// Datagrams of another instance.
    pub other_instance: u64,
    /// Messages that did not parse or are not for this version's rules.
    pub messages_refused: u64,
    /// Requests refused, by [`Refusal::code`].
    pub refused: [u64; Refusal::ALL.len() + 1],
    /// Answers given.
    pub answered: u64,
    /// Retries that found their request under way.
    pub retries_joined: u64,
}

/// What this server knows of a peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peer {
    /// When anything was last heard of it, if ever.
    pub(super) heard: Option<LocalTime>,
    /// The newest `sent` of its headers: news older than that is stale.
    pub(super) newest: Timestamp,
    /// Smoothed one-way delay and its mean deviation (RFC 6298's way), for repair waits.
    pub(super) delay: Option<(Span, Span)>,
    /// Its prefix hash differed from ours at the same number.
    pub(super) hash_differs: bool,
}

/// What the last broadcast header said: another is due when this has changed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spoken {
    pub(super) at: LocalTime,
    pub(super) promise: Timestamp,
    pub(super) acks: [FrameNo; ROWS_MAX],
    pub(super) draining: bool,
    pub(super) ever: bool,
}

/// One server's protocol. `W` says where an answer goes; it is the caller's.
#[derive(Debug)]
pub struct Core<W> {
    pub(super) settings: Settings,
    pub(super) rng: fastrand::Rng,
    pub(super) incarnation: Incarnation,
    pub(super) genesis: genesis::Genesis,
    pub(super) configuration: Option<Configuration>,
    pub(super) streams: Vec<Stream>,
    pub(super) own: Option<usize>,
    pub(super) acks: Option<Acks>,
    pub(super) hlc: Hlc,
    pub(super) ledger: Ledger,
    /// The last entry delivered: the order rises in (time stamp, server).
    pub(super) merged: (Timestamp, ServerId),
    pub(super) inflight: Inflight<W>,
    pub(super) building: FrameBuilder,
    pub(super) sent_through: FrameNo,
    pub(super) spoken: Spoken,
    pub(super) owed: Option<LocalTime>,
    /// Bit k: the peer at place k is to hear a header by the end of the round.
    pub(super) owed_to: u8,
    pub(super) ask: super::repair::Ask,
    pub(super) peers: [Peer; SERVERS_MAX],
    pub(super) draining: bool,
    pub(super) scratch: Box<[u8]>,
    pub(super) counters: Counters,
}

impl<W: Copy> Core<W> {
    /// A fresh process: it remembers nothing, draws an incarnation and waits for genesis. Takes all its memory here.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let mut rng = fastrand::Rng::with_seed(settings.seed);
        let incarnation = Incarnation::new(rng.u64(1..));
        let stream_bytes = settings.frames / settings.servers.max(1);
        let frame_max = settings.body_max;
        let streams = (0..settings.servers)
            .filter_map(ServerId::from_place)
            .map(|server| super::StreamId { server, opened: Epoch::new(0) })
            .map(|id| Stream::new(id, Timestamp::default(), stream_bytes, frame_max, settings.plant))
            .collect();
        Self {
            incarnation,
            genesis: genesis::Genesis::default(),
            configuration: None,
            streams,
            own: None,
            acks: None,
            hlc: Hlc::new(settings.plant),
            ledger: planted_ledger(&settings),
            merged: Default::default(),
            inflight: Inflight::new(settings.inflight, settings.seed),
            building: FrameBuilder::new(Self::frame_room(&settings)),
            sent_through: FrameNo::default(),
            spoken: Spoken::default(),
            owed: None,
            owed_to: 0,
            ask: super::repair::Ask::default(),
            peers: [Peer::default(); SERVERS_MAX],
            draining: false,
            scratch: vec![0; settings.body_max].into_boxed_slice(),
            counters: Counters::default(),
            rng,
            settings,
        }
    }

    /// Memory a core of these settings takes, in bytes, as far as its tables go.
    #[must_use]
    pub fn memory(settings: &Settings) -> usize {
        let stream = Stream::memory(settings.frames / settings.servers.max(1), settings.body_max);
        stream * settings.servers
            + settings.limits.bytes()
            + Inflight::<W>::memory(settings.inflight)
            + 2 * settings.body_max
    }

    /// The largest frame that fits a datagram beside a header.
    fn frame_room(settings: &Settings) -> usize {
        settings.body_max.saturating_sub(HEADER_LEN_MAX + 2 * HEAD_LEN)
    }

    /// What this server says of itself in every envelope.
    #[must_use]
    pub fn sender(&self) -> Sender {
        Sender { server: self.settings.me, incarnation: self.incarnation, instance: self.instance() }
    }

    /// The instance this server belongs to; none before genesis.
    #[must_use]
    pub fn instance(&self) -> Instance {
        self.configuration.as_ref().map_or(Instance::NONE, |configuration| configuration.instance)
    }

    /// The configuration entered.
    #[must_use]
    pub fn configuration(&self) -> Option<&Configuration> {
        self.configuration.as_ref()
    }

    /// This process stands in the configuration it entered, so it may acknowledge and order.
    #[must_use]
    pub fn is_member(&self) -> bool {
        let held = self.configuration.as_ref();
        held.is_some_and(|held| held.incarnation(self.settings.me) == Some(self.incarnation))
    }

    /// The ledger.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The streams, in row order.
    #[must_use]
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// What each place acknowledged in the configuration entered.
    #[must_use]
    pub fn acks(&self) -> Option<&Acks> {
        self.acks.as_ref()
    }

    /// What was counted.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The largest time stamp given, accepted or promised.
    #[must_use]
    pub fn hlc(&self) -> Timestamp {
        self.hlc.last()
    }

    /// Requests stamped here and not delivered yet.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.inflight.len()
    }

    /// Stops admitting requests; what is held is finished.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Everything this server held for its clients is answered, and its peers were sent the acknowledgements and the
    /// promise that theirs wait for.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.draining && self.inflight.is_empty() && self.owed.is_none()
    }

    /// A new session's id: its creation is told in cluster time by the server, never by the client's clock.
    #[must_use]
    pub fn open_session(&mut self, now: Now) -> Option<SessionId> {
        if !self.is_member() || self.draining {
            return None;
        }
        // Not behind the ledger's time, though this clock may be: else the session would be born too old.
        let created = now.clock.max(self.ledger.time());
        Some(SessionId { created, nonce: self.rng.u64(..) })
    }

    /// A request of a client. Answered at once if the ledger has its answer, joined if it is under way, else stamped
    /// (R-STAMP) into the frame of this round.
    ///
    /// # Panics
    /// If what was stamped finds no place among those under way: a defect, and the order is at stake.
    pub fn request(&mut self, now: Now, request: &Request<'_>, waiter: W, out: &mut impl Outbox<W>) {
        let key = RequestKey { principal: request.principal, session: request.session, request: request.request };
        if let Some((why, is_final, retry_after)) = self.unwilling(request) {
            self.refuse(key, waiter, why, is_final, retry_after, out);
            return;
        }
        match self.ledger.lookup(key.principal, key.session, key.request, request.tx, request.participants) {
            Lookup::Answered(order) => {
                let answer =
                    Answer { key, order, depth: request.depth, instance: self.instance(), ledger: &self.ledger };
                out.answer(waiter, &answer);
                self.counters.answered += 1;
                return;
            }
            Lookup::Refused(why) => {
                // What has left the window or retention may have been numbered, so this is no last word on that.
                let is_final = why != Refusal::WindowExceeded;
                self.refuse(key, waiter, why, is_final, Span::default(), out);
                return;
            }
            Lookup::Unknown => {}
        }
        let body = hash::body(request.tx, request.participants);
        if let Some(waiting) = self.inflight.find(&key) {
            if waiting.tx == request.tx && waiting.body == body {
                waiting.waiter = Some(waiter);
                waiting.depth = request.depth;
                self.counters.retries_joined += 1;
            } else {
                self.refuse(key, waiter, Refusal::RequestDiffers, true, Span::default(), out);
            }
            return;
        }
        let waiting = Waiting { key, tx: request.tx, body, depth: request.depth, waiter: Some(waiter) };
        if self.inflight.is_full() || !self.stamp(now, request) {
            self.refuse(key, waiter, Refusal::Overloaded, false, Span::millis(5), out);
            return;
        }
        let pushed = self.inflight.push(waiting);
        assert!(pushed, "a stamped request must have a place among those under way");
    }

    /// Why no request is admitted now, if so: the reason, whether it is final, when to come back.
    fn unwilling(&self, request: &Request<'_>) -> Option<(Refusal, bool, Span)> {
        if !self.is_member() || self.draining {
            return Some((Refusal::NotMember, false, Span::millis(50)));
        }
        let other = request.instance != Instance::NONE && request.instance != self.instance();
        other.then_some((Refusal::WrongInstance, true, Span::default()))
    }

    pub(super) fn refuse(
        &mut self,
        key: RequestKey,
        waiter: W,
        why: Refusal,
        is_final: bool,
        retry_after: Span,
        out: &mut impl Outbox<W>,
    ) {
        self.counters.refused[usize::from(why.code())] += 1;
        out.refuse(waiter, &Refused { key, why, is_final, retry_after });
    }

    /// Ends a round: closes the frame of this round, speaks, delivers what may be delivered, repairs what is missing.
    /// `more_input`: more is waiting, so an acknowledgement may wait for a frame to ride on. Returns when to call again
    /// at the latest.
    pub fn turn(&mut self, now: Now, more_input: bool, out: &mut impl Outbox<W>) -> LocalTime {
        if self.configuration.is_none() {
            return self.genesis_turn(now, out);
        }
        self.close_frame(now);
        self.acknowledge();
        let speak_at = self.speak(now, more_input, out);
        self.pay_headers(now, out);
        // What earlier rounds delivered: so whoever looks at a core between rounds sees every frame at least once.
        self.discard();
        self.deliver(out);
        let repair_at = self.repair(now, out);
        speak_at.min(repair_at)
    }

    /// Writes a body into the scratch memory and sends it.
    pub(super) fn send(&mut self, to: To, out: &mut impl Outbox<W>, write: impl FnOnce(&mut BodyWriter<'_>, &Self)) {
        let mut scratch = core::mem::take(&mut self.scratch);
        let mut body = BodyWriter::new(&mut scratch);
        write(&mut body, self);
        let len = body.len();
        out.datagram(to, self.sender(), scratch.get(..len).unwrap_or_default());
        self.scratch = scratch;
    }
}

fn planted_ledger(settings: &Settings) -> Ledger {
    // The tables are laid out by a random number, so that no client can choose ids that crowd them.
    let ledger = Ledger::seeded(settings.limits, settings.seed);
    #[cfg(test)]
    let ledger = {
        let mut ledger = ledger;
        ledger.plant_forget_duplicates(settings.plant.is(super::plant::Fault::LedgerKeepsDuplicates));
        ledger
    };
    ledger
}
