#![expect(unsafe_code, reason = "socket options that std does not offer")]
//! UDP sockets: made, bound, given their buffers and asked for receive stamps, with errors that say what to do.
//!
//! **Why.** A server that cannot have its port must say which one, why, and what helps, in one line. A socket buffer that
//! the kernel silently cut must be noticed before datagrams are lost.
//!
//! **Invariants.** Sockets are nonblocking and close-on-exec. IPv6 sockets take IPv6 only, so that both families can have
//! the same port. `IP_MTU_DISCOVER` is left as the system has it.
//! **Limits**: buffers of at most 2 GiB. **Not here**: receiving and sending (`uring`).

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// What a socket is to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// Receive buffer to ask for, in bytes of payload and overhead; `None`: the system's default.
    pub receive_bytes: Option<usize>,
    /// Send buffer to ask for; `None`: the system's default.
    pub send_bytes: Option<usize>,
    /// Let several sockets share the address, each getting a part of the senders (SO_REUSEPORT).
    pub shared_port: bool,
    /// Whether several datagrams pass the stack as one.
    pub coalesce: Coalesce,
}

/// Whether several datagrams to one destination pass the network stack as one (UDP GSO and GRO).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coalesce {
    /// Never.
    Off,
    /// When sent: what a turn queues for one destination. For a receiver that has no 4 MiB to spare.
    Send,
    /// When sent, and what one sender sent so is received as one and cut here. Takes receive buffers of 64 KiB. The default:
    /// on a loopback, two vCPUs under foreign load, 22 datagrams of 1400 bytes a turn cost 6.8 us each to send and receive
    /// without, 3.5 gathered, 0.9 gathered and merged; pairs 9.7, 8.7 and 6.8; datagrams that are never gathered cost the same.
    #[default]
    Both,
}

/// What was asked of the kernel for a buffer and what it gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Bytes asked for, if any.
    pub asked: Option<usize>,
    /// Bytes given (the kernel's figure halved: it doubles what is asked, for its own overhead).
    pub got: usize,
}

impl Granted {
    /// Whether less was given than asked.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.asked.is_some_and(|asked| self.got < asked)
    }
}

/// A buffer smaller than asked for: a warning for the log, with its mend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    local: SocketAddr,
    sysctl: &'static str,
    granted: Granted,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (asked, got) = (self.granted.asked.unwrap_or(0), self.granted.got);
        write!(
            f,
            "udp {}: asked for a buffer of {asked} bytes, got {got}; bursts may be lost: sysctl -w {}={asked}, or \
             give the process CAP_NET_ADMIN",
            self.local, self.sysctl
        )
    }
}

/// Why a socket could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Somebody has the port.
    #[error(
        "cannot bind udp {address}: the port is in use, perhaps by another server or an earlier one still running; \
         `ss -ulpn sport = :{port}` shows who: stop it or choose another port",
        port = address.port()
    )]
    InUse {
        /// The address asked for.
        address: SocketAddr,
    },
    /// The address is not this host's.
    #[error("cannot bind udp {address}: this host has no such address; `ip addr` lists those it has")]
    NotHere {
        /// The address asked for.
        address: SocketAddr,
    },
    /// Not allowed.
    #[error(
        "cannot bind udp {address}: not allowed; ports below 1024 need CAP_NET_BIND_SERVICE (in a unit: \
         AmbientCapabilities=CAP_NET_BIND_SERVICE), or choose a port above"
    )]
    Forbidden {
        /// The address asked for.
        address: SocketAddr,
    },
    /// Too many descriptors.
    #[error("cannot make a socket for udp {address}: too many open files; raise `ulimit -n` or LimitNOFILE=")]
    TooManyFiles {
        /// The address asked for.
        address: SocketAddr,
    },
    /// The family is switched off.
    #[error(
        "cannot make a socket for udp {address}: the system does not offer this address family; use the other (IPv4 or IPv6)"
    )]
    NoFamily {
        /// The address asked for.
        address: SocketAddr,
    },
    /// Anything else.
    #[error("cannot {step} udp {address}: {cause}")]
    Other {
        /// What was being done.
        step: &'static str,
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        cause: io::Error,
    },
}

/// A bound, nonblocking UDP socket.
#[derive(Debug)]
pub struct Socket {
    socket: UdpSocket,
    local: SocketAddr,
    receive: Granted,
    send: Granted,
    stamps: bool,
    gathers: bool,
    merges: bool,
}

impl Socket {
    /// Makes a socket at `address` (port 0: one the system chooses).
    ///
    /// # Errors
    /// [`SocketError`]: what failed, why and what helps.
    pub fn bind(address: SocketAddr, options: SocketOptions) -> Result<Self, SocketError> {
        let other = |step| move |cause| SocketError::Other { step, address, cause };
        let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let fd = open(family).map_err(|cause| refusal("make a socket for", address, cause))?;
        if address.is_ipv6() {
            set(&fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1).map_err(other("set up"))?;
        }
        if options.shared_port {
            set(&fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1).map_err(other("share the port of"))?;
        }
        let receive = buffer(&fd, options.receive_bytes, [libc::SO_RCVBUFFORCE, libc::SO_RCVBUF])
            .map_err(other("size the receive buffer of"))?;
        let send = buffer(&fd, options.send_bytes, [libc::SO_SNDBUFFORCE, libc::SO_SNDBUF])
            .map_err(other("size the send buffer of"))?;
        set(&fd, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1).map_err(other("count drops of"))?;
        let stamping = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
        let stamping = libc::c_int::try_from(stamping).unwrap_or(0);
        let stamps = set(&fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, stamping).is_ok();
        // No segment size for all sends: asked only to learn whether this kernel (Linux 4.18) takes one with a send.
        let gathers = options.coalesce != Coalesce::Off && set(&fd, libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok();
        let merges = options.coalesce == Coalesce::Both && set(&fd, libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
        bind(&fd, address).map_err(|cause| refusal("bind", address, cause))?;
        let socket = UdpSocket::from(fd);
        let local = socket.local_addr().map_err(other("read the address of"))?;
        Ok(Self { socket, local, receive, send, stamps, gathers, merges })
    }

    /// The address, with the port the system chose if it was asked to.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The receive buffer.
    #[must_use]
    pub fn receive_buffer(&self) -> Granted {
        self.receive
    }

    /// The send buffer.
    #[must_use]
    pub fn send_buffer(&self) -> Granted {
        self.send
    }

    /// Whether the kernel stamps what is received.
    #[must_use]
    pub fn stamps(&self) -> bool {
        self.stamps
    }

    /// Whether several datagrams can be sent as one, as far as the kernel knows before a device was asked.
    #[must_use]
    pub fn gathers(&self) -> bool {
        self.gathers
    }

    /// Whether several datagrams of one sender can be received as one.
    #[must_use]
    pub fn merges(&self) -> bool {
        self.merges
    }

    /// Warnings for the log: buffers that are smaller than asked.
    pub fn shortages(&self) -> impl Iterator<Item = Shortage> + use<> {
        let local = self.local;
        [("net.core.rmem_max", self.receive), ("net.core.wmem_max", self.send)]
            .into_iter()
            .filter(|(_, granted)| granted.is_short())
            .map(move |(sysctl, granted)| Shortage { local, sysctl, granted })
    }

    /// The plain socket, for tests and tools that want to read and write it themselves.
    #[must_use]
    pub fn plain(&self) -> &UdpSocket {
        &self.socket
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

fn refusal(step: &'static str, address: SocketAddr, cause: io::Error) -> SocketError {
    match cause.raw_os_error() {
        Some(libc::EADDRINUSE) => SocketError::InUse { address },
        Some(libc::EADDRNOTAVAIL) => SocketError::NotHere { address },
        Some(libc::EACCES | libc::EPERM) => SocketError::Forbidden { address },
        Some(libc::EMFILE | libc::ENFILE) => SocketError::TooManyFiles { address },
        Some(libc::EAFNOSUPPORT) => SocketError::NoFamily { address },
        _ => SocketError::Other { step, address, cause },
    }
}

fn open(family: libc::c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(family, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor just made, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn length_of<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0)
}

fn set(fd: &OwnedFd, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let length = length_of::<libc::c_int>();
    // SAFETY: the value is an int and its length is given.
    let status = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const value).cast(), length) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn ask(fd: &OwnedFd, option: libc::c_int) -> io::Result<libc::c_int> {
    let (mut value, mut length): (libc::c_int, _) = (0, length_of::<libc::c_int>());
    let place = (&raw mut value).cast();
    // SAFETY: the place is an int and its length is given.
    let status = unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, option, place, &raw mut length) };
    if status == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// Asks for a buffer, past the system's limit first (needs CAP_NET_ADMIN), and reads what was given.
fn buffer(fd: &OwnedFd, asked: Option<usize>, [force, plain]: [libc::c_int; 2]) -> io::Result<Granted> {
    if let Some(bytes) = asked {
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX / 2).min(libc::c_int::MAX / 2);
        set(fd, libc::SOL_SOCKET, force, bytes).or_else(|_| set(fd, libc::SOL_SOCKET, plain, bytes))?;
    }
    let got = usize::try_from(ask(fd, plain)?).unwrap_or(0) / 2;
    Ok(Granted { asked, got })
}

fn bind(fd: &OwnedFd, address: SocketAddr) -> io::Result<()> {
    let place = Address::from(address);
    // SAFETY: pointer and length describe one valid socket address.
    let status = unsafe { libc::bind(fd.as_raw_fd(), place.as_ptr(), place.len()) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A socket address as the kernel reads it; big enough for both families.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union Address {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl Address {
    /// Bytes of the larger family.
    pub(crate) const SIZE_MAX: usize = size_of::<libc::sockaddr_in6>();

    pub(crate) fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const *self).cast()
    }

    fn family(&self) -> libc::sa_family_t {
        // SAFETY: the family is the first field of both, and always written.
        unsafe { self.v4.sin_family }
    }

    pub(crate) fn len(&self) -> libc::socklen_t {
        if i32::from(self.family()) == libc::AF_INET {
            length_of::<libc::sockaddr_in>()
        } else {
            length_of::<libc::sockaddr_in6>()
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the two families are 2 and 10")]
impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => Self {
                v4: libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                },
            },
            SocketAddr::V6(v6) => Self {
                v6: libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Socket, SocketError, SocketOptions};
    use std::net::SocketAddr;

    fn any() -> SocketAddr {
        "127.0.0.1:0".parse().expect("an address")
    }

    #[test]
    fn port_in_use_says_which_and_what_helps() {
        let first = Socket::bind(any(), SocketOptions::default()).expect("a port");
        let error = Socket::bind(first.local(), SocketOptions::default()).expect_err("the port is taken");
        assert!(matches!(error, SocketError::InUse { .. }));
        let (text, port) = (error.to_string(), first.local().port());
        assert!(text.contains(&format!("udp 127.0.0.1:{port}")), "{text}");
        assert!(text.contains(&format!("`ss -ulpn sport = :{port}`")), "{text}");
    }

    #[test]
    fn foreign_address_is_named() {
        let error = Socket::bind("192.0.2.1:0".parse().expect("an address"), SocketOptions::default());
        let text = error.expect_err("not this host's").to_string();
        assert!(text.contains("192.0.2.1:0") && text.contains("ip addr"), "{text}");
    }

    #[test]
    fn shared_port_lets_two_in() {
        let options = SocketOptions { shared_port: true, ..SocketOptions::default() };
        let first = Socket::bind(any(), options).expect("a port");
        Socket::bind(first.local(), options).expect("the same port again");
    }

    #[test]
    fn impossible_buffer_is_warned_about_once_with_the_sysctl() {
        let options = SocketOptions { receive_bytes: Some(usize::MAX), ..SocketOptions::default() };
        let socket = Socket::bind(any(), options).expect("a port");
        let warnings: Vec<_> = socket.shortages().map(|shortage| shortage.to_string()).collect();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("net.core.rmem_max"), "{warnings:?}");
    }

    #[test]
    fn modest_buffer_is_given() {
        let options =
            SocketOptions { receive_bytes: Some(64 << 10), send_bytes: Some(64 << 10), ..SocketOptions::default() };
        let socket = Socket::bind(any(), options).expect("a port");
        assert_eq!(socket.shortages().count(), 0);
        assert!(socket.receive_buffer().got >= 64 << 10 && socket.send_buffer().got >= 64 << 10);
    }
}
