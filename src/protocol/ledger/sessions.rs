//! Sessions: which request numbers are answered, and how. What makes a retry get its first answer (protocol.md, 11).
//!
//! **Why a window of slots.** A client has at most [`WINDOW`] requests in flight in a session, so 64 slots, by request
//! number modulo 64, remember all that can still be retried. A slot is one word: zero, not answered yet; an order
//! number; or, with the top bit set, why it was refused (7 bits) and a 56-bit fingerprint of the body that was, so that
//! a refusal once given is final for that body.
//! **Invariants**: slots speak of (highest - 64, highest]; a session evicted can not be created again, since it has
//! been unused for its time to live and the second by which its creation may have been ahead of ledger time.
//! **Limits**: `sessions` in all, `sessions_per_key` of a principal. A principal at its limit may lose its own longest
//! unused session, on the same condition as the table when it is full: else one that opens sessions anew for every run
//! would shut itself out for ever. **Not here**: what answers are (`records`).

use alloc::vec;
use alloc::vec::Vec;

use super::hash::Places;
use super::index::{self, Index};
use super::lru::{Link, List};
use super::{CREATED_AHEAD_MAX, Limits};
use crate::protocol::{OrderNo, Principal, Refusal, RequestNo, SessionId, Span, Timestamp, WINDOW};

/// Bytes the tables for so many sessions take.
pub(super) const fn bytes(sessions: usize) -> usize {
    let row = size_of::<Row>() + size_of::<[u64; WINDOW]>() + 2 * size_of::<Link>() + size_of::<KeyRow>();
    sessions * (row + 2 * size_of::<u32>()) + 2 * index::bytes(sessions)
}

const WINDOW_U64: u64 = WINDOW as u64;
const REFUSED: u64 = 1 << 63;
const BODY_BITS: u32 = 56;

/// What a session remembers of a request number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// Not answered yet.
    Open,
    /// Its answer is this record.
    Answered(OrderNo),
    /// It was refused, with this body.
    Refused(Refusal, u64),
    /// It is below the window.
    TooOld,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    id: SessionId,
    last_used: Timestamp,
    highest: RequestNo,
    principal: Principal,
    key: u32,
}

#[derive(Clone, Copy, Debug)]
struct KeyRow {
    principal: Principal,
    sessions: u32,
    by_use: List,
}

/// All sessions. A row's `last_used` is the time of the delivery that last touched it: as good as its position.
#[derive(Debug)]
pub(super) struct Sessions {
    rows: Vec<Row>,
    windows: Vec<[u64; WINDOW]>,
    free: Vec<u32>,
    index: Index,
    by_use: List,
    links: Vec<Link>,
    /// Principals that have sessions, and the lists of these.
    keys: Vec<KeyRow>,
    keys_free: Vec<u32>,
    keys_index: Index,
    key_links: Vec<Link>,
    places: Places,
    per_key: usize,
    ttl: Span,
    evicted: u64,
}

impl Sessions {
    pub(super) fn new(limits: &Limits, places: Places) -> Self {
        let rows = limits.sessions;
        let free = || (0..u32::try_from(rows).expect("limits are checked to fit 32 bits")).rev().collect::<Vec<_>>();
        let (zero, id) = (Timestamp::new(0), SessionId::default());
        Self {
            rows: vec![
                Row { id, last_used: zero, highest: RequestNo::new(0), principal: Principal::new(0), key: 0 };
                rows
            ],
            windows: vec![[0; WINDOW]; rows],
            free: free(),
            index: Index::new(rows),
            by_use: List::EMPTY,
            links: vec![Link::FREE; rows],
            keys: vec![KeyRow { principal: Principal::new(0), sessions: 0, by_use: List::EMPTY }; rows],
            keys_free: free(),
            keys_index: Index::new(rows),
            key_links: vec![Link::FREE; rows],
            places,
            per_key: limits.sessions_per_key,
            ttl: limits.session_ttl,
            evicted: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) const fn evicted(&self) -> u64 {
        self.evicted
    }

    /// The session for a delivery at `now`: found, or created. Either way it is now the one used last.
    pub(super) fn enter(&mut self, principal: Principal, id: SessionId, now: Timestamp) -> Result<u32, Refusal> {
        match self.find(principal, id) {
            Some(Err(refusal)) => Err(refusal),
            Some(Ok(row)) => {
                let at = row as usize;
                self.rows[at].last_used = now;
                self.by_use.touch(&mut self.links, row);
                self.keys[self.rows[at].key as usize].by_use.touch(&mut self.key_links, row);
                Ok(row)
            }
            None => self.create(principal, id, now),
        }
    }

    /// The session, if there is one: `session_unknown` if it is another principal's. Changes nothing.
    #[inline]
    pub(super) fn find(&self, principal: Principal, id: SessionId) -> Option<Result<u32, Refusal>> {
        let row = self.index.find(self.places.session(id), |row| self.rows[row as usize].id == id)?;
        Some(if self.rows[row as usize].principal == principal { Ok(row) } else { Err(Refusal::SessionUnknown) })
    }

    /// Reads the session that an id probably has, and the slot of the request in it.
    #[inline]
    pub(super) fn warm(&self, id: SessionId, request: RequestNo) -> u64 {
        self.index
            .warm(self.places.session(id))
            .map_or(0, |row| self.rows[row as usize].highest.get() ^ self.windows[row as usize][place(request)])
    }

    /// Whether a session created then is too old at `now` to enter the table, now or ever.
    pub(super) fn too_old(&self, created: Timestamp, now: Timestamp) -> bool {
        created <= now && now.since(created) >= self.ttl
    }

    /// What is remembered of a request number.
    #[inline]
    pub(super) fn recall(&self, row: u32, request: RequestNo) -> Memory {
        let highest = self.rows[row as usize].highest;
        if request > highest {
            return Memory::Open;
        }
        if highest.get() - request.get() >= WINDOW_U64 {
            return Memory::TooOld;
        }
        let slot = self.windows[row as usize][place(request)];
        if slot == 0 {
            Memory::Open
        } else if slot & REFUSED == 0 {
            Memory::Answered(OrderNo::new(slot))
        } else {
            let code = u8::try_from((slot & !REFUSED) >> BODY_BITS).expect("seven bits");
            let refusal = Refusal::from_code(code).expect("only codes of refusals are put there");
            Memory::Refused(refusal, slot & ((1 << BODY_BITS) - 1))
        }
    }

    /// Remembers how a request was answered. The caller has seen that it is within the window or above it.
    #[inline]
    pub(super) fn remember(&mut self, row: u32, request: RequestNo, memory: Memory) {
        let slot = match memory {
            Memory::Answered(order) => order.get(),
            Memory::Refused(refusal, body) => REFUSED | (u64::from(refusal.code()) << BODY_BITS) | body,
            Memory::Open | Memory::TooOld => return,
        };
        let at = row as usize;
        let highest = self.rows[at].highest;
        let window = &mut self.windows[at];
        if request > highest {
            if request.get() - highest.get() >= WINDOW_U64 {
                *window = [0; WINDOW];
            } else {
                (highest.get() + 1..request.get()).for_each(|skipped| window[place(RequestNo::new(skipped))] = 0);
            }
            self.rows[at].highest = request;
        }
        window[place(request)] = slot;
    }

    fn create(&mut self, principal: Principal, id: SessionId, now: Timestamp) -> Result<u32, Refusal> {
        if self.too_old(id.created, now) || id.created.since(now) > CREATED_AHEAD_MAX {
            return Err(Refusal::SessionUnknown);
        }
        let key = self.find_key(principal);
        let own = key.map(|key| &self.keys[key as usize]).filter(|own| own.sessions as usize == self.per_key);
        let victim = match own {
            Some(own) => Some(own.by_use.oldest()),
            None if self.free.is_empty() => Some(self.by_use.oldest()),
            None => None,
        };
        if let Some(victim) = victim {
            let unused = now.since(self.rows[victim as usize].last_used).get();
            if unused < self.ttl.get() + CREATED_AHEAD_MAX.get() {
                return Err(Refusal::SessionsFull);
            }
            self.evict(victim);
        }
        // Asked again: the evicted one may have been the principal's only session.
        let key = self.find_key(principal).unwrap_or_else(|| self.add_key(principal));
        let row = self.free.pop().expect("room was made");
        let at = row as usize;
        self.rows[at] = Row { id, last_used: now, highest: RequestNo::new(0), principal, key };
        self.windows[at] = [0; WINDOW];
        self.index.insert(self.places.session(id), row);
        self.by_use.push(&mut self.links, row);
        let own = &mut self.keys[key as usize];
        own.by_use.push(&mut self.key_links, row);
        own.sessions += 1;
        Ok(row)
    }

    fn evict(&mut self, row: u32) {
        let Row { id, key, .. } = self.rows[row as usize];
        self.index.remove(self.places.session(id), row);
        self.by_use.unlink(&mut self.links, row);
        let own = &mut self.keys[key as usize];
        own.by_use.unlink(&mut self.key_links, row);
        own.sessions -= 1;
        if own.sessions == 0 {
            self.keys_index.remove(self.places.word(own.principal.get()), key);
            self.keys_free.push(key);
        }
        self.free.push(row);
        self.evicted += 1;
    }

    fn find_key(&self, principal: Principal) -> Option<u32> {
        let hash = self.places.word(principal.get());
        self.keys_index.find(hash, |key| self.keys[key as usize].principal == principal)
    }

    fn add_key(&mut self, principal: Principal) -> u32 {
        let key = self.keys_free.pop().expect("no more principals than sessions");
        self.keys[key as usize] = KeyRow { principal, sessions: 0, by_use: List::EMPTY };
        self.keys_index.insert(self.places.word(principal.get()), key);
        key
    }
}

const fn place(request: RequestNo) -> usize {
    (request.get() % WINDOW_U64) as usize
}
