//! `floor`: pair and commit at 1,000 a second with intended starts, and an echo server at full rate.
//!
//! **Not here**: how ([`crate::support::floor`]).

use ordain::protocol::Span;
use serde_json::{Map, Value, json};

use crate::support::figures::{Figures, spreads};
use crate::support::floor::{BYTES, Floor};
use crate::support::{Args, Failure, Found};

/// Requests in flight of the echo, the best of which counts.
pub(in crate::support) const WINDOWS: [usize; 2] = [128, 512];

pub(in crate::support) fn run(args: &Args) -> Result<Found, Failure> {
    let rounds = args.rounds(3, 7);
    let duration = Span::millis(if args.quick { 1_500 } else { 5_000 });
    let (mut pair, mut commit) = (Floor::pair()?, Floor::commit(3)?);
    let (mut pairs, mut commits): (Vec<Figures>, Vec<Figures>) = Default::default();
    let mut echoes = WINDOWS.map(|window| (window, Vec::new()));
    for _ in 0..rounds {
        pairs.push(pair.open(1_000.0, duration)?);
        commits.push(commit.open(1_000.0, duration)?);
        for (window, runs) in &mut echoes {
            runs.push(pair.closed(*window, Span::new(duration.get() / 2))?);
        }
    }
    let echoes = echoes.iter().map(|(window, runs)| (format!("window_{window}"), spreads(runs)));
    let floor = json!({
        "pair": spreads(&pairs),
        "commit": spreads(&commits),
        "echo": Value::Object(echoes.collect()),
    });
    let figures =
        Map::from_iter([("datagram_bytes".to_owned(), json!(BYTES)), ("rate_per_s".to_owned(), json!(1_000))]);
    Ok(Found { engine: commit.engine(), waiting: "park", floor, figures })
}
