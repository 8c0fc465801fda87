//! Requests this server has stamped and not yet delivered, with who waits for each answer.
//!
//! **Why.** A retry of what is under way must not be stamped again (section 11: one copy a server is enough), only its
//! answer must go to the newest attempt. Own entries are delivered in the order they were stamped, so a queue beside
//! the own stream finds each waiter without a look-up.
//! **Invariants**: an entry of the own stream and its waiter leave together, first in, first out.
//! **Limits**: the number of requests under way given at construction; full means refused (`overloaded`).
//! **Not here**: whether a request was answered before (the ledger knows).
use super::ledger::hash::fold;
use super::{Principal, RequestNo, SessionId, TxId};
use alloc::boxed::Box;
use alloc::vec;

/// What names a request: the same through all its attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestKey {
    /// Whose session it is.
    pub principal: Principal,
    /// The session.
    pub session: SessionId,
    /// The request's number in it.
    pub request: RequestNo,
}

impl RequestKey {
    /// Folded word by word into a seed: a client names its sessions and numbers its requests as it likes, and must not
    /// be able to make them meet in one bucket.
    fn hash(&self, seed: u64) -> u64 {
        let Self { principal, session, request } = *self;
        let words = [principal.get(), session.created.get(), session.nonce, request.get(), seed];
        words.into_iter().fold(seed, fold)
    }
}

/// One request under way.
#[derive(Clone, Copy, Debug)]
pub struct Waiting<W> {
    /// Which request.
    pub key: RequestKey,
    /// Its transaction.
    pub tx: TxId,
    /// A digest of its transaction and participants, so that a retry with others is told.
    pub body: u64,
    /// How deep a history the newest attempt asked for.
    pub depth: u8,
    /// Where the newest attempt's answer goes; none once answered.
    pub waiter: Option<W>,
}

const NONE: u32 = u32::MAX;

/// The table and the queue.
#[derive(Debug)]
pub struct Inflight<W> {
    /// Those under way. The place left last is taken first, so that few places are used, and stay in the cache.
    slots: Box<[Option<Waiting<W>>]>,
    /// Places to take, the last one first.
    free: Box<[u32]>,
    free_len: usize,
    /// A ring of places: own entries in the order they were stamped.
    queue: Box<[u32]>,
    /// Open addressing over places, with deletion by moving back what follows.
    index: Box<[u32]>,
    head: usize,
    len: usize,
    seed: u64,
}

impl<W: Copy> Inflight<W> {
    /// Room for `most` requests under way (at least 1), laid out by `seed`. Takes all its memory here.
    #[must_use]
    pub fn new(most: usize, seed: u64) -> Self {
        let most = most.clamp(1, 1 << 24);
        Self {
            slots: vec![None; most].into_boxed_slice(),
            free: (0..most).rev().map(|place| u32::try_from(place).unwrap_or(NONE)).collect(),
            free_len: most,
            queue: vec![NONE; most].into_boxed_slice(),
            index: vec![NONE; (most * 2).next_power_of_two()].into_boxed_slice(),
            head: 0,
            len: 0,
            seed,
        }
    }

    /// Memory that a table for `most` requests takes.
    #[must_use]
    pub fn memory(most: usize) -> usize {
        most * (size_of::<Option<Waiting<W>>>() + 8) + (most * 2).next_power_of_two() * 4
    }

    /// How many are under way.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Nothing is under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// No room for another.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len == self.slots.len()
    }

    fn mask(&self) -> usize {
        self.index.len() - 1
    }

    fn bucket(&self, key: &RequestKey) -> usize {
        // The upper half, since a product's low bits are its weakest.
        usize::try_from((key.hash(self.seed) >> 32) & self.mask() as u64).unwrap_or(0)
    }

    fn at(&self, bucket: usize) -> Option<&Waiting<W>> {
        let place = self.index[bucket];
        if place == NONE { None } else { self.slots[place as usize].as_ref() }
    }

    fn find_bucket(&self, key: &RequestKey) -> Option<usize> {
        let mut bucket = self.bucket(key);
        while let Some(waiting) = self.at(bucket) {
            if waiting.key == *key {
                return Some(bucket);
            }
            bucket = (bucket + 1) & self.mask();
        }
        None
    }

    /// The request under way by this name.
    pub fn find(&mut self, key: &RequestKey) -> Option<&mut Waiting<W>> {
        let bucket = self.find_bucket(key)?;
        let place = self.index[bucket];
        self.slots[place as usize].as_mut()
    }

    /// Adds a request just stamped, the last of the queue. False if there is no room; its name must not be under way.
    pub fn push(&mut self, waiting: Waiting<W>) -> bool {
        if self.is_full() {
            return false;
        }
        self.free_len -= 1;
        let place = self.free[self.free_len];
        let mut bucket = self.bucket(&waiting.key);
        while self.index[bucket] != NONE {
            bucket = (bucket + 1) & self.mask();
        }
        self.index[bucket] = place;
        self.slots[place as usize] = Some(waiting);
        let tail = (self.head + self.len) % self.queue.len();
        self.queue[tail] = place;
        self.len += 1;
        true
    }

    /// Removes the oldest, when its entry is delivered.
    pub fn pop(&mut self) -> Option<Waiting<W>> {
        if self.len == 0 {
            return None;
        }
        let place = self.queue[self.head];
        let waiting = self.slots[place as usize].take()?;
        self.forget(&waiting.key, place);
        self.free[self.free_len] = place;
        self.free_len += 1;
        self.head = (self.head + 1) % self.queue.len();
        self.len -= 1;
        Some(waiting)
    }

    /// Takes a place out of the index; its slot is empty already.
    fn forget(&mut self, key: &RequestKey, place: u32) {
        let mut bucket = self.bucket(key);
        while self.index[bucket] != place {
            if self.index[bucket] == NONE {
                return;
            }
            bucket = (bucket + 1) & self.mask();
        }
        self.vacate(bucket);
    }

    /// Empties a bucket and moves back what would no longer be found past the hole.
    fn vacate(&mut self, bucket: usize) {
        let mut hole = bucket;
        let mut next = (bucket + 1) & self.mask();
        while let Some(waiting) = self.at(next) {
            let home = self.bucket(&waiting.key);
            // How far each lies past its home: it may move back if the hole is not before its home.
            if (next.wrapping_sub(home) & self.mask()) >= (next.wrapping_sub(hole) & self.mask()) {
                self.index[hole] = self.index[next];
                hole = next;
            }
            next = (next + 1) & self.mask();
        }
        self.index[hole] = NONE;
    }
}

#[cfg(test)]
mod tests {
    use super::super::Timestamp;
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn waiting(n: u64) -> Waiting<u64> {
        let session = SessionId { created: Timestamp::new(n / 3), nonce: n % 3 };
        let key = RequestKey { principal: Principal::new(1), session, request: RequestNo::new(n) };
        Waiting { key, tx: TxId::default(), body: 0, depth: 0, waiter: Some(n) }
    }

    /// Ids whose plain mixture (by exclusive or, with the request multiplied) is the same for all.
    #[test]
    fn chosen_ids_do_not_crowd_one_bucket() {
        let mut table = Inflight::new(4_096, 5);
        for n in 1..=2_048_u64 {
            let nonce = n.wrapping_mul(0xA076_1D64_78BD_642F);
            let key = RequestKey { session: SessionId { nonce, ..SessionId::default() }, ..waiting(n).key };
            assert!(table.push(Waiting { key, ..waiting(n) }));
            let past_home = table.find_bucket(&key).unwrap().wrapping_sub(table.bucket(&key)) & table.mask();
            assert!(past_home < 64, "request {n} lies {past_home} buckets past its own");
        }
    }

    proptest! {
        #[test]
        fn finds_what_a_queue_holds_and_nothing_else(steps in prop::collection::vec(0_u8..3, 1..400)) {
            let mut table = Inflight::new(13, 5);
            let mut plain = VecDeque::new();
            for (n, step) in steps.into_iter().enumerate() {
                let n = n as u64;
                if step == 0 {
                    prop_assert_eq!(table.pop().and_then(|got| got.waiter), plain.pop_front());
                } else {
                    let pushed = table.push(waiting(n));
                    prop_assert_eq!(pushed, plain.len() < 13);
                    if pushed { plain.push_back(n); }
                }
                for other in 0..=n {
                    let found = table.find(&waiting(other).key).and_then(|got| got.waiter);
                    prop_assert_eq!(found, plain.contains(&other).then_some(other));
                }
            }
        }
    }
}
