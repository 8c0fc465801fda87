//! Messages between clients and servers, and how to write a client.
//!
//! | type | from client | drawn at | type | from server | drawn at |
//! |---|---|---|---|---|---|
//! | 0x40 | SESSION | below | 0x40 | SESSION | below |
//! | 0x41 | OPEN | [`Open`] | 0x61 | OPENED | [`OpenedSession`] |
//! | 0x42 | REQUEST | [`RequestView`] | 0x62 | ANSWER | [`super::answer`] |
//! | 0x43 | QUERY | [`super::records`] | 0x63 | CONFIRMED | [`Confirmed`] |
//! | 0x44 | FOLLOW | [`super::records::Follow`] | 0x64 | CORRECTED | [`super::answer`] |
//! | 0x45 | CLOSE | no payload | 0x65 | REFUSED | [`Refused`] |
//! | | | | 0x66 | CREDIT | [`Credit`] |
//! | | | | 0x67 | RECORDS | [`super::records`] |
//! | | | | 0x68 | DRAINING | no payload |
//!
//! `aux` is zero in all of them. Fields stand in the order drawn, nothing between them.
//!
//! # A client in ten lines
//! 1. Derive the principal's id from its name and have its key ([`super::auth`]). One UDP socket is enough.
//! 2. Send OPEN with a random nonce and the name; envelope: instance 0, session 0. Repeat until OPENED with that nonce.
//! 3. OPENED gives the session (created in cluster time), the window, the largest datagram, the credit. The envelope
//!    gives the instance: put it into every further envelope. Another instance later means numbers begin anew.
//! 4. Number requests from 1 in each session. Never send number r before r - `window` is answered: what is that far behind
//!    the newest is refused, its answer forgotten. Put as many REQUESTs into a datagram as fit. A session is good at every
//!    server. The order of the participants belongs to the request: a retry repeats it.
//! 5. ANSWER: done, once all its parts have come. Numbers are the same however often and wherever it is asked.
//! 6. No answer: send the same request again, with the `retry` flag, after a growing pause, to another server.
//! 7. REFUSED and not final: the same, not before `retry after`. Final: no attempt at this request was or can be admitted
//!    anywhere, so it has no number and will have none.
//!    `window_exceeded` is never final: the request may have been numbered, and its answer be forgotten.
//! 8. CREDIT (4,294,967,295: without limit): how many more requests may be sent in this session to this server before its time.
//! 9. A provisional answer stands until CONFIRMED; CORRECTED brings the true one.
//! 10. Answers may come twice, late, or from a server that was asked long ago: match them by session and request.
//!
//! # A first datagram
//! OPEN with nonce 1 of principal `alpha`, in a cluster with the key `00 01 .. 1f`: 74 bytes.
//!
//! ```text
//! 4f 44 01 02 00 00 00 00                          magic, version 1, kind 2, reserved
//! 00 00 00 00 00 00 00 00                          instance: not known yet
//! 12 47 a6 f5 05 7e 4c fc                          principal
//! 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00  session: none yet
//! 41 00 0e 00                                      OPEN, aux 0, 14 bytes
//! 01 00 00 00 00 00 00 00 05 61 6c 70 68 61        nonce, length of the name, "alpha"
//! d7 8f 60 11 e2 57 e7 d4 f4 94 2d f1 3f 9d 4a f7  tag
//! ```
//!
//! # SESSION
//! ```text
//! offset  0
//!         | session, 16 bytes |
//! ```
//! What follows in this datagram is of that session; before the first one, of the envelope's. So many sessions share a
//! datagram. It may appear any number of times.
//!
//! CLOSE: the session asks for nothing more at this server; its credit returns. (The session itself stays remembered until
//! it has been unused for the servers' `session_ttl`: exactly-once needs that.) DRAINING: the server will stop; turn to
//! another.
//!
//! **Why a fault is no error.** A REQUEST whose content is not allowed comes from an authentic client with a defect: it is
//! told which ([`Fault`]). A body that cannot be read at all is dropped whole, and may be answered as
//! [`Fault::Unreadable`]: its sender is authentic.
//! **Invariants**: what [`parse_to_server`] and [`parse_to_client`] return cannot fail to be read.
//! **Not here**: retries, backoff, the participant gate (`client`); admission (`flow`).

use super::answer::{ANSWER, AnswerKind, AnswerView, CORRECTED};
use super::auth::{NAME_MAX, NameError, check_name};
use super::bytes::{BodyWriter, Field, Fields, Full, HEAD_LEN, Raw, RawMessages, Reader, fixed_message};
use super::participants::Participants;
use super::records::{Follow, Query, RECORDS, RecordsView};
use super::{WireError, body_max};
use crate::protocol::{HISTORY_MAX, PARTICIPANTS_MAX, Refusal, RequestNo, SessionId, Timestamp, TxId};

/// Message type of SESSION, in both directions.
pub const SESSION: u8 = 0x40;
/// Message type of CLOSE.
pub const CLOSE: u8 = 0x45;
/// Message type of DRAINING.
pub const DRAINING: u8 = 0x68;
/// Bytes of a SESSION message with its head.
pub const SESSION_LEN: usize = HEAD_LEN + SessionId::LEN;
/// Bytes of a REQUEST before its participants.
pub const REQUEST_HEAD_LEN: usize = 28;

const RETRY: u8 = 1;

const _: () = {
    assert!(RequestNo::LEN + TxId::LEN + 4 == REQUEST_HEAD_LEN);
    let longest = SESSION_LEN + HEAD_LEN + REQUEST_HEAD_LEN + 4 * PARTICIPANTS_MAX;
    assert!(longest <= body_max(super::PAYLOAD_MIN));
};

impl Field for Refusal {
    const LEN: usize = 1;
    fn read(r: &mut Reader<'_>, name: &'static str) -> Result<Self, WireError> {
        let code: u8 = r.field(name)?;
        Self::from_code(code).ok_or_else(|| r.range(name, code, 1, Self::ALL.len()))
    }
    fn write(self, f: &mut Fields<'_>) {
        f.field(self.code());
    }
}

impl Field for bool {
    const LEN: usize = 1;
    fn read(r: &mut Reader<'_>, name: &'static str) -> Result<Self, WireError> {
        match r.field::<u8>(name)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(r.range(name, other, 0, 1)),
        }
    }
    fn write(self, f: &mut Fields<'_>) {
        f.field(u8::from(self));
    }
}

/// OPEN: a session is wanted. The name must be the one whose digest the envelope's principal is.
///
/// ```text
/// offset  0            8           9
///         | nonce, u64 | length u8 | name, 1..32 bytes of A-Z a-z 0-9 . _ - |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open<'a> {
    /// Random: matches OPENED to it.
    pub nonce: u64,
    /// The principal's name.
    pub name: &'a str,
}

impl<'a> Open<'a> {
    /// Message type.
    pub const KIND: u8 = 0x41;

    /// Appends it to a body. A name that no principal can have is written and refused by the receiver.
    ///
    /// # Errors
    /// [`Full`] if it does not fit; nothing is written then.
    pub fn put(&self, body: &mut BodyWriter<'_>) -> Result<(), Full> {
        let name = self.name.as_bytes();
        let mut f = body.message(Self::KIND, 0, 9 + name.len())?;
        f.field(self.nonce).field(u8::try_from(name.len()).unwrap_or(u8::MAX)).bytes(name).done();
        Ok(())
    }

    fn read(payload: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(Self::KIND, payload);
        let (nonce, length): (u64, u8) = (r.field("nonce")?, r.field("length")?);
        let bytes = r.slice(usize::from(length))?;
        r.end()?;
        let name = match (check_name(bytes), str::from_utf8(bytes)) {
            (Ok(()), Ok(name)) => name,
            (Err(NameError::Character { byte, .. }), _) => return Err(WireError::Name { kind: Self::KIND, byte }),
            _ => return Err(r.range("length", length, 1, NAME_MAX)),
        };
        Ok(Self { nonce, name })
    }
}

fixed_message! {
    /// OPENED: the session, and the limits of the server that opened it.
    ///
    /// ```text
    /// offset  0            8         24          26            28          32         33
    ///         | nonce, u64 | session | window u16| payload u16 | credit u32| server u8| servers u8 |
    /// ```
    OpenedSession = 0x61, 34 {
        /// That of OPEN.
        nonce: u64,
        /// The session.
        session: SessionId,
        /// Requests in flight at most, in this session.
        window: u16,
        /// Longest datagram in bytes of UDP payload, in both directions.
        payload_max: u16,
        /// Requests that may be sent before the first CREDIT.
        credit: u32,
        /// Id of the server, 1..n.
        server: u8,
        /// How many servers there are, n.
        servers: u8,
    }
}

fixed_message! {
    /// CONFIRMED: the provisional answer to this request was right.
    ///
    /// ```text
    /// offset  0
    ///         | request, u64 |
    /// ```
    Confirmed = 0x63, 8 {
        /// Which request.
        request: RequestNo,
    }
}

fixed_message! {
    /// REFUSED: no number, and why.
    ///
    /// ```text
    /// offset  0              8                       12          13         14
    ///         | request, u64 | retry after, us, u32  | reason u8 | final u8 | detail u8 |
    /// ```
    ///
    /// `request` 0: all of the datagram. `reason` is a code of [`Refusal`]; `detail` is for reason `malformed` a code of
    /// [`Fault`], for `version` the server's version, else 0. Final 1: no attempt at the request was or can be admitted
    /// anywhere; 0: send it again, not before `retry after` (0: no advice), best to another server.
    ///
    /// | code | reason | code | reason | code | reason |
    /// |---|---|---|---|---|---|
    /// | 1 | overloaded | 5 | session_unknown | 9 | tx_differs |
    /// | 2 | no_quorum | 6 | sessions_full | 10 | malformed |
    /// | 3 | not_member | 7 | participants_full | 11 | wrong_instance |
    /// | 4 | window_exceeded | 8 | request_differs | 12 | version |
    ///
    /// A server answers a client of another version so; the envelope's version says which one it speaks.
    Refused = 0x65, 15 {
        /// Which request; 0: all of the datagram.
        request: RequestNo,
        /// When to try again, us; 0: no advice.
        retry_after_us: u32,
        /// Why.
        reason: Refusal,
        /// Whether no attempt at it was or can be admitted anywhere.
        is_final: bool,
        /// More about why.
        detail: u8,
    }
}

fixed_message! {
    /// CREDIT: how many requests may be sent in this session to this server until a time; replaces the credit before.
    ///
    /// ```text
    /// offset  0             4
    ///         | amount, u32 | until, ns of cluster time, u64 |
    /// ```
    Credit = 0x66, 12 {
        /// Requests.
        amount: u32,
        /// Until then.
        until: Timestamp,
    }
}

/// What is wrong with the content of a REQUEST: the detail of REFUSED `malformed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fault {
    /// No participants.
    NoParticipants = 1,
    /// More than 64 participants.
    TooManyParticipants = 2,
    /// A participant twice.
    DuplicateParticipant = 3,
    /// A history deeper than 16.
    DepthTooLarge = 4,
    /// Request number 0.
    RequestZero = 5,
    /// The payload is not as long as its fields say.
    BadLength = 6,
    /// A flag or reserved byte that this version does not have.
    BadFlags = 7,
    /// Not of one request: the messages of the datagram cannot be split or read (REFUSED with request 0).
    Unreadable = 8,
}

impl Fault {
    /// All of them, by code.
    pub const ALL: [Self; 8] = [
        Self::NoParticipants,
        Self::TooManyParticipants,
        Self::DuplicateParticipant,
        Self::DepthTooLarge,
        Self::RequestZero,
        Self::BadLength,
        Self::BadFlags,
        Self::Unreadable,
    ];
    /// The code on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }
    /// From the code on the wire.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.code() == code)
    }
    /// In words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::NoParticipants => "no participants: 1 to 64 are allowed",
            Self::TooManyParticipants => "more than 64 participants",
            Self::DuplicateParticipant => "a participant twice",
            Self::DepthTooLarge => "history deeper than 16",
            Self::RequestZero => "request number 0: they start from 1",
            Self::BadLength => "length does not match the participants",
            Self::BadFlags => "a flag or reserved byte that this version does not have",
            Self::Unreadable => "the messages of the datagram cannot be read",
        }
    }
}

/// A REQUEST whose content is not allowed, and which one it was (0: not even that can be read).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request {request}: {}", fault.text())]
pub struct RequestFault {
    /// Which request.
    pub request: RequestNo,
    /// What is wrong.
    pub fault: Fault,
}

/// REQUEST: a place for a transaction.
///
/// ```text
/// offset size field
///      0    8 request number, from 1
///      8   16 tx id
///     24    1 depth of the histories wanted, 0..16
///     25    1 flags: 1 retry, this request may have been sent before
///     26    1 n, participants, 1..64
///     27    1 reserved, 0
///     28   4n participants, u32, distinct
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestView<'a> {
    /// Its number in its session.
    pub request: RequestNo,
    /// The transaction.
    pub tx: TxId,
    /// Depth of the histories wanted.
    pub depth: u8,
    /// It may have been sent before.
    pub retry: bool,
    /// Who takes part.
    pub participants: Participants<'a>,
}

impl<'a> RequestView<'a> {
    /// Message type.
    pub const KIND: u8 = 0x42;

    /// Bytes of the payload.
    #[must_use]
    pub const fn len(&self) -> usize {
        REQUEST_HEAD_LEN + 4 * self.participants.len()
    }

    /// Never: a request has a fixed part.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Appends it to a body. What is not allowed is written all the same, and refused by the receiver.
    ///
    /// # Errors
    /// [`Full`] if it does not fit; nothing is written then.
    pub fn put(&self, body: &mut BodyWriter<'_>) -> Result<(), Full> {
        let n = self.participants.len();
        let mut f = body.message(Self::KIND, 0, self.len())?;
        f.field(self.request).field(self.tx).field(self.depth).field(u8::from(self.retry) * RETRY);
        f.field(u8::try_from(n).unwrap_or(u8::MAX)).field(0_u8).bytes(&self.participants.bytes()[..4 * n]).done();
        Ok(())
    }

    fn read(payload: &'a [u8]) -> Result<Self, RequestFault> {
        let request = payload.first_chunk().map_or(0, |number| u64::from_le_bytes(*number));
        let request = RequestNo::new(request);
        let fail = |fault| Err(RequestFault { request, fault });
        let Some((head, ids)) = payload.split_first_chunk::<REQUEST_HEAD_LEN>() else { return fail(Fault::BadLength) };
        let [_, _, _, _, _, _, _, _, tx @ .., depth, flags, n, reserved] = *head;
        let n = usize::from(n);
        if n == 0 {
            return fail(Fault::NoParticipants);
        }
        if n > PARTICIPANTS_MAX {
            return fail(Fault::TooManyParticipants);
        }
        if ids.len() != 4 * n {
            return fail(Fault::BadLength);
        }
        if usize::from(depth) > HISTORY_MAX {
            return fail(Fault::DepthTooLarge);
        }
        if flags & !RETRY != 0 || reserved != 0 {
            return fail(Fault::BadFlags);
        }
        if request.get() == 0 {
            return fail(Fault::RequestZero);
        }
        let participants = Participants::new(ids);
        if participants.repeated().is_some() {
            return fail(Fault::DuplicateParticipant);
        }
        Ok(Self { request, tx: TxId::new(tx), depth, retry: flags & RETRY != 0, participants })
    }
}

/// A message of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToServer<'a> {
    /// OPEN.
    Open(Open<'a>),
    /// REQUEST.
    Request(RequestView<'a>),
    /// A REQUEST whose content is not allowed: to be answered with REFUSED `malformed`.
    Fault(RequestFault),
    /// QUERY.
    Query(Query),
    /// FOLLOW.
    Follow(Follow),
    /// CLOSE.
    Close,
}

/// A message of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToClient<'a> {
    /// OPENED.
    Opened(OpenedSession),
    /// ANSWER.
    Answer(AnswerView<'a>),
    /// CONFIRMED.
    Confirmed(Confirmed),
    /// CORRECTED.
    Corrected(AnswerView<'a>),
    /// REFUSED.
    Refused(Refused),
    /// CREDIT.
    Credit(Credit),
    /// RECORDS.
    Records(RecordsView<'a>),
    /// DRAINING.
    Draining,
}

/// A message, or the switch to another session.
enum Step<T> {
    Switch(SessionId),
    Message(T),
}

fn read_empty(kind: u8, payload: &[u8]) -> Result<(), WireError> {
    Reader::new(kind, payload).end()
}

fn read_session(payload: &[u8]) -> Result<SessionId, WireError> {
    let mut r = Reader::new(SESSION, payload);
    let session = r.field("session")?;
    r.end()?;
    Ok(session)
}

const fn no_aux(raw: Raw<'_>) -> Result<Raw<'_>, WireError> {
    if raw.aux == 0 { Ok(raw) } else { Err(WireError::Aux { kind: raw.kind, aux: raw.aux }) }
}

impl<'a> ToServer<'a> {
    fn read(raw: Raw<'a>) -> Result<Step<Self>, WireError> {
        let Raw { kind, payload, .. } = no_aux(raw)?;
        let message = match kind {
            SESSION => return read_session(payload).map(Step::Switch),
            Open::KIND => Self::Open(Open::read(payload)?),
            RequestView::KIND => RequestView::read(payload).map_or_else(Self::Fault, Self::Request),
            Query::KIND => Self::Query(Query::read(payload)?),
            Follow::KIND => Self::Follow(Follow::read(payload)?),
            CLOSE => read_empty(kind, payload).map(|()| Self::Close)?,
            _ => return Err(WireError::Unknown { kind }),
        };
        Ok(Step::Message(message))
    }
}

impl<'a> ToClient<'a> {
    fn read(raw: Raw<'a>) -> Result<Step<Self>, WireError> {
        let Raw { kind, payload, .. } = no_aux(raw)?;
        let message = match kind {
            SESSION => return read_session(payload).map(Step::Switch),
            OpenedSession::KIND => Self::Opened(OpenedSession::read(payload)?),
            ANSWER => Self::Answer(AnswerView::parse(AnswerKind::Answer, payload)?),
            Confirmed::KIND => Self::Confirmed(Confirmed::read(payload)?),
            CORRECTED => Self::Corrected(AnswerView::parse(AnswerKind::Corrected, payload)?),
            Refused::KIND => Self::Refused(Refused::read(payload)?),
            Credit::KIND => Self::Credit(Credit::read(payload)?),
            RECORDS => Self::Records(RecordsView::parse(payload)?),
            DRAINING => read_empty(kind, payload).map(|()| Self::Draining)?,
            _ => return Err(WireError::Unknown { kind }),
        };
        Ok(Step::Message(message))
    }
}

macro_rules! direction {
    ($(#[$doc:meta])* $parse:ident, $messages:ident, $message:ident) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// The first thing that is wrong with it.
        pub fn $parse(body: &[u8], session: SessionId) -> Result<$messages<'_>, WireError> {
            for raw in RawMessages::new(body) {
                $message::read(raw?)?;
            }
            Ok($messages { left: RawMessages::new(body), session })
        }

        /// The messages of a validated body, each with the session it is of; SESSION messages are followed.
        #[derive(Clone, Debug)]
        pub struct $messages<'a> {
            left: RawMessages<'a>,
            session: SessionId,
        }

        impl<'a> Iterator for $messages<'a> {
            type Item = (SessionId, $message<'a>);
            fn next(&mut self) -> Option<Self::Item> {
                loop {
                    let step = $message::read(self.left.next()?.ok()?);
                    debug_assert!(step.is_ok(), "validated when parsed");
                    match step.ok()? {
                        Step::Switch(session) => self.session = session,
                        Step::Message(message) => return Some((self.session, message)),
                    }
                }
            }
        }
    };
}

direction! {
    /// Validates the body of a client's datagram, whose envelope names `session`.
    parse_to_server, ToServerMessages, ToServer
}

direction! {
    /// Validates the body of a server's datagram, whose envelope names `session`.
    parse_to_client, ToClientMessages, ToClient
}

/// Writes a SESSION message if `session` is not the one in force, and notes it.
///
/// # Errors
/// [`Full`] if it does not fit; nothing is written or noted then.
pub fn put_session(body: &mut BodyWriter<'_>, in_force: &mut SessionId, session: SessionId) -> Result<(), Full> {
    if *in_force != session {
        body.message(SESSION, 0, SessionId::LEN)?.field(session).done();
        *in_force = session;
    }
    Ok(())
}

/// Appends CLOSE.
///
/// # Errors
/// [`Full`] if it does not fit; nothing is written then.
pub fn put_close(body: &mut BodyWriter<'_>) -> Result<(), Full> {
    body.put_payload(CLOSE, 0, &[])
}

/// Appends DRAINING.
///
/// # Errors
/// [`Full`] if it does not fit; nothing is written then.
pub fn put_draining(body: &mut BodyWriter<'_>) -> Result<(), Full> {
    body.put_payload(DRAINING, 0, &[])
}
