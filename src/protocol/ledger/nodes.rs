//! Participants: how far each one's sequence has come, and where its last part stands.
//!
//! **Invariants**: never shrinks, since a participant's numbers are dense for ever; a list of participants is counted
//! whole or not at all. **Limits**: [`Limits::participants`](super::Limits), then `participants_full`.
//! **Not here**: the parts themselves (`records`).

use alloc::vec::Vec;

use super::Participants;
use super::hash::Places;
use super::index::{self, Index};
use super::records::{Link, PartRow};
use crate::protocol::{NodeId, OrderNo, PARTICIPANTS_MAX, ParticipantSeq};

/// Bytes a table of so many participants takes.
pub(super) const fn bytes(participants: usize) -> usize {
    index::bytes(participants) + participants * size_of::<Row>()
}

#[derive(Debug)]
struct Row {
    id: NodeId,
    last: Link,
    seq: ParticipantSeq,
}

/// The rows of a list of participants, [`NEW`] for those without one.
pub(super) struct Found {
    rows: [u32; PARTICIPANTS_MAX],
}

const NEW: u32 = u32::MAX;

/// All participants ever numbered. A row's `last.order` is the order number that last touched it.
#[derive(Debug)]
pub(super) struct Nodes {
    rows: Vec<Row>,
    index: Index,
    places: Places,
    limit: usize,
}

impl Nodes {
    pub(super) fn new(limit: usize, places: Places) -> Self {
        Self { rows: Vec::with_capacity(limit), index: Index::new(limit), places, limit }
    }

    /// Finds the rows of all; `None` if those who have none would not all find room. Changes nothing.
    pub(super) fn find_all(&self, participants: Participants<'_>) -> Option<Found> {
        let mut found = Found { rows: [NEW; PARTICIPANTS_MAX] };
        let mut new = 0;
        for (row, id) in found.rows.iter_mut().zip(participants) {
            match self.find(id) {
                Some(at) => *row = at,
                None => new += 1,
            }
        }
        (new <= self.limit - self.rows.len()).then_some(found)
    }

    /// Gives the participant at `place` of the list its next sequence number, for the record `order`.
    pub(super) fn advance(&mut self, found: &Found, place: u8, id: NodeId, order: OrderNo) -> PartRow {
        let at = match found.rows[usize::from(place)] {
            NEW => self.add(id),
            at => at,
        };
        let row = &mut self.rows[at as usize];
        let before = row.last;
        assert!(before.order() < order, "participant {id} twice in {order}");
        row.seq = row.seq.next();
        row.last = Link::new(order, place);
        PartRow { id, seq: row.seq, before }
    }

    /// How far the participant's sequence has come, and in which record.
    pub(super) fn last(&self, id: NodeId) -> Option<(ParticipantSeq, OrderNo)> {
        self.find(id).map(|at| (self.rows[at as usize].seq, self.rows[at as usize].last.order()))
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    #[inline]
    fn find(&self, id: NodeId) -> Option<u32> {
        self.index.find(self.places.node(id), |at| self.rows[at as usize].id == id)
    }

    fn add(&mut self, id: NodeId) -> u32 {
        assert!(self.rows.len() < self.limit, "participant {id} over the {} there may be", self.limit);
        let at = u32::try_from(self.rows.len()).expect("limits are checked to fit 32 bits");
        self.rows.push(Row { id, last: Link::NONE, seq: ParticipantSeq::new(0) });
        self.index.insert(self.places.node(id), at);
        at
    }
}
