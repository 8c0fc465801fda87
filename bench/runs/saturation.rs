//! `saturation`: what a cluster carries at most, by window, packing and number of servers, and what an entry costs there
//! and below.
//!
//! **Why each point has a cluster of its own.** Its servers' counters are then of that point alone. Points are run in
//! rounds, one after the other, so that no point has the quiet minutes for itself.
//! **Limits**: generator and servers share this host's processors; a closed window, so latencies there are service times.
//! **Not here**: how a window is kept full ([`crate::support::load`]).

use ordain::engine::clock;
use ordain::protocol::Span;
use serde_json::{Map, Value, json};

use super::floor::WINDOWS;
use crate::support::cluster::Cluster;
use crate::support::figures::{Figures, Spread, judged, ratios, spread, spreads};
use crate::support::floor::Floor;
use crate::support::load::{self, PLAIN, Shape};
use crate::support::{Args, Failure, Found};

/// How much is offered.
#[derive(Clone, Copy, Debug)]
enum Offer {
    /// So many sessions of 64 requests, always full.
    Closed(usize),
    /// So many a second.
    Rate(f64),
}

/// One point: its name, the cluster, what is asked, how much of it.
struct Point {
    name: String,
    servers: u8,
    shape: Shape,
    offer: Offer,
    runs: Vec<Figures>,
}

impl Point {
    fn new(name: impl Into<String>, servers: u8, shape: Shape, offer: Offer) -> Self {
        Self { name: name.into(), servers, shape, offer, runs: Vec::new() }
    }

    fn run(&mut self, duration: Span, engine: &mut String) -> Result<(), Failure> {
        let cluster = Cluster::start(self.servers, &[("engine.waiting", "park")])?;
        *engine = cluster.engine();
        let mut figures = match self.offer {
            Offer::Closed(sessions) => load::closed(&cluster, Shape { sessions, ..self.shape }, duration)?,
            Offer::Rate(rate) => load::open(&cluster, self.shape, rate, duration)?,
        };
        figures.extend(load::per_entry(&cluster.end()?, self.servers));
        self.runs.push(figures);
        Ok(())
    }

    fn median(&self, name: &str) -> f64 {
        spread(&self.runs, name).median
    }

    fn json(&self) -> Value {
        json!({
            "servers": self.servers,
            "participants": self.shape.participants,
            "history": self.shape.history,
            "per_datagram": if self.shape.per_datagram == usize::MAX { json!("auto") } else { json!(self.shape.per_datagram) },
            "window": if let Offer::Closed(sessions) = self.offer { json!(sessions * 64) } else { Value::Null },
            "rate_per_s": if let Offer::Rate(rate) = self.offer { json!(rate) } else { Value::Null },
            "figures": spreads(&self.runs),
        })
    }
}

const THREE_FOUR: Shape = Shape { participants: 3, history: 4, ..PLAIN };
/// Sessions of the windows that vary nothing else.
const WINDOW: usize = 256;
/// A quick run begins no point later than this: on a busy host some are left out, and named.
const QUICK_STARTS: Span = Span::secs(27);
/// The rate at which system calls are counted.
const COUNTED_RATE: f64 = 100_000.0;

fn points(args: &Args) -> Vec<Point> {
    let closed = |name: String, servers, shape, sessions| Point::new(name, servers, shape, Offer::Closed(sessions));
    let windows: &[usize] = if args.quick { &[32, 256, 768] } else { &[8, 32, 128, 256, 512, 1_024] };
    let packings: &[usize] = if args.quick { &[1, 4] } else { &[1, 2, 4, 8, 16, 24] };
    let mut points: Vec<Point> =
        windows.iter().map(|sessions| closed(format!("window_{}", sessions * 64), 3, PLAIN, *sessions)).collect();
    points.push(closed("three_four".to_owned(), 3, THREE_FOUR, WINDOW));
    for per_datagram in packings {
        let shape = Shape { per_datagram: *per_datagram, ..PLAIN };
        points.push(closed(format!("packing_{per_datagram}"), 3, shape, WINDOW));
    }
    points.push(Point::new("rate_100000", 3, PLAIN, Offer::Rate(COUNTED_RATE)));
    points.extend([5, 7].map(|servers| closed(format!("servers_{servers}"), servers, PLAIN, WINDOW)));
    points
}

pub(in crate::support) fn run(args: &Args) -> Result<Found, Failure> {
    let rounds = args.rounds(1, 7);
    let duration = Span::millis(if args.quick { 700 } else { 3_000 });
    let mut engine = String::new();
    let mut echo = Floor::pair()?;
    let mut echoes: Vec<Figures> = Vec::new();
    let mut singles: Vec<(Figures, Figures)> = Vec::new();
    let mut points = points(args);
    let no_more = clock::monotonic().plus(if args.quick { QUICK_STARTS } else { Span::secs(86_400) });
    for _ in 0..rounds {
        for point in &mut points {
            if clock::monotonic() >= no_more {
                break;
            }
            if point.name == "packing_1" {
                // One request a datagram is held against the echo run just before it.
                let best = best_echo(&mut echo, duration)?;
                echoes.push(best.clone());
                point.run(duration, &mut engine)?;
                let mut run = point.runs.last().cloned().unwrap_or_default();
                run.insert("per_s", run["ordered_per_s"]);
                singles.push((best, run));
            } else {
                point.run(duration, &mut engine)?;
            }
        }
    }
    let best = best(&points);
    let peak = best.map_or(0.0, |best| best.median("ordered_per_s"));
    let shares: &[f64] = if args.quick { &[0.1, 0.5] } else { &[0.1, 0.25, 0.5, 0.75] };
    let mut below: Vec<Point> = shares
        .iter()
        .map(|share| Point::new(format!("at_{share}_of_peak"), 3, PLAIN, Offer::Rate((peak * share).max(1_000.0))))
        .collect();
    for _ in 0..rounds.min(3) {
        for point in &mut below {
            if clock::monotonic() >= no_more {
                break;
            }
            point.run(duration, &mut engine)?;
        }
    }
    let mut figures = summary(&points, &below, &singles);
    let skipped = points.iter().chain(&below).filter(|point| point.runs.is_empty()).map(|point| point.name.clone());
    figures.insert("skipped_for_time".to_owned(), skipped.collect());
    let named = points
        .iter()
        .chain(&below)
        .filter(|point| !point.runs.is_empty())
        .map(|point| (point.name.clone(), point.json()));
    figures.insert("points".to_owned(), Value::Object(named.collect()));
    Ok(Found { engine, waiting: "park", floor: json!({"echo": spreads(&echoes)}), figures })
}

fn best_echo(echo: &mut Floor, duration: Span) -> Result<Figures, Failure> {
    let mut best = Figures::new();
    for window in WINDOWS {
        let run = echo.closed(window, duration)?;
        if best.get("per_s").is_none_or(|held| run["per_s"] > *held) {
            best = run;
        }
    }
    Ok(best)
}

/// Of the points that differ in their window alone, the one with the highest rate.
fn best(points: &[Point]) -> Option<&Point> {
    let windows = points.iter().filter(|point| point.name.starts_with("window_"));
    windows.max_by(|a, b| a.median("ordered_per_s").total_cmp(&b.median("ordered_per_s")))
}

fn named<'a>(points: &'a [Point], name: &str) -> Option<&'a Point> {
    points.iter().find(|point| point.name == name)
}

/// The figures that have a target, beside it.
fn summary(points: &[Point], below: &[Point], singles: &[(Figures, Figures)]) -> Map<String, Value> {
    let least = |point: Option<&Point>, name: &str, target: f64| {
        let spread = point.map_or_else(|| Spread::of([]), |point| spread(&point.runs, name));
        json!({"found": spread, "target_min": target, "reached": judged(spread, spread.median >= target)})
    };
    let best = best(points);
    let counted = named(points, "rate_100000");
    let calls = counted.map_or_else(|| Spread::of([]), |point| spread(&point.runs, "server_syscalls"));
    let single = ratios(singles, "per_s");
    let cost = |point: &Point| (point.name.clone(), json!(spread(&point.runs, "cpu_us")));
    let cost_by_rate: Map<String, Value> = below
        .iter()
        .filter(|point| !point.runs.is_empty())
        .map(cost)
        .chain(best.map(|best| ("at_peak".to_owned(), cost(best).1)))
        .collect();
    let by_servers = |n: u8| {
        let name = if n == 3 { format!("window_{}", WINDOW * 64) } else { format!("servers_{n}") };
        named(points, &name).filter(|point| !point.runs.is_empty()).map(|point| {
            (
                n.to_string(),
                json!({"ordered_per_s": spread(&point.runs, "ordered_per_s"), "cpu_us": spread(&point.runs, "cpu_us")}),
            )
        })
    };
    Map::from_iter([
        (
            "best".to_owned(),
            json!(best.map(|best| json!({
                "point": best.name,
                "ordered_per_s": spread(&best.runs, "ordered_per_s"),
                "p50_us": spread(&best.runs, "service_p50_us"),
                "cpu_us": spread(&best.runs, "cpu_us"),
                "peer_datagrams": spread(&best.runs, "peer_datagrams"),
            }))),
        ),
        ("ordered_per_s".to_owned(), least(best, "ordered_per_s", 600_000.0)),
        ("three_participants_history_four".to_owned(), least(named(points, "three_four"), "ordered_per_s", 350_000.0)),
        ("acks_riding".to_owned(), least(best, "acks_riding", 0.95)),
        (
            "server_syscalls_at_100000".to_owned(),
            json!({"found": calls, "target_max": 0.2, "reached": judged(calls, calls.median < 0.2)}),
        ),
        (
            "one_a_datagram_to_echo".to_owned(),
            json!({"found": single, "target_min": 0.6, "reached": judged(single, single.median >= 0.6)}),
        ),
        ("cpu_us_by_rate".to_owned(), Value::Object(cost_by_rate)),
        ("by_servers".to_owned(), Value::Object([3, 5, 7].into_iter().filter_map(by_servers).collect())),
    ])
}
