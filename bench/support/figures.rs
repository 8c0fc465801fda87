//! Medians with their range, and ratios of pairs.
//!
//! **Why ratios of pairs.** The machine drifts over minutes; the two halves of a pair were run one after the other.
//! **Not here**: what is measured.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

/// Figures of one run, by name.
pub(crate) type Figures = BTreeMap<&'static str, f64>;

/// The median of several runs, and between what they lay.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) runs: usize,
}

impl Spread {
    /// Of these; all zero if there are none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (sorted.first(), sorted.last()) else {
            return Self { median: 0.0, min: 0.0, max: 0.0, runs: 0 };
        };
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        Self { median: round(median), min: round(*min), max: round(*max), runs: sorted.len() }
    }
}

/// Whether a target was reached; null if it was not measured.
pub(crate) fn judged(found: Spread, reached: bool) -> Value {
    if found.runs == 0 { Value::Null } else { json!(reached) }
}

/// Four digits: more would be noise.
pub(crate) fn round(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let digits = value.abs().log10().floor().clamp(-9.0, 9.0);
    let unit = 10_f64.powf(digits - 3.0);
    // Through text, so that no digits of the binary fraction come back.
    let text = format!("{:.*}", if digits < 3.0 { 12 } else { 0 }, (value / unit).round() * unit);
    text.parse().unwrap_or(value)
}

/// Every figure of these runs with its spread.
pub(crate) fn spreads(runs: &[Figures]) -> Value {
    let mut names: Vec<&str> = runs.iter().flat_map(|run| run.keys().copied()).collect();
    names.sort_unstable();
    names.dedup();
    let spread = |name: &str| Spread::of(runs.iter().filter_map(|run| run.get(name).copied()));
    names.into_iter().map(|name| (name.to_owned(), json!(spread(name)))).collect::<serde_json::Map<_, _>>().into()
}

/// One figure of these runs.
pub(crate) fn spread(runs: &[Figures], name: &str) -> Spread {
    Spread::of(runs.iter().filter_map(|run| run.get(name).copied()))
}

/// How often the figure of the second is that of the first, pair by pair.
pub(crate) fn ratios(pairs: &[(Figures, Figures)], name: &str) -> Spread {
    let ratio = |(base, run): &(Figures, Figures)| Some(run.get(name)? / base.get(name).filter(|base| **base > 0.0)?);
    Spread::of(pairs.iter().filter_map(ratio))
}

/// A count as a figure: exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^53")]
pub(crate) fn count(value: u64) -> f64 {
    value as f64
}
