//! The servers of a cluster: who listens where, and which of them runs here.
//!
//! **Invariants** of a checked list: 1, 3, 5 or 7 servers, ids 1..n in the order of their places, no address twice.
//! **Not here**: sockets (`engine`).

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::path::Path;

use super::fault::{Fault, Faults, Place};
use super::settings::nearest;
use super::value::{Kind, Value, literal};
use crate::protocol::{SERVERS_MAX, ServerId};

/// Where one server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its place; people see 1..n.
    pub id: ServerId,
    /// Its host: an address, or a name of one.
    pub host: String,
    /// Where the other servers reach it.
    pub peer_port: u16,
    /// Where clients reach it.
    pub client_port: u16,
}

impl Server {
    /// The address the other servers send to.
    ///
    /// # Errors
    /// If the host's name has no address.
    pub fn peer_address(&self) -> io::Result<SocketAddr> {
        resolve(&self.host, self.peer_port)
    }

    /// The address clients send to.
    ///
    /// # Errors
    /// If the host's name has no address.
    pub fn client_address(&self) -> io::Result<SocketAddr> {
        resolve(&self.host, self.client_port)
    }
}

/// First address of a name, IPv4 before IPv6, so that all hosts choose alike.
fn resolve(host: &str, port: u16) -> io::Result<SocketAddr> {
    let mut addresses: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    addresses.first().copied().ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))
}

/// Which server runs here: the one of `id`, or the only one whose address can be bound here.
pub(super) fn whoami(path: &Path, servers: &[Server], id: Option<u8>) -> Result<ServerId, Faults> {
    if let Some(id) = id {
        let found = servers.iter().find(|server| server.id.id() == id);
        let missing = || Fault::NoSuchId { path: path.to_owned(), id, servers: servers.len() };
        return Ok(found.map(|server| server.id).ok_or_else(missing)?);
    }
    let mut here = Vec::new();
    for server in servers {
        let address = resolve(&server.host, 0).map_err(|source| Fault::Resolve {
            path: path.to_owned(),
            id: server.id.id(),
            host: server.host.clone(),
            source,
        })?;
        if UdpSocket::bind(address).is_ok() {
            here.push(server.id);
        }
    }
    match here[..] {
        [] => Err(Fault::NotHere(path.to_owned()).into()),
        [id] => Ok(id),
        _ => {
            let ids: Vec<String> = here.iter().map(ToString::to_string).collect();
            Err(Fault::Several { path: path.to_owned(), ids: ids.join(", ") }.into())
        }
    }
}

const KEYS: [(&str, Kind); 4] = [
    ("id", Kind::Count { min: 1, max: SERVERS_MAX as u64, unit: "(server)" }),
    ("host", Kind::Host),
    ("peer_port", Kind::Count { min: 1, max: 65_535, unit: "(port)" }),
    ("client_port", Kind::Count { min: 1, max: 65_535, unit: "(port)" }),
];

/// One entry as written.
struct Entry {
    place: Place,
    /// In the order of [`KEYS`].
    values: [Option<Value>; KEYS.len()],
    /// Whether a value was there but wrong, so that its absence is no second fault.
    wrong: bool,
}

/// One key of an entry: its name, its text (or the type it has instead), and where it is.
pub(super) type ServerKey = (String, Result<String, &'static str>, Place);

/// The entries as written, before they are checked.
#[derive(Default)]
pub(super) struct ServerRows(Vec<Entry>);

impl ServerRows {
    /// Takes one `[[server]]`.
    pub(super) fn add(&mut self, place: Place, keys: Vec<ServerKey>, faults: &mut Faults) {
        let mut entry = Entry { place, values: [const { None }; KEYS.len()], wrong: false };
        for (name, text, place) in keys {
            let full = format!("server.{name}");
            let Some((index, (_, kind))) = KEYS.iter().enumerate().find(|(_, (key, _))| *key == name) else {
                let nearest = nearest(&name, KEYS.iter().map(|(key, _)| *key)).map(|key| format!("server.{key}"));
                faults.push(Fault::UnknownKey { place, key: full, nearest });
                continue;
            };
            match text.map(|text| (kind.parse(&text), text)) {
                Ok((Some(value), _)) => entry.values[index] = Some(value),
                Ok((None, text)) => {
                    entry.wrong = true;
                    faults.push(wrong_value(place, full, &text, kind));
                }
                Err(found) => {
                    entry.wrong = true;
                    faults.push(Fault::Shape { place, key: full, found, expected: kind.allowed() });
                }
            }
        }
        self.0.push(entry);
    }

    /// Takes `--set server.N.key=value`, `rest` being `N.key`.
    pub(super) fn set(&mut self, rest: &str, text: &str, faults: &mut Faults) {
        let full = format!("server.{rest}");
        let (id, name) = rest.split_once('.').unwrap_or((rest, ""));
        let key = KEYS.iter().enumerate().skip(1).find(|(_, (key, _))| *key == name);
        let number = id.parse().ok().map(Value::Number);
        let entry = self.0.iter_mut().find(|entry| number.is_some() && entry.values[0] == number);
        let (Some((index, (_, kind))), Some(entry)) = (key, entry) else {
            let nearest = nearest(name, KEYS.iter().skip(1).map(|(key, _)| *key)).map(|key| format!("server.N.{key}"));
            faults.push(Fault::UnknownKey { place: Place::Set, key: full, nearest });
            return;
        };
        match kind.parse(text) {
            Some(value) => entry.values[index] = Some(value),
            None => faults.push(wrong_value(Place::Set, full, text, kind)),
        }
    }

    /// The checked list, by place. Where something is wrong, `faults` has it and the list means nothing.
    pub(super) fn check(self, path: &Path, faults: &mut Faults) -> Vec<Server> {
        let count = self.0.len();
        if !matches!(count, 1 | 3 | 5 | 7) {
            faults.push(Fault::ServerCount { path: path.to_owned(), got: count });
        }
        let mut servers: Vec<Server> = Vec::with_capacity(count);
        for entry in self.0 {
            let Some((id, server)) = entry.server(faults) else { continue };
            let twice = servers.iter().any(|other| other.id == server.id);
            if twice || id > u64::try_from(count).unwrap_or(u64::MAX) {
                let problem = if twice { "there twice" } else { "more than there are servers" };
                faults.push(Fault::ServerId { place: entry.place, id, problem, servers: count });
                continue;
            }
            let taken = |port: u16| {
                let of = |other: &Server| other.peer_port == port || other.client_port == port;
                servers.iter().any(|other| other.host == server.host && of(other))
            };
            let ports = [server.peer_port, server.client_port];
            let own_clash = (ports[0] == ports[1]).then_some(ports[0]);
            if let Some(port) = own_clash.or_else(|| ports.into_iter().find(|port| taken(*port))) {
                let (id, host) = (server.id.id(), server.host.clone());
                faults.push(Fault::Port { place: entry.place, id, host, port });
            }
            servers.push(server);
        }
        servers.sort_by_key(|server| server.id);
        servers
    }
}

impl Entry {
    /// The server and its id as written, if everything is there.
    fn server(&self, faults: &mut Faults) -> Option<(u64, Server)> {
        let absent = KEYS.iter().zip(&self.values).find(|(_, value)| value.is_none());
        if let Some(((key, _), _)) = absent {
            if !self.wrong {
                faults.push(Fault::ServerKey { place: self.place.clone(), key });
            }
            return None;
        }
        let [Some(Value::Number(id)), Some(Value::Word(host)), Some(Value::Number(peer)), Some(Value::Number(client))] =
            &self.values
        else {
            return None;
        };
        let server = Server {
            id: ServerId::from_place(usize::try_from(id.checked_sub(1)?).ok()?)?,
            host: host.clone(),
            peer_port: u16::try_from(*peer).ok()?,
            client_port: u16::try_from(*client).ok()?,
        };
        Some((*id, server))
    }
}

fn wrong_value(place: Place, key: String, text: &str, kind: &Kind) -> Fault {
    let mend = "write one that is".to_owned();
    Fault::Value { place, key, value: literal(text), allowed: kind.allowed(), mend }
}
