//! corosync's closed process groups over udpu: three daemons, a client at each, on a loopback of their own.
//!
//! **What is compared.** A message of 64 bytes is answered when the sender's own daemon has placed it (agreed delivery):
//! it may be held by one node only. The order is the delivered sequence; there are no numbers, no query, no exactly-once.
//! Daemons are in the real-time class by themselves; their clients are given it too. The token never rests: processor
//! time at low rates is the token's.
//! **How.** `bench/peers/corosync.sh` makes the namespaces, `bench/peers/cpg.c` is the client, built here.

use std::path::Path;
use std::process::{Command, Stdio};

use ordain::protocol::Span;

use crate::support::Failure;
use crate::support::figures::{Figures, Spread};
use crate::support::process::{self, Process};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/bench/peers/corosync.sh");
const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/bench/peers/cpg.c");
/// A run that takes longer than its time and this is ended.
const EXTRA: Span = Span::secs(25);

/// A built client.
pub(super) struct Corosync(tempfile::TempDir);

impl Corosync {
    /// Builds the client and tries a short run, or says why it cannot be.
    pub(super) fn start() -> Result<Self, Failure> {
        let missing = |program: &str| {
            Command::new(program).arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err()
        };
        if missing("corosync") {
            return Err("corosync is not installed: apt-get install corosync libcpg-dev".into());
        }
        let dir = tempfile::tempdir()?;
        let built = Command::new("cc").args(["-O2", "-o"]).arg(dir.path().join("cpg")).args([CLIENT, "-lcpg"]).output();
        let built = built.map_err(|cause| format!("no C compiler: {cause}"))?;
        if !built.status.success() {
            let said = String::from_utf8_lossy(&built.stderr);
            return Err(format!("its client does not build (apt-get install libcpg-dev): {said}").into());
        }
        let corosync = Self(dir);
        corosync.run(16, 0, 0.2)?;
        Ok(corosync)
    }

    /// Its version.
    pub(super) fn version(&self) -> String {
        let said = crate::support::output_of("corosync", &["-v"]);
        said.split('\'').nth(1).unwrap_or("unknown").to_owned()
    }

    /// One run of three nodes: `window` outstanding at each, or, if it is not 0, `rate` a second at each.
    pub(super) fn run(&self, window: u32, rate: u32, seconds: f64) -> Result<Figures, Failure> {
        let dir = self.0.path();
        let mut command = process::command("unshare");
        command.args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", SCRIPT]);
        command.arg(dir).args([window.to_string(), rate.to_string(), seconds.to_string()]);
        let mut run = Process::start(&mut command, &dir.join("log"))?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few seconds")]
        let patience = Span::new(EXTRA.get() + (seconds * 1.25e9) as u64);
        if !process::wait_for(patience, || run.ended().is_some()) {
            return Err("it did not end in time".into());
        }
        let nodes: Result<Vec<_>, _> = (1..=3).map(|node| self.read(node)).collect();
        let nodes = nodes?;
        let of = |name: &str| nodes.iter().filter_map(|node| node[name].as_f64()).collect::<Vec<_>>();
        let ordered = of("own").iter().sum::<f64>().max(1.0);
        let (clients, daemons) = (of("cpu_us").iter().sum::<f64>(), of("daemon_cpu_us").iter().sum::<f64>());
        Ok(Figures::from([
            ("per_s", Spread::of(of("per_s")).median),
            ("p50_us", Spread::of(of("p50_us")).median),
            ("p90_us", Spread::of(of("p90_us")).median),
            ("p99_us", Spread::of(of("p99_us")).median),
            ("client_cpu_us", clients / ordered),
            ("server_cpu_us", daemons / ordered),
            ("cpu_us", (clients + daemons) / ordered),
        ]))
    }

    fn read(&self, node: u8) -> Result<serde_json::Value, Failure> {
        let text = |name: &str| file(self.0.path(), &format!("{name}-{node}"));
        serde_json::from_str(&text("out")).map_err(|_| {
            let log = text("log");
            let last: Vec<&str> = log.lines().rev().take(3).collect();
            format!("node {node} gave no figures: {} {} {}", file(self.0.path(), "log"), text("error"), last.join("; "))
                .into()
        })
    }
}

fn file(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join(name)).unwrap_or_default().trim().to_owned()
}
