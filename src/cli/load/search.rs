//! `--rate max`: the highest rate whose 99 % point stays under a target, found in a given time.
//!
//! **Why double, then halve.** Nothing is known of the cluster, so the rate is doubled until a step fails, then the gap
//! between the best and the least that failed is halved, geometrically, as long as steps fit into the time.
//! **Invariants.** The best step is one that was run and passed, never an estimate.

use crate::client::load::Phase;
use crate::protocol::Span;

/// First rate tried.
const FIRST: f64 = 10_000.0;
/// Rates closer than this are the same.
const CLOSE: f64 = 1.03;
/// Steps the time is divided into.
const STEPS: u64 = 10;
/// Shortest step.
const STEP_MIN: Span = Span::millis(300);

/// Where a search stands.
#[derive(Debug)]
pub(super) struct Search {
    best: Option<f64>,
    failed: Option<f64>,
    next: f64,
    step: Span,
}

impl Search {
    /// A search in `time` in all.
    pub(super) fn new(time: Span) -> Self {
        Self { best: None, failed: None, next: FIRST, step: Span::new(time.get() / STEPS).max(STEP_MIN) }
    }

    /// The next step, if there is one to be made in what is left of the time.
    pub(super) fn step(&self, left: Span) -> Option<Phase> {
        let settled = matches!((self.best, self.failed), (Some(best), Some(failed)) if failed / best < CLOSE);
        if settled || left < self.step || self.next < 1.0 {
            return None;
        }
        let warmup = Span::new(self.step.get() / 5);
        Some(Phase { rate: self.next, warmup, duration: Span::new(self.step.get() - warmup.get()) })
    }

    /// Notes how the step went.
    pub(super) fn took(&mut self, passed: bool) {
        if passed {
            self.best = Some(self.next);
        } else {
            self.failed = Some(self.next);
        }
        self.next = match (self.best, self.failed) {
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
    fn no_step_is_begun_that_does_not_fit() {
        assert!(Search::new(Span::secs(10)).step(Span::millis(999)).is_none());
        assert!(Search::new(Span::secs(10)).step(Span::secs(1)).is_some());
    }
}
