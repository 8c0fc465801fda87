//! Ledger: what delivery does (protocol.md, section 11). Numbers, retries, sequences, histories, all from the
//! delivered sequence alone.
//!
//! **Why here.** Every server feeds its ledger the same entries in the same order and so answers the same, without
//! another word between them. Nothing in it knows of time but the entries' own stamps, nor of chance: a table's seed
//! only says where rows stand.
//!
//! **What is asked of an entry, in this order**; the first that speaks decides, and only the last uses a number:
//! 1. Content: request number from 1, 1 to 64 distinct participants. Else `malformed`, and the session is not touched.
//! 2. Session: found, and of this principal (else `session_unknown`); or created, if it is young enough
//!    (`session_unknown`) and there is room (`sessions_full`). From here on it counts as used, whatever comes out.
//! 3. Window: `window_exceeded` below it. In it, a number once answered keeps its answer (`Repeated`) for the same
//!    transaction and participants; with others it is `request_differs`; and if the record that answered is past
//!    retention, `window_exceeded`. A number once refused is refused the same way for the same body; with another
//!    body it is looked at afresh. What a slot remembers is the last refusal.
//! 4. Transaction: a retained record of it answers (`Repeated`), and the request remembers that. With other
//!    participants or another order of them, `tx_differs`, remembered.
//! 5. Participants: room for all new ones, else `participants_full`, remembered.
//! 6. The next order number, and the next sequence number of each participant.
//!
//! Before a session exists a refusal can not be remembered, nor need it be: a session that was too old stays too old;
//! `sessions_full`, and `session_unknown` for one too far ahead, are about a moment, and a retry may do better.
//!
//! **Invariants**, asserted in release: stamps rise from delivery to delivery; order numbers and sequences are dense;
//! a request has at most one number, and so has a transaction within retention.
//! **Limits**: [`Limits`], all allocated by [`Ledger::new`]; nothing grows.
//! **Not here**: bytes of answers (`wire`), when an entry is delivered, whole snapshots. These will copy rows: a record
//! and a participant name the order number that last touched them, a session the time of the delivery that did.

use alloc::vec;
use alloc::vec::Vec;

use super::{OrderNo, ParticipantSeq, Principal, Refusal, RequestNo, SessionId, Span, Timestamp, TxId};
use crate::protocol::NodeId;

pub(super) mod hash;
mod index;
mod limits;
mod lru;
mod nodes;
mod participants;
mod records;
mod sessions;
mod txs;

pub use limits::{Limits, LimitsError, ROWS_MAX};
pub use participants::{Participants, ParticipantsError, ParticipantsIter};
pub use records::{History, Part, Parts, Record};

use hash::Places;
use nodes::Nodes;
use records::Records;
use sessions::{Memory, Sessions};

/// How far ahead of ledger time a session's creation may be: it is told by a server's clock, not by the ledger's.
pub const CREATED_AHEAD_MAX: Span = Span::secs(1);
/// How many of the last prefix hashes are kept for comparison with other servers.
pub const HASHES_KEPT: usize = 1024;

const HASHES_MASK: u64 = HASHES_KEPT as u64 - 1;
const HASH_OF_NOTHING: u64 = 0x6F72_6461_696E;
const _: () = assert!(HASHES_KEPT.is_power_of_two());

/// A request as it is delivered.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its place in the merge; never falls from delivery to delivery.
    pub ts: Timestamp,
    /// Whose request it is.
    pub principal: Principal,
    /// In which session.
    pub session: SessionId,
    /// Its number there.
    pub request: RequestNo,
    /// The transaction to be ordered.
    pub tx: TxId,
    /// Who takes part in it.
    pub participants: Participants<'a>,
}

/// What became of a delivered entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has got this number, the next one.
    Numbered(OrderNo),
    /// The request, or its transaction, had a place already: that record is the answer. No number was used.
    Repeated(OrderNo),
    /// No number, no sequence. Final for this body, unless it is `sessions_full` or a session too far ahead.
    Refused(Refusal),
}

/// What a ledger already knows of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// That record is the answer.
    Answered(OrderNo),
    /// It can not be numbered any more: delivering it would refuse it, now and later.
    Refused(Refusal),
    /// It has to be ordered to know.
    Unknown,
}

/// What a ledger has counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Entries delivered: the sum of the next three and of the refusals.
    pub delivered: u64,
    /// Entries that got a number.
    pub numbered: u64,
    /// Entries whose request was answered before.
    pub requests_repeated: u64,
    /// Entries whose transaction had a place under another request.
    pub txs_repeated: u64,
    /// Entries refused, by [`Refusal::code`] less one.
    pub refused: [u64; Refusal::ALL.len()],
    /// Records dropped at the end of retention.
    pub records_dropped: u64,
}

/// The ledger of one server. See the module for what it does with an entry.
#[derive(Debug)]
pub struct Ledger {
    sessions: Sessions,
    nodes: Nodes,
    records: Records,
    hash: u64,
    hashes: Vec<u64>,
    time: Timestamp,
    counters: Counters,
    #[cfg(test)]
    forget_duplicates: bool,
}

impl Ledger {
    /// An empty ledger: no number given, everything allocated.
    ///
    /// # Panics
    /// If the limits do not pass [`Limits::check`].
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self::seeded(limits, 0)
    }

    /// As [`Ledger::new`], with tables that nobody who does not know `seed` can fill unevenly. Nothing else depends
    /// on it: servers have different ones.
    ///
    /// # Panics
    /// If the limits do not pass [`Limits::check`].
    #[must_use]
    pub fn seeded(limits: Limits, seed: u64) -> Self {
        if let Err(error) = limits.check() {
            panic!("{error}");
        }
        let places = Places::new(seed);
        let mut hashes = vec![0; HASHES_KEPT];
        hashes[0] = HASH_OF_NOTHING;
        Self {
            sessions: Sessions::new(&limits, places),
            nodes: Nodes::new(limits.participants, places),
            records: Records::new(limits.retain_entries, limits.retain_parts, places),
            hash: HASH_OF_NOTHING,
            hashes,
            time: Timestamp::new(0),
            counters: Counters::default(),
            #[cfg(test)]
            forget_duplicates: false,
        }
    }

    /// Takes the next entry of the total order (R-DELIVER).
    ///
    /// # Panics
    /// If its stamp is below the last one's: the order is no longer to be trusted, so the server must stop. (Equal
    /// stamps are of different servers; that they come in order of the servers is the merge's to assert.)
    pub fn deliver(&mut self, entry: &Entry<'_>) -> Outcome {
        assert!(entry.ts >= self.time, "delivered {} after {}", entry.ts, self.time);
        self.time = entry.ts;
        self.counters.delivered += 1;
        let outcome = self.evaluate(entry);
        if let Outcome::Refused(refusal) = outcome {
            self.counters.refused[usize::from(refusal.code()) - 1] += 1;
        }
        outcome
    }

    /// Brings what [`Ledger::deliver`] will read of an entry near: changes nothing, and nothing depends on it.
    ///
    /// A ledger is larger than caches, so an entry costs some misses, one after the other. Here the processor overlaps
    /// those of several entries that will be delivered next. The transactions first and by themselves: these miss nearly
    /// always, and the less there is to do between them, the more of them a processor has under way at once.
    #[inline]
    pub fn warm<'a>(&self, entries: impl Iterator<Item = Entry<'a>> + Clone) {
        let txs = entries.clone().fold(0, |read, entry| read ^ self.records.warm(entry.tx));
        core::hint::black_box(txs);
        let rest = entries.fold(0, |read, entry| {
            read ^ self.nodes.warm(entry.participants) ^ self.sessions.warm(entry.session, entry.request)
        });
        core::hint::black_box(rest);
    }

    /// What is known of a request already, for a server that is asked and need not order it again. Changes nothing.
    ///
    /// Only what has been remembered under this very request is told. A transaction that has a place under another
    /// request is [`Lookup::Unknown`] here: it must be ordered, or this request would not remember its answer, and
    /// could be numbered once the record is past retention.
    #[must_use]
    pub fn lookup(
        &self,
        principal: Principal,
        session: SessionId,
        request: RequestNo,
        tx: TxId,
        participants: Participants<'_>,
    ) -> Lookup {
        if request.get() == 0 || participants.check().is_err() {
            return Lookup::Refused(Refusal::Malformed);
        }
        let row = match self.sessions.find(principal, session) {
            Some(Ok(row)) => row,
            Some(Err(refusal)) => return Lookup::Refused(refusal),
            None if self.sessions.too_old(session.created, self.time) => {
                return Lookup::Refused(Refusal::SessionUnknown);
            }
            None => return Lookup::Unknown,
        };
        match self.recall(row, request, tx, participants) {
            Some(Ok(order)) => Lookup::Answered(order),
            Some(Err(refusal)) => Lookup::Refused(refusal),
            None => Lookup::Unknown,
        }
    }

    /// The record of an order number: `None` if there is none yet, or none any more.
    #[must_use]
    pub fn record(&self, order: OrderNo) -> Option<Record<'_>> {
        self.records.record(order)
    }

    /// What a participant did before the record that `part` is of: at most `depth` records back, newest first, to the
    /// end of retention.
    #[must_use]
    pub fn history(&self, part: Part, depth: usize) -> History<'_> {
        History::new(&self.records, part, depth)
    }

    /// The number of a transaction, while its record is retained.
    #[must_use]
    pub fn by_tx(&self, tx: TxId) -> Option<OrderNo> {
        self.records.find(tx)
    }

    /// How far a participant's sequence has come, and in which record (which may be past retention).
    #[must_use]
    pub fn participant(&self, id: NodeId) -> Option<(ParticipantSeq, OrderNo)> {
        self.nodes.last(id)
    }

    /// How many entries were delivered, duplicates and refused ones included (`pos`).
    #[must_use]
    pub const fn delivered(&self) -> u64 {
        self.counters.delivered
    }

    /// The last number given (`N`); zero before the first.
    #[must_use]
    pub const fn last_order(&self) -> OrderNo {
        self.records.last()
    }

    /// The oldest number whose record is retained; one past [`Ledger::last_order`] if none is.
    #[must_use]
    pub const fn retained_from(&self) -> OrderNo {
        self.records.first()
    }

    /// Hash of all records so far: equal at equal `N`, or one of the servers is wrong.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    /// The hash when `order` was the last number, for the last [`HASHES_KEPT`] of them.
    #[must_use]
    pub fn hash_at(&self, order: OrderNo) -> Option<u64> {
        let back = self.last_order().get().checked_sub(order.get())?;
        (back <= HASHES_MASK).then(|| self.hashes[hash_place(order)])
    }

    /// Ledger time: the stamp of the last entry delivered.
    #[must_use]
    pub const fn time(&self) -> Timestamp {
        self.time
    }

    /// How many sessions there are.
    #[must_use]
    pub const fn sessions_len(&self) -> usize {
        self.sessions.len()
    }

    /// How many sessions were evicted.
    #[must_use]
    pub const fn sessions_evicted(&self) -> u64 {
        self.sessions.evicted()
    }

    /// How many participants there are.
    #[must_use]
    pub fn participants_len(&self) -> usize {
        self.nodes.len()
    }

    /// How many records are retained.
    #[must_use]
    pub const fn records_len(&self) -> usize {
        self.records.len()
    }

    /// What has been counted.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Planted fault of scenario S27: from now on every copy of a request gets a number.
    #[cfg(test)]
    pub fn plant_forget_duplicates(&mut self, planted: bool) {
        self.forget_duplicates = planted;
    }

    #[cfg(test)]
    const fn forgets_duplicates(&self) -> bool {
        self.forget_duplicates
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "the same call as under cfg(test)")]
    const fn forgets_duplicates(&self) -> bool {
        false
    }

    /// Steps 1 to 3 of the module's list.
    fn evaluate(&mut self, entry: &Entry<'_>) -> Outcome {
        let Entry { principal, session, request, tx, participants, .. } = *entry;
        if request.get() == 0 || participants.check().is_err() {
            return Outcome::Refused(Refusal::Malformed);
        }
        let row = match self.sessions.enter(principal, session, entry.ts) {
            Ok(row) => row,
            Err(refusal) => return Outcome::Refused(refusal),
        };
        match self.recall(row, request, tx, participants) {
            Some(Ok(order)) => {
                self.counters.requests_repeated += 1;
                Outcome::Repeated(order)
            }
            Some(Err(refusal)) => Outcome::Refused(refusal),
            None => {
                let outcome = self.place(entry);
                let memory = match outcome {
                    Outcome::Numbered(order) | Outcome::Repeated(order) => Memory::Answered(order),
                    Outcome::Refused(refusal) => Memory::Refused(refusal, hash::body(tx, participants)),
                };
                self.sessions.remember(row, request, memory);
                outcome
            }
        }
    }

    /// What the session says of a request; `None` if it is to be looked at afresh. Changes nothing.
    fn recall(
        &self,
        row: u32,
        request: RequestNo,
        tx: TxId,
        participants: Participants<'_>,
    ) -> Option<Result<OrderNo, Refusal>> {
        match self.sessions.recall(row, request) {
            Memory::Open => None,
            Memory::TooOld => Some(Err(Refusal::WindowExceeded)),
            Memory::Answered(_) if self.forgets_duplicates() => None,
            Memory::Answered(order) => Some(match self.records.record(order) {
                None => Err(Refusal::WindowExceeded),
                Some(record) if record.answers(tx, participants) => Ok(order),
                Some(_) => Err(Refusal::RequestDiffers),
            }),
            Memory::Refused(refusal, body) => (hash::body(tx, participants) == body).then_some(Err(refusal)),
        }
    }

    /// Steps 4 to 6 of the module's list.
    fn place(&mut self, entry: &Entry<'_>) -> Outcome {
        let known = if self.forgets_duplicates() { None } else { self.records.find(entry.tx) };
        if let Some(order) = known {
            let same = self.records.record(order).is_some_and(|record| record.answers(entry.tx, entry.participants));
            if !same {
                return Outcome::Refused(Refusal::TxDiffers);
            }
            self.counters.txs_repeated += 1;
            return Outcome::Repeated(order);
        }
        let Some(found) = self.nodes.find_all(entry.participants) else {
            return Outcome::Refused(Refusal::ParticipantsFull);
        };
        let order = self.records.last().next();
        let mut digest = head_hash(self.hash, order, entry);
        let nodes = &mut self.nodes;
        let dropped = self.records.append(entry.ts, entry.tx, entry.participants, |place, id| {
            let part = nodes.advance(&found, place, id, order);
            digest = hash::fold(hash::fold(digest, u64::from(id.get())), part.seq.get());
            part
        });
        self.hash = digest;
        self.hashes[hash_place(order)] = digest;
        self.counters.records_dropped += dropped;
        self.counters.numbered += 1;
        Outcome::Numbered(order)
    }
}

/// The prefix hash goes over number, stamp, principal, session, request, transaction; then id and sequence number of
/// each participant, in their order.
fn head_hash(before: u64, order: OrderNo, entry: &Entry<'_>) -> u64 {
    let [one, two] = hash::tx_words(entry.tx);
    let words = [
        order.get(),
        entry.ts.get(),
        entry.principal.get(),
        entry.session.created.get(),
        entry.session.nonce,
        entry.request.get(),
        one,
        two,
    ];
    words.into_iter().fold(before, hash::fold)
}

const fn hash_place(order: OrderNo) -> usize {
    (order.get() & HASHES_MASK) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S27's planted fault: with "drops duplicates" removed, the second copy of a request gets a number of its own.
    #[test]
    fn s27_planted_a_copy_is_numbered_again() {
        let ids = [[1, 0, 0, 0]];
        let entry = |ts| Entry {
            ts: Timestamp::new(ts),
            principal: Principal::new(1),
            session: SessionId { created: Timestamp::new(1), nonce: 1 },
            request: RequestNo::new(7),
            tx: TxId::new([7; 16]),
            participants: Participants::held(&ids),
        };
        for (planted, second) in
            [(false, Outcome::Repeated(OrderNo::new(1))), (true, Outcome::Numbered(OrderNo::new(2)))]
        {
            let mut ledger = Ledger::new(Limits::laptop());
            ledger.plant_forget_duplicates(planted);
            assert_eq!(ledger.deliver(&entry(10)), Outcome::Numbered(OrderNo::new(1)));
            assert_eq!(ledger.deliver(&entry(11)), second);
        }
    }
}
