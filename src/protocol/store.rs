//! Frames of one stream, held as the bytes they travelled in, in a ring of memory taken at start.
//!
//! **Why.** A frame is stored once, delivered from where it lies, and sent again (to whoever pulls it) without being
//! encoded anew. Frames of a stream come and go in order, so a ring of bytes holds them without fragments.
//! **Invariants**: frames are dense; each lies in one piece; nothing is overwritten before it is dropped.
//! **Limits**: the bytes and the number of frames given at construction; full means refused, by return value.
//! **Not here**: which frames are acceptable, when they may be dropped.
use super::{FrameNo, LocalTime, Timestamp};
use alloc::boxed::Box;
use alloc::vec;

/// Least bytes a frame is reckoned with when the number of frames is derived from the bytes.
pub const FRAME_BYTES_MIN: usize = 96;

/// What is known of a held frame beside its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    start: usize,
    len: usize,
    /// Time stamp of its last entry.
    pub last_ts: Timestamp,
    /// When it was accepted here.
    pub accepted: LocalTime,
}

/// The frames `first..=last` of a stream.
#[derive(Debug)]
pub struct Store {
    bytes: Box<[u8]>,
    frames: Box<[Held]>,
    /// Number of the first frame still held (one past `last` when none is).
    first: FrameNo,
    /// Number of the last frame held.
    last: FrameNo,
}

impl Store {
    /// Room for `bytes` of frames. Takes all its memory here.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let frames = (bytes / FRAME_BYTES_MIN).max(16);
        Self {
            bytes: vec![0; bytes].into_boxed_slice(),
            frames: vec![Held::default(); frames].into_boxed_slice(),
            first: FrameNo::new(1),
            last: FrameNo::new(0),
        }
    }

    /// Memory that a store of so many bytes takes, with its index.
    #[must_use]
    pub fn memory(bytes: usize) -> usize {
        bytes + (bytes / FRAME_BYTES_MIN).max(16) * size_of::<Held>()
    }

    /// How many frames of the stream there have been: those dropped count.
    #[must_use]
    pub fn len(&self) -> FrameNo {
        self.last
    }

    /// Most frames that can be held.
    #[must_use]
    pub fn frames_max(&self) -> u64 {
        self.frames.len() as u64
    }

    /// No frame is held (though some may have been).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first > self.last
    }

    /// The first frame still held; one past [`Store::len`] when none is.
    #[must_use]
    pub fn first(&self) -> FrameNo {
        self.first
    }

    fn slot(&self, s: FrameNo) -> usize {
        // A remainder of the index's length fits whatever the length fits.
        usize::try_from(s.get() % self.frames.len() as u64).unwrap_or(0)
    }

    /// What is known of frame `s`, if it is held.
    #[must_use]
    pub fn held(&self, s: FrameNo) -> Option<&Held> {
        if s < self.first || s > self.last { None } else { self.frames.get(self.slot(s)) }
    }

    /// The bytes of frame `s`, if it is held.
    #[must_use]
    pub fn bytes(&self, s: FrameNo) -> Option<&[u8]> {
        let held = self.held(s)?;
        self.bytes.get(held.start..held.start + held.len)
    }

    /// Where the next `len` bytes would lie, if there is room: after the newest frame, else from the start again.
    fn place(&self, len: usize) -> Option<usize> {
        if self.is_empty() {
            return (len <= self.bytes.len()).then_some(0);
        }
        if self.last.get() - self.first.get() + 1 >= self.frames.len() as u64 {
            return None;
        }
        let head = self.held(self.first)?.start;
        let newest = self.held(self.last)?;
        let tail = newest.start + newest.len;
        if newest.start >= head {
            if tail + len <= self.bytes.len() {
                return Some(tail);
            }
            // Strictly below the head, so that a full ring never looks empty.
            return (len < head).then_some(0);
        }
        (tail + len < head).then_some(tail)
    }

    /// Whether a frame of `len` bytes would find room now.
    #[must_use]
    pub fn has_room(&self, len: usize) -> bool {
        self.place(len).is_some()
    }

    /// Holds the next frame of the stream. False if there is no room: nothing has changed then.
    pub fn push(&mut self, frame: &[u8], last_ts: Timestamp, accepted: LocalTime) -> bool {
        let Some(start) = self.place(frame.len()) else { return false };
        let Some(room) = self.bytes.get_mut(start..start + frame.len()) else { return false };
        room.copy_from_slice(frame);
        let s = self.last.next();
        let slot = self.slot(s);
        if let Some(held) = self.frames.get_mut(slot) {
            *held = Held { start, len: frame.len(), last_ts, accepted };
        }
        self.last = s;
        true
    }

    /// Counts the next frame without holding it: only the planted fault "gaps are accepted" does that.
    #[cfg(test)]
    pub fn skip_to(&mut self, s: FrameNo) {
        self.first = s;
        self.last = FrameNo::new(s.get() - 1);
    }

    /// Drops all frames up to and including `s`.
    pub fn drop_through(&mut self, s: FrameNo) {
        self.first = self.first.max(s.min(self.last).next());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[test]
    fn a_full_store_refuses_and_changes_nothing() {
        let mut store = Store::new(100);
        assert!(store.push(&[1; 60], Timestamp::new(1), LocalTime::new(0)));
        assert!(!store.push(&[2; 60], Timestamp::new(2), LocalTime::new(0)));
        assert_eq!(store.len(), FrameNo::new(1));
        store.drop_through(FrameNo::new(1));
        assert!(store.push(&[2; 60], Timestamp::new(2), LocalTime::new(0)));
        assert_eq!(store.bytes(FrameNo::new(2)), Some(&[2; 60][..]));
        assert_eq!(store.bytes(FrameNo::new(1)), None);
    }

    proptest! {
        #[test]
        fn holds_what_a_queue_of_vectors_holds(steps in prop::collection::vec((0_u8..4, 1_usize..90), 1..200)) {
            let mut store = Store::new(400);
            let mut plain: VecDeque<Vec<u8>> = VecDeque::new();
            let mut first = 1_u64;
            for (n, (kind, len)) in steps.into_iter().enumerate() {
                if kind == 0 && !plain.is_empty() {
                    store.drop_through(FrameNo::new(first));
                    plain.pop_front();
                    first += 1;
                } else {
                    let frame = vec![u8::try_from(n % 251).unwrap(); len];
                    if store.push(&frame, Timestamp::new(n as u64), LocalTime::new(0)) {
                        plain.push_back(frame);
                    } else {
                        prop_assert!(plain.iter().map(Vec::len).sum::<usize>() + 2 * len + 90 > 400 || plain.len() >= 16);
                    }
                }
                for (at, frame) in plain.iter().enumerate() {
                    prop_assert_eq!(store.bytes(FrameNo::new(first + at as u64)), Some(&frame[..]));
                }
            }
        }
    }
}
