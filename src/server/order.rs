//! The role `order`: the protocol core and the peer socket, run to completion.
//!
//! **Why.** A peer's datagram in, frames and headers out, without a hop to another thread: the one round trip that
//! ordering costs is spent here.
//! **Invariants**: what is not authentic reaches no parser; a broadcast is sealed once and copied to each peer.
//! **Limits**: [`OUT_MAX`] datagrams wait between a datagram that causes them and the turn that sends them; beyond,
//! they are dropped and counted, as a network would (the protocol repairs).
//! **Not here**: clients (`ingress`), the protocol itself (`protocol`).
use std::net::SocketAddr;

use super::counts::take_over;
use super::slots::{Asked, Done, MESSAGE_MAX, Reply, Told, Want};
use crate::engine::backend::{Io, Received, SocketId};
use crate::engine::clock;
use crate::engine::cores::{Now as EngineNow, Role, Turn};
use crate::engine::link::Outlet;
use crate::engine::ring::{Consumer, Producer};
use crate::engine::stop::Stop;
use crate::protocol::ledger::{Ledger, Participants, Record};
use crate::protocol::machine::{Answer, Core, Event, Now, Outbox, Refused, Request, Sender, Settings, To};
use crate::protocol::merge::Blocked;
use crate::protocol::{
    HISTORY_MAX, Instance, LocalTime, OrderNo, PARTICIPANTS_MAX, RequestNo, SERVERS_MAX, Span, Timestamp, TxId, WINDOW,
};
use crate::stats::file::Owner;
use crate::stats::metrics::{self, State};
use crate::wire::answer::{ANSWER_HEAD_LEN, AnswerHead, AnswerKind, AnswerSource, PartHead, part_len, put_answer};
use crate::wire::auth::PeerKey;
use crate::wire::bytes::HEAD_LEN;
use crate::wire::client::{OpenedSession, Refused as RefusedMessage};
use crate::wire::{BodyWriter, DropReason, ENVELOPE_LEN, PAYLOAD_MAX, PeerEnvelope, open_peer, seal_peer};

/// Most datagrams that wait for the turn that sends them. One PULL is answered with up to 64.
pub const OUT_MAX: usize = 256;
/// How long a server that has finished stays for its peers' last entries, at least and at most.
const LINGER: Span = Span::millis(50);
const LINGER_MAX: Span = Span::secs(1);
/// Most requests taken in one turn, so that peers are heard between.
const TAKE_MAX: usize = 1_024;

/// Where an answer goes: to which ingress, and from there to whom.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    ingress: u8,
    reply: Reply,
}

/// The link with one ingress.
#[derive(Debug)]
pub struct Gate {
    /// What its clients ask.
    pub asked: Consumer<Asked>,
    /// What they are told.
    pub told: Outlet<Told>,
}

/// What the role is made of.
#[derive(Debug)]
pub struct Parts {
    /// The core's settings.
    pub settings: Settings,
    /// The socket it hears its peers on.
    pub socket: SocketId,
    /// Where each place's peer socket is; the own place is not used.
    pub peers: [Option<SocketAddr>; SERVERS_MAX],
    /// The key among servers.
    pub key: PeerKey,
    /// Longest datagram.
    pub payload_max: usize,
    /// One per ingress.
    pub gates: Vec<Gate>,
    /// Changes of state, for the log.
    pub events: Producer<Option<Event>>,
    /// What is counted.
    pub counts: Owner<metrics::Order>,
    /// Told when it ends.
    pub done: Done,
    /// Asked to stop: finish what is held, then end.
    pub stop: Stop,
}

/// The role.
pub struct Order {
    core: Core<Waiter>,
    out: Out,
    gates: Vec<Consumer<Asked>>,
    socket: SocketId,
    done: Done,
    stop: Stop,
    key: PeerKey,
    payload_max: usize,
    /// Since when nothing of its own clients' is unfinished, once it is to stop.
    drained: Option<LocalTime>,
}

/// Where the core's output goes: datagrams wait here until the turn sends them.
struct Out {
    waiting: Vec<(To, usize)>,
    bytes: Box<[u8]>,
    stride: usize,
    key: PeerKey,
    peers: [Option<SocketAddr>; SERVERS_MAX],
    told: Vec<Outlet<Told>>,
    events: Producer<Option<Event>>,
    counts: Owner<metrics::Order>,
    place: usize,
    reading: Reading,
    /// The turn's time.
    now: LocalTime,
    /// The turn's time by the clock that stamps, while the core delivers: answers are of entries it has just ordered.
    delivering: Option<Timestamp>,
}

impl Outbox<Waiter> for Out {
    fn datagram(&mut self, to: To, sender: Sender, body: &[u8]) {
        let at = self.waiting.len();
        if at == OUT_MAX {
            self.counts.peer_out_full.add(1);
            return;
        }
        let slot = &mut self.bytes[at * self.stride..(at + 1) * self.stride];
        slot[ENVELOPE_LEN..ENVELOPE_LEN + body.len()].copy_from_slice(body);
        let envelope = PeerEnvelope {
            from: sender.server,
            instance: sender.instance,
            inc: sender.incarnation,
            sent: clock::realtime(),
            eps_ns: 0,
        };
        let len = seal_peer(slot, &envelope, body.len(), &self.key);
        self.waiting.push((to, len));
    }

    fn answer(&mut self, waiter: Waiter, answer: &Answer<'_>) {
        let Some(record) = answer.ledger.record(answer.order) else {
            // The core answers only what is retained; a record that left between is asked for again.
            self.counts.answer_dropped.add(1);
            return;
        };
        let mut reading = core::mem::take(&mut self.reading);
        reading.read(answer.ledger, &record, answer.depth);
        if let Some(clock) = self.delivering {
            self.counts.order_ns.record(clock.since(record.ts()).get());
        }
        let head = AnswerHead {
            request: answer.key.request,
            order: answer.order,
            ts: record.ts(),
            instance: answer.instance,
            provisional: false,
        };
        // All of it or nothing: an answer in part is asked for again as a whole.
        let free =
            self.told.get(usize::from(waiter.ingress)).map_or(0, |told| told.ring().capacity() - told.ring().len());
        if free < slots(reading.total(), answer.depth) {
            self.counts.answer_dropped.add(1);
            self.reading = reading;
            return;
        }
        let mut first = 0;
        while first < reading.total() {
            let mut next = reading.total();
            self.tell(waiter, answer.instance, |body| {
                next = put_answer(body, AnswerKind::Answer, &head, &reading, first).unwrap_or(next);
            });
            first = next;
        }
        self.reading = reading;
    }

    fn refuse(&mut self, waiter: Waiter, refused: &Refused) {
        let message = RefusedMessage {
            request: refused.key.request,
            retry_after_us: u32::try_from(refused.retry_after.get() / 1_000).unwrap_or(u32::MAX),
            reason: refused.why,
            is_final: refused.is_final,
            detail: 0,
        };
        self.tell(waiter, Instance::NONE, |body| {
            let fits = message.put(body);
            debug_assert!(fits.is_ok(), "a REFUSED fits every slot");
        });
    }

    fn room(&self, to: To) -> usize {
        // What single peers pull may not crowd out what all wait for.
        let most = if to == To::Others { OUT_MAX } else { OUT_MAX / 4 * 3 };
        most.saturating_sub(self.waiting.len())
    }

    fn event(&mut self, event: Event) {
        if self.events.push(Some(event)).is_err() {
            self.counts.event_dropped.add(1);
        }
    }
}

impl Out {
    /// Encodes one message into a slot of the waiter's ingress. Full: dropped and counted; the client asks again.
    fn tell(&mut self, waiter: Waiter, instance: Instance, write: impl FnOnce(&mut BodyWriter<'_>)) {
        let Some(told) = self.told.get_mut(usize::from(waiter.ingress)) else { return };
        let pushed = told.push_with(|slot| {
            slot.reply = waiter.reply;
            slot.instance = instance;
            slot.at = self.now;
            let mut body = BodyWriter::new(&mut slot.bytes);
            write(&mut body);
            slot.len = body.len();
        });
        if pushed.is_err() {
            self.counts.answer_dropped.add(1);
        }
    }

    /// Sends what waits: to one peer, or to all others.
    fn send(&mut self, io: &mut dyn Io, socket: SocketId) -> usize {
        let count = self.waiting.len();
        self.counts.out_high.raise(wide(count));
        for (at, (to, len)) in self.waiting.iter().enumerate() {
            let datagram = &self.bytes[at * self.stride..at * self.stride + len];
            for (place, peer) in self.peers.iter().enumerate() {
                let wanted = match to {
                    To::Others => place != self.place,
                    To::One(server) => place == server.place(),
                };
                let Some(address) = peer.filter(|_| wanted) else { continue };
                let sent = io.send(socket, address, &mut |buffer| {
                    buffer[..*len].copy_from_slice(datagram);
                    *len
                });
                if sent.is_err() {
                    self.counts.peer_out_full.add(1);
                }
            }
        }
        self.waiting.clear();
        count
    }
}

/// An answer read from the ledger once, in memory that is used again and again.
#[derive(Default)]
struct Reading {
    parts: Vec<PartHead>,
    steps: Vec<(OrderNo, TxId)>,
    starts: Vec<usize>,
}

impl Reading {
    fn new() -> Self {
        Self {
            parts: Vec::with_capacity(PARTICIPANTS_MAX),
            steps: Vec::with_capacity(PARTICIPANTS_MAX * HISTORY_MAX),
            starts: Vec::with_capacity(PARTICIPANTS_MAX),
        }
    }

    fn read(&mut self, ledger: &Ledger, record: &Record<'_>, depth: u8) {
        self.parts.clear();
        self.steps.clear();
        self.starts.clear();
        for part in record.parts() {
            let start = self.steps.len();
            self.steps.extend(ledger.history(part, usize::from(depth)));
            let depth = u8::try_from(self.steps.len() - start).unwrap_or(0);
            self.parts.push(PartHead { id: part.id, seq: part.seq, depth });
            self.starts.push(start);
        }
    }
}

impl AnswerSource for Reading {
    fn total(&self) -> u8 {
        u8::try_from(self.parts.len()).unwrap_or(u8::MAX)
    }

    fn part(&self, index: u8) -> PartHead {
        self.parts[usize::from(index)]
    }

    fn step(&self, index: u8, back: u8) -> (OrderNo, TxId) {
        self.steps[self.starts[usize::from(index)] + usize::from(back)]
    }
}

/// Most slots that an answer of so many parts, with histories so deep, is cut into.
fn slots(parts: u8, depth: u8) -> usize {
    let room = MESSAGE_MAX - HEAD_LEN - ANSWER_HEAD_LEN;
    let each = (room / part_len(usize::from(depth))).max(1);
    usize::from(parts).div_ceil(each)
}

impl Order {
    /// The role, with all its memory.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts { settings, socket, peers, key, payload_max, gates, events, counts, done, stop } = parts;
        let stride = payload_max.min(PAYLOAD_MAX);
        let (asked, told) = gates.into_iter().map(|gate| (gate.asked, gate.told)).unzip();
        let out = Out {
            waiting: Vec::with_capacity(OUT_MAX),
            bytes: vec![0; OUT_MAX * stride].into_boxed_slice(),
            stride,
            key,
            peers,
            told,
            events,
            counts,
            place: settings.me.place(),
            reading: Reading::new(),
            now: LocalTime::default(),
            delivering: None,
        };
        Self { core: Core::new(settings), out, gates: asked, socket, done, stop, key, payload_max, drained: None }
    }

    fn take_requests(&mut self, now: Now) -> usize {
        let Self { core, out, gates, payload_max, .. } = self;
        let mut taken = 0;
        for (ingress, gate) in gates.iter_mut().enumerate() {
            let depth = wide(gate.len());
            if let (Some(last), Some(most)) = (out.counts.asked_depth.get(ingress), out.counts.asked_high.get(ingress))
            {
                last.set(depth);
                most.raise(depth);
            }
            let ingress = u8::try_from(ingress).unwrap_or(u8::MAX);
            taken += gate.pop_batch(TAKE_MAX, |asked| {
                out.counts.ring_wait_ns.record(now.local.since(asked.at).get());
                let waiter = Waiter { ingress, reply: asked.reply };
                match asked.want {
                    Want::Open => open(core, now, asked, waiter, *payload_max, out),
                    Want::Place => place(core, now, asked, waiter, out),
                }
            });
        }
        out.counts.under_way_high.raise(wide(core.under_way()));
        taken
    }

    fn publish(&self) {
        let (core, counts) = (&self.core, &self.out.counts);
        counts.state.set(state(core, self.stop.is_requested()).number());
        counts.ordered.set(core.ledger().last_order().get());
        counts.instance.set(core.instance().get());
        counts.epoch.set(core.configuration().map_or(0, |held| u64::from(held.epoch.get())));
        counts.under_way.set(wide(core.under_way()));
        counts.member.set(u64::from(core.is_member()));
        counts.not_named.set(core.not_named().map_or(0, Instance::get));
        // The order needs every member's stream, in this version: only who has no place in it is not waited for.
        counts.safe_to_stop.set(u64::from(core.not_named().is_some()));
        take_over(core.counters(), counts);
        for stream in core.streams() {
            let at = stream.id.server.place();
            counts.stream_frames[at].set(stream.len().get());
            counts.stream_promise_ns[at].set(stream.promise().get());
        }
        let awaited = core.awaited().fold(0, |bits, server| bits | (1 << server.place()));
        counts.awaited.set(if core.configuration().is_some() { 0 } else { awaited });
    }

    /// Asked to stop, and nothing held is unfinished: its clients are answered, and no peer's entry waits here. Peers
    /// asked to stop at the same time may still need its promises, so it looks for their last entries for [`LINGER`];
    /// peers that go on never stop sending, so it leaves after [`LINGER_MAX`] all the same.
    fn is_done(&mut self, now: Now) -> bool {
        if !self.stop.is_requested() {
            return false;
        }
        if self.core.configuration().is_none() {
            return true;
        }
        if !self.core.is_drained() {
            return false;
        }
        let since = now.local.since(*self.drained.get_or_insert(now.local));
        let complete = self.core.streams().iter().all(crate::protocol::stream::Stream::is_complete);
        since >= LINGER_MAX || (since >= LINGER && complete && self.core.blocked() == Blocked::Nothing)
    }
}

/// What this server is, as far as it knows itself.
fn state(core: &Core<Waiter>, is_stopping: bool) -> State {
    match (core.not_named(), core.is_member()) {
        (Some(_), _) => State::Lost,
        (None, true) if is_stopping => State::Draining,
        (None, true) => State::Member,
        (None, false) => State::NoQuorum,
    }
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn place(core: &mut Core<Waiter>, now: Now, asked: &Asked, waiter: Waiter, out: &mut Out) {
    let request = Request {
        principal: asked.reply.principal,
        session: asked.reply.session,
        request: asked.request(),
        tx: asked.tx,
        participants: Participants::new(asked.participants()),
        depth: asked.depth,
        instance: asked.instance,
    };
    core.request(now, &request, waiter, out);
}

fn open(core: &mut Core<Waiter>, now: Now, asked: &Asked, waiter: Waiter, payload_max: usize, out: &mut Out) {
    let Some(session) = core.open_session(now) else {
        let key = crate::protocol::inflight::RequestKey {
            principal: waiter.reply.principal,
            session: waiter.reply.session,
            request: RequestNo::default(),
        };
        let why = crate::protocol::Refusal::NotMember;
        out.refuse(waiter, &Refused { key, why, is_final: false, retry_after: Span::millis(50) });
        return;
    };
    let sender = core.sender();
    let servers = core.configuration().map_or(0, |held| u8::try_from(held.servers()).unwrap_or(0));
    let message = OpenedSession {
        nonce: asked.number,
        session,
        window: u16::try_from(WINDOW).unwrap_or(u16::MAX),
        payload_max: u16::try_from(payload_max).unwrap_or(u16::MAX),
        // No flow control yet: the window bounds a session, the table of requests under way all of them.
        credit: u32::MAX,
        server: sender.server.id(),
        servers,
    };
    out.tell(waiter, sender.instance, |body| {
        let fits = message.put(body);
        debug_assert!(fits.is_ok(), "an OPENED fits every slot");
    });
}

impl Role for Order {
    fn name(&self) -> &'static str {
        "order"
    }

    fn datagram(&mut self, now: EngineNow, got: Received<'_>) {
        let (envelope, body) = match open_peer(got.data, &self.key) {
            Ok(opened) => opened,
            Err(reason) => {
                self.out.counts.peer_dropped[reason.index()].add(1);
                return;
            }
        };
        if envelope.from.place() == self.out.place {
            self.out.counts.peer_dropped[DropReason::Own.index()].add(1);
            return;
        }
        let from = Sender { server: envelope.from, incarnation: envelope.inc, instance: envelope.instance };
        let (counts, at) = (&self.out.counts, envelope.from.place());
        counts.heard_ns[at].set(now.local.get());
        counts.delay_ns[at].record(got.stamp.unwrap_or(now.clock).since(envelope.sent).get());
        // Not the kernel's stamp: how long to wait for a peer includes how long its datagrams wait here to be read.
        let now = Now { clock: now.clock, local: now.local };
        self.core.datagram(now, from, envelope.sent, body, &mut self.out);
    }

    fn turn(&mut self, now: EngineNow, more_input: bool, io: &mut dyn Io) -> Turn {
        let now = Now { clock: now.clock, local: now.local };
        if self.stop.is_requested() {
            self.core.drain();
        }
        self.out.now = now.local;
        let taken = self.take_requests(now);
        let more = more_input || self.gates.iter().any(|gate| !gate.is_empty());
        self.out.delivering = Some(now.clock);
        let wake = self.core.turn(now, more, &mut self.out);
        self.out.delivering = None;
        let sent = self.out.send(io, self.socket);
        self.publish();
        if self.is_done(now) {
            // Before the bell, so that whoever it wakes sees it: no datagram may come to wake ingress after this.
            self.done.set();
            self.out.told.iter().for_each(Outlet::wake);
            return Turn::FINISHED;
        }
        self.out.told.iter_mut().for_each(Outlet::flush);
        // While it lingers it looks again soon.
        let wake = self.drained.map_or(wake, |_| wake.min(now.local.plus(LINGER)));
        Turn::new(taken + sent, if more { LocalTime::default() } else { wake })
    }
}
