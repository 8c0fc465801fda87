//! What a server counts, readable from any thread while it runs.
//!
//! **Why.** What is dropped, refused or lost must be seen; none of them
//! is counted once a request.
//! **Invariants**: gauges have one writer; counters any role may add to; they only grow.
//! **Not here**: the mapped file that other processes read (a later part of the house).
use std::fmt;

use crate::engine::sync::{AtomicU64, Ordering};
use crate::protocol::Refusal;
use crate::protocol::machine::Counters;
use crate::wire::DropReason;

/// One counter or gauge.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds; any role may.
    pub fn add(&self, more: u64) {
        // Relaxed: it orders nothing else; its partner is `get`.
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Sets a gauge; by its one writer.
    pub fn set(&self, value: u64) {
        // Relaxed: it orders nothing else; its partner is `get`.
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value now.
    #[must_use]
    pub fn get(&self) -> u64 {
        // Relaxed: the value alone is wanted; its partners are `add` and `set`.
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident: $of:ident,)*) => {
        /// All counters and gauges of a server.
        #[derive(Debug, Default)]
        pub struct Counts {
            $($(#[$doc])* pub $name: Count,)*
            /// Datagrams dropped at the peer socket, by [`DropReason::index`].
            pub peer_dropped: [Count; DropReason::COUNT],
            /// Datagrams dropped at the client sockets, by [`DropReason::index`].
            pub client_dropped: [Count; DropReason::COUNT],
            /// Requests refused by the core, by [`Refusal::code`].
            pub refused: [Count; Refusal::ALL.len() + 1],
        }

        impl Counts {
            /// Takes over what the core counted.
            pub fn protocol(&self, core: &Counters) {
                $(counts!(@take $of self core $name);)*
                self.refused.iter().zip(core.refused).for_each(|(to, from)| to.set(from));
            }

            /// Every count that is not zero, by name, for the log.
            pub fn nonzero(&self) -> impl Iterator<Item = (String, u64)> + '_ {
                let named = [$((stringify!($name), &self.$name),)*];
                let reasons = |prefix: &'static str, counts: &'_ [Count]| -> Vec<(String, u64)> {
                    let names = DropReason::ALL.iter().map(|reason| format!("{prefix}_{}", reason.name()));
                    names.zip(counts.iter().map(Count::get)).collect()
                };
                let refused = Refusal::ALL.iter().map(|why| {
                    (format!("refused_{}", why.name()), self.refused[usize::from(why.code())].get())
                });
                named
                    .into_iter()
                    .map(|(name, count)| (name.to_owned(), count.get()))
                    .chain(reasons("peer_dropped", &self.peer_dropped))
                    .chain(reasons("client_dropped", &self.client_dropped))
                    .chain(refused)
                    .filter(|(_, value)| *value > 0)
            }
        }
    };
    (@take core $self:ident $core:ident $name:ident) => { $self.$name.set($core.$name); };
    (@take own $self:ident $core:ident $name:ident) => {};
}

counts! {
    /// Gauge: the last order number given here.
    ordered: own,
    /// Gauge: the instance; 0 before genesis.
    instance: own,
    /// Gauge: own requests being ordered.
    under_way: own,
    /// Gauge: 1 once this process is a member.
    member: own,
    /// Gauge: a living instance in which this process has no place; 0: none heard of.
    not_named: own,
    /// Gauge: bit k: genesis waits for place k.
    awaited: own,
    /// Gauge: 1 once `order` has ended.
    order_done: own,
    /// Datagrams to peers dropped because too many waited, or no buffer was free.
    peer_out_full: own,
    /// Answers dropped because the ring to ingress was full; the client asks again.
    answer_dropped: own,
    /// Events that the log did not take in time.
    event_dropped: own,
    /// Datagrams to clients dropped because no buffer was free.
    client_out_full: own,
    /// Requests refused by ingress because the ring to `order` was full.
    ring_full: own,
    /// Requests whose content was not allowed.
    request_fault: own,
    /// Messages of kinds this version does not serve.
    not_served: own,
    /// Requests stamped.
    stamped: core,
    /// Own frames broadcast.
    frames_sent: core,
    /// Datagrams that carried own frames.
    frame_datagrams: core,
    /// Headers broadcast with no frame to ride on.
    headers_alone: core,
    /// Headers broadcast at the beat.
    headers_beat: core,
    /// Frames of others accepted.
    frames_accepted: core,
    /// Frames held already.
    frame_duplicate: core,
    /// Frames that came before an earlier one.
    frame_early: core,
    /// Frames there was no room for.
    frame_no_room: core,
    /// Frames no protocol-following server sends.
    frame_defect: core,
    /// Headers taken.
    headers_taken: core,
    /// PULLs sent.
    pulls_sent: core,
    /// Frames sent because they were pulled.
    frames_pulled: core,
    /// ASKs sent.
    asks_sent: core,
    /// Datagrams of another instance.
    other_instance: core,
    /// Messages that did not parse, or belong to rules this version has not.
    messages_refused: core,
    /// Answers given.
    answered: core,
    /// Retries that found their request under way.
    retries_joined: core,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, value)) in self.nonzero().enumerate() {
            let space = if at == 0 { "" } else { " " };
            write!(f, "{space}{name}={value}")?;
        }
        Ok(())
    }
}
