//! What clients are told, against what they may expect: exact places, sequences and histories; refusals with a cause.
//!
//! **Why.** Servers that agree with each other may still answer wrongly: an answer of another request, a history one
//! record short, a final refusal of what is then numbered.
//! **Not here**: real-time order, which is asserted where numbers are given (`check`).
use super::check::{Broken, Checks, hold};
use super::client::Desk;
use super::model::Key;
use super::outbox::{Answered, Said};
use crate::protocol::Refusal;
use crate::protocol::inflight::RequestKey;
use crate::protocol::machine::Refused;

/// The plain form of a request's name.
pub(super) fn plain(key: &RequestKey) -> Key {
    (key.principal.get(), key.session, key.request.get())
}

impl Checks {
    /// All that a server told clients in a step.
    pub(super) fn told(&mut self, server: usize, said: &Said, last: u64, desk: &Desk) -> Result<(), Broken> {
        for answer in &said.answers {
            self.answer(server, answer, desk)?;
        }
        for (waiter, refused) in &said.refusals {
            self.refusal(server, *waiter, refused, last, desk)?;
        }
        Ok(())
    }

    fn answer(&mut self, server: usize, answer: &Answered, desk: &Desk) -> Result<(), Broken> {
        let (key, body, depth) = desk.attempt(answer.waiter);
        let place = server + 1;
        hold!(plain(&answer.key) == key, "answers", "server {place} answers {:?} to who asked {key:?}", answer.key);
        let known = self.model.answer(&key);
        let order = answer.order;
        hold!(
            known == Some(order),
            "I7",
            "server {place} answers {key:?} with number {order}; its number is {known:?}"
        );
        hold!(answer.depth == depth, "answers", "asked for depth {depth} by {key:?}, answered to {}", answer.depth);
        let instance = self.configuration.map(|held| held.instance);
        hold!(Some(answer.instance) == instance, "answers", "an answer of instance {}", answer.instance);
        let Some((ts, tx, told)) = &answer.record else {
            return Err(Broken { rule: "answers", what: format!("server {place} has no record of number {order}") });
        };
        let parts: Vec<(u32, u64)> = told.iter().map(|part| (part.id, part.seq)).collect();
        self.record(order, *ts, *tx, &parts)?;
        hold!(*tx == body.tx, "answers", "{key:?} asked for {}, is answered with {tx}", body.tx);
        let same = parts.iter().map(|(id, _)| *id).eq(body.participants.iter().copied());
        hold!(same, "answers", "{key:?} asked for participants {:?}, is answered with {parts:?}", body.participants);
        for part in told {
            let expected = self.model.history(part.id, order, usize::from(depth), answer.last);
            hold!(
                part.history == expected,
                "histories",
                "server {place}, N = {}: participant {} before number {order} to depth {depth} is {:?}; it is {expected:?}",
                answer.last,
                part.id,
                part.history
            );
        }
        self.answered = self.answered.max(order);
        Ok(())
    }

    fn refusal(&self, server: usize, waiter: u32, refused: &Refused, last: u64, desk: &Desk) -> Result<(), Broken> {
        let (key, body, _) = desk.attempt(waiter);
        let place = server + 1;
        hold!(plain(&refused.key) == key, "answers", "server {place} refuses {:?} to who asked {key:?}", refused.key);
        let why = refused.why;
        let has_cause = match why {
            Refusal::Overloaded | Refusal::NotMember => !refused.is_final,
            // The window of 64 is wider than any client's session here, so only retention can close on an answer.
            Refusal::WindowExceeded => {
                let left = self.model.answer(&key).is_some_and(|order| order < self.model.retained_from(last));
                left && !refused.is_final
            }
            Refusal::WrongInstance => self.instances > 1,
            Refusal::RequestDiffers => desk.bodies(&key) > 1,
            Refusal::TxDiffers | Refusal::ParticipantsFull => self.model.was_refused(&key, body.tx, why),
            _ => false,
        };
        hold!(
            has_cause,
            "refusals",
            "server {place} refuses {key:?} as {why} (final: {}) for no cause",
            refused.is_final
        );
        Ok(())
    }
}
