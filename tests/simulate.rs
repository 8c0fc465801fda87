#![cfg(test)]
//! Ten thousand schedules.
use ordain::sim::*;
#[test]
fn try_it() {
    let start = std::time::SystemTime::UNIX_EPOCH;
    let _ = start;
    let n: u64 = std::env::var("N").ok().and_then(|v| v.parse().ok()).unwrap_or(200);
    let seed: u64 = std::env::var("ORDAIN_SEED").ok().and_then(|v| v.parse().ok()).unwrap_or(1);
    let servers: Option<usize> = std::env::var("SERVERS").ok().and_then(|v| v.parse().ok());
    let faults = if std::env::var("NONE").is_ok() { Faults::None } else { Faults::Loss };
    let c = Campaign { seed, schedules: n, servers, faults, restarts: 0, plant: ordain::protocol::plant::Plant::NONE };
    let r = run_all(&c, |_| {});
    println!("{:?}", r.tally);
    if let Some(v) = r.violation {
        panic!("{v}");
    }
}
