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
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use super::backend::{Backend, Counters, Io, Received, SocketId};
use super::clock;
use super::place::{Placed, cpus, place};
use super::stop::Stop;
use super::sync::{AtomicU64, Ordering};
use crate::protocol::{LocalTime, Span, Timestamp};

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

macro_rules! core_stats {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What a core did since its start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct CoreReport {
            $($(#[$doc])* pub $name: u64,)*
            /// What its backend did.
            pub io: Counters,
        }

        impl CoreReport {
            /// Every figure by name, the core's own before its backend's.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                let io = Counters::NAMES.into_iter().zip(self.io.values());
                [$((stringify!($name), self.$name)),*].into_iter().chain(io)
            }

            /// Both together: sums, and the longer of the longest turns.
            #[must_use]
            pub fn plus(&self, other: &Self) -> Self {
                let (mine, theirs) = (self.io.values(), other.io.values());
                let io = std::array::from_fn(|index| mine[index].saturating_add(theirs[index]));
                let sum = Self { $($name: self.$name.saturating_add(other.$name),)* io: Counters::from_values(io) };
                Self { longest_turn_ns: self.longest_turn_ns.max(other.longest_turn_ns), ..sum }
            }
        }

        /// The same, readable by any thread while the core runs: each figure is exact, not the moment of all of them.
        #[derive(Debug, Default)]
        pub struct CoreStats {
            $($name: AtomicU64,)*
            io: [AtomicU64; Counters::COUNT],
        }

        impl CoreStats {
            fn publish(&self, report: &CoreReport, io: &Counters) {
                // Relaxed here and in `read`: figures order nothing.
                $(self.$name.store(report.$name, Ordering::Relaxed);)*
                for (slot, value) in self.io.iter().zip(io.values()) {
                    slot.store(value, Ordering::Relaxed);
                }
            }

            /// The figures now.
            #[must_use]
            pub fn read(&self) -> CoreReport {
                let io = std::array::from_fn(|index| self.io[index].load(Ordering::Relaxed));
                CoreReport { $($name: self.$name.load(Ordering::Relaxed),)* io: Counters::from_values(io) }
            }
        }
    };
}

core_stats! {
    /// Turns of the loop.
    turns,
    /// ... of them, those that found work.
    busy_turns,
    /// Datagrams handed on and work reported by roles.
    work,
    /// Rounds of role turns.
    rounds,
    /// Times it went to sleep, or tried to.
    sleeps,
    /// Sleeps asked for with a deadline already past by a role that then did nothing: such a role spins.
    overdue,
    /// The longest turn, in nanoseconds, sleep not counted.
    longest_turn_ns,
}

/// A core: one backend and the roles it polls. Runs on the calling thread ([`Core::run`]) or its own ([`Core::spawn`]).
pub struct Core<B> {
    config: CoreConfig,
    backend: B,
    roles: Vec<Seat>,
    /// Which role has which socket; `usize::MAX`: none.
    owners: Vec<usize>,
    report: CoreReport,
    stats: Arc<CoreStats>,
    last_busy: LocalTime,
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
            report: CoreReport::default(),
            stats: Arc::default(),
            last_busy: LocalTime::new(0),
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

    /// Its figures, readable from any thread at any time.
    #[must_use]
    pub fn stats(&self) -> Arc<CoreStats> {
        Arc::clone(&self.stats)
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
        CoreReport { io: *self.backend.counters(), ..self.report }
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
        self.account(begun.local, work);
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
        self.report.rounds += 1;
        round
    }

    fn account(&mut self, begun: LocalTime, work: usize) {
        let report = &mut self.report;
        report.turns += 1;
        report.work += u64::try_from(work).unwrap_or(u64::MAX);
        report.busy_turns += u64::from(work > 0);
        report.longest_turn_ns = report.longest_turn_ns.max(clock::monotonic().since(begun).get());
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
        self.report.sleeps += 1;
        self.report.overdue += u64::from(wake <= now && work == 0);
        self.backend.wait(Some(wake));
        self.publish();
    }

    fn publish(&self) {
        self.stats.publish(&self.report, self.backend.counters());
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
    stats: Arc<CoreStats>,
    thread: JoinHandle<CoreReport>,
}

impl<B: Backend + 'static> Core<B> {
    /// Polls on a thread of its own, placed as configured, until every role has finished or `stop` is forced. Returns once
    /// the backend has started there.
    ///
    /// # Errors
    /// [`CoreError`], if there is no thread to be had or the backend cannot start.
    pub fn spawn(mut self, stop: &Stop) -> Result<Running, CoreError> {
        let (name, waiting, stats) = (self.config.name.clone(), self.config.waiting, self.stats());
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

    /// Its figures, for another thread to read.
    #[must_use]
    pub fn stats(&self) -> Arc<CoreStats> {
        Arc::clone(&self.stats)
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
