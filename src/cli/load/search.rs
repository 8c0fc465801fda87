//! `--rate max`: the highest rate whose 99 % point stays under a target, found in a given time.
//!
//! **Why double, then halve.** Nothing is known of the cluster, so the rate is doubled until a step fails, then the gap
//! between the best and the least that failed is halved, geometrically, as long as steps fit into the time.
//! **Why twice.** A step of a second or two is easily spoilt by something else on the host. So a rate counts as failed
//! only when it failed twice in a row, and is tried once more after two steps below it have passed.
//! **Invariants.** The best step is one that was run and passed, never an estimate.

use crate::client::load::Phase;
use crate::protocol::Span;

/// First rate tried.
const FIRST: f64 = 10_000.0;
/// Rates closer than this are the same.
const CLOSE: f64 = 1.03;
/// Steps the time is divided into.
const STEPS: u64 = 12;
/// Shortest step.
const STEP_MIN: Span = Span::millis(300);

/// Where a search stands.
#[derive(Debug)]
pub(super) struct Search {
    best: Option<f64>,
    failed: Option<f64>,
    next: f64,
    step: Span,
    /// The next step repeats one that failed once.
    again: bool,
    /// The next step tries the rate that failed once more.
    retest: bool,
    /// It was, and failed again.
    confirmed: bool,
    /// Steps passed since the last that failed twice.
    passes: u8,
}

impl Search {
    /// A search in `time` in all.
    pub(super) fn new(time: Span) -> Self {
        Self {
            best: None,
            failed: None,
            next: FIRST,
            step: Span::new(time.get() / STEPS).max(STEP_MIN),
            again: false,
            retest: false,
            confirmed: false,
            passes: 0,
        }
    }

    /// The next step, if there is one to be made in what is left of the time.
    pub(super) fn step(&self, left: Span) -> Option<Phase> {
        let settled = self.is_close() && !self.retest && !self.again;
        if settled || left < self.step || self.next < 1.0 {
            return None;
        }
        let warmup = Span::new(self.step.get() / 5);
        Some(Phase { rate: self.next, warmup, duration: Span::new(self.step.get() - warmup.get()) })
    }

    /// Whether the best rate and the least that failed are the same, for all it matters.
    fn is_close(&self) -> bool {
        matches!((self.best, self.failed), (Some(best), Some(failed)) if failed / best < CLOSE)
    }

    /// Notes how the step went.
    pub(super) fn took(&mut self, passed: bool) {
        if !passed && !self.again && !self.retest {
            self.again = true;
            return;
        }
        if passed {
            self.best = Some(self.next);
            self.passes = self.passes.saturating_add(1);
            if self.retest {
                self.failed = None;
            }
        } else {
            self.failed = Some(self.next);
            (self.confirmed, self.passes) = (self.retest, 0);
        }
        self.again = false;
        self.retest = self.failed.is_some() && !self.confirmed && (self.passes >= 2 || self.is_close());
        self.next = match (self.best, self.failed) {
            (Some(_), Some(failed)) if self.retest => failed,
            (Some(best), Some(failed)) => (best * failed).sqrt(),
            (Some(best), None) => best * 2.0,
            (None, Some(failed)) => failed / 4.0,
            (None, None) => self.next,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_closes_in_on_the_limit_from_either_side() {
        for limit in [900.0, 9_000.0, 137_000.0] {
            let mut search = Search::new(Span::secs(30));
            let mut left = Span::secs(60);
            while let Some(step) = search.step(left) {
                search.took(step.rate <= limit);
                left = Span::new(left.get().saturating_sub(Span::secs(3).get()));
            }
            let best = search.best.unwrap();
            assert!(best <= limit && best > limit / 1.1, "{best} of {limit}");
        }
    }

    #[test]
    fn one_spoilt_step_decides_nothing_and_two_are_made_good() {
        // Which steps fail whatever their rate: one on the way up; two at the start.
        for spoilt in [&[2][..], &[0, 1], &[4]] {
            let mut search = Search::new(Span::secs(30));
            for number in 0..24 {
                let Some(step) = search.step(Span::secs(30)) else { break };
                search.took(step.rate <= 137_000.0 && !spoilt.contains(&number));
            }
            let best = search.best.unwrap();
            assert!(best <= 137_000.0 && best > 137_000.0 / 1.1, "{best} with {spoilt:?}");
        }
    }

    #[test]
    fn no_step_is_begun_that_does_not_fit() {
        assert!(Search::new(Span::secs(12)).step(Span::millis(999)).is_none());
        assert!(Search::new(Span::secs(12)).step(Span::secs(1)).is_some());
    }
}
