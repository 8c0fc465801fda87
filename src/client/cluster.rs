//! The cluster as a client sees it: where its servers listen, and who the client is.
//!
//! **Not here**: reading it from a configuration or a key file (`cli::target`).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::protocol::{Refusal, ServerId};
use crate::wire::auth::PrincipalKey;

/// Servers' client addresses in the order of their ids, and a principal.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Where each server listens for clients; server 1 first.
    pub servers: Vec<SocketAddr>,
    /// The principal's name.
    pub name: String,
    /// Its key.
    pub key: PrincipalKey,
    /// Longest datagram to send, in bytes of UDP payload.
    pub payload_max: usize,
}

/// What each server asked for a session said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said(Vec<(SocketAddr, Option<Refusal>)>);

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (address, said)) in self.0.iter().enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            write!(f, "{comma}server {} ({address}) says {}", place + 1, said.map_or("nothing", Refusal::name))?;
        }
        Ok(())
    }
}

impl Cluster {
    /// What the servers said, server 1 first.
    #[must_use]
    pub fn said(&self, refusals: &[Option<Refusal>]) -> Said {
        Said(self.servers.iter().copied().zip(refusals.iter().copied()).collect())
    }

    /// The server that listens at this address.
    #[must_use]
    pub fn server_at(&self, address: SocketAddr) -> Option<ServerId> {
        self.servers.iter().position(|server| *server == address).and_then(ServerId::from_place)
    }

    /// The address to bind for talking to `server`: of the same family, on the loopback if it is there.
    #[must_use]
    pub const fn local_for(server: SocketAddr) -> SocketAddr {
        let host = match server.ip() {
            IpAddr::V4(ip) if ip.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(ip) if ip.is_loopback() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        SocketAddr::new(host, 0)
    }
}
