//! The participants of a transaction as they travel: `n` ids of 4 bytes, little-endian, borrowed from the datagram.
//!
//! **Why.** Ids are read where they lie; nothing is copied until an entry is delivered.
//! **Limits**: [`PARTICIPANTS_MAX`]. **Not here**: what a participant's sequence is (`protocol::ledger`).

use crate::protocol::{NodeId, PARTICIPANTS_MAX};

/// Participant ids in the order the Tx host gave them: 4 bytes each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Participants<'a>(&'a [u8]);

impl<'a> Participants<'a> {
    /// Wraps `n` times 4 bytes; up to 3 bytes beyond the last whole id are ignored.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }
    /// Writes `ids` into `buf` as they travel, and borrows them there; `None` if there is no room.
    #[must_use]
    pub fn encode(ids: &[NodeId], buf: &'a mut [u8]) -> Option<Self> {
        let used = buf.get_mut(..4 * ids.len())?;
        for (slot, id) in used.as_chunks_mut::<4>().0.iter_mut().zip(ids) {
            *slot = id.get().to_le_bytes();
        }
        Some(Self(used))
    }
    /// How many there are.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.len() / 4
    }
    /// Whether there are none, which no valid transaction has.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
    /// The bytes as they travel.
    #[must_use]
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }
    /// The participant at `index`.
    #[must_use]
    pub fn get(self, index: usize) -> Option<NodeId> {
        self.0.as_chunks::<4>().0.get(index).map(|id| NodeId::new(u32::from_le_bytes(*id)))
    }
    /// All of them, in order.
    #[must_use]
    pub fn iter(self) -> impl ExactSizeIterator<Item = NodeId> + Clone + 'a {
        self.0.as_chunks::<4>().0.iter().map(|id| NodeId::new(u32::from_le_bytes(*id)))
    }
    /// An id that appears twice, if there is one.
    ///
    /// Few are compared each with each. Of many, only those whose place in a filter of 1024 bits is taken; that is every
    /// one only if somebody chooses ids to that end, and then costs a microsecond.
    #[must_use]
    pub fn repeated(self) -> Option<NodeId> {
        let (ids, _) = self.0.as_chunks::<4>();
        debug_assert!(ids.len() <= PARTICIPANTS_MAX, "counted before");
        let mut filter = [0_u64; 16];
        let twice = ids.iter().enumerate().find(|(at, id)| {
            let seen_before = || ids[..*at].contains(id);
            if ids.len() <= FEW {
                return seen_before();
            }
            let [low, high, ..] = u32::from_le_bytes(**id).wrapping_mul(0x9e37_79b1).to_be_bytes();
            let (word, bit) = (usize::from(low >> 4), 1 << (((low & 0xf) << 2) | (high >> 6)));
            let taken = filter[word] & bit != 0;
            filter[word] |= bit;
            taken && seen_before()
        });
        twice.map(|(_, id)| NodeId::new(u32::from_le_bytes(*id)))
    }
}

/// Up to here comparing each with each costs less than the filter.
const FEW: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_little_endian_and_repeats_are_seen() {
        let bytes = [1, 0, 0, 0, 2, 1, 0, 0, 1, 0, 0, 0];
        let all = Participants::new(&bytes);
        assert_eq!(all.len(), 3);
        assert_eq!(all.get(1), Some(NodeId::new(258)));
        assert_eq!(all.get(3), None);
        assert_eq!(all.repeated(), Some(NodeId::new(1)));
        assert_eq!(Participants::new(&bytes[..8]).repeated(), None);
        assert!(Participants::default().is_empty());
    }

    #[test]
    fn repeat_is_found_wherever_it_is() {
        for len in [2_u32, 8, 9, 64] {
            for (first, second) in (0..len).flat_map(|first| (first + 1..len).map(move |second| (first, second))) {
                let mut bytes = [0; 256];
                let used = &mut bytes[..4 * len as usize];
                for (id, slot) in (0..).zip(used.as_chunks_mut::<4>().0) {
                    let id: u32 = if id == second { first } else { id };
                    *slot = (id * 7919).to_le_bytes();
                }
                assert_eq!(Participants::new(used).repeated(), Some(NodeId::new(first * 7919)));
                let before = &used[..4 * second as usize];
                assert_eq!(Participants::new(before).repeated(), None);
            }
        }
    }
}
