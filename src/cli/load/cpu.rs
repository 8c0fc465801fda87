//! Processor time of the generator and of the servers on this host, as the kernel accounts it.
//!
//! **Why by socket.** A server is found by who holds the socket its clients talk to, so that no pid need be told; servers
//! on other hosts, or of other users, are simply not known.
//! **Limits.** Ticks of 10 ms. **Not here**: what they did in that time.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};

/// Ticks a second in `/proc`: part of the kernel's interface.
const TICKS_PER_S: f64 = 100.0;

/// Processes to be watched, by the name they have in a report.
#[derive(Debug)]
pub struct Processes(Vec<(String, String)>);

impl Processes {
    /// This process and those that hold the servers' sockets.
    #[must_use]
    pub fn find(servers: &[SocketAddr]) -> Self {
        let mut found = vec![("generator".to_owned(), "self".to_owned())];
        let holders = holders(&servers.iter().filter_map(inode).collect::<Vec<_>>());
        for (id, server) in (1..).zip(servers) {
            if let Some(pid) = inode(server).and_then(|inode| holders.get(&inode).cloned()) {
                found.push((format!("server_{id}"), pid));
            }
        }
        Self(found)
    }

    /// Seconds each has used since its start.
    #[must_use]
    pub fn seconds(&self) -> BTreeMap<String, f64> {
        self.0.iter().filter_map(|(name, pid)| Some((name.clone(), seconds(pid)?))).collect()
    }

    /// Seconds each has used since `before`.
    #[must_use]
    pub fn since(&self, before: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
        let mut now = self.seconds();
        now.retain(|name, _| before.contains_key(name));
        for (name, seconds) in &mut now {
            *seconds = ((*seconds - before[name]) * TICKS_PER_S).round() / TICKS_PER_S;
        }
        now
    }
}

/// User and system time of a process.
fn seconds(pid: &str) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything; what follows its last parenthesis is plain.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_S)
}

/// The inode of the UDP socket bound to this address on this host.
fn inode(address: &SocketAddr) -> Option<String> {
    let IpAddr::V4(ip) = address.ip() else { return None };
    let table = fs::read_to_string("/proc/net/udp").ok()?;
    let exact = format!("{:08X}:{:04X}", u32::from_ne_bytes(ip.octets()), address.port());
    let any = format!("00000000:{:04X}", address.port());
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let local = *fields.get(1)?;
        (local == exact || local == any).then(|| fields.get(9).map(|inode| (*inode).to_owned()))?
    })
}

/// Which process holds each of these sockets, as far as this user may see.
fn holders(inodes: &[String]) -> BTreeMap<String, String> {
    let mut holders = BTreeMap::new();
    let entries = |path: String| fs::read_dir(path).into_iter().flatten().flatten();
    for process in entries("/proc".to_owned()) {
        let pid = process.file_name().to_string_lossy().into_owned();
        if inodes.is_empty() || !pid.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        for descriptor in entries(format!("/proc/{pid}/fd")) {
            let Ok(target) = fs::read_link(descriptor.path()) else { continue };
            let target = target.to_string_lossy();
            let socket = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
            if let Some(inode) = inodes.iter().find(|inode| socket == Some(inode.as_str())) {
                holders.insert(inode.clone(), pid.clone());
            }
        }
    }
    holders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holder_of_a_socket_is_found_and_its_time_read() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let processes = Processes::find(&[socket.local_addr().unwrap()]);
        let names: Vec<String> = processes.seconds().into_keys().collect();
        assert_eq!(names, ["generator", "server_1"]);
        assert!(processes.since(&processes.seconds()).values().all(|seconds| *seconds < 0.5));
    }
}
