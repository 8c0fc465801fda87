//! The simulator: real cores and ledgers under a simulated network, simulated clocks and clients, from one seed.
//!
//! **Why.** What loss, repetition, reordering and wrong clocks do to the order shows once in thousands of schedules;
//! here a schedule takes a millisecond, and the one that failed can be run again bit for bit.
//! **How.** [`run`] plays one schedule in a [`world`]: an event heap of datagrams as bytes, servers that take several
//! inputs a turn, pause and go on, clients that retry. After every step of a server the invariants of protocol.md,
//! section 13, are looked at, with those parts that need no epoch change; then what clients were told. At the end the
//! faults cease, and everything asked must be answered, everywhere the same.
//! **Invariants**: one generator, seeded once; nothing of the host (time, hash order, floating point) has any influence.
//! **Limits**: [`SERVERS`] servers; faults `none` and `loss`; one epoch. **Not here**: crashes, `deadline`.
use std::fmt;

mod check;
mod client;
mod clock;
mod model;
mod net;
mod outbox;
mod runs;
mod told;
pub mod world;

#[cfg(test)]
mod lab;
#[cfg(test)]
mod planted;
#[cfg(test)]
mod scenarios;

pub use check::Broken;
pub use runs::{Campaign, Report, playing, run_all, schedule_seed, servers_of};

use crate::protocol::plant::Plant;

/// How many servers a cluster may have.
pub const SERVERS: [usize; 4] = [1, 3, 5, 7];

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    /// Every datagram arrives, once and in order; clocks are off, but go forward.
    None,
    /// Datagrams are lost, doubled, late and out of order; links are cut and servers pause for a while; clocks step back.
    Loss,
}

impl Faults {
    /// The word on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Loss => "loss",
        }
    }
}

/// One schedule: everything that happens in it follows from this.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// What all is drawn from.
    pub seed: u64,
    /// How many servers.
    pub servers: usize,
    /// What goes wrong.
    pub faults: Faults,
    /// So many servers are restarted, remembering nothing, at some time. Nobody may then be left waiting wrongly, but
    /// the rest need not be answered: in this version a restarted server is refused.
    pub restarts: u32,
    /// A rule removed from every server, in tests.
    pub plant: Plant,
}

impl Schedule {
    /// A schedule without restarts, with all rules.
    #[must_use]
    pub const fn new(seed: u64, servers: usize, faults: Faults) -> Self {
        Self { seed, servers, faults, restarts: 0, plant: Plant::NONE }
    }
}

/// What happened in schedules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Schedules played.
    pub schedules: u64,
    /// Entries that got a number.
    pub entries: u64,
    /// Attempts at requests beyond the first.
    pub retries: u64,
    /// Datagrams lost.
    pub losses: u64,
    /// Datagrams that came twice.
    pub duplicated: u64,
    /// Datagrams that came after one sent later on the same link.
    pub reordered: u64,
    /// Links cut for a while.
    pub cuts: u64,
    /// Servers stopped for a while.
    pub pauses: u64,
    /// Clocks set back.
    pub clock_jumps: u64,
    /// Processes restarted.
    pub restarts: u64,
    /// Instances formed.
    pub instances: u64,
    /// Refusals given to clients.
    pub refusals: u64,
    /// Steps of servers, after each of which the invariants were looked at.
    pub steps: u64,
}

impl Tally {
    /// Adds what happened in other schedules.
    pub fn add(&mut self, other: &Self) {
        self.schedules += other.schedules;
        self.entries += other.entries;
        self.retries += other.retries;
        self.losses += other.losses;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.cuts += other.cuts;
        self.pauses += other.pauses;
        self.clock_jumps += other.clock_jumps;
        self.restarts += other.restarts;
        self.instances += other.instances;
        self.refusals += other.refusals;
        self.steps += other.steps;
    }
}

/// An invariant did not hold.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The schedule that shows it.
    pub schedule: Schedule,
    /// Which invariant, with the values.
    pub broken: Broken,
    /// Simulated time of it.
    pub at_ns: u64,
}

impl Violation {
    /// The command that plays the schedule again.
    #[must_use]
    pub fn replay(&self) -> String {
        replay(&self.schedule)
    }
}

/// The command that plays a schedule again.
#[must_use]
pub fn replay(schedule: &Schedule) -> String {
    let Schedule { seed, servers, faults, restarts, .. } = schedule;
    if *restarts > 0 {
        let line = format!("{} {servers} {restarts} {seed}", faults.name());
        return format!("the line `{line}` in tests/seeds.txt, and cargo test --test simulate seeds");
    }
    format!("ordain sim --seed {seed} --schedules 1 --servers {servers} --faults {}", faults.name())
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { schedule, broken, at_ns } = self;
        write!(
            f,
            "{} violated after {at_ns} ns (seed {}, {} servers): {}\nreplay: {}",
            broken.rule,
            schedule.seed,
            schedule.servers,
            broken.what,
            self.replay()
        )
    }
}

impl std::error::Error for Violation {}

/// Plays one schedule to its end.
///
/// # Errors
/// The first invariant that does not hold.
///
/// # Panics
/// If a core's own assertion fails: that is a violation too, and the core says which.
pub fn run(schedule: &Schedule) -> Result<Tally, Box<Violation>> {
    runs::now_playing(schedule);
    let mut world = world::World::new(schedule);
    match world.play() {
        Ok(tally) => Ok(tally),
        Err(broken) => Err(Box::new(Violation { schedule: *schedule, broken, at_ns: world.now() })),
    }
}
