//! `ordain demo` as users run it: what becomes of its servers when it does not end by itself, and what it refuses.
#![cfg(test)]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ordain::engine::clock;
use ordain::protocol::Span;

/// How long anything may take.
const PATIENCE: Span = Span::secs(40);

/// A demonstration under way, and its servers; both are killed if a test fails.
struct Demo {
    process: Child,
    servers: Vec<u32>,
}

impl Demo {
    /// Starts one that would last for minutes; returns once its servers are ready.
    fn start(scratch: &Path) -> Self {
        let mut demo = Command::new(env!("CARGO_BIN_EXE_ordain"));
        demo.args(["demo", "--duration", "300s", "--rate", "100", "--json"]).env("TMPDIR", scratch);
        let mut process = demo.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(process.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
        let servers = children(process.id());
        assert!(said.contains("instance formed") && servers.len() == 3, "{said}: {servers:?}");
        Self { process, servers }
    }

    /// Waits until no server is left.
    fn wait_for_servers(&mut self) {
        let deadline = clock::monotonic().plus(PATIENCE);
        while let Some(server) = self.servers.iter().find(|pid| is_running(**pid)) {
            assert!(clock::monotonic() < deadline, "server with pid {server} goes on without its demo");
            std::thread::park_timeout(Duration::from_millis(10));
        }
        self.servers.clear();
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
        for pid in self.servers.iter().filter(|pid| is_running(**pid)) {
            drop(Command::new("kill").args(["-KILL", &pid.to_string()]).status());
        }
    }
}

/// State and parent of a process, while there is one.
fn stat(pid: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

/// One that ended and waits for somebody to ask how is not running.
fn is_running(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| !matches!(state.as_str(), "Z" | "X"))
}

fn children(parent: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|(_, of)| of == parent)).collect()
}

#[test]
fn servers_end_with_a_demo_that_is_killed_or_loses_its_terminal() {
    let scratch = tempfile::tempdir().unwrap();
    let mut killed = Demo::start(scratch.path());
    killed.process.kill().unwrap();
    killed.wait_for_servers();
    let scratch = tempfile::tempdir().unwrap();
    let mut hung_up = Demo::start(scratch.path());
    assert!(Command::new("kill").args(["-HUP", &hung_up.process.id().to_string()]).status().unwrap().success());
    hung_up.wait_for_servers();
    assert_eq!(hung_up.process.wait().unwrap().code(), Some(1), "interrupted");
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "nothing is left");
}

/// Runs what must be refused as usage, with one line that has `part`.
#[track_caller]
fn refused(args: &[&str], part: &str) {
    let output = Command::new(env!("CARGO_BIN_EXE_ordain")).args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.lines().count() == 1 && said.contains(part), "{args:?}: {said}");
}

#[test]
fn demo_refuses_what_it_cannot_show() {
    refused(&["demo", "--duration", "0s"], "in no time");
    refused(&["demo", "--servers", "2"], "1, 3, 5 or 7");
}
