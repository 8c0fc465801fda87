//! From a key's hash to a row of some table: open addressing, fixed size, deletion by shifting back.
//!
//! **Why our own.** The core has no std, nothing may grow after start, and tables whose rows come and go for ever must
//! not fill with tombstones. A slot holds 32 bits of the hash beside the row, so a key that is not there is
//! nearly always told apart without touching a row (Knuth, TAOCP 3, 6.4, algorithms L and R).
//! **Invariants**: never more than half full; a probe from a key's home meets no empty slot before the key.
//! **Limits**: rows below 2^31. **Not here**: the keys; the caller compares them.

use alloc::vec;
use alloc::vec::Vec;

/// Bytes an index over so many rows takes.
pub(super) const fn bytes(rows: usize) -> usize {
    slots(rows) * size_of::<u64>()
}

const fn slots(rows: usize) -> usize {
    (rows * 2).next_power_of_two()
}

/// Rows by hash. A slot is zero, or the hash above the row plus one.
#[derive(Debug)]
pub(super) struct Index {
    slots: Vec<u64>,
    mask: usize,
    len: usize,
}

impl Index {
    /// For at most `rows` rows at a time.
    pub(super) fn new(rows: usize) -> Self {
        Self { slots: vec![0; slots(rows)], mask: slots(rows) - 1, len: 0 }
    }

    /// The row of this hash for which `is` says that it has the key.
    #[inline]
    pub(super) fn find(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.home(hash);
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return None;
            }
            if tag(slot) == hash && is(row(slot)) {
                return Some(row(slot));
            }
            at = (at + 1) & self.mask;
        }
    }

    /// Reads the slot that a hash belongs to, and tells the row in it, if any.
    #[inline]
    pub(super) fn warm(&self, hash: u32) -> Option<u32> {
        let slot = self.slots[self.home(hash)];
        (slot != 0).then(|| row(slot))
    }

    /// Adds a row. The caller knows that its key is not there.
    #[inline]
    pub(super) fn insert(&mut self, hash: u32, row: u32) {
        assert!(self.len * 2 < self.slots.len(), "index over its {} rows", self.slots.len() / 2);
        let mut at = self.home(hash);
        while self.slots[at] != 0 {
            at = (at + 1) & self.mask;
        }
        self.slots[at] = slot(hash, row);
        self.len += 1;
    }

    /// Takes a row out.
    ///
    /// # Panics
    /// If it is not there: the tables have come apart.
    #[inline]
    pub(super) fn remove(&mut self, hash: u32, row: u32) {
        let wanted = slot(hash, row);
        let mut hole = self.home(hash);
        while self.slots[hole] != wanted {
            assert!(self.slots[hole] != 0, "row {row} is not in its index");
            hole = (hole + 1) & self.mask;
        }
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask;
            let slot = self.slots[at];
            if slot == 0 {
                break;
            }
            // It may move back to the hole if the hole lies between its home and where it stands.
            let from_home = at.wrapping_sub(self.home(tag(slot))) & self.mask;
            if from_home >= at.wrapping_sub(hole) & self.mask {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = 0;
        self.len -= 1;
    }

    /// How many rows are in it.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    const fn home(&self, hash: u32) -> usize {
        hash as usize & self.mask
    }
}

const fn slot(hash: u32, row: u32) -> u64 {
    ((hash as u64) << 32) | (row as u64 + 1)
}

const fn tag(slot: u64) -> u32 {
    (slot >> 32) as u32
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half of 64 bits, less the one that marks a used slot")]
const fn row(slot: u64) -> u32 {
    slot as u32 - 1
}

#[cfg(test)]
mod tests {
    use super::Index;
    use alloc::collections::BTreeMap;

    /// Hashes from a few values, so that nearly all keys share homes with others, at the wrap as well.
    #[test]
    fn index_agrees_with_a_map_whatever_comes_and_goes() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut index = Index::new(16);
        let mut model = BTreeMap::new();
        for _ in 0..100_000 {
            let row = random.u32(0..40);
            let hash = (row * 7 % 5).wrapping_sub(2);
            if model.remove(&row).is_some() {
                index.remove(hash, row);
            } else if model.len() < 16 {
                model.insert(row, hash);
                index.insert(hash, row);
            }
            let asked = random.u32(0..40);
            let found = index.find((asked * 7 % 5).wrapping_sub(2), |row| row == asked);
            assert_eq!(found, model.contains_key(&asked).then_some(asked));
            assert_eq!(index.len(), model.len());
        }
    }
}
