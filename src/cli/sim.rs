//! `ordain sim`: schedules of the real core and ledger under a simulated network, clocks and clients.
//!
//! **Why a command.** Whoever is to trust the order can try to break it, without a network and without a cluster.
//! **Invariants**: a violation, or an assertion of a core, exits with 1 and says which command shows it again.
//! **Not here**: the simulator ([`crate::sim`]).

use std::process::ExitCode;

use clap::ValueEnum;
use indicatif::ProgressBar;
use serde::Serialize;

use super::target::number;
use super::{Error, Status, out};
use crate::engine::clock;
use crate::protocol::plant::Plant;
use crate::sim::{self, Campaign, Report, Tally, Violation};

const EXAMPLES: &str = "Examples:
  ordain sim --schedules 10000 --faults loss --json
  ordain sim --seed 7 --schedules 1 --servers 5 --faults loss      that schedule again, bit for bit

Exit status 1: an invariant did not hold; the seed and the command that replays it are printed.";

/// What `ordain sim` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// How many servers: 1, 3, 5 or 7
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = servers)]
    servers: usize,
    /// How many schedules
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = |text: &str| number(text, 1..=u64::MAX))]
    schedules: u64,
    /// What all schedules are drawn from; the first has this very seed [default: the environment's ORDAIN_SEED, else new]
    #[arg(long, value_name = "S", value_parser = |text: &str| number(text, 0..=u64::MAX))]
    seed: Option<u64>,
    /// What goes wrong. loss: datagrams are lost, doubled, late, out of order; links are cut, servers pause, clocks step
    /// back. crash: servers crash and restart
    #[arg(long, value_enum, default_value_t = Faults::Loss)]
    faults: Faults,
    /// How silent servers are dealt with: certainly, by a change of configuration, or in time, provisionally
    #[arg(long, value_enum, default_value_t = Mode::Quorum)]
    mode: Mode,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn servers(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| sim::SERVERS.contains(number));
    number.ok_or_else(|| "a cluster has 1, 3, 5 or 7 servers".to_owned())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Faults {
    // Nothing is lost; clocks are off.
    None,
    // Datagrams are lost, doubled, late, out of order; links are cut, servers pause, clocks step back.
    Loss,
    // Servers crash and restart.
    Crash,
    // All of these.
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    // Certain, by a change of configuration.
    Quorum,
    // In time, provisionally.
    Deadline,
}

/// What this version does not simulate.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum NotYet {
    #[error(
        "--faults {0}: this version has no change of configuration, so a crashed server stops the order; use --faults \
         none or loss"
    )]
    Crashes(&'static str),
    #[error("--mode deadline: this version gives no provisional answers; use --mode quorum")]
    Deadline,
}

/// Plays the schedules and prints what happened.
///
/// # Errors
/// If something is asked for that this version does not simulate, the seed is none, or stdout takes no more.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let faults = match args.faults {
        Faults::None => sim::Faults::None,
        Faults::Loss => sim::Faults::Loss,
        Faults::Crash => return Err(Error::usage(NotYet::Crashes("crash"))),
        Faults::All => return Err(Error::usage(NotYet::Crashes("all"))),
    };
    if args.mode == Mode::Deadline {
        return Err(Error::usage(NotYet::Deadline));
    }
    let seed = match args.seed {
        Some(seed) => seed,
        None => seed_of_environment()?.unwrap_or_else(|| clock::realtime().get() % 1_000_000_000),
    };
    let campaign = Campaign {
        seed,
        schedules: args.schedules,
        servers: Some(args.servers),
        faults,
        restarts: 0,
        plant: Plant::NONE,
    };
    tell_of_assertions(args.json);
    let started = clock::monotonic();
    let bar = ProgressBar::new(args.schedules);
    let report = sim::run_all(&campaign, |done| {
        if done % 64 == 0 {
            bar.set_position(done);
        }
    });
    bar.finish_and_clear();
    let ms = clock::monotonic().since(started).get() / 1_000_000;
    let outcome = outcome(&report.tally, report.violation.as_deref(), seed, ms);
    if args.json {
        out::line(json(&outcome))?;
    } else {
        out::text(text(&outcome, &campaign, &report))?;
    }
    if let Some(violation) = &report.violation {
        out::note(format_args!("ordain: {violation}"));
        return Ok(Status::No.into());
    }
    Ok(Status::Done.into())
}

/// ORDAIN_SEED, if it is set: a number.
fn seed_of_environment() -> Result<Option<u64>, Error> {
    let Ok(text) = std::env::var("ORDAIN_SEED") else { return Ok(None) };
    let seed =
        text.parse().map_err(|_| Error::usage(format!("ORDAIN_SEED={text:?} is no number: unset it, or 0..2^64-1")))?;
    Ok(Some(seed))
}

/// An assertion of a core is a violation. It ends the process where it stands, so the hook says what there is to say.
fn tell_of_assertions(as_json: bool) {
    std::panic::set_hook(Box::new(move |panic| {
        if as_json {
            let tally = Tally { schedules: 1, ..Tally::default() };
            let seed = sim::playing().map_or(0, |schedule| schedule.seed);
            let _nobody_to_tell = out::line(json(&Outcome { violations: 1, ..outcome(&tally, None, seed, 0) }));
        }
        out::note(format_args!("ordain: an assertion of a core failed: {panic}"));
        if let Some(schedule) = sim::playing() {
            out::note(format_args!("replay: {}", sim::replay(&schedule)));
        }
        #[expect(clippy::disallowed_methods, reason = "nothing unwinds from here, and 1 is the status of a violation")]
        std::process::exit(i32::from(Status::No as u8));
    }));
}

/// The fields of the JSON object, as they are fixed for scripts; what this version has not stays zero.
#[derive(Debug, Serialize)]
struct Outcome {
    schema: u32,
    seed: u64,
    schedules: u64,
    entries: u64,
    retries: u64,
    epochs: u64,
    crashes: u64,
    restarts: u64,
    losses: u64,
    duplicated: u64,
    reordered: u64,
    cuts: u64,
    pauses: u64,
    clock_jumps: u64,
    provisional: u64,
    corrected: u64,
    undetected: u64,
    violations: u64,
    steps: u64,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    violation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replay: Option<String>,
}

fn outcome(tally: &Tally, violation: Option<&Violation>, seed: u64, ms: u64) -> Outcome {
    Outcome {
        schema: 1,
        seed,
        schedules: tally.schedules,
        entries: tally.entries,
        retries: tally.retries,
        epochs: 0,
        crashes: 0,
        restarts: tally.restarts,
        losses: tally.losses,
        duplicated: tally.duplicated,
        reordered: tally.reordered,
        cuts: tally.cuts,
        pauses: tally.pauses,
        clock_jumps: tally.clock_jumps,
        provisional: 0,
        corrected: 0,
        undetected: 0,
        violations: u64::from(violation.is_some()),
        steps: tally.steps,
        // Milliseconds of a run fit 32 bits, so the quotient is exact enough.
        seconds: f64::from(u32::try_from(ms).unwrap_or(u32::MAX)) / 1_000.0,
        violation: violation.map(|violation| format!("{}: {}", violation.broken.rule, violation.broken.what)),
        replay: violation.map(Violation::replay),
    }
}

fn json(outcome: &Outcome) -> String {
    serde_json::to_string(outcome).expect("an outcome has string keys only")
}

/// The outcome for people.
fn text(outcome: &Outcome, campaign: &Campaign, report: &Report) -> String {
    let Outcome { seed, schedules, entries, retries, losses, duplicated, reordered, .. } = outcome;
    let Outcome { cuts, pauses, clock_jumps, steps, seconds, .. } = outcome;
    let verdict = match report.violation {
        Some(_) => "an invariant did not hold",
        None => "no invariant was violated",
    };
    let servers = campaign.servers.unwrap_or_default();
    format!(
        "seed          {seed:>12}\n\
         schedules     {schedules:>12}   {servers} servers, faults {}, {seconds:.1} s\n\
         entries       {entries:>12}   numbered; {retries} retries\n\
         datagrams     {losses:>12}   lost; {duplicated} came twice, {reordered} out of order\n\
         cuts          {cuts:>12}   of links; {pauses} pauses, {clock_jumps} clocks set back\n\
         steps         {steps:>12}   checked one by one\n\
         {verdict}\n",
        campaign.faults.name()
    )
}
