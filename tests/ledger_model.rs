//! The ledger against a plain model, with limits so small that everything fills, ages and falls out all the time.
#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet};

use ordain::protocol::ledger::{Entry, Ledger, Limits, Lookup, Outcome, Participants};
use ordain::protocol::{
    NodeId, OrderNo, PARTICIPANTS_MAX, Principal, Refusal, RequestNo, SessionId, Span, Timestamp, TxId, WINDOW,
};
use proptest::prelude::{ProptestConfig, any, prop, proptest};

const SECOND: u64 = 1_000_000_000;

/// Session and request number.
type Key = ((u64, u64), u64);
/// Transaction and participants.
type Body = (u64, Vec<u32>);

/// An entry that owns its participants.
#[derive(Clone, Debug)]
struct Ask {
    ts: u64,
    principal: u64,
    session: (u64, u64),
    request: u64,
    tx: u64,
    ids: Vec<u32>,
}

/// What was answered under a request number.
#[derive(Clone, Debug, PartialEq)]
enum Said {
    Order(u64),
    Refused(Refusal, u64, Vec<u32>),
}

#[derive(Clone, Debug)]
struct Session {
    principal: u64,
    last_used: u64,
    highest: u64,
    said: BTreeMap<u64, Said>,
}

#[derive(Clone, Debug)]
struct Record {
    ts: u64,
    tx: u64,
    /// Id and sequence number.
    parts: Vec<(u32, u64)>,
}

/// Section 11 in the most obvious code: keeps everything for ever, and only asks whether it still counts.
#[derive(Debug)]
struct Model {
    limits: Limits,
    time: u64,
    sessions: BTreeMap<(u64, u64), Session>,
    /// All records ever; number n is at n - 1.
    records: Vec<Record>,
    retained_from: u64,
    /// The order numbers of each participant, oldest first.
    lines: BTreeMap<u32, Vec<u64>>,
}

impl Model {
    fn new(limits: Limits) -> Self {
        let (sessions, lines) = (BTreeMap::new(), BTreeMap::new());
        Self { limits, time: 0, sessions, records: Vec::new(), retained_from: 1, lines }
    }

    fn last(&self) -> u64 {
        self.records.len() as u64
    }

    fn retained(&self, order: u64) -> Option<&Record> {
        (order >= self.retained_from && order <= self.last()).then(|| &self.records[at(order)])
    }

    fn same_body(&self, order: u64, ask: &Ask) -> bool {
        let record = self.retained(order).unwrap();
        record.tx == ask.tx && record.parts.iter().map(|(id, _)| *id).eq(ask.ids.iter().copied())
    }

    fn by_tx(&self, tx: u64) -> Option<u64> {
        (self.retained_from..=self.last()).find(|order| self.records[at(*order)].tx == tx)
    }

    fn malformed(ask: &Ask) -> bool {
        let distinct: BTreeSet<u32> = ask.ids.iter().copied().collect();
        ask.request == 0 || ask.ids.is_empty() || ask.ids.len() > PARTICIPANTS_MAX || distinct.len() < ask.ids.len()
    }

    /// What the session says of the request, if anything.
    fn recall(&self, session: &Session, ask: &Ask) -> Option<Outcome> {
        if ask.request + WINDOW as u64 <= session.highest {
            return Some(Outcome::Refused(Refusal::WindowExceeded));
        }
        match session.said.get(&ask.request)? {
            Said::Order(order) => Some(match self.retained(*order) {
                None => Outcome::Refused(Refusal::WindowExceeded),
                Some(_) if self.same_body(*order, ask) => Outcome::Repeated(OrderNo::new(*order)),
                Some(_) => Outcome::Refused(Refusal::RequestDiffers),
            }),
            Said::Refused(refusal, tx, ids) => (*tx == ask.tx && *ids == ask.ids).then_some(Outcome::Refused(*refusal)),
        }
    }

    fn lookup(&self, ask: &Ask) -> Lookup {
        if Self::malformed(ask) {
            return Lookup::Refused(Refusal::Malformed);
        }
        let Some(session) = self.sessions.get(&ask.session) else {
            let ttl = self.limits.session_ttl.get();
            let too_old = ask.session.0 + ttl <= self.time;
            return if too_old { Lookup::Refused(Refusal::SessionUnknown) } else { Lookup::Unknown };
        };
        if session.principal != ask.principal {
            return Lookup::Refused(Refusal::SessionUnknown);
        }
        match self.recall(session, ask) {
            None => Lookup::Unknown,
            Some(Outcome::Refused(refusal)) => Lookup::Refused(refusal),
            Some(Outcome::Repeated(order) | Outcome::Numbered(order)) => Lookup::Answered(order),
        }
    }

    fn enter(&mut self, ask: &Ask) -> Result<(), Refusal> {
        if let Some(session) = self.sessions.get_mut(&ask.session) {
            if session.principal != ask.principal {
                return Err(Refusal::SessionUnknown);
            }
            session.last_used = self.time;
            return Ok(());
        }
        let (created, ttl) = (ask.session.0, self.limits.session_ttl.get());
        if created + ttl <= self.time || created > self.time + SECOND {
            return Err(Refusal::SessionUnknown);
        }
        let own = |session: &Session| session.principal == ask.principal;
        let own_full = self.sessions.values().filter(|session| own(session)).count() == self.limits.sessions_per_key;
        if own_full || self.sessions.len() == self.limits.sessions {
            let (unused, oldest) = self
                .sessions
                .iter()
                .filter(|(_, session)| !own_full || own(session))
                .map(|(id, session)| (session.last_used, *id))
                .min()
                .unwrap();
            if unused + ttl + SECOND > self.time {
                return Err(Refusal::SessionsFull);
            }
            self.sessions.remove(&oldest);
        }
        let new = Session { principal: ask.principal, last_used: self.time, highest: 0, said: BTreeMap::new() };
        self.sessions.insert(ask.session, new);
        Ok(())
    }

    fn deliver(&mut self, ask: &Ask) -> Outcome {
        self.time = ask.ts;
        if Self::malformed(ask) {
            return Outcome::Refused(Refusal::Malformed);
        }
        if let Err(refusal) = self.enter(ask) {
            return Outcome::Refused(refusal);
        }
        if let Some(outcome) = self.recall(&self.sessions[&ask.session], ask) {
            return outcome;
        }
        let outcome = self.place(ask);
        let session = self.sessions.get_mut(&ask.session).unwrap();
        session.highest = session.highest.max(ask.request);
        let said = match outcome {
            Outcome::Numbered(order) | Outcome::Repeated(order) => Said::Order(order.get()),
            Outcome::Refused(refusal) => Said::Refused(refusal, ask.tx, ask.ids.clone()),
        };
        session.said.insert(ask.request, said);
        outcome
    }

    fn place(&mut self, ask: &Ask) -> Outcome {
        if let Some(order) = self.by_tx(ask.tx) {
            return if self.same_body(order, ask) {
                Outcome::Repeated(OrderNo::new(order))
            } else {
                Outcome::Refused(Refusal::TxDiffers)
            };
        }
        let new = ask.ids.iter().filter(|id| !self.lines.contains_key(id)).count();
        if self.lines.len() + new > self.limits.participants {
            return Outcome::Refused(Refusal::ParticipantsFull);
        }
        let order = self.last() + 1;
        let mut parts = Vec::new();
        for id in &ask.ids {
            let line = self.lines.entry(*id).or_default();
            line.push(order);
            parts.push((*id, line.len() as u64));
        }
        self.records.push(Record { ts: ask.ts, tx: ask.tx, parts });
        while self.retained_entries() > self.limits.retain_entries || self.retained_parts() > self.limits.retain_parts {
            self.retained_from += 1;
        }
        Outcome::Numbered(OrderNo::new(order))
    }

    fn retained_entries(&self) -> usize {
        self.records.len() - at(self.retained_from)
    }

    fn retained_parts(&self) -> usize {
        self.records[at(self.retained_from)..].iter().map(|record| record.parts.len()).sum()
    }

    fn history(&self, order: u64, id: u32, depth: usize) -> Vec<(OrderNo, TxId)> {
        let before = self.lines[&id].iter().rev().filter(|other| **other < order);
        before
            .take(depth)
            .take_while(|other| **other >= self.retained_from)
            .map(|other| (OrderNo::new(*other), tx_id(self.records[at(*other)].tx)))
            .collect()
    }
}

/// Where the model keeps a number.
fn at(order: u64) -> usize {
    usize::try_from(order).unwrap() - 1
}

fn tx_id(tx: u64) -> TxId {
    TxId::new((u128::from(tx) << 8).to_le_bytes())
}

/// Calls `with` with the entry of an ask.
fn with_entry<T>(ask: &Ask, with: impl FnOnce(&Entry<'_>) -> T) -> T {
    let ids: Vec<[u8; 4]> = ask.ids.iter().map(|id| id.to_le_bytes()).collect();
    with(&Entry {
        ts: Timestamp::new(ask.ts),
        principal: Principal::new(ask.principal),
        session: SessionId { created: Timestamp::new(ask.session.0), nonce: ask.session.1 },
        request: RequestNo::new(ask.request),
        tx: tx_id(ask.tx),
        participants: Participants::held(&ids),
    })
}

fn lookup(ledger: &Ledger, ask: &Ask) -> Lookup {
    with_entry(ask, |entry| ledger.lookup(entry.principal, entry.session, entry.request, entry.tx, entry.participants))
}

/// Model, two ledgers whose tables differ, and what was asked so far.
struct Bench {
    model: Model,
    ledger: Ledger,
    other: Ledger,
    asked: Vec<Ask>,
    next_tx: u64,
    numbered: BTreeSet<Key>,
    /// Requests refused as final, with their bodies, for as long as nothing else was asked under their number.
    refused: BTreeMap<Key, Body>,
}

/// Raw material of one step.
type Draw = (u8, u8, u16, u8, u8);

impl Bench {
    fn new(limits: Limits) -> Self {
        let ledgers = (Ledger::new(limits), Ledger::seeded(limits, 0xFEED));
        let model = Model::new(limits);
        let (numbered, refused) = (BTreeSet::new(), BTreeMap::new());
        Self { model, ledger: ledgers.0, other: ledgers.1, asked: Vec::new(), next_tx: 0, numbered, refused }
    }

    /// Makes an entry out of raw material: mostly something that was asked before, slightly changed.
    fn ask(&mut self, (step, kind, pick, more, ids): Draw) -> Ask {
        let ttl = self.model.limits.session_ttl.get();
        let steps = [1, 1, 1, 1, 1, 1, 1_000_000, SECOND / 8, SECOND / 2, SECOND, ttl, ttl + SECOND];
        let since_start = if self.asked.is_empty() { 10 * SECOND } else { 0 };
        let ts = self.model.time + since_start + steps[usize::from(step) % steps.len()];
        let more_u64 = u64::from(more);
        let ids: Vec<u32> = (0..1 + u32::from(ids % 4)).map(|at| (u32::from(ids / 4) + at * at) % 8).collect();
        self.next_tx += 1;
        let offsets = [0, SECOND, ttl - 2, ttl - 1, ttl];
        let created = match more % 8 {
            5 => ts + SECOND,
            6 => ts + SECOND + 1,
            7 => ts + SECOND / 2,
            at => ts - offsets[usize::from(at)],
        };
        let new_session = Ask {
            ts,
            principal: u64::from(pick % 3),
            session: (created, u64::from(pick % 2)),
            request: 1 + u64::from(pick / 8 % 3) * 40,
            tx: self.next_tx,
            ids: ids.clone(),
        };
        let Some(old) = self.asked.get(self.asked.len().saturating_sub(1 + usize::from(pick) % 24)).cloned() else {
            return new_session;
        };
        let highest = self.model.sessions.get(&old.session).map_or(0, |session| session.highest);
        let next = Ask { ts, request: highest + 1, tx: self.next_tx, ids: ids.clone(), ..old.clone() };
        let reversed: Vec<u32> = old.ids.iter().rev().copied().collect();
        match kind % 16 {
            0 | 1 => new_session,
            2 | 3 => Ask { ts, ..old },
            4 => Ask { ts, ids, ..old },
            5 => Ask { ts, ids: reversed, ..old },
            6 => Ask { tx: old.tx, ids: old.ids, ..next },
            7 => Ask { tx: old.tx, ids: reversed, ..next },
            8 => Ask { request: (highest + more_u64 % 4).saturating_sub(more_u64 % 70), ..next },
            9 => Ask { request: highest + 62 + more_u64 % 4, ..next },
            10 if more % 4 == 0 => Ask { principal: old.principal ^ 1, ..next },
            11 if more % 8 == 0 => Ask { ids: if more % 16 == 0 { Vec::new() } else { vec![3, 5, 3] }, ..next },
            12 => Ask { ts, tx: self.next_tx, ..old },
            _ => next,
        }
    }

    fn step(&mut self, draw: Draw) -> Outcome {
        let ask = self.ask(draw);
        let known = lookup(&self.ledger, &ask);
        assert_eq!(known, self.model.lookup(&ask), "looked up before, {ask:?}");
        let outcome = with_entry(&ask, |entry| {
            self.ledger.warm(std::iter::once(*entry));
            self.ledger.deliver(entry)
        });
        assert_eq!(outcome, self.model.deliver(&ask), "{ask:?}");
        assert_eq!(outcome, with_entry(&ask, |entry| self.other.deliver(entry)), "another seed, {ask:?}");
        self.check_promises(&ask, known, outcome);
        self.check_state(&ask);
        self.asked.push(ask);
        outcome
    }

    /// What a lookup says, delivery does; one number a request; and no number after a refusal.
    fn check_promises(&mut self, ask: &Ask, known: Lookup, outcome: Outcome) {
        match known {
            Lookup::Unknown => {}
            Lookup::Answered(order) => assert_eq!(outcome, Outcome::Repeated(order)),
            Lookup::Refused(refusal) => assert_eq!(outcome, Outcome::Refused(refusal)),
        }
        let (key, body) = ((ask.session, ask.request), (ask.tx, ask.ids.clone()));
        match outcome {
            Outcome::Numbered(_) => {
                assert!(self.numbered.insert(key), "numbered twice: {ask:?}");
                assert_ne!(self.refused.get(&key), Some(&body), "numbered after a final refusal: {ask:?}");
            }
            Outcome::Refused(Refusal::TxDiffers | Refusal::ParticipantsFull) => {
                self.refused.insert(key, body);
            }
            Outcome::Refused(_) | Outcome::Repeated(_) => {}
        }
    }

    fn check_state(&self, ask: &Ask) {
        let (model, ledger) = (&self.model, &self.ledger);
        assert_eq!(lookup(ledger, ask), model.lookup(ask), "looked up after, {ask:?}");
        let last = OrderNo::new(model.last());
        assert_eq!((ledger.last_order(), ledger.time().get()), (last, model.time));
        assert_eq!((ledger.hash(), ledger.hash_at(last)), (self.other.hash(), Some(ledger.hash())));
        assert_eq!(ledger.retained_from().get(), model.retained_from);
        assert_eq!(ledger.records_len(), model.retained_entries());
        assert_eq!((ledger.sessions_len(), ledger.participants_len()), (model.sessions.len(), model.lines.len()));
        for order in 0..=model.last() + 1 {
            let Some(wanted) = model.retained(order) else {
                assert!(ledger.record(OrderNo::new(order)).is_none(), "record {order}");
                continue;
            };
            let record = ledger.record(OrderNo::new(order)).unwrap();
            assert_eq!((record.ts().get(), record.tx()), (wanted.ts, tx_id(wanted.tx)));
            let parts: Vec<_> = record.parts().map(|part| (part.id.get(), part.seq.get())).collect();
            assert_eq!(parts, wanted.parts);
            for part in record.parts() {
                for depth in [0, 1, 3, usize::MAX] {
                    let got: Vec<_> = ledger.history(part, depth).collect();
                    assert_eq!(got, model.history(order, part.id.get(), depth), "{order}, {part:?}, {depth}");
                }
            }
        }
        for tx in self.next_tx.saturating_sub(20)..=self.next_tx {
            assert_eq!(ledger.by_tx(tx_id(tx)).map(OrderNo::get), model.by_tx(tx));
        }
        for id in 0..8 {
            let wanted = model.lines.get(&id).map(|line| (line.len() as u64, *line.last().unwrap()));
            assert_eq!(ledger.participant(NodeId::new(id)).map(|(seq, last)| (seq.get(), last.get())), wanted);
        }
    }
}

fn tiny() -> Limits {
    Limits {
        retain_entries: 8,
        retain_parts: PARTICIPANTS_MAX,
        sessions: 4,
        sessions_per_key: 2,
        session_ttl: Span::secs(2),
        participants: 6,
    }
}

/// Records go because their parts do not fit, long before there are too many of them; everybody else has room.
fn few_parts() -> Limits {
    Limits { retain_entries: 1000, sessions: 40, sessions_per_key: 30, participants: 8, ..tiny() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn ledger_does_what_the_model_does(draws in prop::collection::vec(any::<Draw>(), 1..150)) {
        let mut bench = Bench::new(tiny());
        for draw in draws {
            bench.step(draw);
        }
    }

    #[test]
    fn ledger_does_what_the_model_does_when_parts_are_few(draws in prop::collection::vec(any::<Draw>(), 1..150)) {
        let mut bench = Bench::new(few_parts());
        for draw in draws {
            bench.step(draw);
        }
    }
}

#[test]
fn the_model_is_driven_into_every_corner() {
    let mut random = fastrand::Rng::with_seed(11);
    let (mut seen, mut evicted, mut dropped) = (BTreeMap::new(), 0, 0);
    for round in 0..60 {
        let mut bench = Bench::new(if round % 3 == 0 { few_parts() } else { tiny() });
        for _ in 0..200 {
            let draw = (random.u8(..), random.u8(..), random.u16(..), random.u8(..), random.u8(..));
            let name = match bench.step(draw) {
                Outcome::Numbered(_) => "numbered",
                Outcome::Repeated(_) => "repeated",
                Outcome::Refused(refusal) => refusal.name(),
            };
            *seen.entry(name).or_insert(0) += 1;
        }
        evicted += bench.ledger.sessions_evicted();
        let counters = bench.ledger.counters();
        dropped += counters.records_dropped;
        let refused: u64 = counters.refused.iter().sum();
        let repeated = counters.requests_repeated + counters.txs_repeated;
        assert_eq!((counters.delivered, counters.numbered + repeated + refused), (200, 200));
    }
    for name in [
        "numbered",
        "repeated",
        "window_exceeded",
        "session_unknown",
        "sessions_full",
        "participants_full",
        "request_differs",
        "tx_differs",
        "malformed",
    ] {
        assert!(seen.get(name).is_some_and(|count| *count >= 20), "{name} too rare: {seen:?}");
    }
    assert!(evicted > 50 && dropped > 1000, "{evicted} sessions evicted, {dropped} records dropped");
}
