//! HDR: what a server says of itself in every datagram it sends to its peers.
//!
//! ```text
//! offset size field                       offset size field
//!      0    1 from, place                     24    8 own: last frame, s
//!      1    1 flags                           32    8 own: promise, ns
//!      2    1 suspects, bit k: place k        40    8 N, order number reached
//!      3    1 ahead, bit k: place k           48    8 hash of the order up to N
//!      4    1 a: acks, 0..7                   56    8 sent, ns
//!      5    1 n: echoes, 0..7                 64    4 d, ns (0: unknown)
//!      6    2 load                            68    4 eta, ns
//!      8    4 e, epoch                        72   8a acks: frames held of each open row of C_e
//!     12    4 own: g                       72+8a   8n echoes: newest `sent` heard of place 0, 1, ..
//!     16    8 incarnation
//!
//! flags: 1 member, 2 fenced, 4 want_open, 8 draining, 16 clock_ok, 128 own stream present
//! ```
//!
//! **Statements** (from, inc, e, own, acks, N, hash) are true for ever, in any order, whoever repeats them. **News**
//! (the rest) is of the newest `sent` of an incarnation only. Without the own-stream flag the three `own` fields are
//! zero; without acknowledgements (no member, or fenced) `a` is zero.
//!
//! **Why echoes of all places.** The header is broadcast; each receiver finds its own echo by its place.
//! **Limits**: [`HEADER_LEN_MAX`] bytes. **Not here**: what a receiver may conclude (R-TAKE, `protocol`).

use super::bytes::{BodyWriter, Few, Full, Reader};
use super::{PAYLOAD_MIN, WireError, body_max};
use crate::protocol::{Epoch, FrameNo, Incarnation, OrderNo, SERVERS_MAX, ServerId, StreamId, Timestamp};

const FIXED_LEN: usize = 72;
/// Longest payload of a header: seven acknowledgements, seven echoes.
pub const HEADER_LEN_MAX: usize = FIXED_LEN + 16 * SERVERS_MAX;

const _: () = assert!(HEADER_LEN_MAX == 184 && HEADER_LEN_MAX + super::bytes::HEAD_LEN < body_max(PAYLOAD_MIN) / 2);

const MEMBER: u8 = 1;
const FENCED: u8 = 2;
const WANT_OPEN: u8 = 4;
const DRAINING: u8 = 8;
const CLOCK_OK: u8 = 16;
const OWN: u8 = 128;

/// The sender's own open stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnPart {
    /// The epoch that opened it (`g`).
    pub opened: Epoch,
    /// Its last frame.
    pub last: FrameNo,
    /// Nothing at or below this follows `last`.
    pub promise: Timestamp,
}

/// The flags of a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderFlags {
    /// Its incarnation stands in the configuration it has entered.
    pub member: bool,
    /// It has promised a ballot: no acknowledgements in this epoch any more.
    pub fenced: bool,
    /// It asks for a stream of its own.
    pub want_open: bool,
    /// It asks for its stream to be closed, to leave.
    pub draining: bool,
    /// It trusts its clock.
    pub clock_ok: bool,
}

/// A header: statements and news of one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Whose statements these are, whoever brings them.
    pub from: ServerId,
    /// Its incarnation.
    pub inc: Incarnation,
    /// The epoch it has entered.
    pub epoch: Epoch,
    /// Its own stream, if it has one open.
    pub own: Option<OwnPart>,
    /// Frames held of each open row of `C_e`, in the order of the rows; empty: no acknowledgement.
    pub acks: Few<FrameNo, SERVERS_MAX>,
    /// Order number reached (N).
    pub ordered: OrderNo,
    /// Hash of the order up to N.
    pub hash: u64,
    /// When the header was made, in cluster time: the newest of an incarnation counts.
    pub sent: Timestamp,
    /// Flags.
    pub flags: HeaderFlags,
    /// Bit k: suspects the server at place k.
    pub suspects: u8,
    /// Bit k: sees the clock of the server at place k ahead.
    pub ahead: u8,
    /// Its worst one-way delay, ns; 0: unknown.
    pub d_ns: u32,
    /// Its largest eta over live peers, ns.
    pub eta_ns: u32,
    /// Its load, for admission.
    pub load: u16,
    /// By place: the newest `sent` heard from there, zero for none.
    pub echo: Few<Timestamp, SERVERS_MAX>,
}

impl Header {
    /// Message type.
    pub const KIND: u8 = 1;

    /// Bytes of its payload.
    #[must_use]
    pub const fn len(&self) -> usize {
        FIXED_LEN + 8 * (self.acks.len() + self.echo.len())
    }

    /// Never: a header has a fixed part.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// The stream its own part speaks of.
    #[must_use]
    pub fn own_stream(&self) -> Option<StreamId> {
        self.own.map(|own| StreamId { server: self.from, opened: own.opened })
    }

    /// Appends it to a body.
    ///
    /// # Errors
    /// [`Full`] if it does not fit; nothing is written then.
    pub fn put(&self, body: &mut BodyWriter<'_>) -> Result<(), Full> {
        let own = self.own.unwrap_or_default();
        let mut f = body.message(Self::KIND, 0, self.len())?;
        f.field(self.from).field(self.flag_byte()).field(self.suspects).field(self.ahead);
        f.field(self.acks.count()).field(self.echo.count()).field(self.load);
        f.field(self.epoch).field(own.opened).field(self.inc).field(own.last).field(own.promise);
        f.field(self.ordered).field(self.hash).field(self.sent).field(self.d_ns).field(self.eta_ns);
        f.all(self.acks.as_slice()).all(self.echo.as_slice()).done();
        Ok(())
    }

    fn flag_byte(&self) -> u8 {
        let HeaderFlags { member, fenced, want_open, draining, clock_ok } = self.flags;
        let bits = [
            (member, MEMBER),
            (fenced, FENCED),
            (want_open, WANT_OPEN),
            (draining, DRAINING),
            (clock_ok, CLOCK_OK),
            (self.own.is_some(), OWN),
        ];
        bits.into_iter().filter(|(set, _)| *set).fold(0, |byte, (_, bit)| byte | bit)
    }

    pub(super) fn read(payload: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(Self::KIND, payload);
        let from = r.field("from")?;
        let flags: u8 = r.field("flags")?;
        if flags & !(MEMBER | FENCED | WANT_OPEN | DRAINING | CLOCK_OK | OWN) != 0 {
            return Err(r.not_zero("reserved flags"));
        }
        let (suspects, ahead) = (r.field("suspects")?, r.field("ahead")?);
        let (acks, echoes): (u8, u8) = (r.field("acks")?, r.field("echoes")?);
        let (load, epoch, opened) = (r.field("load")?, r.field("e")?, r.field("own g")?);
        let inc = r.field("inc")?;
        let own = OwnPart { opened, last: r.field("own last")?, promise: r.field("own promise")? };
        if flags & OWN == 0 && own != OwnPart::default() {
            return Err(r.not_zero("own stream without its flag"));
        }
        let header = Self {
            from,
            inc,
            epoch,
            own: (flags & OWN != 0).then_some(own),
            flags: HeaderFlags {
                member: flags & MEMBER != 0,
                fenced: flags & FENCED != 0,
                want_open: flags & WANT_OPEN != 0,
                draining: flags & DRAINING != 0,
                clock_ok: flags & CLOCK_OK != 0,
            },
            suspects,
            ahead,
            load,
            ordered: r.field("N")?,
            hash: r.field("hash")?,
            sent: r.field("sent")?,
            d_ns: r.field("d")?,
            eta_ns: r.field("eta")?,
            acks: r.few("acks", acks)?,
            echo: r.few("echoes", echoes)?,
        };
        r.end()?;
        Ok(header)
    }
}
