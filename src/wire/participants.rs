//! The participants of a transaction as they travel: `n` ids of 4 bytes, little-endian, borrowed from the datagram.
//!
//! **Why.** Ids are read where they lie; nothing is copied until an entry is delivered.
//! **Limits**: [`crate::protocol::PARTICIPANTS_MAX`]. **Not here**: what a participant's sequence is (`protocol::ledger`).

pub use crate::protocol::ledger::Participants;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::NodeId;

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
