//! Retained records by transaction: a hash table that nothing is ever deleted from.
//!
//! **Why.** A slot names its record's order number, and records leave in the order they came: a slot is stale once its
//! number is below the oldest retained, which is seen from the slot alone. So a new transaction costs one cache line,
//! looked up and written, and one that leaves costs none: at a million records, a miss each would cost more than all
//! else that delivery does. A line that was full passes on to the next; it says up to which number it did so, and
//! once that number is stale the search ends there again.
//! **Invariants**: a retained number is in the line of its hash, or in a later one with all lines between marked with
//! this number or a later one. **Limits**: live slots never above 4/7 of all.
//! **Not here**: the transactions; the caller compares them (a stale slot can look live after 2^32 records).

use alloc::vec;
use alloc::vec::Vec;

use crate::protocol::OrderNo;

const SLOTS: usize = 7;

/// Bytes an index over so many records takes.
pub(super) const fn bytes(records: usize) -> usize {
    lines(records) * size_of::<Line>()
}

const fn lines(records: usize) -> usize {
    records.div_ceil(4).next_power_of_two()
}

/// One cache line: slots of 32 bits of hash above the low 32 bits of an order number, and the last order number for
/// which there was no room in it.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line {
    slots: [u64; SLOTS],
    passed_on: u64,
}

const _: () = assert!(size_of::<Line>() == 64);

/// Which numbers are retained: `len` of them, up to `last`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retained {
    pub(super) last: u64,
    pub(super) len: u64,
}

impl Retained {
    /// How far before the last one the number in a slot is, if it is retained.
    #[inline]
    const fn back(self, slot: u64) -> Option<u64> {
        let back = low(self.last).wrapping_sub(low(slot)) as u64;
        if back < self.len { Some(back) } else { None }
    }
}

/// Order numbers by the hash of a transaction.
#[derive(Debug)]
pub(super) struct Txs {
    lines: Vec<Line>,
    mask: usize,
}

impl Txs {
    pub(super) fn new(records: usize) -> Self {
        let lines = lines(records);
        Self { lines: vec![Line { slots: [0; SLOTS], passed_on: 0 }; lines], mask: lines - 1 }
    }

    /// The retained number of this hash for which `is` says that it is the one.
    #[inline]
    pub(super) fn find(&self, hash: u32, retained: Retained, is: impl Fn(OrderNo) -> bool) -> Option<OrderNo> {
        let mut at = self.home(hash);
        // In a small table all lines may be marked at once: it is searched once around, no further.
        for _ in 0..self.lines.len() {
            let line = &self.lines[at];
            // All slots first, then one branch: nearly always there is none.
            let mut hits = 0_u32;
            for (place, slot) in line.slots.iter().enumerate() {
                hits |= u32::from(high(*slot) == hash) << place;
            }
            while hits != 0 {
                let slot = line.slots[hits.trailing_zeros() as usize];
                if let Some(back) = retained.back(slot) {
                    let order = OrderNo::new(retained.last - back);
                    if is(order) {
                        return Some(order);
                    }
                }
                hits &= hits - 1;
            }
            if line.passed_on + retained.len <= retained.last {
                return None;
            }
            at = (at + 1) & self.mask;
        }
        None
    }

    /// Reads the line of a hash, so that it is near when it is needed.
    #[inline]
    pub(super) fn warm(&self, hash: u32) -> u64 {
        self.lines[self.home(hash)].passed_on
    }

    /// Adds a number, the one after the last of `retained`, in place of one that is not retained.
    #[inline]
    pub(super) fn insert(&mut self, hash: u32, retained: Retained) {
        let order = retained.last + 1;
        let mut at = self.home(hash);
        loop {
            let line = &mut self.lines[at];
            let mut free = 0_u32;
            for (place, slot) in line.slots.iter().enumerate() {
                free |= u32::from(retained.back(*slot).is_none()) << place;
            }
            if free != 0 {
                line.slots[free.trailing_zeros() as usize] = ((hash as u64) << 32) | low(order) as u64;
                return;
            }
            line.passed_on = order;
            at = (at + 1) & self.mask;
        }
    }

    const fn home(&self, hash: u32) -> usize {
        hash as usize & self.mask
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is kept")]
const fn low(word: u64) -> u32 {
    word as u32
}

const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::{Retained, Txs};
    use crate::protocol::OrderNo;
    use alloc::collections::VecDeque;

    /// Two lines, eight records: seven of one line, an eighth that it passes on, seven of the other line, an eighth.
    #[test]
    fn search_ends_though_every_line_has_passed_on() {
        let mut txs = Txs::new(8);
        for order in 0..15_u64 {
            let hash = if order < 8 { 0 } else { 1 };
            txs.insert(hash, Retained { last: order, len: order.min(7) });
        }
        assert_eq!(txs.find(2, Retained { last: 15, len: 8 }, |_| true), None);
    }

    /// Few hashes, so that lines overflow into each other, at the wrap too; and a start below 2^32, so that the low
    /// halves wrap.
    #[test]
    fn numbers_are_found_while_they_are_retained_and_not_after() {
        let mut random = fastrand::Rng::with_seed(5);
        for records in [1_u64, 7, 24, 100] {
            let mut txs = Txs::new(usize::try_from(records).unwrap());
            let mut model = VecDeque::new();
            let mut last = u64::from(u32::MAX) - 5_000;
            for _ in 0..20_000 {
                while model.len() as u64 > random.u64(0..records) {
                    model.pop_back();
                }
                let hash = random.u32(0..6).wrapping_sub(3);
                txs.insert(hash, Retained { last, len: model.len() as u64 });
                last += 1;
                model.push_front(hash);
                let retained = Retained { last, len: model.len() as u64 };
                for (back, hash) in (0_u64..).zip(&model) {
                    let wanted = OrderNo::new(last - back);
                    assert_eq!(txs.find(*hash, retained, |order| order == wanted), Some(wanted));
                }
                let gone = OrderNo::new(last - retained.len);
                assert_eq!(txs.find(random.u32(0..6).wrapping_sub(3), retained, |order| order == gone), None);
            }
        }
    }
}
