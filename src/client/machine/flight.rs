//! Requests in flight: a pool of fixed size, and lists threaded through it.
//!
//! **Why lists through the pool.** A request is in one queue (to be sent to a server, or waiting for an answer), and in
//! one list by age. It leaves them from the middle when its answer comes, which is the rule, not the exception; so both
//! are doubly linked by index, and nothing is searched, moved or allocated.
//! **Invariants.** A slot is in the free list or holds a request; never both.
//! **Not here**: when a request moves ([`super::Machine`]).

use crate::protocol::{LocalTime, NodeId, RequestNo, ServerId, TxId};

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// The two ends of a list of slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE };

    pub(super) fn first(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }
}

/// What threads one kind of list through the pool.
#[derive(Debug)]
pub(super) struct Links(Box<[(u32, u32)]>);

impl Links {
    fn new(capacity: usize) -> Self {
        Self((0..capacity).map(|_| (NONE, NONE)).collect())
    }

    fn of(&mut self, slot: u32) -> &mut (u32, u32) {
        &mut self.0[place(slot)]
    }

    pub(super) fn push_back(&mut self, list: &mut List, slot: u32) {
        *self.of(slot) = (list.tail, NONE);
        if list.tail == NONE {
            list.head = slot;
        } else {
            self.of(list.tail).1 = slot;
        }
        list.tail = slot;
    }

    pub(super) fn remove(&mut self, list: &mut List, slot: u32) {
        let (before, after) = *self.of(slot);
        if before == NONE {
            list.head = after;
        } else {
            self.of(before).1 = after;
        }
        if after == NONE {
            list.tail = before;
        } else {
            self.of(after).0 = before;
        }
    }
}

/// A slot as an index.
#[expect(clippy::cast_possible_truncation, reason = "a pool has at most u32::MAX slots")]
pub(super) const fn slot(index: usize) -> u32 {
    index as u32
}

/// An index of a slot.
pub(super) const fn place(slot: u32) -> usize {
    slot as usize
}

/// Which queue a request is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Queue {
    /// None: it is being moved.
    #[default]
    Nowhere,
    /// To be sent to the server it is `asked` of.
    Out,
    /// Waiting for an answer, at this level of backoff.
    Wait(u8),
}

/// Servers, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Servers(u8);

impl Servers {
    pub(super) const fn has(self, server: ServerId) -> bool {
        self.0 & (1 << server.place()) != 0
    }
    pub(super) const fn add(&mut self, server: ServerId) {
        self.0 |= 1 << server.place();
    }
    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }
    pub(super) const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }
}

/// A request in flight.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flight {
    pub(super) session: u32,
    pub(super) request: RequestNo,
    pub(super) tx: TxId,
    pub(super) depth: u8,
    pub(super) participants: u8,
    /// The caller's own mark.
    pub(super) user: u64,
    pub(super) submitted: LocalTime,
    /// First send; [`LocalTime::NEVER`] before.
    pub(super) sent: LocalTime,
    /// Latest send.
    pub(super) resent: LocalTime,
    /// When the latest send is given up.
    pub(super) expires: LocalTime,
    /// The server first asked.
    pub(super) first: ServerId,
    /// The server asked last, or to be asked next.
    pub(super) asked: ServerId,
    pub(super) attempts: u32,
    /// Servers asked at least once.
    pub(super) once: Servers,
    /// Servers asked more than once: which attempt a refusal answers is not known.
    pub(super) again: Servers,
    /// Servers that refused.
    pub(super) refused: Servers,
    pub(super) assembly: Option<u8>,
    pub(super) queue: Queue,
    pub(super) generation: u32,
}

impl Flight {
    /// Servers of which an attempt may have been admitted: asked, and not known to have refused every attempt.
    pub(super) const fn may_be_admitted_at(&self) -> Servers {
        self.once.without(self.refused.without(self.again))
    }
}

/// All requests in flight.
#[derive(Debug)]
pub(super) struct Pool {
    flights: Box<[Flight]>,
    /// Participants as they travel, `stride` bytes a slot.
    participants: Box<[u8]>,
    stride: usize,
    free: Vec<u32>,
    pub(super) queues: Links,
    pub(super) ages: Links,
}

impl Pool {
    pub(super) fn new(capacity: usize, participants_max: usize) -> Self {
        let stride = 4 * participants_max;
        Self {
            flights: (0..capacity).map(|_| Flight::default()).collect(),
            participants: (0..capacity * stride).map(|_| 0).collect(),
            stride,
            free: (0..slot(capacity)).rev().collect(),
            queues: Links::new(capacity),
            ages: Links::new(capacity),
        }
    }

    pub(super) fn in_use(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// A slot with this request in it, in no list.
    pub(super) fn take(&mut self, flight: &Flight, participants: &[NodeId]) -> Option<u32> {
        let slot = self.free.pop()?;
        let generation = self.flights[place(slot)].generation;
        self.flights[place(slot)] = Flight { generation, ..*flight };
        let ids = self.participants[place(slot) * self.stride..].as_chunks_mut::<4>().0;
        for (bytes, id) in ids.iter_mut().zip(participants) {
            *bytes = id.get().to_le_bytes();
        }
        Some(slot)
    }

    pub(super) fn give_back(&mut self, slot: u32) {
        let flight = &mut self.flights[place(slot)];
        flight.generation = flight.generation.wrapping_add(1);
        self.free.push(slot);
    }

    pub(super) fn get(&self, slot: u32) -> &Flight {
        &self.flights[place(slot)]
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> &mut Flight {
        &mut self.flights[place(slot)]
    }

    /// The participants' bytes.
    pub(super) fn participants(&self, slot: u32) -> &[u8] {
        let at = place(slot) * self.stride;
        &self.participants[at..at + 4 * usize::from(self.get(slot).participants)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_agree_with_a_plain_model_under_random_operations() {
        let mut random = fastrand::Rng::with_seed(11);
        let (mut links, mut list, mut model) = (Links::new(32), List::EMPTY, Vec::new());
        for _ in 0..10_000 {
            let slot = random.u32(0..32);
            if let Some(at) = model.iter().position(|held| *held == slot) {
                links.remove(&mut list, slot);
                model.remove(at);
            } else {
                links.push_back(&mut list, slot);
                model.push(slot);
            }
            assert_eq!(list.first(), model.first().copied());
        }
        while let Some(first) = list.first() {
            assert_eq!(first, model.remove(0));
            links.remove(&mut list, first);
        }
        assert!(model.is_empty());
    }

    #[test]
    fn attempt_counts_as_refused_only_if_it_was_the_only_one_there() {
        let server = |place| ServerId::from_place(place).unwrap();
        let mut flight = Flight::default();
        flight.once.add(server(0));
        flight.once.add(server(1));
        flight.refused.add(server(0));
        assert!(flight.may_be_admitted_at().has(server(1)) && !flight.may_be_admitted_at().has(server(0)));
        flight.refused.add(server(1));
        assert!(flight.may_be_admitted_at().is_empty());
        flight.again.add(server(0));
        assert!(flight.may_be_admitted_at().has(server(0)));
    }
}
