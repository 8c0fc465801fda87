#![expect(unsafe_code, reason = "submission entries carry pointers into this module's own memory")]
//! The io_uring engine: multishot receive into provided buffers, batched sends, one system call a turn.
//!
//! **Why.** One ring per core, issued by one thread (`SINGLE_ISSUER`), whose completions are worked off only when that
//! thread asks (`DEFER_TASKRUN`): nothing interrupts a turn. A multishot receive stays armed over any number of datagrams
//! and takes its buffers from a ring in shared memory. Sends carry `MSG_DONTWAIT`, so that each is over, copied or failed,
//! when the submit returns, and `CQE_SKIP_SUCCESS`, so that only failures come back: no completion need be awaited before a
//! buffer is used again. Each socket has its own buffers, so that a flood at one costs no other a datagram.
//!
//! Datagrams of one turn to one destination leave as one batch (`outbox`, GSO); what came so is received as one and cut here
//! (`message`, GRO). The ring's descriptor is not registered: the library forgets the registration from one call to the next.
//!
//! **Invariants.** A send buffer is reused only after the kernel took its entry. A receive buffer is the kernel's from
//! `put_back` + `publish` until its completion, and ours from then until `put_back`. The completion ring has room for
//! everything that can be outstanding, so it never overflows. The submission ring has room for every send buffer and every
//! arming.
//!
//! **Limits.** [`UringConfig`]; payloads up to [`PAYLOAD_MAX`]. Linux 6.0 at least, 6.1 for deferred task work (falling back
//! is said by `describe`).
//!
//! **Not here**: sockets (`net`), sleeping protocol (`wake`). Source: io_uring(7), io_uring_setup(2), io_uring_enter(2).

mod memory;
mod message;
mod outbox;
mod setup;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue, types};

use self::memory::BufferRing;
use self::message::Shape;
use self::outbox::Outbox;
pub use self::setup::{
    BUFFERS_MAX, Features, MERGING_BUFFERS_MAX, PAYLOAD_MAX, SOCKETS_MAX, TaskWork, UringConfig, UringError,
};
use super::backend::{Backend, Counters, Io, Received, SendRefused, SocketId};
use super::clock;
use super::net::Socket;
use super::wake::Bell;
use crate::protocol::{LocalTime, Span};

const KIND_SHIFT: u32 = 32;
/// In a send's data: its number of datagrams stands above its socket.
const COUNT_SHIFT: u32 = 16;
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const BELL: u64 = 3;

/// When a receive that the kernel ended with an error is armed again: at once would be a system call every turn.
#[derive(Clone, Copy, Debug, Default)]
struct Retry {
    failures: u32,
    at: LocalTime,
}

impl Retry {
    /// The first pause; each failure without a datagram in between doubles it, to about a second.
    const PAUSE: Span = Span::millis(1);
    const DOUBLINGS_MAX: u32 = 10;

    fn failed(&mut self, now: LocalTime) {
        let pause = Self::PAUSE.get() << self.failures.min(Self::DOUBLINGS_MAX);
        *self = Self { failures: self.failures.saturating_add(1), at: now.plus(Span::new(pause)) };
    }

    /// When it may be armed; `None`: now.
    fn due(&self) -> Option<LocalTime> {
        (self.failures > 0).then_some(self.at)
    }
}

/// One of the core's sockets and what receives for it.
#[derive(Debug)]
struct Port {
    socket: Socket,
    buffers: BufferRing,
    armed: bool,
    retry: Retry,
    /// Buffers were put back and not published yet.
    unpublished: bool,
    /// Datagrams of one turn to one destination leave as one batch, until the kernel refuses such a batch.
    gathers: bool,
    /// The kernel's drop counter as last seen; it wraps.
    drops_seen: u32,
}

/// A [`Backend`] over one io_uring.
pub struct Uring {
    // First, so that it is closed before the memory it uses is given back.
    ring: IoUring,
    ports: Vec<Port>,
    sends: Outbox,
    shape: Shape,
    bell: Bell,
    bell_armed: bool,
    features: Features,
    counters: Counters,
}

impl Uring {
    /// Makes a ring over `sockets` ([`SocketId`]: their places) that `bell`'s wakers wake; all memory is taken here. It works
    /// from [`Backend::start`] on, on the thread that calls that.
    ///
    /// # Errors
    /// [`UringError`]: what the kernel refused, why, and what helps.
    pub fn new(config: UringConfig, sockets: Vec<Socket>, bell: Bell) -> Result<Self, UringError> {
        config.check(sockets.len())?;
        let (ring, features) = setup::open(&config, &sockets, &bell)?;
        let shape = Shape::new();
        let mut ports = Vec::with_capacity(sockets.len());
        for (group, socket) in (0_u16..).zip(sockets) {
            let (count, payload) = config.receive(socket.merges());
            let buffers = BufferRing::new(&ring, group, count, shape.buffer_len(payload))?;
            let gathers = socket.gathers();
            ports.push(Port {
                socket,
                buffers,
                armed: false,
                retry: Retry::default(),
                unpublished: false,
                gathers,
                drops_seen: 0,
            });
        }
        let sends = Outbox::new(config.send_buffers, config.payload_max)?;
        Ok(Self { ring, ports, sends, shape, bell, bell_armed: false, features, counters: Counters::default() })
    }

    /// The sockets, by place.
    pub fn sockets(&self) -> impl Iterator<Item = &Socket> {
        self.ports.iter().map(|port| &port.socket)
    }

    /// What the kernel offers and this ring uses.
    #[must_use]
    pub fn features(&self) -> Features {
        self.features
    }

    /// Queues what must be armed again: receives that ended, and the watch on the bell.
    fn arm(&mut self) {
        for place in 0..self.ports.len() {
            let Port { armed, retry, .. } = self.ports[place];
            if armed || retry.due().is_some_and(|at| clock::monotonic() < at) {
                continue;
            }
            let index = u16::try_from(place).expect("`check` bounds the number of sockets");
            let entry = opcode::RecvMsgMulti::new(types::Fixed(u32::from(index)), self.shape.as_ptr(), index)
                .build()
                .user_data((RECEIVE << KIND_SHIFT) | u64::from(index));
            self.ports[place].armed = self.push(&entry);
        }
        if !self.bell_armed {
            let place = u32::try_from(self.ports.len()).expect("`check` bounds the number of sockets");
            let readable = u32::from(libc::POLLIN.unsigned_abs());
            let entry =
                opcode::PollAdd::new(types::Fixed(place), readable).multi(true).build().user_data(BELL << KIND_SHIFT);
            self.bell_armed = self.push(&entry);
        }
    }

    fn push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: what the entry points to (send buffers, addresses, the shape) lives in `self`, at fixed addresses, and
        // longer than the ring; no send buffer is written before the kernel has taken its entry.
        unsafe { self.ring.submission().push(entry) }.is_ok()
    }

    /// Puts what was queued into the submission ring, which has room for all of it.
    fn queue_sends(&mut self) {
        while let Some((entry, socket, count)) = self.sends.entry() {
            let data = (SEND << KIND_SHIFT) | (u64::from(count) << COUNT_SHIFT) | u64::from(socket.get());
            if !self.push(&entry.flags(squeue::Flags::SKIP_SUCCESS).user_data(data)) {
                break;
            }
            self.sends.entry_queued();
            self.counters.batches += u64::from(count > 1);
            self.counters.batched += if count > 1 { u64::from(count) } else { 0 };
        }
    }

    /// One system call: submits everything queued, works off what is deferred, and sleeps if `until` says so.
    fn enter(&mut self, sleep: Option<Option<Duration>>) {
        self.queue_sends();
        self.counters.enters += 1;
        let result = match sleep {
            None => self.submit(),
            Some(None) => self.ring.submit_and_wait(1),
            Some(Some(limit)) => {
                let limit = types::Timespec::from(limit);
                self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&limit))
            }
        };
        if let Err(error) = result {
            // Time is up, a signal came, or the kernel wants completions reaped or memory back: the next turn goes on.
            let passing = [libc::ETIME, libc::EINTR, libc::EBUSY, libc::EAGAIN, libc::ENOMEM];
            assert!(
                error.raw_os_error().is_some_and(|errno| passing.contains(&errno)),
                "io_uring_enter refused a ring that it accepted at start: {error}"
            );
        }
        if self.ring.submission().is_empty() && !self.sends.waits() {
            // Every queued send was taken, and `MSG_DONTWAIT` let none linger.
            self.sends.release_all();
        }
    }

    fn submit(&mut self) -> io::Result<usize> {
        let queued = u32::try_from(self.ring.submission().len()).unwrap_or(u32::MAX);
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: no argument is passed; submitting without waiting is always allowed.
        unsafe { self.ring.submitter().enter::<libc::sigset_t>(queued, 0, flags, None) }
    }

    /// Whether the kernel holds work back that only an `enter` does.
    fn deferred(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    /// A send of `count` datagrams failed. A batch that the kernel or the device cannot cut is the socket's last.
    fn send_failed(&mut self, place: usize, count: u64, errno: i32) {
        let uncut = [libc::EINVAL, libc::EIO, libc::EOPNOTSUPP, libc::EMSGSIZE];
        if count > 1 && uncut.contains(&errno) {
            self.counters.batches_refused += 1;
            if let Some(port) = self.ports.get_mut(place) {
                port.gathers = false;
            }
        }
        let counters = &mut self.counters;
        counters.send_failed += count;
        match errno {
            libc::ECONNREFUSED => counters.send_failed_refused += count,
            libc::EAGAIN => counters.send_failed_full += count,
            libc::ENOBUFS | libc::ENOMEM => counters.send_failed_no_memory += count,
            libc::EPERM | libc::EACCES => counters.send_failed_forbidden += count,
            libc::EMSGSIZE => counters.send_failed_too_long += count,
            libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ENETDOWN | libc::EADDRNOTAVAIL => {
                counters.send_failed_unreachable += count;
            }
            _ => {}
        }
    }

    /// A completion of a receive; how many datagrams were handed on.
    fn received(&mut self, place: usize, done: &cqueue::Entry, take: &mut dyn FnMut(Received<'_>)) -> usize {
        let Some(port) = self.ports.get_mut(place) else { return 0 };
        if !cqueue::more(done.flags()) {
            port.armed = false;
            self.counters.rearmed += 1;
        }
        let length = match usize::try_from(done.result()) {
            Ok(length) => length,
            Err(_) if done.result() == -libc::ENOBUFS => {
                self.counters.no_buffers += 1;
                return 0;
            }
            Err(_) => {
                self.counters.receive_failed += 1;
                port.retry.failed(clock::monotonic());
                return 0;
            }
        };
        port.retry = Retry::default();
        let Some(buffer) = cqueue::buffer_select(done.flags()) else { return 0 };
        let socket = SocketId::new(u16::try_from(place).expect("`check` bounds the number of sockets"));
        let handed = match self.shape.parse(port.buffers.filled(buffer, length), self.sends.payload_max()) {
            None => {
                self.counters.malformed += 1;
                0
            }
            Some(message) => {
                if let Some(drops) = message.drops {
                    self.counters.kernel_drops += u64::from(drops.wrapping_sub(port.drops_seen));
                    port.drops_seen = drops;
                }
                self.counters.truncated += u64::from(message.truncated);
                let (mut handed, from, stamp) = (0, message.from, message.stamp);
                for data in message.datagrams().take_while(|_| !message.truncated) {
                    self.counters.received += 1;
                    self.counters.received_bytes += u64::try_from(data.len()).unwrap_or(0);
                    self.counters.stamps_missing += u64::from(stamp.is_none());
                    take(Received { socket, from, stamp, data });
                    handed += 1;
                }
                self.counters.merged += if handed > 1 { u64::try_from(handed).unwrap_or(0) } else { 0 };
                handed
            }
        };
        port.buffers.put_back(buffer);
        port.unpublished = true;
        handed
    }

    fn publish(&mut self) {
        for port in self.ports.iter_mut().filter(|port| port.unpublished) {
            port.buffers.publish();
            port.unpublished = false;
        }
    }
}

impl Io for Uring {
    #[inline]
    fn send(
        &mut self,
        socket: SocketId,
        to: SocketAddr,
        fill: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> Result<(), SendRefused> {
        if socket.place() >= self.ports.len() {
            self.counters.send_refused += 1;
            return Err(SendRefused::NoSocket(socket));
        }
        let gather = self.ports[socket.place()].gathers;
        if self.sends.is_full() {
            self.enter(None);
        }
        let Some(length) = self.sends.add(socket, to, gather, fill) else {
            self.counters.send_refused += 1;
            return Err(SendRefused::Full);
        };
        if length == 0 {
            return Ok(());
        }
        self.counters.sent += 1;
        self.counters.sent_bytes += u64::try_from(length).unwrap_or(0);
        Ok(())
    }

    fn payload_max(&self) -> usize {
        self.sends.payload_max()
    }
}

impl Backend for Uring {
    fn start(&mut self) -> io::Result<()> {
        self.ring.submitter().register_enable_rings()?;
        self.arm();
        self.enter(None);
        Ok(())
    }

    #[inline]
    fn fetch(&mut self) {
        if self.ring.completion().is_empty() && self.deferred() {
            self.arm();
            self.enter(None);
        }
    }

    fn receive(&mut self, max: usize, take: &mut dyn FnMut(Received<'_>)) -> usize {
        self.bell.hear();
        let mut handed = 0;
        while handed < max {
            let Some(done) = self.ring.completion().next() else { break };
            let place = usize::from(u16::try_from(done.user_data() & u64::from(u16::MAX)).unwrap_or(u16::MAX));
            let count = (done.user_data() >> COUNT_SHIFT) & u64::from(u16::MAX);
            match done.user_data() >> KIND_SHIFT {
                RECEIVE => handed += self.received(place, &done, take),
                SEND => self.send_failed(place, count, -done.result()),
                _ => {
                    self.counters.rung += 1;
                    self.bell_armed &= cqueue::more(done.flags());
                }
            }
        }
        self.publish();
        handed
    }

    #[inline]
    fn more(&mut self) -> bool {
        !self.ring.completion().is_empty() || self.deferred()
    }

    #[inline]
    fn flush(&mut self) {
        self.arm();
        if self.sends.waits() || !self.ring.submission().is_empty() || self.deferred() {
            self.enter(None);
        }
    }

    fn wait(&mut self, until: Option<LocalTime>) {
        self.arm();
        let retries = self.ports.iter().filter(|port| !port.armed).filter_map(|port| port.retry.due());
        let until = retries.chain(until).min();
        let limit = match until {
            None | Some(LocalTime::NEVER) => None,
            Some(until) => {
                let left = until.since(clock::monotonic()).get();
                if left == 0 {
                    return self.flush();
                }
                Some(Duration::from_nanos(left))
            }
        };
        if !self.bell.fall_asleep() {
            self.counters.rung += 1;
            return self.flush();
        }
        self.counters.waits += 1;
        self.enter(Some(limit));
        self.bell.hear();
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn describe(&self) -> String {
        let mut text = self.features.to_string();
        let (all, gathering) = (self.ports.len(), self.ports.iter().filter(|port| port.gathers).count());
        text += match gathering {
            _ if all == 0 => "",
            0 => ", no gso (off or refused by kernel or device: datagrams leave singly)",
            _ if gathering == all => " gso",
            _ => " gso (on some sockets off or refused: there datagrams leave singly)",
        };
        if self.ports.iter().any(|port| port.socket.merges()) {
            text += " gro";
        }
        text
    }
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uring").field("features", &self.features).field("ports", &self.ports).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{Retry, Uring, UringConfig};
    use crate::engine::backend::{Backend, Io, SocketId};
    use crate::engine::clock;
    use crate::engine::net::{Socket, SocketOptions};
    use crate::engine::wake::Bell;
    use crate::protocol::{LocalTime, Span};
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    fn socket() -> Socket {
        Socket::bind("127.0.0.1:0".parse().expect("an address"), SocketOptions::default()).expect("a port")
    }

    fn started(socket: Socket) -> Uring {
        let bell = Bell::new().expect("an event descriptor");
        let mut uring = Uring::new(UringConfig::default(), vec![socket], bell).expect("a ring");
        uring.start().expect("the ring starts");
        uring
    }

    fn turns(uring: &mut Uring, mut done: impl FnMut(&Uring) -> bool) {
        let end = clock::monotonic().plus(Span::secs(10));
        while !done(uring) {
            assert!(clock::monotonic() < end, "nothing more after ten seconds: {:?}", uring.counters());
            uring.wait(Some(clock::monotonic().plus(Span::millis(50))));
            uring.receive(64, &mut |_| ());
        }
    }

    #[test]
    fn batch_that_cannot_be_cut_is_counted_and_the_socket_sends_singly_from_then_on() {
        let socket = socket();
        // Without a checksum to compute per segment the kernel cuts nothing: EINVAL, as from a device that cannot.
        let (on, length) = (1_i32, libc::socklen_t::try_from(size_of::<i32>()).expect("four"));
        let fd = socket.as_raw_fd();
        // SAFETY: the value is an int and its length is given.
        let status =
            unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_NO_CHECK, (&raw const on).cast(), length) };
        assert_eq!(status, 0);
        let mut uring = started(socket);
        assert!(uring.describe().contains(" gso"), "{}", uring.describe());
        let peer = UdpSocket::bind("127.0.0.1:0").expect("a port");
        peer.set_read_timeout(Some(std::time::Duration::from_secs(10))).expect("a timeout");
        let to = peer.local_addr().expect("an address");
        let send = |uring: &mut Uring| {
            (0..5).for_each(|_| uring.send_bytes(SocketId::new(0), to, b"datagram").expect("a buffer"));
            uring.flush();
        };
        send(&mut uring);
        turns(&mut uring, |uring| uring.counters().send_failed > 0);
        assert_eq!((uring.counters().batches_refused, uring.counters().send_failed), (1, 5));
        assert!(uring.describe().contains("no gso"), "{}", uring.describe());
        send(&mut uring);
        let mut buffer = [0; 16];
        (0..5).for_each(|_| assert_eq!(peer.recv(&mut buffer).expect("a datagram"), 8));
        assert_eq!((uring.counters().batches, uring.counters().send_failed), (1, 5));
    }

    #[test]
    fn receive_that_cannot_work_is_tried_again_at_growing_distance_only() {
        let socket = socket();
        let nothing = std::fs::File::open("/dev/null").expect("a file that is no socket");
        // SAFETY: both descriptors are open and owned here; the first now means a file that cannot receive.
        let status = unsafe { libc::dup2(nothing.as_raw_fd(), socket.as_raw_fd()) };
        assert!(status >= 0);
        let mut uring = started(socket);
        let begun = clock::monotonic();
        turns(&mut uring, |uring| uring.counters().receive_failed >= 6);
        // 1 + 2 + 4 + 8 + 16 ms lie between six failures.
        assert!(clock::monotonic().since(begun) >= Span::millis(31));
        let failed = uring.counters().receive_failed;
        (0..100).for_each(|_| uring.flush());
        assert!(uring.counters().receive_failed <= failed + 1, "turns do not bring failures: {:?}", uring.counters());
    }

    #[test]
    fn pauses_double_up_to_about_a_second() {
        let (mut retry, now) = (Retry::default(), LocalTime::new(5));
        assert_eq!(retry.due(), None);
        for failures in 0..40_u32 {
            retry.failed(now);
            assert_eq!(retry.due(), Some(now.plus(Span::millis(1 << failures.min(10)))));
        }
    }
}
