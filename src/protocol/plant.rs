//! Planted faults: one rule removed at a time, to test the tests. Outside test builds there is none, and the
//! compiler removes the question.
//!
//! **Why.** A simulator that finds nothing may be looking at nothing. Each fault below is a rule of the protocol
//! taken away; a scenario or a run of random schedules has to notice.
//! **Not here**: faults of the world (loss, crashes, clocks), which are the simulator's.

/// A rule that can be removed in test builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// R-DELIVER without "every open stream has promised past it" (S1).
    DeliverWithoutPromise,
    /// R-DELIVER with a promise of one nanosecond less (S1t, the tie).
    DeliverWithEarlierPromise,
    /// R-DELIVER without the majority (S2).
    DeliverUndecided,
    /// R-STAMP by the clock alone, not above the promise (S14).
    StampBelowPromise,
    /// R-ACCEPT with gaps (S15).
    AcceptGaps,
    /// R-TAKE of a promise whose prefix is not held (S16).
    PromiseWithoutPrefix,
    /// R-TAKE of a promise made for another life of the stream (S29).
    PromiseOfOtherStream,
    /// R-TAKE of acknowledgements of another epoch or incarnation (I9).
    CountForeignAcks,
    /// The ledger numbers a second copy of a request (S27).
    LedgerKeepsDuplicates,
}

/// Which fault, if any, is planted in a server.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plant {
    #[cfg(test)]
    fault: Option<Fault>,
}

impl Plant {
    /// None: all rules hold.
    pub const NONE: Self = Self {
        #[cfg(test)]
        fault: None,
    };

    /// This rule is removed.
    #[cfg(test)]
    #[must_use]
    pub fn new(fault: Fault) -> Self {
        Self { fault: Some(fault) }
    }

    /// Whether `fault` is planted here; always false outside test builds.
    #[cfg(test)]
    #[must_use]
    pub fn is(self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// Whether `fault` is planted here; always false outside test builds.
    #[cfg(not(test))]
    #[must_use]
    #[inline]
    pub const fn is(self, _: Fault) -> bool {
        false
    }
}
