//! How threads are asked to end.
//!
//! **Why.** A role finishes what it holds before it ends, so it is asked, and says when it is done
//! ([`super::cores::Turn::finished`]); a parked core must be woken to hear the question.
//! **Invariants**: every watched core begins a turn after [`Stop::request`] or [`Stop::force`].
//! **Limits**: asking takes a lock; looking does not. **Not here**: signals; who catches one calls `request`.

use std::sync::Mutex;
use std::sync::PoisonError;

use super::sync::{AtomicU64, Ordering};
use super::wake::Waker;

const GOING: u64 = 0;
const REQUESTED: u64 = 1;
const FORCED: u64 = 2;

#[derive(Debug, Default)]
struct Shared {
    state: AtomicU64,
    wakers: Mutex<Vec<Waker>>,
}

/// A wish to stop, shared by all who must hear it.
#[derive(Clone, Debug, Default)]
pub struct Stop(std::sync::Arc<Shared>);

impl Stop {
    /// Nobody has asked yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks roles to finish what they hold and end.
    pub fn request(&self) {
        self.raise(REQUESTED);
    }

    /// Ends every core at its next turn, whatever its roles hold.
    pub fn force(&self) {
        self.raise(FORCED);
    }

    /// Whether roles are to finish.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        // Relaxed: orders nothing else; its partner is the store in `raise`, and the wake-up makes it seen soon.
        self.0.state.load(Ordering::Relaxed) != GOING
    }

    /// Whether cores are to end without waiting for their roles.
    #[must_use]
    pub fn is_forced(&self) -> bool {
        // Relaxed: as in `is_requested`.
        self.0.state.load(Ordering::Relaxed) == FORCED
    }

    /// Has `waker` rung when somebody asks.
    pub fn watch(&self, waker: Waker) {
        let mut wakers = self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_requested() {
            waker.wake();
        }
        wakers.push(waker);
    }

    fn raise(&self, state: u64) {
        // Relaxed: the wake-up that follows orders it before the turn that looks (`wake`: Release and Acquire).
        self.0.state.fetch_max(state, Ordering::Relaxed);
        self.0.wakers.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::Stop;
    use crate::engine::wake::Bell;

    #[test]
    fn force_outranks_request_and_rings() {
        let (stop, bell) = (Stop::new(), Bell::new().expect("an event descriptor"));
        stop.watch(bell.waker());
        assert!(!stop.is_requested() && bell.fall_asleep());
        bell.hear();
        stop.force();
        stop.request();
        assert!(stop.is_forced() && stop.is_requested());
        assert!(!bell.fall_asleep(), "the bell was rung");
    }
}
