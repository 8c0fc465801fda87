//! The first 40 and the last 16 bytes of a datagram: envelopes, sealing, opening.
//!
//! Between servers ([`PeerEnvelope`], kind 1):
//!
//! ```text
//! byte  0   1   2   3     4     5   6   7     8 .. 15      16 .. 23      24 .. 31     32 .. 35   36 .. 39    40 ..
//!     +-------+----+----+----+-------------+------------+-------------+------------+----------+-----------+------+-----+
//!     | magic | v  | 1  |from| reserved, 0 | instance   | incarnation | sent, ns   | eps, ns  | reserved  | body | tag |
//!     +-------+----+----+----+-------------+------------+-------------+------------+----------+-----------+------+-----+
//! ```
//!
//! Between clients and servers ([`ClientEnvelope`], kind 2 from a client, 3 from a server):
//!
//! ```text
//! byte  0   1   2    3     4 .. 7        8 .. 15      16 .. 23     24 .. 39     40 ..
//!     +-------+----+------+-------------+------------+------------+------------+------+-----+
//!     | magic | v  | 2, 3 | reserved, 0 | instance   | principal  | session    | body | tag |
//!     +-------+----+------+-------------+------------+------------+------------+------+-----+
//! ```
//!
//! `tag` is the last 16 bytes of the datagram, over all bytes before it ([`super::auth`]). Bytes 2 and 3 are version and
//! kind. Reserved bytes are sent as zero and not looked at. The layout of both envelopes is the same in all versions.
//!
//! **Why this order of checks**: length, magic, kind, version, place cost nothing; then the tag; only then is anything
//! parsed. A client's version is looked at after its tag, so that it can be told in an answer.
//! **Invariants**: nothing of a body is seen before its tag has verified. Sealing panics on a buffer that is too small,
//! which only a defect of ours can cause.
//! **Limits**: [`PAYLOAD_MAX`] bytes. **Not here**: instance, incarnation and own reflection are judged by the receiver.

use super::auth::{self, KeyCache, Mac, PeerKey, PrincipalKey, TAG_LEN};
use super::bytes::{Field, Fields, Reader};
use super::{DropReason, ENVELOPE_LEN, MAGIC, OVERHEAD, PAYLOAD_MAX, VERSION};
use crate::protocol::{Incarnation, Instance, Principal, ServerId, SessionId, Timestamp};

/// Byte 3 of a datagram: between whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Server to server.
    Peer = 1,
    /// Client to server.
    ClientToServer = 2,
    /// Server to client.
    ServerToClient = 3,
}

/// Who sent a datagram among servers, and when. It speaks of this datagram alone and is never relayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerEnvelope {
    /// The sender's place.
    pub from: ServerId,
    /// The instance it belongs to; none before genesis.
    pub instance: Instance,
    /// Its incarnation.
    pub inc: Incarnation,
    /// When it was sent, in cluster time.
    pub sent: Timestamp,
    /// The sender's bound on the error of `sent`, ns; all ones: not trusted.
    pub eps_ns: u32,
}

/// On whose behalf a datagram between a client and a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientEnvelope {
    /// From a client: the instance it believes in, none before it knows. From a server: its instance.
    pub instance: Instance,
    /// Whose key the tag is made with.
    pub principal: Principal,
    /// What the messages are about until a SESSION message says otherwise; zero before a session is opened.
    pub session: SessionId,
}

/// A client's or server's datagram whose tag has verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened<'a> {
    /// Of this version: its messages can be read.
    Body(ClientEnvelope, &'a [u8]),
    /// Of the version given: a server answers REFUSED `version`, a client tells its user.
    OtherVersion(ClientEnvelope, u8),
}

/// Puts envelope and tag around the `body_len` bytes that lie at [`ENVELOPE_LEN`]; returns the datagram's length.
///
/// # Panics
/// If `buf` is shorter than body and [`OVERHEAD`].
#[must_use]
pub fn seal_peer(buf: &mut [u8], envelope: &PeerEnvelope, body_len: usize, key: &PeerKey) -> usize {
    let mut fields = head(buf, Kind::Peer);
    fields.field(envelope.from).bytes(&[0; 3]).field(envelope.instance).field(envelope.inc);
    fields.field(envelope.sent).field(envelope.eps_ns).field(0_u32).done();
    put_tag(buf, body_len, key)
}

/// Puts a client's envelope and tag around the `body_len` bytes at [`ENVELOPE_LEN`]; returns the datagram's length.
///
/// # Panics
/// If `buf` is shorter than body and [`OVERHEAD`].
#[must_use]
pub fn seal_client(buf: &mut [u8], envelope: &ClientEnvelope, body_len: usize, key: &PrincipalKey) -> usize {
    seal_either(buf, Kind::ClientToServer, envelope, body_len, key)
}

/// Puts a server's envelope and tag around the `body_len` bytes at [`ENVELOPE_LEN`]; returns the datagram's length.
///
/// # Panics
/// If `buf` is shorter than body and [`OVERHEAD`].
#[must_use]
pub fn seal_server(buf: &mut [u8], envelope: &ClientEnvelope, body_len: usize, key: &PrincipalKey) -> usize {
    seal_either(buf, Kind::ServerToClient, envelope, body_len, key)
}

fn seal_either(buf: &mut [u8], kind: Kind, envelope: &ClientEnvelope, body_len: usize, key: &PrincipalKey) -> usize {
    let mut fields = head(buf, kind);
    fields.field(0_u32).field(envelope.instance).field(envelope.principal).field(envelope.session).done();
    put_tag(buf, body_len, key)
}

fn head(buf: &mut [u8], kind: Kind) -> Fields<'_> {
    let mut fields = Fields::new(&mut buf[..ENVELOPE_LEN]);
    fields.field(MAGIC).field(VERSION).field(kind as u8);
    fields
}

fn put_tag(buf: &mut [u8], body_len: usize, key: &impl Mac) -> usize {
    let end = ENVELOPE_LEN + body_len;
    let (covered, rest) = buf.split_at_mut(end);
    rest[..TAG_LEN].copy_from_slice(&auth::tag(key, covered));
    end + TAG_LEN
}

/// A datagram whose length, magic and kind are right; nothing is authentic yet.
struct Sealed<'a> {
    version: u8,
    /// Envelope after its first 4 bytes.
    envelope: [u8; ENVELOPE_LEN - 4],
    covered: &'a [u8],
    body: &'a [u8],
    tag: &'a [u8; TAG_LEN],
}

fn split(datagram: &[u8], kind: Kind) -> Result<Sealed<'_>, DropReason> {
    if datagram.len() > PAYLOAD_MAX {
        return Err(DropReason::TooLong);
    }
    if datagram.len() < OVERHEAD {
        return Err(DropReason::TooShort);
    }
    let Some((covered, tag)) = datagram.split_last_chunk::<TAG_LEN>() else { return Err(DropReason::TooShort) };
    let Some((&[low, high, version, claimed], rest)) = covered.split_first_chunk::<4>() else {
        return Err(DropReason::TooShort);
    };
    let Some((envelope, body)) = rest.split_first_chunk() else { return Err(DropReason::TooShort) };
    if u16::from_le_bytes([low, high]) != MAGIC {
        return Err(DropReason::Magic);
    }
    if claimed != kind as u8 {
        return Err(DropReason::Kind);
    }
    Ok(Sealed { version, envelope: *envelope, covered, body, tag })
}

/// Opens a datagram of the peer socket.
///
/// # Errors
/// Why it is dropped. Never [`DropReason::Own`] or [`DropReason::Instance`]: those the receiver judges.
pub fn open_peer<'a>(datagram: &'a [u8], key: &PeerKey) -> Result<(PeerEnvelope, &'a [u8]), DropReason> {
    let sealed = split(datagram, Kind::Peer)?;
    if sealed.version != VERSION {
        return Err(DropReason::Version);
    }
    let envelope = read_peer(&sealed.envelope).ok_or(DropReason::Place)?;
    if !auth::verify(key, sealed.covered, sealed.tag) {
        return Err(DropReason::Tag);
    }
    Ok((envelope, sealed.body))
}

/// Opens a datagram of the client socket, at a server.
///
/// # Errors
/// Why it is dropped.
pub fn open_client<'a>(datagram: &'a [u8], keys: &mut KeyCache) -> Result<Opened<'a>, DropReason> {
    let sealed = split(datagram, Kind::ClientToServer)?;
    let envelope = read_client(&sealed.envelope).ok_or(DropReason::TooShort)?;
    if !keys.verify(envelope.principal, sealed.covered, sealed.tag) {
        return Err(DropReason::Tag);
    }
    Ok(opened(&sealed, envelope))
}

/// Opens a server's datagram, at a client that is `principal`.
///
/// # Errors
/// Why it is dropped.
pub fn open_server<'a>(datagram: &'a [u8], principal: Principal, key: &PrincipalKey) -> Result<Opened<'a>, DropReason> {
    let sealed = split(datagram, Kind::ServerToClient)?;
    let envelope = read_client(&sealed.envelope).ok_or(DropReason::TooShort)?;
    if envelope.principal != principal {
        return Err(DropReason::Principal);
    }
    if !auth::verify(key, sealed.covered, sealed.tag) {
        return Err(DropReason::Tag);
    }
    Ok(opened(&sealed, envelope))
}

const fn opened<'a>(sealed: &Sealed<'a>, envelope: ClientEnvelope) -> Opened<'a> {
    if sealed.version == VERSION {
        Opened::Body(envelope, sealed.body)
    } else {
        Opened::OtherVersion(envelope, sealed.version)
    }
}

fn read_peer(bytes: &[u8]) -> Option<PeerEnvelope> {
    let mut r = Reader::new(0, bytes);
    let from = r.field("from").ok()?;
    r.array::<3>().ok()?;
    Some(PeerEnvelope {
        from,
        instance: r.field("instance").ok()?,
        inc: r.field("inc").ok()?,
        sent: r.field("sent").ok()?,
        eps_ns: r.field("eps").ok()?,
    })
}

fn read_client(bytes: &[u8]) -> Option<ClientEnvelope> {
    let mut r = Reader::new(0, bytes);
    r.array::<4>().ok()?;
    Some(ClientEnvelope {
        instance: r.field("instance").ok()?,
        principal: r.field("principal").ok()?,
        session: r.field("session").ok()?,
    })
}

const _: () = {
    let head = <u16 as Field>::LEN + 2;
    let peer = ServerId::LEN + 3 + Instance::LEN + Incarnation::LEN + Timestamp::LEN + u32::LEN + 4;
    let client = 4 + Instance::LEN + Principal::LEN + SessionId::LEN;
    assert!(head + peer == ENVELOPE_LEN && head + client == ENVELOPE_LEN);
};
