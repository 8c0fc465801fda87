//! Processes of a benchmark: started so that they cannot outlive it, their processor time as the kernel's scheduler
//! counts it.
//!
//! **Why the scheduler's count.** `/proc/PID/stat` has ticks of 10 ms; `schedstat` has nanoseconds.
//! **Limits.** Threads that have ended are not counted; nothing measured here ends threads while it is measured.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use ordain::engine::clock;
use ordain::protocol::Span;

use super::figures::count;

/// Ticks a second in `/proc`: part of the kernel's interface.
const TICKS_PER_S: f64 = 100.0;

/// A process that ends with its owner.
pub(crate) struct Process(Child);

/// A command whose process the kernel kills when this program ends, where util-linux is there to arrange it.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    if !Path::new("/usr/bin/setpriv").exists() {
        return Command::new(program);
    }
    let mut command = Command::new("/usr/bin/setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

impl Process {
    /// Starts it, with what it prints in a file.
    pub(crate) fn start(command: &mut Command, log: &Path) -> io::Result<Self> {
        let file = File::create(log)?;
        let errors = file.try_clone()?;
        Ok(Self(command.stdin(Stdio::null()).stdout(file).stderr(errors).spawn()?))
    }

    /// Its number.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Whether it ended by itself.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().ok().flatten()
    }

    /// Waits until it has ended; killed if it does not.
    pub(crate) fn wait(mut self, patience: Span) -> Option<ExitStatus> {
        let until = clock::monotonic().plus(patience);
        while clock::monotonic() < until {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            std::thread::park_timeout(Duration::from_millis(2));
        }
        None
    }

    /// SIGTERM; once, since a second one tells a server to end at once.
    pub(crate) fn ask(&self) {
        // A process that has ended already needs no asking.
        drop(Command::new("kill").arg("-TERM").arg(self.pid().to_string()).stderr(Stdio::null()).status());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Waits until `done`, for so long at most.
pub(crate) fn wait_for(patience: Span, mut done: impl FnMut() -> bool) -> bool {
    let until = clock::monotonic().plus(patience);
    while !done() {
        if clock::monotonic() >= until {
            return false;
        }
        std::thread::park_timeout(Duration::from_millis(3));
    }
    true
}

/// Nanoseconds of processor a process has used, all its living threads together.
pub(crate) fn cpu_ns(pid: &str) -> Option<u64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    threads
        .flatten()
        .map(|thread| {
            let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            text.split_ascii_whitespace().next()?.parse::<u64>().ok()
        })
        .sum()
}

/// Resident memory of a process in MB, the most it ever had.
pub(crate) fn resident_mb(pid: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(count(kib) / 1_024.0)
}

/// Processor time of this process and of some others, from now on.
pub(crate) struct Meter {
    pids: Vec<u32>,
    own_ns: u64,
    others_ns: u64,
}

impl Meter {
    /// Begins.
    pub(crate) fn start(pids: Vec<u32>) -> Self {
        let mut meter = Self { pids, own_ns: 0, others_ns: 0 };
        (meter.own_ns, meter.others_ns) = meter.read();
        meter
    }

    fn read(&self) -> (u64, u64) {
        let own = cpu_ns("self").unwrap_or(0);
        (own, self.pids.iter().filter_map(|pid| cpu_ns(&pid.to_string())).sum())
    }

    /// Microseconds used since: by this process, by the others.
    pub(crate) fn used_us(&self) -> (f64, f64) {
        let (own, others) = self.read();
        (count(own.saturating_sub(self.own_ns)) / 1e3, count(others.saturating_sub(self.others_ns)) / 1e3)
    }
}

/// The whole machine at one moment.
pub(crate) struct Machine {
    at_ns: u64,
    busy_s: Option<f64>,
    own_s: f64,
}

impl Machine {
    /// As it is.
    pub(crate) fn now() -> Self {
        Self { at_ns: clock::monotonic().get(), busy_s: busy_s(), own_s: own_s() }
    }

    /// Processors that neither this program nor anything it started has used since, on average.
    pub(crate) fn others(&self) -> Option<f64> {
        let now = Self::now();
        let seconds = count(now.at_ns - self.at_ns) / 1e9;
        Some(((now.busy_s? - self.busy_s? - (now.own_s - self.own_s)) / seconds).max(0.0))
    }
}

/// Processor time all processors together have worked.
fn busy_s() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let fields: Vec<f64> = text.lines().next()?.split_ascii_whitespace().skip(1).flat_map(str::parse).collect();
    // user, nice, system, then idle and iowait; guests are in user.
    Some((fields.iter().take(3).sum::<f64>() + fields.get(5..7)?.iter().sum::<f64>()) / TICKS_PER_S)
}

/// Processor time of this process and of its children that have ended.
fn own_s() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    fields.split_ascii_whitespace().skip(11).take(4).flat_map(str::parse::<f64>).sum::<f64>() / TICKS_PER_S
}

/// Processor time of children that have ended, in microseconds; to be read before and after one.
pub(crate) fn children_us() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: f64 = fields.split_ascii_whitespace().skip(13).take(2).flat_map(str::parse::<f64>).sum();
    ticks * 1e6 / TICKS_PER_S
}
