//! Redis, by its own server and its own load generator: INCR, and a script that gives a number and two participants'.
//!
//! **What is compared.** One process in memory, without disk: a number is held by one copy. INCR answers less than an
//! entry's place; the script answers the same question without histories. Its clients are closed loops.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use ordain::protocol::Span;

use crate::support::Failure;
use crate::support::cluster::{PATIENCE, free_ports};
use crate::support::figures::Figures;
use crate::support::process::{self, Meter, Process};

/// A global number, then the next number of each participant.
const SCRIPT: &str = "return {redis.call('INCR', KEYS[1]), redis.call('INCR', KEYS[2]), redis.call('INCR', KEYS[3])}";
/// Connections.
const CLIENTS: &str = "50";
/// Requests of the first run.
const FIRST: u64 = 8_000;
/// A run that takes longer is ended.
const RUN_MAX: Span = Span::secs(60);

/// A server of its own, on a port nobody uses.
pub(super) struct Redis {
    server: Process,
    port: u16,
    script: String,
    dir: tempfile::TempDir,
}

/// What clients ask.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    Incr,
    Script,
}

impl Redis {
    /// Starts it, or says why it cannot be.
    pub(super) fn start() -> Result<Self, Failure> {
        for program in ["redis-server", "redis-benchmark", "redis-cli"] {
            if Command::new(program).arg("--version").stdout(Stdio::null()).status().is_err() {
                return Err(format!("{program} is not installed: apt-get install redis-server redis-tools").into());
            }
        }
        let dir = tempfile::tempdir()?;
        let port = free_ports(1)?;
        let mut command = process::command("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        command.args(["--daemonize", "no", "--dir"]).arg(dir.path());
        let server = Process::start(&mut command, &dir.path().join("log"))?;
        let mut redis = Self { server, port, script: String::new(), dir };
        if !process::wait_for(PATIENCE, || redis.server.ended().is_some() || redis.cli(&["PING"]) == "PONG") {
            return Err("redis-server did not answer".into());
        }
        redis.script = redis.cli(&["SCRIPT", "LOAD", SCRIPT]);
        if redis.script.len() != 40 {
            return Err(format!("redis took no script: {}", redis.script).into());
        }
        Ok(redis)
    }

    /// Its version.
    pub(super) fn version(&self) -> String {
        let info = self.cli(&["INFO", "server"]);
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
        version.unwrap_or("unknown").trim().to_owned()
    }

    fn cli(&self, arguments: &[&str]) -> String {
        let port = self.port.to_string();
        let all: Vec<&str> = ["-p", &port].into_iter().chain(arguments.iter().copied()).collect();
        crate::support::output_of("redis-cli", &all)
    }

    /// For about so many seconds over fifty connections, `pipelined` on each at once; a short run before tells how many
    /// requests that is.
    pub(super) fn run(&self, asked: Asked, pipelined: u32, seconds: f64) -> Result<Figures, Failure> {
        let first = self.requests(asked, pipelined, FIRST)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "requests of some seconds")]
        let requests = (first["per_s"] * seconds) as u64;
        self.requests(asked, pipelined, requests.max(FIRST))
    }

    fn requests(&self, asked: Asked, pipelined: u32, requests: u64) -> Result<Figures, Failure> {
        let log: PathBuf = self.dir.path().join("run");
        let mut command = process::command("redis-benchmark");
        command.args(["-p", &self.port.to_string(), "-c", CLIENTS, "-P", &pipelined.to_string()]);
        command.args(["-n", &requests.to_string(), "-r", "1000", "--csv"]);
        match asked {
            Asked::Incr => command.args(["INCR", "order"]),
            Asked::Script => command.args(["EVALSHA", &self.script, "3", "order", "p:__rand_int__", "q:__rand_int__"]),
        };
        let (meter, children) = (Meter::start(vec![self.server.pid()]), process::children_us());
        let mut load = Process::start(&mut command, &log)?;
        if !process::wait_for(RUN_MAX, || load.ended().is_some()) {
            return Err("redis-benchmark did not end in time".into());
        }
        drop(load);
        let (_, server_us) = meter.used_us();
        let client_us = process::children_us() - children;
        let mut figures = read(&std::fs::read_to_string(&log)?)?;
        let requests = crate::support::figures::count(requests);
        figures.extend([
            ("server_cpu_us", server_us / requests),
            ("client_cpu_us", client_us / requests),
            ("cpu_us", (server_us + client_us) / requests),
        ]);
        Ok(figures)
    }
}

/// The last row of its table: test, requests a second, then latencies in ms: mean, least, median, 95 %, 99 %, greatest.
fn read(csv: &str) -> Result<Figures, Failure> {
    let failed = || format!("redis-benchmark said: {csv}");
    // The name of the test may hold commas; the seven figures are the last seven fields.
    let row = csv.lines().rfind(|line| line.starts_with('"')).ok_or_else(failed)?;
    let fields: Vec<f64> = row
        .rsplit(',')
        .take(7)
        .map(|field| field.trim_matches('"').parse())
        .collect::<Result<_, _>>()
        .map_err(|_| failed())?;
    let [_, p99, _, p50, _, _, per_s] = fields[..] else { return Err(failed().into()) };
    Ok(Figures::from([("per_s", per_s), ("p50_us", p50 * 1e3), ("p99_us", p99 * 1e3)]))
}
