#![expect(unsafe_code, reason = "the slots of a ring are shared by two threads, each touching only its own side")]
//! Bounded lock-free ring from one producer to one consumer, its slots filled and read in place.
//!
//! **Why.** Roles on different cores exchange messages without locks, allocation or copies of large values: the slots are
//! allocated once, and both sides work on them where they lie. Each side keeps a copy of the other's index and looks at the
//! shared one only when the copy says full or empty, so that a cache line moves once a batch and not once a message
//! (Lamport 1983; the cached indices are FastForward's and MCRingBuffer's idea).
//!
//! **Invariants.** `head <= tail <= head + capacity` (wrapping counters). Slots in `head..tail` belong to the consumer, the
//! others to the producer. A message is seen after it was written whole, in order, once.
//!
//! **Limits.** Capacity is a power of two, fixed. A full ring refuses and counts ([`Producer::refused`]).
//!
//! **Not here**: waking a sleeping consumer (`link`); several producers (use several rings). Tested against an oracle in
//! `tests/engine_ring.rs`, modelled in `tests/loom.rs`, which includes this file with loom's atomics.

use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;

use crossbeam_utils::CachePadded;

use super::sync::{Arc, AtomicUsize, Ordering, UnsafeCell};

/// The ring is full; the message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ring is full: its reader is behind")]
pub struct Full;

struct Shared<T> {
    slots: Box<[UnsafeCell<T>]>,
    mask: usize,
    /// Messages ever published; the producer writes it.
    tail: CachePadded<AtomicUsize>,
    /// Messages ever taken; the consumer writes it.
    head: CachePadded<AtomicUsize>,
}

// SAFETY: a slot is touched by one side at a time (the indices say whose it is), and moves between threads: `T: Send`.
unsafe impl<T: Send> Sync for Shared<T> {}

/// The writing end. One thread's at a time: it can be sent, not shared or cloned.
///
/// Two writers do not compile:
/// ```compile_fail,E0599
/// let (tx, _rx) = ordain::engine::ring::ring::<u64>(2);
/// let second = tx.clone();
/// ```
/// nor does a writer that two threads share:
/// ```compile_fail,E0277
/// let (tx, _rx) = ordain::engine::ring::ring::<u64>(2);
/// let shared: &(dyn Sync) = &tx;
/// ```
/// nor a push without the right to it:
/// ```compile_fail,E0596
/// let (tx, _rx) = ordain::engine::ring::ring::<u64>(2);
/// tx.push(1);
/// ```
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    tail: usize,
    head_seen: usize,
    refused: u64,
    one_thread: PhantomData<Cell<()>>,
}

/// The reading end. One thread's at a time: it can be sent, not shared or cloned.
///
/// Two readers do not compile:
/// ```compile_fail,E0599
/// let (_tx, rx) = ordain::engine::ring::ring::<u64>(2);
/// let second = rx.clone();
/// ```
/// nor does a reader that two threads share:
/// ```compile_fail,E0277
/// let (_tx, rx) = ordain::engine::ring::ring::<u64>(2);
/// let shared: &(dyn Sync) = &rx;
/// ```
/// nor a message kept beyond the call that reads it, when its slot is the writer's again:
/// ```compile_fail
/// let (_tx, mut rx) = ordain::engine::ring::ring::<u64>(2);
/// let mut kept: Option<&mut u64> = None;
/// rx.pop_batch(1, |slot| kept = Some(slot));
/// ```
/// nor messages that must not change threads:
/// ```compile_fail,E0277
/// let (_tx, rx) = ordain::engine::ring::ring::<std::rc::Rc<u64>>(2);
/// ```
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    head: usize,
    tail_seen: usize,
    one_thread: PhantomData<Cell<()>>,
}

/// Makes a ring of `capacity` slots, each `T::default()`.
///
/// # Panics
/// If `capacity` is not a power of two.
#[must_use]
pub fn ring<T: Default + Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    assert!(capacity.is_power_of_two(), "a ring's capacity is a power of two, not {capacity}");
    let shared = Arc::new(Shared {
        slots: (0..capacity).map(|_| UnsafeCell::new(T::default())).collect(),
        mask: capacity - 1,
        tail: CachePadded::new(AtomicUsize::new(0)),
        head: CachePadded::new(AtomicUsize::new(0)),
    });
    let producer = Producer { shared: Arc::clone(&shared), tail: 0, head_seen: 0, refused: 0, one_thread: PhantomData };
    (producer, Consumer { shared, head: 0, tail_seen: 0, one_thread: PhantomData })
}

impl<T> Producer<T> {
    /// Fills the next slot in place and publishes it. The slot holds whatever an earlier message left there.
    ///
    /// # Errors
    /// [`Full`], counted; `fill` is not called.
    #[inline]
    pub fn push_with(&mut self, fill: impl FnOnce(&mut T)) -> Result<(), Full> {
        if self.free() == 0 {
            self.refused += 1;
            return Err(Full);
        }
        self.fill_next(fill);
        self.publish();
        Ok(())
    }

    /// Puts `value` into the next slot and publishes it.
    ///
    /// # Errors
    /// The value back when the ring is full; counted.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), T> {
        if self.free() == 0 {
            self.refused += 1;
            return Err(value);
        }
        self.fill_next(|slot| *slot = value);
        self.publish();
        Ok(())
    }

    /// Fills slots in place until `fill` says `false` (that slot is not sent) or the ring is full, then publishes them
    /// together; returns how many. Stopping because the ring is full is not counted as a refusal.
    #[inline]
    pub fn push_batch(&mut self, mut fill: impl FnMut(&mut T) -> bool) -> usize {
        let start = self.tail;
        while self.free() > 0 {
            let mut sent = true;
            self.fill_next(|slot| sent = fill(slot));
            if !sent {
                self.tail = self.tail.wrapping_sub(1);
                break;
            }
        }
        self.publish();
        self.tail.wrapping_sub(start)
    }

    /// Messages refused because the ring was full.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Slots in all.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shared.mask + 1
    }

    /// Messages not yet taken by the consumer; it may be taking some now.
    #[must_use]
    pub fn len(&self) -> usize {
        // Pairs with the Release store in `Consumer::give_back`.
        self.tail.wrapping_sub(self.shared.head.load(Ordering::Acquire))
    }

    /// Whether the consumer has taken everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Free slots as far as known; looks at the consumer's index only when none is.
    #[inline]
    fn free(&mut self) -> usize {
        let capacity = self.shared.mask + 1;
        if self.tail.wrapping_sub(self.head_seen) == capacity {
            // Pairs with the Release store in `Consumer::give_back`: what it read in these slots is over.
            self.head_seen = self.shared.head.load(Ordering::Acquire);
        }
        capacity - self.tail.wrapping_sub(self.head_seen)
    }

    #[inline]
    fn fill_next(&mut self, fill: impl FnOnce(&mut T)) {
        let slot = &self.shared.slots[self.tail & self.shared.mask];
        // SAFETY: `free` said that the consumer has given this slot back, and it takes none beyond the published tail.
        slot.with_mut(|slot| fill(unsafe { &mut *slot }));
        self.tail = self.tail.wrapping_add(1);
    }

    #[inline]
    fn publish(&self) {
        // Pairs with the Acquire loads in `Consumer::ready` and `Consumer::len`: the slots are written before.
        self.shared.tail.store(self.tail, Ordering::Release);
    }
}

impl<T> Consumer<T> {
    /// Gives up to `max` messages, oldest first, to `take`, in place; returns how many. Their slots go back together.
    #[inline]
    pub fn pop_batch(&mut self, max: usize, mut take: impl FnMut(&mut T)) -> usize {
        let count = self.ready().min(max);
        for step in 0..count {
            let slot = &self.shared.slots[self.head.wrapping_add(step) & self.shared.mask];
            // SAFETY: the slot lies between head and the published tail: the producer leaves it alone until given back.
            slot.with_mut(|slot| take(unsafe { &mut *slot }));
        }
        if count > 0 {
            self.head = self.head.wrapping_add(count);
            self.give_back();
        }
        count
    }

    /// Whether nothing is waiting.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Messages waiting; more may be coming.
    #[must_use]
    pub fn len(&self) -> usize {
        // Pairs with the Release store in `Producer::publish`.
        self.shared.tail.load(Ordering::Acquire).wrapping_sub(self.head)
    }

    /// Slots in all.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shared.mask + 1
    }

    /// Messages ready as far as known; looks at the producer's index only when none is.
    #[inline]
    fn ready(&mut self) -> usize {
        if self.tail_seen == self.head {
            // Pairs with the Release store in `Producer::publish`: the slots up to it are written.
            self.tail_seen = self.shared.tail.load(Ordering::Acquire);
        }
        self.tail_seen.wrapping_sub(self.head)
    }

    #[inline]
    fn give_back(&self) {
        // Pairs with the Acquire loads in `Producer::free` and `Producer::len`: the reads of the slots are over.
        self.shared.head.store(self.head, Ordering::Release);
    }
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("capacity", &self.capacity()).field("refused", &self.refused).finish()
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("capacity", &self.capacity()).finish()
    }
}
