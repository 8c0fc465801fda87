//! `ordain load`: offer a cluster requests at a rate, and report what became of them.
//!
//! **Not here**: the generator ([`crate::client::load`]), the figures ([`crate::client::stats`]).

pub mod cpu;
mod search;
pub mod show;

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use self::cpu::Processes;
use self::search::Search;
use self::show::{Bar, Step};
use super::target::{Target, number, span};
use super::{Error, Status, out};
use crate::client::load::{Arrival, Files, Generator, LoadError, Phase, Plan, Skew};
use crate::client::machine::Choice;
use crate::client::stats::{Report, human, micros, seconds};
use crate::client::{interval_log, seed, trace};
use crate::engine::clock;
use crate::protocol::{PARTICIPANTS_MAX, Refusal, ServerId, Span};

const EXAMPLES: &str = "Examples:
  ordain load --config d/ordain.toml --rate 20000 --duration 10s
  ordain load --config d/ordain.toml --rate 10000 --hist run.hlog --trace run.trace
  ordain load --config d/ordain.toml --rate max --duration 30s --target-p99 5ms --json

Latency counts from when each request was due, so that a stall shows. Exit status 1: a number was given twice, all was \
refused, the target was missed, or the run was interrupted; 69: nothing was answered.";

/// What `ordain load` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    target: Target,
    /// Requests a second, or `max`: search for the highest whose 99 % point stays under the target
    #[arg(long, value_name = "R|max")]
    rate: Rate,
    /// The measured time; with `max`, of the whole search
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = span)]
    duration: Span,
    /// Time at the same rate before it, which is in no figure
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = span)]
    warmup: Span,
    /// Sessions; each has up to 64 requests in flight, and those of earlier runs count until ledger.session_ttl
    #[arg(long, value_name = "C", default_value_t = 64, value_parser = |text: &str| number(text, 1..=1_u32 << 20))]
    clients: u32,
    /// Participants of a transaction
    #[arg(long, value_name = "LO..HI", default_value = "1..3")]
    participants: Range,
    /// How many participants there are
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = |text: &str| number(text, 1..=1_u32 << 24))]
    participant_space: u32,
    /// How participants are drawn: all alike, or the k-th with weight 1 / k^S
    #[arg(long, value_name = "uniform|zipf:S", default_value = "uniform", value_parser = skew)]
    skew: Skew,
    /// History depth
    #[arg(long, value_name = "H", default_value_t = 4, value_parser = |text: &str| number(text, 0..=16_u8))]
    history: u8,
    /// The server first asked; retries may go elsewhere
    #[arg(long, value_name = "N|spread", default_value = "spread", value_parser = choice)]
    server: Choice,
    /// Requests in one datagram at most; `auto`: what fits
    #[arg(long, value_name = "K|auto", default_value = "auto", value_parser = per_datagram)]
    per_datagram: PerDatagram,
    /// How starts are spread
    #[arg(long, value_name = "poisson|uniform", default_value = "poisson", value_parser = arrival)]
    arrival: Arrival,
    /// When a request without an answer is given up
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = span)]
    timeout: Span,
    /// Write latencies second by second, in the HdrHistogram log format
    #[arg(long, value_name = "FILE")]
    hist: Option<PathBuf>,
    /// Write one JSON line a request, for `ordain verify`
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The 99 % point that must not be exceeded [with `max`: 10ms]
    #[arg(long, value_name = "TIME", value_parser = span)]
    target_p99: Option<Span>,
    /// Repeats starts and participants of an earlier run; sessions and transactions are new in every run
    #[arg(long, value_name = "S", value_parser = |text: &str| number(text, 0..=u64::MAX))]
    seed: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug)]
enum Rate {
    PerSecond(f64),
    Max,
}

impl FromStr for Rate {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "max" {
            return Ok(Self::Max);
        }
        let rate = text.replace('_', "").parse::<f64>().ok().filter(|rate| (0.01..=100e6).contains(rate));
        rate.map(Self::PerSecond).ok_or_else(|| "allowed: 0.01 to 100000000 requests a second, or max".to_owned())
    }
}

#[derive(Clone, Copy, Debug)]
struct Range(usize, usize);

impl FromStr for Range {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (low, high) = text.split_once("..").unwrap_or((text, text));
        let bound = |text: &str| text.parse::<usize>().ok().filter(|n| (1..=PARTICIPANTS_MAX).contains(n));
        match (bound(low), bound(high)) {
            (Some(low), Some(high)) if low <= high => Ok(Self(low, high)),
            _ => Err(format!("allowed: LO..HI with 1 <= LO <= HI <= {PARTICIPANTS_MAX}, or one number")),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct PerDatagram(usize);

fn per_datagram(text: &str) -> Result<PerDatagram, String> {
    let count = if text == "auto" { Some(usize::MAX) } else { text.parse().ok().filter(|count| *count > 0) };
    count.map(PerDatagram).ok_or_else(|| "allowed: auto, or a number from 1".to_owned())
}

fn skew(text: &str) -> Result<Skew, String> {
    let exponent = text.strip_prefix("zipf:").and_then(|exponent| exponent.parse::<f64>().ok());
    match exponent.filter(|exponent| (0.0..=10.0).contains(exponent)) {
        Some(exponent) => Ok(Skew::Zipf(exponent)),
        None if text == "uniform" => Ok(Skew::Uniform),
        None => Err("allowed: uniform, or zipf:S with S from 0 to 10".to_owned()),
    }
}

fn choice(text: &str) -> Result<Choice, String> {
    let id = text.parse::<usize>().ok().and_then(|id| id.checked_sub(1)).and_then(ServerId::from_place);
    match id {
        Some(server) => Ok(Choice::Server(server)),
        None if text == "spread" => Ok(Choice::Spread),
        None => Err("allowed: spread, or a server's id from 1".to_owned()),
    }
}

fn arrival(text: &str) -> Result<Arrival, String> {
    match text {
        "poisson" => Ok(Arrival::Poisson),
        "uniform" => Ok(Arrival::Uniform),
        _ => Err("allowed: poisson, uniform".to_owned()),
    }
}

/// Loads, and reports.
///
/// # Errors
/// Wrong usage, no servers, or files that cannot be written.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let plan = plan(args)?;
    let files = files(args)?;
    let stop = Interrupt::catch()?;
    let processes = Processes::find(&plan.cluster.servers);
    let timeout = args.timeout.max(Span::secs(1));
    let mut generator = Generator::connect(plan, files, timeout, &|| stop.is_set())?;
    let result = match args.rate {
        Rate::PerSecond(rate) => {
            let phase = Phase { rate, warmup: args.warmup, duration: args.duration };
            Outcome { report: one(&mut generator, phase, &processes, &stop)?, steps: Vec::new(), best: None }
        }
        Rate::Max => search(&mut generator, args, &processes, &stop)?,
    };
    let interrupted = stop.is_set();
    out::text(show::outcome(&result, interrupted, args.json))?;
    for warning in show::warnings(&result.report) {
        out::note(format_args!("ordain: {warning}"));
    }
    if interrupted {
        out::note("ordain: interrupted: the results are of a part of the run");
    }
    let missed = target_missed(args, &result);
    if let Some(why) = &missed {
        out::note(format_args!("ordain: {why}"));
    }
    Ok(status(&result, missed.is_some(), interrupted).into())
}

/// What there is to report.
#[derive(Debug)]
pub struct Outcome {
    /// The run, or the best step of a search (the last one, if none passed).
    pub report: Report,
    /// The steps of a search.
    pub steps: Vec<Step>,
    /// The rate of the best step; `None` if none passed, or nothing was searched.
    pub best: Option<f64>,
}

fn plan(args: &Args) -> Result<Plan, Error> {
    let (cluster, config) = args.target.cluster_and_config()?;
    let per_key = config.map(|config| config.settings().ledger.sessions_per_key);
    let clients = usize::try_from(args.clients).unwrap_or(usize::MAX);
    if let Some(per_key) = per_key.filter(|per_key| clients > *per_key) {
        out::note(format_args!(
            "ordain: warning: --clients {clients} is more than ledger.sessions_per_key = {per_key}: some will be refused"
        ));
    }
    let Range(least, most) = args.participants;
    if usize::try_from(args.participant_space).is_ok_and(|space| space < most) {
        let space = args.participant_space;
        return Err(Error::usage(format!("--participant-space {space}: fewer than the {most} of --participants")));
    }
    if let Choice::Server(server) = args.server
        && server.place() >= cluster.servers.len()
    {
        return Err(Error::usage(format!("--server {server}: the cluster has servers 1..{}", cluster.servers.len())));
    }
    if args.duration == Span::default() {
        return Err(Error::usage("--duration: nothing can be measured in no time"));
    }
    let run = seed();
    Ok(Plan {
        cluster,
        sessions: clients,
        participants: (least, most),
        participant_space: args.participant_space,
        skew: args.skew,
        depth: args.history,
        choice: args.server,
        per_datagram: args.per_datagram.0,
        arrival: args.arrival,
        timeout: args.timeout,
        seed: args.seed.unwrap_or(run),
        run,
    })
}

fn files(args: &Args) -> Result<Files, Error> {
    let trace = args
        .trace
        .as_ref()
        .map(|path| trace::Writer::create(path).map_err(|error| Error::file("--trace", path, &error)));
    let log = args.hist.as_ref().map(|path| {
        interval_log::Writer::create(path, clock::realtime()).map_err(|error| Error::file("--hist", path, &error))
    });
    Ok(Files { trace: trace.transpose()?, log: log.transpose()? })
}

/// SIGINT, SIGTERM and SIGHUP as a flag.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Catches them from now on; SIGHUP stays ignored where it was, as under `nohup`.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn catch() -> Result<Self, Error> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            if signal == libc::SIGHUP && is_ignored(signal) {
                continue;
            }
            signal_hook::flag::register(signal, Arc::clone(&flag)).map_err(|error| Error::io("signals", &error))?;
        }
        Ok(Self(flag))
    }

    /// Whether one came.
    #[must_use]
    pub fn is_set(&self) -> bool {
        // Relaxed: set by the signal handler, orders nothing else.
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether this process was started with the signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (signal - 1)) != 0
}

/// Runs one phase with a progress bar, and accounts the processor time from the end of its warm-up on.
///
/// # Errors
/// If the trace or the log cannot be written.
pub fn one(
    generator: &mut Generator,
    phase: Phase,
    processes: &Processes,
    stop: &Interrupt,
) -> Result<Report, LoadError> {
    let bar = Bar::new();
    let mut before = None;
    let mut report = generator.run(phase, &|| stop.is_set(), &mut |progress| {
        if before.is_none() && progress.elapsed >= phase.warmup {
            before = Some(processes.seconds());
        }
        bar.show(progress);
    })?;
    bar.clear();
    report.cpu_seconds = before.map(|before| processes.since(&before)).unwrap_or_default();
    Ok(report)
}

fn search(
    generator: &mut Generator,
    args: &Args,
    processes: &Processes,
    stop: &Interrupt,
) -> Result<Outcome, LoadError> {
    let target = target(args);
    let start = clock::monotonic();
    let mut search = Search::new(args.duration);
    let mut outcome = Outcome { report: Report::default(), steps: Vec::new(), best: None };
    loop {
        let left = Span::new(args.duration.get().saturating_sub(clock::monotonic().since(start).get()));
        let Some(phase) = search.step(left).filter(|_| !stop.is_set()) else { return Ok(outcome) };
        let report = one(generator, phase, processes, stop)?;
        let missed =
            if stop.is_set() { Some("interrupted".to_owned()) } else { missed(&report, phase.duration, target) };
        // A rate at which some are refused is not one the cluster holds.
        let missed = missed.or_else(|| show::refused_counts(&report));
        let passed = missed.is_none();
        search.took(passed);
        outcome.steps.push(Step::of(phase.rate, &report, missed));
        if passed {
            outcome.best = Some(phase.rate);
        }
        if passed || outcome.best.is_none() {
            outcome.report = report;
        }
    }
}

fn target(args: &Args) -> Span {
    args.target_p99.unwrap_or(Span::millis(10))
}

/// Why a run did not keep the target, if it did not: fast enough, nearly everything ordered, and hardly later than it was
/// due.
fn missed(report: &Report, duration: Span, target: Span) -> Option<String> {
    if report.ordered == 0 || report.ordered < report.offered - report.offered / 100 {
        if let Some(refused) = show::refused_counts(report) {
            return Some(refused);
        }
        if report.unanswered == 0 {
            return Some(format!("{} of {} requests ordered", report.ordered, report.offered));
        }
    }
    if report.unanswered > 0 {
        return Some(format!("{} of {} requests unanswered", report.unanswered, report.offered));
    }
    if report.latency_us.p99 > micros(target.get()) {
        let (target, measured) = (human(target), report.latency_us.p99 / 1_000.0);
        return Some(format!("the 99 % point is {measured:.3} ms, the target {target}"));
    }
    let (took, planned) = (report.seconds, seconds(duration));
    (took > 1.05 * planned).then(|| format!("answers took {took:.3} s, the run was {planned} s"))
}

/// Why the target of a run at one rate, or of a whole search, was missed.
fn target_missed(args: &Args, outcome: &Outcome) -> Option<String> {
    match args.rate {
        Rate::Max if outcome.best.is_some() => None,
        Rate::Max => {
            let last = outcome.steps.last();
            let why = last.map(|step| format!("; {}/s last: {}", step.rate, step.missed.as_deref().unwrap_or("held")));
            Some(format!("no rate kept the target of {}{}", human(target(args)), why.unwrap_or_default()))
        }
        Rate::PerSecond(_) => {
            let why = missed(&outcome.report, args.duration, args.target_p99?)?;
            Some(format!("--target-p99 was missed: {why}"))
        }
    }
}

fn status(outcome: &Outcome, missed: bool, interrupted: bool) -> Status {
    let report = &outcome.report;
    if report.offered > 0 && report.ordered == 0 && report.refused.is_empty() {
        return Status::Unreachable;
    }
    let nothing = report.ordered == 0 && report.offered > 0;
    let broken = report.duplicates > 0 || report.contradictions > 0;
    if nothing || broken || missed || interrupted { Status::No } else { Status::Done }
}

/// No load: the host's fault, the cluster's, or the user's.
impl From<LoadError> for Error {
    fn from(error: LoadError) -> Self {
        let status = match &error {
            LoadError::Unreachable { .. } => Status::Unreachable,
            LoadError::Refused { verdict, .. } if matches!(verdict.refusal, Refusal::NotMember | Refusal::NoQuorum) => {
                Status::Unreachable
            }
            LoadError::Refused { .. } | LoadError::Interrupted | LoadError::File(_) => Status::No,
            LoadError::Io(source) => return Self::io("io_uring", source),
            LoadError::Name(_) | LoadError::Socket(_) | LoadError::Ring(_) | LoadError::Version { .. } => Status::Usage,
        };
        Self::new(status, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_and_their_mistakes_named() {
        assert!(matches!(Rate::from_str("20_000"), Ok(Rate::PerSecond(rate)) if (rate - 20_000.0).abs() < 1e-9));
        assert!(matches!(Rate::from_str("max"), Ok(Rate::Max)) && Rate::from_str("-1").is_err());
        assert!(
            matches!(Range::from_str("1..64"), Ok(Range(1, 64))) && matches!(Range::from_str("3"), Ok(Range(3, 3)))
        );
        assert!(
            Range::from_str("2..1").is_err() && Range::from_str("1..65").is_err() && Range::from_str("0..1").is_err()
        );
        assert_eq!(skew("zipf:0.9"), Ok(Skew::Zipf(0.9)));
        assert!(skew("zipf:x").is_err() && skew("normal").is_err());
        assert_eq!(choice("spread"), Ok(Choice::Spread));
        assert!(choice("0").is_err() && choice("8").is_err() && choice("2").is_ok());
        assert!(per_datagram("0").is_err() && per_datagram("auto").is_ok());
    }
}
