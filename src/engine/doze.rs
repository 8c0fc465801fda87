//! When a thread may sleep and who must wake it: one byte of state.
//!
//! **Why.** A core that parks must not miss a message pushed just before it fell asleep, and a core that is awake must not
//! be sent an event for every message. One byte of state decides both: `AWAKE`, `RUNG`, `ASLEEP`.
//!
//! **Why no fence.** The usual shape (the sleeper stores "asleep", then looks at the queue; the waker stores the message,
//! then looks at "asleep") needs a store-load fence on both sides (Dekker). Here every step on the state is a
//! read-modify-write of one location, and those are totally ordered:
//! - the waker, after its push, swaps in `RUNG` (Release); if it finds `ASLEEP` it signals;
//! - the sleeper begins each turn with [`Doze::hear`]: a ring found is taken by a swap (Acquire), so that what was pushed
//!   before it is seen by this turn's polls;
//! - it falls asleep only by exchanging `AWAKE` for `ASLEEP`. A ring since the turn began makes the exchange fail, and there
//!   is another turn; a ring after it finds `ASLEEP` and signals. There is no third case.
//!
//! Several wakers ring in turn: each swap continues the release sequence of those before it, so the sleeper's Acquire sees
//! all their pushes.
//!
//! **Invariants**: no wake-up is lost: modelled in `tests/loom.rs`, which includes this file with loom's atomics.
//! **Not here**: what is signalled (`wake`).

use super::sync::{AtomicU8, Ordering};

const AWAKE: u8 = 0;
const RUNG: u8 = 1;
const ASLEEP: u8 = 2;

/// The state shared by a sleeper and its wakers.
#[derive(Debug)]
pub(crate) struct Doze(AtomicU8);

impl Doze {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(AWAKE))
    }

    /// The waker's half. `true`: the sleeper sleeps, and this caller is the one to signal it.
    #[inline]
    pub(crate) fn ring(&self) -> bool {
        // Release: pairs with the Acquire swap in `hear`; what was pushed before is seen after it.
        self.0.swap(RUNG, Ordering::Release) == ASLEEP
    }

    /// The sleeper's: a turn begins, and sees all that was pushed before the rings heard here.
    #[inline]
    pub(crate) fn hear(&self) {
        // Relaxed: an old AWAKE read here only leaves the ring for `fall_asleep` to find.
        if self.0.load(Ordering::Relaxed) != AWAKE {
            // Acquire: pairs with the Release swap in `ring`.
            self.0.swap(AWAKE, Ordering::Acquire);
        }
    }

    /// The sleeper's: `true` if nobody rang since `hear`; from then on a ring signals.
    #[inline]
    pub(crate) fn fall_asleep(&self) -> bool {
        // Relaxed: only the place in this location's order counts; data is ordered by `ring` and `hear`.
        self.0.compare_exchange(AWAKE, ASLEEP, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}
