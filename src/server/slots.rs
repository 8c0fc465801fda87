//! What the roles of a server say to each other: fixed slots of the rings between them.
//!
//! **Why.** A slot is filled in place and read in place; a request of two participants touches two cache lines of it,
//! whatever the largest could need. Answers cross as the bytes that will travel, so only one role encodes.
//! **Limits**: a request's participants and an answer's longest single part fit, by const assertion.
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use crate::engine::sync::{Arc, AtomicU8, Ordering};
use crate::protocol::{Instance, LocalTime, PARTICIPANTS_MAX, Principal, RequestNo, SessionId, TxId};
use crate::wire::answer::{ANSWER_HEAD_LEN, PART_LEN_MAX};
use crate::wire::bytes::HEAD_LEN;

/// Bytes of one encoded message to a client.
pub const MESSAGE_MAX: usize = 448;

const _: () = assert!(HEAD_LEN + ANSWER_HEAD_LEN + PART_LEN_MAX <= MESSAGE_MAX);

const NOWHERE: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

/// Where an answer goes: one client's address, and for whom it is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The client's address, as its datagram showed it.
    pub address: SocketAddr,
    /// Whose key.
    pub principal: Principal,
    /// In which session.
    pub session: SessionId,
}

impl Default for Reply {
    fn default() -> Self {
        Self { address: NOWHERE, principal: Principal::default(), session: SessionId::default() }
    }
}

/// What a client wants of the order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Want {
    /// A session; the nonce matches the answer to it.
    #[default]
    Open,
    /// A place for a transaction.
    Place,
}

/// From a client, by way of ingress, to order.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Where the answer goes.
    pub reply: Reply,
    /// What is wanted.
    pub want: Want,
    /// The nonce of an OPEN, or the number of a request.
    pub number: u64,
    /// The transaction.
    pub tx: TxId,
    /// How deep a history.
    pub depth: u8,
    /// The instance the client believes in.
    pub instance: Instance,
    /// When ingress was handed it.
    pub at: LocalTime,
    len: u16,
    participants: [u8; 4 * PARTICIPANTS_MAX],
}

impl Default for Asked {
    fn default() -> Self {
        Self {
            reply: Reply::default(),
            want: Want::default(),
            number: 0,
            tx: TxId::default(),
            depth: 0,
            instance: Instance::NONE,
            at: LocalTime::default(),
            len: 0,
            participants: [0; 4 * PARTICIPANTS_MAX],
        }
    }
}

impl Asked {
    /// The request's number.
    #[must_use]
    pub fn request(&self) -> RequestNo {
        RequestNo::new(self.number)
    }

    /// The participants' ids as they travelled.
    #[must_use]
    pub fn participants(&self) -> &[u8] {
        &self.participants[..usize::from(self.len)]
    }

    /// Takes over the participants' ids; those of a validated request always fit.
    pub fn set_participants(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(self.participants.len());
        self.participants[..len].copy_from_slice(&bytes[..len]);
        self.len = u16::try_from(len).unwrap_or(0);
    }
}

/// From order to a client, by way of ingress: one encoded message.
#[derive(Clone, Debug)]
pub struct Told {
    /// Whom it is for.
    pub reply: Reply,
    /// The instance to name in the envelope.
    pub instance: Instance,
    /// When `order` told it: the turn that delivered the entry.
    pub at: LocalTime,
    /// How many of `bytes` are in use.
    pub len: usize,
    /// The message, with its head.
    pub bytes: [u8; MESSAGE_MAX],
}

impl Default for Told {
    fn default() -> Self {
        let (instance, at) = (Instance::NONE, LocalTime::default());
        Self { reply: Reply::default(), instance, at, len: 0, bytes: [0; MESSAGE_MAX] }
    }
}

impl Told {
    /// The message.
    #[must_use]
    pub fn message(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Says that `order` has ended, so that nothing more will be told.
#[derive(Clone, Debug, Default)]
pub struct Done(Arc<AtomicU8>);

impl Done {
    /// It has ended; what it told before is in the rings.
    pub fn set(&self) {
        // Release: pairs with the Acquire load in `is_set`: what was told before is seen by who sees this.
        self.0.store(1, Ordering::Release);
    }

    /// Whether it has.
    #[must_use]
    pub fn is_set(&self) -> bool {
        // Acquire: pairs with the Release store in `set`.
        self.0.load(Ordering::Acquire) == 1
    }
}
