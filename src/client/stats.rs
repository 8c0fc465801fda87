//! What a load run reports: counts, latencies, gaps, and whether any number was given twice.
//!
//! **Why from the intended start.** A stalled server also stalls a generator that waits for it; counted from the actual
//! send, the requests that were never sent in time would look fast. Latency counts from when the request was due,
//! service time from its first send, and the lag between the two is reported by itself.
//! **Why gaps by server.** A gap belongs to the server first asked: it is what clients of that server went through, even
//! if another one helped them in the end.
//! **Invariants.** Nothing here allocates after construction, except for reports.
//! **Limits.** Latencies up to an hour, to three digits. Numbers given twice are noticed within the last [`Numbers::SPAN`]
//! of them; a trace and `verify` see all.
//! **Not here**: rows of the interval log ([`super::interval_log`]), who sends what when (`cli::load`).

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::protocol::{LocalTime, OrderNo, Refusal, SERVERS_MAX, ServerId, Span};

/// Largest latency told apart: an hour.
pub const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// A histogram of nanoseconds: three digits, up to [`LATENCY_NS_MAX`].
///
/// # Panics
/// Never: the range is valid.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3).expect("1 to an hour in three digits is a valid range")
}

/// Times a request passed through.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// When it was due.
    pub due: LocalTime,
    /// When it was first sent.
    pub sent: LocalTime,
    /// When its answer came.
    pub done: LocalTime,
}

/// Records a run. Every request is told [`Recorder::due`], then [`Recorder::never_asked`], or [`Recorder::asked`]
/// and one of [`Recorder::ordered`], [`Recorder::refused`], [`Recorder::unanswered`], with [`Recorder::sent`] before.
#[derive(Debug)]
pub struct Recorder {
    latency: Histogram<u64>,
    service: Histogram<u64>,
    lag: Histogram<u64>,
    offered: u64,
    sent: u64,
    ordered: u64,
    unanswered: u64,
    refused: [u64; Refusal::ALL.len()],
    provisional: u64,
    corrected: u64,
    contradictions: u64,
    numbers: Numbers,
    gap: Gap,
    gap_by_server: [Gap; SERVERS_MAX],
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// Nothing recorded yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            latency: histogram(),
            service: histogram(),
            lag: histogram(),
            offered: 0,
            sent: 0,
            ordered: 0,
            unanswered: 0,
            refused: [0; Refusal::ALL.len()],
            provisional: 0,
            corrected: 0,
            contradictions: 0,
            numbers: Numbers::new(),
            gap: Gap::default(),
            gap_by_server: [Gap::default(); SERVERS_MAX],
        }
    }

    /// A request is due.
    pub fn due(&mut self, due: LocalTime) {
        self.offered += 1;
        self.gap.due(due);
    }

    /// It was handed over, to be asked of `server` first.
    pub fn asked(&mut self, server: ServerId, due: LocalTime) {
        self.gap_by_server[server.place()].due(due);
    }

    /// It was due for so long that nobody waits for it any more, and was never handed over.
    pub fn never_asked(&mut self, now: LocalTime) {
        self.unanswered += 1;
        self.gap.ended(now);
    }

    /// It was sent.
    pub fn sent(&mut self, due: LocalTime, sent: LocalTime) {
        self.sent += 1;
        self.lag.saturating_record(sent.since(due).get());
    }

    /// It was answered.
    pub fn ordered(&mut self, server: ServerId, times: Times) {
        self.ordered += 1;
        self.latency.saturating_record(times.done.since(times.due).get());
        self.service.saturating_record(times.done.since(times.sent).get());
        self.gap.answered(times.done);
        self.gap_by_server[server.place()].answered(times.done);
    }

    /// It will get no number.
    pub fn refused(&mut self, server: ServerId, refusal: Refusal, now: LocalTime) {
        self.refused[usize::from(refusal.code()) - 1] += 1;
        self.gap.ended(now);
        self.gap_by_server[server.place()].ended(now);
    }

    /// Nobody answered in time.
    pub fn unanswered(&mut self, server: ServerId, now: LocalTime) {
        self.unanswered += 1;
        self.gap.ended(now);
        self.gap_by_server[server.place()].ended(now);
    }

    /// A number was told, in the warm-up too: has another request got it?
    pub fn number(&mut self, order: OrderNo) {
        self.contradictions += u64::from(self.numbers.seen_before(order));
    }

    /// An answer came before it was certain.
    pub fn provisional(&mut self) {
        self.provisional += 1;
    }

    /// Such an answer turned out wrong.
    pub fn corrected(&mut self) {
        self.corrected += 1;
    }

    /// Requests ordered so far.
    #[must_use]
    pub const fn ordered_so_far(&self) -> u64 {
        self.ordered
    }

    /// Requests due so far.
    #[must_use]
    pub const fn offered_so_far(&self) -> u64 {
        self.offered
    }

    /// The 99 % point of latency so far.
    #[must_use]
    pub fn latency_p99(&self) -> Span {
        Span::new(self.latency.value_at_quantile(0.99))
    }

    /// The report of a run of `measured` length over `servers` servers, ending at `now`.
    #[must_use]
    pub fn report(&self, now: LocalTime, measured: Span, servers: usize) -> Report {
        let seconds = seconds(measured);
        let refused = Refusal::ALL.into_iter().zip(self.refused).filter(|(_, count)| *count > 0);
        let by_server = self.gap_by_server.iter().take(servers).enumerate();
        Report {
            schema: 1,
            offered: self.offered,
            sent: self.sent,
            ordered: self.ordered,
            refused: refused.map(|(refusal, count)| (refusal.name(), count)).collect(),
            unanswered: self.unanswered,
            provisional: self.provisional,
            corrected: self.corrected,
            ordered_per_s: if seconds > 0.0 { rounded(float(self.ordered) / seconds) } else { 0.0 },
            seconds,
            latency_us: Latency::of(&self.latency),
            service_us: Service::of(&self.service),
            send_lag_us: Lag::of(&self.lag),
            longest_gap_ms: LongestGap {
                overall: millis(self.gap.longest(now)),
                by_server: by_server.map(|(place, gap)| ((place + 1).to_string(), millis(gap.longest(now)))).collect(),
            },
            contradictions: self.contradictions,
            ..Report::default()
        }
    }
}

/// A load run, as `--json` prints it. Field names are those of the command's documentation.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Version of these names.
    pub schema: u32,
    /// Requests due in the measured time.
    pub offered: u64,
    /// Of them, sent.
    pub sent: u64,
    /// Of them, answered with a number.
    pub ordered: u64,
    /// Of them, refused for good, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Of them, without an answer in time.
    pub unanswered: u64,
    /// Answers given before they were certain.
    pub provisional: u64,
    /// Of them, wrong.
    pub corrected: u64,
    /// Ordered a second.
    pub ordered_per_s: f64,
    /// The measured time.
    pub seconds: f64,
    /// From the intended start to the answer.
    pub latency_us: Latency,
    /// From the first send to the answer.
    pub service_us: Service,
    /// From the intended start to the first send.
    pub send_lag_us: Lag,
    /// Longest time without an ordered answer while some were due.
    pub longest_gap_ms: LongestGap,
    /// Requests that were told two numbers.
    pub duplicates: u64,
    /// Numbers that were told of two requests.
    pub contradictions: u64,
    /// Sends beyond the first of a request.
    pub retries: u64,
    /// Datagrams the generator sent and received, and its system calls, warm-up included.
    pub datagrams: Datagrams,
    /// Processor time in the measured time, by process, where known.
    pub cpu_seconds: BTreeMap<String, f64>,
    /// How datagrams were moved.
    pub engine: String,
}

/// How the generator moved its requests.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Datagrams {
    /// Sent.
    pub sent: u64,
    /// Received.
    pub received: u64,
    /// System calls for both.
    pub syscalls: u64,
}

/// Points of the latency from the intended start, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "each field is the quantile its name says")]
pub struct Latency {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub p9999: f64,
    pub max: f64,
}

impl Latency {
    /// From a histogram of nanoseconds.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| micros(histogram.value_at_quantile(quantile));
        let (p50, p90, p99) = (at(0.5), at(0.9), at(0.99));
        Self { p50, p90, p99, p999: at(0.999), p9999: at(0.9999), max: micros(histogram.max()) }
    }
}

/// Points of the service time, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "each field is the quantile its name says")]
pub struct Service {
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Service {
    fn of(histogram: &Histogram<u64>) -> Self {
        let Latency { p50, p99, p999, max, .. } = Latency::of(histogram);
        Self { p50, p99, p999, max }
    }
}

/// Points of the generator's own lateness, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "each field is the quantile its name says")]
pub struct Lag {
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

impl Lag {
    fn of(histogram: &Histogram<u64>) -> Self {
        let Latency { p50, p99, max, .. } = Latency::of(histogram);
        Self { p50, p99, max }
    }
}

/// Longest gaps, in milliseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LongestGap {
    /// Of all requests.
    pub overall: f64,
    /// Of those asked of one server first, by its id.
    pub by_server: BTreeMap<String, f64>,
}

/// The longest time without an answer while some are due.
#[derive(Clone, Copy, Debug, Default)]
struct Gap {
    outstanding: u64,
    /// When the gap in the making began; means something while requests are outstanding.
    since: LocalTime,
    longest: Span,
}

impl Gap {
    fn due(&mut self, now: LocalTime) {
        if self.outstanding == 0 {
            self.since = now;
        }
        self.outstanding += 1;
    }

    fn answered(&mut self, now: LocalTime) {
        self.longest = self.longest.max(now.since(self.since));
        self.since = now;
        self.outstanding = self.outstanding.saturating_sub(1);
    }

    fn ended(&mut self, now: LocalTime) {
        self.longest = self.longest.max(now.since(self.since));
        self.outstanding = self.outstanding.saturating_sub(1);
    }

    fn longest(&self, now: LocalTime) -> Span {
        if self.outstanding == 0 { self.longest } else { self.longest.max(now.since(self.since)) }
    }
}

/// Which of the newest order numbers were seen: one bit each, in a ring.
#[derive(Debug)]
pub struct Numbers {
    bits: Box<[u64]>,
    /// The smallest number of the ring, a multiple of 64; zero until the first is seen.
    base: u64,
}

impl Numbers {
    /// How many numbers back one is remembered.
    pub const SPAN: u64 = 1 << 23;
    const WORDS: u64 = Self::SPAN / 64;

    fn new() -> Self {
        Self { bits: (0..Self::WORDS).map(|_| 0).collect(), base: 0 }
    }

    /// Marks the number; true if it was marked before. One older than the ring is taken for new.
    fn seen_before(&mut self, order: OrderNo) -> bool {
        let word = order.get() / 64;
        if self.base == 0 {
            // Room below the first one seen: answers come out of order.
            self.base = word.saturating_sub(Self::WORDS / 2).max(1) * 64;
        }
        let first = self.base / 64;
        if word < first && word > 0 {
            return false;
        }
        for fresh in first + Self::WORDS..=word {
            // What leaves the ring makes room for the new word.
            *self.slot(fresh) = 0;
            self.base += 64;
        }
        let bit = 1 << (order.get() % 64);
        let slot = self.slot(word);
        let seen = *slot & bit != 0;
        *slot |= bit;
        seen
    }

    fn slot(&mut self, word: u64) -> &mut u64 {
        let at = usize::try_from(word % Self::WORDS).expect("below the length of the ring");
        &mut self.bits[at]
    }
}

/// Microseconds, to a thousandth.
#[must_use]
pub fn micros(ns: u64) -> f64 {
    float(ns) / 1_000.0
}

/// Milliseconds, to a thousandth.
fn millis(span: Span) -> f64 {
    float(span.get() / 1_000) / 1_000.0
}

/// Seconds, to a millionth.
#[must_use]
pub fn seconds(span: Span) -> f64 {
    float(span.get() / 1_000) / 1_000_000.0
}

/// A duration for people, in the largest unit that has it whole: 5 s, 1500 ms, 3 ns.
#[must_use]
pub fn human(span: Span) -> String {
    let ns = span.get();
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    let whole = units.iter().find(|(unit, _)| ns > 0 && ns.is_multiple_of(*unit));
    whole.map_or_else(|| format!("{ns} ns"), |(unit, name)| format!("{} {name}", ns / unit))
}

fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[expect(clippy::cast_precision_loss, reason = "for reports: 53 bits of nanoseconds are a hundred days")]
fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> LocalTime {
        LocalTime::new(ms * 1_000_000)
    }

    fn server(id: usize) -> ServerId {
        ServerId::from_place(id - 1).unwrap()
    }

    #[test]
    fn stall_shows_in_latency_from_the_intended_start_and_not_in_service_time() {
        let mut recorder = Recorder::new();
        for ms in 0..100 {
            recorder.due(at(ms));
            recorder.asked(server(1), at(ms));
            // The generator was held up until 100 ms, then all went out and were answered at once.
            recorder.sent(at(ms), at(100));
            recorder.ordered(server(1), Times { due: at(ms), sent: at(100), done: at(101) });
        }
        let report = recorder.report(at(101), Span::millis(100), 3);
        assert!(report.latency_us.max >= 100_000.0 && report.latency_us.p50 > 45_000.0, "{report:?}");
        assert!(report.service_us.max < 1_100.0 && report.send_lag_us.max >= 99_000.0, "{report:?}");
    }

    #[test]
    fn gap_counts_only_while_something_is_due() {
        let mut recorder = Recorder::new();
        let mut answer = |id: usize, due, done| {
            recorder.due(at(due));
            recorder.asked(server(id), at(due));
            recorder.ordered(server(id), Times { due: at(due), sent: at(due), done: at(done) });
        };
        answer(1, 0, 5);
        answer(2, 1_000, 1_001);
        answer(1, 2_000, 2_030);
        recorder.due(at(3_000));
        recorder.asked(server(3), at(3_000));
        let gaps = recorder.report(at(3_020), Span::secs(3), 3).longest_gap_ms;
        assert!((gaps.overall - 30.0).abs() < 1e-6, "{gaps:?}");
        assert!((gaps.by_server["2"] - 1.0).abs() < 1e-6 && (gaps.by_server["3"] - 20.0).abs() < 1e-6, "{gaps:?}");
    }

    #[test]
    fn unanswered_request_makes_a_gap_that_ends_with_it() {
        let mut recorder = Recorder::new();
        recorder.due(at(0));
        recorder.asked(server(1), at(0));
        recorder.unanswered(server(1), at(50));
        let report = recorder.report(at(1_000), Span::secs(1), 1);
        assert!((report.longest_gap_ms.overall - 50.0).abs() < 1e-6);
        assert_eq!((report.unanswered, report.ordered), (1, 0));
    }

    #[test]
    fn number_told_twice_is_noticed_and_others_are_not() {
        let mut recorder = Recorder::new();
        let far = Numbers::SPAN * 3 / 2;
        for order in (1..2_000).chain(far..far + 2_000) {
            recorder.number(OrderNo::new(order));
        }
        assert_eq!(recorder.contradictions, 0);
        recorder.number(OrderNo::new(far + 5));
        assert_eq!(recorder.contradictions, 1);
    }

    #[test]
    fn refusals_are_counted_by_name() {
        let mut recorder = Recorder::new();
        for _ in 0..2 {
            recorder.due(at(0));
            recorder.asked(server(1), at(0));
            recorder.refused(server(1), Refusal::Version, at(1));
        }
        assert_eq!(recorder.report(at(1), Span::secs(1), 1).refused, BTreeMap::from([("version", 2)]));
    }
}
