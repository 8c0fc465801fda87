//! Participants: how far each one's sequence has come, and where its last part stands.
//!
//! **Why lines.** A participant is looked up in every delivery, so key and row stand together, three to a cache line:
//! one miss, not two. A full line passes on to the next.
//! **Invariants**: never shrinks, since a participant's numbers are dense for ever; a list of participants is counted
//! whole or not at all. **Limits**: [`Limits::participants`](super::Limits), then `participants_full`.
//! **Not here**: the parts themselves (`records`).

use alloc::vec;
use alloc::vec::Vec;

use super::Participants;
use super::hash::Places;
use super::records::{Link, PartRow};
use crate::protocol::{NodeId, OrderNo, PARTICIPANTS_MAX, ParticipantSeq};

/// Bytes a table of so many participants takes.
pub(super) const fn bytes(participants: usize) -> usize {
    lines(participants) * size_of::<Line>()
}

const fn lines(participants: usize) -> usize {
    (participants / 2 + 1).next_power_of_two()
}

const ROWS: usize = 3;

/// Three rows in one cache line, filled from the first; a sequence number of zero: no row.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line {
    seqs: [ParticipantSeq; ROWS],
    lasts: [Link; ROWS],
    ids: [NodeId; ROWS],
}

const _: () = assert!(size_of::<Line>() == 64);

impl Line {
    const EMPTY: Self =
        Self { seqs: [ParticipantSeq::new(0); ROWS], lasts: [Link::NONE; ROWS], ids: [NodeId::new(0); ROWS] };
}

/// Where a list's participants stand: four times the line and the row in it; [`NEW`] for those that have no row yet.
pub(super) struct Found {
    rows: [u32; PARTICIPANTS_MAX],
}

const NEW: u32 = u32::MAX;

/// All participants ever numbered. A row's `last` names the order number that last touched it.
#[derive(Debug)]
pub(super) struct Nodes {
    lines: Vec<Line>,
    mask: usize,
    len: usize,
    limit: usize,
    places: Places,
}

impl Nodes {
    pub(super) fn new(limit: usize, places: Places) -> Self {
        let lines = lines(limit);
        Self { lines: vec![Line::EMPTY; lines], mask: lines - 1, len: 0, limit, places }
    }

    /// Reads the lines that participants belong to.
    #[inline]
    pub(super) fn warm(&self, participants: Participants<'_>) -> u64 {
        let line = |id| &self.lines[self.places.node(id) as usize & self.mask];
        participants.iter().fold(0, |sum, id| sum ^ line(id).seqs[0].get())
    }

    /// Finds the rows of all; `None` if those who have none would not all find room. Changes nothing.
    pub(super) fn find_all(&self, participants: Participants<'_>) -> Option<Found> {
        let mut found = Found { rows: [NEW; PARTICIPANTS_MAX] };
        let mut new = 0;
        for (row, id) in found.rows.iter_mut().zip(participants) {
            *row = self.find(id);
            new += usize::from(*row == NEW);
        }
        (new <= self.limit - self.len).then_some(found)
    }

    /// Gives the participant at `place` of the list its next sequence number, for the record `order`.
    pub(super) fn advance(&mut self, found: &Found, place: u8, id: NodeId, order: OrderNo) -> PartRow {
        let row = match found.rows[usize::from(place)] {
            NEW => self.add(id),
            row => row,
        };
        let (line, at) = (&mut self.lines[row as usize >> 2], row as usize & 3);
        let before = line.lasts[at];
        assert!(before.order() < order, "participant {id} twice in {order}");
        line.seqs[at] = line.seqs[at].next();
        line.lasts[at] = Link::new(order, place);
        PartRow { id, seq: line.seqs[at], before }
    }

    /// How far the participant's sequence has come, and in which record.
    pub(super) fn last(&self, id: NodeId) -> Option<(ParticipantSeq, OrderNo)> {
        let row = self.find(id);
        let line = self.lines.get(row as usize >> 2).filter(|_| row != NEW)?;
        Some((line.seqs[row as usize & 3], line.lasts[row as usize & 3].order()))
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn find(&self, id: NodeId) -> u32 {
        let mut at = self.places.node(id) as usize & self.mask;
        loop {
            let line = &self.lines[at];
            for row in 0..ROWS {
                if line.ids[row] == id && line.seqs[row].get() != 0 {
                    return address(at, row);
                }
            }
            if line.seqs[ROWS - 1].get() == 0 {
                return NEW;
            }
            at = (at + 1) & self.mask;
        }
    }

    /// A row for a new participant. Its sequence number is zero until [`Nodes::advance`] raises it, at once.
    fn add(&mut self, id: NodeId) -> u32 {
        assert!(self.len < self.limit, "participant {id} over the {} there may be", self.limit);
        self.len += 1;
        let mut at = self.places.node(id) as usize & self.mask;
        loop {
            let line = &mut self.lines[at];
            if let Some(row) = line.seqs.iter().position(|seq| seq.get() == 0) {
                line.ids[row] = id;
                return address(at, row);
            }
            at = (at + 1) & self.mask;
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the limit is checked: at most 2^28 lines")]
const fn address(line: usize, row: usize) -> u32 {
    (line << 2 | row) as u32
}

#[cfg(test)]
mod tests {
    use super::{Nodes, Participants, Places};
    use crate::protocol::{NodeId, OrderNo};

    /// Every seed spreads them otherwise, so lines overflow, and past the last line too.
    #[test]
    fn full_table_keeps_every_participant_apart() {
        for seed in 0..200 {
            for limit in [1_u32, 2, 5, 31] {
                let mut nodes = Nodes::new(limit as usize, Places::new(seed));
                for order in 1..=3 * limit {
                    let id = (order % limit).to_le_bytes();
                    let found = nodes.find_all(Participants::held(&[id])).unwrap();
                    let id = NodeId::new(order % limit);
                    let part = nodes.advance(&found, 0, id, OrderNo::new(order.into()));
                    assert_eq!(part.seq.get(), u64::from((order - 1) / limit + 1), "{seed} {limit} {order}");
                    assert_eq!(nodes.last(id), Some((part.seq, OrderNo::new(order.into()))));
                }
                assert!(nodes.find_all(Participants::held(&[u32::MAX.to_le_bytes()])).is_none());
            }
        }
    }
}
