//! The records still retained: two rings, and the transactions in them by id.
//!
//! **Why two rings.** A record has 1 to 64 parts; rows of one size waste nothing and nothing is ever moved. A part
//! names the part before it of the same participant by order number and place, so a history is a walk from record to
//! record that needs no table, and ends by itself where retention does.
//! **Invariants**, asserted in release: numbers are dense. What goes is always the oldest, in the order it came.
//! **Limits**: `retain_entries` records, `retain_parts` parts; whichever is full first evicts.
//! **Not here**: who may have a number (`mod`).

use alloc::vec;
use alloc::vec::Vec;
use core::iter::FusedIterator;

use super::Participants;
use super::hash::Places;
use super::txs::{self, Retained, Txs};
use crate::protocol::{NodeId, OrderNo, ParticipantSeq, Timestamp, TxId};

/// Bytes the rings and the index take.
pub(super) const fn bytes(entries: usize, parts: usize) -> usize {
    entries * size_of::<Row>() + parts * size_of::<PartRow>() + txs::bytes(entries)
}

/// A part of a record: by order number, and place among its parts. Eight bytes: the place above 56 bits of number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link(u64);

impl Link {
    /// No part.
    pub(super) const NONE: Self = Self(0);
    const ORDER_BITS: u32 = 56;

    /// # Panics
    /// At the 2^56th order number, some two thousand years from now at a million a second.
    pub(super) fn new(order: OrderNo, place: u8) -> Self {
        assert!(order.get() >> Self::ORDER_BITS == 0, "order number {order} is past the last one");
        Self((u64::from(place) << Self::ORDER_BITS) | order.get())
    }
    pub(super) const fn order(self) -> OrderNo {
        OrderNo::new(self.0 & ((1 << Self::ORDER_BITS) - 1))
    }
    const fn place(self) -> usize {
        (self.0 >> Self::ORDER_BITS) as usize
    }
}

/// One participant's place in a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartRow {
    pub(super) seq: ParticipantSeq,
    pub(super) before: Link,
    pub(super) id: NodeId,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    ts: Timestamp,
    tx: TxId,
    first_part: u32,
    parts: u8,
}

const _: () = assert!(size_of::<Row>() == 32 && size_of::<PartRow>() == 24);

/// The retained records, by order number and by transaction. A record's row is never touched after it was added.
#[derive(Debug)]
pub(super) struct Records {
    rows: Vec<Row>,
    parts: Vec<PartRow>,
    by_tx: Txs,
    places: Places,
    /// Number of the newest record, and the row it is in.
    last: OrderNo,
    newest: usize,
    /// How many records and parts are retained.
    len: usize,
    parts_len: usize,
    /// Where the next record's parts begin.
    parts_next: usize,
}

impl Records {
    pub(super) fn new(entries: usize, parts: usize, places: Places) -> Self {
        let row = Row { ts: Timestamp::new(0), tx: TxId::default(), first_part: 0, parts: 0 };
        let part = PartRow { seq: ParticipantSeq::new(0), before: Link::NONE, id: NodeId::new(0) };
        Self {
            rows: vec![row; entries],
            parts: vec![part; parts],
            by_tx: Txs::new(entries),
            places,
            last: OrderNo::new(0),
            newest: entries - 1,
            len: 0,
            parts_len: 0,
            parts_next: 0,
        }
    }

    pub(super) const fn last(&self) -> OrderNo {
        self.last
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The oldest number retained; one past the last if none is.
    pub(super) const fn first(&self) -> OrderNo {
        OrderNo::new(self.last.get() - self.len as u64 + 1)
    }

    /// The record of a transaction.
    #[inline]
    pub(super) fn find(&self, tx: TxId) -> Option<OrderNo> {
        let is = |order| self.record(order).is_some_and(|record| record.row.tx == tx);
        self.by_tx.find(self.places.tx(tx), self.retained(), is)
    }

    /// Reads the line of the index that a transaction belongs to.
    #[inline]
    pub(super) fn warm(&self, tx: TxId) -> u64 {
        self.by_tx.warm(self.places.tx(tx))
    }

    /// The record of a number, while it is retained.
    #[inline]
    pub(super) fn record(&self, order: OrderNo) -> Option<Record<'_>> {
        if order > self.last || order < self.first() {
            return None;
        }
        let back = usize::try_from(self.last.get() - order.get()).expect("retained, so within the ring");
        let row = if back <= self.newest { self.newest - back } else { self.newest + self.rows.len() - back };
        Some(Record { records: self, row: &self.rows[row], order })
    }

    /// Adds the record of the next number, after making room by dropping the oldest: returns how many went.
    /// `next_part` gives each participant's part, in the order of the request.
    pub(super) fn append(
        &mut self,
        ts: Timestamp,
        tx: TxId,
        participants: Participants<'_>,
        mut next_part: impl FnMut(u8, NodeId) -> PartRow,
    ) -> u64 {
        let wanted = participants.len();
        let mut dropped = 0;
        while self.len == self.rows.len() || self.parts.len() - self.parts_len < wanted {
            self.drop_oldest();
            dropped += 1;
        }
        let first_part = u32::try_from(self.parts_next).expect("limits are checked to fit 32 bits");
        let mut at = self.parts_next;
        for (place, id) in (0_u8..).zip(participants) {
            self.parts[at] = next_part(place, id);
            at = if at + 1 == self.parts.len() { 0 } else { at + 1 };
        }
        self.parts_next = at;
        self.parts_len += wanted;
        self.newest = if self.newest + 1 == self.rows.len() { 0 } else { self.newest + 1 };
        let parts = u8::try_from(wanted).expect("checked: at most 64 participants");
        self.rows[self.newest] = Row { ts, tx, first_part, parts };
        self.by_tx.insert(self.places.tx(tx), self.retained());
        self.last = self.last.next();
        self.len += 1;
        dropped
    }

    fn drop_oldest(&mut self) {
        let back = self.len - 1;
        let oldest = if back <= self.newest { self.newest - back } else { self.newest + self.rows.len() - back };
        self.parts_len -= usize::from(self.rows[oldest].parts);
        self.len -= 1;
    }

    const fn retained(&self) -> Retained {
        Retained { last: self.last.get(), len: self.len as u64 }
    }

    fn part(&self, row: &Row, place: usize) -> Part {
        let at = row.first_part as usize + place;
        let PartRow { seq, before, id } = self.parts[if at < self.parts.len() { at } else { at - self.parts.len() }];
        Part { id, seq, before }
    }
}

/// A transaction's place in the order: what every answer about it is made of, the same at any server at any time.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    records: &'a Records,
    row: &'a Row,
    order: OrderNo,
}

impl<'a> Record<'a> {
    /// Its order number.
    #[must_use]
    pub const fn order(&self) -> OrderNo {
        self.order
    }

    /// Its time stamp.
    #[must_use]
    pub const fn ts(&self) -> Timestamp {
        self.row.ts
    }

    /// Its id.
    #[must_use]
    pub const fn tx(&self) -> TxId {
        self.row.tx
    }

    /// Its participants' parts, in the order of the request.
    #[must_use]
    pub fn parts(&self) -> Parts<'a> {
        Parts { record: *self, place: 0 }
    }

    /// The part of one participant, if it is one.
    #[must_use]
    pub fn part(&self, id: NodeId) -> Option<Part> {
        self.parts().find(|part| part.id == id)
    }

    /// Whether it was given for this body: the same transaction with the same participants in the same order.
    #[must_use]
    pub fn answers(&self, tx: TxId, participants: Participants<'_>) -> bool {
        self.row.tx == tx
            && usize::from(self.row.parts) == participants.len()
            && self.parts().zip(participants).all(|(part, id)| part.id == id)
    }
}

/// One participant's place in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Who.
    pub id: NodeId,
    /// The record's number in this participant's own sequence, dense from 1.
    pub seq: ParticipantSeq,
    before: Link,
}

impl Part {
    /// The record before this one in the participant's sequence, retained or not. Zero: this is its first.
    #[must_use]
    pub const fn before(&self) -> OrderNo {
        self.before.order()
    }
}

/// The parts of a [`Record`], in the order of the request.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    record: Record<'a>,
    place: u8,
}

impl Iterator for Parts<'_> {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        if self.place == self.record.row.parts {
            return None;
        }
        let part = self.record.records.part(self.record.row, usize::from(self.place));
        self.place += 1;
        Some(part)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::from(self.record.row.parts - self.place);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Parts<'_> {}
impl FusedIterator for Parts<'_> {}

/// What a participant did before a part: newest first, ending at the depth asked for, at the participant's first
/// record, or where retention ends.
#[derive(Clone, Debug)]
pub struct History<'a> {
    records: &'a Records,
    next: Link,
    left: usize,
}

impl<'a> History<'a> {
    pub(super) const fn new(records: &'a Records, part: Part, depth: usize) -> Self {
        Self { records, next: part.before, left: depth }
    }
}

impl Iterator for History<'_> {
    type Item = (OrderNo, TxId);

    fn next(&mut self) -> Option<(OrderNo, TxId)> {
        if self.left == 0 {
            return None;
        }
        let record = self.records.record(self.next.order())?;
        self.left -= 1;
        // The parts are in another place of memory: not read for the last step, which needs nothing of them.
        if self.left > 0 {
            self.next = self.records.part(record.row, self.next.place()).before;
        }
        Some((record.order, record.row.tx))
    }
}

impl FusedIterator for History<'_> {}
