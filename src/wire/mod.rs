//! Datagrams: layout, limits, authentication.
//!
//! Everything that travels is one UDP datagram: an envelope of 40 bytes, messages, a tag of 16 bytes over all before it.
//! All integers are little-endian; nothing is aligned, nothing is padded beyond what is drawn. This version is
//! [`VERSION`]; the set of messages belongs to the version, so an unknown message type is an error.
//!
//! | where | what is drawn there |
//! |---|---|
//! | [`envelope`] | the first 40 bytes and the tag, for servers and for clients |
//! | [`bytes`] | the head of a message: type, aux, length |
//! | [`auth`] | keys, principals, how the tag is made |
//! | [`peer`], [`header`], [`frame`], [`config`], [`genesis`], [`change`] | messages among servers |
//! | [`client`], [`answer`], [`records`] | messages between clients and servers |
//!
//! **To write a client**, read [`client`] first; it says who sends what when.
//!
//! **Why by hand.** The layout is a contract with programs in other languages. Parsing copies nothing it need not:
//! views borrow from the datagram.
//!
//! **Invariants.** A body is validated once, by `parse`; iterating over what it returned cannot fail. Bad bytes never
//! panic. Every message is written whole or not at all, and no writer allocates.
//!
//! **Limits** are the constants below. **Not here**: sockets (`engine`), what messages mean (`protocol`).

pub mod answer;
pub mod auth;
pub mod builder;
pub mod bytes;
pub mod change;
pub mod client;
pub mod config;
pub mod envelope;
pub mod error;
pub mod frame;
pub mod genesis;
pub mod header;
pub mod participants;
pub mod peer;
pub mod records;

pub use bytes::{BodyWriter, Few, Full};
pub use envelope::{
    ClientEnvelope, Kind, Opened, PeerEnvelope, open_client, open_peer, open_server, seal_client, seal_peer,
    seal_server,
};
pub use error::{DropReason, WireError};
pub use participants::Participants;

/// First two bytes of every datagram: `4f 44`, "OD".
pub const MAGIC: u16 = u16::from_le_bytes(*b"OD");
/// Version of the layouts drawn here.
pub const VERSION: u8 = 1;
/// Bytes before the body.
pub const ENVELOPE_LEN: usize = 40;
/// Bytes of a datagram that are not body.
pub const OVERHEAD: usize = ENVELOPE_LEN + auth::TAG_LEN;
/// Least UDP payload that can be configured: every message must fit, the widest being a header with the longest entry.
pub const PAYLOAD_MIN: usize = 592;
/// UDP payload of an Ethernet packet: 1500 less IP and UDP heads.
pub const PAYLOAD_DEFAULT: usize = 1472;
/// Most UDP payload that can be configured: a jumbo packet. Longer datagrams are dropped.
pub const PAYLOAD_MAX: usize = 8972;

const _: () =
    assert!(PAYLOAD_MIN < PAYLOAD_DEFAULT && PAYLOAD_DEFAULT < PAYLOAD_MAX && PAYLOAD_MAX < u16::MAX as usize);

/// Most bytes of messages in a datagram of `payload` bytes.
#[must_use]
pub const fn body_max(payload: usize) -> usize {
    payload.saturating_sub(OVERHEAD)
}
