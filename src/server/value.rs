//! How values of settings are written, read, ranged and shown.
//!
//! Durations are a number and a unit (`50us`, `500ms`, `10s`), sizes a number of bytes, with or without a unit
//! (`1472`, `16MiB`); counts may have underscores (`1_000_000`).
//!
//! **Why one text form.** A value reads the same in the file, after `--set`, as a default and in `config show`, so one
//! reader and one writer serve all four; what is shown can be pasted into the file.
//! **Invariants.** [`Kind::show`] of a value reads back as that value. No float is involved, so nothing is rounded.
//! **Limits.** Numbers are `u64`; one that does not fit is out of range.
//! **Not here**: which settings there are (`settings`).

use std::path::PathBuf;

use super::map::Map;
use crate::protocol::Span;

const DURATIONS: [(&str, u64); 5] =
    [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000), ("min", 60_000_000_000)];
const SIZES: [(&str, u64); 7] =
    [("", 1), ("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("kB", 1_000), ("MB", 1_000_000)];

/// A value that was read: in nanoseconds, bytes or pieces, or a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number, in the least unit of its kind.
    Number(u64),
    /// A word, or a path.
    Word(String),
}

/// What a setting's value may be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A whole number of things called `unit`.
    Count {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
        /// What is counted.
        unit: &'static str,
    },
    /// A power of two of things called `unit`: the size of a ring.
    Power {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
        /// What is counted.
        unit: &'static str,
    },
    /// `auto`, or a whole number.
    AutoOr {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
        /// What is counted.
        unit: &'static str,
    },
    /// A length of time; limits in nanoseconds.
    Duration {
        /// The shortest.
        min: u64,
        /// The longest.
        max: u64,
    },
    /// A size in bytes.
    Bytes {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// The path of a file or directory; a relative one starts at the configuration file.
    Path,
    /// `auto`, or which roles run together on which core (`map`).
    Map,
    /// A host: an address or a name that resolves to one.
    Host,
}

impl Kind {
    /// Reads a value; `None` if it is not one of this kind, or out of range.
    #[must_use]
    pub fn parse(&self, text: &str) -> Option<Value> {
        let within = |number: u64, min, max| (min..=max).contains(&number).then_some(Value::Number(number));
        match *self {
            Self::Count { min, max, .. } => within(whole(text)?, min, max),
            Self::Power { min, max, .. } => {
                within(whole(text)?, min, max).filter(|_| whole(text).is_some_and(u64::is_power_of_two))
            }
            Self::AutoOr { .. } if text == "auto" => Some(Value::Word("auto".to_owned())),
            Self::AutoOr { min, max, .. } => within(whole(text)?, min, max),
            Self::Duration { min, max } => within(with_unit(text, &DURATIONS)?, min, max),
            Self::Bytes { min, max } => within(with_unit(text, &SIZES)?, min, max),
            Self::Flag => matches!(text, "true" | "false").then(|| Value::Number(u64::from(text == "true"))),
            Self::Choice(words) => words.contains(&text).then(|| Value::Word(text.to_owned())),
            Self::Path => (!text.is_empty() && !text.contains(['\0', '\n'])).then(|| Value::Word(text.to_owned())),
            Self::Map if text == "auto" => Some(Value::Word(text.to_owned())),
            Self::Map => Map::parse(text).map(|map| Value::Word(map.to_string())),
            Self::Host => is_host(text).then(|| Value::Word(text.to_owned())),
        }
    }

    /// Writes a value as it is written in the file, without quotes.
    #[must_use]
    pub fn show(&self, value: &Value) -> String {
        match (self, value) {
            (_, Value::Word(word)) => word.clone(),
            (Self::Duration { .. }, Value::Number(ns)) => largest_unit(*ns, &DURATIONS),
            (Self::Bytes { .. }, Value::Number(bytes)) => largest_unit(*bytes, &SIZES[2..5]),
            (Self::Flag, Value::Number(flag)) => (*flag != 0).to_string(),
            (_, Value::Number(number)) => number.to_string(),
        }
    }

    /// What is allowed, for people.
    #[must_use]
    pub fn allowed(&self) -> String {
        let show = |number| self.show(&Value::Number(number));
        match *self {
            Self::Count { min, max, unit } => format!("{min} to {max} {unit}"),
            Self::Power { min, max, unit } => format!("a power of two, {min} to {max} {unit}"),
            Self::AutoOr { min, max, unit } => format!("auto, or {min} to {max} ({unit})"),
            Self::Duration { min, max } => format!("{} to {} with its unit (ns, us, ms, s, min)", show(min), show(max)),
            Self::Bytes { min, max } => format!("{} to {} (bytes, or with KiB, MiB, GiB)", show(min), show(max)),
            Self::Flag => "true or false".to_owned(),
            Self::Choice(words) => words.join(" or "),
            Self::Path => "a path".to_owned(),
            Self::Map => {
                "auto, or cores like `order@2 | ingress@3`: one order, 1 to 8 ingress, `+` between roles of one \
                          core, house alone if named"
                    .to_owned()
            }
            Self::Host => "an address that the others can reach, or a name of it".to_owned(),
        }
    }

    /// The unit, for people.
    #[must_use]
    pub const fn unit(&self) -> &'static str {
        match *self {
            Self::Count { unit, .. } | Self::Power { unit, .. } | Self::AutoOr { unit, .. } => unit,
            Self::Duration { .. } => "time",
            Self::Bytes { .. } => "bytes",
            Self::Flag => "true or false",
            Self::Choice(_) => "word",
            Self::Path => "path",
            Self::Map => "roles by core",
            Self::Host => "host",
        }
    }
}

/// A value as TOML: numbers, sizes in plain bytes and flags bare, all else in quotes.
#[must_use]
pub fn literal(text: &str) -> String {
    if whole(text).is_some() || matches!(text, "true" | "false") { text.to_owned() } else { quoted(text) }
}

/// A text as TOML, in quotes whatever it says: hosts and paths.
#[must_use]
pub fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn whole(text: &str) -> Option<u64> {
    let digits = text.as_bytes();
    let (first, last) = (digits.first()?, digits.last()?);
    if !first.is_ascii_digit() || !last.is_ascii_digit() || !digits.iter().all(|b| b.is_ascii_digit() || *b == b'_') {
        return None;
    }
    text.replace('_', "").parse().ok()
}

fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit.trim())?;
    whole(digits)?.checked_mul(*factor)
}

/// In the largest of `units` (rising) that divides it; sizes below the first stay plain.
fn largest_unit(number: u64, units: &[(&str, u64)]) -> String {
    let fits = |factor: u64| number >= factor && number.is_multiple_of(factor);
    match units.iter().rev().find(|(name, factor)| fits(*factor) && *name != "min") {
        Some((name, factor)) => format!("{}{name}", number / factor),
        None => match units.first() {
            Some((name, 1)) => format!("{number}{name}"),
            _ => number.to_string(),
        },
    }
}

/// Allowed as a host: something that can be dialled. Not "all addresses", which others cannot.
fn is_host(text: &str) -> bool {
    match text.parse::<std::net::IpAddr>() {
        Ok(address) => !address.is_unspecified() && !address.is_multicast(),
        Err(_) => {
            let named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            let numeric = text.chars().all(|c| c.is_ascii_digit() || c == '.');
            !text.is_empty() && text.len() <= 253 && text.chars().all(named) && !numeric
        }
    }
}

/// A typed field that a checked [`Value`] fills.
pub trait Field: Sized {
    /// From a value of the kind declared with the field; `None` if kind and field do not fit (a defect of the table).
    fn from_value(value: &Value) -> Option<Self>;
}

impl Field for u64 {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Number(number) = value { Some(*number) } else { None }
    }
}

impl Field for usize {
    fn from_value(value: &Value) -> Option<Self> {
        Self::try_from(u64::from_value(value)?).ok()
    }
}

impl Field for Option<usize> {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Word(word) if word == "auto" => Some(None),
            _ => usize::from_value(value).map(Some),
        }
    }
}

impl Field for bool {
    fn from_value(value: &Value) -> Option<Self> {
        u64::from_value(value).map(|number| number != 0)
    }
}

impl Field for Span {
    fn from_value(value: &Value) -> Option<Self> {
        u64::from_value(value).map(Self::new)
    }
}

impl Field for PathBuf {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Word(word) = value { Some(Self::from(word)) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Kind = Kind::Duration { min: 0, max: 3_600_000_000_000 };
    const SIZE: Kind = Kind::Bytes { min: 0, max: 1 << 40 };

    #[test]
    fn durations_and_sizes_read_with_their_units() {
        for (text, ns) in
            [("50us", 50_000), ("500ms", 500_000_000), ("10s", 10_000_000_000), ("7 ns", 7), ("1min", 60_000_000_000)]
        {
            assert_eq!(TIME.parse(text), Some(Value::Number(ns)), "{text}");
        }
        for (text, bytes) in [("16MiB", 16 << 20), ("1472", 1472), ("1_000", 1000), ("64 KiB", 65_536), ("2kB", 2000)] {
            assert_eq!(SIZE.parse(text), Some(Value::Number(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_or_has_no_unit_is_refused() {
        for text in ["", "10", "-1s", "1.5s", "s", "10 sec", "_1s", "99999999999999999999s", "18446744073709551615s"] {
            assert_eq!(TIME.parse(text), None, "{text}");
        }
        for text in ["", "-1", "1e6", "MiB", "12 MB/s", "0x10"] {
            assert_eq!(SIZE.parse(text), None, "{text}");
        }
        let ring = Kind::Power { min: 2, max: 8, unit: "slots" };
        assert_eq!((ring.parse("4"), ring.parse("6"), ring.parse("16")), (Some(Value::Number(4)), None, None));
    }

    #[test]
    fn shown_values_read_back() {
        for number in [0, 1, 999, 1000, 1_500, 20_000, 60_000_000_000, 90_000_000_000, 1 << 20, (1 << 20) + 1, 3 << 30]
        {
            for kind in [TIME, SIZE] {
                let shown = kind.show(&Value::Number(number));
                assert_eq!(kind.parse(&shown), Some(Value::Number(number)), "{shown}");
            }
        }
        assert_eq!(TIME.show(&Value::Number(1_500)), "1500ns");
        assert_eq!(SIZE.show(&Value::Number(16 << 20)), "16MiB");
    }

    #[test]
    fn hosts_are_what_others_can_dial() {
        for host in ["127.0.0.1", "::1", "db-1.example.org", "tx_host"] {
            assert!(Kind::Host.parse(host).is_some(), "{host}");
        }
        for host in ["", "0.0.0.0", "::", "224.0.0.1", "10.0.0", "10.0.0.256", "a b", "a:7100", "a/b"] {
            assert!(Kind::Host.parse(host).is_none(), "{host}");
        }
    }
}
