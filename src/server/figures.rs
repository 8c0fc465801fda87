//! The stats file of a server: made at start, its blocks handed to their owners, kept up by `house`.
//!
//! **Why `house` computes rates.** Whoever looks at a file once wants to know what happens a second, also of a server that
//! is dead by then; and no role has time for it.
//! **Why `house` copies.** It may wait for a disk; the roles may not (`stats::file`).
//! **Invariants**: the file gets its name once everything runs; every second of a living server is in its rates.
//! **Limits**: as fresh as `house` looks ([`super::run::LOOK_EVERY`]). **Not here**: its layout (`stats`).
use std::path::Path;
use std::sync::Mutex;

use serde_json::{Value, json};

use super::counts::Counts;
use crate::engine::clock;
use crate::engine::cores::{CoreReport, CoreStats, Running};
use crate::protocol::{LocalTime, Span};
use crate::stats::errors::{ErrorLog, Errors, LastWords};
use crate::stats::file::{Builder, FileError, Mirror, Owner, Place, Stats, View};
use crate::stats::file_name;
use crate::stats::metrics::{self, Ended};

/// How often rates are computed.
const RATES_EVERY: Span = Span::secs(1);

/// The blocks of a server's file, before it is made.
#[derive(Debug)]
pub(super) struct Planned {
    builder: Builder,
    order: Place<metrics::Order>,
    ingresses: Vec<Place<metrics::Ingress>>,
    cores: Vec<(Place<metrics::Core>, Place<metrics::Io>)>,
    house: Place<metrics::House>,
    errors: Place<Errors>,
    last_words: Place<LastWords>,
}

/// The blocks of a server's file, each for its owner.
#[derive(Debug)]
pub(super) struct Blocks {
    pub(super) order: Owner<metrics::Order>,
    pub(super) ingresses: Vec<Owner<metrics::Ingress>>,
    pub(super) cores: Vec<CoreStats>,
    pub(super) house: House,
}

impl Planned {
    /// For cores of these names, and so many ingresses.
    pub(super) fn new(cores: &[String], ingresses: usize) -> Self {
        let mut builder = Builder::default();
        let order = builder.block("");
        let ingresses = (1..=ingresses).map(|number| builder.block(&number.to_string())).collect();
        let cores = cores.iter().map(|name| (builder.block(name), builder.block(name))).collect();
        let (house, errors, last_words) = (builder.block(""), builder.block(""), builder.block(""));
        Self { builder, order, ingresses, cores, house, errors, last_words }
    }

    /// Memory it takes, in bytes.
    pub(super) fn memory(&self) -> usize {
        self.builder.memory()
    }

    /// Makes the file of server `id` in `dir`.
    pub(super) fn make(self, dir: &Path, id: u8) -> Result<Blocks, FileError> {
        let mut stats = self.builder.create(dir, &file_name(id), clock::realtime().get())?;
        let order = stats.owner(self.order);
        let ingresses = self.ingresses.into_iter().map(|place| stats.owner(place)).collect();
        let cores = self.cores.into_iter();
        let cores = cores.map(|(core, io)| CoreStats { core: stats.owner(core), io: stats.owner(io) }).collect();
        let last_words = LastBreath { slot: Mutex::new(stats.direct(self.last_words)), mirror: stats.mirror().clone() };
        let house = House {
            block: stats.direct(self.house),
            errors: ErrorLog::new(stats.direct(self.errors)),
            last_words: Some(last_words),
            stats,
            since: clock::monotonic(),
            then: Sums::default(),
        };
        Ok(Blocks { order, ingresses, cores, house })
    }
}

/// What a thread that panics still does for the file.
#[derive(Debug)]
pub(super) struct LastBreath {
    slot: Mutex<Owner<LastWords>>,
    mirror: Mirror,
}

impl LastBreath {
    /// Copies the figures as they are, and writes why the process ends.
    pub(super) fn say(&self, text: &str) {
        // Two threads at once: the first one's reason is the reason. That `house` may be copying too does no harm: it
        // copies the same.
        if let Ok(slot) = self.slot.try_lock() {
            self.mirror.copy();
            slot.say(text, clock::realtime().get());
        }
    }
}

/// What rates are made of.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    ordered: u64,
    stamped: u64,
    answered: u64,
    refused: u64,
    engine: CoreReport,
}

/// What `house` writes, and the file itself.
#[derive(Debug)]
pub struct House {
    block: Owner<metrics::House>,
    errors: ErrorLog,
    last_words: Option<LastBreath>,
    stats: Stats,
    since: LocalTime,
    then: Sums,
}

impl House {
    /// Gives the file its name, in place of the one of an earlier life.
    pub(super) fn publish(&mut self, labels: &Value) -> Result<(), FileError> {
        self.fresh();
        self.stats.publish(labels)
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.stats.path()
    }

    /// Whether the file has lost what it held: somebody truncated it, or its disk is full.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.stats.is_lost()
    }

    /// For why the process ends, once.
    pub(super) fn take_last_words(&mut self) -> Option<LastBreath> {
        self.last_words.take()
    }

    /// Says that the server lives; computes rates when a second is over.
    pub(super) fn look(&mut self, counts: &Counts, engine: &CoreReport, now: LocalTime) {
        self.fresh();
        let over = now.since(self.since);
        if over < RATES_EVERY {
            return;
        }
        let (stamped, answered) = counts.order.look(|order| (order.stamped.get(), order.answered.get()));
        let sums = Sums { ordered: counts.ordered(), stamped, answered, refused: counts.refused(), engine: *engine };
        let per_s = |now: u64, then: u64| per_second(now.saturating_sub(then), over);
        let then = &self.then;
        let (io, io_then) = (&sums.engine.io, &then.engine.io);
        self.block.ordered_per_s.set(per_s(sums.ordered, then.ordered));
        self.block.stamped_per_s.set(per_s(sums.stamped, then.stamped));
        self.block.answered_per_s.set(per_s(sums.answered, then.answered));
        self.block.refused_per_s.set(per_s(sums.refused, then.refused));
        self.block.received_per_s.set(per_s(io.received, io_then.received));
        self.block.sent_per_s.set(per_s(io.sent, io_then.sent));
        self.block.enters_per_s.set(per_s(io.enters, io_then.enters));
        let busy_ns = per_s(sums.engine.core.busy_ns, then.engine.core.busy_ns);
        self.block.busy_ms_per_s.set(busy_ns / 1_000_000);
        (self.since, self.then) = (now, sums);
    }

    fn fresh(&self) {
        self.stats.mirror().copy();
        self.block.written_local_ns.set(clock::monotonic().get());
        self.block.written_ns.set(clock::realtime().get());
    }

    /// Notes an error: `key` says what it is, without what varies.
    pub(super) fn note(&mut self, key: &str, text: &str) {
        self.errors.note(key, text, clock::realtime().get());
        self.block.errors_forgotten.set(self.errors.forgotten());
    }

    /// Says how the server ended.
    pub(super) fn ended(&self, how: Ended) {
        self.fresh();
        self.block.ended.set(how.number());
    }
}

/// A count over a time as a rate, rounded.
fn per_second(count: u64, over: Span) -> u64 {
    let ns = u128::from(over.get().max(1));
    u64::try_from((u128::from(count) * 1_000_000_000 + ns / 2) / ns).unwrap_or(u64::MAX)
}

/// For other threads to look at the roles' figures.
pub(super) fn views(order: &Owner<metrics::Order>, ingresses: &[Owner<metrics::Ingress>]) -> Counts {
    let ingresses: Vec<View<metrics::Ingress>> = ingresses.iter().map(Owner::view).collect();
    Counts { order: order.view(), ingresses }
}

/// What a server's cores are, for the labels of its file.
pub(super) fn core_labels(cores: &[Running]) -> Vec<Value> {
    cores
        .iter()
        .map(|core| {
            json!({
                "name": core.name(),
                "engine": core.engine(),
                "waiting": core.waiting().to_string(),
                "placed": core.placed().to_string(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::read::Snapshot;

    /// Rates are of whole seconds; a panic leaves the newest figures and its reason.
    #[test]
    fn house_keeps_rates_and_a_panic_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let mut blocks = Planned::new(&["order".to_owned()], 1).make(dir.path(), 2).unwrap();
        let counts = views(&blocks.order, &blocks.ingresses);
        blocks.house.publish(&json!({})).unwrap();
        let path = blocks.house.path().unwrap().to_owned();
        assert!(path.ends_with("server-2.stats"));
        let rate = || Snapshot::read(&path).unwrap().block("house").unwrap().value("ordered_per_s").unwrap();
        let begun = blocks.house.since;
        blocks.order.ordered.set(500);
        blocks.house.look(&counts, &CoreReport::default(), begun.plus(Span::millis(999)));
        assert_eq!(rate(), 0);
        blocks.house.look(&counts, &CoreReport::default(), begun.plus(Span::secs(2)));
        assert_eq!(rate(), 250);
        blocks.order.ordered.set(501);
        let last = blocks.house.take_last_words().unwrap();
        assert!(blocks.house.take_last_words().is_none());
        last.say("order number 7 after 9");
        let read = Snapshot::read(&path).unwrap();
        assert_eq!(read.block("order").unwrap().value("ordered"), Some(501));
        assert_eq!(read.last_words.unwrap().text, "order number 7 after 9");
        blocks.house.ended(Ended::Died);
        assert_eq!(Snapshot::read(&path).unwrap().block("house").unwrap().value("ended"), Some(Ended::Died.number()));
    }

    #[test]
    fn rates_are_rounded_and_never_overflow() {
        assert_eq!(per_second(1_500, Span::secs(1)), 1_500);
        assert_eq!(per_second(1_001, Span::millis(2_000)), 501);
        assert_eq!(per_second(u64::MAX, Span::new(0)), u64::MAX);
    }
}
