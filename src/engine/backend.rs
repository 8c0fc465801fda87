//! What a core asks of the kernel: datagrams in, datagrams out, sleep. One small trait, so that engines can be swapped.
//!
//! **Why.** io_uring is one way to move datagrams, AF_XDP another. Roles see only [`Io`] (sending), the driver of a core
//! only [`Backend`]; neither names an engine. Both can be made into trait objects: a virtual call is a thousandth of what
//! a datagram costs.
//!
//! **Invariants.** [`Io::send`] makes no system call as long as there is room; what it queued leaves with the next
//! [`Backend::flush`] or [`Backend::wait`]. Data handed to a receiver's closure is valid during the call only. No failure
//! of the network is fatal or blocks: it is counted.
//!
//! **Limits**: sockets are given at construction; payloads are at most [`Io::payload_max`].
//! **Not here**: making sockets (`net`), who gets which datagram (`cores`).

use std::fmt;
use std::io;
use std::net::SocketAddr;

use crate::protocol::{LocalTime, Timestamp};
/// What a backend did and what went wrong, since its start.
pub use crate::stats::metrics::IoFigures as Counters;

/// A socket of a core: its place in the list the backend was made with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(u16);

impl SocketId {
    /// The socket at `place` of the backend's list.
    #[must_use]
    pub const fn new(place: u16) -> Self {
        Self(place)
    }
    /// The place in the backend's list.
    #[must_use]
    pub const fn place(self) -> usize {
        self.0 as usize
    }
    /// The place as a number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for SocketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "socket {}", self.0)
    }
}

/// A datagram that came in.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// On which of the core's sockets.
    pub socket: SocketId,
    /// Who sent it, as far as an unauthenticated address tells.
    pub from: SocketAddr,
    /// When the kernel received it (`CLOCK_REALTIME`), where it says so.
    pub stamp: Option<Timestamp>,
    /// The payload, whole: a datagram longer than the buffers is counted and not handed on.
    pub data: &'a [u8],
}

/// Why a datagram was not queued. Counted; the caller may drop it or try again next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendRefused {
    /// Every send buffer is in use and the kernel took none of them.
    #[error("no send buffer is free")]
    Full,
    /// The core has no such socket.
    #[error("{0} is not one of this core's")]
    NoSocket(SocketId),
}

/// What roles may do: send.
pub trait Io {
    /// Queues one datagram. `fill` writes the payload into a buffer of [`Io::payload_max`] bytes and returns its length;
    /// 0 means: nothing after all. It leaves at the end of the turn. `fill` is called at most once.
    ///
    /// # Errors
    /// [`SendRefused`]; counted, and `fill` was not called.
    fn send(
        &mut self,
        socket: SocketId,
        to: SocketAddr,
        fill: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> Result<(), SendRefused>;

    /// Queues `data` as one datagram.
    ///
    /// # Errors
    /// [`SendRefused`]; counted.
    ///
    /// # Panics
    /// If `data` is longer than [`Io::payload_max`].
    fn send_bytes(&mut self, socket: SocketId, to: SocketAddr, data: &[u8]) -> Result<(), SendRefused> {
        self.send(socket, to, &mut |buffer| {
            buffer[..data.len()].copy_from_slice(data);
            data.len()
        })
    }

    /// The longest payload that can be sent or received.
    fn payload_max(&self) -> usize;
}

/// What a core's driver needs.
///
/// A turn is: [`Backend::fetch`], [`Backend::receive`], the roles' turns, then [`Backend::flush`] when there is more to do
/// or [`Backend::wait`] when there is not. Messages pushed to a role before its core's waker rang are seen by the turns
/// that follow the next `receive`.
pub trait Backend: Io + Send {
    /// Begins work on the thread that will do all of it; called once, first.
    ///
    /// # Errors
    /// [`io::Error`] of the kernel, with its cause and mend in the text.
    fn start(&mut self) -> io::Result<()>;

    /// Makes visible what has come in, with a system call only if nothing is visible and the kernel says there is something.
    fn fetch(&mut self);

    /// Hands up to `max` visible datagrams to `take`; returns how many. Those that came merged as one are handed on together,
    /// so that there may be a few dozen more. No system call.
    fn receive(&mut self, max: usize, take: &mut dyn FnMut(Received<'_>)) -> usize;

    /// Whether more has come in than the last `receive` took. No system call.
    fn more(&mut self) -> bool;

    /// Sends what is queued and fetches what has come in; at most one system call, none if there is nothing of either.
    fn flush(&mut self);

    /// Sends what is queued and sleeps, in one system call, until something comes in, the core's waker rings, or the
    /// monotonic clock reaches `until` (`None` or [`LocalTime::NEVER`]: no end). May return early.
    fn wait(&mut self, until: Option<LocalTime>);

    /// What was done and what went wrong so far.
    fn counters(&self) -> &Counters;

    /// The engine really in use, for people: "io_uring multishot defer-taskrun".
    fn describe(&self) -> String;
}
