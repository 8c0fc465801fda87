//! `ordain verify`: do these traces, taken together, keep the contract?
//!
//! **Not here**: what is checked and why ([`crate::client::verify`]).

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use super::target::number;
use super::{Error, Status, out};
use crate::client::trace;
use crate::client::verify::{Kind, Options, Report, SHOWN_MAX, Trace, check};
use crate::protocol::OrderNo;

const EXAMPLES: &str = "Examples:
  ordain verify run.trace
  ordain verify --from 1 first.trace second.trace

All traces of one time belong together: a number that only another trace has is missing here. Numbers before the \
smallest one seen are taken for earlier runs, unless --from says where the traces begin. Exit status 1: contradictions, or nothing that was ordered.";

/// What `ordain verify` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Traces written by `ordain load --trace`, `ordain demo --trace` or `ordain order --json`
    #[arg(value_name = "TRACE", required = true)]
    traces: Vec<PathBuf>,
    /// The order number the traces begin at
    #[arg(long, value_name = "ORDER", value_parser = |text: &str| number(text, 1..=u64::MAX))]
    from: Option<u64>,
    /// The traces were taken on different hosts: compare times only within each
    #[arg(long)]
    clock_per_trace: bool,
    /// Records the servers retain (`ledger.retain_entries`): histories may end where the next step is older
    #[arg(long, value_name = "N", value_parser = |text: &str| number(text, 1..=u64::MAX))]
    retained: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Reads the traces, judges them, prints what contradicts.
///
/// # Errors
/// If a trace cannot be read, or stdout takes no more.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let whole: Vec<PathBuf> = args.traces.iter().filter_map(|path| path.canonicalize().ok()).collect();
    if let Some(at) = (1..whole.len()).find(|at| whole[..*at].contains(&whole[*at])) {
        let path = whole[at].display();
        return Err(Error::usage(format!("{path}: given twice; each trace counts once")));
    }
    let mut traces = Vec::new();
    for path in &args.traces {
        traces.push(Trace { name: path.display().to_string(), lines: trace::read(path)? });
    }
    let options =
        Options { from: args.from.map(OrderNo::new), clock_per_trace: args.clock_per_trace, retained: args.retained };
    let report = check(&traces, options);
    if args.json {
        out::line(json(&report))?;
    } else {
        out::text(text(&report))?;
    }
    Ok(if is_proved(&report) { Status::Done } else { Status::No }.into())
}

/// A trace that cannot be read is a mistake in usage, or forbidden.
impl From<trace::ReadError> for Error {
    fn from(error: trace::ReadError) -> Self {
        match &error {
            trace::ReadError::File { path, source } => Self::file("TRACE", path, source),
            _ => Self::usage(error),
        }
    }
}

/// An order of nothing proves nothing.
fn is_proved(report: &Report) -> bool {
    report.verified() && report.ordered > 0
}

#[derive(Serialize)]
struct Json<'a> {
    schema: u32,
    verified: bool,
    #[serde(flatten)]
    report: &'a Report,
}

fn json(report: &Report) -> String {
    let json = Json { schema: 1, verified: is_proved(report), report };
    serde_json::to_string(&json).expect("a report has string keys only")
}

/// The report for people: what was there, then each contradiction with its lines, then the verdict.
#[must_use]
pub fn text(report: &Report) -> String {
    let refused: u64 = report.refused.values().sum();
    let mut text = format!(
        "requests      {:>12}: {} ordered, {} unanswered, {refused} refused{}\n",
        report.lines,
        report.ordered,
        report.unanswered,
        if report.provisional > 0 { format!(", {} provisional", report.provisional) } else { String::new() },
    );
    if report.ordered > 0 {
        let before = report.order_first.saturating_sub(1);
        text += &format!("numbers       {:>12}..{}", report.order_first, report.order_last);
        text += &match report.holes {
            0 => ", dense".to_owned(),
            holes => format!(", {holes} missing"),
        };
        text += &if before > 0 { format!("; the {before} before are of earlier runs\n") } else { "\n".to_owned() };
    }
    text +=
        &format!("participants  {:>12}: {} history entries compared\n", report.participants, report.history_entries);
    for contradiction in &report.contradictions {
        text += &format!("{}: {}\n", word(contradiction.kind), contradiction.what);
        for line in &contradiction.lines {
            text += &format!("    {line}\n");
        }
    }
    for (kind, count) in report.contradiction_counts.iter().filter(|(_, count)| **count > SHOWN_MAX) {
        text += &format!("{}: {} more\n", word(*kind), count - SHOWN_MAX);
    }
    text + &verdict(report)
}

fn verdict(report: &Report) -> String {
    match report.contradictions_total() {
        0 if report.ordered == 0 => "nothing to verify: no request was ordered\n".to_owned(),
        0 => "order verified\n".to_owned(),
        1 => "order contradicted once\n".to_owned(),
        total => format!("order contradicted {total} times\n"),
    }
}

/// The kind as scripts know it, in JSON too.
fn word(kind: Kind) -> String {
    serde_json::to_value(kind).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}
