//! The tests' test: with a rule removed, random schedules see it within a stated number of seeds.
//!
//! **Not here**: a promise of another life of a stream, and acknowledgements of another epoch or incarnation. Without a
//! change of epoch no schedule makes them; `scenarios` (S29, I9) does it by hand.
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Faults, Schedule, run, schedule_seed, servers_of};
use crate::protocol::plant::{Fault, Plant};

const SEED: u64 = 20_260_701;

/// How many schedules it takes until one sees the fault, and what it sees: a rule's name, or that a core stopped itself.
fn caught(fault: Fault, most: u64) -> (u64, &'static str) {
    for at in 0..most {
        let seed = schedule_seed(SEED, at);
        let schedule = Schedule { plant: Plant::new(fault), ..Schedule::new(seed, servers_of(seed), Faults::Loss) };
        match catch_unwind(AssertUnwindSafe(|| run(&schedule))) {
            Ok(Ok(_)) => {}
            Ok(Err(violation)) => return (at + 1, violation.broken.rule),
            Err(_) => return (at + 1, "a core's own assertion"),
        }
    }
    panic!("{fault:?} is not seen within {most} schedules");
}

fn within(fault: Fault, most: u64) {
    let (schedules, seen_as) = caught(fault, most);
    println!("{fault:?}: seen after {schedules} schedules as {seen_as}");
}

#[test]
fn delivery_without_promises_is_seen_within_10_schedules() {
    within(Fault::DeliverWithoutPromise, 10);
}

#[test]
fn delivery_on_a_promise_of_one_less_is_seen_within_10_schedules() {
    within(Fault::DeliverWithEarlierPromise, 10);
}

#[test]
fn delivery_of_the_undecided_is_seen_within_10_schedules() {
    within(Fault::DeliverUndecided, 10);
}

#[test]
fn stamps_by_the_clock_alone_are_seen_within_10_schedules() {
    within(Fault::StampBelowPromise, 10);
}

#[test]
fn accepted_gaps_are_seen_within_10_schedules() {
    within(Fault::AcceptGaps, 10);
}

#[test]
fn promises_without_their_prefix_are_seen_within_10_schedules() {
    within(Fault::PromiseWithoutPrefix, 10);
}

#[test]
fn duplicates_kept_by_the_ledger_are_seen_within_10_schedules() {
    within(Fault::LedgerKeepsDuplicates, 10);
}

/// Nothing is seen where nothing is removed.
#[test]
fn same_schedules_with_all_rules_show_nothing() {
    for at in 0..100 {
        let seed = schedule_seed(SEED, at);
        if let Err(violation) = run(&Schedule::new(seed, servers_of(seed), Faults::Loss)) {
            panic!("{violation}");
        }
    }
}
