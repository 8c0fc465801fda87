//! `light`: 1,000 a second, pairs of floor and Ordain, one after the other, in changing order; then one request at a
//! time, to count datagrams.
//!
//! **Why both peers awaited in the floor.** The merge waits for every stream's promise, so nothing that orders so can be
//! below that. **Not here**: what the floor is ([`crate::support::floor`]).

use ordain::client::blocking::Client;
use ordain::client::seed;
use ordain::protocol::{NodeId, Span, TxId};
use serde_json::{Map, Value, json};

use crate::support::cluster::{Cluster, PATIENCE};
use crate::support::figures::{Figures, Spread, judged, ratios, round, spreads};
use crate::support::floor::Floor;
use crate::support::load::{self, PLAIN, Shape};
use crate::support::{Args, Failure, Found};

const RATE: f64 = 1_000.0;
const SERVERS: u8 = 3;
/// Requests asked one at a time.
const SINGLY: u64 = 2_000;
/// Datagrams among three servers that an entry may cost with one request in flight: a frame and two acknowledgements,
/// each to two others.
const DATAGRAMS_MAX: f64 = 6.0;
/// How much more is still taken for the same: headers of the servers' start are among those counted.
const SLACK: f64 = 1.02;

pub(in crate::support) fn run(args: &Args) -> Result<Found, Failure> {
    let rounds = args.rounds(3, 7);
    let duration = Span::millis(if args.quick { 2_000 } else { 6_000 });
    let mut floor = Floor::commit(u16::from(SERVERS))?;
    let mut pairs: Vec<(Figures, Figures)> = Vec::new();
    let mut engine = String::new();
    for round in 0..rounds {
        let pair = if round % 2 == 0 {
            let bare = floor.open(RATE, duration)?;
            (bare, ordain(duration, &mut engine)?)
        } else {
            let run = ordain(duration, &mut engine)?;
            (floor.open(RATE, duration)?, run)
        };
        pairs.push(pair);
    }
    let singly = singly()?;
    let (floors, runs): (Vec<Figures>, Vec<Figures>) = pairs.iter().cloned().unzip();
    let compared = [
        ("p50", "latency_p50_us", Some(1.25)),
        ("p90", "latency_p90_us", Some(2.0)),
        ("p99", "latency_p99_us", None),
        ("cpu", "cpu_us", Some(1.5)),
        ("longest_gap", "longest_gap_ms", None),
    ];
    let ratios: Map<String, Value> = compared
        .iter()
        .map(|(name, figure, target)| ((*name).to_owned(), against(ratios(&pairs, figure), *target)))
        .collect();
    let figures = Map::from_iter([
        ("rate_per_s".to_owned(), json!(RATE)),
        ("pairs".to_owned(), json!(pairs.len())),
        ("ordain".to_owned(), spreads(&runs)),
        ("ratio_to_floor".to_owned(), Value::Object(ratios)),
        ("one_in_flight".to_owned(), singly),
    ]);
    Ok(Found { engine, waiting: "park", floor: json!({"commit": spreads(&floors)}), figures })
}

/// A figure beside the most it may be.
fn against(spread: Spread, target: Option<f64>) -> Value {
    let mut value = json!(spread);
    if let (Some(object), Some(target)) = (value.as_object_mut(), target) {
        object.insert("target_max".to_owned(), json!(target));
        object.insert("reached".to_owned(), judged(spread, spread.median <= target));
    }
    value
}

fn ordain(duration: Span, engine: &mut String) -> Result<Figures, Failure> {
    let cluster = Cluster::start(SERVERS, &[("engine.waiting", "park")])?;
    *engine = cluster.engine();
    let mut figures = load::open(&cluster, Shape { sessions: 12, ..PLAIN }, RATE, duration)?;
    figures.extend(load::per_entry(&cluster.end()?, SERVERS));
    Ok(figures)
}

/// One request at a time: what an entry costs in datagrams when nothing shares them.
fn singly() -> Result<Value, Failure> {
    let cluster = Cluster::start(SERVERS, &[("engine.waiting", "park")])?;
    let mut client = Client::connect(cluster.addresses().clone(), PATIENCE)?;
    let run = u128::from(seed()) << 64;
    for number in 0..SINGLY {
        let participants = [NodeId::new(1), NodeId::new(2 + u32::try_from(number % 7)?)];
        client.order(TxId::new((run | u128::from(number)).to_be_bytes()), &participants, 1)?;
    }
    let figures = load::per_entry(&cluster.end()?, SERVERS);
    let (datagrams, alone) = (figures["peer_datagrams"], figures["headers_alone"]);
    // Each of the others owes an entry one acknowledgement. More would answer acknowledgements.
    let owed = f64::from(SERVERS) - 1.0;
    Ok(json!({
        "requests": SINGLY,
        "peer_datagrams_an_entry": round(datagrams),
        "allowed": DATAGRAMS_MAX,
        "slack": SLACK,
        "within": datagrams <= DATAGRAMS_MAX * SLACK,
        "headers_alone_an_entry": round(alone),
        "acknowledgement_acknowledged": alone > owed * SLACK,
        "beats": figures["beats"],
    }))
}
