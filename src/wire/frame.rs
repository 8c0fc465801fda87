//! FRAME: a numbered piece of one server's stream, one or more entries.
//!
//! ```text
//! offset size field                       entry: offset size field
//!      0    1 k, place of the writer                  0    4 ts less the frame's base, ns
//!      1    1 reserved, 0                             4    8 principal
//!      2    2 entries, from 1                        12   16 session
//!      4    4 g, epoch that opened it                28    8 request number, from 1
//!      8    8 s, frame number, from 1                36   16 tx id
//!     16    8 base, ts of the first entry, ns        52    1 n, participants, 1..64
//!     24      entries                                53    3 reserved, 0
//!                                                    56   4n participants, distinct
//! ```
//!
//! The first entry's delta is 0, and deltas rise strictly; a frame spans at most 4.29 s, and ends by [`TS_MAX`].
//!
//! **Why bytes.** A frame is stored and sent again as the bytes it came in: a relay needs no writer, and an entry is
//! decoded where it lies, by its offset.
//! **Invariants**: a [`FrameView`] has been validated whole, so its entries cannot fail to be read.
//! **Limits**: one datagram. **Not here**: whether a frame is accepted (R-ACCEPT, `protocol`).

use super::WireError;
use super::bytes::{BodyWriter, Field, Full, Reader};
use super::participants::Participants;
use crate::protocol::{
    Epoch, FrameNo, PARTICIPANTS_MAX, Principal, RequestNo, ServerId, SessionId, StreamId, Timestamp, TxId,
};

/// Message type of a frame.
pub const FRAME: u8 = 2;
/// Bytes before the first entry: where a cursor over a frame starts.
pub const FRAME_HEAD_LEN: usize = 24;
/// Bytes of an entry before its participants.
pub const ENTRY_HEAD_LEN: usize = 56;
/// Latest time stamp, in the year 2262: however wrong a peer's clock, a server that has taken its frame can stamp on
/// without reaching the end of time.
pub const TS_MAX: u64 = i64::MAX as u64;
/// Longest entry.
pub const ENTRY_LEN_MAX: usize = ENTRY_HEAD_LEN + 4 * PARTICIPANTS_MAX;

const _: () = {
    let head = 1 + 1 + u16::LEN + Epoch::LEN + FrameNo::LEN + Timestamp::LEN;
    let entry = u32::LEN + Principal::LEN + SessionId::LEN + RequestNo::LEN + TxId::LEN + 1 + 3;
    assert!(head == FRAME_HEAD_LEN && entry == ENTRY_HEAD_LEN);
    // A frame travels beside a header.
    let heads = 2 * super::bytes::HEAD_LEN + super::header::HEADER_LEN_MAX;
    assert!(heads + FRAME_HEAD_LEN + ENTRY_LEN_MAX <= super::body_max(super::PAYLOAD_MIN));
};

/// Bytes of an entry with `participants`.
#[must_use]
pub const fn entry_len(participants: usize) -> usize {
    ENTRY_HEAD_LEN + 4 * participants
}

/// What a request asked, as it stands in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryView<'a> {
    /// Its timestamp.
    pub ts: Timestamp,
    /// Whose session.
    pub principal: Principal,
    /// Which session.
    pub session: SessionId,
    /// Which request of it.
    pub request: RequestNo,
    /// The transaction.
    pub tx: TxId,
    /// Its participants.
    pub participants: Participants<'a>,
}

impl<'a> EntryView<'a> {
    /// The entry at `offset` of the frame payload `frame`, and the offset of the next. The first is at
    /// [`FRAME_HEAD_LEN`]; `None` at the end.
    ///
    /// The frame must have been validated ([`FrameView::parse`]) and `offset` come from here: of other bytes this reads
    /// nonsense or gives `None`, but does not panic.
    #[must_use]
    #[inline]
    pub fn at(frame: &'a [u8], offset: usize) -> Option<(Self, usize)> {
        let base = u64::from_le_bytes(*frame.get(16..FRAME_HEAD_LEN)?.first_chunk()?);
        let rest = frame.get(offset.max(FRAME_HEAD_LEN)..)?;
        if rest.is_empty() {
            return None;
        }
        let mut r = Reader::new(FRAME, rest);
        let (_, entry) = read_entry(&mut r, base).ok()?;
        let next = frame.len() - r.rest().len();
        Some((entry, next))
    }

    /// The time stamp of the entry at `offset`, as [`EntryView::at`] gives it.
    #[must_use]
    pub fn ts_at(frame: &[u8], offset: usize) -> Option<Timestamp> {
        let base = u64::from_le_bytes(*frame.get(16..FRAME_HEAD_LEN)?.first_chunk()?);
        let delta = u32::from_le_bytes(*frame.get(offset.max(FRAME_HEAD_LEN)..)?.first_chunk()?);
        base.checked_add(u64::from(delta)).map(Timestamp::new)
    }

    /// Bytes it takes in a frame.
    #[must_use]
    pub const fn len(&self) -> usize {
        entry_len(self.participants.len())
    }

    /// Never: an entry has a fixed part.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }
}

#[inline]
fn read_entry<'a>(r: &mut Reader<'a>, base: u64) -> Result<(u32, EntryView<'a>), WireError> {
    // One check for the fixed part, then plain loads: this is read three times for every entry.
    let head: [u8; ENTRY_HEAD_LEN] = r.array()?;
    let delta = u32::from_le_bytes(part(&head, 0));
    let n = head[52];
    if part::<3>(&head, 53) != [0; 3] {
        return Err(r.not_zero("reserved"));
    }
    if n == 0 || usize::from(n) > PARTICIPANTS_MAX {
        return Err(r.range("participants", n, 1, PARTICIPANTS_MAX));
    }
    let participants = Participants::new(r.slice(4 * usize::from(n))?);
    let Some(ts) = base.checked_add(u64::from(delta)).filter(|ts| *ts <= TS_MAX) else {
        return Err(r.range("base ts", base, 0, usize::try_from(TS_MAX).unwrap_or(usize::MAX)));
    };
    let entry = EntryView {
        ts: Timestamp::new(ts),
        principal: Principal::new(u64::from_le_bytes(part(&head, 4))),
        session: SessionId::from_bytes(part(&head, 12)),
        request: RequestNo::new(u64::from_le_bytes(part(&head, 28))),
        tx: TxId::new(part(&head, 36)),
        participants,
    };
    Ok((delta, entry))
}

/// `N` bytes of an entry's fixed part, at a constant offset.
fn part<const N: usize>(head: &[u8; ENTRY_HEAD_LEN], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&head[at..at + N]);
    bytes
}

/// Whether a payload is seen for the first time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    First,
    Again,
}

/// A frame payload that has been validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameView<'a> {
    bytes: &'a [u8],
    stream: StreamId,
    s: FrameNo,
    count: u16,
    last: Timestamp,
}

impl<'a> FrameView<'a> {
    /// Validates a payload.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(payload: &'a [u8]) -> Result<Self, WireError> {
        Self::read(payload, Look::First)
    }

    /// The view of a payload that [`FrameView::parse`] has validated before: skips what costs most.
    ///
    /// # Errors
    /// Only if it was never validated; even then its entries can be read without a panic.
    pub fn again(payload: &'a [u8]) -> Result<Self, WireError> {
        Self::read(payload, Look::Again)
    }

    /// The view of a payload that this process has built, entry by entry, from what was validated.
    pub(super) const fn built(bytes: &'a [u8], stream: StreamId, s: FrameNo, count: u16, last: Timestamp) -> Self {
        Self { bytes, stream, s, count, last }
    }

    fn read(payload: &'a [u8], look: Look) -> Result<Self, WireError> {
        let mut r = Reader::new(FRAME, payload);
        let server: ServerId = r.field("k")?;
        r.zeros::<1>()?;
        let count: u16 = r.field("entries")?;
        let opened = r.field("g")?;
        let s: FrameNo = r.field("s")?;
        let base: u64 = r.field("base ts")?;
        if count == 0 {
            return Err(r.range("entries", count, 1, usize::from(u16::MAX)));
        }
        if s.get() == 0 {
            return Err(r.range("s", s.get(), 1, usize::MAX));
        }
        let mut before = None;
        let mut last = Timestamp::new(base);
        for index in 0..count {
            let (delta, entry) = read_entry(&mut r, base)?;
            let rises = before.map_or(delta == 0, |before| delta > before);
            if !rises {
                return Err(WireError::EntryOrder { index, delta, before: before.unwrap_or(0) });
            }
            if entry.request.get() == 0 {
                return Err(r.range("request", 0_u64, 1, usize::MAX));
            }
            if look == Look::First
                && let Some(id) = entry.participants.repeated()
            {
                return Err(WireError::ParticipantTwice { index, id: id.get() });
            }
            (before, last) = (Some(delta), entry.ts);
        }
        r.end()?;
        Ok(Self { bytes: payload, stream: StreamId { server, opened }, s, count, last })
    }

    /// The payload: what is stored and sent again.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
    /// Which stream.
    #[must_use]
    pub const fn stream(&self) -> StreamId {
        self.stream
    }
    /// Its number in the stream.
    #[must_use]
    pub const fn number(&self) -> FrameNo {
        self.s
    }
    /// How many entries.
    #[must_use]
    pub const fn count(&self) -> u16 {
        self.count
    }
    /// Timestamp of the first entry: its delta is 0, so it is the base.
    #[must_use]
    pub fn first_ts(&self) -> Timestamp {
        EntryView::ts_at(self.bytes, FRAME_HEAD_LEN).unwrap_or(self.last)
    }
    /// Timestamp of the last entry: the frame's.
    #[must_use]
    pub const fn last_ts(&self) -> Timestamp {
        self.last
    }
    /// Its entries in order.
    #[must_use]
    pub const fn entries(&self) -> Entries<'a> {
        Entries { frame: self.bytes, offset: FRAME_HEAD_LEN }
    }
    /// Appends it to a body, byte for byte.
    ///
    /// # Errors
    /// [`Full`] if it does not fit; nothing is written then.
    pub fn put(&self, body: &mut BodyWriter<'_>) -> Result<(), Full> {
        put_frame(body, self.bytes)
    }
}

/// Iterator over the entries of a frame.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    frame: &'a [u8],
    offset: usize,
}

impl<'a> Iterator for Entries<'a> {
    type Item = EntryView<'a>;
    fn next(&mut self) -> Option<Self::Item> {
        let (entry, next) = EntryView::at(self.frame, self.offset)?;
        self.offset = next;
        Some(entry)
    }
}

/// Appends a frame payload, as stored, to a body.
///
/// # Errors
/// [`Full`] if it does not fit; nothing is written then.
pub fn put_frame(body: &mut BodyWriter<'_>, payload: &[u8]) -> Result<(), Full> {
    body.put_payload(FRAME, 0, payload)
}
