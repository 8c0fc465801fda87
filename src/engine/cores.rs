//! Roles and cores: polled state machines and the threads that poll them.
//!
//! **Why.** One loop per thread, run to completion: datagrams in, roles' turns, datagrams out, then sleep or go on. Any
//! mapping of roles to cores works, down to all on one, because roles only know their sockets and their links. A core polls
//! its roles again while they do work, so that a message that passes through two roles of one core costs no sleep between.
//!
//! **Invariants.** A core sleeps only when its roles reported no work in their last turn, nothing more had come in, and
//! nobody rang. A role is called by one thread only. Every turn ends with one `flush` or one `wait`.
//!
//! **Limits**: [`ROUNDS_MAX`] rounds of role turns before datagrams leave; [`CoreConfig::batch`] datagrams a turn.
//! **Not here**: which roles there are and where (`server`).

use std::fmt;
use std::io;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use super::backend::{Backend, Counters, Io, Received, SocketId};
use super::clock;
use super::place::{Placed, cpus, place};
use super::stop::Stop;
use crate::protocol::{LocalTime, Span, Timestamp};
use crate::stats::file::{Owner, View};
use crate::stats::{self, metrics::CoreFigures};

/// Most rounds of role turns before what they sent leaves.
pub const ROUNDS_MAX: usize = 4;
/// Spinning before parking when [`Waiting::Auto`] finds processors to spare.
pub const AUTO_SPIN: Span = Span::micros(50);

/// Both clocks, read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The wall clock (`CLOCK_REALTIME`), which kernel stamps are in.
    pub clock: Timestamp,
    /// The monotonic clock, which timers are in.
    pub local: LocalTime,
}

impl Now {
    /// Reads both.
    #[inline]
    #[must_use]
    pub fn read() -> Self {
        Self { clock: clock::realtime(), local: clock::monotonic() }
    }
}

/// What a role did in its turn and what it wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Messages taken, timers fired, datagrams made: real work. 0 lets the core sleep.
    pub work: usize,
    /// When it wants a turn even if nothing comes in; [`LocalTime::NEVER`] if it does not.
    pub wake: LocalTime,
    /// It has ended, as it was asked to; it gets no more turns and no more datagrams.
    pub finished: bool,
}

impl Turn {
    /// Nothing done, nothing due.
    pub const IDLE: Self = Self { work: 0, wake: LocalTime::NEVER, finished: false };
    /// The last turn.
    pub const FINISHED: Self = Self { work: 0, wake: LocalTime::NEVER, finished: true };

    /// `work` done; a turn wanted at `wake`.
    #[must_use]
    pub const fn new(work: usize, wake: LocalTime) -> Self {
        Self { work, wake, finished: false }
    }
}

/// A polled state machine that owns some sockets of its core.
///
/// Duties: never block; report only real work (work reported and not done keeps the core from sleeping); take everything
/// that is in its links before reporting none; flush its outlets before the turn ends.
pub trait Role: Send {
    /// Its name, for tables and logs.
    fn name(&self) -> &'static str;

    /// A datagram on one of its sockets. A turn follows once the batch is through.
    fn datagram(&mut self, now: Now, got: Received<'_>);

    /// Its turn. `more_input`: more datagrams have come in than were handed on, so another turn follows at once.
    fn turn(&mut self, now: Now, more_input: bool, io: &mut dyn Io) -> Turn;
}

/// How a core waits when there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Never sleep. For a processor of its own: on a shared one it stalls everybody there for milliseconds.
    Spin,
    /// Look again for this long, then sleep.
    Hybrid {
        /// How long to look.
        spin: Span,
    },
    /// Sleep at once.
    Park,
    /// `Hybrid` with [`AUTO_SPIN`] if the machine has at least four processors and more than two for each thread, else
    /// `Park`: a spinner is welcome only where nobody else wants its processor, and other processes are not seen here.
    Auto,
}

impl Waiting {
    /// What `Auto` means on this machine with this many threads that want a processor each.
    #[must_use]
    pub fn resolve(self, threads: usize) -> Self {
        self.resolve_with(threads, cpus())
    }

    fn resolve_with(self, threads: usize, cpus: usize) -> Self {
        match self {
            Self::Auto if cpus >= 4 && cpus > 2 * threads => Self::Hybrid { spin: AUTO_SPIN },
            Self::Auto => Self::Park,
            chosen => chosen,
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spin => f.write_str("spin"),
            Self::Hybrid { spin } => write!(f, "hybrid {} us", spin.get() / 1_000),
            Self::Park => f.write_str("park"),
            Self::Auto => f.write_str("auto"),
        }
    }
}

/// What a core is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreConfig {
    /// The thread's name (the kernel keeps 15 bytes).
    pub name: String,
    /// The processor to run on.
    pub cpu: Option<usize>,
    /// The SCHED_FIFO priority to run with.
    pub fifo: Option<u8>,
    /// How to wait. [`Waiting::Auto`] here counts as for one thread: resolve it first if there are several.
    pub waiting: Waiting,
    /// Most datagrams handed on before the roles have their turns.
    pub batch: usize,
}

impl CoreConfig {
    /// Unpinned, normal priority, waiting as the machine suggests, 256 datagrams a turn.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), cpu: None, fifo: None, waiting: Waiting::Auto, batch: 256 }
    }
}

/// What a core did since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreReport {
    /// Its loop.
    pub core: CoreFigures,
    /// What its backend did.
    pub io: Counters,
}

impl CoreReport {
    /// Every figure by name, the core's own before its backend's.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        self.core.named().chain(self.io.named())
    }

    /// Both together: sums, and the longer of the longest turns.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self { core: self.core.plus(&other.core), io: self.io.plus(&other.io) }
    }
}

/// A core's blocks of a stats file: it alone writes them.
#[derive(Debug)]
pub struct CoreStats {
    /// Its loop.
    pub core: Owner<stats::metrics::Core>,
    /// What its backend did.
    pub io: Owner<stats::metrics::Io>,
}

impl CoreStats {
    /// Blocks that no file has: of a core that belongs to no server.
    fn in_memory() -> Self {
        Self { core: Owner::in_memory(), io: Owner::in_memory() }
    }

    fn views(&self) -> CoreViews {
        CoreViews { core: self.core.view(), io: self.io.view() }
    }
}

/// The same, for others to read while the core runs: each figure is exact, not the moment of all of them.
#[derive(Clone, Debug)]
struct CoreViews {
    core: View<stats::metrics::Core>,
    io: View<stats::metrics::Io>,
}

impl CoreViews {
    fn read(&self) -> CoreReport {
        CoreReport { core: self.core.look(CoreFigures::of), io: self.io.look(Counters::of) }
    }
}

/// A core: one backend and the roles it polls. Runs on the calling thread ([`Core::run`]) or its own ([`Core::spawn`]).
pub struct Core<B> {
    config: CoreConfig,
    backend: B,
    roles: Vec<Seat>,
    /// Which role has which socket; `usize::MAX`: none.
    owners: Vec<usize>,
    figures: CoreFigures,
    stats: CoreStats,
    last_busy: LocalTime,
    /// Sends that had been refused when the last turn under pressure ended.
    refused: u64,
}

struct Seat {
    role: Box<dyn Role>,
    wake: LocalTime,
    finished: bool,
}

struct Round {
    work: usize,
    wake: LocalTime,
    finished: bool,
}

impl<B: Backend> Core<B> {
    /// A core without roles yet.
    #[must_use]
    pub fn new(mut config: CoreConfig, backend: B) -> Self {
        config.waiting = config.waiting.resolve(1);
        Self {
            config,
            backend,
            roles: Vec::new(),
            owners: Vec::new(),
            figures: CoreFigures::default(),
            stats: CoreStats::in_memory(),
            last_busy: LocalTime::new(0),
            refused: 0,
        }
    }

    /// Adds a role that owns `sockets`. Roles have their turns in the order they were added.
    ///
    /// # Panics
    /// If a socket has an owner already.
    #[must_use]
    pub fn with(mut self, role: Box<dyn Role>, sockets: &[SocketId]) -> Self {
        for socket in sockets {
            if self.owners.len() <= socket.place() {
                self.owners.resize(socket.place() + 1, usize::MAX);
            }
            let owner = &mut self.owners[socket.place()];
            assert_eq!(*owner, usize::MAX, "{socket} has two owners, the second is {}", role.name());
            *owner = self.roles.len();
        }
        self.roles.push(Seat { role, wake: LocalTime::NEVER, finished: false });
        self
    }

    /// Has it keep its figures there.
    #[must_use]
    pub fn counting(self, stats: CoreStats) -> Self {
        Self { stats, ..self }
    }

    /// Polls on the calling thread until every role has finished or `stop` is forced. A core without roles ends at once.
    ///
    /// # Errors
    /// If the backend cannot start.
    pub fn run(mut self, stop: &Stop) -> io::Result<CoreReport> {
        self.backend.start()?;
        Ok(self.poll(stop))
    }

    fn poll(mut self, stop: &Stop) -> CoreReport {
        while !self.turn(stop) {}
        self.backend.flush();
        self.publish();
        CoreReport { core: self.figures, io: *self.backend.counters() }
    }

    /// One turn; `true` once every role has finished or `stop` is forced.
    fn turn(&mut self, stop: &Stop) -> bool {
        self.backend.fetch();
        let begun = Now::read();
        let got = self.receive(begun);
        let more = self.backend.more();
        let (mut now, mut work) = (begun, got);
        let mut round = self.round(now, more);
        for _ in 1..ROUNDS_MAX {
            if round.work == 0 {
                break;
            }
            work += round.work;
            now = Now::read();
            round = self.round(now, more);
        }
        work += round.work;
        self.account(begun.local, work, more);
        if work > 0 {
            self.last_busy = now.local;
            self.publish();
        }
        // Looked at after `receive` heard the bell and before sleep: a stop that rang before that is seen here, and one that
        // rings later ends the sleep. Anywhere else the core could sleep through it.
        let ended = round.finished || stop.is_forced();
        if ended || round.work > 0 || more {
            self.backend.flush();
        } else {
            self.idle(now.local, round.wake, work);
        }
        ended
    }

    fn receive(&mut self, now: Now) -> usize {
        let Self { backend, roles, owners, config, .. } = self;
        backend.receive(config.batch, &mut |got| {
            let seat = owners.get(got.socket.place()).and_then(|owner| roles.get_mut(*owner));
            if let Some(seat) = seat.filter(|seat| !seat.finished) {
                seat.role.datagram(now, got);
            }
        })
    }

    fn round(&mut self, now: Now, more: bool) -> Round {
        let mut round = Round { work: 0, wake: LocalTime::NEVER, finished: true };
        for seat in self.roles.iter_mut().filter(|seat| !seat.finished) {
            let turn = seat.role.turn(now, more, &mut self.backend);
            (seat.wake, seat.finished) = (turn.wake, turn.finished);
            round.work += turn.work;
            if turn.finished {
                // Another role may have waited for this end: it must see it before the core sleeps.
                round.work += 1;
            } else {
                round.wake = round.wake.min(turn.wake);
                round.finished = false;
            }
        }
        self.figures.rounds += 1;
        round
    }

    /// Which regime the turn belongs to. `more`: what had come in was more than a turn takes.
    fn account(&mut self, begun: LocalTime, work: usize, more: bool) {
        let figures = &mut self.figures;
        figures.turns += 1;
        figures.work += u64::try_from(work).unwrap_or(u64::MAX);
        let took = clock::monotonic().since(begun).get();
        figures.longest_turn_ns = figures.longest_turn_ns.max(took);
        if work == 0 {
            return;
        }
        figures.busy_turns += 1;
        figures.busy_ns += took;
        let refused = self.backend.counters().send_refused;
        if more || refused > self.refused {
            figures.pressed_turns += 1;
            figures.pressed_ns += took;
            self.refused = refused;
        }
        self.stats.core.turn_ns.record(took);
    }

    fn idle(&mut self, now: LocalTime, wake: LocalTime, work: usize) {
        let look_again = match self.config.waiting {
            Waiting::Spin => true,
            Waiting::Hybrid { spin } => now.since(self.last_busy) < spin,
            Waiting::Park | Waiting::Auto => false,
        };
        if look_again {
            self.backend.flush();
            std::hint::spin_loop();
            return;
        }
        self.figures.sleeps += 1;
        self.figures.overdue += u64::from(wake <= now && work == 0);
        self.backend.wait(Some(wake));
        self.publish();
    }

    fn publish(&self) {
        self.figures.publish(&self.stats.core);
        self.backend.counters().publish(&self.stats.io);
    }
}

/// Why a core did not start.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// No thread.
    #[error("cannot start the thread of core {core}: {cause}; see `ulimit -u` and TasksMax=")]
    Thread {
        /// The core's name.
        core: String,
        /// What the system said.
        cause: io::Error,
    },
    /// The backend.
    #[error("cannot start core {core}: {cause}")]
    Backend {
        /// The core's name.
        core: String,
        /// What the backend said.
        cause: io::Error,
    },
    /// The thread panicked (where panics do not end the process at once).
    #[error("core {core} panicked")]
    Panicked {
        /// The core's name.
        core: String,
    },
}

/// A running core.
#[derive(Debug)]
pub struct Running {
    name: String,
    engine: String,
    placed: Placed,
    waiting: Waiting,
    stats: CoreViews,
    thread: JoinHandle<CoreReport>,
}

impl<B: Backend + 'static> Core<B> {
    /// Polls on a thread of its own, placed as configured, until every role has finished or `stop` is forced. Returns once
    /// the backend has started there.
    ///
    /// # Errors
    /// [`CoreError`], if there is no thread to be had or the backend cannot start.
    pub fn spawn(mut self, stop: &Stop) -> Result<Running, CoreError> {
        let (name, waiting, stats) = (self.config.name.clone(), self.config.waiting, self.stats.views());
        let (tell, told) = mpsc::sync_channel(1);
        let stop = stop.clone();
        let body = move || {
            let placed = place(self.config.cpu, self.config.fifo);
            let started = self.backend.start().map(|()| (placed, self.backend.describe()));
            let failed = started.is_err();
            if tell.send(started).is_err() || failed {
                return CoreReport::default();
            }
            self.poll(&stop)
        };
        let thread = thread::Builder::new()
            .name(name.clone())
            .spawn(body)
            .map_err(|cause| CoreError::Thread { core: name.clone(), cause })?;
        match told.recv() {
            Ok(Ok((placed, engine))) => Ok(Running { name, engine, placed, waiting, stats, thread }),
            Ok(Err(cause)) => Err(CoreError::Backend { core: name, cause }),
            Err(_) => Err(CoreError::Panicked { core: name }),
        }
    }
}

impl Running {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it runs.
    #[must_use]
    pub fn placed(&self) -> &Placed {
        &self.placed
    }

    /// How it waits.
    #[must_use]
    pub fn waiting(&self) -> Waiting {
        self.waiting
    }

    /// The engine it really uses.
    #[must_use]
    pub fn engine(&self) -> &str {
        &self.engine
    }

    /// Its figures now.
    #[must_use]
    pub fn report(&self) -> CoreReport {
        self.stats.read()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// [`CoreError::Panicked`].
    pub fn join(self) -> Result<CoreReport, CoreError> {
        self.thread.join().map_err(|_| CoreError::Panicked { core: self.name })
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.thread.is_finished()
    }
}

impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "core {}: {}, {}, {}", self.name, self.placed, self.waiting, self.engine)
    }
}

impl<B> fmt::Debug for Core<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roles: Vec<_> = self.roles.iter().map(|seat| seat.role.name()).collect();
        f.debug_struct("Core").field("config", &self.config).field("roles", &roles).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{AUTO_SPIN, Waiting};

    #[test]
    fn auto_spins_only_with_processors_to_spare() {
        assert_eq!(Waiting::Auto.resolve_with(1, 3), Waiting::Park);
        assert_eq!(Waiting::Auto.resolve_with(2, 4), Waiting::Park);
        assert_eq!(Waiting::Auto.resolve_with(2, 5), Waiting::Hybrid { spin: AUTO_SPIN });
        assert_eq!(Waiting::Spin.resolve_with(8, 1), Waiting::Spin);
    }
}
