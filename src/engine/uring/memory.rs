#![expect(unsafe_code, reason = "memory shared with the kernel")]
//! Memory shared with the kernel: pages, and the ring of receive buffers in them.
//!
//! **Why.** Both sides address it directly, so it is mapped, page-aligned, faulted in at start, and never moves.
//! **Invariants.** [`BufferRing`]: a buffer id given by a completion is ours until [`BufferRing::put_back`]; the kernel sees
//! it again after [`BufferRing::publish`].
//! **Limits**: fixed at construction. **Not here**: what is sent (`outbox`).

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU16;

use io_uring::{IoUring, types};

use super::setup::UringError;
use crate::engine::sync::Ordering;

pub(super) const PAGE: usize = 4_096;

/// Zeroed pages of our own, faulted in, given back on drop.
#[derive(Debug)]
pub(super) struct Pages {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: owned memory, reached only through its owner.
unsafe impl Send for Pages {}

impl Pages {
    pub(super) fn new(len: usize) -> io::Result<Self> {
        let len = len.next_multiple_of(PAGE).max(PAGE);
        let (protection, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh anonymous mapping aliases nothing.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // Large pages where they fit; a refusal of either costs speed only.
        for advice in [libc::MADV_HUGEPAGE, libc::MADV_POPULATE_WRITE] {
            // SAFETY: the mapping just made, whose bytes stay zero.
            let _status = unsafe { libc::madvise(start, len, advice) };
        }
        let start = NonNull::new(start.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { start, len })
    }

    pub(super) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.len, "offset {offset} lies outside of {} bytes", self.len);
        // SAFETY: inside of the mapping.
        unsafe { self.start.as_ptr().add(offset) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and nobody refers to it any more.
        let _status = unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Receive buffers of one socket, provided to the kernel as a ring (a buffer group).
#[derive(Debug)]
pub(super) struct BufferRing {
    entries: Pages,
    data: Pages,
    count: u16,
    buffer_len: usize,
    tail: u16,
}

impl BufferRing {
    /// Registers `count` buffers (a power of two) as `group`.
    pub(super) fn new(ring: &IoUring, group: u16, count: u16, buffer_len: usize) -> Result<Self, UringError> {
        let bytes = Self::bytes(count, buffer_len);
        let failed = |cause| UringError::from_system("a ring of receive buffers", bytes, cause);
        let entries = Pages::new(usize::from(count) * size_of::<types::BufRingEntry>()).map_err(failed)?;
        let data = Pages::new(usize::from(count) * buffer_len).map_err(failed)?;
        let start = entries.start.as_ptr().addr();
        let start = u64::try_from(start).unwrap_or(0);
        // SAFETY: page-aligned, long enough, and held until after the ring is closed (`Uring`'s field order).
        unsafe { ring.submitter().register_buf_ring_with_flags(start, count, group, 0) }.map_err(failed)?;
        let mut buffers = Self { entries, data, count, buffer_len, tail: 0 };
        (0..count).for_each(|buffer| buffers.put_back(buffer));
        buffers.publish();
        Ok(buffers)
    }

    /// Memory that takes.
    pub(super) fn bytes(count: u16, buffer_len: usize) -> usize {
        let count = usize::from(count);
        (count * size_of::<types::BufRingEntry>()).next_multiple_of(PAGE) + (count * buffer_len).next_multiple_of(PAGE)
    }

    /// The bytes the kernel wrote into a buffer it gave back by a completion.
    pub(super) fn filled(&self, buffer: u16, len: usize) -> &[u8] {
        assert!(buffer < self.count && len <= self.buffer_len, "buffer {buffer} with {len} bytes was never provided");
        let start = self.data.at(usize::from(buffer) * self.buffer_len);
        // SAFETY: the buffer is ours since its completion, its bytes are initialised (zeroed pages), and it lies in `data`.
        unsafe { std::slice::from_raw_parts(start, len) }
    }

    /// Gives a buffer back; the kernel sees it after `publish`.
    pub(super) fn put_back(&mut self, buffer: u16) {
        let data = self.data.at(usize::from(buffer) * self.buffer_len);
        let index = usize::from(self.tail & (self.count - 1));
        let entry = self.entries.at(index * size_of::<types::BufRingEntry>()).cast::<types::BufRingEntry>();
        // SAFETY: entries at and beyond the published tail are ours; the mapping is page-aligned. The tail, which the
        // kernel reads, lies in a field of entry 0 that these setters leave alone.
        let entry = unsafe { &mut *entry };
        entry.set_addr(u64::try_from(data.addr()).unwrap_or(0));
        entry.set_len(u32::try_from(self.buffer_len).expect("a buffer is some kilobytes"));
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows the kernel what was put back.
    pub(super) fn publish(&self) {
        let first = self.entries.start.as_ptr().cast::<types::BufRingEntry>();
        // SAFETY: the first entry exists.
        let tail = unsafe { types::BufRingEntry::tail(first) }.cast::<AtomicU16>();
        // SAFETY: the tail is aligned, lives as long as the mapping, and is shared with the kernel: atomic access.
        let tail = unsafe { &*tail };
        // Release: pairs with the kernel's acquire load of the tail; the entries are written before.
        tail.store(self.tail, Ordering::Release);
    }
}
