//! A cluster of real server processes on the loopback, and what they counted when they ended.
//!
//! **Why fresh ones.** Servers tell their counters when they end; a cluster a measurement gives counters of that
//! measurement alone. Starting one takes a few tenths of a second.
//! **Not here**: loading it (`load`).

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;

use ordain::client::cluster::Cluster as Addresses;
use ordain::protocol::Span;
use ordain::server::config::Config;
use ordain::server::keys::{self, Identity, LOCAL};
use ordain::server::template;

use super::Failure;
use super::figures::count;
use super::process::{self, Process};

/// How long servers may take to get ready, and to end.
pub(crate) const PATIENCE: Span = Span::secs(10);

/// Ports nobody uses now, as many in a row as wanted, on the loopback.
pub(crate) fn free_ports(wanted: u16) -> Result<u16, Failure> {
    let start = u16::try_from(std::process::id() % 600)? * 20;
    let bases = (0..500_u16).map(|at| 18_000 + (start + at * 24) % 12_000);
    let free = |base: &u16| (*base..*base + wanted).all(|port| UdpSocket::bind(("127.0.0.1", port)).is_ok());
    let mut bases = bases.filter(free);
    bases.next().ok_or_else(|| "no free UDP ports in a row on 127.0.0.1".into())
}

/// Running servers.
pub(crate) struct Cluster {
    servers: Vec<Process>,
    dir: tempfile::TempDir,
    addresses: Addresses,
}

/// What the servers counted from start to end, all together, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    by_name: BTreeMap<String, u64>,
    /// Servers that ended with something unfinished.
    pub(crate) cut: u64,
}

impl Counts {
    /// One count; 0 if nothing of it happened.
    pub(crate) fn of(&self, name: &str) -> f64 {
        count(self.by_name.get(name).copied().unwrap_or(0))
    }

    fn add(&mut self, log: &str) {
        let counted = log.lines().filter_map(|line| line.split_once("counted: "));
        for pair in counted.flat_map(|(_, rest)| rest.split_ascii_whitespace()) {
            if let Some((name, value)) = pair.split_once('=')
                && let Ok(value) = value.parse::<u64>()
            {
                // Gauges are among them, such as the instance, whose sum means nothing.
                let sum = self.by_name.entry(name.to_owned()).or_insert(0);
                *sum = sum.saturating_add(value);
            }
        }
    }
}

impl Cluster {
    /// `n` servers, ready, with these settings other than the default.
    pub(crate) fn start(n: u8, settings: &[(&str, &str)]) -> Result<Self, Failure> {
        let dir = tempfile::tempdir()?;
        let hosts = vec!["127.0.0.1".to_owned(); usize::from(n)];
        let base = free_ports(template::PORTS * u16::from(n))?;
        let entries = template::entries(&hosts, base).ok_or("no ports")?;
        let path = dir.path().join("ordain.toml");
        fs::write(&path, template::render(&entries, settings))?;
        keys::create_cluster(&dir.path().join("cluster.key"), &keys::generate()?)?;
        let config = Config::load(&path, &[])?;
        let identity = Identity::derive(&config.cluster_key()?, LOCAL)?;
        let servers: Result<Vec<_>, _> = config.servers().iter().map(|server| server.client_address()).collect();
        let addresses = Addresses {
            servers: servers?,
            name: identity.name().to_owned(),
            key: *identity.key(),
            payload_max: config.settings().wire.payload,
        };
        let mut cluster = Self { servers: Vec::new(), dir, addresses };
        for id in 1..=n {
            let mut command = process::command(env!("CARGO_BIN_EXE_ordain"));
            command.args(["serve", "--config"]).arg(&path).args(["--id", &id.to_string()]);
            cluster.servers.push(Process::start(&mut command, &cluster.log(usize::from(id)))?);
        }
        cluster.wait_ready()?;
        Ok(cluster)
    }

    /// Its configuration.
    pub(crate) fn config(&self) -> PathBuf {
        self.dir.path().join("ordain.toml")
    }

    fn log(&self, id: usize) -> PathBuf {
        self.dir.path().join(format!("log-{id}"))
    }

    fn said(&self, id: usize) -> String {
        fs::read_to_string(self.log(id)).unwrap_or_default()
    }

    fn wait_ready(&mut self) -> Result<(), Failure> {
        for id in 1..=self.servers.len() {
            let log = self.log(id);
            let server = &mut self.servers[id - 1];
            let ready = || fs::read_to_string(&log).is_ok_and(|text| text.contains("ready: instance"));
            if !process::wait_for(PATIENCE, || server.ended().is_some() || ready()) || !ready() {
                return Err(format!("server {id} did not get ready; it said: {}", self.said(id)).into());
            }
        }
        Ok(())
    }

    /// Where its clients find it.
    pub(crate) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Its processes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.servers.iter().map(Process::pid).collect()
    }

    /// How the servers move datagrams and wait, in their own words.
    pub(crate) fn engine(&self) -> String {
        let said = self.said(1);
        let line = said.lines().find_map(|line| Some(line[line.find("uring")?..].to_owned()));
        line.unwrap_or_else(|| "unknown".to_owned())
    }

    /// Asks all servers to end, and returns what they counted, even if some could not finish what they held.
    pub(crate) fn end(mut self) -> Result<Counts, Failure> {
        let servers = std::mem::take(&mut self.servers);
        servers.iter().for_each(Process::ask);
        let mut counts = Counts::default();
        for (id, server) in (1..).zip(servers) {
            let status = server.wait(PATIENCE);
            let said = self.said(id);
            if !said.contains("counted: ") {
                return Err(format!("server {id} ended with {status:?}; it said: {said}").into());
            }
            counts.cut += u64::from(!status.is_some_and(|status| status.success()));
            counts.add(&said);
        }
        Ok(counts)
    }
}
