//! Every setting, declared once: name, type, default, range, help, and whether all servers must have the same.
//!
//! From the table at the end follow the typed [`Settings`], the reader of the file and of `--set`, `config show`, the
//! commented file that `ordain init` writes, the suggestions for unknown keys, and what servers compare when they
//! meet. A setting that is not in force is not in the table.
//!
//! **Why a macro.** A setting declared in two places is sooner or later two settings.
//! **Invariants** (tested): every default is in its own range, and fits its field.
//! **Not here**: reading files (`config`), how values are written (`value`).

use std::path::PathBuf;

use super::map::Map;
use super::value::{Field, Kind, Value};
use crate::protocol::Span;
use crate::wire::{PAYLOAD_MAX, PAYLOAD_MIN};

/// Whether servers must agree on a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The order follows from it: the same in the whole cluster, or servers refuse each other.
    Shared,
    /// Each host's own business.
    Local,
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Section and name: `section.name`, or `name` where there is no section.
    pub key: &'static str,
    /// The section; empty for the settings before all sections.
    pub section: &'static str,
    /// The name in its section.
    pub name: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// What it is if nobody says otherwise, as written in the file.
    pub default: &'static str,
    /// What it is in the `laptop` profile, where that differs.
    pub laptop: Option<&'static str>,
    /// Whether servers must agree on it.
    pub scope: Scope,
    /// What it is for; one or more lines, each with a space before it.
    pub help: &'static [&'static str],
}

/// Declares words to choose from.
macro_rules! choice {
    ($(#[doc = $help:literal])+ $name:ident { $($(#[doc = $what:literal])+ $variant:ident = $word:literal,)+ }) => {
        $(#[doc = $help])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[doc = $what])+ $variant,)+
        }

        impl $name {
            /// The words, as written in the file.
            pub const WORDS: &[&str] = &[$($word),+];
        }

        impl Field for $name {
            fn from_value(value: &Value) -> Option<Self> {
                match value {
                    $(Value::Word(word) if word == $word => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

choice! {
    /// How datagrams are authenticated.
    Auth {
        /// Every datagram carries a MAC by a key derived from the cluster key.
        Keyed = "keyed",
        /// Not at all: anybody who reaches a port can order, and can forge the order.
        None = "none",
    }
}

choice! {
    /// A set of defaults for the sizes of tables, rings and buffers.
    Profile {
        /// For a host of its own.
        Standard = "standard",
        /// For a small or shared machine: a fifth of the records, 64 MB in all.
        Laptop = "laptop",
    }
}

choice! {
    /// How an idle core waits.
    Waiting {
        /// By the processors at hand.
        Auto = "auto",
        /// Never sleeps: least latency, a whole processor.
        Spin = "spin",
        /// Spins for a while, then sleeps.
        Hybrid = "hybrid",
        /// Sleeps at once.
        Park = "park",
    }
}

/// Declares the sections; see the table.
macro_rules! settings {
    ($($(#[doc = $section_help:literal])+ $section:ident($prefix:literal): $type:ident {
        $($(#[doc = $help:literal])+ $field:ident: $field_type:ty = $default:literal $(/ $laptop:literal)?, $scope:ident, $kind:expr;)+
    })+) => {
        $(
            $(#[doc = $section_help])+
            #[derive(Clone, Debug, PartialEq, Eq)]
            pub struct $type {
                $($(#[doc = $help])+ pub $field: $field_type,)+
            }
        )+

        /// All settings, typed and checked.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Settings {
            $($(#[doc = $section_help])+ pub $section: $type,)+
        }

        /// The table of all settings, section by section.
        pub const SETTINGS: &[Setting] = &[$($(
            Setting {
                key: concat!($prefix, stringify!($field)),
                section: section_of($prefix),
                name: stringify!($field),
                kind: $kind,
                default: $default,
                laptop: laptop!($($laptop)?),
                scope: Scope::$scope,
                help: &[$($help),+],
            },
        )+)+];

        /// The sections and what they are about; the first has no name.
        pub const SECTIONS: &[(&str, &[&str])] = &[$((section_of($prefix), &[$($section_help),+])),+];

        impl Settings {
            /// From one checked value for each row of [`SETTINGS`], in its order.
            ///
            /// # Panics
            /// If a row's kind and type do not fit: a defect of the table, which a test would find.
            #[must_use]
            pub fn from_values<'v>(values: impl IntoIterator<Item = &'v Value>) -> Self {
                let mut values = values.into_iter();
                Self {
                    $($section: $type {
                        $($field: values.next().and_then(Field::from_value).expect(concat!($prefix, stringify!($field), ": its kind fills its field")),)+
                    },)+
                }
            }
        }
    };
}

macro_rules! laptop {
    () => {
        None
    };
    ($value:literal) => {
        Some($value)
    };
}

/// `wire` from `wire.`; nothing from nothing.
const fn section_of(prefix: &'static str) -> &'static str {
    match prefix.as_bytes() {
        [] => prefix,
        [.., _] => prefix.split_at(prefix.len() - 1).0,
    }
}

const SECOND: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;

settings! {
    /// Who may speak, and where things are kept.
    cluster(""): Cluster {
        /// `keyed`: every datagram is authenticated. `none`: whoever reaches a port can order and forge; only for
        /// networks where nobody else is.
        auth: Auth = "keyed", Shared, Kind::Choice(Auth::WORDS);
        /// The cluster key: 32 bytes, mode 600, the same on every host (`ordain keygen`).
        key: PathBuf = "cluster.key", Local, Kind::Path;
        /// Where a server keeps what must outlive it; `{id}` stands for its id.
        state_dir: PathBuf = "state-{id}", Local, Kind::Path;
    }
    /// What travels between servers and clients.
    wire("wire."): Wire {
        /// Largest datagram without IP and UDP headers; what the path carries unfragmented (MTU less 28, IPv6 less 48).
        payload: usize = "1472", Shared, Kind::Bytes { min: PAYLOAD_MIN as u64, max: PAYLOAD_MAX as u64 };
    }
    /// How frames and headers are sent.
    broadcast("broadcast."): Broadcast {
        /// How long a missing frame may still be on its way before it is asked for.
        omega: Span = "100us", Local, Kind::Duration { min: 1_000, max: SECOND };
        /// How often an idle server sends its header.
        beat: Span = "10ms", Local, Kind::Duration { min: 100_000, max: SECOND };
        /// How long an acknowledgement may wait, under load, for a frame to ride on.
        ack_delay: Span = "20us", Local, Kind::Duration { min: 0, max: 10_000_000 };
    }
    /// What is kept, all of it allocated at start.
    ledger("ledger."): Ledger {
        /// Defaults for sizes, here and below: `standard`, or `laptop` for small and shared machines (64 MB a server).
        profile: Profile = "standard", Local, Kind::Choice(Profile::WORDS);
        /// Records kept, for retries, histories and queries.
        retain_entries: usize = "1000000" / "200000", Shared, Kind::Count { min: 1_000, max: 1 << 28, unit: "entries" };
        /// Participants of all kept records together; when these are full, records go earlier.
        retain_parts: usize = "3000000" / "600000", Shared, Kind::Count { min: 1_000, max: 1 << 30, unit: "participants" };
        /// Frames kept for servers that lag.
        frames: usize = "16MiB" / "8MiB", Local, Kind::Bytes { min: MIB, max: 4_096 * MIB };
        /// Sessions of all clients together.
        sessions: usize = "16384" / "4096", Shared, Kind::Count { min: 1, max: 1 << 20, unit: "sessions" };
        /// Sessions of one principal.
        sessions_per_key: usize = "4096", Shared, Kind::Count { min: 1, max: 1 << 20, unit: "sessions" };
        /// How old a session may be when first used, and how long an unused one is safe from eviction.
        session_ttl: Span = "60s", Shared, Kind::Duration { min: SECOND, max: 86_400 * SECOND };
        /// Distinct participant ids.
        participants: usize = "262144" / "65536", Shared, Kind::Count { min: 1, max: 1 << 28, unit: "ids" };
    }
    /// How a server uses its processors and sockets.
    engine("engine."): Engine {
        /// How an idle core waits: `spin`, `hybrid` (spin, then sleep), `park` (sleep), or `auto` by the processors at hand.
        waiting: Waiting = "auto", Local, Kind::Choice(Waiting::WORDS);
        /// Which roles share a core (`+`), which cores there are (`|`), on which processor each runs (`@`): `order+ingress`,
        /// `order@2 | ingress@3 | ingress@4`. Several `ingress` share the client port, each with its own part of the clients.
        /// `house`, the log, may be given a processor: `order@2 | ingress@3 | house@0`. `auto`: by the processors at hand and
        /// the servers of the cluster that share them; none is pinned.
        map: Option<Map> = "auto", Local, Kind::Map;
        /// Buffers into which each socket receives.
        receive_buffers: usize = "1024" / "256", Local, Kind::Power { min: 64, max: 32_768, unit: "datagrams" };
        /// Buffers from which each core sends.
        send_buffers: usize = "1024" / "256", Local, Kind::Power { min: 64, max: 32_768, unit: "datagrams" };
        /// Buffer of each socket in the kernel (its limit is net.core.rmem_max and wmem_max).
        socket_buffer: usize = "4MiB", Local, Kind::Bytes { min: 65_536, max: 1_024 * MIB };
        /// Real-time scheduling (SCHED_FIFO); needs CAP_SYS_NICE.
        fifo: bool = "false", Local, Kind::Flag;
    }
    /// What is refused when there is too much of it.
    limits("limits."): Limits {
        /// Requests of clients that are being ordered; beyond, `overloaded`.
        requests_in_flight: usize = "65536" / "8192", Local, Kind::Count { min: 64, max: 1 << 22, unit: "requests" };
        /// Slots of each ring between roles.
        ring_depth: usize = "4096" / "1024", Local, Kind::Power { min: 64, max: 1 << 20, unit: "slots" };
    }
}

/// The row of a key.
#[must_use]
pub fn find(key: &str) -> Option<(usize, &'static Setting)> {
    SETTINGS.iter().enumerate().find(|(_, setting)| setting.key == key)
}

/// The known key or section that `key` is most like, if any is.
#[must_use]
pub fn nearest<'k>(key: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let last = |key: &str| key.rsplit('.').next().map(str::to_owned);
    let closeness = |candidate: &'k str| {
        let misplaced = last(candidate) == last(key);
        let distance = if misplaced { 1 } else { distance(candidate, key) };
        (distance, candidate)
    };
    let (least, nearest) = known.into_iter().map(closeness).min_by_key(|(distance, _)| *distance)?;
    (least <= (key.len() / 3).max(2)).then_some(nearest)
}

/// Edits (insert, remove, replace) between two words (Levenshtein 1966).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaults(pick: impl Fn(&Setting) -> &'static str) -> Vec<Value> {
        let read = |setting: &Setting| setting.kind.parse(pick(setting)).ok_or(setting.key);
        SETTINGS.iter().map(read).collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn defaults_are_in_range_and_fill_their_fields() {
        let standard = Settings::from_values(&defaults(|setting| setting.default));
        assert_eq!((standard.wire.payload, standard.ledger.retain_entries), (1472, 1_000_000));
        assert_eq!((standard.broadcast.omega, standard.broadcast.beat), (Span::micros(100), Span::millis(10)));
        assert_eq!(
            (standard.engine.map.clone(), standard.engine.fifo, standard.cluster.auth),
            (None, false, Auth::Keyed)
        );
        let laptop = Settings::from_values(&defaults(|setting| setting.laptop.unwrap_or(setting.default)));
        assert_eq!((laptop.ledger.retain_entries, laptop.limits.ring_depth), (200_000, 1_024));
    }

    #[test]
    fn keys_are_unique_and_defaults_written_as_shown() {
        for setting in SETTINGS {
            assert_eq!(SETTINGS.iter().filter(|other| other.key == setting.key).count(), 1, "{}", setting.key);
            let value = setting.kind.parse(setting.default).unwrap();
            assert_eq!(setting.kind.show(&value), setting.default, "{}", setting.key);
        }
    }

    #[test]
    fn unknown_keys_have_a_nearest_known_one() {
        let near = |key| nearest(key, SETTINGS.iter().map(|setting| setting.key));
        assert_eq!(near("broadcast.omga"), Some("broadcast.omega"));
        assert_eq!(near("wire.paylod"), Some("wire.payload"));
        assert_eq!(near("omega"), Some("broadcast.omega"));
        assert_eq!(near("xyzzy.plugh.q"), None);
    }
}
