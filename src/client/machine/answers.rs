//! Answers that came in parts, put together again.
//!
//! **Why a few slots.** Nearly every answer fits a datagram; only many participants with deep histories do not. A slot
//! takes 50 KB, so there are few, and an answer that finds none is dropped: its request is retried and answered again.
//! **Invariants.** A whole answer is handed on as if it had come in one piece.
//! **Limits**: [`SLOTS`] answers at once.

use crate::protocol::{HISTORY_MAX, OrderNo, PARTICIPANTS_MAX, TxId};
use crate::wire::BodyWriter;
use crate::wire::answer::{
    ANSWER_HEAD_LEN, AnswerKind, AnswerSource, AnswerView, AnswersDiffer, Assembly, PART_LEN_MAX, PartHead, put_answer,
};
use crate::wire::bytes::HEAD_LEN;

/// Answers that can be in the making.
pub(super) const SLOTS: u8 = 64;
const WHOLE_LEN_MAX: usize = HEAD_LEN + ANSWER_HEAD_LEN + PARTICIPANTS_MAX * PART_LEN_MAX;
const STEPS: usize = PARTICIPANTS_MAX * HISTORY_MAX;

#[derive(Debug)]
struct Slot {
    assembly: Assembly,
    parts: Box<[PartHead]>,
    steps: Box<[(OrderNo, TxId)]>,
}

impl Slot {
    fn store(&mut self, view: &AnswerView<'_>) {
        for (at, part) in (usize::from(view.first())..).zip(view.parts()) {
            let depth = u8::try_from(part.history.len()).unwrap_or(0);
            self.parts[at] = PartHead { id: part.id, seq: part.seq, depth };
            for (step, earlier) in self.steps[at * HISTORY_MAX..].iter_mut().zip(part.history.iter()) {
                *step = earlier;
            }
        }
    }
}

impl AnswerSource for Slot {
    fn total(&self) -> u8 {
        self.assembly.total()
    }
    fn part(&self, index: u8) -> PartHead {
        self.parts[usize::from(index)]
    }
    fn step(&self, index: u8, back: u8) -> (OrderNo, TxId) {
        self.steps[usize::from(index) * HISTORY_MAX + usize::from(back)]
    }
}

/// Answers in the making. A slot's memory is taken the first time it is used, and kept.
#[derive(Debug, Default)]
pub(super) struct Answers {
    slots: Vec<Slot>,
    free: Vec<u8>,
    whole: Vec<u8>,
}

impl Answers {
    /// Takes a part for the answer in `held`, or begins one; `held` is `None` after it if there is no room.
    ///
    /// # Errors
    /// If the parts contradict each other.
    pub(super) fn take(&mut self, held: &mut Option<u8>, view: &AnswerView<'_>) -> Result<(), AnswersDiffer> {
        if let Some(at) = *held {
            let slot = &mut self.slots[usize::from(at)];
            slot.assembly.take(view)?;
            slot.store(view);
        } else if let Some(at) = self.begin(view) {
            self.slots[usize::from(at)].store(view);
            *held = Some(at);
        }
        Ok(())
    }

    fn begin(&mut self, view: &AnswerView<'_>) -> Option<u8> {
        let assembly = Assembly::new(view);
        if let Some(at) = self.free.pop() {
            self.slots[usize::from(at)].assembly = assembly;
            return Some(at);
        }
        let at = u8::try_from(self.slots.len()).ok().filter(|at| *at < SLOTS)?;
        let parts = (0..PARTICIPANTS_MAX).map(|_| PartHead::default()).collect();
        self.slots.push(Slot { assembly, parts, steps: (0..STEPS).map(|_| <(OrderNo, TxId)>::default()).collect() });
        Some(at)
    }

    /// The answer in `at`, if all its parts have come.
    pub(super) fn whole(&mut self, at: u8) -> Option<AnswerView<'_>> {
        let slot = &self.slots[usize::from(at)];
        if !slot.assembly.is_whole() {
            return None;
        }
        self.whole.resize(WHOLE_LEN_MAX, 0);
        let mut body = BodyWriter::new(&mut self.whole);
        let end = put_answer(&mut body, AnswerKind::Answer, &slot.assembly.head(), slot, 0).ok()?;
        debug_assert_eq!(end, slot.total(), "the longest answer fits");
        let len = body.len();
        AnswerView::parse(AnswerKind::Answer, &self.whole[HEAD_LEN..len]).ok()
    }

    /// The request of this answer is finished.
    pub(super) fn give_back(&mut self, at: u8) {
        self.free.push(at);
    }
}
