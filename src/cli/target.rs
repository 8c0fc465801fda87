//! Whom a client command talks to: `--config FILE`, or `--servers HOST:PORT,.. --key FILE`.
//!
//! **Not here**: what is said ([`crate::client`]).

use std::fmt::Display;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use super::{Error, config::load};
use crate::client::cluster::Cluster;
use crate::protocol::{SERVERS_MAX, Span};
use crate::server::config::Config;
use crate::server::keys::{Identity, LOCAL};
use crate::server::value::{Kind, Value};
use crate::wire::PAYLOAD_DEFAULT;

/// The flags.
#[derive(Debug, clap::Args)]
pub struct Target {
    /// The cluster's configuration; speaks as principal `local`, whose key follows from the cluster key
    #[arg(long, value_name = "FILE", required_unless_present = "servers", conflicts_with = "servers")]
    pub config: Option<PathBuf>,
    /// Override a setting of the configuration; may be given several times
    #[arg(long, value_name = "SECTION.KEY=VALUE", requires = "config")]
    pub set: Vec<String>,
    /// The servers' client addresses, all of them, in the order of their ids
    #[arg(long, value_name = "HOST:PORT,...", value_delimiter = ',', requires = "key")]
    pub servers: Vec<String>,
    /// A principal's key file, made by `ordain keygen --client`
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
}

impl Target {
    /// The cluster.
    ///
    /// # Errors
    /// What is wrong with the configuration, the key, or an address.
    pub fn cluster(&self) -> Result<Cluster, Error> {
        self.cluster_and_config().map(|(cluster, _)| cluster)
    }

    /// The cluster, and its configuration if the flags name one.
    ///
    /// # Errors
    /// What is wrong with the configuration, the key, or an address.
    pub fn cluster_and_config(&self) -> Result<(Cluster, Option<Config>), Error> {
        let config = self.config.as_ref().map(|path| load(path, &self.set)).transpose()?;
        let identity = match (&self.key, &config) {
            (Some(path), _) => Identity::read(path)?,
            (None, Some(config)) => Identity::derive(&config.cluster_key()?, LOCAL)?,
            (None, None) => return Err(Error::usage("give --config FILE, or --servers HOST:PORT,... and --key FILE")),
        };
        let servers = match &config {
            Some(config) => config
                .servers()
                .iter()
                .map(|server| server.client_address().map_err(|error| unresolved(&server.host, &error)))
                .collect::<Result<Vec<_>, _>>()?,
            None => self.servers.iter().map(|text| address(text)).collect::<Result<Vec<_>, _>>()?,
        };
        if !matches!(servers.len(), 1 | 3 | 5 | SERVERS_MAX) {
            return Err(Error::usage(format!("--servers: {} addresses; a cluster has 1, 3, 5 or 7", servers.len())));
        }
        let payload_max = config.as_ref().map_or(PAYLOAD_DEFAULT, |config| config.settings().wire.payload);
        Ok((Cluster { servers, name: identity.name().to_owned(), key: *identity.key(), payload_max }, config))
    }
}

fn address(text: &str) -> Result<SocketAddr, Error> {
    let mut found: Vec<SocketAddr> = text.to_socket_addrs().map_err(|error| unresolved(text, &error))?.collect();
    found.sort_by_key(SocketAddr::is_ipv6);
    found.first().copied().ok_or_else(|| Error::usage(format!("--servers: '{text}' has no address")))
}

fn unresolved(host: &str, error: &std::io::Error) -> Error {
    Error::usage(format!("server '{host}': {error}: give an address, or a name that this host can resolve"))
}

/// Reads a duration of a flag: a number with `ns`, `us`, `ms`, `s` or `min`.
///
/// # Errors
/// What is allowed.
pub fn span(text: &str) -> Result<Span, String> {
    let kind = Kind::Duration { min: 0, max: 86_400_000_000_000 };
    match kind.parse(text) {
        Some(Value::Number(ns)) => Ok(Span::new(ns)),
        _ => Err(format!("allowed: {}", kind.allowed())),
    }
}

/// Reads a whole number of a flag, within a range.
///
/// # Errors
/// What is allowed.
pub fn number<T: FromStr + PartialOrd + Display>(text: &str, allowed: RangeInclusive<T>) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| allowed.contains(number));
    number.ok_or_else(|| format!("allowed: a whole number from {} to {}", allowed.start(), allowed.end()))
}
