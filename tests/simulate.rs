#![cfg(test)]
//! Ten thousand schedules of the real core and ledger under a lossy network, and the seeds that once found a fault.
//!
//! The seed is `ORDAIN_SEED`, else made from the commit, so that every commit tries others and the same commit the same.

use std::path::Path;
use std::process::Command;

use ordain::protocol::plant::Plant;
use ordain::sim::{Campaign, Faults, Schedule, Tally, run, run_all};

/// Tells, when a test fails, the command that fails again.
struct Reproduce {
    test: &'static str,
    seed: u64,
}

impl Drop for Reproduce {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { test, seed } = self;
            eprintln!("reproduce: ORDAIN_SEED={seed} cargo test --test simulate -- --exact {test}");
        }
    }
}

fn seed(test: &'static str) -> Reproduce {
    if let Ok(text) = std::env::var("ORDAIN_SEED") {
        return Reproduce { test, seed: text.parse().expect("ORDAIN_SEED is a number") };
    }
    let commit = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let commit = commit.map(|output| output.stdout).unwrap_or_default();
    let fold = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
    Reproduce { test, seed: commit.iter().chain(test.as_bytes()).fold(0xCBF2_9CE4_8422_2325, fold) }
}

fn play(seed: &Reproduce, schedules: u64, faults: Faults) -> Tally {
    let campaign = Campaign { seed: seed.seed, schedules, servers: None, faults, restarts: 0, plant: Plant::NONE };
    let report = run_all(&campaign, |_| {});
    if let Some(violation) = report.violation {
        panic!("{violation}");
    }
    assert_eq!(report.tally.schedules, schedules);
    println!("{:?}", report.tally);
    report.tally
}

#[test]
fn ten_thousand_schedules_with_losses_violate_nothing() {
    let seed = seed("ten_thousand_schedules_with_losses_violate_nothing");
    let tally = play(&seed, 10_000, Faults::Loss);
    // A simulator that does little finds little.
    assert!(tally.entries >= 20 * tally.schedules, "{} entries", tally.entries);
    assert!(tally.losses >= 5 * tally.schedules, "{} losses", tally.losses);
    assert!(tally.duplicated >= tally.schedules && tally.reordered >= tally.schedules, "{tally:?}");
    assert!(tally.retries >= tally.schedules && tally.pauses >= tally.schedules, "{tally:?}");
}

#[test]
fn schedules_without_losses_violate_nothing_either() {
    let seed = seed("schedules_without_losses_violate_nothing_either");
    let tally = play(&seed, 1_000, Faults::None);
    assert!(tally.entries >= 20 * tally.schedules, "{} entries", tally.entries);
    assert_eq!((tally.losses, tally.duplicated, tally.reordered, tally.pauses, tally.clock_jumps), (0, 0, 0, 0, 0));
}

#[test]
fn schedule_gives_the_same_again() {
    let seed = seed("schedule_gives_the_same_again");
    for servers in [1, 3, 5, 7] {
        let schedule = Schedule::new(seed.seed, servers, Faults::Loss);
        assert_eq!(run(&schedule).unwrap(), run(&schedule).unwrap(), "{servers} servers");
    }
}

/// Restarted servers are refused in this version; what was answered stays right, and no two instances live at once.
#[test]
fn restarts_while_the_cluster_forms_and_later_misorder_nothing() {
    let seed = seed("restarts_while_the_cluster_forms_and_later_misorder_nothing");
    for restarts in [1, 2, 5] {
        let campaign = Campaign {
            seed: seed.seed,
            schedules: 300,
            servers: None,
            faults: Faults::Loss,
            restarts,
            plant: Plant::NONE,
        };
        let report = run_all(&campaign, |_| {});
        if let Some(violation) = report.violation {
            panic!("{violation} (with {restarts} restarts)");
        }
        // One restart asked for may come after the schedule's end: half of them do.
        assert!(report.tally.restarts > report.tally.schedules / 4, "{:?}", report.tally);
        assert!(report.tally.instances > report.tally.schedules / 2, "{:?}", report.tally);
    }
}

#[test]
fn seeds_that_found_a_fault_find_none_now() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seeds.txt");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut played = 0;
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let mut words = line.split_whitespace();
        let faults = match words.next() {
            Some("none") => Faults::None,
            Some("loss") => Faults::Loss,
            other => panic!("{}: faults {other:?} in {line:?}", path.display()),
        };
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).expect(line);
        let (servers, restarts, seed) = (number(), number(), number());
        let schedule = Schedule {
            restarts: u32::try_from(restarts).unwrap(),
            ..Schedule::new(seed, usize::try_from(servers).unwrap(), faults)
        };
        if let Err(violation) = run(&schedule) {
            panic!("{violation}\n{line}");
        }
        played += 1;
    }
    assert!(played > 0, "no seed in {}", path.display());
}
