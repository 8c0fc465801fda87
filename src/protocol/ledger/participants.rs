//! A transaction's participants as they travel: 1 to 64 distinct ids, four little-endian bytes each.
//!
//! **Why a view of the bytes.** Frames keep them as they came; the ledger reads them in place, so that between the
//! datagram and the record nothing is copied. Order matters: it is the order of the answer, and part of the body.
//! **Invariants**: whole ids, by type. That they are 1..64 and distinct is what [`Participants::check`] says; the wire
//! asks before anything is stamped, the ledger asks again before anything is numbered.
//! **Limits**: [`PARTICIPANTS_MAX`]. **Not here**: where in a datagram they stand (`wire`).

use core::fmt;
use core::iter::FusedIterator;
use thiserror::Error;

use crate::protocol::{NodeId, PARTICIPANTS_MAX};

/// Why bytes are no list of participants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ParticipantsError {
    /// No participant.
    #[error("a transaction has 1..{PARTICIPANTS_MAX} participants, not none")]
    Empty,
    /// More than [`PARTICIPANTS_MAX`].
    #[error("a transaction has 1..{PARTICIPANTS_MAX} participants, not {0}")]
    TooMany(usize),
    /// The bytes end within an id.
    #[error("participants are 4 bytes each, and {0} bytes are no multiple of 4")]
    Ragged(usize),
    /// An id stands there more than once.
    #[error("participant {0} is named twice")]
    Twice(NodeId),
}

/// Participant ids as on the wire, in the order of the request.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Participants<'a>(&'a [[u8; 4]]);

impl<'a> Participants<'a> {
    /// Reads a list off the wire, and checks it.
    ///
    /// # Errors
    /// What is wrong with it: [`ParticipantsError`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParticipantsError> {
        let (ids, rest) = bytes.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(ParticipantsError::Ragged(bytes.len()));
        }
        let list = Self(ids);
        list.check()?;
        Ok(list)
    }

    /// Wraps ids that were checked before (a held frame's), or that the ledger is to check. Nothing trusts them more
    /// for it: a bad list is refused as `malformed` on delivery.
    #[must_use]
    pub const fn held(ids: &'a [[u8; 4]]) -> Self {
        Self(ids)
    }

    /// Wraps `n` times 4 bytes, unchecked; up to 3 bytes beyond the last whole id are left out.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes.as_chunks::<4>().0)
    }

    /// Writes `ids` into `buf` as they travel, and borrows them there; `None` if there is no room.
    #[must_use]
    pub fn encode(ids: &[NodeId], buf: &'a mut [u8]) -> Option<Self> {
        let used = buf.get_mut(..4 * ids.len())?;
        for (slot, id) in used.as_chunks_mut::<4>().0.iter_mut().zip(ids) {
            *slot = id.get().to_le_bytes();
        }
        Some(Self::new(used))
    }

    /// The first id that is named twice.
    #[must_use]
    pub fn repeated(self) -> Option<NodeId> {
        match self.check() {
            Err(ParticipantsError::Twice(id)) => Some(id),
            _ => None,
        }
    }

    /// Whether these are 1..[`PARTICIPANTS_MAX`] distinct ids. A few nanoseconds for a few of them.
    ///
    /// # Errors
    /// What is wrong: [`ParticipantsError`], never `Ragged`.
    pub fn check(self) -> Result<(), ParticipantsError> {
        match self.0.len() {
            0 => return Err(ParticipantsError::Empty),
            1..=PARTICIPANTS_MAX => {}
            more => return Err(ParticipantsError::TooMany(more)),
        }
        // One of 512 bits per id, by the top of a product: earlier ids are compared only where it was set before.
        let mut seen = [0_u64; 8];
        for (place, id) in self.0.iter().enumerate() {
            let plain = u32::from_le_bytes(*id);
            let top = u64::from(plain).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 55;
            let (word, bit) = (&mut seen[top as usize >> 6], 1_u64 << (top & 63));
            if *word & bit != 0 && self.0[..place].contains(id) {
                return Err(ParticipantsError::Twice(NodeId::new(plain)));
            }
            *word |= bit;
        }
        Ok(())
    }

    /// How many.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.len()
    }

    /// Whether there are none (which no checked list is).
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The id at a place of the list; `None` beyond its end.
    #[must_use]
    pub fn get(self, place: usize) -> Option<NodeId> {
        self.0.get(place).map(|id| NodeId::new(u32::from_le_bytes(*id)))
    }

    /// The ids in the order of the request.
    #[must_use]
    pub fn iter(self) -> ParticipantsIter<'a> {
        ParticipantsIter(self.0.iter())
    }

    /// The bytes that travel.
    #[must_use]
    pub const fn bytes(self) -> &'a [u8] {
        self.0.as_flattened()
    }
}

impl<'a> IntoIterator for Participants<'a> {
    type Item = NodeId;
    type IntoIter = ParticipantsIter<'a>;

    fn into_iter(self) -> ParticipantsIter<'a> {
        self.iter()
    }
}

impl fmt::Debug for Participants<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(NodeId::get)).finish()
    }
}

/// Iterator over [`Participants`].
#[derive(Clone, Debug)]
pub struct ParticipantsIter<'a>(core::slice::Iter<'a, [u8; 4]>);

impl Iterator for ParticipantsIter<'_> {
    type Item = NodeId;

    fn next(&mut self) -> Option<NodeId> {
        self.0.next().map(|id| NodeId::new(u32::from_le_bytes(*id)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for ParticipantsIter<'_> {}
impl FusedIterator for ParticipantsIter<'_> {}

#[cfg(test)]
mod tests {
    use super::{Participants, ParticipantsError};
    use crate::protocol::NodeId;
    use alloc::vec::Vec;

    fn bytes(ids: impl IntoIterator<Item = u32>) -> Vec<u8> {
        ids.into_iter().flat_map(u32::to_le_bytes).collect()
    }

    #[test]
    fn list_keeps_its_order_and_its_bytes() {
        let wire = bytes([3, u32::MAX, 0]);
        let list = Participants::parse(&wire).unwrap();
        assert_eq!(list.iter().map(NodeId::get).collect::<Vec<_>>(), [3, u32::MAX, 0]);
        assert_eq!((list.len(), list.get(1), list.get(3)), (3, Some(NodeId::new(u32::MAX)), None));
        assert_eq!(list.bytes(), wire);
    }

    #[test]
    fn what_is_no_list_is_named() {
        assert_eq!(Participants::parse(&[]), Err(ParticipantsError::Empty));
        assert_eq!(Participants::parse(&[1, 2, 3, 4, 5]), Err(ParticipantsError::Ragged(5)));
        assert_eq!(Participants::parse(&bytes(0..65)), Err(ParticipantsError::TooMany(65)));
        assert!(Participants::parse(&bytes(0..64)).is_ok());
        for twice in 0..63 {
            let wire = bytes((0..63).chain([twice]));
            assert_eq!(Participants::parse(&wire), Err(ParticipantsError::Twice(NodeId::new(twice))));
        }
    }
}
