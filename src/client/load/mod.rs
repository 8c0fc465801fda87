//! An open-loop load generator: requests start when they are due, whatever became of those before.
//!
//! One thread, one ring, one socket a server. A [`Generator`] opens its sessions once and then runs phases: a warm-up and
//! a measured time at one rate, then whatever is still in flight.
//!
//! **Why open.** A closed loop waits for the servers and so hides their stalls. Here latency counts from the intended
//! start ([`super::stats`]); what could not be sent in time is late, not forgotten, and what could not be sent at all
//! within the timeout is `unanswered`.
//! **Why parked.** The generator shares processors with what it measures; it sleeps until the next start, an answer or a
//! retry. At low rates, where a late wake-up would be most of the latency, it wakes early and spins the last stretch.
//! **Invariants.** After construction a phase allocates nothing but for progress, rows of the log and the trace's file.
//! **Not here**: the search for the highest rate, printing (`cli::load`).

mod book;
mod schedule;

use std::io;

use self::book::Book;
pub use self::book::Progress;
pub use self::schedule::{Arrival, Participants, Schedule, Skew};
use super::cluster::{Cluster, Said};
use super::machine::{Ask, Choice, Config, Event, Machine, SubmitError, Verdict};
use super::stats::{Datagrams, Report, human};
use super::{interval_log, trace};
use crate::engine::backend::{Backend, Io as _, Received, SocketId};
use crate::engine::clock;
use crate::engine::net::{Socket, SocketError, SocketOptions};
use crate::engine::uring::{Uring, UringConfig, UringError};
use crate::engine::wake::Bell;
use crate::protocol::{LocalTime, NodeId, Refusal, ServerId, Span, TxId};
use crate::wire::auth::NameError;

/// Most requests in flight at once.
pub const IN_FLIGHT_MAX: usize = 1 << 16;
/// Datagrams handled before requests that are due are looked at again.
const RECEIVE_BATCH: usize = 64;
/// Requests started in one turn, so that answers are not left waiting while a backlog is worked off.
const SUBMIT_BATCH: u32 = 256;
/// Up to this rate the last stretch before a start is spun.
const SPIN_RATE_MAX: f64 = 2_000.0;
/// How early a spinning generator wakes: what a timer is late by.
const SPIN: Span = Span::micros(40);
/// From this rate on, starts are looked at every [`PACE`] at most: those of one turn share a datagram and a system call.
const PACE_RATE_MIN: f64 = 5_000.0;
/// See [`PACE_RATE_MIN`].
const PACE: Span = Span::micros(64);
/// How often progress is told.
const PROGRESS: Span = Span::millis(200);
/// Socket buffers asked for.
const SOCKET_BYTES: usize = 4 << 20;

/// What to load a cluster with.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The cluster.
    pub cluster: Cluster,
    /// Sessions.
    pub sessions: usize,
    /// Participants of a transaction, from and to.
    pub participants: (usize, usize),
    /// How many participants there are in all.
    pub participant_space: u32,
    /// How they are drawn.
    pub skew: Skew,
    /// History depth.
    pub depth: u8,
    /// Whom to ask first.
    pub choice: Choice,
    /// Requests in one datagram at most.
    pub per_datagram: usize,
    /// How starts are spread.
    pub arrival: Arrival,
    /// After it a request is unanswered.
    pub timeout: Span,
    /// Of starts and participants; sessions and transactions are new in every run.
    pub seed: u64,
    /// Drawn for this run: makes its transactions its own.
    pub run: u64,
}

/// One rate for a while.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    /// Requests a second.
    pub rate: f64,
    /// Time before the measured one.
    pub warmup: Span,
    /// The measured time.
    pub duration: Span,
}

/// Where requests and latencies are written, beside the report.
#[derive(Debug, Default)]
pub struct Files {
    /// One line a request.
    pub trace: Option<trace::Writer>,
    /// One row a second.
    pub log: Option<interval_log::Writer>,
}

/// Why there can be no load.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// No principal has such a name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// No socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// No ring.
    #[error(transparent)]
    Ring(#[from] UringError),
    /// The system refused something else.
    #[error("io_uring: {0}")]
    Io(#[from] io::Error),
    /// A file takes no more.
    #[error("writing the trace or the log: {0}")]
    File(#[source] io::Error),
    /// No session was opened in time.
    #[error("no answer from any of {servers} in {}: are the servers running, and is the key theirs?", human(*waited))]
    Unreachable {
        /// The servers' addresses.
        servers: String,
        /// How long it was waited.
        waited: Span,
    },
    /// Sessions were refused.
    #[error("sessions are refused: {open} of {wanted} are open; {said}{}", mend(verdict.refusal))]
    Refused {
        /// Why, the last time.
        verdict: Verdict,
        /// What each server said.
        said: Said,
        /// How many are open.
        open: usize,
        /// How many should be.
        wanted: usize,
    },
    /// A server speaks another version of the wire.
    #[error(
        "server {server} speaks wire version {version}, this client {}: use the client of the servers' release",
        crate::wire::VERSION
    )]
    Version {
        /// Which server.
        server: ServerId,
        /// Its version.
        version: u8,
    },
    /// Interrupted before anything was measured.
    #[error("interrupted before the load began")]
    Interrupted,
}

/// What to do about refused sessions.
const fn mend(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::SessionsFull => {
            "; give fewer --clients than ledger.sessions_per_key, or wait ledger.session_ttl, 60 s if not set, for sessions \
             of earlier runs to end"
        }
        Refusal::NotMember | Refusal::NoQuorum => "; the servers' logs say what they wait for",
        _ => "",
    }
}

/// The generator: its sockets, its sessions, its place in the plan.
#[derive(Debug)]
pub struct Generator {
    plan: Plan,
    machine: Machine,
    backend: Ring,
    participants: Participants,
    ids: Vec<NodeId>,
    transactions: u64,
    phases: u64,
    files: Files,
}

/// What stays behind of what is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backlog {
    /// Nothing.
    None,
    /// Something, until an answer makes room.
    Blocked,
    /// Something, for the next turn.
    More,
}

/// The backend, and its sockets as servers.
struct Ring(Uring);

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.describe())
    }
}

impl Generator {
    /// Makes sockets and memory, and opens the sessions, for `patience` at most.
    ///
    /// # Errors
    /// [`LoadError`]: what is missing, and what helps.
    pub fn connect(plan: Plan, files: Files, patience: Span, stop: &dyn Fn() -> bool) -> Result<Self, LoadError> {
        let Cluster { servers, name, key, payload_max } = &plan.cluster;
        let mut config = Config::new(servers.len(), name.clone(), *key, plan.run);
        config.choice = plan.choice;
        config.sessions = plan.sessions;
        config.in_flight_max = IN_FLIGHT_MAX;
        config.participants_max = plan.participants.1;
        config.payload_max = *payload_max;
        config.requests_per_datagram = plan.per_datagram;
        config.timeout = plan.timeout;
        let machine = Machine::new(config)?;
        let options = SocketOptions {
            receive_bytes: Some(SOCKET_BYTES),
            send_bytes: Some(SOCKET_BYTES),
            ..SocketOptions::default()
        };
        let sockets: Result<Vec<Socket>, SocketError> =
            servers.iter().map(|server| Socket::bind(Cluster::local_for(*server), options)).collect();
        let uring = UringConfig { receive_buffers: 1024, send_buffers: 256, payload_max: *payload_max };
        let mut backend = Uring::new(uring, sockets?, Bell::new()?)?;
        backend.start()?;
        let (least, most) = plan.participants;
        let participants = Participants::new(plan.seed, least, most, plan.participant_space, plan.skew);
        let ids = Vec::with_capacity(most);
        let mut generator =
            Self { plan, machine, backend: Ring(backend), participants, ids, transactions: 0, phases: 0, files };
        generator.open_sessions(patience, stop)?;
        Ok(generator)
    }

    /// How datagrams are moved.
    #[must_use]
    pub fn engine(&self) -> String {
        self.backend.0.describe()
    }

    /// Datagrams moved since the start.
    fn moved(&self) -> Datagrams {
        let counters = self.backend.0.counters();
        Datagrams { sent: counters.sent, received: counters.received, syscalls: counters.enters }
    }

    fn open_sessions(&mut self, patience: Span, stop: &dyn Fn() -> bool) -> Result<(), LoadError> {
        let wanted = self.machine.sessions();
        let give_up = clock::monotonic().plus(patience);
        let mut version = None;
        loop {
            let now = self.take(&mut |_, event| {
                if let Event::OtherVersion(server, theirs) = event {
                    version = Some((server, theirs));
                }
            });
            if let Some((server, version)) = version {
                return Err(LoadError::Version { server, version });
            }
            let open = self.machine.sessions_open();
            if open == wanted {
                return Ok(());
            }
            if let Some(verdict) = self.machine.open_refused().filter(|_| now > give_up) {
                let said = self.plan.cluster.said(self.machine.open_refusals());
                return Err(LoadError::Refused { verdict, said, open, wanted });
            }
            if now > give_up {
                let servers: Vec<String> = self.plan.cluster.servers.iter().map(ToString::to_string).collect();
                return Err(LoadError::Unreachable { servers: servers.join(", "), waited: patience });
            }
            if stop() {
                return Err(LoadError::Interrupted);
            }
            self.send(now);
            self.backend.0.wait(Some(self.machine.deadline().min(now.plus(PROGRESS))));
        }
    }

    /// Runs a phase to its end, or until `stop`, and reports it; `watch` is told how it goes a few times a second.
    ///
    /// # Errors
    /// [`LoadError::File`] if the trace or the log cannot be written.
    pub fn run(
        &mut self,
        phase: Phase,
        stop: &dyn Fn() -> bool,
        watch: &mut dyn FnMut(&Progress),
    ) -> Result<Report, LoadError> {
        self.phases += 1;
        let start = clock::monotonic();
        let mut book = Book::new(phase, start, std::mem::take(&mut self.files));
        let seed = self.plan.seed.wrapping_add(self.phases);
        let mut due = Schedule::new(seed, self.plan.arrival, phase.rate, start);
        let mut handed_over = due.clone();
        let pace = if phase.rate >= PACE_RATE_MIN { PACE } else { Span::default() };
        let (mut next_progress, mut next_turn) = (start, start);
        let (before, moved_before) = (self.machine.counters(), self.moved());
        loop {
            let now = self.take(&mut |now, event| book.take(now, event));
            let end = book.end_at(stop(), now);
            while due.next() <= now && due.next() < end {
                book.due(due.next());
                due.advance();
            }
            let mut backlog = Backlog::None;
            if now >= next_turn {
                backlog = self.hand_over(now, end, &due, &mut handed_over, &mut book);
                next_turn = now.plus(pace);
            }
            self.send(now);
            book.rows(now);
            if now >= next_progress {
                watch(&book.progress(now, self.machine.in_flight()));
                next_progress = now.plus(PROGRESS);
            }
            let all = handed_over.next() >= due.next().min(end);
            if now >= end && all && self.machine.in_flight() == 0 {
                let counters = self.machine.counters();
                let (files, mut report) = book.close(now, end, self.plan.cluster.servers.len());
                report.duplicates = counters.duplicates - before.duplicates;
                report.retries = counters.retries - before.retries;
                report.engine = self.engine();
                let moved = self.moved();
                report.datagrams = Datagrams {
                    sent: moved.sent - moved_before.sent,
                    received: moved.received - moved_before.received,
                    syscalls: moved.syscalls - moved_before.syscalls,
                };
                self.files = files.map_err(LoadError::File)?;
                return Ok(report);
            }
            let start = match backlog {
                Backlog::Blocked => LocalTime::NEVER,
                Backlog::More => next_turn,
                Backlog::None if handed_over.next() < end => handed_over.next().max(next_turn),
                Backlog::None => LocalTime::NEVER,
            };
            self.sleep(now, start, end, next_progress, phase.rate);
        }
    }

    /// What to do about nothing to do.
    fn sleep(&mut self, now: LocalTime, start: LocalTime, end: LocalTime, progress: LocalTime, rate: f64) {
        let mut until = start.min(self.machine.deadline()).min(progress);
        if now < end {
            until = until.min(end);
        }
        if rate <= SPIN_RATE_MAX && start.since(now) <= SPIN {
            return self.backend.0.flush();
        }
        if rate <= SPIN_RATE_MAX && start != LocalTime::NEVER {
            until = until.min(LocalTime::new(start.get() - SPIN.get()));
        }
        if until <= now || self.machine.output().is_some() || self.backend.0.more() {
            self.backend.0.flush();
        } else {
            self.backend.0.wait(Some(until));
        }
    }

    /// Starts what is due.
    fn hand_over(
        &mut self,
        now: LocalTime,
        end: LocalTime,
        due: &Schedule,
        handed_over: &mut Schedule,
        book: &mut Book,
    ) -> Backlog {
        for _ in 0..SUBMIT_BATCH {
            let start = handed_over.next();
            if start >= due.next() || start >= end {
                return Backlog::None;
            }
            if start.plus(self.plan.timeout) < now {
                book.never_asked(start, now);
                handed_over.advance();
                continue;
            }
            if self.ids.is_empty() {
                self.participants.draw(&mut self.ids);
            }
            let tx = TxId::new(((u128::from(self.plan.run) << 64) | u128::from(self.transactions)).to_be_bytes());
            let ask = Ask { tx, participants: &self.ids, depth: self.plan.depth, user: book.mark(start) };
            match self.machine.submit(now, &ask) {
                Ok(handle) => {
                    book.asked(self.machine.first_server(handle), start);
                    self.transactions += 1;
                    self.ids.clear();
                    handed_over.advance();
                }
                Err(SubmitError::Full | SubmitError::NoSession) => return Backlog::Blocked,
                Err(error) => unreachable!("the plan was checked: {error}"),
            }
        }
        Backlog::More
    }

    /// Takes what has come in, and what is due in the machine. The clock is read once a datagram is there, so that no
    /// answer is dated before it came.
    fn take(&mut self, sink: &mut impl FnMut(LocalTime, Event<'_>)) -> LocalTime {
        let Self { machine, backend: Ring(backend), plan, .. } = self;
        backend.fetch();
        let mut now = clock::monotonic();
        while backend.receive(RECEIVE_BATCH, &mut |got: Received<'_>| {
            let server = ServerId::from_place(got.socket.place());
            if let Some(server) = server.filter(|server| plan.cluster.servers[server.place()] == got.from) {
                now = clock::monotonic();
                machine.receive(now, server, got.data, &mut |event| sink(now, event));
            }
        }) == RECEIVE_BATCH
        {}
        machine.tick(now, &mut |event| sink(now, event));
        now
    }

    /// Queues all there is to send.
    fn send(&mut self, now: LocalTime) {
        let Self { machine, backend: Ring(backend), plan, .. } = self;
        while let Some(server) = machine.output() {
            let address = plan.cluster.servers[server.place()];
            let socket = SocketId::new(u16::from(server.byte()));
            if backend.send(socket, address, &mut |buf| machine.fill(now, server, buf)).is_err() {
                return;
            }
        }
    }
}
