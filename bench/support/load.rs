//! Loading a cluster from this process, and what an entry cost.
//!
//! **Why in this process.** The generator is the library that `ordain load` is; its processor time is part of what an
//! entry costs, and is measured by itself.
//! **Why two phases.** A first short one warms sessions, tables and branch predictors, and tells the rate to plan with.
//! **Limits**: sessions carry 64 requests each, so windows are multiples of 64.

use std::collections::BTreeMap;

use ordain::client::load::{Arrival, Files, Generator, Phase, Plan, Skew};
use ordain::client::machine::Choice;
use ordain::client::seed;
use ordain::client::stats::Report;
use ordain::protocol::Span;

use super::Failure;
use super::cluster::{Cluster, Counts, PATIENCE};
use super::figures::{Figures, count};
use super::process::{Meter, resident_mb};

/// Requests of the first phase of a closed run.
const FIRST: f64 = 40_000.0;
/// How much faster than it is worked off a closed run's backlog is offered.
const OFFER: f64 = 3.0;

/// What is asked, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Participants of a transaction.
    pub(crate) participants: usize,
    /// History depth.
    pub(crate) history: u8,
    /// Requests in one datagram at most; `usize::MAX`: what fits.
    pub(crate) per_datagram: usize,
    /// Sessions of 64 requests.
    pub(crate) sessions: usize,
}

/// The usual shape: two participants, a history of one, packed.
pub(crate) const PLAIN: Shape = Shape { participants: 2, history: 1, per_datagram: usize::MAX, sessions: 256 };

/// Opens the sessions of a load.
pub(crate) fn generator(cluster: &Cluster, shape: Shape) -> Result<Generator, Failure> {
    let run = seed();
    let plan = Plan {
        cluster: cluster.addresses().clone(),
        sessions: shape.sessions,
        participants: (shape.participants, shape.participants),
        participant_space: 1_000,
        skew: Skew::Uniform,
        depth: shape.history,
        choice: Choice::Spread,
        per_datagram: shape.per_datagram,
        arrival: Arrival::Poisson,
        timeout: Span::secs(10),
        seed: run,
        run,
    };
    Ok(Generator::connect(plan, Files::default(), PATIENCE, &|| false)?)
}

/// `rate` a second for `duration`, each request when it is due.
pub(crate) fn open(cluster: &Cluster, shape: Shape, rate: f64, duration: Span) -> Result<Figures, Failure> {
    let mut generator = generator(cluster, shape)?;
    run(&mut generator, Phase { rate, warmup: Span::default(), duration: Span::new(duration.get() / 4) })?;
    measured(cluster, &mut generator, Phase { rate, warmup: Span::default(), duration })
}

/// As much as a window of `sessions` times 64 carries, for about `duration`: more than that is due at once, and worked
/// off. Latency is the service time, since nothing had to be due when it was.
pub(crate) fn closed(cluster: &Cluster, shape: Shape, duration: Span) -> Result<Figures, Failure> {
    let mut generator = generator(cluster, shape)?;
    let moment = Span::millis(20);
    let first =
        run(&mut generator, Phase { rate: FIRST / seconds(moment), warmup: Span::default(), duration: moment })?;
    let offered = (first.ordered_per_s * OFFER).max(10_000.0);
    let phase = Phase { rate: offered, warmup: Span::default(), duration: scaled(duration, 1.0 / OFFER) };
    let mut figures = measured(cluster, &mut generator, phase)?;
    for name in ["latency_p50_us", "latency_p90_us", "latency_p99_us", "latency_max_us", "longest_gap_ms"] {
        figures.remove(name);
    }
    Ok(figures)
}

fn seconds(span: Span) -> f64 {
    count(span.get()) / 1e9
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a duration of seconds, in nanoseconds")]
fn scaled(span: Span, by: f64) -> Span {
    Span::new((count(span.get()) * by) as u64)
}

fn run(generator: &mut Generator, phase: Phase) -> Result<Report, Failure> {
    let report = generator.run(phase, &|| false, &mut |_| ())?;
    if report.duplicates + report.contradictions > 0 {
        return Err(format!("{} requests were told two numbers", report.duplicates + report.contradictions).into());
    }
    Ok(report)
}

fn measured(cluster: &Cluster, generator: &mut Generator, phase: Phase) -> Result<Figures, Failure> {
    let pids = cluster.pids();
    let meter = Meter::start(pids.clone());
    let report = run(generator, phase)?;
    let (own, servers) = meter.used_us();
    let ordered = count(report.ordered.max(1));
    let refused: u64 = report.refused.values().sum();
    let mut figures = latencies(&report);
    figures.extend([
        ("ordered_per_s", report.ordered_per_s),
        ("service_p50_us", report.service_us.p50),
        ("service_p99_us", report.service_us.p99),
        ("generator_cpu_us", own / ordered),
        ("server_cpu_us", servers / ordered),
        ("cpu_us", (own + servers) / ordered),
        ("generator_syscalls", count(report.datagrams.syscalls) / ordered),
        ("client_datagrams", count(report.datagrams.sent + report.datagrams.received) / ordered),
        ("refused", count(refused)),
        ("unanswered", count(report.unanswered)),
        ("retries", count(report.retries)),
        ("resident_mb", pids.iter().filter_map(|pid| resident_mb(*pid)).fold(0.0, f64::max)),
    ]);
    Ok(figures)
}

/// Latency from the intended start, and the longest gap.
pub(crate) fn latencies(report: &Report) -> Figures {
    BTreeMap::from([
        ("latency_p50_us", report.latency_us.p50),
        ("latency_p90_us", report.latency_us.p90),
        ("latency_p99_us", report.latency_us.p99),
        ("latency_max_us", report.latency_us.max),
        ("longest_gap_ms", report.longest_gap_ms.overall),
    ])
}

/// What the servers' own counters say an entry took: datagrams among them, acknowledgements, system calls.
///
/// Beats are counted apart: they belong to time, not to entries.
pub(crate) fn per_entry(counts: &Counts, n: u8) -> Figures {
    let entries = counts.of("stamped").max(1.0);
    let (riding, alone) = (counts.of("frame_datagrams"), counts.of("headers_alone"));
    let receivers = f64::from(n) - 1.0;
    BTreeMap::from([
        ("peer_datagrams", (riding + alone) * receivers / entries),
        ("headers_alone", alone / entries),
        ("acks_riding", if riding + alone > 0.0 { riding / (riding + alone) } else { 0.0 }),
        ("entries_a_frame", entries / counts.of("frames_sent").max(1.0)),
        ("server_syscalls", counts.of("enters") / entries),
        ("beats", counts.of("headers_beat")),
        ("kernel_drops", counts.of("kernel_drops")),
        ("pulls", counts.of("pulls_sent")),
        ("servers_cut", count(counts.cut)),
    ])
}
