//! `watching`: a load at 50,000 a second, by itself and while somebody looks, in pairs, one after the other, in changing
//! order: processor time an ordered entry.
//!
//! **Why with the watcher's own time.** Who watches a system that is busy takes its processors: what counts is all of it.
//! **A watcher** is a row of [`WATCHERS`]: a name, and what it does beside the load until it is told to end.
//! **Limits**: a watcher's own time, where it is other processes, is known to 10 ms.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ordain::engine::clock;
use ordain::protocol::Span;
use serde_json::{Map, Value, json};

use crate::support::cluster::Cluster;
use crate::support::figures::{Figures, count, judged, ratios, round, spreads};
use crate::support::floor::Floor;
use crate::support::load::{self, PLAIN};
use crate::support::process::{self, children_us};
use crate::support::{Args, Failure, Found};

const RATE: f64 = 50_000.0;
const SERVERS: u8 = 3;
/// What an entry may cost while somebody watches, beside what it costs otherwise.
const TARGET: f64 = 1.10;

/// Watches a cluster until told to end; returns how often it looked.
type Watcher = fn(&Cluster, &AtomicBool) -> Result<u64, String>;

/// Who watches.
const WATCHERS: &[(&str, Watcher)] = &[("status_every_second", status)];

pub(in crate::support) fn run(args: &Args) -> Result<Found, Failure> {
    let rounds = args.rounds(4, 8);
    let duration = Span::millis(if args.quick { 2_500 } else { 8_000 });
    let mut floor = Floor::commit(u16::from(SERVERS))?;
    let bare = floor.open(1_000.0, Span::millis(if args.quick { 1_000 } else { 3_000 }))?;
    let cluster = Cluster::start(SERVERS, &[("engine.waiting", "park")])?;
    let mut figures = Map::from_iter([
        ("rate_per_s".to_owned(), json!(RATE)),
        ("pairs".to_owned(), json!(rounds)),
        ("seconds".to_owned(), json!(round(seconds(duration)))),
    ]);
    for (name, watcher) in WATCHERS {
        figures.insert((*name).to_owned(), watched(&cluster, *watcher, rounds, duration)?);
    }
    let engine = cluster.engine();
    cluster.end()?;
    Ok(Found { engine, waiting: "park", floor: json!({"commit": spreads(&[bare])}), figures })
}

fn seconds(span: Span) -> f64 {
    count(span.get()) / 1e9
}

/// Pairs of a run without and one with the watcher.
fn watched(cluster: &Cluster, watcher: Watcher, rounds: u32, duration: Span) -> Result<Value, Failure> {
    let mut pairs: Vec<(Figures, Figures)> = Vec::new();
    for round in 0..rounds {
        let alone = || load::open(cluster, PLAIN, RATE, duration);
        pairs.push(if round % 2 == 0 {
            (alone()?, beside(cluster, watcher, duration)?)
        } else {
            let watched = beside(cluster, watcher, duration)?;
            (alone()?, watched)
        });
    }
    let (off, on): (Vec<Figures>, Vec<Figures>) = pairs.iter().cloned().unzip();
    let cpu = ratios(&pairs, "cpu_us");
    let mut against = json!(cpu);
    if let Some(object) = against.as_object_mut() {
        object.insert("target_max".to_owned(), json!(TARGET));
        object.insert("reached".to_owned(), judged(cpu, cpu.median <= TARGET));
    }
    Ok(json!({
        "off": spreads(&off),
        "on": spreads(&on),
        "cpu_ratio": against,
        "server_cpu_ratio": ratios(&pairs, "server_cpu_us"),
        "latency_p50_ratio": ratios(&pairs, "latency_p50_us"),
        "latency_p99_ratio": ratios(&pairs, "latency_p99_us"),
    }))
}

/// A run with the watcher beside it: its processes' time counts as the entries'.
fn beside(cluster: &Cluster, watcher: Watcher, duration: Span) -> Result<Figures, Failure> {
    let before = children_us();
    let done = AtomicBool::new(false);
    let (figures, looks) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| watcher(cluster, &done));
        let figures = load::open(cluster, PLAIN, RATE, duration);
        // Relaxed: a flag alone; its partner is the watcher's load.
        done.store(true, Ordering::Relaxed);
        (figures, watching.join())
    });
    let mut figures = figures?;
    let looks = looks.map_err(|_| "the watcher panicked")??;
    // It also watched the load's first, short phase: a fourth of the measured one.
    let entries = figures["ordered_per_s"] * seconds(duration) * 1.25;
    let own = (children_us() - before) / entries;
    figures.insert("watcher_cpu_us", own);
    figures.insert("looks", count(looks));
    if let Some(cpu) = figures.get_mut("cpu_us") {
        *cpu += own;
    }
    Ok(figures)
}

/// `ordain status --json` of all servers, once a second.
fn status(cluster: &Cluster, done: &AtomicBool) -> Result<u64, String> {
    let mut looks = 0_u64;
    let mut due = clock::monotonic();
    // Relaxed: as in `beside`.
    while !done.load(Ordering::Relaxed) {
        if clock::monotonic() < due {
            std::thread::park_timeout(Duration::from_millis(20));
            continue;
        }
        due = due.plus(Span::secs(1));
        let mut command = process::command(env!("CARGO_BIN_EXE_ordain"));
        command.args(["status", "--json", "--config"]).arg(cluster.config());
        let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
        let servers = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
        if servers != usize::from(SERVERS) {
            return Err(format!("status showed {servers} servers: {}", String::from_utf8_lossy(&output.stderr)));
        }
        looks += 1;
    }
    Ok(looks)
}
