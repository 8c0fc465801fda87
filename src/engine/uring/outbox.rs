#![expect(unsafe_code, reason = "memory the kernel reads: payloads, addresses, message headers")]
//! Datagrams queued for sending, those to one destination gathered into one super-datagram (UDP GSO).
//!
//! **Why.** Most of a datagram's cost is its way through the stack. Handed over as one message with `UDP_SEGMENT`, several
//! to one destination take that way once: half the processor time for twenty of 1400 bytes. What a turn queues for
//! other destinations in between does not matter: a batch is a list of slots, made into one vector when it leaves.
//!
//! **Invariants.** Datagrams to one destination leave in the order queued. A batch's segments are equal, only its last may
//! be shorter: a longer one begins a new batch, a shorter one ends it. One datagram alone is a plain send. Memory is not
//! handed out again before `release_all`; every pointer in an entry points into this, at an address that never changes.
//! **Limits**: [`SEGMENTS_MAX`], [`BYTES_MAX`]; fixed at construction. **Not here**: when the kernel is done with a send,
//! and what it refuses (`super`). Source: udp(7), Linux Documentation/networking/segmentation-offloads.

use std::net::{IpAddr, SocketAddr};
use std::ptr;

use io_uring::{opcode, squeue, types};

use super::memory::{PAGE, Pages};
use super::setup::UringError;
use crate::engine::backend::SocketId;
use crate::engine::net::Address;

/// Most datagrams in one batch: what every kernel with GSO takes.
pub(super) const SEGMENTS_MAX: u16 = 64;
/// Most payload bytes in one batch: the longest UDP payload of IPv4.
pub(super) const BYTES_MAX: usize = 65_507;
/// Destinations remembered at a time, as a power of two; one that is forgotten begins a new batch.
const RECENT_BITS: u32 = 6;
const FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// The control message that names the segments' size.
#[repr(C)]
struct Control {
    header: libc::cmsghdr,
    segment: u16,
    padding: [u8; 6],
}

const CONTROL_LEN: usize = size_of::<libc::cmsghdr>() + size_of::<u16>();
const _: () = assert!(size_of::<Control>() == 24 && CONTROL_LEN == 18);

/// A datagram: its payload's place, and the slot that follows it in its batch.
#[derive(Clone, Copy)]
struct Slot {
    start: usize,
    len: usize,
    next: u16,
}

/// Datagrams for one destination, and what the kernel reads when it takes them.
struct Batch {
    socket: SocketId,
    to: SocketAddr,
    first: u16,
    last: u16,
    count: u16,
    /// Length of the first; the others have it too, but for a shorter last one.
    segment: usize,
    bytes: usize,
    ended: bool,
    address: Address,
    header: libc::msghdr,
    control: Control,
}

impl Batch {
    fn empty() -> Self {
        let nobody = SocketAddr::from(([0, 0, 0, 0], 0));
        let header = libc::cmsghdr { cmsg_len: CONTROL_LEN, cmsg_level: libc::SOL_UDP, cmsg_type: libc::UDP_SEGMENT };
        Self {
            socket: SocketId::new(0),
            to: nobody,
            first: 0,
            last: 0,
            count: 0,
            segment: 0,
            bytes: 0,
            ended: false,
            address: Address::from(nobody),
            header: libc::msghdr {
                msg_name: ptr::null_mut(),
                msg_namelen: 0,
                msg_iov: ptr::null_mut(),
                msg_iovlen: 0,
                msg_control: ptr::null_mut(),
                msg_controllen: 0,
                msg_flags: 0,
            },
            control: Control { header, segment: 0, padding: [0; 6] },
        }
    }

    fn begin(&mut self, socket: SocketId, to: SocketAddr, slot: u16, len: usize) {
        (self.socket, self.to, self.address) = (socket, to, Address::from(to));
        (self.first, self.last, self.count) = (slot, slot, 1);
        (self.segment, self.bytes, self.ended) = (len, len, false);
    }

    fn takes(&self, socket: SocketId, to: SocketAddr, len: usize) -> bool {
        !self.ended
            && self.socket == socket
            && self.to == to
            && len <= self.segment
            && self.count < SEGMENTS_MAX
            && self.bytes + len <= BYTES_MAX
    }
}

/// Payloads and batches of what was queued and not yet taken by the kernel.
pub(super) struct Outbox {
    data: Pages,
    payload_max: usize,
    /// Bytes of `data` in use.
    filled: usize,
    slots: Box<[Slot]>,
    used: u16,
    batches: Box<[Batch]>,
    /// Batches begun, and how many of them are in the submission ring.
    begun: usize,
    submitted: usize,
    /// The last batch of some destinations; whether it still is one's must be looked up there.
    recent: [u16; 1 << RECENT_BITS],
    vectors: Box<[libc::iovec]>,
    vectors_used: usize,
}

// SAFETY: its pointers point into memory it owns, and only the kernel follows them.
unsafe impl Send for Outbox {}

impl Outbox {
    pub(super) fn new(count: u16, payload_max: usize) -> Result<Self, UringError> {
        let bytes = usize::from(count) * payload_max;
        let data = Pages::new(bytes).map_err(|cause| UringError::from_system("send buffers", bytes, cause))?;
        let nothing = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        Ok(Self {
            data,
            payload_max,
            filled: 0,
            slots: vec![Slot { start: 0, len: 0, next: 0 }; count.into()].into_boxed_slice(),
            used: 0,
            batches: (0..count).map(|_| Batch::empty()).collect(),
            begun: 0,
            submitted: 0,
            recent: [0; 1 << RECENT_BITS],
            vectors: vec![nothing; count.into()].into_boxed_slice(),
            vectors_used: 0,
        })
    }

    /// Memory that takes.
    pub(super) fn bytes(count: u16, payload_max: usize) -> usize {
        let each = size_of::<Slot>() + size_of::<Batch>() + size_of::<libc::iovec>();
        (usize::from(count) * payload_max).next_multiple_of(PAGE) + usize::from(count) * each
    }

    pub(super) fn payload_max(&self) -> usize {
        self.payload_max
    }

    pub(super) fn is_full(&self) -> bool {
        usize::from(self.used) == self.slots.len()
    }

    /// Has `fill` write the next datagram and queues it, with others to the same destination if `gather`; its length, 0 if
    /// there is none after all. `None` if every buffer is in use.
    #[inline]
    pub(super) fn add(
        &mut self,
        socket: SocketId,
        to: SocketAddr,
        gather: bool,
        fill: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> Option<usize> {
        if self.is_full() {
            return None;
        }
        let start = self.data.at(self.filled);
        // SAFETY: `payload_max` bytes for each of the slots, of which at most as many are filled as slots are in use, so the
        // buffer lies in `data`; it is initialised (zeroed pages), and no entry the kernel may still read covers it.
        let buffer = unsafe { std::slice::from_raw_parts_mut(start, self.payload_max) };
        let len = fill(buffer);
        assert!(len <= self.payload_max, "a role wrote {len} bytes into a buffer of {}", self.payload_max);
        if len == 0 {
            return Some(0);
        }
        let slot = self.used;
        self.slots[usize::from(slot)] = Slot { start: self.filled, len, next: slot };
        (self.used, self.filled) = (slot + 1, self.filled + len);
        let place = recent_place(socket, to);
        let latest = usize::from(self.recent[place]);
        // Port 0 is refused like a batch that cannot be cut: such an address, which anyone can forge, must not look like one.
        let gather = gather && to.port() != 0;
        if gather && latest >= self.submitted && latest < self.begun && self.batches[latest].takes(socket, to, len) {
            let batch = &mut self.batches[latest];
            self.slots[usize::from(batch.last)].next = slot;
            (batch.last, batch.count, batch.bytes) = (slot, batch.count + 1, batch.bytes + len);
            batch.ended = len < batch.segment;
        } else {
            self.batches[self.begun].begin(socket, to, slot, len);
            self.recent[place] = u16::try_from(self.begun).expect("no more batches than slots, counted in 16 bits");
            self.begun += 1;
        }
        Some(len)
    }

    /// Whether something waits to be put into the submission ring.
    pub(super) fn waits(&self) -> bool {
        self.submitted < self.begun
    }

    /// The next batch's entry, its flags and user data aside, with its socket and number of datagrams. It is given again
    /// until `entry_queued`.
    pub(super) fn entry(&mut self) -> Option<(squeue::Entry, SocketId, u16)> {
        if !self.waits() {
            return None;
        }
        let batch = &mut self.batches[self.submitted];
        let file = types::Fixed(u32::from(batch.socket.get()));
        let entry = if batch.count == 1 {
            let len = u32::try_from(batch.bytes).expect("payloads are at most PAYLOAD_MAX");
            let data = self.data.at(self.slots[usize::from(batch.first)].start);
            opcode::Send::new(file, data, len)
                .flags(FLAGS)
                .dest_addr(batch.address.as_ptr())
                .dest_addr_len(batch.address.len())
                .build()
        } else {
            let vectors = &mut self.vectors[self.vectors_used..];
            let used = gather(batch, &self.slots, &self.data, vectors);
            batch.control.segment = u16::try_from(batch.segment).expect("payloads are at most PAYLOAD_MAX");
            batch.header.msg_name = batch.address.as_ptr().cast_mut().cast();
            batch.header.msg_namelen = batch.address.len();
            (batch.header.msg_iov, batch.header.msg_iovlen) = (vectors.as_mut_ptr(), used);
            batch.header.msg_control = (&raw mut batch.control).cast();
            batch.header.msg_controllen = size_of::<Control>();
            opcode::SendMsg::new(file, &raw const batch.header).flags(FLAGS.unsigned_abs()).build()
        };
        Some((entry, batch.socket, batch.count))
    }

    /// The entry last given is in the submission ring.
    pub(super) fn entry_queued(&mut self) {
        let batch = &self.batches[self.submitted];
        self.vectors_used += if batch.count == 1 { 0 } else { batch.header.msg_iovlen };
        self.submitted += 1;
    }

    /// The kernel is done with all of them.
    pub(super) fn release_all(&mut self) {
        (self.filled, self.used, self.begun, self.submitted, self.vectors_used) = (0, 0, 0, 0, 0);
    }
}

/// Writes where a batch's payloads lie, those back to back as one; returns how many vectors that took.
fn gather(batch: &Batch, slots: &[Slot], data: &Pages, vectors: &mut [libc::iovec]) -> usize {
    let (mut used, mut end) = (0, usize::MAX);
    let mut place = batch.first;
    for _ in 0..batch.count {
        let slot = slots[usize::from(place)];
        if slot.start == end {
            vectors[used - 1].iov_len += slot.len;
        } else {
            vectors[used] = libc::iovec { iov_base: data.at(slot.start).cast(), iov_len: slot.len };
            used += 1;
        }
        (end, place) = (slot.start + slot.len, slot.next);
    }
    used
}

fn recent_place(socket: SocketId, to: SocketAddr) -> usize {
    let host = match to.ip() {
        IpAddr::V4(ip) => ip.to_bits(),
        IpAddr::V6(ip) => {
            let [.., a, b, c, d] = ip.octets();
            u32::from_be_bytes([a, b, c, d])
        }
    };
    let mixed = host ^ (u32::from(to.port()) << 12) ^ (u32::from(socket.get()) << 6);
    // Fibonacci hashing (Knuth, TAOCP 6.4): the high bits of a product with 2^32 over the golden ratio.
    let place = mixed.wrapping_mul(0x9e37_79b1) >> (u32::BITS - RECENT_BITS);
    usize::try_from(place).unwrap_or(0)
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox").field("used", &self.used).field("batches", &self.begun).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, Outbox};
    use crate::engine::backend::SocketId;
    use std::net::SocketAddr;

    fn to(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    /// Lengths and destinations queued; gives (destination, number of datagrams, vectors) of each batch.
    fn batches(count: u16, queued: &[(u16, usize)]) -> Vec<(u16, u16, usize)> {
        let mut outbox = Outbox::new(count, 8_972).expect("memory");
        for (port, len) in queued {
            assert_eq!(outbox.add(SocketId::new(0), to(*port), true, &mut |_| *len), Some(*len));
        }
        let mut found = Vec::new();
        while let Some((_, _, count)) = outbox.entry() {
            let batch = &outbox.batches[outbox.submitted];
            found.push((batch.to.port(), count, batch.header.msg_iovlen));
            outbox.entry_queued();
        }
        found
    }

    #[test]
    fn equal_ones_gather_a_shorter_one_ends_and_a_longer_one_begins() {
        let queued = [(1, 100), (1, 100), (1, 60), (1, 60), (1, 61), (1, 61)];
        assert_eq!(batches(8, &queued), [(1, 3, 1), (1, 1, 0), (1, 2, 1)]);
    }

    #[test]
    fn destinations_in_turn_gather_each_their_own() {
        let queued: Vec<_> = (0..30).map(|n| (1 + n % 3, 500)).collect();
        assert_eq!(batches(32, &queued), [(1, 10, 10), (2, 10, 10), (3, 10, 10)]);
    }

    #[test]
    fn no_batch_is_longer_than_the_kernel_takes() {
        let small: Vec<_> = (0..130).map(|_| (1, 64)).collect();
        assert_eq!(batches(256, &small), [(1, 64, 1), (1, 64, 1), (1, 2, 1)]);
        let large: Vec<_> = (0..10).map(|_| (1, 8_972)).collect();
        let found = batches(16, &large);
        assert_eq!(found, [(1, 7, 1), (1, 3, 1)]);
        const { assert!(7 * 8_972 <= BYTES_MAX) };
    }

    #[test]
    fn nothing_joins_a_batch_that_is_in_the_ring() {
        let mut outbox = Outbox::new(8, 100).expect("memory");
        let add = |outbox: &mut Outbox| outbox.add(SocketId::new(0), to(1), true, &mut |_| 10).expect("room");
        add(&mut outbox);
        assert!(outbox.entry().is_some());
        outbox.entry_queued();
        add(&mut outbox);
        assert_eq!(outbox.entry().map(|(_, _, count)| count), Some(1));
        outbox.release_all();
        add(&mut outbox);
        add(&mut outbox);
        assert_eq!(outbox.entry().map(|(_, _, count)| count), Some(2));
    }
}
