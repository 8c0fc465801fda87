//! ANSWER and CORRECTED: a transaction's place, whole or in parts.
//!
//! ```text
//! offset size field                       part: offset size field
//!      0    8 request number                         0    4 participant's id
//!      8    8 order number, from 1                   4    8 its sequence number, from 1
//!     16    8 ts, ns of cluster time                12    1 h, depth of the history, 0..16
//!     24    8 instance                              13  24h history, newest first:
//!     32    1 flags: 1 provisional                              order number u64, tx id 16 bytes
//!     33    1 total, participants, 1..64
//!     34    1 first: index of the first part here
//!     35    1 parts here, from 1
//!     36      parts, in the order of the request's participants
//! ```
//!
//! An answer too big for a datagram (64 parts of 16 deep are 25 KB) is sent as several ANSWERs that differ in `first`
//! and `parts` only: their ranges are disjoint and together `0..total`. They may come in any order and more than once;
//! a client that misses some retries the request. [`Assembly`] keeps track.
//!
//! CORRECTED (the true answer after a provisional one that was wrong) has the same payload.
//!
//! **Invariants**: an [`AnswerView`] was validated whole; its parts cannot fail to be read.
//! **Limits**: a part is at most [`PART_LEN_MAX`] bytes, so one always fits the least datagram.
//! **Not here**: what a client does with a contradiction (`client`).

use super::WireError;
use super::bytes::{BodyWriter, Field, Full, HEAD_LEN, Reader};
use crate::protocol::{
    HISTORY_MAX, Instance, NodeId, OrderNo, PARTICIPANTS_MAX, ParticipantSeq, RequestNo, SessionId, Timestamp, TxId,
};

/// Message type of ANSWER.
pub const ANSWER: u8 = 0x62;
/// Message type of CORRECTED.
pub const CORRECTED: u8 = 0x64;
/// Bytes before the first part.
pub const ANSWER_HEAD_LEN: usize = 36;
/// Bytes of a part without its history.
pub const PART_HEAD_LEN: usize = 13;
/// Bytes of one step of a history.
pub const STEP_LEN: usize = 24;
/// Longest part.
pub const PART_LEN_MAX: usize = PART_HEAD_LEN + HISTORY_MAX * STEP_LEN;

const PROVISIONAL: u8 = 1;

const _: () = {
    assert!(RequestNo::LEN + OrderNo::LEN + Timestamp::LEN + Instance::LEN + 4 == ANSWER_HEAD_LEN);
    assert!(NodeId::LEN + ParticipantSeq::LEN + 1 == PART_HEAD_LEN && OrderNo::LEN + TxId::LEN == STEP_LEN);
    assert!(PART_LEN_MAX == 397);
    let with_switch = HEAD_LEN + SessionId::LEN + HEAD_LEN + ANSWER_HEAD_LEN + PART_LEN_MAX;
    assert!(with_switch <= super::body_max(super::PAYLOAD_MIN));
};

/// Bytes of a part whose history is `depth` deep.
#[must_use]
pub const fn part_len(depth: usize) -> usize {
    PART_HEAD_LEN + depth * STEP_LEN
}

/// What all parts of an answer share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerHead {
    /// Which request.
    pub request: RequestNo,
    /// Its place in the one order.
    pub order: OrderNo,
    /// Its timestamp.
    pub ts: Timestamp,
    /// The instance in which that place is.
    pub instance: Instance,
    /// Whether CONFIRMED or CORRECTED will follow.
    pub provisional: bool,
}

/// One participant's part, without its history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartHead {
    /// Which participant.
    pub id: NodeId,
    /// Its sequence number.
    pub seq: ParticipantSeq,
    /// Steps of its history, at most [`HISTORY_MAX`].
    pub depth: u8,
}

/// What an answer is encoded from; asked for the same part more than once.
pub trait AnswerSource {
    /// How many participants, 1..64.
    fn total(&self) -> u8;
    /// The part at `index`, below `total`.
    fn part(&self, index: u8) -> PartHead;
    /// Step `back` of the history of the part at `index`; 0 is the newest, below its depth.
    fn step(&self, index: u8, back: u8) -> (OrderNo, TxId);
}

/// Appends an answer from its part `first` on, as many parts as fit; returns the index of the first part that did not,
/// which is `source.total()` when the answer is complete.
///
/// # Errors
/// [`Full`] if not even one part fits; nothing is written then.
///
/// # Panics
/// If `first` is not below the total, the total not in 1..=64 or a history too deep: defects of the caller.
pub fn put_answer(
    body: &mut BodyWriter<'_>,
    kind: AnswerKind,
    head: &AnswerHead,
    source: &impl AnswerSource,
    first: u8,
) -> Result<u8, Full> {
    let total = source.total();
    assert!(first < total && usize::from(total) <= PARTICIPANTS_MAX, "part {first} of {total}");
    let room = body.room();
    let mut len = ANSWER_HEAD_LEN;
    let mut end = first;
    while end < total {
        let depth = usize::from(source.part(end).depth);
        assert!(depth <= HISTORY_MAX, "history of {depth}");
        // The first part is always counted, so that an answer that cannot begin is told what it needs.
        if end > first && len + part_len(depth) > room {
            break;
        }
        len += part_len(depth);
        end += 1;
    }
    let mut f = body.message(kind as u8, 0, len)?;
    f.field(head.request).field(head.order).field(head.ts).field(head.instance);
    f.field(u8::from(head.provisional) * PROVISIONAL).field(total).field(first).field(end - first);
    for index in first..end {
        let part = source.part(index);
        f.field(part.id).field(part.seq).field(part.depth);
        for back in 0..part.depth {
            let (order, tx) = source.step(index, back);
            f.field(order).field(tx);
        }
    }
    f.done();
    Ok(end)
}

/// Which of the two messages that carry an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AnswerKind {
    /// The answer to a request.
    Answer = ANSWER,
    /// The true answer, after a provisional one that was wrong.
    Corrected = CORRECTED,
}

/// An ANSWER or CORRECTED, validated: all parts of an answer, or some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerView<'a> {
    head: AnswerHead,
    total: u8,
    first: u8,
    count: u8,
    parts: &'a [u8],
    payload: &'a [u8],
}

impl<'a> AnswerView<'a> {
    /// Validates the payload of an ANSWER or CORRECTED.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(kind: AnswerKind, payload: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(kind as u8, payload);
        let (request, order, ts) = (r.field("request")?, r.field::<OrderNo>("order")?, r.field("ts")?);
        let instance = r.field("instance")?;
        let [flags, total, first, count] = r.array()?;
        if flags & !PROVISIONAL != 0 {
            return Err(r.not_zero("reserved flags"));
        }
        if order.get() == 0 {
            return Err(r.range("order", 0_u64, 1, usize::MAX));
        }
        if total == 0 || usize::from(total) > PARTICIPANTS_MAX {
            return Err(r.range("total", total, 1, PARTICIPANTS_MAX));
        }
        if first >= total {
            return Err(r.range("first", first, 0, usize::from(total) - 1));
        }
        if count == 0 || count > total - first {
            return Err(r.range("parts", count, 1, usize::from(total - first)));
        }
        let parts = r.rest();
        for _ in 0..count {
            let part = PartView::read(&mut r)?;
            if part.seq.get() == 0 {
                return Err(r.range("seq", 0_u64, 1, usize::MAX));
            }
        }
        r.end()?;
        let head = AnswerHead { request, order, ts, instance, provisional: flags & PROVISIONAL != 0 };
        Ok(Self { head, total, first, count, parts, payload })
    }

    /// What all parts share.
    #[must_use]
    pub const fn head(&self) -> AnswerHead {
        self.head
    }
    /// How many participants the transaction has.
    #[must_use]
    pub const fn total(&self) -> u8 {
        self.total
    }
    /// Index of the first part here.
    #[must_use]
    pub const fn first(&self) -> u8 {
        self.first
    }
    /// How many parts are here.
    #[must_use]
    pub const fn count(&self) -> u8 {
        self.count
    }
    /// Whether all parts are here.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.count == self.total
    }
    /// Bit i: part i is here.
    #[must_use]
    pub const fn bits(&self) -> u64 {
        mask(self.count) << self.first
    }
    /// The parts here, in order, from part [`AnswerView::first`] on.
    #[must_use]
    pub const fn parts(&self) -> Parts<'a> {
        Parts { left: self.parts }
    }
    /// The payload as it came: to be sent on with [`BodyWriter::put_payload`].
    #[must_use]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

const fn mask(count: u8) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

/// One participant's part of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartView<'a> {
    /// Which participant.
    pub id: NodeId,
    /// Its sequence number.
    pub seq: ParticipantSeq,
    /// What came before, newest first.
    pub history: History<'a>,
}

impl<'a> PartView<'a> {
    fn read(r: &mut Reader<'a>) -> Result<Self, WireError> {
        let (id, seq) = (r.field("id")?, r.field("seq")?);
        let depth: u8 = r.field("depth")?;
        if usize::from(depth) > HISTORY_MAX {
            return Err(r.range("depth", depth, 0, HISTORY_MAX));
        }
        Ok(Self { id, seq, history: History(r.slice(usize::from(depth) * STEP_LEN)?) })
    }
}

/// Iterator over the parts of an answer.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    left: &'a [u8],
}

impl<'a> Iterator for Parts<'a> {
    type Item = PartView<'a>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.left.is_empty() {
            return None;
        }
        let mut r = Reader::new(ANSWER, self.left);
        let part = PartView::read(&mut r).ok();
        debug_assert!(part.is_some(), "validated when parsed");
        self.left = r.rest();
        part
    }
}

/// The transactions before this one at a participant, newest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History<'a>(&'a [u8]);

impl<'a> History<'a> {
    /// How many.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.len() / STEP_LEN
    }
    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
    /// All of them, newest first: order number and transaction.
    #[must_use]
    pub fn iter(self) -> impl ExactSizeIterator<Item = (OrderNo, TxId)> + Clone + 'a {
        self.0.as_chunks::<STEP_LEN>().0.iter().map(|step| {
            let [a, b, c, d, e, f, g, h, tx @ ..] = *step;
            (OrderNo::new(u64::from_le_bytes([a, b, c, d, e, f, g, h])), TxId::new(tx))
        })
    }
}

/// Two ANSWERs to one request that do not belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request {}: order {} of {held_total} parts, then order {} of {got_total} parts", held.request, held.order, got.order)]
pub struct AnswersDiffer {
    /// What was taken first.
    pub held: AnswerHead,
    /// Its participants.
    pub held_total: u8,
    /// What came then.
    pub got: AnswerHead,
    /// Its participants.
    pub got_total: u8,
}

/// Which parts of one answer have come: a bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assembly {
    head: AnswerHead,
    total: u8,
    seen: u64,
}

impl Assembly {
    /// Begins with the first ANSWER that came.
    #[must_use]
    pub const fn new(first: &AnswerView<'_>) -> Self {
        Self { head: first.head, total: first.total, seen: first.bits() }
    }

    /// Takes another ANSWER to the same request; returns a bit for each part that had not come before.
    ///
    /// A retry may be answered by another server, provisionally or not: that difference is none; the answer counts as
    /// provisional until one came that is not.
    ///
    /// # Errors
    /// If it is another answer: a contradiction, or a correction; neither is taken.
    pub fn take(&mut self, view: &AnswerView<'_>) -> Result<u64, AnswersDiffer> {
        let got = AnswerHead { provisional: self.head.provisional, ..view.head };
        if got != self.head || view.total != self.total {
            let (held, held_total) = (self.head, self.total);
            return Err(AnswersDiffer { held, held_total, got: view.head, got_total: view.total });
        }
        self.head.provisional &= view.head.provisional;
        let fresh = view.bits() & !self.seen;
        self.seen |= fresh;
        Ok(fresh)
    }

    /// What the parts share.
    #[must_use]
    pub const fn head(&self) -> AnswerHead {
        self.head
    }
    /// How many parts there will be.
    #[must_use]
    pub const fn total(&self) -> u8 {
        self.total
    }
    /// Whether all parts have come.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.seen == mask(self.total)
    }
}
