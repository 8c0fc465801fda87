//! `ordain init`: a directory with the configuration of a new cluster and its key.
//!
//! **Invariants.** Nothing is overwritten; what is written passes `ordain config check`.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::keygen;
use super::target::number;
use super::{Error, out};
use crate::server::config::Config;
use crate::server::value::Kind;
use crate::server::{keys, template};

const EXAMPLES: &str = "Examples:
  ordain init d                                   three servers on this host, ports 7100 to 7105
  ordain init d --hosts 10.0.0.1,10.0.0.2,10.0.0.3   one server on each host, ports 7100 and 7101";

/// What `ordain init` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The directory to write ordain.toml and cluster.key to; made if it is not there
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// How many servers, all on this host's loopback: 1, 3, 5 or 7
    #[arg(long, value_name = "N", default_value_t = 3, conflicts_with = "hosts", value_parser = |text: &str| number(text, 0..=u8::MAX))]
    servers: u8,
    /// The servers' hosts, with commas between them: addresses, or names of them
    #[arg(long, value_name = "A,B,C", value_delimiter = ',')]
    hosts: Option<Vec<String>>,
    /// First port; a server uses two, and servers of one host follow each other
    #[arg(long, value_name = "PORT", default_value_t = 7100, value_parser = |text: &str| number(text, 1..=u16::MAX))]
    base_port: u16,
}

/// Why there is no new cluster.
#[derive(Debug, thiserror::Error)]
enum InitError {
    #[error("{got} servers: allowed is 1, 3, 5 or 7; a cluster of n goes on while more than half are up")]
    Servers { got: usize },
    #[error("--hosts: '{host}' is not allowed; write addresses, or names of them, with commas between and no spaces")]
    Host { host: String },
    #[error("--base-port {base_port}: the servers need ports up to {last}; choose 1 to {most}")]
    Ports { base_port: u16, last: u32, most: u32 },
    #[error("{}: exists already and is not overwritten; remove it first, or choose another directory", .0.display())]
    Exists(PathBuf),
}

/// Writes the files.
///
/// # Errors
/// If one is there already, cannot be written, or the cluster asked for cannot be.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let loopback = || vec!["127.0.0.1".to_owned(); usize::from(args.servers)];
    let hosts = args.hosts.clone().unwrap_or_else(loopback);
    let set: &[(&str, &str)] = if args.hosts.is_none() { &[("ledger.profile", "laptop")] } else { &[] };
    let text = text(&hosts, args.base_port, set)?;
    let (config, key) = (args.dir.join("ordain.toml"), args.dir.join("cluster.key"));
    Config::parse(&config, &text, &[])?;
    if let Some(there) = [&config, &key].into_iter().find(|path| path.symlink_metadata().is_ok()) {
        return Err(Error::usage(InitError::Exists(there.clone())));
    }
    fs::create_dir_all(&args.dir).map_err(|error| Error::file("DIR", &args.dir, &error))?;
    keys::generate()
        .and_then(|new| keys::create_cluster(&key, &new))
        .map_err(|error| keygen::created("DIR", &key, error))?;
    write_new(&config, &text).map_err(|error| Error::file("DIR", &config, &error))?;
    out::line(config.display())?;
    out::line(key.display())?;
    match args.hosts {
        None => out::note(format_args!("Start each server N with: ordain serve --config {} --id N", config.display())),
        Some(_) => out::note(format_args!(
            "Copy both files to every host, the key with mode 600, and run there: ordain serve --config {}",
            config.display()
        )),
    }
    Ok(ExitCode::SUCCESS)
}

/// The file's text.
fn text(hosts: &[String], base_port: u16, set: &[(&str, &str)]) -> Result<String, Error> {
    if !matches!(hosts.len(), 1 | 3 | 5 | 7) {
        return Err(Error::usage(InitError::Servers { got: hosts.len() }));
    }
    if let Some(host) = hosts.iter().find(|host| Kind::Host.parse(host).is_none()) {
        return Err(Error::usage(InitError::Host { host: host.clone() }));
    }
    let entries = template::entries(hosts, base_port).ok_or_else(|| {
        let on_one = |host: &String| hosts.iter().filter(|other| *other == host).count();
        let most = hosts.iter().map(on_one).max().and_then(|servers| u32::try_from(servers).ok()).unwrap_or(1);
        let span = most * u32::from(template::PORTS);
        let most = u32::from(u16::MAX) + 1 - span;
        Error::usage(InitError::Ports { base_port, last: u32::from(base_port) + span - 1, most })
    })?;
    Ok(template::render(&entries, set))
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
