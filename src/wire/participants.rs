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
    /// The first id that appears twice. Quadratic, at most 64 * 63 / 2 comparisons of bytes in the first-level cache.
    #[must_use]
    pub fn repeated(self) -> Option<NodeId> {
        let (ids, _) = self.0.as_chunks::<4>();
        debug_assert!(ids.len() <= PARTICIPANTS_MAX, "counted before");
        let twice = ids.iter().enumerate().find(|(at, id)| ids[..*at].contains(id));
        twice.map(|(_, id)| NodeId::new(u32::from_le_bytes(*id)))
    }
}

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
}
