//! The ledger told plainly: lists and maps that grow without bound, one rule after the other as protocol.md, section
//! 11 has them. What the servers' ledgers say is compared with it.
//!
//! **Why a second one.** Seven servers with the same wrong ledger agree with each other; this one shares no code with
//! theirs. **Invariants**: it sees every entry once, in the order of the merge.
//! **Limits**: sessions are never evicted here, so a schedule must stay below their time to live.
//! **Not here**: how the order came about (`check`).
use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::ledger::Limits;
use crate::protocol::{Refusal, SessionId, TxId, WINDOW};

/// Which request: principal, session, number.
pub(super) type Key = (u64, SessionId, u64);

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) tx: TxId,
    pub(super) participants: Vec<u32>,
}

/// A record: what got a number.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) ts: u64,
    pub(super) body: Body,
    /// Of each participant, its sequence number.
    pub(super) seqs: Vec<u64>,
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Numbered(u64),
    Repeated(u64),
    Refused(Refusal),
}

#[derive(Debug, Default)]
struct Session {
    highest: u64,
    memory: BTreeMap<u64, Result<u64, (Refusal, Body)>>,
}

/// The plain ledger.
#[derive(Debug)]
pub(super) struct Model {
    limits: Limits,
    sessions: BTreeMap<(u64, SessionId), Session>,
    records: Vec<Record>,
    /// Order numbers of each participant's records.
    sequences: BTreeMap<u32, Vec<u64>>,
    by_tx: BTreeMap<[u8; 16], u64>,
    refusals: BTreeSet<(Key, TxId, Refusal)>,
}

impl Model {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            sessions: BTreeMap::new(),
            records: Vec::new(),
            sequences: BTreeMap::new(),
            by_tx: BTreeMap::new(),
            refusals: BTreeSet::new(),
        }
    }

    /// The last number given.
    pub(super) fn last(&self) -> u64 {
        self.records.len() as u64
    }

    /// The oldest number retained by a ledger whose last number is `last`.
    pub(super) fn retained_from(&self, last: u64) -> u64 {
        (last + 1).saturating_sub(self.limits.retain_entries as u64).max(1)
    }

    /// The record of a number.
    pub(super) fn record(&self, order: u64) -> Option<&Record> {
        usize::try_from(order.checked_sub(1)?).ok().and_then(|at| self.records.get(at))
    }

    /// The number that answers a request, if one was given or found.
    pub(super) fn answer(&self, key: &Key) -> Option<u64> {
        match self.sessions.get(&(key.0, key.1))?.memory.get(&key.2)? {
            Ok(order) => Some(*order),
            Err(_) => None,
        }
    }

    /// Whether a request with this transaction was ever refused for this reason on delivery.
    pub(super) fn was_refused(&self, key: &Key, tx: TxId, why: Refusal) -> bool {
        self.refusals.contains(&(*key, tx, why))
    }

    /// What participant `id` did before its record number `order`, newest first, as a ledger whose last number is
    /// `last` tells it to this depth.
    pub(super) fn history(&self, id: u32, order: u64, depth: usize, last: u64) -> Vec<(u64, TxId)> {
        let from = self.retained_from(last);
        let sequence = self.sequences.get(&id).map_or(&[][..], Vec::as_slice);
        let before = sequence.iter().rev().filter(|other| **other < order).take(depth);
        let retained = before.take_while(|other| **other >= from);
        retained.filter_map(|other| self.record(*other).map(|record| (*other, record.body.tx))).collect()
    }

    /// Takes the next entry of the order.
    pub(super) fn deliver(&mut self, ts: u64, key: Key, body: &Body) -> Fate {
        let fate = self.judge(ts, key, body);
        if let Fate::Refused(why) = fate {
            self.refusals.insert((key, body.tx, why));
        }
        fate
    }

    fn judge(&mut self, ts: u64, key: Key, body: &Body) -> Fate {
        let (principal, session, request) = key;
        let created = session.created.get();
        let is_new = !self.sessions.contains_key(&(principal, session));
        let too_old = created <= ts && ts - created >= self.limits.session_ttl.get();
        if is_new && (too_old || created.saturating_sub(ts) > 1_000_000_000) {
            return Fate::Refused(Refusal::SessionUnknown);
        }
        let held = self.sessions.entry((principal, session)).or_default();
        if request + WINDOW as u64 <= held.highest {
            return Fate::Refused(Refusal::WindowExceeded);
        }
        match held.memory.get(&request) {
            Some(Ok(order)) => {
                let order = *order;
                let same = self.record(order).is_some_and(|record| record.body == *body);
                return if order < self.retained_from(self.last()) {
                    Fate::Refused(Refusal::WindowExceeded)
                } else if same {
                    Fate::Repeated(order)
                } else {
                    Fate::Refused(Refusal::RequestDiffers)
                };
            }
            Some(Err((why, refused))) if refused == body => return Fate::Refused(*why),
            _ => {}
        }
        let fate = self.place(ts, body);
        let memory = match fate {
            Fate::Numbered(order) | Fate::Repeated(order) => Ok(order),
            Fate::Refused(why) => Err((why, body.clone())),
        };
        if let Some(held) = self.sessions.get_mut(&(principal, session)) {
            held.highest = held.highest.max(request);
            held.memory.insert(request, memory);
        }
        fate
    }

    fn place(&mut self, ts: u64, body: &Body) -> Fate {
        let known = self.by_tx.get(&body.tx.bytes()).copied().filter(|order| *order >= self.retained_from(self.last()));
        if let Some(order) = known {
            let same = self.record(order).is_some_and(|record| record.body == *body);
            return if same { Fate::Repeated(order) } else { Fate::Refused(Refusal::TxDiffers) };
        }
        let new = body.participants.iter().filter(|id| !self.sequences.contains_key(id)).count();
        if self.sequences.len() + new > self.limits.participants {
            return Fate::Refused(Refusal::ParticipantsFull);
        }
        let order = self.last() + 1;
        let mut seqs = Vec::with_capacity(body.participants.len());
        for id in &body.participants {
            let sequence = self.sequences.entry(*id).or_default();
            sequence.push(order);
            seqs.push(sequence.len() as u64);
        }
        self.by_tx.insert(body.tx.bytes(), order);
        self.records.push(Record { ts, body: body.clone(), seqs });
        Fate::Numbered(order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Timestamp;

    #[test]
    fn a_retry_is_no_new_record_and_another_body_is_told() {
        let mut model = Model::new(Limits { participants: 3, retain_entries: 2, ..Limits::default() });
        let session = SessionId { created: Timestamp::new(5), nonce: 1 };
        let body = |tx, ids: &[u32]| Body { tx: TxId::new([tx; 16]), participants: ids.to_vec() };
        assert_eq!(model.deliver(6, (1, session, 1), &body(1, &[1, 2])), Fate::Numbered(1));
        assert_eq!(model.deliver(7, (1, session, 1), &body(1, &[1, 2])), Fate::Repeated(1));
        assert_eq!(model.deliver(8, (1, session, 1), &body(2, &[1, 2])), Fate::Refused(Refusal::RequestDiffers));
        assert_eq!(model.deliver(9, (1, session, 2), &body(1, &[1, 2])), Fate::Repeated(1));
        assert_eq!(model.deliver(10, (1, session, 3), &body(1, &[2])), Fate::Refused(Refusal::TxDiffers));
        assert_eq!(model.deliver(11, (1, session, 4), &body(4, &[4, 5])), Fate::Refused(Refusal::ParticipantsFull));
        assert_eq!(model.deliver(12, (1, session, 4), &body(5, &[2])), Fate::Numbered(2));
        assert_eq!(model.deliver(13, (1, session, 5), &body(6, &[2, 3])), Fate::Numbered(3));
        assert_eq!(model.history(2, 3, 16, 3), [(2, TxId::new([5; 16]))], "number 1 is past retention");
        assert_eq!(model.deliver(14, (1, session, 1), &body(1, &[1, 2])), Fate::Refused(Refusal::WindowExceeded));
        assert_eq!(
            (model.answer(&(1, session, 4)), model.record(2).map(|record| record.seqs.clone())),
            (Some(2), Some(vec![2]))
        );
    }
}
