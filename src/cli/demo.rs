//! `ordain demo`: servers as processes on the loopback, a load, and the order verified. Nothing to prepare.
//!
//! **Invariants**: its servers end with it, also when it is interrupted, fails or is killed; nothing is left on disk but
//! the trace asked for, unless it is killed: then its directory under the system's temporary one stays.
//! **Not here**: the load ([`crate::client::load`]), the judge ([`crate::client::verify`]).
use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::UdpSocket;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use serde::Serialize;

use super::load::cpu::Processes;
use super::load::{self, Interrupt, show};
use super::target::{Target, span};
use super::{Error, Status, out, verify};
use crate::client::load::{Arrival, Files, Generator, Phase, Plan, Skew};
use crate::client::machine::Choice;
use crate::client::stats::Report;
use crate::client::verify::{Options, Trace, check};
use crate::client::{seed, trace};
use crate::engine::clock;
use crate::protocol::{OrderNo, Span};
use crate::server::{keys, template};

const EXAMPLES: &str = "Examples:
  ordain demo
  ordain demo --servers 5 --rate 20000 --duration 5s --json";

/// How long servers may take to form an instance, and to end.
const PATIENCE: Span = Span::secs(15);
/// Sessions of the load.
const SESSIONS: usize = 256;

/// What `ordain demo` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Servers: 1, 3, 5 or 7
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = servers)]
    servers: u8,
    /// Requests a second
    #[arg(long, value_name = "R", default_value_t = 5_000.0, value_parser = rate)]
    rate: f64,
    /// The measured time
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    duration: Span,
    /// Keep one JSON line a request, for `ordain verify`
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn servers(text: &str) -> Result<u8, String> {
    text.parse().ok().filter(|n| matches!(n, 1 | 3 | 5 | 7)).ok_or_else(|| "allowed: 1, 3, 5 or 7".to_owned())
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.replace('_', "").parse::<f64>().ok().filter(|rate| (0.1..=10e6).contains(rate));
    rate.ok_or_else(|| "allowed: 0.1 to 10000000 requests a second".to_owned())
}

fn duration(text: &str) -> Result<Span, String> {
    let time = span(text)?;
    if time == Span::default() { Err("nothing can be shown in no time; give e.g. 10s".to_owned()) } else { Ok(time) }
}

#[derive(Serialize)]
struct Json<'a> {
    #[serde(flatten)]
    report: &'a Report,
    verified: bool,
    interrupted: bool,
}

/// Runs the demonstration.
///
/// # Errors
/// If servers do not start, or the trace cannot be written.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let stop = Interrupt::catch()?;
    // Before any server is started: nobody should wait for a file that cannot be.
    let writer = args.trace.as_deref().map(create).transpose()?;
    let mut servers = Servers::start(args.servers, &stop)?;
    out::note(format_args!(
        "{} server{} on the loopback, instance formed; {} requests a second for {}",
        args.servers,
        if args.servers == 1 { "" } else { "s" },
        args.rate,
        seconds(args.duration)
    ));
    let trace_path = args.trace.clone().unwrap_or_else(|| servers.dir.0.join("trace"));
    let writer = writer.map_or_else(|| create(&trace_path), Ok)?;
    let report = load(args, &servers, writer, &stop)?;
    let interrupted = stop.is_set();
    let ended_well = servers.end()?;
    let lines = trace::read(&trace_path)?;
    let traces = [Trace { name: trace_path.display().to_string(), lines }];
    let judged = check(&traces, Options { from: Some(OrderNo::new(1)), ..Options::default() });
    // An order of nothing proves nothing, and neither does one of servers that stopped themselves.
    let verified = judged.verified() && judged.ordered > 0 && ended_well;
    if args.json {
        let json = Json { report: &report, verified, interrupted };
        out::line(serde_json::to_string(&json).unwrap_or_default())?;
    } else {
        out::text(show::table(&report))?;
        if ended_well {
            out::text(verify::text(&judged))?;
        } else {
            out::line("order not verified: a server stopped itself")?;
        }
    }
    for warning in show::warnings(&report) {
        out::note(format_args!("ordain: {warning}"));
    }
    if interrupted {
        out::note("ordain: interrupted: the results are of a part of the run");
    }
    Ok(if verified && !interrupted { Status::Done } else { Status::No }.into())
}

fn seconds(span: Span) -> String {
    format!("{} s", crate::client::stats::seconds(span))
}

fn create(path: &Path) -> Result<trace::Writer, Error> {
    trace::Writer::create(path).map_err(|cause| Error::file("--trace", path, &cause))
}

fn load(args: &Args, servers: &Servers, writer: trace::Writer, stop: &Interrupt) -> Result<Report, Error> {
    let target = Target { config: Some(servers.config()), set: Vec::new(), servers: Vec::new(), key: None };
    let cluster = target.cluster()?;
    let processes = Processes::find(&cluster.servers);
    let run = seed();
    let plan = Plan {
        cluster,
        sessions: SESSIONS,
        participants: (1, 3),
        participant_space: 1_000,
        skew: Skew::Zipf(0.9),
        depth: 4,
        choice: Choice::Spread,
        per_datagram: usize::MAX,
        arrival: Arrival::Poisson,
        timeout: Span::secs(5),
        seed: run,
        run,
    };
    let files = Files { trace: Some(writer), log: None };
    let mut generator = Generator::connect(plan, files, PATIENCE, &|| stop.is_set())?;
    let phase = Phase { rate: args.rate, warmup: Span::secs(1), duration: args.duration };
    Ok(load::one(&mut generator, phase, &processes, stop)?)
}

/// A directory that goes with its owner.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Self, Error> {
        let path = std::env::temp_dir().join(format!("ordain-demo-{}", std::process::id()));
        fs::create_dir(&path).map_err(|cause| Error::io(path.display(), &cause))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Server processes; killed when dropped.
struct Servers {
    children: Vec<Child>,
    dir: Scratch,
}

/// Ports nobody uses now, as many in a row as wanted.
fn free_ports(count: u16) -> Result<u16, Error> {
    let bases = (0..200_u16).map(|at| 7_100 + at * 20);
    let free = |base: &u16| (*base..*base + count).all(|port| UdpSocket::bind(("127.0.0.1", port)).is_ok());
    let mut bases = bases.filter(free);
    bases.next().ok_or_else(|| Error::usage(format!("no {count} free UDP ports in a row on 127.0.0.1 from 7100 on")))
}

impl Servers {
    fn start(n: u8, stop: &Interrupt) -> Result<Self, Error> {
        let dir = Scratch::new()?;
        let hosts = vec!["127.0.0.1".to_owned(); usize::from(n)];
        let base_port = free_ports(template::PORTS * u16::from(n))?;
        let entries = template::entries(&hosts, base_port);
        let entries = entries.ok_or_else(|| Error::usage("the ports from the base port on do not suffice"))?;
        let mut servers = Self { children: Vec::new(), dir };
        let text = template::render(&entries, &[("ledger.profile", "laptop")]);
        fs::write(servers.config(), text).map_err(|cause| Error::io(servers.config().display(), &cause))?;
        keys::create_cluster(&servers.dir.0.join("cluster.key"), &keys::generate()?)?;
        for id in 1..=n {
            servers.spawn(id)?;
        }
        servers.wait_ready(stop)?;
        Ok(servers)
    }

    fn config(&self) -> PathBuf {
        self.dir.0.join("ordain.toml")
    }

    fn log(&self, id: usize) -> PathBuf {
        self.dir.0.join(format!("log-{id}"))
    }

    fn spawn(&mut self, id: u8) -> Result<(), Error> {
        let program = std::env::current_exe().map_err(|cause| Error::io("this program", &cause))?;
        let log = self.log(usize::from(id));
        let log = File::create(&log).map_err(|cause| Error::io(log.display(), &cause))?;
        let mut server = Command::new(&program);
        server
            .args([OsStr::new("serve"), OsStr::new("--config"), self.config().as_os_str()])
            .args(["--id", &id.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            // A group of their own: Ctrl-C reaches the demonstration, which ends them in order.
            .process_group(0);
        end_with_parent(&mut server);
        let child = server.spawn().map_err(|cause| Error::io(program.display(), &cause))?;
        self.children.push(child);
        Ok(())
    }

    fn wait_ready(&mut self, stop: &Interrupt) -> Result<(), Error> {
        let until = clock::monotonic().plus(PATIENCE);
        for at in 0..self.children.len() {
            let log = self.log(at + 1);
            while !fs::read_to_string(&log).is_ok_and(|text| text.contains("ready: instance")) {
                let ended = self.children[at].try_wait().is_ok_and(|status| status.is_some());
                if ended || stop.is_set() || clock::monotonic() >= until {
                    let said = fs::read_to_string(&log).unwrap_or_default();
                    let said = said.lines().last().unwrap_or("nothing").to_owned();
                    return Err(Error::unreachable(format!("server {} did not get ready; it said: {said}", at + 1)));
                }
                std::thread::park_timeout(Duration::from_millis(5));
            }
        }
        Ok(())
    }

    /// Ends them in good order: SIGTERM to all, then their exit statuses. False, with the end of its log, if one did not
    /// end well.
    fn end(&mut self) -> Result<bool, Error> {
        for child in &self.children {
            let pid = i32::try_from(child.id()).unwrap_or(0);
            terminate(pid);
        }
        let until = clock::monotonic().plus(PATIENCE);
        let mut well = true;
        for (at, child) in self.children.iter_mut().enumerate() {
            let status = loop {
                match child.try_wait() {
                    Ok(Some(status)) => break status,
                    Ok(None) if clock::monotonic() < until => std::thread::park_timeout(Duration::from_millis(5)),
                    Ok(None) => return Err(Error::no(format!("server {} did not end when asked to", at + 1))),
                    Err(cause) => return Err(Error::io(format_args!("server {}", at + 1), &cause)),
                }
            };
            if !status.success() {
                well = false;
                out::note(format_args!("ordain: server {} ended with {status}; its log ends:", at + 1));
                let log = fs::read_to_string(self.dir.0.join(format!("log-{}", at + 1))).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                lines[lines.len().saturating_sub(10)..].iter().for_each(out::note);
            }
        }
        Ok(well)
    }
}

/// Has the system send SIGTERM to the child when this process ends without having ended it: killed, or crashed.
#[expect(unsafe_code, reason = "two system calls between fork and exec")]
fn end_with_parent(command: &mut Command) {
    let parent = std::os::unix::process::parent_id;
    let this = std::process::id();
    let ask = move || {
        // SAFETY: takes numbers only, and changes nothing but the calling process's own death signal.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // Killed between fork and here: nobody will send the signal any more.
        if parent() == this { Ok(()) } else { Err(std::io::ErrorKind::NotFound.into()) }
    };
    // SAFETY: `ask` makes two system calls, both safe after a fork, and takes no lock and no memory.
    unsafe { command.pre_exec(ask) };
}

/// SIGTERM to an own child.
fn terminate(pid: i32) {
    #[expect(unsafe_code, reason = "one signal to an own child")]
    // SAFETY: `pid` is a child of this process that has not been waited for, so it names no other process.
    let sent = unsafe { libc::kill(pid, libc::SIGTERM) };
    debug_assert!(sent == 0, "an own child can be signalled");
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in &mut self.children {
            // Ended already, in the ordinary course.
            drop(child.kill());
            drop(child.wait());
        }
    }
}
