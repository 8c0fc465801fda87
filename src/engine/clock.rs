#![expect(unsafe_code, reason = "two calls of clock_gettime")]
//! The only place that reads time.
//!
//! **Why.** Time is an input: everything else is given it. Both reads go through the vDSO, some 25 ns and no system call.
//! **Invariants**: [`monotonic`] never goes back; [`realtime`] may, whenever somebody sets the clock.
//! **Not here**: cluster time, which the clock role derives from these and from its peers.

use crate::protocol::{LocalTime, Timestamp};

/// This host's monotonic clock (`CLOCK_MONOTONIC`).
#[inline]
#[must_use]
pub fn monotonic() -> LocalTime {
    LocalTime::new(read(libc::CLOCK_MONOTONIC))
}

/// The system's wall clock (`CLOCK_REALTIME`) in nanoseconds since 1970: the clock of kernel receive stamps.
#[inline]
#[must_use]
pub fn realtime() -> Timestamp {
    Timestamp::new(read(libc::CLOCK_REALTIME))
}

#[inline]
fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer.
    let status = unsafe { libc::clock_gettime(clock, &raw mut time) };
    debug_assert_eq!(status, 0, "these clocks exist on every Linux");
    nanoseconds(time.tv_sec, time.tv_nsec)
}

/// A `timespec` in nanoseconds; what lies before 1970 is 0.
#[inline]
pub(crate) fn nanoseconds(seconds: i64, nanoseconds: i64) -> u64 {
    let whole = u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000_000_000);
    whole.saturating_add(u64::try_from(nanoseconds).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::{monotonic, nanoseconds, realtime};

    #[test]
    fn clocks_run_forwards_and_are_not_the_same() {
        let first = monotonic();
        assert!(monotonic() >= first);
        assert!(realtime().get() > 1_600_000_000_000_000_000, "the wall clock is past 2020");
        assert_eq!(nanoseconds(1, 5), 1_000_000_005);
        assert_eq!(nanoseconds(-1, 5), 5);
    }
}
