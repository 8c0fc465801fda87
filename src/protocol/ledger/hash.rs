//! Mixing words: the prefix hash, fingerprints, and where a key stands in a table.
//!
//! **Why our own.** The prefix hash and the fingerprints must be the same on every platform and in every version, so
//! they are written out here: the folded 64 by 64 bit product of wyhash (Wang Yi, 2020), some 4 cycles a word.
//! Tables take a seed that differs from process to process, so that nobody can choose ids that meet in one place;
//! no result depends on it. **Not here**: authentication; nothing of this withstands one who knows the seed.

use super::Participants;
use crate::protocol::{NodeId, SessionId, TxId};

const ODD_A: u64 = 0x2D35_8DCC_AA6C_78A5;
const ODD_B: u64 = 0x8BB8_4B93_962E_ACC9;

/// Takes one more word into a running digest.
pub(in crate::protocol) const fn fold(digest: u64, word: u64) -> u64 {
    let product = ((digest ^ ODD_A) as u128) * ((word ^ ODD_B) as u128);
    // The rotated digest keeps a zero factor from wiping out all that came before it.
    low(product) ^ low(product >> 64) ^ digest.rotate_left(23)
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
const fn low(wide: u128) -> u64 {
    wide as u64
}

/// The two halves of a transaction id.
pub(super) const fn tx_words(tx: TxId) -> [u64; 2] {
    let whole = u128::from_le_bytes(tx.bytes());
    [low(whole), low(whole >> 64)]
}

/// What a request asks for, in 56 bits: its transaction and its participants in their order. The same at all servers.
pub(in crate::protocol) fn body(tx: TxId, participants: Participants<'_>) -> u64 {
    let [one, two] = tx_words(tx);
    let digest = participants.iter().fold(fold(fold(0, one), two), |digest, id| fold(digest, u64::from(id.get())));
    fold(digest, participants.len() as u64) >> 8
}

/// Where keys stand in tables: seeded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    seed: u64,
}

impl Places {
    pub(super) const fn new(seed: u64) -> Self {
        Self { seed: fold(seed, ODD_A) }
    }

    pub(super) const fn tx(self, tx: TxId) -> u32 {
        let [one, two] = tx_words(tx);
        top(fold(fold(self.seed, one), two))
    }

    pub(super) const fn session(self, session: SessionId) -> u32 {
        top(fold(fold(self.seed, session.created.get()), session.nonce))
    }

    pub(super) const fn word(self, word: u64) -> u32 {
        top(fold(self.seed, word))
    }

    pub(super) const fn node(self, id: NodeId) -> u32 {
        self.word(id.get() as u64)
    }
}

/// The upper half, folded once more, since a product's low bits are its weakest.
const fn top(digest: u64) -> u32 {
    (fold(digest, ODD_B) >> 32) as u32
}
