//! How much a ledger keeps: all of it allocated when the ledger is made, none of it grown afterwards.
//!
//! **Why part of the protocol.** What is evicted or refused follows from these figures, so servers with different
//! ones would number differently: they compare [`Limits::fingerprint`] before they listen to each other.
//! **Invariants**: a ledger is made only of limits that pass [`Limits::check`].
//! **Limits** of the limits: [`ROWS_MAX`] rows of any table, since rows are named by 32 bits.
//! **Not here**: the configuration file's keys (`server`).

use thiserror::Error;

use super::hash::fold;
use super::{CREATED_AHEAD_MAX, nodes, records, sessions};
use crate::protocol::{PARTICIPANTS_MAX, Span, WINDOW};

/// Most rows of any table of a ledger.
pub const ROWS_MAX: usize = 1 << 30;

/// What a ledger keeps, the same on all servers of a cluster (protocol.md, table of defaults).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Records kept; the oldest goes first.
    pub retain_entries: usize,
    /// Participants of all kept records together; a record goes earlier than by `retain_entries` when these are full.
    pub retain_parts: usize,
    /// Sessions of all principals.
    pub sessions: usize,
    /// Sessions of one principal.
    pub sessions_per_key: usize,
    /// A session older than this is not created; one unused for this and a second more may be evicted.
    pub session_ttl: Span,
    /// Distinct participant ids, for ever.
    pub participants: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            retain_entries: 1_000_000,
            retain_parts: 3_000_000,
            sessions: 16_384,
            sessions_per_key: 4_096,
            session_ttl: Span::secs(60),
            participants: 262_144,
        }
    }
}

/// Which limit cannot be, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LimitsError {
    /// Outside what the tables can be.
    #[error("{name} = {value} is out of range: {least}..={most}")]
    OutOfRange {
        /// The limit.
        name: &'static str,
        /// What it was set to.
        value: usize,
        /// The least it can be.
        least: usize,
        /// The most it can be.
        most: usize,
    },
    /// A time to live that no session would survive, or that would never end.
    #[error("session_ttl = {0} is out of range: 1 s to 30 days")]
    SessionTtl(Span),
}

impl Limits {
    /// For small machines: a fifth of the records, a quarter of the sessions and participants.
    #[must_use]
    pub fn laptop() -> Self {
        Self {
            retain_entries: 200_000,
            retain_parts: 600_000,
            sessions: 4_096,
            participants: 65_536,
            ..Self::default()
        }
    }

    /// Whether a ledger can be made of these.
    ///
    /// # Errors
    /// The first limit that cannot be.
    pub fn check(&self) -> Result<(), LimitsError> {
        let in_range = |name, value, least, most| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(LimitsError::OutOfRange { name, value, least, most })
            }
        };
        in_range("retain_entries", self.retain_entries, 1, ROWS_MAX)?;
        in_range("retain_parts", self.retain_parts, PARTICIPANTS_MAX, ROWS_MAX)?;
        in_range("sessions", self.sessions, 1, ROWS_MAX / WINDOW)?;
        in_range("sessions_per_key", self.sessions_per_key, 1, self.sessions)?;
        in_range("participants", self.participants, 1, ROWS_MAX / 4)?;
        if (Span::secs(1)..=Span::secs(30 * 86_400)).contains(&self.session_ttl) {
            Ok(())
        } else {
            Err(LimitsError::SessionTtl(self.session_ttl))
        }
    }

    /// A digest of all that decides what is numbered, evicted or refused. Unequal: the servers must not be one cluster.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        // The first word is the version of the ledger's rules: raise it when they change.
        let words = [
            1,
            wide(self.retain_entries),
            wide(self.retain_parts),
            wide(self.sessions),
            wide(self.sessions_per_key),
            self.session_ttl.get(),
            wide(self.participants),
            wide(WINDOW),
            wide(PARTICIPANTS_MAX),
            CREATED_AHEAD_MAX.get(),
        ];
        words.into_iter().fold(0x6C65_6467_6572, fold)
    }

    /// Bytes a ledger of these limits takes, all of them at construction.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        records::bytes(self.retain_entries, self.retain_parts)
            + sessions::bytes(self.sessions)
            + nodes::bytes(self.participants)
    }
}

const fn wide(count: usize) -> u64 {
    count as u64
}
