#![expect(unsafe_code, reason = "a message header is all zeroes but for two lengths")]
//! What the kernel writes into a receive buffer, taken apart.
//!
//! ```text
//! 0   16              44                 156
//! +---+---------------+------------------+---------
//! |out| sender's addr | control messages | payload
//! +---+---------------+------------------+---------
//! ```
//! `out` is `io_uring_recvmsg_out`; the address is a `sockaddr_in` or `sockaddr_in6`, padded to the longer; the control
//! messages are the receive stamp (`SCM_TIMESTAMPING`, three `timespec`, the first is the software stamp), the socket's
//! drop counter (`SO_RXQ_OVFL`, a `u32`, only once something was dropped) and, where several datagrams came as one, the
//! length of each but the last (`UDP_GRO`, an `int`).
//!
//! **Why** by hand and on bytes: nothing here needs alignment or trust, and a control message cut short is ignored.
//! **Limits**: the lengths above. **Not here**: buffers (`memory`). Source: recvmsg(2), cmsg(3), socket(7).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use io_uring::types::RecvMsgOut;

use crate::engine::clock;
use crate::engine::net::Address;
use crate::protocol::Timestamp;

const HEADER: usize = 16;
const CONTROL_HEADER: usize = 16;
const STAMP: usize = 48;
const DROPS_PADDED: usize = 8;
const SEGMENT_PADDED: usize = 8;
const CONTROL: usize = 3 * CONTROL_HEADER + STAMP + DROPS_PADDED + SEGMENT_PADDED;

const _: () = assert!(CONTROL_HEADER == size_of::<libc::cmsghdr>() && STAMP == 3 * size_of::<libc::timespec>());
const _: () = assert!(HEADER + Address::SIZE_MAX + CONTROL == 156);

/// The lengths of address and control data asked of the kernel. Boxed: the kernel reads it whenever a receive is armed.
#[derive(Debug)]
pub(super) struct Shape(Box<libc::msghdr>);

// SAFETY: its pointers are null.
unsafe impl Send for Shape {}

/// A buffer taken apart.
#[derive(Debug)]
pub(super) struct Message<'a> {
    pub(super) from: SocketAddr,
    pub(super) stamp: Option<Timestamp>,
    /// The socket's drop counter, if anything was ever dropped.
    pub(super) drops: Option<u32>,
    pub(super) truncated: bool,
    /// One datagram, or several of `segment` bytes, the last perhaps shorter.
    pub(super) data: &'a [u8],
    pub(super) segment: usize,
}

impl Shape {
    pub(super) fn new() -> Self {
        // SAFETY: all zeroes is a valid message header.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_namelen = libc::socklen_t::try_from(Address::SIZE_MAX).unwrap_or(0);
        header.msg_controllen = CONTROL;
        Self(Box::new(header))
    }

    pub(super) fn as_ptr(&self) -> *const libc::msghdr {
        &raw const *self.0
    }

    /// Length of a buffer for payloads of up to `payload_max`.
    pub(super) fn buffer_len(&self, payload_max: usize) -> usize {
        (HEADER + Address::SIZE_MAX + self.0.msg_controllen + payload_max).next_multiple_of(64)
    }

    /// Takes a buffer apart; `None` if the sender's address makes no sense.
    pub(super) fn parse<'a>(&self, buffer: &'a [u8], payload_max: usize) -> Option<Message<'a>> {
        let out = RecvMsgOut::parse(buffer, &self.0).ok()?;
        let from = address(out.name_data())?;
        let Control { stamp, drops, segment } = control(out.control_data());
        let start = HEADER + Address::SIZE_MAX + self.0.msg_controllen;
        let data = buffer.get(start..)?;
        // A buffer is rounded up, so a payload a little too long may fit it whole; it is too long all the same.
        let segment = segment.unwrap_or(data.len()).min(data.len());
        let truncated = out.is_payload_truncated() || segment > payload_max;
        Some(Message { from, stamp, drops, truncated, data, segment })
    }
}

fn array<const N: usize>(bytes: &[u8], start: usize) -> Option<[u8; N]> {
    bytes.get(start..)?.first_chunk().copied()
}

fn address(name: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(array(name, 0)?));
    let port = u16::from_be_bytes(array(name, 2)?);
    match family {
        libc::AF_INET => Some(SocketAddr::from((Ipv4Addr::from(array::<4>(name, 4)?), port))),
        libc::AF_INET6 => {
            let flow = u32::from_ne_bytes(array(name, 4)?);
            let scope = u32::from_ne_bytes(array(name, 24)?);
            Some(SocketAddrV6::new(Ipv6Addr::from(array::<16>(name, 8)?), port, flow, scope).into())
        }
        _ => None,
    }
}

impl Message<'_> {
    /// The datagrams in it, at least one.
    pub(super) fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        let empty = self.data.is_empty().then_some(self.data);
        empty.into_iter().chain(self.data.chunks(self.segment.max(1)))
    }
}

/// What control messages say.
#[derive(Debug, Default, PartialEq, Eq)]
struct Control {
    stamp: Option<Timestamp>,
    drops: Option<u32>,
    segment: Option<usize>,
}

fn control(mut bytes: &[u8]) -> Control {
    let mut found = Control::default();
    while let Some((len, level, kind)) = control_header(bytes) {
        let Some(body) = bytes.get(CONTROL_HEADER..len) else { break };
        if level == libc::SOL_SOCKET && kind == libc::SCM_TIMESTAMPING {
            found.stamp = software_stamp(body);
        } else if level == libc::SOL_SOCKET && kind == libc::SO_RXQ_OVFL {
            found.drops = array(body, 0).map(u32::from_ne_bytes);
        } else if level == libc::SOL_UDP && kind == libc::UDP_GRO {
            let segment = array(body, 0).map(i32::from_ne_bytes);
            found.segment = segment.and_then(|length| usize::try_from(length).ok()).filter(|length| *length > 0);
        }
        let Some(rest) = bytes.get(len.next_multiple_of(8)..) else { break };
        bytes = rest;
    }
    found
}

fn control_header(bytes: &[u8]) -> Option<(usize, i32, i32)> {
    let len = usize::try_from(u64::from_ne_bytes(array(bytes, 0)?)).ok()?;
    let (level, kind) = (i32::from_ne_bytes(array(bytes, 8)?), i32::from_ne_bytes(array(bytes, 12)?));
    (len >= CONTROL_HEADER).then_some((len, level, kind))
}

fn software_stamp(body: &[u8]) -> Option<Timestamp> {
    let (seconds, nanos) = (i64::from_ne_bytes(array(body, 0)?), i64::from_ne_bytes(array(body, 8)?));
    let stamp = clock::nanoseconds(seconds, nanos);
    (stamp != 0).then(|| Timestamp::new(stamp))
}

#[cfg(test)]
mod tests {
    use super::{Control, Message, Timestamp, address, control};

    fn message(kind: i32, body: &[u8]) -> Vec<u8> {
        let mut bytes = (16 + body.len() as u64).to_ne_bytes().to_vec();
        bytes.extend(libc::SOL_SOCKET.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    #[test]
    fn stamp_and_drops_are_found_in_either_order() {
        let mut stamp = [0; 48];
        stamp[0] = 2;
        stamp[8] = 7;
        let (stamp, drops) =
            (message(libc::SCM_TIMESTAMPING, &stamp), message(libc::SO_RXQ_OVFL, &9_u32.to_ne_bytes()));
        let expected = || Control { stamp: Some(Timestamp::new(2_000_000_007)), drops: Some(9), segment: None };
        assert_eq!(control(&[stamp.clone(), drops.clone()].concat()), expected());
        assert_eq!(control(&[drops, stamp].concat()), expected());
    }

    #[test]
    fn nonsense_gives_nothing_and_no_panic() {
        assert_eq!(control(&[]), Control::default());
        for len in 0..64_u64 {
            let mut bytes = message(libc::SCM_TIMESTAMPING, &[0xff; 20]);
            bytes[..8].copy_from_slice(&len.to_ne_bytes());
            for end in 0..bytes.len() {
                let _read = control(&bytes[..end]);
            }
        }
        assert_eq!(address(&[1, 2, 3]), None);
        assert_eq!(address(&[0; 28]), None);
    }

    #[test]
    fn addresses_of_both_families_are_read() {
        let v4 = [2, 0, 0x1e, 0x61, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(address(&v4), Some("127.0.0.1:7777".parse().expect("an address")));
        let mut v6 = [0_u8; 28];
        v6[..4].copy_from_slice(&[10, 0, 0x1e, 0x61]);
        v6[23] = 1;
        assert_eq!(address(&v6), Some("[::1]:7777".parse().expect("an address")));
    }

    #[test]
    fn merged_datagrams_are_cut_whatever_length_is_claimed() {
        let from = "127.0.0.1:1".parse().expect("an address");
        let lengths = |len: usize, segment: usize| -> Vec<usize> {
            let data = &[7; 10][..len];
            let message = Message { from, stamp: None, drops: None, truncated: false, data, segment };
            message.datagrams().map(<[u8]>::len).collect()
        };
        assert_eq!(lengths(10, 4), [4, 4, 2]);
        assert_eq!(lengths(10, 10), [10]);
        assert_eq!(lengths(0, 0), [0]);
        for claimed in [0_i32, -1, i32::MIN] {
            let mut bytes = message(libc::UDP_GRO, &claimed.to_ne_bytes());
            bytes[8..12].copy_from_slice(&libc::SOL_UDP.to_ne_bytes());
            assert_eq!(control(&bytes).segment, None);
        }
    }
}
