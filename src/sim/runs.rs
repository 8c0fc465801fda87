//! Many schedules: seeds, threads, sums.
//!
//! **Why seeds this way.** Schedule 0 of a run has the run's own seed, so that the command that replays one schedule
//! names the seed that was reported. **Invariants**: the sums do not depend on the number of threads.
//! **Limits**: a run ends at its first violation, of the lowest schedule that shows one.
use std::cell::Cell;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{Faults, Schedule, Tally, Violation, replay, run};
use crate::protocol::plant::Plant;

/// Many schedules from one seed.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// What all schedules' seeds come from.
    pub seed: u64,
    /// How many.
    pub schedules: u64,
    /// How many servers; none: drawn for each schedule, mostly 3.
    pub servers: Option<usize>,
    /// What goes wrong.
    pub faults: Faults,
    /// How many restarts in each.
    pub restarts: u32,
    /// A rule removed, in tests.
    pub plant: Plant,
}

impl Campaign {
    /// Schedule `at` of the run.
    #[must_use]
    pub fn schedule(&self, at: u64) -> Schedule {
        let seed = schedule_seed(self.seed, at);
        let servers = self.servers.unwrap_or_else(|| servers_of(seed));
        Schedule { seed, servers, faults: self.faults, restarts: self.restarts, plant: self.plant }
    }
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Sums over the schedules that ended well.
    pub tally: Tally,
    /// The first that did not, if any.
    pub violation: Option<Box<Violation>>,
}

thread_local! {
    static PLAYING: Cell<Option<Schedule>> = const { Cell::new(None) };
}

/// The schedule this thread plays or played last: for who has to say where a core's own assertion failed.
#[must_use]
pub fn playing() -> Option<Schedule> {
    PLAYING.get()
}

pub(super) fn now_playing(schedule: &Schedule) {
    PLAYING.set(Some(*schedule));
}

/// Says which schedule it was when a core's own assertion unwinds through a run.
struct TellOfPanic;

impl Drop for TellOfPanic {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(schedule) = playing()
        {
            let line = format!("replay: {}\n", replay(&schedule));
            let _nobody_to_tell = std::io::stderr().lock().write_all(line.as_bytes());
        }
    }
}

/// The seed of schedule `at` of a run (`SplitMix64`); schedule 0 has the run's.
#[must_use]
pub fn schedule_seed(seed: u64, at: u64) -> u64 {
    if at == 0 {
        return seed;
    }
    let mut mixed = seed.wrapping_add(at.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// How many servers a schedule of this seed has when nobody says: mostly 3.
#[must_use]
pub fn servers_of(seed: u64) -> usize {
    match schedule_seed(seed, 1) % 16 {
        0 => 1,
        1..=11 => 3,
        12..=14 => 5,
        _ => 7,
    }
}

/// Plays all schedules of a run on as many threads as there are processors. `progress` is told how many are done.
///
/// # Panics
/// If a core's own assertion fails in a schedule.
pub fn run_all(campaign: &Campaign, progress: impl Fn(u64) + Sync) -> Report {
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let sum = Mutex::new(Tally::default());
    let worst: Mutex<Option<(u64, Box<Violation>)>> = Mutex::new(None);
    let first_bad = AtomicU64::new(u64::MAX);
    let work = || {
        let mut tally = Tally::default();
        loop {
            // Relaxed: a ticket; nothing else hangs on it.
            let at = next.fetch_add(1, Ordering::Relaxed);
            // Relaxed: what it misses is played in vain.
            if at >= campaign.schedules || at > first_bad.load(Ordering::Relaxed) {
                break;
            }
            let told = TellOfPanic;
            match run(&campaign.schedule(at)) {
                Ok(more) => tally.add(&more),
                Err(violation) => {
                    // Relaxed, as above; the violation itself goes through the lock.
                    first_bad.fetch_min(at, Ordering::Relaxed);
                    let mut worst = worst.lock().unwrap_or_else(PoisonError::into_inner);
                    if worst.as_ref().is_none_or(|(other, _)| at < *other) {
                        *worst = Some((at, violation));
                    }
                }
            }
            drop(told);
            // Relaxed: a count for people.
            progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
        sum.lock().unwrap_or_else(PoisonError::into_inner).add(&tally);
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let violation = worst.into_inner().unwrap_or_else(PoisonError::into_inner).map(|(_, violation)| violation);
    Report { tally: sum.into_inner().unwrap_or_else(PoisonError::into_inner), violation }
}
