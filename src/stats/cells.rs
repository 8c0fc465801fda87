//! Cells of a stats file: counters, gauges, histograms. Each is one or more atomic 64-bit words.
//!
//! **Why no read-modify-write.** A cell has one writer, the thread that owns its block, so a load and a store do what a
//! locked addition would, at the price of two moves. A reader in another process sees each word whole, old or new.
//! **Invariants**: counters and the buckets of histograms only grow; no two words of a file are promised to be of the same
//! moment.
//! **Limits**: a histogram tells values apart to 1/32 up to [`VALUE_MAX`]; what is above counts as that, and [`Histogram`]'s
//! greatest value stays exact.
//! **Not here**: where cells lie (`file`), what they mean (`metrics`).
use core::sync::atomic::{AtomicU64, Ordering};

/// Bits of a value that a bucket tells apart below its highest: 32 buckets for each doubling.
const SUB_BITS: u32 = 5;
/// Buckets of a histogram.
pub const BUCKETS: usize = 1_024;
/// The largest value that has a bucket of its own size: 68.7 s in nanoseconds.
pub const VALUE_MAX: u64 = (1 << 36) - 1;

const _: () = assert!(bucket(VALUE_MAX) == BUCKETS - 1 && bucket(u64::MAX) == BUCKETS - 1);

/// What a metric is, as the file's directory names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Only grows: one word.
    Counter,
    /// Goes up and down: one word.
    Gauge,
    /// Sum, greatest value, and [`BUCKETS`] counts: see [`bucket`].
    Histogram,
}

impl Kind {
    /// Words of one element.
    #[must_use]
    pub const fn words(self) -> usize {
        match self {
            Self::Counter | Self::Gauge => 1,
            Self::Histogram => 2 + BUCKETS,
        }
    }
}

/// A cell's kind, for the table of metrics.
pub trait Cell {
    /// Which kind of metric it holds.
    const KIND: Kind;
}

impl<T: Cell, const N: usize> Cell for [T; N] {
    const KIND: Kind = T::KIND;
}

/// A cell of one word.
pub trait Scalar: Cell {
    /// The value now.
    fn get(&self) -> u64;
    /// Puts a value there; by the cell's one writer.
    fn put(&self, value: u64);
    /// Two of them as one: of two cores, say.
    fn merge(mine: u64, other: u64) -> u64;
}

/// A count that only grows.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds; by its one writer.
    #[inline]
    pub fn add(&self, more: u64) {
        // Relaxed: orders nothing else, and nobody but the caller stores; its partner is a reader's load.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    /// Takes over what was counted elsewhere; by its one writer.
    #[inline]
    pub fn set(&self, value: u64) {
        // Relaxed: as in `add`.
        self.0.store(value, Ordering::Relaxed);
    }

    /// The count now.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        // Relaxed: the value alone is wanted; its partners are `add` and `set`.
        self.0.load(Ordering::Relaxed)
    }
}

impl Cell for Counter {
    const KIND: Kind = Kind::Counter;
}

impl Scalar for Counter {
    fn get(&self) -> u64 {
        self.get()
    }
    fn put(&self, value: u64) {
        self.set(value);
    }
    fn merge(mine: u64, other: u64) -> u64 {
        mine.saturating_add(other)
    }
}

/// A value that goes up and down.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Sets it; by its one writer.
    #[inline]
    pub fn set(&self, value: u64) {
        // Relaxed: orders nothing else; its partner is a reader's load.
        self.0.store(value, Ordering::Relaxed);
    }

    /// Sets it if `value` is greater: a high-water mark; by its one writer.
    #[inline]
    pub fn raise(&self, value: u64) {
        if value > self.get() {
            self.set(value);
        }
    }

    /// The value now.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u64 {
        // Relaxed: the value alone is wanted; its partner is `set`.
        self.0.load(Ordering::Relaxed)
    }
}

impl Cell for Gauge {
    const KIND: Kind = Kind::Gauge;
}

impl Scalar for Gauge {
    fn get(&self) -> u64 {
        self.get()
    }
    fn put(&self, value: u64) {
        self.set(value);
    }
    fn merge(mine: u64, other: u64) -> u64 {
        mine.max(other)
    }
}

/// The bucket of a value: the value itself below 64, then 32 buckets for each doubling.
///
/// With `shift` such that `value >> shift` lies in 32..64, it is `32 * shift + (value >> shift)`.
#[inline]
#[must_use]
pub const fn bucket(value: u64) -> usize {
    let value = if value > VALUE_MAX { VALUE_MAX } else { value };
    let shift = (u64::BITS - (value | (1 << SUB_BITS)).leading_zeros()) - 1 - SUB_BITS;
    ((shift << SUB_BITS) as usize).wrapping_add(small(value >> shift))
}

/// What is below 64 as an index.
#[expect(clippy::cast_possible_truncation, reason = "below 64")]
const fn small(value: u64) -> usize {
    value as usize
}

/// The greatest value of a bucket.
#[must_use]
pub const fn bucket_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 << SUB_BITS {
        return bucket;
    }
    let shift = (bucket >> SUB_BITS) - 1;
    (((bucket & ((1 << SUB_BITS) - 1)) + (1 << SUB_BITS) + 1) << shift) - 1
}

/// How often which values came: log-linear buckets, after HdrHistogram. The count is the sum of the buckets, so that it is
/// never at odds with them.
#[derive(Debug)]
#[repr(C)]
pub struct Histogram {
    sum: Counter,
    max: Gauge,
    buckets: [Counter; BUCKETS],
}

const _: () = assert!(size_of::<Histogram>() == Kind::Histogram.words() * 8);

impl Histogram {
    /// Records a value; by its one writer. No allocation, no lock: three words of it change.
    #[inline]
    pub fn record(&self, value: u64) {
        self.record_n(value, 1);
    }

    /// Records a value that came `count` times.
    #[inline]
    pub fn record_n(&self, value: u64, count: u64) {
        self.buckets[bucket(value)].add(count);
        self.sum.add(value.wrapping_mul(count));
        self.max.raise(value);
    }
}

impl Cell for Histogram {
    const KIND: Kind = Kind::Histogram;
}

/// A histogram as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distribution {
    sum: u64,
    max: u64,
    buckets: Vec<u64>,
}

impl Distribution {
    /// From the words of a file, in their order. `None` if there are not [`Kind::words`] of them.
    #[must_use]
    pub fn from_words(words: &[u64]) -> Option<Self> {
        let [sum, max, buckets @ ..] = words else { return None };
        (buckets.len() == BUCKETS).then(|| Self { sum: *sum, max: *max, buckets: buckets.to_vec() })
    }

    /// How many values came.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Their sum (it wraps at 2^64: after 584 years of nanoseconds).
    #[must_use]
    pub const fn sum(&self) -> u64 {
        self.sum
    }

    /// The greatest value; exact.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// The value that the share `at` (0 to 1) of all values does not exceed, to 1/32; `None` if none came.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank: a share of a count, which is between 0 and the count; 2^53 values come in years"
    )]
    pub fn quantile(&self, at: f64) -> Option<u64> {
        let count = self.count();
        let rank = ((count as f64 * at.clamp(0.0, 1.0)).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0_u64;
        let reached = |of: &u64| {
            seen = seen.saturating_add(*of);
            seen >= rank
        };
        let bucket = self.buckets.iter().position(reached)?;
        // The greatest value is stored after its bucket, and may be seen before it or after.
        let end = if bucket == BUCKETS - 1 { self.max } else { bucket_end(bucket) };
        Some(if self.max >= bucket_start(bucket) { end.min(self.max) } else { end })
    }

    /// Two of them as one.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.sum = self.sum.wrapping_add(other.sum);
        self.max = self.max.max(other.max);
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(mine, theirs)| *mine = mine.saturating_add(*theirs));
        self
    }
}

fn bucket_start(bucket: usize) -> u64 {
    bucket.checked_sub(1).map_or(0, |before| bucket_end(before) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(histogram: &Histogram) -> Distribution {
        let mut words = vec![histogram.sum.get(), histogram.max.get()];
        words.extend(histogram.buckets.iter().map(Counter::get));
        Distribution::from_words(&words).unwrap()
    }

    fn histogram() -> Box<Histogram> {
        Box::new(Histogram {
            sum: Counter::default(),
            max: Gauge::default(),
            buckets: std::array::from_fn(|_| Counter::default()),
        })
    }

    #[test]
    fn buckets_are_dense_rising_and_as_fine_as_stated() {
        assert_eq!(bucket_start(0), 0);
        for at in 0..BUCKETS {
            let (start, end) = (bucket_start(at), bucket_end(at));
            assert!(start <= end, "bucket {at}");
            assert_eq!((bucket(start), bucket(end)), (at, at), "{start}..={end}");
            assert!((end - start) * 32 <= start, "bucket {at} is {start}..={end}");
        }
        assert_eq!(bucket_end(BUCKETS - 1), VALUE_MAX);
    }

    #[test]
    fn quantiles_are_right_to_a_thirty_second() {
        let histogram = histogram();
        (1..=100_000_u64).for_each(|value| histogram.record(value * 10));
        let read = read(&histogram);
        assert_eq!((read.count(), read.max(), read.sum()), (100_000, 1_000_000, 50_000_500_000));
        for (share, exact) in [(0.5, 500_000_u64), (0.99, 990_000), (0.9999, 999_900), (1.0, 1_000_000)] {
            let got = read.quantile(share).unwrap();
            assert!(got >= exact && got - exact <= exact / 32, "{share}: {got}, exactly {exact}");
        }
        assert_eq!(read.quantile(0.0), Some(10));
    }

    #[test]
    fn what_is_too_large_keeps_its_greatest_value() {
        let histogram = histogram();
        assert_eq!(read(&histogram).quantile(0.5), None);
        histogram.record(u64::MAX / 4);
        assert_eq!(read(&histogram).quantile(0.5), Some(u64::MAX / 4));
        histogram.record_n(7, 3);
        let read = read(&histogram);
        assert_eq!((read.count(), read.quantile(0.5)), (4, Some(7)));
        let twice = read.clone().plus(&read);
        assert_eq!((twice.count(), twice.quantile(0.75), twice.max()), (8, Some(7), u64::MAX / 4));
    }
}
