//! What a server counts, read in its own process: for the log, and for what is told when it ends.
//!
//! **Why so little here.** The figures lie in the stats file's memory (`stats`), each in the block of the role that counts it;
//! their names and meanings stand in `stats::metrics`. This is how the thread `house` looks at them.
//! **Not here**: counting (the roles), other processes (`stats::read`).
use std::collections::BTreeMap;
use std::fmt;

use crate::protocol::machine::Counters;
use crate::stats::cells::Kind;
use crate::stats::file::View;
use crate::stats::metrics::{Block, Ingress, Order};

/// All figures of a server's roles.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Those of `order`.
    pub order: View<Order>,
    /// Those of every ingress.
    pub ingresses: Vec<View<Ingress>>,
}

impl Counts {
    /// One value of every ingress, added up.
    #[must_use]
    pub fn of_ingresses(&self, value: impl Fn(&Ingress) -> u64) -> u64 {
        self.ingresses.iter().map(|ingress| ingress.look(&value)).fold(0, u64::saturating_add)
    }

    /// The last order number given here.
    #[must_use]
    pub fn ordered(&self) -> u64 {
        self.order.look(|order| order.ordered.get())
    }

    /// Requests refused, by the core and before it.
    #[must_use]
    pub fn refused(&self) -> u64 {
        let sum = |cells: &[crate::stats::cells::Counter]| cells.iter().map(|cell| cell.get()).sum::<u64>();
        self.order.look(|order| sum(&order.refused)) + self.of_ingresses(|ingress| sum(&ingress.turned_away))
    }

    /// Datagrams dropped before they were parsed, or that could not be.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        let sum = |cells: &[crate::stats::cells::Counter]| cells.iter().map(|cell| cell.get()).sum::<u64>();
        self.order.look(|order| sum(&order.peer_dropped)) + self.of_ingresses(|ingress| sum(&ingress.client_dropped))
    }

    /// Every counter that is not zero, by name, those of several ingresses added up; for the log.
    fn nonzero(&self) -> BTreeMap<String, u64> {
        let mut found = BTreeMap::from([("ordered".to_owned(), self.ordered())]);
        let mut add = |name: String, value: u64| *found.entry(name).or_default() += value;
        counters(&self.order).for_each(|(name, value)| add(name, value));
        self.ingresses.iter().flat_map(counters).for_each(|(name, value)| add(name, value));
        found.retain(|_, value| *value > 0);
        found
    }
}

fn counters<B: Block>(view: &View<B>) -> impl Iterator<Item = (String, u64)> + '_ {
    view.scalars().filter(|(metric, ..)| metric.kind == Kind::Counter).map(|(metric, element, value)| {
        let name = element.map_or_else(|| metric.name.to_owned(), |element| format!("{}_{element}", metric.name));
        (name, value)
    })
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, value)) in self.nonzero().into_iter().enumerate() {
            let space = if at == 0 { "" } else { " " };
            write!(f, "{space}{name}={value}")?;
        }
        Ok(())
    }
}

/// Puts what the core counted where others see it. Every field is named: one that is added there must be added here.
pub fn take_over(from: &Counters, to: &Order) {
    macro_rules! set {
        ($($name:ident),* $(,)?) => {{
            let Counters { $($name,)* refused } = from;
            $(to.$name.set(*$name);)*
            // By code, which begins at 1.
            to.refused.iter().zip(&refused[1..]).for_each(|(to, from)| to.set(*from));
        }};
    }
    set!(
        stamped,
        frames_sent,
        frame_datagrams,
        headers_alone,
        headers_beat,
        frames_accepted,
        frame_duplicate,
        frame_early,
        frame_no_room,
        frame_defect,
        headers_taken,
        pulls_sent,
        frames_pulled,
        asks_sent,
        other_instance,
        messages_refused,
        answered,
        retries_joined,
    );
}
