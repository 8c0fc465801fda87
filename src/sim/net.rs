//! The network between simulated servers and clients: when a datagram arrives, how often, if at all.
//!
//! **Why integers only.** A seed must give the same schedule on every machine; logarithms differ between them.
//! **Invariants**: without faults every datagram arrives once and in order of sending on its link.
//! **Limits**: two copies of a datagram. **Not here**: what is in a datagram.
use super::{Faults, Tally};

/// A place in the network: servers by their place, and one for all clients.
pub(super) const OUTSIDE: usize = crate::protocol::SERVERS_MAX;
const PLACES: usize = OUTSIDE + 1;

/// One direction between two places.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    delay_ns: u64,
    jitter_ns: u64,
    loss_ppm: u32,
    cut_until: u64,
    /// When the last datagram arrives: an earlier arrival after it is a reordering.
    newest_arrival: u64,
}

/// All links.
#[derive(Debug)]
pub(super) struct Network {
    links: [[Link; PLACES]; PLACES],
    faulty: bool,
    twice_ppm: u32,
    late_ppm: u32,
}

/// True `ppm` times in a million.
pub(super) fn chance(rng: &mut fastrand::Rng, ppm: u32) -> bool {
    rng.u32(0..1_000_000) < ppm
}

impl Network {
    /// Draws a network: the weather of this schedule, and each link's own.
    pub(super) fn draw(rng: &mut fastrand::Rng, faults: Faults) -> Self {
        let faulty = faults == Faults::Loss;
        let scale = [20_000, 20_000, 60_000, 200_000][rng.usize(0..4)];
        let loss_ppm = [10_000, 30_000, 80_000, 200_000][rng.usize(0..4)];
        let jitter = [1, 1, 3][rng.usize(0..3)];
        let mut links = [[Link::default(); PLACES]; PLACES];
        for link in links.iter_mut().flatten() {
            link.delay_ns = scale / 2 + rng.u64(0..scale);
            link.jitter_ns = jitter * scale;
            link.loss_ppm = if faulty { rng.u32(0..=loss_ppm) + loss_ppm / 2 } else { 0 };
            if faulty && rng.u32(0..16) == 0 {
                // A slow link: everything on it comes late, always.
                link.delay_ns *= rng.u64(5..40);
            }
        }
        let twice_ppm = if faulty { [5_000, 50_000, 150_000][rng.usize(0..3)] } else { 0 };
        let late_ppm = [2_000, 20_000, 100_000][rng.usize(0..3)];
        Self { links, faulty, twice_ppm, late_ppm }
    }

    /// The faults end: what is sent from now on arrives, once and soon.
    pub(super) fn heal(&mut self) {
        self.faulty = false;
        for link in self.links.iter_mut().flatten() {
            link.loss_ppm = 0;
            link.cut_until = 0;
            link.delay_ns = link.delay_ns.min(400_000);
        }
    }

    /// Nothing gets through from `from` to `to` before `until`.
    pub(super) fn cut(&mut self, from: usize, to: usize, until: u64) {
        self.links[from][to].cut_until = until;
    }

    /// When the copies of a datagram sent now arrive.
    pub(super) fn send(
        &mut self,
        rng: &mut fastrand::Rng,
        tally: &mut Tally,
        from: usize,
        to: usize,
        now: u64,
    ) -> impl Iterator<Item = u64> + use<> {
        let link = &mut self.links[from][to];
        let copies = 1 + usize::from(self.faulty && chance(rng, self.twice_ppm));
        let mut arrivals = [None; 2];
        tally.duplicated += copies as u64 - 1;
        for arrival in arrivals.iter_mut().take(copies) {
            if now < link.cut_until || (link.loss_ppm > 0 && chance(rng, link.loss_ppm)) {
                tally.losses += 1;
                continue;
            }
            let mut delay = link.delay_ns + rng.u64(0..=link.jitter_ns);
            if chance(rng, self.late_ppm) {
                // A tail that halves with every doubling of the delay.
                delay <<= 1 + rng.u64(1..256).leading_zeros().min(63).saturating_sub(56);
            }
            let mut at = now + delay;
            if at < link.newest_arrival {
                if self.faulty {
                    tally.reordered += 1;
                } else {
                    at = link.newest_arrival;
                }
            }
            link.newest_arrival = link.newest_arrival.max(at);
            *arrival = Some(at);
        }
        arrivals.into_iter().flatten()
    }
}
