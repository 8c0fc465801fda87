//! `peers`: Redis, corosync and Ordain, round after round in one run, at saturation and at 1,000 a second.
//!
//! **Equal questions.** Ordain answers with the order number and two participants' numbers, held by a majority of three
//! servers. What a peer answers less is said in its `answers`, and its figures are not adjusted.
//! **Not here**: the peers themselves (`redis`, `corosync`), the floor ([`crate::support::floor`]).

use ordain::protocol::Span;
use serde_json::{Map, Value, json};

use super::corosync::Corosync;
use super::redis::{Asked, Redis};
use crate::support::cluster::Cluster;
use crate::support::figures::{Figures, Spread, count, judged, spreads};
use crate::support::floor::Floor;
use crate::support::load::{self, PLAIN, Shape};
use crate::support::{Args, Failure, Found};

/// Sessions of 64 requests in flight at saturation.
const SESSIONS: usize = 256;
const RATE: f64 = 1_000.0;

/// Runs of one kind, by name; the first of each name says what it is.
#[derive(Default)]
struct Runs(Vec<(String, Vec<Figures>)>);

impl Runs {
    fn add(&mut self, name: &str, figures: Figures) {
        match self.0.iter_mut().find(|(held, _)| held == name) {
            Some((_, runs)) => runs.push(figures),
            None => self.0.push((name.to_owned(), vec![figures])),
        }
    }

    fn of(&self, name: &str) -> &[Figures] {
        self.0.iter().find(|(held, _)| held == name).map_or(&[], |(_, runs)| runs)
    }

    fn json(&self) -> Value {
        Value::Object(self.0.iter().map(|(name, runs)| (name.clone(), spreads(runs))).collect())
    }
}

pub(in crate::support) fn run(args: &Args) -> Result<Found, Failure> {
    let rounds = args.rounds(1, 7);
    let duration = Span::millis(if args.quick { 1_000 } else { 3_000 });
    let seconds = count(duration.get()) / 1e9;
    let (redis, corosync) = (Redis::start(), Corosync::start());
    let mut floor = Floor::commit(3)?;
    let mut engine = String::new();
    let (mut ordains, mut redises, mut corosyncs, mut floors) =
        (Runs::default(), Runs::default(), Runs::default(), Vec::new());
    for _ in 0..rounds {
        floors.push(floor.open(RATE, duration)?);
        ordain(&mut ordains, duration, &mut engine)?;
        if let Ok(corosync) = &corosync {
            corosyncs.add("saturation_1024", corosync.run(1_024, 0, seconds)?);
            corosyncs.add("saturation_64", corosync.run(64, 0, seconds)?);
            corosyncs.add("light_1000", corosync.run(64, 333, seconds)?);
        }
        if let Ok(redis) = &redis {
            redises.add("incr_pipelined_16", redis.run(Asked::Incr, 16, seconds)?);
            redises.add("incr_single", redis.run(Asked::Incr, 1, seconds)?);
            redises.add("script_pipelined_16", redis.run(Asked::Script, 16, seconds)?);
            redises.add("script_single", redis.run(Asked::Script, 1, seconds)?);
        }
    }
    let mut figures = Map::new();
    figures.insert(
        "ordain".to_owned(),
        json!({
            "answers": "order number and two participants' numbers with a history of one, held by a majority of three",
            "runs": ordains.json(),
        }),
    );
    figures.insert("redis".to_owned(), redis.as_ref().map_or_else(unavailable, |redis| json!({
        "version": redis.version(),
        "answers": "one process in memory, no disk: INCR one number; script: a number and two participants', no history",
        "load": "redis-benchmark, 50 connections, closed loop",
        "runs": redises.json(),
    })));
    figures.insert(
        "corosync".to_owned(),
        corosync.as_ref().map_or_else(unavailable, |corosync| {
            json!({
                "version": corosync.version(),
                "answers": "64 bytes delivered to the sender in the agreed order, perhaps held by one node; no number",
                "load": "a client at each of three nodes in the real-time class, udpu, no encryption, default token",
                "runs": corosyncs.json(),
            })
        }),
    );
    figures.insert("ratios".to_owned(), ratios(&ordains, &redises, &corosyncs));
    Ok(Found { engine, waiting: "park", floor: json!({"commit": spreads(&floors)}), figures })
}

fn unavailable(why: &Failure) -> Value {
    json!({"unavailable": why.to_string()})
}

fn ordain(runs: &mut Runs, duration: Span, engine: &mut String) -> Result<(), Failure> {
    let cluster = Cluster::start(3, &[("engine.waiting", "park")])?;
    *engine = cluster.engine();
    let mut closed = load::closed(&cluster, Shape { sessions: SESSIONS, ..PLAIN }, duration)?;
    closed.insert("per_s", closed["ordered_per_s"]);
    runs.add("saturation_16384", closed);
    let mut single = load::closed(&cluster, Shape { sessions: SESSIONS, per_datagram: 1, ..PLAIN }, duration)?;
    single.insert("per_s", single["ordered_per_s"]);
    runs.add("saturation_one_a_datagram", single);
    let light = load::open(&cluster, Shape { sessions: 12, ..PLAIN }, RATE, duration)?;
    runs.add("light_1000", light);
    cluster.end()?;
    Ok(())
}

/// Ordain's figures by each peer's, round by round.
fn ratios(ordain: &Runs, redis: &Runs, corosync: &Runs) -> Value {
    let ratio = |ours: (&str, &str), theirs: (&Runs, &str, &str)| {
        let pairs = ordain.of(ours.0).iter().zip(theirs.0.of(theirs.1));
        Spread::of(pairs.filter_map(|(a, b)| Some(a.get(ours.1)? / b.get(theirs.2).filter(|value| **value > 0.0)?)))
    };
    let best_corosync = {
        let (large, small) = (corosync.of("saturation_1024"), corosync.of("saturation_64"));
        let per_s = |runs: &[Figures], at: usize| runs.get(at).map_or(0.0, |run| run["per_s"]);
        let pairs = ordain.of("saturation_16384").iter().enumerate();
        Spread::of(pairs.filter_map(|(at, run)| {
            let best = per_s(large, at).max(per_s(small, at));
            (best > 0.0).then(|| run["per_s"] / best)
        }))
    };
    let with = |spread: Spread, bound: &str, target: f64| {
        let reached = if bound == "target_min" { spread.median >= target } else { spread.median <= target };
        json!({"found": spread, bound: target, "reached": judged(spread, reached)})
    };
    json!({
        "rate_to_corosync": with(best_corosync, "target_min", 5.0),
        "p50_to_corosync_at_1000":
            with(ratio(("light_1000", "latency_p50_us"), (corosync, "light_1000", "p50_us")), "target_max", 1.0),
        "cpu_to_corosync_at_1000":
            with(ratio(("light_1000", "cpu_us"), (corosync, "light_1000", "cpu_us")), "target_max", 1.0 / 3.0),
        "rate_to_redis_incr_pipelined":
            with(ratio(("saturation_16384", "per_s"), (redis, "incr_pipelined_16", "per_s")), "target_min", 0.8),
        "cpu_to_redis_script_pipelined":
            with(ratio(("saturation_16384", "cpu_us"), (redis, "script_pipelined_16", "cpu_us")), "target_max", 1.0),
    })
}
