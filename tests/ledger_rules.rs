//! The ledger's rules one by one, at their edges: a sentence each.
#![cfg(test)]

use ordain::protocol::ledger::{Entry, HASHES_KEPT, Ledger, Limits, LimitsError, Lookup, Outcome, Participants};
use ordain::protocol::{NodeId, OrderNo, Principal, Refusal, RequestNo, SessionId, Span, Timestamp, TxId};

const SECOND: u64 = 1_000_000_000;
const TTL: u64 = 60 * SECOND;
const START: u64 = 1_000 * SECOND;

fn limits() -> Limits {
    Limits {
        retain_entries: 100,
        retain_parts: 300,
        sessions: 8,
        sessions_per_key: 8,
        participants: 100,
        ..Limits::default()
    }
}

/// A request of principal 1 in session 1, with a transaction of its own.
#[derive(Clone, Copy)]
struct Ask<'a> {
    ts: u64,
    principal: u64,
    created: u64,
    nonce: u64,
    request: u64,
    tx: u64,
    ids: &'a [u32],
}

impl Default for Ask<'_> {
    fn default() -> Self {
        Self { ts: START, principal: 1, created: START, nonce: 1, request: 1, tx: 1, ids: &[5] }
    }
}

impl Ask<'_> {
    fn with<T>(self, with: impl FnOnce(&Entry<'_>) -> T) -> T {
        let ids: Vec<[u8; 4]> = self.ids.iter().map(|id| id.to_le_bytes()).collect();
        with(&Entry {
            ts: Timestamp::new(self.ts),
            principal: Principal::new(self.principal),
            session: SessionId { created: Timestamp::new(self.created), nonce: self.nonce },
            request: RequestNo::new(self.request),
            tx: TxId::new(u128::from(self.tx).to_le_bytes()),
            participants: Participants::held(&ids),
        })
    }

    /// Delivers it one nanosecond after the last delivery, or at its own time if that is later.
    fn to(self, ledger: &mut Ledger) -> Outcome {
        let ts = self.ts.max(ledger.time().get() + 1);
        Self { ts, ..self }.with(|entry| ledger.deliver(entry))
    }

    fn known(self, ledger: &Ledger) -> Lookup {
        self.with(|entry| ledger.lookup(entry.principal, entry.session, entry.request, entry.tx, entry.participants))
    }
}

fn numbered(order: u64) -> Outcome {
    Outcome::Numbered(OrderNo::new(order))
}

fn repeated(order: u64) -> Outcome {
    Outcome::Repeated(OrderNo::new(order))
}

#[test]
fn session_is_created_only_while_younger_than_its_time_to_live() {
    let mut ledger = Ledger::new(limits());
    let refused = Outcome::Refused(Refusal::SessionUnknown);
    let at = |created, nonce| Ask { created, nonce, tx: nonce, ..Ask::default() };
    assert_eq!(Ask { ts: START, ..at(START - TTL, 1) }.to(&mut ledger), refused);
    assert_eq!(Ask { ts: START + 1, ..at(START - TTL + 2, 2) }.to(&mut ledger), numbered(1));
    assert_eq!(Ask { ts: START + 2, ..at(START + 2 + SECOND + 1, 3) }.to(&mut ledger), refused);
    assert_eq!(Ask { ts: START + 3, ..at(START + 3 + SECOND, 4) }.to(&mut ledger), numbered(2));
    assert_eq!(Ask { ts: START + 4, ..at(u64::MAX, 5) }.to(&mut ledger), refused);
    assert_eq!(Ask { ts: u64::MAX - 1, ..at(u64::MAX, 6) }.to(&mut ledger), numbered(3));
}

#[test]
fn cluster_time_near_zero_knows_new_sessions() {
    let mut ledger = Ledger::new(limits());
    assert_eq!(Ask { ts: 1, created: 0, ..Ask::default() }.to(&mut ledger), numbered(1));
}

#[test]
fn session_of_another_principal_is_unknown_and_stays_its_owners() {
    let mut ledger = Ledger::new(limits());
    assert_eq!(Ask::default().to(&mut ledger), numbered(1));
    let stranger = Ask { principal: 2, request: 2, tx: 2, ..Ask::default() };
    assert_eq!(stranger.known(&ledger), Lookup::Refused(Refusal::SessionUnknown));
    assert_eq!(stranger.to(&mut ledger), Outcome::Refused(Refusal::SessionUnknown));
    assert_eq!(Ask::default().to(&mut ledger), repeated(1));
}

#[test]
fn full_table_evicts_the_longest_unused_when_it_could_not_come_back() {
    let mut ledger = Ledger::new(Limits { sessions: 2, sessions_per_key: 2, ..limits() });
    let session = |nonce, ts| Ask { ts, created: ts, nonce, tx: nonce, ..Ask::default() };
    // Ahead of ledger time by all it may be: the one that would come back if it were evicted a moment too early.
    let first = Ask { created: START + SECOND, ..session(1, START) };
    assert_eq!(first.to(&mut ledger), numbered(1));
    assert_eq!(session(2, START + SECOND).to(&mut ledger), numbered(2));
    let edge = START + TTL + SECOND;
    assert_eq!(session(3, edge - 1).to(&mut ledger), Outcome::Refused(Refusal::SessionsFull));
    assert_eq!(session(3, edge).to(&mut ledger), numbered(3));
    assert_eq!((ledger.sessions_len(), ledger.sessions_evicted()), (2, 1));
    assert_eq!(Ask { ts: edge + 1, ..first }.to(&mut ledger), Outcome::Refused(Refusal::SessionUnknown));
    assert_eq!(first.known(&ledger), Lookup::Refused(Refusal::SessionUnknown));
}

#[test]
fn principal_at_its_limit_replaces_only_its_own_and_leaves_room_to_others() {
    let mut ledger = Ledger::new(Limits { sessions: 4, sessions_per_key: 1, ..limits() });
    let ask = |principal, nonce, ts| Ask { ts, principal, created: ts, nonce, tx: nonce, ..Ask::default() };
    assert_eq!(ask(9, 1, START).to(&mut ledger), numbered(1));
    assert_eq!(ask(8, 2, START + 5).to(&mut ledger), numbered(2));
    assert_eq!(ask(8, 3, START + 6).to(&mut ledger), Outcome::Refused(Refusal::SessionsFull));
    assert_eq!(ask(7, 4, START + 7).to(&mut ledger), numbered(3));
    let late = START + 5 + TTL + SECOND;
    assert_eq!(ask(8, 5, late).to(&mut ledger), numbered(4));
    // The longest unused of all is still there: there was room.
    assert_eq!(Ask { ts: late + 1, ..ask(9, 1, START) }.to(&mut ledger), repeated(1));
    assert_eq!(ledger.sessions_len(), 3);
}

#[test]
fn window_is_the_last_64_request_numbers() {
    let mut ledger = Ledger::new(limits());
    let ask = |request| Ask { request, tx: request, ..Ask::default() };
    assert_eq!(ask(100).to(&mut ledger), numbered(1));
    assert_eq!(ask(36).to(&mut ledger), Outcome::Refused(Refusal::WindowExceeded));
    assert_eq!(ask(36).known(&ledger), Lookup::Refused(Refusal::WindowExceeded));
    assert_eq!(ask(37).to(&mut ledger), numbered(2));
    assert_eq!(ask(101).to(&mut ledger), numbered(3));
    assert_eq!(ask(37).to(&mut ledger), Outcome::Refused(Refusal::WindowExceeded));
    assert_eq!(ask(38).to(&mut ledger), numbered(4));
    assert_eq!(ask(u64::MAX).to(&mut ledger), numbered(5));
    assert_eq!(ask(u64::MAX - 63).to(&mut ledger), numbered(6));
    assert_eq!(ask(u64::MAX).to(&mut ledger), repeated(5));
}

#[test]
fn request_whose_record_is_past_retention_gets_no_second_number() {
    let mut ledger = Ledger::new(Limits { retain_entries: 2, ..limits() });
    let ask = |request| Ask { request, tx: request, ..Ask::default() };
    for request in 1..=3 {
        assert_eq!(ask(request).to(&mut ledger), numbered(request));
    }
    assert_eq!(ledger.retained_from(), OrderNo::new(2));
    for same in [ask(1), Ask { tx: 77, ..ask(1) }] {
        assert_eq!(same.known(&ledger), Lookup::Refused(Refusal::WindowExceeded));
        assert_eq!(same.to(&mut ledger), Outcome::Refused(Refusal::WindowExceeded));
    }
    assert_eq!(ask(2).to(&mut ledger), repeated(2));
}

#[test]
fn final_refusal_outlives_its_cause() {
    let mut ledger = Ledger::new(Limits { retain_entries: 2, ..limits() });
    let other = Ask { nonce: 2, ids: &[6], ..Ask::default() };
    assert_eq!(Ask::default().to(&mut ledger), numbered(1));
    assert_eq!(other.to(&mut ledger), Outcome::Refused(Refusal::TxDiffers));
    for request in 2..=3 {
        assert_eq!(Ask { request, tx: request, ..Ask::default() }.to(&mut ledger), numbered(request));
    }
    // The record it differed from is gone, and still it is refused; only with another body it may be numbered.
    assert_eq!(ledger.by_tx(TxId::new(1_u128.to_le_bytes())), None);
    assert_eq!(other.known(&ledger), Lookup::Refused(Refusal::TxDiffers));
    assert_eq!(other.to(&mut ledger), Outcome::Refused(Refusal::TxDiffers));
    assert_eq!(Ask { ids: &[6, 7], ..other }.known(&ledger), Lookup::Unknown);
    assert_eq!(Ask { ids: &[6, 7], ..other }.to(&mut ledger), numbered(4));
}

#[test]
fn transaction_under_another_request_is_not_promised_before_it_is_ordered() {
    let mut ledger = Ledger::new(limits());
    assert_eq!(Ask::default().to(&mut ledger), numbered(1));
    let again = Ask { nonce: 2, ..Ask::default() };
    assert_eq!(again.known(&ledger), Lookup::Unknown);
    assert_eq!(again.to(&mut ledger), repeated(1));
    assert_eq!(again.known(&ledger), Lookup::Answered(OrderNo::new(1)));
    assert_eq!(Ask { request: 2, ids: &[6], ..again }.known(&ledger), Lookup::Unknown);
    assert_eq!(ledger.counters().txs_repeated, 1);
}

#[test]
fn participants_are_counted_whole_or_not_at_all() {
    let mut ledger = Ledger::new(Limits { participants: 3, ..limits() });
    assert_eq!(Ask { ids: &[1, 2], ..Ask::default() }.to(&mut ledger), numbered(1));
    let full = Ask { request: 2, tx: 2, ids: &[3, 1, 4], ..Ask::default() };
    assert_eq!(full.to(&mut ledger), Outcome::Refused(Refusal::ParticipantsFull));
    assert_eq!((ledger.participants_len(), ledger.participant(NodeId::new(3))), (2, None));
    let (seq, last) = ledger.participant(NodeId::new(1)).unwrap();
    assert_eq!((seq.get(), last.get()), (1, 1));
    assert_eq!(Ask { request: 3, tx: 3, ids: &[3, 1], ..Ask::default() }.to(&mut ledger), numbered(2));
    assert_eq!(full.to(&mut ledger), Outcome::Refused(Refusal::ParticipantsFull));
}

#[test]
fn malformed_entry_changes_nothing_but_time() {
    let mut ledger = Ledger::new(limits());
    let many: Vec<u32> = (0..65).collect();
    let ask = Ask::default();
    for bad in
        [Ask { request: 0, ..ask }, Ask { ids: &[], ..ask }, Ask { ids: &many, ..ask }, Ask { ids: &[4, 9, 4], ..ask }]
    {
        assert_eq!(bad.known(&ledger), Lookup::Refused(Refusal::Malformed));
        assert_eq!(bad.to(&mut ledger), Outcome::Refused(Refusal::Malformed));
    }
    assert_eq!((ledger.sessions_len(), ledger.last_order().get(), ledger.delivered()), (0, 0, 4));
    assert_eq!(ledger.counters().refused[usize::from(Refusal::Malformed.code()) - 1], 4);
    assert_eq!(Ask { ids: &many[..64], ..ask }.to(&mut ledger), numbered(1));
}

#[test]
#[should_panic(expected = "delivered 4 ns after 5 ns")]
fn falling_stamp_stops_the_ledger() {
    let mut ledger = Ledger::new(limits());
    for (ts, tx) in [(5, 1), (5, 2), (4, 3)] {
        // Equal stamps are of different servers, and allowed.
        Ask { ts, created: 4, tx, request: tx, ..Ask::default() }.with(|entry| ledger.deliver(entry));
    }
}

#[test]
fn hashes_of_the_last_numbers_can_be_asked_for() {
    let mut ledger = Ledger::new(limits());
    let mut all = vec![ledger.hash()];
    for request in 1..=1500 {
        assert_eq!(Ask { request, tx: request, ..Ask::default() }.to(&mut ledger), numbered(request));
        all.push(ledger.hash());
        Ask { request, tx: request, ..Ask::default() }.to(&mut ledger);
        assert_eq!(ledger.hash(), all[all.len() - 1], "a repeated entry changed the hash");
    }
    for (order, hash) in all.iter().enumerate() {
        let kept = (order + HASHES_KEPT > 1500).then_some(*hash);
        assert_eq!(ledger.hash_at(OrderNo::new(order as u64)), kept, "{order}");
    }
    assert_eq!(ledger.hash_at(OrderNo::new(1501)), None);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 1501);
}

/// Servers of different versions compare these: a change of the rules must change the version in the fingerprint.
#[test]
fn hash_and_fingerprint_are_what_they_were() {
    let mut ledger = Ledger::new(Limits::laptop());
    Ask { ids: &[3, 1, 2], ..Ask::default() }.to(&mut ledger);
    Ask { ids: &[2], request: 2, tx: 2, ..Ask::default() }.to(&mut ledger);
    assert_eq!(ledger.hash(), 14_518_329_680_740_486_346);
    assert_eq!(Limits::default().fingerprint(), 9_981_221_730_398_969_596);
}

#[test]
fn every_limit_is_in_the_fingerprint_and_checked() {
    let base = Limits::default();
    let others = [
        Limits { retain_entries: 1, ..base },
        Limits { retain_parts: 64, ..base },
        Limits { sessions: 5_000, ..base },
        Limits { sessions_per_key: 1, ..base },
        Limits { session_ttl: Span::secs(61), ..base },
        Limits { participants: 1, ..base },
    ];
    for limits in others {
        assert_eq!(limits.check(), Ok(()));
        assert_ne!(limits.fingerprint(), base.fingerprint(), "{limits:?}");
    }
    let bad = [
        (Limits { retain_entries: 0, ..base }, "retain_entries = 0 is out of range: 1..=1073741824"),
        (Limits { retain_parts: 63, ..base }, "retain_parts = 63 is out of range: 64..=1073741824"),
        (Limits { sessions: 0, ..base }, "sessions = 0 is out of range: 1..=16777216"),
        (Limits { sessions_per_key: 16_385, ..base }, "sessions_per_key = 16385 is out of range: 1..=16384"),
        (Limits { participants: (1 << 28) + 1, ..base }, "participants = 268435457 is out of range: 1..=268435456"),
    ];
    for (limits, text) in bad {
        assert_eq!(limits.check().unwrap_err().to_string(), text);
    }
    let ttl = Span::millis(999);
    assert_eq!(Limits { session_ttl: ttl, ..base }.check(), Err(LimitsError::SessionTtl(ttl)));
    assert!(
        Limits::laptop().bytes() < 64 << 20 && base.bytes() < 192 << 20,
        "{} {}",
        Limits::laptop().bytes(),
        base.bytes()
    );
}
