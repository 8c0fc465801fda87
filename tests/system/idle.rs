//! What a cluster costs when nobody asks anything.
use std::fs;

use super::support::{Cluster, wait_for};

/// Processor time of every thread of a process, in nanoseconds: what ran, not what waited to run.
fn cpu_ns(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let spent = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        text.split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0)
    };
    tasks.flatten().map(spent).sum()
}

/// Time since the system's start, in nanoseconds.
fn uptime_ns() -> u64 {
    ordain::engine::clock::monotonic().since(ordain::protocol::LocalTime::default()).get()
}

/// An idle server costs at most 2 % of a processor, and no role spins: none reports work it has not done, or asks for a turn
/// at a time that is past.
#[test]
fn an_idle_cluster_of_three_costs_at_most_two_percent_a_server() {
    let mut cluster = Cluster::start(3);
    let (begun, before) = (uptime_ns(), [1, 2, 3].map(|id| cpu_ns(cluster.pid(id))));
    let idle_ns = 4_000_000_000;
    wait_for("four seconds of idling", || (uptime_ns() - begun >= idle_ns).then_some(()));
    let after = [1, 2, 3].map(|id| cpu_ns(cluster.pid(id)));
    let elapsed = uptime_ns() - begun;
    for (id, (before, after)) in (1..).zip(before.into_iter().zip(after)) {
        let spent = after - before;
        assert!(spent * 50 <= elapsed, "server {id} spent {spent} ns of {elapsed} ns doing nothing");
    }
    for id in 1..=3 {
        assert_eq!(cluster.terminate(id).code(), Some(0));
        let [turns, busy, sleeps, overdue] =
            ["turns", "busy_turns", "sleeps", "overdue"].map(|name| cluster.counted(id, name));
        let log = cluster.log(id);
        assert_eq!(overdue, 0, "{log}");
        // A turn ends in sleep unless its last round did something: then there is one more.
        assert!(sleeps > 100 && turns <= 2 * sleeps + busy + 100, "{log}");
    }
}
