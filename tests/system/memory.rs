//! Memory: what is stated at start is what is used, however much is ordered.
use std::process::Stdio;

use super::support::{Cluster, ordain};

/// The sum of tables, rings and buffers that a server states at start, in bytes.
fn stated(cluster: &Cluster, id: u8) -> u64 {
    let log = cluster.log(id);
    let (_, rest) = log.split_once("tables, rings and buffers: ").unwrap_or_else(|| panic!("no sum in {log}"));
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

/// Orders `wanted` requests and more, as fast as the machine at hand allows.
fn order(cluster: &Cluster, wanted: u64) {
    let mut ordered = 0;
    for _ in 0..20 {
        let load = ordain()
            .args(["load", "--json", "--rate", "25000", "--duration", "4s", "--warmup", "0s", "--history", "4"])
            .args(["--clients", "64", "--participants", "3..3", "--participant-space", "50000", "--config"])
            .arg(cluster.config())
            .stderr(Stdio::null())
            .output()
            .unwrap();
        let report: serde_json::Value = serde_json::from_slice(&load.stdout).unwrap();
        ordered += report["ordered"].as_u64().unwrap();
        if ordered >= wanted {
            return;
        }
    }
    panic!("only {ordered} of {wanted} ordered");
}

#[test]
fn memory_stays_within_the_stated_sum() {
    let cluster = Cluster::start(3);
    order(&cluster, 100_000);
    for id in 1..=3 {
        let (resident, stated) = (cluster.resident_kib(id) << 10, stated(&cluster, id));
        assert!(resident <= stated + (24 << 20), "server {id}: {resident} bytes resident, {stated} stated");
    }
}

/// Its ledger full and going round, a `laptop` server has at most 64 MB.
#[test]
fn laptop_profile_takes_at_most_64_mb() {
    let cluster = Cluster::start_with(3, &["ledger.profile=laptop"]);
    order(&cluster, 210_000);
    for id in 1..=3 {
        let (resident, stated) = (cluster.resident_kib(id) << 10, stated(&cluster, id));
        assert!(resident <= 64_000_000, "server {id}: {resident} bytes resident, {stated} stated");
        assert!(resident <= stated + (24 << 20), "server {id}: {resident} bytes resident, {stated} stated");
    }
}
