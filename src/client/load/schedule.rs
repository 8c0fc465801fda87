//! When requests are due and whom they name: from a seed, so that a run can be repeated.
//!
//! **Why a schedule that can be cloned.** What is due is counted by one cursor, what was handed over by another; a backlog
//! of any length is the distance between the two and takes no memory.
//! **Not here**: sending ([`super::Generator`]).

use crate::protocol::{LocalTime, NodeId, Span};

/// How intended starts are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Independent of each other, as from many users: gaps are exponential.
    Poisson,
    /// Evenly.
    Uniform,
}

/// Intended starts, one after the other.
#[derive(Clone, Debug)]
pub struct Schedule {
    random: fastrand::Rng,
    arrival: Arrival,
    gap_ns: f64,
    start: LocalTime,
    /// Nanoseconds from the start to the next one.
    next_ns: f64,
}

impl Schedule {
    /// From `start` on, `rate` a second.
    #[must_use]
    pub fn new(seed: u64, arrival: Arrival, rate: f64, start: LocalTime) -> Self {
        let mut schedule =
            Self { random: fastrand::Rng::with_seed(seed), arrival, gap_ns: 1e9 / rate, start, next_ns: 0.0 };
        schedule.advance();
        schedule
    }

    /// The next intended start.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative; saturates after centuries"
    )]
    pub fn next(&self) -> LocalTime {
        self.start.plus(Span::new(self.next_ns as u64))
    }

    /// Goes on to the one after.
    pub fn advance(&mut self) {
        self.next_ns += match self.arrival {
            Arrival::Uniform => self.gap_ns,
            // 1 - f64() is above 0, so the logarithm is finite.
            Arrival::Poisson => -(1.0 - self.random.f64()).ln() * self.gap_ns,
        };
    }
}

/// How participants are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Skew {
    /// All alike.
    Uniform,
    /// The k-th with weight `1 / k^s`.
    Zipf(f64),
}

/// Draws the participants of a transaction: distinct ids out of `1..=space`.
#[derive(Clone, Debug)]
pub struct Participants {
    random: fastrand::Rng,
    least: usize,
    most: usize,
    space: u32,
    /// Walker's tables for a skewed draw: with which probability an id stands for itself, and for whom else.
    alias: Option<Box<[(f32, u32)]>>,
}

impl Participants {
    /// `least..=most` distinct ones of `1..=space`.
    ///
    /// # Panics
    /// If there are fewer ids than `most`, or none are to be drawn: the caller has checked.
    #[must_use]
    pub fn new(seed: u64, least: usize, most: usize, space: u32, skew: Skew) -> Self {
        let enough = usize::try_from(space).is_ok_and(|space| space >= most);
        assert!(least >= 1 && least <= most && enough, "{least}..{most} of {space}");
        let alias = if let Skew::Zipf(exponent) = skew { Some(walker(space, exponent)) } else { None };
        Self { random: fastrand::Rng::with_seed(seed), least, most, space, alias }
    }

    /// Replaces `ids` by a fresh draw.
    pub fn draw(&mut self, ids: &mut Vec<NodeId>) {
        let count = self.random.usize(self.least..=self.most);
        ids.clear();
        // A heavy skew draws the same ids again and again; after so many tries, neighbours are taken.
        let mut tries = 16 * count;
        while ids.len() < count {
            let mut id = NodeId::new(self.one());
            while ids.contains(&id) && tries == 0 {
                id = NodeId::new(id.get() % self.space + 1);
            }
            tries = tries.saturating_sub(1);
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
    }

    fn one(&mut self) -> u32 {
        let at = self.random.u32(0..self.space);
        let stands_for = self.alias.as_ref().and_then(|table| table.get(usize::try_from(at).ok()?)).copied();
        match stands_for {
            Some((itself, other)) if self.random.f32() >= itself => other + 1,
            _ => at + 1,
        }
    }
}

/// Walker's alias tables (1977) for weights `1 / k^exponent`: one draw is two random numbers and one look.
fn walker(space: u32, exponent: f64) -> Box<[(f32, u32)]> {
    let weights: Vec<f64> = (1..=space).map(|k| f64::from(k).powf(-exponent)).collect();
    let mean = weights.iter().sum::<f64>() / f64::from(space);
    let mut left: Vec<f64> = weights.iter().map(|weight| weight / mean).collect();
    let mut table: Vec<(f32, u32)> = (0..space).map(|at| (1.0, at)).collect();
    let (mut small, mut large): (Vec<u32>, Vec<u32>) = (0..space).partition(|at| left[index(*at)] < 1.0);
    while let (Some(less), Some(more)) = (small.pop(), large.last().copied()) {
        table[index(less)] = (probability(left[index(less)]), more);
        left[index(more)] -= 1.0 - left[index(less)];
        if left[index(more)] < 1.0 {
            large.pop();
            small.push(more);
        }
    }
    table.into()
}

fn index(at: u32) -> usize {
    usize::try_from(at).expect("usize has 32 bits at least")
}

#[expect(clippy::cast_possible_truncation, reason = "a probability to seven digits is plenty")]
fn probability(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(arrival: Arrival, count: usize) -> Vec<u64> {
        let mut schedule = Schedule::new(3, arrival, 1_000.0, LocalTime::new(0));
        (0..count)
            .map(|_| {
                let next = schedule.next().get();
                schedule.advance();
                next
            })
            .collect()
    }

    #[test]
    fn uniform_starts_are_even_and_poisson_ones_have_the_rate_and_spread() {
        assert_eq!(starts(Arrival::Uniform, 3), [1_000_000, 2_000_000, 3_000_000]);
        let poisson = starts(Arrival::Poisson, 20_000);
        let last = poisson[19_999];
        assert!((19_000_000_000..21_000_000_000).contains(&last), "{last}");
        let above = poisson.windows(2).filter(|pair| pair[1] - pair[0] > 1_000_000).count();
        assert!((7_000..7_700).contains(&above), "1/e of the gaps exceed the mean: {above}");
    }

    #[test]
    fn drawn_participants_are_distinct_within_the_space_and_as_many_as_asked() {
        for skew in [Skew::Uniform, Skew::Zipf(1.1), Skew::Zipf(8.0)] {
            let mut participants = Participants::new(1, 1, 64, 64, skew);
            let mut ids = Vec::new();
            let mut counts = [0_u32; 65];
            for _ in 0..500 {
                participants.draw(&mut ids);
                counts[ids.len()] += 1;
                let mut sorted = ids.clone();
                sorted.sort_unstable();
                sorted.dedup();
                assert!(sorted.len() == ids.len() && ids.iter().all(|id| (1..=64).contains(&id.get())));
            }
            assert!(counts[0] == 0 && counts[1..].iter().all(|count| *count > 0), "{skew:?}");
        }
    }

    #[test]
    fn zipf_gives_the_first_its_share() {
        let mut participants = Participants::new(1, 1, 1, 1_000, Skew::Zipf(1.0));
        let mut ids = Vec::new();
        let mut hits = [0_u32; 3];
        for _ in 0..100_000 {
            participants.draw(&mut ids);
            if let Some(hit) = hits.get_mut(index(ids[0].get() - 1)) {
                *hit += 1;
            }
        }
        // The harmonic number of 1000 is 7.485.
        assert!((12_900..13_900).contains(&hits[0]), "{hits:?}");
        assert!((6_300..7_100).contains(&hits[1]) && (4_100..4_800).contains(&hits[2]), "{hits:?}");
    }
}
