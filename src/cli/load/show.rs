//! What `ordain load` shows: progress while it runs, then a table for people or JSON for programs.
//!
//! **Not here**: what the figures mean ([`crate::client::stats`]).

use std::fmt::Write as _;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use super::Outcome;
use crate::client::load::Progress;
use crate::client::stats::{Report, micros};
use crate::protocol::Refusal;

/// Progress on a terminal; silent elsewhere.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Default for Bar {
    fn default() -> Self {
        Self::new()
    }
}

impl Bar {
    /// A bar on stderr.
    #[must_use]
    pub fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{bar:10} {msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Shows how it goes.
    pub fn show(&self, progress: &Progress) {
        if self.0.is_hidden() {
            return;
        }
        self.0.set_length(progress.planned.get());
        self.0.set_position(progress.elapsed.get().min(progress.planned.get()));
        self.0.set_message(message(progress));
    }

    /// Takes it off the screen.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}

/// At most 68 characters, so that bar and text fit a terminal of 80.
fn message(progress: &Progress) -> String {
    let mut text = format!(
        "{:.1} s, {:.0}/s, {} ordered, {} in flight, p99 {:.0} us",
        crate::client::stats::seconds(progress.elapsed),
        progress.rate,
        progress.ordered,
        progress.in_flight,
        micros(progress.latency_p99.get())
    );
    text.truncate(MESSAGE_CHARS_MAX);
    text
}

/// Longest text beside a bar of 10 characters and a space.
const MESSAGE_CHARS_MAX: usize = 68;

/// One step of a search.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// Requests a second offered.
    pub rate: f64,
    /// Requests a second ordered.
    pub ordered_per_s: f64,
    /// 99 % point of the latency.
    pub p99_us: f64,
    /// Whether it kept the target, and nothing was refused.
    pub passed: bool,
    /// Why it did not pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<String>,
}

impl Step {
    pub(super) fn of(rate: f64, report: &Report, missed: Option<String>) -> Self {
        let (ordered_per_s, p99_us) = (report.ordered_per_s, report.latency_us.p99);
        Self { rate: rate.round(), ordered_per_s, p99_us, passed: missed.is_none(), missed }
    }
}

#[derive(Serialize)]
struct Json<'a> {
    #[serde(flatten)]
    report: &'a Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    best_rate: Option<f64>,
    #[serde(skip_serializing_if = "<[Step]>::is_empty")]
    steps: &'a [Step],
    interrupted: bool,
}

/// The outcome, as JSON or as a table.
pub(super) fn outcome(outcome: &Outcome, interrupted: bool, json: bool) -> String {
    if json {
        let best_rate = outcome.best.map(f64::round);
        let json = Json { report: &outcome.report, best_rate, steps: &outcome.steps, interrupted };
        let text = serde_json::to_string(&json).expect("a report has string keys only");
        return text + "\n";
    }
    let mut text = String::new();
    for step in &outcome.steps {
        let verdict = step.missed.as_ref().map_or_else(|| "held".to_owned(), |why| format!("missed: {why}"));
        line(
            &mut text,
            format_args!(
                "step          {:>10.0}/s offered {:>10.0}/s ordered   p99 {:>10.1} us   {verdict}",
                step.rate, step.ordered_per_s, step.p99_us
            ),
        );
    }
    if !outcome.steps.is_empty() {
        match outcome.best {
            Some(best) => line(&mut text, format_args!("best step     {best:>10.0}/s")),
            None => line(&mut text, format_args!("best step           none: no rate kept the target; the last step:")),
        }
    }
    text + &table(&outcome.report)
}

/// A report for people: counts, then latencies in microseconds.
#[must_use]
pub fn table(report: &Report) -> String {
    let mut text = String::new();
    let refused: u64 = report.refused.values().sum();
    line(
        &mut text,
        format_args!(
            "requests      {:>10} offered, {} ordered, {refused} refused, {} unanswered in {:.3} s",
            report.offered, report.ordered, report.unanswered, report.seconds
        ),
    );
    for (reason, count) in &report.refused {
        line(&mut text, format_args!("  refused     {count:>10} {reason}"));
    }
    line(&mut text, format_args!("throughput    {:>10.0} ordered/s", report.ordered_per_s));
    line(
        &mut text,
        format_args!(
            "{:<13} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
            "us", "p50", "p90", "p99", "p99.9", "p99.99", "max"
        ),
    );
    let (latency, service, lag) = (&report.latency_us, &report.service_us, &report.send_lag_us);
    line(
        &mut text,
        format_args!(
            "latency       {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>10.1}",
            latency.p50, latency.p90, latency.p99, latency.p999, latency.p9999, latency.max
        ),
    );
    line(
        &mut text,
        format_args!(
            "service       {:>10.1} {:>10} {:>10.1} {:>10.1} {:>10} {:>10.1}",
            service.p50, "", service.p99, service.p999, "", service.max
        ),
    );
    line(
        &mut text,
        format_args!(
            "send lag      {:>10.1} {:>10} {:>10.1} {:>10} {:>10} {:>10.1}",
            lag.p50, "", lag.p99, "", "", lag.max
        ),
    );
    let gaps = &report.longest_gap_ms;
    let by_server: Vec<String> = gaps.by_server.iter().map(|(id, gap)| format!("{id}: {gap:.3}")).collect();
    line(&mut text, format_args!("longest gap   {:>10.3} ms (by server {})", gaps.overall, by_server.join(", ")));
    if !report.cpu_seconds.is_empty() {
        let used: Vec<String> = report.cpu_seconds.iter().map(|(name, used)| format!("{name} {used:.2}")).collect();
        line(&mut text, format_args!("processor           {} s", used.join(", ")));
    }
    if report.duplicates + report.contradictions + report.provisional > 0 {
        line(
            &mut text,
            format_args!(
                "numbers       {:>10} duplicates, {} contradictions, {} provisional, {} corrected",
                report.duplicates, report.contradictions, report.provisional, report.corrected
            ),
        );
    }
    text
}

/// What a reader of the figures must know.
#[must_use]
pub fn warnings(report: &Report) -> Vec<String> {
    let mut warnings: Vec<String> = refusals(report).into_iter().collect();
    let (lag, latency) = (report.send_lag_us.p99, report.latency_us.p99);
    if report.ordered > 0 && lag > 200.0 && lag > latency / 2.0 {
        warnings.push(format!(
            "the generator itself was late (p99 {lag:.0} us of {latency:.0} us latency): the figures are of the load as \
             offered, not of the cluster alone; lower the rate or give it a processor of its own"
        ));
    }
    if report.duplicates + report.contradictions > 0 {
        warnings.push(format!(
            "{} requests were told two numbers, {} numbers were told of two requests: the order is broken",
            report.duplicates, report.contradictions
        ));
    }
    warnings
}

/// How much was refused, by reason; `None` if nothing was.
pub(super) fn refused_counts(report: &Report) -> Option<String> {
    let refused: u64 = report.refused.values().sum();
    let reasons: Vec<String> = report.refused.iter().map(|(name, count)| format!("{name} {count}")).collect();
    (refused > 0).then(|| format!("{refused} of {} requests refused: {}", report.offered, reasons.join(", ")))
}

/// What was refused, and what to do about each reason; `None` if nothing was.
#[must_use]
pub fn refusals(report: &Report) -> Option<String> {
    let refused: u64 = report.refused.values().sum();
    let named = |(name, count): (&&'static str, &u64)| match mend(name) {
        Some(mend) => format!("{name} {count} ({mend})"),
        None => format!("{name} {count}"),
    };
    let reasons: Vec<String> = report.refused.iter().map(named).collect();
    (refused > 0).then(|| format!("{refused} of {} requests were refused: {}", report.offered, reasons.join("; ")))
}

/// What whoever loads, or runs the cluster, does about a refusal.
fn mend(refusal: &str) -> Option<&'static str> {
    let refusal = Refusal::ALL.into_iter().find(|known| known.name() == refusal)?;
    Some(match refusal {
        Refusal::Overloaded => "lower --rate",
        Refusal::NoQuorum => "start the servers that are down",
        Refusal::NotMember => "the servers asked are no members: their logs say why",
        Refusal::WindowExceeded => "lower --rate, or give more --clients",
        Refusal::SessionUnknown => "sessions had expired: run again",
        Refusal::SessionsFull => SESSIONS_FULL,
        Refusal::ParticipantsFull => "fewer --participant-space, or raise ledger.participants",
        Refusal::WrongInstance => "the cluster began a new order: run again",
        Refusal::Version => "use the client of the servers' release",
        Refusal::RequestDiffers | Refusal::TxDiffers | Refusal::Malformed => return None,
    })
}

/// What to do when there is no room for sessions.
const SESSIONS_FULL: &str = "fewer --clients than ledger.sessions_per_key, or wait ledger.session_ttl, 60 s if not set, \
                             for sessions of earlier runs to end";

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    writeln!(text, "{arguments}").expect("a String takes all");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_fits_a_terminal_of_80_columns() {
        use crate::protocol::Span;
        let progress = Progress {
            elapsed: Span::secs(86_400),
            planned: Span::secs(86_400),
            offered: u64::MAX,
            ordered: u64::MAX,
            in_flight: 65_536,
            latency_p99: Span::secs(3_600),
            rate: 100e6,
        };
        assert!(10 + 1 + message(&progress).len() <= 79, "{}", message(&progress));
    }

    #[test]
    fn every_refusal_is_named_with_its_mend() {
        let refused = Refusal::ALL.into_iter().map(|refusal| (refusal.name(), 2)).collect();
        let report = Report { offered: 100, refused, ..Report::default() };
        let text = refusals(&report).unwrap();
        assert!(text.starts_with(&format!("{} of 100 requests were refused", 2 * Refusal::ALL.len())), "{text}");
        assert!(text.contains("sessions_full 2 (fewer --clients than ledger.sessions_per_key, or wait"), "{text}");
        assert!(!text.contains('\n') && !text.contains("  "), "{text}");
        assert_eq!(refusals(&Report::default()), None);
    }
}
