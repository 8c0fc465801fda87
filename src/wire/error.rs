//! What can be wrong with a datagram: [`WireError`] under a valid tag, [`DropReason`] for the counters.
//!
//! **Why two.** Nothing unauthenticated is ever answered, so before the tag is verified a reason is only counted;
//! under a valid tag the sender is one of us, and the error says which byte of which message is at odds with what.
//! **Invariants**: the index of a [`DropReason`] never changes its meaning (counters are kept by it).
//! **Not here**: a request whose *content* is not allowed, which is answered ([`super::client::Fault`]).

use core::fmt;

/// Why a body under a valid tag cannot be read. A defect of the sender, or of the network between tag and sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Fewer bytes are left than a message head has.
    #[error("{left} bytes left after the last message, a message head has 4")]
    Head {
        /// Bytes left.
        left: usize,
    },
    /// A message claims to be longer than the body.
    #[error("message {kind:#04x} claims {length} bytes, the datagram has {left} left")]
    Overrun {
        /// Message type.
        kind: u8,
        /// Claimed payload length.
        length: usize,
        /// Bytes left after the head.
        left: usize,
    },
    /// A message type that this version does not have, or not in this direction.
    #[error("message type {kind:#04x} is not one of this version and direction")]
    Unknown {
        /// Message type.
        kind: u8,
    },
    /// The `aux` byte of a message that has no use for it.
    #[error("message {kind:#04x} has aux {aux}, which must be 0")]
    Aux {
        /// Message type.
        kind: u8,
        /// The byte.
        aux: u8,
    },
    /// The payload ends too early.
    #[error("message {kind:#04x} has {got} bytes, needs at least {need}")]
    Short {
        /// Message type.
        kind: u8,
        /// Bytes needed at least.
        need: usize,
        /// Bytes there.
        got: usize,
    },
    /// The payload goes on after its end.
    #[error("message {kind:#04x} has {got} bytes, its fields end at {want}")]
    Long {
        /// Message type.
        kind: u8,
        /// Where its fields end.
        want: usize,
        /// Bytes there.
        got: usize,
    },
    /// A reserved byte, or a field that must be zero here, is not.
    #[error("message {kind:#04x}: {field} must be zero")]
    NotZero {
        /// Message type.
        kind: u8,
        /// Which field.
        field: &'static str,
    },
    /// A field outside its range.
    #[error("message {kind:#04x}: {field} is {value}, allowed are {low}..={high}")]
    Range {
        /// Message type.
        kind: u8,
        /// Which field.
        field: &'static str,
        /// What it says.
        value: u64,
        /// Least allowed.
        low: u64,
        /// Most allowed.
        high: u64,
    },
    /// Entries of a frame whose timestamps do not rise.
    #[error("entry {index} of a frame is {delta} ns after the first, the entry before it {before} ns")]
    EntryOrder {
        /// Which entry, from 0.
        index: u16,
        /// Its delta.
        delta: u32,
        /// The delta before it.
        before: u32,
    },
    /// A participant twice in one transaction.
    #[error("participant {id} appears twice in entry {index}")]
    ParticipantTwice {
        /// Which entry, from 0.
        index: u16,
        /// Who.
        id: u32,
    },
    /// A configuration with two rows that exclude each other.
    #[error("configuration: rows {first} and {second} are the same stream, or both open at one place")]
    Rows {
        /// A row.
        first: usize,
        /// A later row.
        second: usize,
    },
    /// A principal's name with a character that names do not have.
    #[error("message {kind:#04x}: byte {byte:#04x} in a name, allowed are A-Z a-z 0-9 . _ -")]
    Name {
        /// Message type.
        kind: u8,
        /// The byte.
        byte: u8,
    },
}

/// Why a datagram was dropped without an answer. [`DropReason::index`] is stable: counters are kept by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// Shorter than envelope and tag.
    TooShort = 0,
    /// Longer than [`super::PAYLOAD_MAX`].
    TooLong = 1,
    /// Does not begin with [`super::MAGIC`].
    Magic = 2,
    /// Another version (of a peer; a client's version is answered once its tag is verified).
    Version = 3,
    /// Not of the kind that this socket takes.
    Kind = 4,
    /// A place that no server can have.
    Place = 5,
    /// A server's datagram for another principal than this client's.
    Principal = 6,
    /// The tag does not verify.
    Tag = 7,
    /// Valid, but its sender is the receiver's own place: a reflection.
    Own = 8,
    /// Valid, but of another instance of the cluster.
    Instance = 9,
    /// Valid, but its messages cannot be read ([`WireError`]).
    Malformed = 10,
}

impl DropReason {
    /// How many there are: the size of a table of counters.
    pub const COUNT: usize = Self::ALL.len();

    /// All of them, by index.
    pub const ALL: [Self; 11] = [
        Self::TooShort,
        Self::TooLong,
        Self::Magic,
        Self::Version,
        Self::Kind,
        Self::Place,
        Self::Principal,
        Self::Tag,
        Self::Own,
        Self::Instance,
        Self::Malformed,
    ];

    /// Its index in a table of counters.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The word in statistics and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooShort => "too_short",
            Self::TooLong => "too_long",
            Self::Magic => "magic",
            Self::Version => "version",
            Self::Kind => "kind",
            Self::Place => "place",
            Self::Principal => "principal",
            Self::Tag => "tag",
            Self::Own => "own",
            Self::Instance => "instance",
            Self::Malformed => "malformed",
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
