//! One stream as this server knows it: what it holds, what was promised, what is delivered, what is missing.
//!
//! **Why.** Acceptance without gaps makes "how many frames I hold" one number, which is all that acknowledgements,
//! promises and pulls speak of (R-ACCEPT, R-TAKE).
//! **Invariants**, asserted where the order hangs on them: time stamps rise along the stream; the promise never falls;
//! a frame that is not delivered is never dropped (R-DISCARD).
//! **Limits**: the bytes of the store; [`REORDER_MAX`] frames that came too early.
//! **Not here**: which streams there are (`config`), when an entry may be delivered (`merge`).
use super::plant::{Fault, Plant};
use super::store::Store;
use super::{FrameNo, LocalTime, Span, StreamId, Timestamp};
use crate::wire::frame::{EntryView, FRAME_HEAD_LEN, FrameView};
use alloc::boxed::Box;
use alloc::vec;

/// Frames that may wait for an earlier one: those that come while some earlier ones are being pulled.
pub const REORDER_MAX: usize = 256;
/// Most frames of one PULL.
const PULL_FRAMES: u64 = crate::wire::peer::PULL_MAX;
const _: () = assert!(PULL_FRAMES <= REORDER_MAX as u64);
/// Shortest and longest wait for what was pulled.
const PULL_WAIT_MIN: Span = Span::micros(200);
const PULL_WAIT_MAX: Span = Span::secs(1);

/// Most entries of a stream that are read ahead of their delivery.
pub const AHEAD: usize = 16;
/// Reading ahead goes on, up to [`AHEAD`] at once, when only so many are left: a processor overlaps the misses of
/// entries read one right after the other, and waits for each of those that have a delivery's work between them.
pub const AHEAD_LEAST: usize = 4;

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acceptance {
    /// Held, and perhaps some that had waited for it.
    Accepted,
    /// Held before.
    Duplicate,
    /// A frame before it is missing: it waits, unacknowledged.
    Early,
    /// No room, here or among those that wait; it will be pulled later.
    NoRoom,
    /// Its time stamps do not rise above what the stream holds: its author is defective.
    NotRising,
}

/// Frames that came before an earlier one.
#[derive(Debug)]
struct Early {
    bytes: Box<[u8]>,
    lens: Box<[Option<(FrameNo, usize)>]>,
    frame_max: usize,
}

impl Early {
    fn new(frame_max: usize) -> Self {
        Self {
            bytes: vec![0; frame_max * REORDER_MAX].into_boxed_slice(),
            lens: vec![None; REORDER_MAX].into_boxed_slice(),
            frame_max,
        }
    }

    fn slot(s: FrameNo) -> usize {
        usize::try_from(s.get() % REORDER_MAX as u64).unwrap_or(0)
    }

    fn put(&mut self, s: FrameNo, frame: &[u8]) -> bool {
        let slot = Self::slot(s);
        if frame.len() > self.frame_max {
            return false;
        }
        let start = slot * self.frame_max;
        self.bytes[start..start + frame.len()].copy_from_slice(frame);
        self.lens[slot] = Some((s, frame.len()));
        true
    }

    fn get(&self, s: FrameNo) -> Option<&[u8]> {
        let slot = Self::slot(s);
        let (held, len) = self.lens[slot]?;
        let start = slot * self.frame_max;
        (held == s).then(|| &self.bytes[start..start + len])
    }
}

/// How far the pulling of what is missing has come.
///
/// **Why a state.** Under load everything is late: what has only just become known is on its way, and so is the answer
/// to a pull. Pulling either again makes more load, and a cluster can drown in it; so a pull is repeated only when
/// nothing has come for as long as answers were seen to take, as a transport does with its segments (RFC 6298).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Pulling {
    /// Nothing is missing.
    #[default]
    Idle,
    /// Something is, and may be on its way: pulled at `due`.
    Expecting { due: LocalTime },
    /// Frames up to `to` were asked for at `at`, of a stream known to reach `known`; again at `due`.
    Asked { to: FrameNo, known: FrameNo, at: LocalTime, due: LocalTime, tries: u32 },
}

/// What is missing of a stream.
#[derive(Clone, Copy, Debug, Default)]
struct Gap {
    /// The furthest frame that anyone is known to hold.
    known: FrameNo,
    pulling: Pulling,
    /// Smoothed time until a pull brings its first frame, and its mean deviation.
    answer: Option<(u64, u64)>,
}

impl Gap {
    fn expect(&mut self, now: LocalTime, omega: Span) {
        self.pulling = Pulling::Expecting { due: now.plus(omega) };
    }

    fn sample(&mut self, took: Span) {
        let took = took.get();
        self.answer = Some(match self.answer {
            None => (took, took / 2),
            Some((mean, off)) => ((mean * 7 + took) / 8, (off * 3 + mean.abs_diff(took)) / 4),
        });
    }

    fn wait(&self, at_first: Span, tries: u32) -> Span {
        let usual = self.answer.map_or(at_first.get() * 2, |(mean, off)| mean + 4 * off);
        let wait = usual.clamp(PULL_WAIT_MIN.get(), PULL_WAIT_MAX.get()) << tries.min(10);
        Span::new(wait.min(PULL_WAIT_MAX.get()))
    }
}

/// A stream.
#[derive(Debug)]
pub struct Stream {
    /// Which one.
    pub id: StreamId,
    /// Its frames.
    pub store: Store,
    gap: Gap,
    promise: Timestamp,
    claim: Option<(FrameNo, Timestamp)>,
    last_ts: Timestamp,
    next: FrameNo,
    offset: usize,
    head: Option<Timestamp>,
    /// The entry that is read ahead next, and how many are ahead of the head.
    ahead: (FrameNo, usize),
    ahead_count: usize,
    early: Early,
    plant: Plant,
}

impl Stream {
    /// An empty stream whose time stamps will be above `ts0`, with `bytes` of room for frames of at most `frame_max`.
    #[must_use]
    pub fn new(id: StreamId, ts0: Timestamp, bytes: usize, frame_max: usize, plant: Plant) -> Self {
        Self {
            id,
            store: Store::new(bytes),
            gap: Gap::default(),
            promise: ts0,
            claim: None,
            last_ts: ts0,
            next: FrameNo::new(1),
            offset: 0,
            head: None,
            ahead: (FrameNo::new(1), FRAME_HEAD_LEN),
            ahead_count: 0,
            early: Early::new(frame_max),
            plant,
        }
    }

    /// Memory a stream takes.
    #[must_use]
    pub fn memory(bytes: usize, frame_max: usize) -> usize {
        Store::memory(bytes) + REORDER_MAX * (frame_max + size_of::<Option<(FrameNo, usize)>>())
    }

    /// How many frames are held without a gap.
    #[must_use]
    pub fn len(&self) -> FrameNo {
        self.store.len()
    }

    /// No frame was ever held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == FrameNo::default()
    }

    /// Nothing at or below it follows in this stream.
    #[must_use]
    pub fn promise(&self) -> Timestamp {
        self.promise
    }

    /// Time stamp of the last entry held.
    #[must_use]
    pub fn last_ts(&self) -> Timestamp {
        self.last_ts
    }

    /// Time stamp of the first entry not delivered.
    #[must_use]
    pub fn head(&self) -> Option<Timestamp> {
        self.head
    }

    /// The frame that the first entry not delivered is in (the next to come, if all are delivered).
    #[must_use]
    pub fn head_frame(&self) -> FrameNo {
        self.next
    }

    /// When the frame of the first undelivered entry was accepted.
    #[must_use]
    pub fn head_accepted(&self) -> Option<LocalTime> {
        self.head?;
        self.store.held(self.next).map(|held| held.accepted)
    }

    /// The first entry not delivered, and where the next begins.
    #[must_use]
    pub fn head_entry(&self) -> Option<(EntryView<'_>, usize)> {
        self.head?;
        EntryView::at(self.store.bytes(self.next)?, self.offset)
    }

    /// The entries to be read ahead, up to [`AHEAD`] from the head on, when it is time to: what the ledger will look at
    /// is fetched early.
    pub fn read_ahead(&mut self) -> Option<ReadAhead<'_>> {
        if self.ahead_count >= AHEAD_LEAST {
            return None;
        }
        if self.ahead_count == 0 {
            // Never behind the head.
            self.ahead = (self.next, self.offset.max(FRAME_HEAD_LEN));
        }
        let ahead = ReadAhead { store: &self.store, at: self.ahead, left: AHEAD - self.ahead_count };
        let mut through = ahead.clone();
        self.ahead_count += through.by_ref().count();
        self.ahead = through.at;
        Some(ahead)
    }

    /// Steps past the first undelivered entry; `offset` is where the next begins, as [`Stream::head_entry`] told.
    pub fn advance(&mut self, offset: usize) {
        self.ahead_count = self.ahead_count.saturating_sub(1);
        let end = self.store.bytes(self.next).map_or(0, <[u8]>::len);
        if offset >= end {
            self.next = self.next.next();
            self.offset = 0;
        } else {
            self.offset = offset;
        }
        self.find_head();
    }

    fn find_head(&mut self) {
        if self.plant.is(Fault::AcceptGaps) {
            self.next = self.next.max(self.store.first());
        }
        let Some(bytes) = self.store.bytes(self.next) else {
            self.head = None;
            return;
        };
        if self.offset == 0 {
            self.offset = FRAME_HEAD_LEN;
        }
        self.head = EntryView::ts_at(bytes, self.offset);
    }

    /// R-ACCEPT: the frame is held iff it is the next of its stream and its time stamps rise above what is held.
    /// Whether this stream takes frames at all is the caller's to know. `Early` and `NoRoom` change nothing that is
    /// ever acknowledged (S15).
    pub fn accept(&mut self, frame: &FrameView<'_>, now: LocalTime, omega: Span) -> Acceptance {
        let s = frame.number();
        if s <= self.len() {
            return Acceptance::Duplicate;
        }
        if s > self.len().next() {
            if self.plant.is(Fault::AcceptGaps) {
                return self.accept_with_gap(frame, now);
            }
            let near = s.get() - self.len().get() <= REORDER_MAX as u64;
            return if near && self.early.put(s, frame.bytes()) { Acceptance::Early } else { Acceptance::NoRoom };
        }
        let accepted = self.append(frame, now);
        if accepted == Acceptance::Accepted {
            self.take_early(now);
            self.settle(now, omega);
        }
        accepted
    }

    #[cfg(test)]
    fn accept_with_gap(&mut self, frame: &FrameView<'_>, now: LocalTime) -> Acceptance {
        self.store.skip_to(frame.number());
        self.append(frame, now)
    }

    #[cfg(not(test))]
    fn accept_with_gap(&mut self, _: &FrameView<'_>, _: LocalTime) -> Acceptance {
        Acceptance::NoRoom
    }

    fn append(&mut self, frame: &FrameView<'_>, now: LocalTime) -> Acceptance {
        if frame.first_ts() <= self.last_ts || frame.first_ts() <= self.promise_bound() {
            return Acceptance::NotRising;
        }
        if !self.store.push(frame.bytes(), frame.last_ts(), now) {
            return Acceptance::NoRoom;
        }
        self.grow(frame.last_ts());
        Acceptance::Accepted
    }

    /// I8: no frame after the promised prefix has a time stamp at or below the promise. The planted faults that break
    /// this very rule must reach the order, not this check.
    fn promise_bound(&self) -> Timestamp {
        let planted =
            [Fault::PromiseWithoutPrefix, Fault::PromiseOfOtherStream, Fault::AcceptGaps, Fault::StampBelowPromise];
        if planted.into_iter().any(|fault| self.plant.is(fault)) { Timestamp::default() } else { self.promise }
    }

    fn take_early(&mut self, now: LocalTime) {
        loop {
            let s = self.len().next();
            let Some(bytes) = self.early.get(s) else { return };
            // It was parsed when it came; the copy lies in memory of this stream only.
            let Ok(frame) = FrameView::again(bytes) else { return };
            if frame.first_ts() <= self.last_ts || frame.first_ts() <= self.promise_bound() {
                return;
            }
            let last_ts = frame.last_ts();
            if !self.store.push(bytes, last_ts, now) {
                return;
            }
            self.grow(last_ts);
        }
    }

    /// A frame was stored. It is a promise too, since time stamps rise: whoever lacks room for the next one must not
    /// wait for the promise that speaks of that one, when what it holds could be delivered and make room.
    fn grow(&mut self, last_ts: Timestamp) {
        self.last_ts = last_ts;
        self.promise = self.promise.max(last_ts);
        if self.head.is_none() {
            self.find_head();
        }
    }

    /// After growth: a promise that waited for its prefix is taken, and pulling ends or begins anew. Under load the
    /// others' acknowledgements are ever a little ahead of the frames they speak of: what became known of late gets
    /// its `omega`, or each of these frames would be pulled while it comes.
    fn settle(&mut self, now: LocalTime, omega: Span) {
        if let Some((last, promise)) = self.claim
            && self.len() >= last
        {
            self.promise = self.promise.max(promise);
            self.claim = None;
        }
        let (len, known) = (self.len(), self.gap.known);
        if let Pulling::Asked { at, tries: 1, .. } = self.gap.pulling {
            self.gap.sample(now.since(at));
        }
        match self.gap.pulling {
            _ if len >= known => self.gap.pulling = Pulling::Idle,
            Pulling::Idle | Pulling::Expecting { .. } => self.gap.expect(now, omega),
            // What was asked for has come. More was missing then: it is pulled at once. Else it is on its way.
            Pulling::Asked { to, known, .. } if len >= to && len < known => self.gap.expect(now, Span::default()),
            Pulling::Asked { to, .. } if len >= to => self.gap.expect(now, omega),
            Pulling::Asked { to, known, at, .. } => {
                // The rest of the answer is coming; only the first frame of an answer tells how long it took.
                let due = now.plus(self.gap.wait(omega, 0));
                self.gap.pulling = Pulling::Asked { to, known, at, due, tries: 0 };
            }
        }
    }

    /// R-TAKE, the own-part of a header or an OWN: a promise counts only once its prefix is held (S16); until then it
    /// is kept, the newest one only, and what is missing will be pulled after `omega`.
    pub fn take_promise(&mut self, last: FrameNo, promise: Timestamp, now: LocalTime, omega: Span) {
        if self.len() >= last || self.plant.is(Fault::PromiseWithoutPrefix) {
            self.promise = self.promise.max(promise);
            return;
        }
        let possible = last.get() <= self.furthest();
        if possible && self.claim.is_none_or(|held| (last, promise) > held) {
            self.claim = Some((last, promise));
        }
        self.note_known(last, now, omega);
    }

    /// Somebody holds frames up to `last`: what is missing here will be pulled after `omega`, since it may be on its way.
    pub fn note_known(&mut self, last: FrameNo, now: LocalTime, omega: Span) {
        self.gap.known = self.gap.known.max(last.min(FrameNo::new(self.furthest())));
        if self.gap.known > self.len() && self.gap.pulling == Pulling::Idle {
            self.gap.expect(now, omega);
        }
    }

    /// Nobody holds more of a stream than a store takes beyond what every place holds: a frame beyond that is a defect or
    /// a lie, which must neither be pulled for ever nor hide what is true.
    fn furthest(&self) -> u64 {
        self.len().get().saturating_add(self.store.frames_max())
    }

    /// When to pull, if anything is missing.
    #[must_use]
    pub fn pull_due(&self) -> Option<LocalTime> {
        match self.gap.pulling {
            Pulling::Idle => None,
            Pulling::Expecting { due } | Pulling::Asked { due, .. } => Some(due),
        }
    }

    /// Nothing is known to exist that is not held.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.len() >= self.gap.known
    }

    /// How often the frames now missing have been pulled without anything coming.
    #[must_use]
    pub fn pull_tries(&self) -> u32 {
        match self.gap.pulling {
            Pulling::Asked { tries, .. } => tries,
            _ => 0,
        }
    }

    /// What was due is pulled now, up to `to`: again if nothing comes for as long as answers take (at first twice `eta`).
    pub fn pulled(&mut self, to: FrameNo, now: LocalTime, eta: Span) {
        let tries = self.pull_tries();
        let due = now.plus(self.gap.wait(eta, tries));
        self.gap.pulling = Pulling::Asked { to, known: self.gap.known, at: now, due, tries: tries + 1 };
    }

    /// There is nothing to pull, or no room for it: looks again after `wait`.
    pub fn put_off(&mut self, now: LocalTime, wait: Span) {
        self.gap.pulling = Pulling::Idle;
        if !self.is_complete() {
            self.gap.expect(now, wait);
        }
    }

    /// Appends a frame of this server's own. False if there is no room.
    ///
    /// # Panics
    /// If its time stamps do not rise above all before: the server's own order is broken, so it must stop.
    pub fn append_own(&mut self, frame: &FrameView<'_>, now: LocalTime) -> bool {
        assert_eq!(frame.number(), self.len().next(), "own frame out of turn in stream {}", self.id);
        match self.append(frame, now) {
            Acceptance::Accepted => true,
            Acceptance::NoRoom => false,
            other => panic!("own frame {} of stream {}: {other:?}", frame.number(), self.id),
        }
    }

    /// What this server promises of its own stream; it never falls.
    pub fn promise_own(&mut self, promise: Timestamp) {
        self.promise = self.promise.max(promise);
    }

    /// The next pull: from the first missing frame to before what waits early, at most 64 frames.
    #[must_use]
    pub fn missing(&self) -> Option<(FrameNo, FrameNo)> {
        let from = self.len().next();
        if from > self.gap.known {
            return None;
        }
        let furthest = FrameNo::new(self.gap.known.get().min(self.len().get() + PULL_FRAMES));
        let mut to = from;
        while to < furthest && self.early.get(to.next()).is_none() {
            to = to.next();
        }
        Some((from, to))
    }

    /// R-DISCARD: drops what is delivered here and held everywhere; what is not delivered here is never dropped.
    pub fn discard(&mut self, everywhere: FrameNo) {
        let delivered = FrameNo::new(self.next.get() - 1);
        self.store.drop_through(everywhere.min(delivered));
    }
}

/// Entries of a stream from some place on, as far as they are held.
#[derive(Clone, Debug)]
pub struct ReadAhead<'a> {
    store: &'a Store,
    at: (FrameNo, usize),
    left: usize,
}

impl<'a> Iterator for ReadAhead<'a> {
    type Item = EntryView<'a>;

    #[inline]
    fn next(&mut self) -> Option<EntryView<'a>> {
        let left = self.left.checked_sub(1)?;
        let bytes = self.store.bytes(self.at.0)?;
        let (entry, next) = EntryView::at(bytes, self.at.1)?;
        self.at = if next >= bytes.len() { (self.at.0.next(), FRAME_HEAD_LEN) } else { (self.at.0, next) };
        self.left = left;
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ledger::Participants;
    use super::super::{Principal, RequestNo, SessionId, TxId};
    use super::*;
    use crate::wire::builder::FrameBuilder;

    const OMEGA: Span = Span::micros(100);

    fn accept(stream: &mut Stream, s: u64, now: LocalTime) {
        let mut building = FrameBuilder::new(400);
        building.start(stream.id, FrameNo::new(s));
        let entry = EntryView {
            ts: Timestamp::new(s),
            principal: Principal::default(),
            session: SessionId::default(),
            request: RequestNo::new(1),
            tx: TxId::default(),
            participants: Participants::held(&[[1, 0, 0, 0]]),
        };
        building.push(&entry).unwrap();
        assert_eq!(stream.accept(&building.finish(), now, OMEGA), Acceptance::Accepted);
    }

    #[test]
    fn what_became_known_of_late_is_not_pulled_while_it_may_be_on_its_way() {
        let mut stream = Stream::new(StreamId::default(), Timestamp::default(), 4_096, 400, Plant::NONE);
        let at = |us| LocalTime::new(0).plus(Span::micros(us));
        let known = |stream: &mut Stream, s, us| stream.note_known(FrameNo::new(s), at(us), OMEGA);
        known(&mut stream, 1, 0);
        assert_eq!(stream.pull_due(), Some(at(100)));
        known(&mut stream, 2, 90);
        accept(&mut stream, 1, at(95));
        assert_eq!(stream.pull_due(), Some(at(195)), "frame 2 has been known for 5 us");
        // Frames 2 to 4 are missing, and a pull brings the first of them: the others need not wait again.
        known(&mut stream, 4, 100);
        stream.pulled(FrameNo::new(2), at(200), OMEGA);
        assert_eq!(stream.pull_due(), Some(at(400)), "nothing is known of how long answers take");
        accept(&mut stream, 2, at(300));
        assert_eq!(stream.pull_due(), Some(at(300)));
        accept(&mut stream, 3, at(301));
        accept(&mut stream, 4, at(302));
        assert_eq!(stream.pull_due(), None);
    }

    /// A pull is repeated when nothing has come for as long as answers take, later each time, and not while it comes.
    #[test]
    fn a_pull_is_not_repeated_while_its_answer_comes() {
        let mut stream = Stream::new(StreamId::default(), Timestamp::default(), 4_096, 400, Plant::NONE);
        let at = |us| LocalTime::new(0).plus(Span::micros(us));
        stream.note_known(FrameNo::new(9), at(0), OMEGA);
        stream.pulled(FrameNo::new(9), at(100), OMEGA);
        // The first frame of the answer takes 50 ms, as on a loaded machine: so the next answer may, and longer.
        accept(&mut stream, 1, at(50_100));
        assert!(stream.pull_due() >= Some(at(150_100)), "{:?}", stream.pull_due());
        for s in 2..9 {
            accept(&mut stream, s, at(50_100 + 1_000 * s));
        }
        let due = stream.pull_due().unwrap();
        assert!(due >= at(158_000), "{due}");
        stream.pulled(FrameNo::new(9), due, OMEGA);
        let again = stream.pull_due().unwrap();
        stream.pulled(FrameNo::new(9), again, OMEGA);
        let wait = |from: LocalTime, to: LocalTime| to.since(from).get();
        assert_eq!(wait(again, stream.pull_due().unwrap()), 2 * wait(due, again));
        accept(&mut stream, 9, again);
        assert!(stream.is_complete() && stream.pull_due().is_none());
    }

    /// A lie about how far a stream goes is not believed further than a store could hold.
    #[test]
    fn an_impossible_length_is_neither_pulled_for_ever_nor_hides_a_true_promise() {
        let mut stream = Stream::new(StreamId::default(), Timestamp::default(), 4_096, 400, Plant::NONE);
        let now = LocalTime::new(0);
        stream.take_promise(FrameNo::new(u64::MAX), Timestamp::new(90), now, OMEGA);
        stream.take_promise(FrameNo::new(1), Timestamp::new(70), now, OMEGA);
        accept(&mut stream, 1, now);
        assert_eq!(stream.promise(), Timestamp::new(70));
        assert!(stream.missing().is_some_and(|(_, to)| to.get() < 100));
    }
}
