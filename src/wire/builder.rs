//! Building frames: what the core stamps in a round becomes one frame, in memory taken once.
//!
//! **Why.** Entries are written into the frame as they are stamped; nothing is copied again before the frame is stored.
//! **Invariants**: a finished frame parses; the builder is empty then.
//! **Limits**: the capacity given at construction. **Not here**: the layout ([`super::frame`]).

use alloc::boxed::Box;
use alloc::vec;

use super::bytes::{Fields, Full};
use super::frame::{ENTRY_LEN_MAX, EntryView, FRAME_HEAD_LEN, FrameView, TS_MAX};
use crate::protocol::{FrameNo, PARTICIPANTS_MAX, StreamId, Timestamp};

/// Builds one frame payload after the other in its own memory, taken at construction.
#[derive(Debug)]
pub struct FrameBuilder {
    buf: Box<[u8]>,
    stream: StreamId,
    s: FrameNo,
    len: usize,
    count: u16,
    base: Timestamp,
    last: Timestamp,
}

impl FrameBuilder {
    /// For frames of at most `capacity` bytes.
    ///
    /// # Panics
    /// If the longest entry would not fit an empty frame.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        assert!(capacity >= FRAME_HEAD_LEN + ENTRY_LEN_MAX, "frames of {capacity} bytes cannot hold every entry");
        let zero = Timestamp::new(0);
        let buf = vec![0; capacity].into_boxed_slice();
        Self { buf, stream: StreamId::default(), s: FrameNo::default(), len: 0, count: 0, base: zero, last: zero }
    }

    /// Most bytes of a frame.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.buf.len()
    }

    /// Whether no entry has been pushed since the start.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Starts frame `s` of `stream`, forgetting what was begun.
    ///
    /// # Panics
    /// If `s` is zero: a defect of the caller.
    pub fn start(&mut self, stream: StreamId, s: FrameNo) {
        assert!(s.get() > 0, "frames are numbered from 1");
        let zero = Timestamp::new(0);
        let mut f = Fields::new(&mut self.buf[..FRAME_HEAD_LEN]);
        f.field(stream.server).field(0_u8).field(0_u16).field(stream.opened).field(s).field(zero).done();
        (self.stream, self.s) = (stream, s);
        (self.len, self.count, self.base, self.last) = (FRAME_HEAD_LEN, 0, zero, zero);
    }

    /// Appends an entry.
    ///
    /// # Errors
    /// [`Full`] if there is no room, or the frame would span more than 4.29 s: finish it and start the next.
    ///
    /// # Panics
    /// If the entry has no or too many participants, or its time stamp does not rise above the one before or is past
    /// [`TS_MAX`]: a defect of the caller.
    pub fn push(&mut self, entry: &EntryView<'_>) -> Result<(), Full> {
        let n = entry.participants.len();
        assert!((1..=PARTICIPANTS_MAX).contains(&n), "entry of {n} participants");
        let rises = self.count == 0 || entry.ts > self.last;
        assert!(rises && entry.ts.get() <= TS_MAX, "time stamp {} after {}", entry.ts, self.last);
        let room = self.buf.len() - self.len;
        let full = Full { need: entry.len(), room };
        let base = if self.count == 0 { entry.ts } else { self.base };
        let Ok(delta) = u32::try_from(entry.ts.since(base).get()) else { return Err(full) };
        let (Some(count), true) = (self.count.checked_add(1), entry.len() <= room) else { return Err(full) };
        let mut f = Fields::new(&mut self.buf[self.len..self.len + entry.len()]);
        f.field(delta).field(entry.principal).field(entry.session).field(entry.request).field(entry.tx);
        // At most 64, asserted above.
        f.field(u8::try_from(n).unwrap_or(u8::MAX)).bytes(&[0; 3]).bytes(entry.participants.bytes()).done();
        (self.len, self.count, self.base, self.last) = (self.len + entry.len(), count, base, entry.ts);
        Ok(())
    }

    /// Entries so far.
    #[must_use]
    pub const fn count(&self) -> u16 {
        self.count
    }

    /// Writes count and base, and shows the frame; the builder is empty then.
    ///
    /// # Panics
    /// If no entry was pushed: a defect of the caller.
    pub fn finish(&mut self) -> FrameView<'_> {
        assert!(self.count > 0, "a frame without entries");
        Fields::new(&mut self.buf[2..4]).field(self.count).done();
        Fields::new(&mut self.buf[16..FRAME_HEAD_LEN]).field(self.base).done();
        let count = core::mem::take(&mut self.count);
        FrameView::built(&self.buf[..self.len], self.stream, self.s, count, self.last)
    }
}
