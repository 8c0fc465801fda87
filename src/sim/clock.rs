//! A simulated server's two clocks: neither is right.
//!
//! **Why.** The order must not depend on clocks: they are off, they drift, they step back, some stand still for long
//! and give the same reading to many entries of many servers (ties), some count in units of their own.
//! **Invariants**: the local clock never goes back. **Limits**: readings stay within a second of each other, since a
//! session's creation is judged by that. **Not here**: time itself (`world`).
use crate::protocol::LocalTime;
use crate::protocol::Timestamp;
use crate::protocol::machine::Now;

/// True time at the start of a schedule, as the cluster's clocks would show it.
const EPOCH_NS: u64 = 1_000_000_000_000;

/// How all servers' clocks of a schedule count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grain {
    /// Nanoseconds of true time in one unit of a reading.
    unit_ns: u64,
    /// Readings are rounded down to multiples of this.
    step: u64,
}

impl Grain {
    /// Draws how clocks count.
    pub(super) fn draw(rng: &mut fastrand::Rng) -> Self {
        match rng.u32(0..8) {
            0..=3 => Self { unit_ns: 1, step: 1 },
            4 => Self { unit_ns: 1, step: 1_000 },
            5 => Self { unit_ns: 1, step: 4_000_000 },
            6 => Self { unit_ns: 10_000, step: 1 },
            // Slow counters: the logical part of every clock has to do the work.
            _ => Self { unit_ns: 100_000, step: 1 },
        }
    }
}

/// The clocks of one server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    grain: Grain,
    offset_ns: i64,
    drift_ppm: i64,
    local_base: u64,
    local_ppm: i64,
}

fn drifted(true_ns: u64, ppm: i64) -> u64 {
    let signed = i128::from(true_ns) + i128::from(true_ns) * i128::from(ppm) / 1_000_000;
    u64::try_from(signed.max(0)).unwrap_or(u64::MAX)
}

impl Clock {
    /// Draws a server's clocks.
    pub(super) fn draw(rng: &mut fastrand::Rng, grain: Grain) -> Self {
        let most = [1_000, 100_000, 2_000_000, 100_000_000][rng.usize(0..4)];
        Self {
            grain,
            offset_ns: rng.i64(-most..=most),
            drift_ppm: rng.i64(-200..=200),
            local_base: rng.u64(0..1 << 40),
            local_ppm: rng.i64(-200..=200),
        }
    }

    /// Sets the cluster clock back by a little; what was promised must hold all the same.
    pub(super) fn step_back(&mut self, rng: &mut fastrand::Rng) {
        self.offset_ns -= rng.i64(1_000..10_000_000);
    }

    /// Both clocks at a true time.
    pub(super) fn read(&self, true_ns: u64) -> Now {
        let cluster = drifted(true_ns, self.drift_ppm) + EPOCH_NS;
        let units = cluster.saturating_add_signed(self.offset_ns) / self.grain.unit_ns;
        let local = self.local_base + drifted(true_ns, self.local_ppm);
        Now { clock: Timestamp::new(units - units % self.grain.step), local: LocalTime::new(local) }
    }

    /// The true time at which the local clock will show `local`; a little late rather than early.
    pub(super) fn when(&self, local: LocalTime) -> u64 {
        let shown = local.get().saturating_sub(self.local_base);
        if local == LocalTime::NEVER {
            return u64::MAX;
        }
        let true_ns = i128::from(shown) * 1_000_000 / i128::from(1_000_000 + self.local_ppm) + 1;
        u64::try_from(true_ns.max(0)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_has_passed_when_its_time_has_come() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..2_000 {
            let grain = Grain::draw(&mut rng);
            let clock = Clock::draw(&mut rng, grain);
            let now = rng.u64(0..10_000_000_000);
            let deadline = LocalTime::new(clock.read(now).local.get() + rng.u64(0..1_000_000_000));
            let at = clock.when(deadline);
            assert!(clock.read(at).local >= deadline && clock.read(at.saturating_sub(3)).local <= deadline);
        }
    }
}
