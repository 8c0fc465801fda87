//! The cluster as a client sees it: where its servers listen, and who the client is.
//!
//! **Not here**: reading it from a configuration or a key file (`cli::target`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::protocol::ServerId;
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

impl Cluster {
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
