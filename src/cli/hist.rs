//! `ordain hist`: interval logs, as `ordain load --hist` writes them and other HdrHistogram readers read them.
//!
//! **Not here**: the format ([`crate::client::interval_log`]).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use super::{Error, Status, out};
use crate::client::interval_log::{self, Row};
use crate::client::stats::{Latency, histogram, seconds};
use crate::protocol::Span;

const EXAMPLES: &str = "Examples:
  ordain hist show run.hlog
  ordain hist show --rows run.hlog";

/// What `ordain hist` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show the percentiles of each log
    #[command(after_help = EXAMPLES)]
    Show(Show),
}

#[derive(Debug, clap::Args)]
struct Show {
    /// Interval logs
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Show every row too
    #[arg(long)]
    rows: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Shows logs.
///
/// # Errors
/// If a log cannot be read, or stdout takes no more.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let Command::Show(show) = &args.command;
    let mut summaries = Vec::new();
    for path in &show.files {
        summaries.extend(Summary::of(&path.display().to_string(), &interval_log::read(path)?));
    }
    if show.json {
        out::line(json(summaries, show.rows))?;
    } else {
        out::text(table(&summaries, show.rows))?;
    }
    Ok(Status::Done.into())
}

/// A log that cannot be read is a mistake in usage, or forbidden.
impl From<interval_log::ReadError> for Error {
    fn from(error: interval_log::ReadError) -> Self {
        match &error {
            interval_log::ReadError::File { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
                Self::permission(error)
            }
            _ => Self::usage(error),
        }
    }
}

#[derive(Serialize)]
struct Json {
    schema: u32,
    logs: Vec<Summary>,
}

/// All rows of one tag of one file.
#[derive(Serialize)]
struct Summary {
    file: String,
    tag: Option<String>,
    intervals: u64,
    seconds: f64,
    count: u64,
    mean_us: f64,
    latency_us: Latency,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rows: Vec<RowSummary>,
}

#[derive(Serialize)]
struct RowSummary {
    start_s: f64,
    seconds: f64,
    count: u64,
    latency_us: Latency,
}

impl Summary {
    fn of(file: &str, rows: &[Row]) -> Vec<Self> {
        let mut by_tag: BTreeMap<Option<&str>, Vec<&Row>> = BTreeMap::new();
        for row in rows {
            by_tag.entry(row.tag.as_deref()).or_default().push(row);
        }
        by_tag.into_iter().map(|(tag, rows)| Self::of_one(file, tag, &rows)).collect()
    }

    fn of_one(file: &str, tag: Option<&str>, rows: &[&Row]) -> Self {
        let mut all = histogram();
        all.auto(true);
        for row in rows {
            all.add(&row.histogram).expect("a histogram that resizes takes any value");
        }
        let row_summary = |row: &&Row| RowSummary {
            start_s: seconds(row.start),
            seconds: seconds(row.length),
            count: row.histogram.len(),
            latency_us: Latency::of(&row.histogram),
        };
        Self {
            file: file.to_owned(),
            tag: tag.map(str::to_owned),
            intervals: u64::try_from(rows.len()).unwrap_or(u64::MAX),
            seconds: seconds(Span::new(rows.iter().map(|row| row.length.get()).fold(0, u64::saturating_add))),
            count: all.len(),
            mean_us: (all.mean() / 10.0).round() / 100.0,
            latency_us: Latency::of(&all),
            rows: rows.iter().map(row_summary).collect(),
        }
    }
}

fn json(mut logs: Vec<Summary>, with_rows: bool) -> String {
    if !with_rows {
        logs.iter_mut().for_each(|summary| summary.rows.clear());
    }
    serde_json::to_string(&Json { schema: 1, logs }).expect("a summary has string keys only")
}

/// Fixed columns of figures, in microseconds.
fn table(summaries: &[Summary], with_rows: bool) -> String {
    let mut text = format!(
        "{:>10} {:>9} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}  {}\n",
        "count", "seconds", "p50 us", "p90", "p99", "p99.9", "p99.99", "max", "log"
    );
    let line = |count: u64, seconds: f64, latency: &Latency, name: &str| {
        format!(
            "{count:>10} {seconds:>9.3} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1}  {name}\n",
            latency.p50, latency.p90, latency.p99, latency.p999, latency.p9999, latency.max
        )
    };
    for summary in summaries {
        let name = summary.tag.as_ref().map_or(summary.file.clone(), |tag| format!("{} {tag}", summary.file));
        text += &line(summary.count, summary.seconds, &summary.latency_us, &name);
        for row in summary.rows.iter().filter(|_| with_rows) {
            text += &line(row.count, row.seconds, &row.latency_us, &format!("  from {:.3} s", row.start_s));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_log_add_up() {
        let row = |start, value| {
            let mut recorded = histogram();
            recorded.record_n(value, 50).unwrap();
            Row { tag: None, start: Span::secs(start), length: Span::secs(1), histogram: recorded }
        };
        let summaries = Summary::of("x", &[row(0, 1_000_000), row(1, 3_000_000)]);
        assert_eq!(summaries.len(), 1);
        assert_eq!((summaries[0].count, summaries[0].intervals), (100, 2));
        let latency = summaries[0].latency_us;
        assert!((990.0..1_010.0).contains(&latency.p50) && (2_990.0..3_010.0).contains(&latency.p90), "{latency:?}");
        assert_eq!(table(&summaries, true).lines().count(), 4);
    }
}
