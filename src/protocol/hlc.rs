//! The hybrid logical clock: cluster time, but always above everything this server has stamped, accepted or promised.
//!
//! **Why.** The order must survive clocks that stand still or step back; only its speed may depend on them
//! (Kulkarni et al., *Logical Physical Clocks*, 2014; here with one word, since a time stamp has nanoseconds to spare).
//! **Invariants**: the value never falls (S14: a promise is kept when the clock is set back).
//! **Not here**: cluster time itself (an argument), the bound on clocks that run ahead.
use super::Timestamp;
use super::plant::{Fault, Plant};

/// The largest time stamp given, accepted or promised.
#[derive(Debug, Default)]
pub struct Hlc {
    last: Timestamp,
    plant: Plant,
}

impl Hlc {
    /// A clock that has seen nothing.
    #[must_use]
    pub fn new(plant: Plant) -> Self {
        Self { last: Timestamp::default(), plant }
    }

    /// The largest time stamp given, accepted or promised so far.
    #[must_use]
    pub fn last(&self) -> Timestamp {
        self.last
    }

    /// R-STAMP: `ts := max(hlc + 1, clock); hlc := ts`. Strictly above every promise made before (S14).
    pub fn stamp(&mut self, clock: Timestamp) -> Timestamp {
        if self.plant.is(Fault::StampBelowPromise) {
            // The planted fault: a stamp follows the clock alone.
            self.last = clock;
            return clock;
        }
        self.last = self.last.next().max(clock);
        self.last
    }

    /// R-PROMISE: `promise := hlc := max(hlc, clock)`. Nothing at or below it will be stamped hereafter.
    pub fn promise(&mut self, clock: Timestamp) -> Timestamp {
        self.last = self.last.max(clock);
        self.last
    }

    /// R-ACCEPT: an accepted time stamp raises the clock.
    pub fn raise(&mut self, seen: Timestamp) {
        self.last = self.last.max(seen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(value: u64) -> Timestamp {
        Timestamp::new(value)
    }

    #[test]
    fn s14_a_stamp_is_above_a_promise_though_the_clock_went_back() {
        let mut hlc = Hlc::new(Plant::NONE);
        assert_eq!(hlc.promise(ns(6)), ns(6));
        assert_eq!(hlc.stamp(ns(2)), ns(7));
        assert_eq!(hlc.stamp(ns(7)), ns(8));
        assert_eq!(hlc.stamp(ns(20)), ns(20));
    }

    #[test]
    fn an_accepted_time_stamp_raises_the_next_one() {
        let mut hlc = Hlc::new(Plant::NONE);
        hlc.raise(ns(50));
        hlc.raise(ns(40));
        assert_eq!(hlc.stamp(ns(10)), ns(51));
    }
}
