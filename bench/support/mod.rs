//! What the benchmarks share: command line, header, rounds, processes and the bare floor.
//!
//! **Why.** A figure without its conditions means nothing: every object printed says commit, kernel, cores, engine,
//! waiting, and what bare sockets do on the same host in the same minutes. What is compared is interleaved, so that a
//! disturbed moment hits both sides; what is printed is a median beside the least and the greatest.
//! **Invariants**: every process started ends with its owner, and with this program even if that is killed.
//! **Limits**: one host, loopback. **Not here**: what each benchmark measures (`runs`).

pub(crate) mod cluster;
pub(crate) mod figures;
pub(crate) mod floor;
pub(crate) mod load;
pub(crate) mod process;
#[path = "../runs/mod.rs"]
mod runs;

use std::io::{self, Write as _};
use std::process::{Command, ExitCode};

use clap::Parser;
use serde_json::{Map, Value, json};

/// Anything that ends a benchmark.
pub(crate) type Failure = Box<dyn std::error::Error>;

/// What every benchmark takes. Text for people is not printed: the object is, on one line or indented.
#[derive(Clone, Debug, Parser)]
#[command(about = "Prints one JSON object", bin_name = "cargo bench --bench NAME --")]
pub(crate) struct Args {
    /// One line, for programs; otherwise indented, for people
    #[arg(long)]
    pub(crate) json: bool,
    /// Fewer and shorter rounds: ends within 40 s
    #[arg(long)]
    pub(crate) quick: bool,
    /// Rounds of everything that is interleaved
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) rounds: Option<u32>,
    /// Be another of the benchmarks: they are one program
    #[arg(long, hide = true, value_name = "NAME")]
    be: Option<String>,
    /// What cargo adds
    #[arg(long, hide = true)]
    bench: bool,
}

impl Args {
    /// Rounds to make: as asked, else by whether it is to be quick.
    pub(crate) fn rounds(&self, quick: u32, full: u32) -> u32 {
        self.rounds.unwrap_or(if self.quick { quick } else { full })
    }
}

/// What a benchmark found.
pub(crate) struct Found {
    /// How datagrams were moved.
    pub(crate) engine: String,
    /// How processes waited.
    pub(crate) waiting: &'static str,
    /// What bare sockets did in the same run.
    pub(crate) floor: Value,
    /// Its own figures, by name.
    pub(crate) figures: Map<String, Value>,
}

/// A benchmark from its command line to its object on stdout. The same program also serves as a process of the floor
/// and of the stages, when its first argument says so.
pub(crate) fn main(bench: &str) -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let done = match arguments.get(1).map(String::as_str) {
        Some(floor::NODE) => floor::node(&arguments[2..]),
        Some(runs::stages::DRIVER) => runs::stages::driver(&arguments[2..]),
        _ => run(bench, &Args::parse()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Nobody is left to tell if stderr is closed.
            drop(writeln!(io::stderr(), "{bench}: {failure}"));
            ExitCode::FAILURE
        }
    }
}

fn run(bench: &str, args: &Args) -> Result<(), Failure> {
    let bench = args.be.as_deref().unwrap_or(bench);
    let machine = process::Machine::now();
    let found = match bench {
        "floor" => runs::floor::run(args)?,
        "light" => runs::light::run(args)?,
        "saturation" => runs::saturation::run(args)?,
        "stages" => runs::stages::run(args)?,
        "peers" => runs::peers::run(args)?,
        "watching" => runs::watching::run(args)?,
        other => return Err(format!("no such benchmark: {other}").into()),
    };
    let mut object = json!({
        "schema": 1,
        "bench": bench,
        "quick": args.quick,
        "commit": output_of("git", &["describe", "--always", "--dirty", "--abbrev=40"]),
        "kernel": output_of("uname", &["-r"]),
        "processor": processor(),
        "cores": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "date": output_of("date", &["-u", "+%Y-%m-%dT%H:%M:%SZ"]),
        "neighbours_cores": machine.others().map(figures::round),
        "engine": found.engine,
        "waiting": found.waiting,
        "floor": found.floor,
    });
    if let Some(object) = object.as_object_mut() {
        object.extend(found.figures);
    }
    let text = if args.json { object.to_string() } else { format!("{object:#}") };
    writeln!(io::stdout().lock(), "{text}")?;
    Ok(())
}

/// What a program prints, trimmed; empty if it cannot be run.
pub(crate) fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(String::new, |(_, model)| model.to_owned())
}
