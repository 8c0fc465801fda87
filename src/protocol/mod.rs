//! The ordering protocol, pure: messages and time in, messages and timers out.
//!
//! This file holds the words the whole house shares: time stamps, numbers, names, limits, refusals.
//!
//! **Why pure.** No sockets, threads, clocks or randomness of its own, no std: every run can be replayed from a seed,
//! and the same code runs under the engine and under the simulator.
//!
//! **Limits** are the constants below; each is tied to the others by a const assertion where they depend.

use core::fmt;

pub mod acks;
pub mod config;
pub mod genesis;
pub mod hlc;
pub mod inflight;
pub mod ledger;
pub mod machine;
pub mod merge;
mod normal;
pub mod plant;
pub mod repair;
pub mod store;
pub mod stream;

/// Most servers in a cluster (1, 3, 5 or 7).
pub const SERVERS_MAX: usize = 7;
/// Most rows of a configuration: every place's old stream closed and a new one opened.
pub const ROWS_MAX: usize = 2 * SERVERS_MAX;
/// Most participants of a transaction.
pub const PARTICIPANTS_MAX: usize = 64;
/// Deepest history that can be asked for.
pub const HISTORY_MAX: usize = 16;
/// Last request numbers of a session that are remembered; also the most a client may have in flight in one session.
pub const WINDOW: usize = 64;

const _: () = assert!(ROWS_MAX <= u8::MAX as usize && PARTICIPANTS_MAX <= 64 && SERVERS_MAX <= 8);

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $unit:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($inner);

        impl $name {
            /// Wraps a plain number.
            #[must_use]
            pub const fn new(value: $inner) -> Self {
                Self(value)
            }
            /// The plain number.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("{}", $unit), self.0)
            }
        }
    };
}

number!(
    /// Nanoseconds of cluster time: what entries are stamped with. Zero is before everything.
    Timestamp(u64), " ns"
);
number!(
    /// Nanoseconds of this host's monotonic clock; never compared with another host's, nor with a [`Timestamp`].
    LocalTime(u64), " ns (local)"
);
number!(
    /// A length of time in nanoseconds.
    Span(u64), " ns"
);
number!(
    /// Position in the one total order, dense from 1. Zero: none.
    OrderNo(u64), ""
);
number!(
    /// Position in one participant's own sequence, dense from 1. Zero: none.
    ParticipantSeq(u64), ""
);
number!(
    /// Number of a frame in its stream, dense from 1. As a length: how many frames are held without a gap.
    FrameNo(u64), ""
);
number!(
    /// Number of a configuration.
    Epoch(u32), ""
);
number!(
    /// A request's number in its session, from 1.
    RequestNo(u64), ""
);
number!(
    /// A participant's id, chosen by the users.
    NodeId(u32), ""
);

impl Timestamp {
    /// The next instant.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
    /// Later by `span`, saturating at the end of time.
    #[must_use]
    pub const fn plus(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
    /// How long after `earlier`; zero if it is not after.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl LocalTime {
    /// Never reached: the deadline of what has none.
    pub const NEVER: Self = Self(u64::MAX);
    /// Later by `span`, saturating at [`LocalTime::NEVER`].
    #[must_use]
    pub const fn plus(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
    /// How long after `earlier`; zero if it is not after.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// From microseconds.
    #[must_use]
    pub const fn micros(us: u64) -> Self {
        Self(us * 1_000)
    }
    /// From milliseconds.
    #[must_use]
    pub const fn millis(ms: u64) -> Self {
        Self(ms * 1_000_000)
    }
    /// From seconds.
    #[must_use]
    pub const fn secs(s: u64) -> Self {
        Self(s * 1_000_000_000)
    }
}

impl OrderNo {
    /// The number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl ParticipantSeq {
    /// The number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl FrameNo {
    /// The number after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Epoch {
    /// The epoch after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A server's place in the configuration, 0..n-1. People see ids 1..n, and so does `Display`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(u8);

impl ServerId {
    /// From a place, 0..[`SERVERS_MAX`]; `None` beyond.
    #[must_use]
    pub fn from_place(place: usize) -> Option<Self> {
        if place < SERVERS_MAX { u8::try_from(place).ok().map(Self) } else { None }
    }
    /// The place, 0..n-1: an index.
    #[must_use]
    pub const fn place(self) -> usize {
        self.0 as usize
    }
    /// The place as it travels.
    #[must_use]
    pub const fn byte(self) -> u8 {
        self.0
    }
    /// The id people use, 1..n.
    #[must_use]
    pub const fn id(self) -> u8 {
        self.0 + 1
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id())
    }
}

/// One life of a server process: random, never zero once drawn. Zero in a configuration: the place is vacant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(u64);

impl Incarnation {
    /// Wraps a plain number.
    #[must_use]
    pub const fn new(value: u64) -> Self {
        Self(value)
    }
    /// The plain number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// One life of the cluster's numbering: random at genesis. Zero: none known. A change of it means numbers begin anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instance(u64);

impl Instance {
    /// Before genesis, or not known yet.
    pub const NONE: Self = Self(0);
    /// Wraps a plain number.
    #[must_use]
    pub const fn new(value: u64) -> Self {
        Self(value)
    }
    /// The plain number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A stream: one server's numbered frames, opened by epoch `opened`. One writer, one life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Who writes it.
    pub server: ServerId,
    /// The epoch that opened it (`g`).
    pub opened: Epoch,
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({},{})", self.server, self.opened)
    }
}

/// Who is authenticated and treated fairly: a Tx host, by name. This is the name's 64-bit digest (`wire::auth`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(u64);

impl Principal {
    /// Wraps a digest.
    #[must_use]
    pub const fn new(value: u64) -> Self {
        Self(value)
    }
    /// The digest.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A client's session: when it was created, in cluster time as told by the server that was contacted, and a random
/// part. 16 bytes on the wire: both little-endian, creation first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    /// Cluster time of creation.
    pub created: Timestamp,
    /// Random.
    pub nonce: u64,
}

impl SessionId {
    /// The 16 bytes that travel.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.created.get()) | (u128::from(self.nonce) << 64)).to_le_bytes()
    }
    /// From the 16 bytes that travel.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let (low, high) = bytes.split_at(8);
        let word = |half: &[u8]| half.iter().rev().fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
        Self { created: Timestamp::new(word(low)), nonce: word(high) }
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A transaction's id: 16 bytes chosen by its Tx host, UUID-sized.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxId([u8; 16]);

impl TxId {
    /// Wraps the bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
    /// The bytes.
    #[must_use]
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for TxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Why a request got no number. The discriminant is the code on the wire; [`Refusal::name`] is the word in traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Refusal {
    /// The server's queues are full: come back later.
    Overloaded = 1,
    /// The server hears fewer than a majority.
    NoQuorum = 2,
    /// The server is no member of the cluster (a fresh process, or draining).
    NotMember = 3,
    /// The request number is too old for its session's window, or its record is past retention.
    WindowExceeded = 4,
    /// The session is older than its time to live, from the future, or another principal's.
    SessionUnknown = 5,
    /// No room for another session, in all or of this principal.
    SessionsFull = 6,
    /// No room for another participant id.
    ParticipantsFull = 7,
    /// This request number was used for another transaction or other participants.
    RequestDiffers = 8,
    /// This transaction has a place already, with other participants or another order of them.
    TxDiffers = 9,
    /// The request's content is not allowed; the detail says what.
    Malformed = 10,
    /// The request is meant for another instance.
    WrongInstance = 11,
    /// A wire version this server does not speak.
    Version = 12,
}

impl Refusal {
    /// All refusals, by code.
    pub const ALL: [Self; 12] = [
        Self::Overloaded,
        Self::NoQuorum,
        Self::NotMember,
        Self::WindowExceeded,
        Self::SessionUnknown,
        Self::SessionsFull,
        Self::ParticipantsFull,
        Self::RequestDiffers,
        Self::TxDiffers,
        Self::Malformed,
        Self::WrongInstance,
        Self::Version,
    ];

    /// The code on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// From the code on the wire.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|refusal| refusal.code() == code)
    }

    /// The word in traces and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Overloaded => "overloaded",
            Self::NoQuorum => "no_quorum",
            Self::NotMember => "not_member",
            Self::WindowExceeded => "window_exceeded",
            Self::SessionUnknown => "session_unknown",
            Self::SessionsFull => "sessions_full",
            Self::ParticipantsFull => "participants_full",
            Self::RequestDiffers => "request_differs",
            Self::TxDiffers => "tx_differs",
            Self::Malformed => "malformed",
            Self::WrongInstance => "wrong_instance",
            Self::Version => "version",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
