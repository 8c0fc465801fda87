//! A client without I/O: time and datagrams go in; datagrams, what became of requests, and the next deadline come out.
//!
//! A turn of whoever drives it, in this order, with one reading of the clock after receiving began:
//! 1. [`Machine::receive`] for each datagram that came in;
//! 2. [`Machine::tick`]: retries, timeouts;
//! 3. [`Machine::submit`] for what is to be ordered; [`SubmitError::Full`] is backpressure;
//! 4. while [`Machine::output`] names a server: [`Machine::fill`] a datagram and send it there;
//! 5. sleep until something comes in, or [`Machine::deadline`].
//!
//! **Why one core.** The blocking client, the load generator and the tests drive the same code, so what is measured and
//! tested is what users run. Requests of a turn share datagrams; a lone one leaves at the end of its turn.
//!
//! **Retries** carry the same number in the same session, so that they can not be ordered twice, and go to the next server
//! after pauses that double. A request is refused for good only if every attempt at it was refused
//! ([`End::Refused`]); a server asked twice may have admitted either attempt, so its refusal then proves nothing.
//!
//! **Invariants.** Every submitted request ends exactly once. The clock reading of a send is taken before it, that of an
//! answer after it came, so that times recorded here never claim more than is true. After construction nothing is
//! allocated, but for sessions' ids and answers that come in parts (bounded, and kept).
//!
//! **Limits** are in [`Config`]. **Not here**: credit (servers refuse beyond it), queries, sockets.

mod answers;
mod flight;
mod sessions;
mod types;

use std::collections::VecDeque;

use self::answers::Answers;
use self::flight::{Flight, List, Pool, Queue};
use self::sessions::{Sessions, State};
use crate::protocol::{
    HISTORY_MAX, Instance, LocalTime, OrderNo, PARTICIPANTS_MAX, Principal, Refusal, SERVERS_MAX, ServerId, SessionId,
    Span, WINDOW,
};
use crate::wire::answer::AnswerView;
use crate::wire::auth::{NameError, principal_id};
use crate::wire::client::{Open, OpenedSession, Refused, RequestView, ToClient, parse_to_client, put_session};
use crate::wire::{
    BodyWriter, ClientEnvelope, DropReason, ENVELOPE_LEN, Opened, PAYLOAD_MIN, Participants, body_max, open_server,
    seal_client,
};

pub use self::types::{Ask, Choice, Completion, Config, Counters, End, Event, Handle, SubmitError, Verdict};

/// Longest first pause that slow answers lead to.
const ATTEMPT_MAX: Span = Span::secs(1);
/// Levels of backoff: each waits twice as long as the one before.
const LEVELS: u8 = 6;
/// Instances that were left, and whose late datagrams are dropped.
const RETIRED: usize = 8;
/// How long a silent server is passed over before it is tried again.
const PROBE: Span = Span::secs(1);

/// What is known of a server.
#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    heard: LocalTime,
    /// It did not answer in time, or is about to stop.
    avoid: bool,
    /// When it is next asked all the same, by one request.
    probe_at: LocalTime,
}

impl Peer {
    const fn avoid(&mut self, now: LocalTime) {
        self.avoid = true;
        self.probe_at = now.plus(PROBE);
    }
}

/// The client. See the module for how to drive it.
#[derive(Debug)]
pub struct Machine {
    config: Config,
    principal: Principal,
    random: fastrand::Rng,
    instance: Instance,
    retired: VecDeque<Instance>,
    sessions: Sessions,
    pool: Pool,
    out: [List; SERVERS_MAX],
    /// Sessions to be asked for, by server.
    opens: [VecDeque<u32>; SERVERS_MAX],
    /// Sessions asked for, in the order of asking.
    opening: VecDeque<(u32, LocalTime)>,
    open_refused: Option<Verdict>,
    /// The latest refusal of a session, by server.
    refusals: [Option<Refusal>; SERVERS_MAX],
    wait: [List; LEVELS as usize],
    age: List,
    peers: [Peer; SERVERS_MAX],
    /// How long an answer takes, smoothed, of requests sent once.
    usual: Span,
    answers: Answers,
    counters: Counters,
}

impl Machine {
    /// A client that will ask for its sessions in its first turn. All memory is taken here.
    ///
    /// # Errors
    /// If no principal can have the name.
    ///
    /// # Panics
    /// If a number of the configuration is out of its range: a defect of the caller.
    pub fn new(config: Config) -> Result<Self, NameError> {
        assert!((1..=SERVERS_MAX).contains(&config.servers), "{} servers", config.servers);
        assert!((1..=PARTICIPANTS_MAX).contains(&config.participants_max), "{} participants", config.participants_max);
        assert!(config.payload_max >= PAYLOAD_MIN, "datagrams of {} bytes", config.payload_max);
        assert!(config.requests_per_datagram > 0 && config.sessions > 0, "no requests or no sessions");
        if let Choice::Server(server) = config.choice {
            assert!(server.place() < config.servers, "server {server} of {}", config.servers);
        }
        let principal = principal_id(&config.name)?;
        let homes = (0..config.sessions).map(|session| match config.choice {
            Choice::Server(server) => server,
            Choice::Spread => server(session % config.servers),
        });
        let mut machine = Self {
            principal,
            random: fastrand::Rng::with_seed(config.seed),
            instance: Instance::NONE,
            retired: VecDeque::with_capacity(RETIRED),
            sessions: Sessions::new(homes),
            pool: Pool::new(config.in_flight_max.min(config.sessions * WINDOW), config.participants_max),
            out: [List::EMPTY; SERVERS_MAX],
            opens: std::array::from_fn(|_| VecDeque::new()),
            opening: VecDeque::with_capacity(config.sessions),
            open_refused: None,
            refusals: [None; SERVERS_MAX],
            wait: [List::EMPTY; LEVELS as usize],
            age: List::EMPTY,
            peers: [Peer::default(); SERVERS_MAX],
            usual: Span::default(),
            answers: Answers::default(),
            counters: Counters::default(),
            config,
        };
        machine.sessions.all().for_each(|session| machine.want(session));
        Ok(machine)
    }

    /// Takes a request; it is sent with the next [`Machine::fill`].
    ///
    /// # Errors
    /// [`SubmitError`]: nothing was taken.
    ///
    /// # Panics
    /// Never: there is room when it is looked for.
    pub fn submit(&mut self, now: LocalTime, ask: &Ask<'_>) -> Result<Handle, SubmitError> {
        let (got, most) = (ask.participants.len(), self.config.participants_max);
        if got == 0 || got > most {
            return Err(SubmitError::Participants { got, most });
        }
        if usize::from(ask.depth) > HISTORY_MAX {
            return Err(SubmitError::Depth { got: ask.depth });
        }
        if !self.pool.has_room() {
            return Err(SubmitError::Full);
        }
        let Some((session, request)) = self.sessions.next() else {
            return Err(if self.sessions.open() == 0 { SubmitError::NoSession } else { SubmitError::Full });
        };
        let first = self.ask_first(session, now);
        let flight = Flight {
            session,
            request,
            tx: ask.tx,
            depth: ask.depth,
            participants: u8::try_from(got).expect("at most PARTICIPANTS_MAX"),
            user: ask.user,
            submitted: now,
            sent: LocalTime::NEVER,
            first,
            asked: first,
            ..Flight::default()
        };
        let slot = self.pool.take(&flight, ask.participants).expect("there is room");
        self.sessions.depart(session, request, slot);
        self.pool.ages.push_back(&mut self.age, slot);
        self.enqueue(slot, Queue::Out);
        Ok(Handle { slot, generation: self.pool.get(slot).generation })
    }

    /// Takes a datagram that came from `server`'s address.
    pub fn receive(&mut self, now: LocalTime, server: ServerId, datagram: &[u8], sink: &mut impl FnMut(Event<'_>)) {
        self.counters.received += 1;
        let (envelope, body) = match open_server(datagram, self.principal, &self.config.key) {
            Ok(Opened::Body(envelope, body)) => (envelope, body),
            Ok(Opened::OtherVersion(_, version)) => return sink(Event::OtherVersion(server, version)),
            Err(reason) => return self.drop(reason),
        };
        if envelope.instance != Instance::NONE && envelope.instance != self.instance {
            if self.retired.contains(&envelope.instance) {
                return self.drop(DropReason::Instance);
            }
            self.change_instance(envelope.instance, sink);
        }
        let Ok(messages) = parse_to_client(body, envelope.session) else { return self.drop(DropReason::Malformed) };
        self.peers[server.place()] = Peer { heard: now, ..Peer::default() };
        for (session, message) in messages {
            match message {
                ToClient::Opened(opened) => self.opened(&opened),
                ToClient::Answer(view) => self.answered(now, session, &view, sink),
                ToClient::Refused(refused) => self.refused(now, server, session, &refused, sink),
                ToClient::Confirmed(confirmed) => sink(Event::Confirmed(session, confirmed.request)),
                ToClient::Corrected(view) => sink(Event::Corrected(session, view)),
                ToClient::Draining => self.peers[server.place()].avoid(now),
                ToClient::Credit(_) | ToClient::Records(_) => {}
            }
        }
    }

    /// Retries and gives up what is due.
    pub fn tick(&mut self, now: LocalTime, sink: &mut impl FnMut(Event<'_>)) {
        while let Some(slot) = self.age.first().filter(|slot| self.times_out(*slot) <= now) {
            self.finish(slot, End::Unanswered, OrderNo::default(), sink);
        }
        for level in 0..usize::from(LEVELS) {
            while let Some(slot) = self.wait[level].first().filter(|slot| self.pool.get(*slot).expires <= now) {
                self.retry(slot, now);
            }
        }
        while let Some((session, sent)) = self.opening_longest()
            && sent.plus(self.open_pause()) <= now
        {
            self.opening.pop_front();
            let it = self.sessions.get_mut(session);
            (it.state, it.opens_at) = (State::Wanted, next(it.opens_at, self.config.servers));
            self.want(session);
        }
    }

    /// Ends a request as [`End::Unanswered`], if it is still in flight.
    pub fn give_up(&mut self, handle: Handle, sink: &mut impl FnMut(Event<'_>)) {
        let flight = self.pool.get(handle.slot);
        if flight.generation == handle.generation && flight.queue != Queue::Nowhere {
            self.finish(handle.slot, End::Unanswered, OrderNo::default(), sink);
        }
    }

    /// A server for which there is something to send.
    #[must_use]
    pub fn output(&self) -> Option<ServerId> {
        let waiting = |place: &usize| self.out[*place].first().is_some() || !self.opens[*place].is_empty();
        (0..self.config.servers).find(waiting).map(server)
    }

    /// Writes one datagram for `server` into `buf`, with as much as fits; returns its length, 0 if there is nothing.
    ///
    /// `now` must have been read before the datagram is sent.
    pub fn fill(&mut self, now: LocalTime, server: ServerId, buf: &mut [u8]) -> usize {
        self.sessions.rotate();
        let payload = self.config.payload_max.min(buf.len());
        if payload < PAYLOAD_MIN {
            return 0;
        }
        let opens = !self.opens[server.place()].is_empty();
        let session = match self.out[server.place()].first() {
            Some(slot) if !opens => self.sessions.get(self.pool.get(slot).session).id,
            _ => SessionId::default(),
        };
        let envelope = ClientEnvelope { instance: self.instance, principal: self.principal, session };
        let mut body = BodyWriter::new(&mut buf[ENVELOPE_LEN..ENVELOPE_LEN + body_max(payload)]);
        if opens {
            self.put_opens(now, server, &mut body);
        } else {
            self.put_requests(now, server, session, &mut body);
        }
        let len = body.len();
        if len == 0 {
            return 0;
        }
        self.counters.sent += 1;
        seal_client(buf, &envelope, len, &self.config.key)
    }

    /// When [`Machine::tick`] has something to do, [`LocalTime::NEVER`] if only a datagram or a request can bring it.
    #[must_use]
    pub fn deadline(&self) -> LocalTime {
        let waits = self.wait.iter().filter_map(List::first).map(|slot| self.pool.get(slot).expires);
        let age = self.age.first().map(|slot| self.times_out(slot));
        let opening = self.opening.front().map(|(_, sent)| sent.plus(self.open_pause()));
        waits.chain(age).chain(opening).min().unwrap_or(LocalTime::NEVER)
    }

    /// The server that a request just submitted is first asked of.
    #[must_use]
    pub fn first_server(&self, handle: Handle) -> ServerId {
        self.pool.get(handle.slot).first
    }

    /// Requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.pool.in_use()
    }

    /// Sessions that can be used.
    #[must_use]
    pub fn sessions_open(&self) -> usize {
        self.sessions.open()
    }

    /// Sessions there are to be.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Why an attempt to open a session was refused, the latest that was.
    #[must_use]
    pub const fn open_refused(&self) -> Option<Verdict> {
        self.open_refused
    }

    /// How each server last refused a session, server 1 first; `None` for one that never did.
    #[must_use]
    pub fn open_refusals(&self) -> &[Option<Refusal>] {
        &self.refusals[..self.config.servers]
    }

    /// The instance the servers are in, as far as is known.
    #[must_use]
    pub const fn instance(&self) -> Instance {
        self.instance
    }

    /// What was done so far.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    const fn drop(&mut self, reason: DropReason) {
        self.counters.dropped[reason.index()] += 1;
    }

    fn times_out(&self, slot: u32) -> LocalTime {
        self.pool.get(slot).submitted.plus(self.config.timeout)
    }

    fn open_pause(&self) -> Span {
        pause(self.config.retry_after, 1)
    }

    /// How long an attempt at this level is waited for: never less than a few times what answers take, so that a slow
    /// cluster is not made slower by retries. (It may change between two requests of a level, which are then retried in
    /// the order they were sent.)
    fn attempt_pause(&self, level: u8) -> Span {
        let usual = Span::new(self.usual.get().saturating_mul(4)).min(ATTEMPT_MAX);
        pause(self.config.retry_after.max(usual), level)
    }

    /// The session whose OPEN is unanswered for longest, and since when; forgets those before it that were answered.
    fn opening_longest(&mut self) -> Option<(u32, LocalTime)> {
        loop {
            let (session, asked) = *self.opening.front()?;
            if matches!(self.sessions.get(session).state, State::Opening { sent, .. } if sent == asked) {
                return Some((session, asked));
            }
            self.opening.pop_front();
        }
    }

    fn nonce_of(&self, session: u32) -> u64 {
        if let State::Opening { nonce, .. } = self.sessions.get(session).state { nonce } else { 0 }
    }

    /// Puts a request at the end of a queue.
    fn enqueue(&mut self, slot: u32, queue: Queue) {
        self.pool.get_mut(slot).queue = queue;
        let list = match queue {
            Queue::Out => &mut self.out[self.pool.get(slot).asked.place()],
            Queue::Wait(level) => &mut self.wait[usize::from(level)],
            Queue::Nowhere => return,
        };
        self.pool.queues.push_back(list, slot);
    }

    /// Takes a request out of the queue it is in.
    fn dequeue(&mut self, slot: u32) {
        let flight = self.pool.get_mut(slot);
        let (queue, asked) = (std::mem::take(&mut flight.queue), flight.asked);
        let list = match queue {
            Queue::Out => &mut self.out[asked.place()],
            Queue::Wait(level) => &mut self.wait[usize::from(level)],
            Queue::Nowhere => return,
        };
        self.pool.queues.remove(list, slot);
    }

    /// The server a request of this session is first asked of.
    fn ask_first(&mut self, session: u32, now: LocalTime) -> ServerId {
        let home = self.sessions.get(session).home;
        if self.config.choice != Choice::Spread {
            return home;
        }
        let peer = &mut self.peers[home.place()];
        if peer.avoid && peer.probe_at <= now {
            peer.avoid(now);
            return home;
        }
        self.up_from(home)
    }

    /// `server`, or the next one that is not to be avoided; `server` if all are.
    fn up_from(&self, server: ServerId) -> ServerId {
        let others = std::iter::successors(Some(server), |server| Some(next(*server, self.config.servers)));
        let up = |server: &ServerId| !self.peers[server.place()].avoid;
        others.take(self.config.servers).find(up).unwrap_or(server)
    }

    /// No answer in time: the server may be down, another is asked.
    fn retry(&mut self, slot: u32, now: LocalTime) {
        self.dequeue(slot);
        let flight = self.pool.get(slot);
        let peer = &mut self.peers[flight.asked.place()];
        if peer.heard < flight.resent {
            peer.avoid(now);
        }
        let asked = self.up_from(next(flight.asked, self.config.servers));
        self.pool.get_mut(slot).asked = asked;
        self.enqueue(slot, Queue::Out);
    }

    fn put_requests(&mut self, now: LocalTime, server: ServerId, mut in_force: SessionId, body: &mut BodyWriter<'_>) {
        for _ in 0..self.config.requests_per_datagram {
            let Some(slot) = self.out[server.place()].first() else { return };
            let flight = self.pool.get(slot);
            let session = self.sessions.get(flight.session).id;
            let request = RequestView {
                request: flight.request,
                tx: flight.tx,
                depth: flight.depth,
                retry: flight.attempts > 0,
                participants: Participants::new(self.pool.participants(slot)),
            };
            let whole = body.len();
            if put_session(body, &mut in_force, session).and_then(|()| request.put(body)).is_err() {
                return body.truncate(whole);
            }
            self.dequeue(slot);
            self.note_sent(slot, now, server);
        }
    }

    fn note_sent(&mut self, slot: u32, now: LocalTime, server: ServerId) {
        let attempts = self.pool.get(slot).attempts;
        self.counters.retries += u64::from(attempts > 0);
        let level = u8::try_from(attempts).unwrap_or(LEVELS).min(LEVELS - 1);
        let expires = now.plus(self.attempt_pause(level));
        let flight = self.pool.get_mut(slot);
        if flight.attempts == 0 {
            flight.sent = now;
        }
        flight.attempts += 1;
        flight.resent = now;
        if flight.once.has(server) {
            flight.again.add(server);
        }
        flight.once.add(server);
        flight.expires = expires;
        self.enqueue(slot, Queue::Wait(level));
    }

    /// Has a session asked for.
    fn want(&mut self, session: u32) {
        let at = self.sessions.get(session).opens_at;
        self.opens[at.place()].push_back(session);
    }

    fn put_opens(&mut self, now: LocalTime, server: ServerId, body: &mut BodyWriter<'_>) {
        while let Some(session) = self.opens[server.place()].front().copied() {
            let nonce = (u64::from(self.random.u32(1..)) << 32) | u64::from(session);
            if (Open { nonce, name: &self.config.name }).put(body).is_err() {
                return;
            }
            self.opens[server.place()].pop_front();
            self.sessions.get_mut(session).state = State::Opening { nonce, sent: now };
            self.opening.push_back((session, now));
        }
    }

    fn opened(&mut self, opened: &OpenedSession) {
        let session = u32::try_from(opened.nonce & u64::from(u32::MAX)).expect("masked");
        let known = flight::place(session) < self.sessions.len();
        if !known || self.nonce_of(session) != opened.nonce {
            self.counters.late += 1;
            return;
        }
        self.config.payload_max = self.config.payload_max.min(usize::from(opened.payload_max)).max(PAYLOAD_MIN);
        self.sessions.opened(session, opened.session, opened.window);
        self.opening_longest();
    }

    fn answered(
        &mut self,
        now: LocalTime,
        session: SessionId,
        view: &AnswerView<'_>,
        sink: &mut impl FnMut(Event<'_>),
    ) {
        let head = view.head();
        let Some(known) = self.sessions.find(session).filter(|_| head.instance == self.instance) else {
            self.counters.late += 1;
            return;
        };
        let Some(slot) = self.sessions.flight(known, head.request) else {
            self.counters.late += 1;
            let told = self.sessions.told(known, head.request, head.order);
            self.counters.duplicates += u64::from(told.is_some_and(|told| told != head.order));
            return;
        };
        if view.total() != self.pool.get(slot).participants {
            return self.drop(DropReason::Malformed);
        }
        let flight = self.pool.get(slot);
        if flight.attempts == 1 {
            let took = now.since(flight.sent).get();
            self.usual = Span::new(self.usual.get() - self.usual.get() / 16 + took / 16);
        }
        if view.is_whole() {
            return self.finish(slot, End::Ordered(*view), head.order, sink);
        }
        let mut answers = std::mem::take(&mut self.answers);
        let mut held = self.pool.get(slot).assembly;
        if answers.take(&mut held, view).is_err() {
            self.counters.duplicates += 1;
        }
        self.pool.get_mut(slot).assembly = held;
        if let Some(at) = held
            && let Some(whole) = answers.whole(at)
        {
            self.pool.get_mut(slot).assembly = None;
            self.finish(slot, End::Ordered(whole), head.order, sink);
            answers.give_back(at);
        }
        self.answers = answers;
    }

    fn refused(
        &mut self,
        now: LocalTime,
        server: ServerId,
        session: SessionId,
        refused: &Refused,
        sink: &mut impl FnMut(Event<'_>),
    ) {
        let retry_after = Span::micros(u64::from(refused.retry_after_us));
        let verdict = Verdict { refusal: refused.reason, retry_after, detail: refused.detail };
        if refused.request.get() == 0 {
            self.open_refused = Some(verdict);
            self.refusals[server.place()] = Some(refused.reason);
            return;
        }
        let flight = self.sessions.find(session).and_then(|known| self.sessions.flight(known, refused.request));
        let Some(slot) = flight else {
            self.counters.late += 1;
            return;
        };
        let known = self.pool.get(slot).session;
        self.pool.get_mut(slot).refused.add(server);
        let nowhere = self.pool.get(slot).may_be_admitted_at().is_empty();
        if refused.reason == Refusal::SessionUnknown && self.sessions.lost(known) {
            self.want(known);
        }
        // Content that no server takes, or that the ledger holds against: no attempt at it was ever good.
        let never = matches!(refused.reason, Refusal::Malformed | Refusal::RequestDiffers | Refusal::TxDiffers);
        if nowhere && !refused.is_final && self.elsewhere(slot, now, refused.reason) {
            return;
        }
        if nowhere || (refused.is_final && never) {
            self.finish(slot, End::Refused(verdict), OrderNo::default(), sink);
        } else if self.pool.get(slot).asked == server && self.pool.get(slot).queue != Queue::Out {
            self.wait_at_least(slot, now, retry_after);
        }
    }

    /// If another server that was not asked yet may be of another mind, asks it at once.
    fn elsewhere(&mut self, slot: u32, now: LocalTime, refusal: Refusal) -> bool {
        if !matches!(refusal, Refusal::NoQuorum | Refusal::NotMember) {
            return false;
        }
        let flight = self.pool.get(slot);
        let servers = self.config.servers;
        let others = std::iter::successors(Some(next(flight.asked, servers)), |server| Some(next(*server, servers)));
        let Some(fresh) = others.take(servers).find(|server| !flight.once.has(*server)) else { return false };
        self.peers[flight.asked.place()].avoid(now);
        self.dequeue(slot);
        self.pool.get_mut(slot).asked = fresh;
        self.enqueue(slot, Queue::Out);
        true
    }

    /// Moves a request's retry to the level that is not before the server's advice, nor below the one it has come to:
    /// a refusal comes within a round trip, and retries at that rhythm would be a storm.
    fn wait_at_least(&mut self, slot: u32, now: LocalTime, advice: Span) {
        let Queue::Wait(reached) = self.pool.get(slot).queue else { return };
        let level = (reached..LEVELS).find(|level| self.attempt_pause(*level) >= advice).unwrap_or(LEVELS - 1);
        self.dequeue(slot);
        self.pool.get_mut(slot).expires = now.plus(self.attempt_pause(level));
        self.enqueue(slot, Queue::Wait(level));
    }

    fn change_instance(&mut self, to: Instance, sink: &mut impl FnMut(Event<'_>)) {
        let from = std::mem::replace(&mut self.instance, to);
        if from == Instance::NONE {
            return;
        }
        if self.retired.len() == RETIRED {
            self.retired.pop_front();
        }
        self.retired.push_back(from);
        while let Some(slot) = self.age.first() {
            self.finish(slot, End::InstanceChanged(to), OrderNo::default(), sink);
        }
        for session in self.sessions.all() {
            if self.sessions.lost(session) {
                self.want(session);
            }
        }
        sink(Event::InstanceChanged { from, to });
    }

    /// Tells how a request ended, and forgets it.
    fn finish(&mut self, slot: u32, end: End<'_>, order: OrderNo, sink: &mut impl FnMut(Event<'_>)) {
        self.dequeue(slot);
        self.pool.ages.remove(&mut self.age, slot);
        let flight = self.pool.get(slot);
        sink(Event::Done(Completion {
            handle: Handle { slot, generation: flight.generation },
            user: flight.user,
            session: self.sessions.get(flight.session).id,
            request: flight.request,
            tx: flight.tx,
            depth: flight.depth,
            participants: Participants::new(self.pool.participants(slot)),
            server: flight.first,
            instance: self.instance,
            submitted: flight.submitted,
            sent: flight.sent,
            attempts: flight.attempts,
            end,
        }));
        let (session, request) = (flight.session, flight.request);
        if let Some(at) = flight.assembly {
            self.answers.give_back(at);
        }
        self.pool.give_back(slot);
        self.sessions.arrive(session, request, order);
        if self.sessions.renewable(session) {
            self.want(session);
        }
    }
}

/// The server at a place.
fn server(place: usize) -> ServerId {
    ServerId::from_place(place).expect("below SERVERS_MAX")
}

/// The server after this one.
fn next(after: ServerId, servers: usize) -> ServerId {
    server((after.place() + 1) % servers)
}

/// How long an attempt at this level is waited for.
const fn pause(first: Span, level: u8) -> Span {
    Span::new(first.get() << level)
}
