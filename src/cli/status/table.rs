//! `ordain status` for people.
//!
//! **Not here**: what the fields mean ([`super::report`]).
use std::fmt::Write as _;

use super::report::{Latency, Report};

/// A server's page.
pub(super) fn of(report: &Report) -> String {
    let mut page = Page(String::new());
    head(report, &mut page);
    rates(report, &mut page);
    stages(report, &mut page);
    peers(report, &mut page);
    queues(report, &mut page);
    counts(report, &mut page);
    faults(report, &mut page);
    page.0
}

struct Page(String);

impl Page {
    fn line(&mut self, text: impl std::fmt::Display) {
        let written = writeln!(self.0, "{text}");
        debug_assert!(written.is_ok(), "text takes text");
    }
}

fn or_dash<T: std::fmt::Display>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A length of time, short.
fn long(ms: f64) -> String {
    if ms < 1e4 {
        format!("{ms:.0} ms")
    } else if ms < 6e5 {
        format!("{:.1} s", ms / 1e3)
    } else if ms < 864e5 {
        format!("{:.1} h", ms / 36e5)
    } else {
        format!("{:.1} days", ms / 864e5)
    }
}

fn head(report: &Report, page: &mut Page) {
    let (id, servers) = (or_dash(report.id), or_dash(report.servers));
    let life = match (report.running, report.ended) {
        (true, _) => "running",
        (false, Some("drained")) => "ended in good order",
        (false, Some("cut")) => "ended with requests unanswered",
        (false, Some(_)) => "ended by a defect",
        (false, None) => "dead: killed, or its host was",
    };
    let state = report.state.unwrap_or("unknown");
    let state = if report.running { state.to_owned() } else { format!("was {state}") };
    page.line(format_args!("server {id} of {servers}: {life}; {state}"));
    let written = report.written_ago_ms.map_or_else(|| "never".to_owned(), |ms| format!("{} ago", long(ms)));
    page.line(format_args!(
        "  process    {}, version {}, up {}, last wrote {written}",
        report.pid,
        or_dash(report.version.as_ref()),
        long(report.uptime_ms)
    ));
    page.line(format_args!(
        "  instance   {}, epoch {}, ordered {}, safe to stop: {}",
        or_dash(report.instance.as_ref()),
        or_dash(report.epoch),
        or_dash(report.n_ordered),
        report.safe_to_stop.map_or("-", |safe| if safe { "yes" } else { "no" })
    ));
    page.line(format_args!("  engine     {}; {}", or_dash(report.engine.as_ref()), or_dash(report.waiting.as_ref())));
}

fn rates(report: &Report, page: &mut Page) {
    let rates: Vec<String> = report.rates.iter().map(|(name, rate)| format!("{} {rate}", bare(name))).collect();
    page.line(format_args!("  a second   {}", rates.join(", ")));
}

fn bare(name: &str) -> &str {
    name.strip_suffix("_per_s").unwrap_or(name)
}

fn stages(report: &Report, page: &mut Page) {
    page.line("  us                    count        p50        p99      p99.9     p99.99        max");
    let mut row = |name: &str, times: Option<&Latency>| {
        let Some(Latency { count, p50, p99, p999, p9999, max }) = times else { return };
        page.line(format_args!(
            "    {name:<15} {count:>10} {p50:>10.1} {p99:>10.1} {p999:>10.1} {p9999:>10.1} {max:>10.1}"
        ));
    };
    for stage in ["ring_wait", "order", "answer_wait"] {
        row(stage, report.stages_us.get(stage).and_then(Option::as_ref));
    }
    for core in &report.cores {
        row(&format!("turn {}", core.core), core.turn_us.as_ref());
    }
    for core in &report.cores {
        page.line(format_args!(
            "  loop       {}: {} turns: {} idle, {} busy ({}), {} of them pressed; {} sleeps",
            core.core,
            core.turns,
            core.idle,
            core.busy,
            long(core.busy_ms),
            core.pressed,
            core.sleeps
        ));
    }
}

fn peers(report: &Report, page: &mut Page) {
    if report.peers.is_empty() {
        return;
    }
    page.line("  peer       heard before      delay us p50     p99.99      frames held");
    for peer in &report.peers {
        let delay = peer.delay_us.as_ref();
        let frames = report.streams.iter().find(|stream| stream.server == peer.id).map(|stream| stream.frames);
        page.line(format_args!(
            "    {:<9} {:>11} {:>17} {:>10} {:>16}",
            peer.id,
            peer.heard.map_or_else(|| "never".to_owned(), long),
            or_dash(delay.map(|delay| format!("{:.1}", delay.p50))),
            or_dash(delay.map(|delay| format!("{:.1}", delay.p9999))),
            or_dash(frames)
        ));
    }
}

fn queues(report: &Report, page: &mut Page) {
    page.line("  queue                      depth       most         of");
    for queue in &report.queues {
        let (depth, most, of) = (or_dash(queue.depth), or_dash(queue.high_water), or_dash(queue.capacity));
        page.line(format_args!("    {:<20} {depth:>10} {most:>10} {of:>10}", queue.name));
    }
}

fn counts(report: &Report, page: &mut Page) {
    let list = |counts: &std::collections::BTreeMap<String, u64>| {
        let words: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
        if words.is_empty() { "none".to_owned() } else { words.join(", ") }
    };
    page.line(format_args!("  refused    {}", list(&report.refused)));
    page.line(format_args!("  dropped    by the kernel {}; {}", or_dash(report.kernel_drops), list(&report.dropped)));
}

fn faults(report: &Report, page: &mut Page) {
    if let Some(last) = &report.last_words {
        page.line(format_args!("  panicked   {}", last.text));
    }
    for error in &report.errors {
        let ago = |unix_ms: u64| {
            let now = report.started_unix_ms + whole(report.uptime_ms);
            #[expect(clippy::cast_precision_loss, reason = "ages in milliseconds")]
            long(now.saturating_sub(unix_ms) as f64)
        };
        page.line(format_args!(
            "  error      {} times, first {} and last {} before now or its end: {}",
            error.count,
            ago(error.first_unix_ms),
            ago(error.last_unix_ms),
            error.text
        ));
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an uptime in milliseconds")]
fn whole(ms: f64) -> u64 {
    ms.max(0.0) as u64
}
