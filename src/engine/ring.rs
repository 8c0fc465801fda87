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
//! **Not here**: waking a sleeping consumer (`link`); several producers (use several rings).

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
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    tail: usize,
    head_seen: usize,
    refused: u64,
    one_thread: PhantomData<Cell<()>>,
}

/// The reading end. One thread's at a time: it can be sent, not shared or cloned.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::ring;

    #[derive(Clone, Debug)]
    enum Step {
        Push,
        PushBatch(usize),
        Pop(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => Just(Step::Push),
            1 => (0_usize..9).prop_map(Step::PushBatch),
            2 => (0_usize..9).prop_map(Step::Pop)
        ];
        prop::collection::vec(step, 0..400)
    }

    proptest! {
        #[test]
        fn ring_behaves_like_a_bounded_queue(steps in steps(), log_capacity in 0_u32..4) {
            let capacity = 1_usize << log_capacity;
            let (mut tx, mut rx) = ring::<u64>(capacity);
            let mut oracle = VecDeque::new();
            let (mut next, mut refused) = (0_u64, 0_u64);
            for step in steps {
                match step {
                    Step::Push => {
                        next += 1;
                        let room = oracle.len() < capacity;
                        prop_assert_eq!(tx.push_with(|slot| *slot = next).is_ok(), room);
                        if room { oracle.push_back(next) } else { refused += 1 }
                    }
                    Step::PushBatch(wanted) => {
                        let expected = wanted.min(capacity - oracle.len());
                        let mut made = 0;
                        let pushed = tx.push_batch(|slot| {
                            if made == wanted { return false }
                            made += 1;
                            next += 1;
                            *slot = next;
                            oracle.push_back(next);
                            true
                        });
                        prop_assert_eq!(pushed, expected);
                    }
                    Step::Pop(max) => {
                        let expected = max.min(oracle.len());
                        let mut same = true;
                        let popped = rx.pop_batch(max, |slot| same &= Some(*slot) == oracle.pop_front());
                        prop_assert!(same);
                        // A batch may stop at the end of what was known; the rest comes with the next call.
                        prop_assert!(popped <= expected && (popped > 0 || expected == 0));
                    }
                }
                prop_assert_eq!(tx.len(), oracle.len());
                prop_assert_eq!(rx.len(), oracle.len());
                prop_assert_eq!(rx.is_empty(), oracle.is_empty());
                prop_assert_eq!(tx.refused(), refused);
            }
        }
    }

    #[test]
    fn full_ring_hands_the_value_back_and_counts() {
        let (mut tx, mut rx) = ring::<String>(1);
        tx.push("first".to_owned()).expect("the ring is empty");
        assert_eq!(tx.push("second".to_owned()), Err("second".to_owned()));
        assert_eq!(tx.refused(), 1);
        assert_eq!(rx.pop_batch(8, |slot| assert_eq!(slot, "first")), 1);
        assert!(rx.is_empty());
    }

    #[test]
    fn messages_cross_threads_in_order() {
        const COUNT: u64 = 200_000;
        let (mut tx, mut rx) = ring::<u64>(64);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for value in 0..COUNT {
                    while tx.push_with(|slot| *slot = value).is_err() {
                        std::thread::yield_now();
                    }
                }
            });
            let mut expected = 0;
            while expected < COUNT {
                let got = rx.pop_batch(16, |slot| {
                    assert_eq!(*slot, expected);
                    expected += 1;
                });
                if got == 0 {
                    std::thread::yield_now();
                }
            }
        });
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::ring;

    #[test]
    fn loom_two_slots_four_items_arrive_whole_and_in_order() {
        // Two preemptions: what more would find is not worth the hours (a relaxed `publish` is found with one).
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let (mut tx, mut rx) = ring::<u32>(2);
            let writer = loom::thread::spawn(move || {
                let mut value = 1;
                while value <= 4 {
                    if tx.push_with(|slot| *slot = value).is_ok() {
                        value += 1;
                    } else {
                        loom::thread::yield_now();
                    }
                }
            });
            let mut expected = 1;
            while expected <= 4 {
                let got = rx.pop_batch(2, |slot| {
                    assert_eq!(*slot, expected);
                    expected += 1;
                });
                if got == 0 {
                    loom::thread::yield_now();
                }
            }
            writer.join().expect("the writer ends");
        });
    }
}
