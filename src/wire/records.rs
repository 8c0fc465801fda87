//! QUERY, FOLLOW and RECORDS: reading the order.
//!
//! Drawn here so that the layout is settled; servers of this version do not answer them: they drop and count them
//! (`not_served`).
//!
//! QUERY:
//!
//! ```text
//! offset size field
//!      0    4 id, chosen by the client, in every RECORDS that answers
//!      4    1 what: 1 transaction, 2 participant, 3 order
//!      5    1 reserved, 0
//!      6    2 limit, records at most, from 1
//!      8   16 1: tx id;  2: participant u32, zero u32, first sequence number u64;  3: first order number u64, zero u64
//! ```
//!
//! RECORDS:
//!
//! ```text
//! offset size field                       record: offset size field
//!      0    4 id of the QUERY or FOLLOW                0    8 order number, from 1
//!      4    1 flags: 1 more, 2 gone_below              8    8 ts, ns
//!      5    1 reserved, 0                             16   16 tx id
//!      6    2 records here                            32    1 total, participants, 1..64
//!      8    8 from                                    33    1 first: index of the first part here
//!     16    8 next                                    34    1 parts here, from 1
//!     24      records                                 35    1 reserved, 0
//!                                                     36      parts: participant u32, sequence u64
//! ```
//!
//! Numbers in `from` and `next` are of the kind asked for (sequence or order numbers; zero for a transaction). `from` is
//! where this page begins; with `gone_below` the numbers asked for below `from` are past retention. With `more`, ask
//! again from `next`; without it, this was all there is so far. A record with many participants may be split over two
//! RECORDS as an answer is. An unknown transaction is answered by no records.
//!
//! **Invariants**: a [`RecordsView`] was validated whole. **Limits**: one datagram a page.
//! **Not here**: retention (`protocol::ledger`).

use super::WireError;
use super::bytes::{BodyWriter, Field, Fields, Full, HEAD_LEN, Reader, fixed_message};
use crate::protocol::{NodeId, OrderNo, PARTICIPANTS_MAX, ParticipantSeq, Timestamp, TxId};

/// Message type of RECORDS.
pub const RECORDS: u8 = 0x67;
/// Bytes before the first record.
pub const RECORDS_HEAD_LEN: usize = 24;
/// Bytes of a record before its parts.
pub const RECORD_HEAD_LEN: usize = 36;
/// Bytes of a part of a record.
pub const RECORD_PART_LEN: usize = 12;

const MORE: u8 = 1;
const GONE_BELOW: u8 = 2;

const _: () = {
    assert!(u32::LEN + 4 + 8 + 8 == RECORDS_HEAD_LEN);
    assert!(OrderNo::LEN + Timestamp::LEN + TxId::LEN + 4 == RECORD_HEAD_LEN);
    assert!(NodeId::LEN + ParticipantSeq::LEN == RECORD_PART_LEN);
    let one = HEAD_LEN + RECORDS_HEAD_LEN + RECORD_HEAD_LEN + RECORD_PART_LEN;
    assert!(one <= super::body_max(super::PAYLOAD_MIN));
};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The record of a transaction.
    Tx(TxId),
    /// A participant's sequence, from a number on.
    Participant(NodeId, ParticipantSeq),
    /// The order, from a number on.
    Order(OrderNo),
}

/// QUERY: records, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// Names the answer.
    pub id: u32,
    /// Records wanted at most, from 1.
    pub limit: u16,
    /// Which.
    pub lookup: Lookup,
}

impl Query {
    /// Message type.
    pub const KIND: u8 = 0x43;
    /// Bytes of the payload.
    pub const LEN: usize = 24;

    /// Appends it to a body.
    ///
    /// # Errors
    /// [`Full`] if it does not fit; nothing is written then.
    pub fn put(&self, body: &mut BodyWriter<'_>) -> Result<(), Full> {
        let what: u8 = match self.lookup {
            Lookup::Tx(_) => 1,
            Lookup::Participant(..) => 2,
            Lookup::Order(_) => 3,
        };
        let mut f = body.message(Self::KIND, 0, Self::LEN)?;
        f.field(self.id).field(what).field(0_u8).field(self.limit);
        match self.lookup {
            Lookup::Tx(tx) => f.field(tx),
            Lookup::Participant(id, from) => f.field(id).field(0_u32).field(from),
            Lookup::Order(from) => f.field(from).field(0_u64),
        };
        f.done();
        Ok(())
    }

    pub(super) fn read(payload: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(Self::KIND, payload);
        let (id, what): (u32, u8) = (r.field("id")?, r.field("what")?);
        r.zeros::<1>()?;
        let limit: u16 = r.field("limit")?;
        if limit == 0 {
            return Err(r.range("limit", limit, 1, usize::from(u16::MAX)));
        }
        let lookup = match what {
            1 => Lookup::Tx(r.field("tx")?),
            2 => {
                let id = r.field("participant")?;
                r.zeros::<4>()?;
                Lookup::Participant(id, r.field("from")?)
            }
            3 => {
                let from = r.field("from")?;
                r.zeros::<8>()?;
                Lookup::Order(from)
            }
            other => return Err(r.range("what", other, 1, 3)),
        };
        r.end()?;
        Ok(Self { id, limit, lookup })
    }
}

fixed_message! {
    /// FOLLOW: the order from a number on, as it grows; answered by RECORDS with its id.
    ///
    /// ```text
    /// offset  0        4             8
    ///         | id,u32 | credit, u32 | from, u64 |      credit 0: stop
    /// ```
    ///
    /// A client repeats it with `from` after what it has, before the credit is used up and every second at least;
    /// a server forgets who has not repeated it for five seconds.
    Follow = 0x44, 16 {
        /// Names the answers; the same id goes on with the same subscription.
        id: u32,
        /// Records that may be sent until the next FOLLOW.
        credit: u32,
        /// First order number wanted.
        from: OrderNo,
    }
}

/// One record to write: its head, and a participant at an index.
pub trait RecordSource {
    /// Order number, timestamp, transaction.
    fn head(&self) -> (OrderNo, Timestamp, TxId);
    /// How many participants, 1..64.
    fn total(&self) -> u8;
    /// The participant at `index`, and its sequence number.
    fn part(&self, index: u8) -> (NodeId, ParticipantSeq);
}

/// Builds one RECORDS payload in a caller's buffer, to be appended with [`BodyWriter::put_payload`] or sent in parts of
/// a ring.
#[derive(Debug)]
pub struct RecordsWriter<'b> {
    buf: &'b mut [u8],
    len: usize,
    count: u16,
}

impl<'b> RecordsWriter<'b> {
    /// Starts a page in `buf`, whose length is the limit.
    ///
    /// # Panics
    /// If `buf` has no room for the head of a page: a defect of the caller.
    #[must_use]
    pub fn new(buf: &'b mut [u8], id: u32) -> Self {
        let mut f = Fields::new(&mut buf[..RECORDS_HEAD_LEN]);
        f.field(id).bytes(&[0; RECORDS_HEAD_LEN - 4]).done();
        Self { buf, len: RECORDS_HEAD_LEN, count: 0 }
    }

    /// Appends a record from its part `first` on, as many parts as fit; returns the index of the first part that did
    /// not, which is the total when the record is complete.
    ///
    /// # Errors
    /// [`Full`] if not even one part fits; nothing is written then.
    ///
    /// # Panics
    /// If `first` is not below the total, or that not in 1..=64: a defect of the caller.
    pub fn push(&mut self, record: &impl RecordSource, first: u8) -> Result<u8, Full> {
        let total = record.total();
        assert!(first < total && usize::from(total) <= PARTICIPANTS_MAX, "part {first} of {total}");
        let room = self.buf.len() - self.len;
        let full = Full { need: RECORD_HEAD_LEN + RECORD_PART_LEN, room };
        let fit = room.saturating_sub(RECORD_HEAD_LEN) / RECORD_PART_LEN;
        let parts = u8::try_from(fit).unwrap_or(u8::MAX).min(total - first);
        let (Some(count), true) = (self.count.checked_add(1), parts > 0) else { return Err(full) };
        let len = RECORD_HEAD_LEN + RECORD_PART_LEN * usize::from(parts);
        let mut f = Fields::new(&mut self.buf[self.len..self.len + len]);
        let (order, ts, tx) = record.head();
        f.field(order).field(ts).field(tx).field(total).field(first).field(parts).field(0_u8);
        for index in first..first + parts {
            let (id, seq) = record.part(index);
            f.field(id).field(seq);
        }
        f.done();
        (self.len, self.count) = (self.len + len, count);
        Ok(first + parts)
    }

    /// Records so far.
    #[must_use]
    pub const fn count(&self) -> u16 {
        self.count
    }

    /// Writes the head; returns the payload's length.
    #[must_use]
    pub fn finish(self, page: &Page) -> usize {
        let flags = (u8::from(page.more) * MORE) | (u8::from(page.gone_below) * GONE_BELOW);
        let mut f = Fields::new(&mut self.buf[4..RECORDS_HEAD_LEN]);
        f.field(flags).field(0_u8).field(self.count).field(page.from).field(page.next).done();
        self.len
    }
}

/// Where a page of records stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// There is more: ask again from `next`.
    pub more: bool,
    /// What was asked for below `from` is past retention.
    pub gone_below: bool,
    /// Number of the first record.
    pub from: u64,
    /// Where to go on.
    pub next: u64,
}

/// RECORDS, validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordsView<'a> {
    id: u32,
    page: Page,
    count: u16,
    records: &'a [u8],
}

impl<'a> RecordsView<'a> {
    /// Validates a payload.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(payload: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(RECORDS, payload);
        let (id, flags): (u32, u8) = (r.field("id")?, r.field("flags")?);
        if flags & !(MORE | GONE_BELOW) != 0 {
            return Err(r.not_zero("reserved flags"));
        }
        r.zeros::<1>()?;
        let count = r.field("records")?;
        let (from, next) = (r.field("from")?, r.field("next")?);
        let records = r.rest();
        for _ in 0..count {
            RecordView::read(&mut r)?;
        }
        r.end()?;
        let page = Page { more: flags & MORE != 0, gone_below: flags & GONE_BELOW != 0, from, next };
        Ok(Self { id, page, count, records })
    }

    /// Which QUERY or FOLLOW it answers.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.id
    }
    /// Where it stands.
    #[must_use]
    pub const fn page(&self) -> Page {
        self.page
    }
    /// How many records.
    #[must_use]
    pub const fn count(&self) -> u16 {
        self.count
    }
    /// The records, in order.
    #[must_use]
    pub const fn records(&self) -> Records<'a> {
        Records { left: self.records }
    }
}

/// Iterator over the records of a page.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    left: &'a [u8],
}

impl<'a> Iterator for Records<'a> {
    type Item = RecordView<'a>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.left.is_empty() {
            return None;
        }
        let mut r = Reader::new(RECORDS, self.left);
        let record = RecordView::read(&mut r).ok();
        debug_assert!(record.is_some(), "validated when parsed");
        self.left = r.rest();
        record
    }
}

/// One record, or some of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordView<'a> {
    /// Its place in the one order.
    pub order: OrderNo,
    /// Its timestamp.
    pub ts: Timestamp,
    /// The transaction.
    pub tx: TxId,
    /// How many participants it has.
    pub total: u8,
    /// Index of the first part here.
    pub first: u8,
    parts: &'a [u8],
}

impl<'a> RecordView<'a> {
    fn read(r: &mut Reader<'a>) -> Result<Self, WireError> {
        let (order, ts, tx) = (r.field::<OrderNo>("order")?, r.field("ts")?, r.field("tx")?);
        let [total, first, count, reserved] = r.array()?;
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
        if reserved != 0 {
            return Err(r.not_zero("reserved"));
        }
        Ok(Self { order, ts, tx, total, first, parts: r.slice(usize::from(count) * RECORD_PART_LEN)? })
    }

    /// The participants here and their sequence numbers.
    #[must_use]
    pub fn parts(&self) -> impl ExactSizeIterator<Item = (NodeId, ParticipantSeq)> + Clone + 'a {
        self.parts.as_chunks::<RECORD_PART_LEN>().0.iter().map(|part| {
            let [a, b, c, d, seq @ ..] = *part;
            (NodeId::new(u32::from_le_bytes([a, b, c, d])), ParticipantSeq::new(u64::from_le_bytes(seq)))
        })
    }
}
