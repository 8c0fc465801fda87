//! R-DELIVER: the total order is the merge of the streams by (time stamp, server).
//!
//! **Why it is right.** An entry is delivered when every open stream has promised past it, so nothing smaller can
//! follow, and when it is decided, so no crash of a minority can lose it. Both together are one round trip.
//! **Invariants**, asserted in release: delivered time stamps rise strictly by (ts, server).
//! **Limits**: none of its own; it stops at the first entry that may not be delivered.
//! **Not here**: closed and carried streams, which an epoch change brings.
use super::ledger::{Entry, Outcome};
use super::machine::{Answer, Core, Outbox, Refused};
use super::plant::Fault;
use super::{FrameNo, Refusal, Span, Timestamp};
use crate::wire::frame::EntryView;

/// What holds back the first undelivered entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// Nothing is undelivered.
    Nothing,
    /// The entry at the head of this row waits: for a promise of some stream, or to be decided.
    Head {
        /// Whose stream the entry is in.
        row: usize,
        /// Its time stamp.
        ts: Timestamp,
        /// Bit r: the stream of row r has not promised past it.
        unpromised: u16,
        /// It is not held by a majority as far as is known here.
        undecided: bool,
    },
}

impl<W: Copy> Core<W> {
    /// The smallest undelivered entry, by (time stamp, server): its row and time stamp.
    fn smallest(&self) -> Option<(usize, Timestamp)> {
        let mut best: Option<(usize, Timestamp)> = None;
        for (row, stream) in self.streams.iter().enumerate() {
            // Rows of C_0 stand in order of their servers, so the earlier row wins a tie.
            if let Some(ts) = stream.head()
                && best.is_none_or(|(_, least)| ts < least)
            {
                best = Some((row, ts));
            }
        }
        best
    }

    /// R-DELIVER's two conditions for the entry `ts` at the head of `row`.
    fn hindrance(&self, row: usize, ts: Timestamp) -> Blocked {
        let plant = self.settings.plant;
        let needed =
            if plant.is(Fault::DeliverWithEarlierPromise) { Timestamp::new(ts.get().saturating_sub(1)) } else { ts };
        let mut unpromised = 0_u16;
        if !plant.is(Fault::DeliverWithoutPromise) {
            for (at, stream) in self.streams.iter().enumerate() {
                let promise = if Some(at) == self.own { self.hlc.last() } else { stream.promise() };
                if promise < needed {
                    unpromised |= 1 << at;
                }
            }
        }
        let decided = self.acks.as_ref().map_or(FrameNo::default(), |acks| acks.decided(row));
        let undecided = self.streams[row].head_frame() > decided && !plant.is(Fault::DeliverUndecided);
        Blocked::Head { row, ts, unpromised, undecided }
    }

    /// What the order waits for now.
    #[must_use]
    pub fn blocked(&self) -> Blocked {
        self.smallest().map_or(Blocked::Nothing, |(row, ts)| self.hindrance(row, ts))
    }

    /// R-DELIVER, again and again until it fails.
    pub(super) fn deliver(&mut self, out: &mut impl Outbox<W>) {
        assert!(self.building.is_empty(), "stamped entries must be in the stream before the merge looks at it");
        while let Some((row, ts)) = self.smallest() {
            let Blocked::Head { unpromised: 0, undecided: false, .. } = self.hindrance(row, ts) else { return };
            self.deliver_head(row, out);
        }
    }

    fn deliver_head(&mut self, row: usize, out: &mut impl Outbox<W>) {
        if let Some(ahead) = self.streams[row].read_ahead() {
            self.ledger.warm(ahead.map(|entry| ledger_entry(&entry)));
        }
        let stream = &self.streams[row];
        let Some((entry, next)) = stream.head_entry() else {
            panic!("stream {} lost its undelivered frame {}", stream.id, stream.head_frame());
        };
        let outcome = self.ledger.deliver(&ledger_entry(&entry));
        let (request, place) = (entry.request, (entry.ts, stream.id.server));
        assert!(place > self.merged, "delivered {place:?} after {:?}", self.merged);
        self.merged = place;
        self.streams[row].advance(next);
        if let Outcome::Numbered(order) = outcome {
            out.delivered(order, &self.ledger);
        }
        if Some(row) == self.own {
            let Some(waiting) = self.inflight.pop() else {
                panic!("own entry of request {request} has no place among those under way");
            };
            assert_eq!(waiting.key.request, request, "own entries and those under way are out of step");
            if let Some(waiter) = waiting.waiter {
                self.answer(&waiting, waiter, outcome, out);
            }
        }
    }

    fn answer(&mut self, waiting: &super::inflight::Waiting<W>, waiter: W, outcome: Outcome, out: &mut impl Outbox<W>) {
        match outcome {
            Outcome::Numbered(order) | Outcome::Repeated(order) => {
                let (key, depth) = (waiting.key, waiting.depth);
                let answer = Answer { key, order, depth, instance: self.instance(), ledger: &self.ledger };
                out.answer(waiter, &answer);
                self.counters.answered += 1;
            }
            Outcome::Refused(why) => {
                // A full table of sessions may have room later, a session from the future comes of age, and what has left
                // the window may have been numbered; all else stays.
                let early = why == Refusal::SessionUnknown && waiting.key.session.created > self.ledger.time();
                let is_final = !matches!(why, Refusal::SessionsFull | Refusal::WindowExceeded) && !early;
                let retry_after = if why == Refusal::SessionsFull || early { Span::secs(1) } else { Span::default() };
                self.counters.refused[usize::from(why.code())] += 1;
                out.refuse(waiter, &Refused { key: waiting.key, why, is_final, retry_after });
            }
        }
    }
}

/// An entry of a frame, as the ledger takes it.
fn ledger_entry<'a>(entry: &EntryView<'a>) -> Entry<'a> {
    let EntryView { ts, principal, session, request, tx, participants } = *entry;
    Entry { ts, principal, session, request, tx, participants }
}
