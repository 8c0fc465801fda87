//! Messages among servers.
//!
//! | type | message | drawn at | type | message | drawn at |
//! |---|---|---|---|---|---|
//! | 1 | HDR | [`super::header`] | 14 | JOIN | [`Join`] |
//! | 2 | FRAME | [`super::frame`] | 15 | PREPARE | [`Prepare`] |
//! | 3 | PULL | [`Pull`] | 16 | REPORT | [`Report`] |
//! | 4 | GONE | [`Gone`] | 17 | ACCEPT | [`Accept`] |
//! | 5 | ASK | [`Ask`] | 18 | ACCEPTED | [`Accepted`] |
//! | 6 | OWN | [`Own`] | 19 | VALUE_REQ | [`ValueRequest`] |
//! | 7 | CONFIG_REQ | [`ConfigRequest`] | 20 | VALUE | [`Value`] |
//! | 8 | CONFIG | [`super::config`] | 21 | REFUSE | [`Refuse`] |
//! | 9 | HELLO | [`Hello`] | 22 | SNAP_REQ | [`SnapRequest`] |
//! | 10 | PLEDGE | [`Pledge`] | 23 | SNAP | [`Snap`] |
//! | 11 | EXISTS | [`Exists`] | 24 | SKETCH | [`Sketch`] |
//! | 12 | SETTINGS_MISMATCH | [`SettingsMismatch`] | | | |
//! | 13 | CHALLENGE | [`Challenge`] | | | |
//!
//! `aux` is zero in all of them. Fields stand in the order drawn, nothing between them. A **stream** is 8 bytes:
//! place `k` u8, three zeros, `g` u32.
//!
//! A body may hold several messages; a header, if there is one, comes first. Frames that belong to a REPORT or ACCEPT
//! follow it as FRAME messages of the same datagram, or of others.
//!
//! **Invariants**: [`messages`] gives whole, validated messages, up to the first that cannot be read.
//! **Limits**: [`PULL_MAX`] frames a PULL. **Not here**: what follows from a message (`protocol`).

use super::WireError;
use super::bytes::{BodyWriter, Full, Raw, RawMessages, Reader, fixed_message};
use super::config::ConfigView;
use super::frame::{FRAME, FrameView};
use super::header::Header;
use crate::protocol::{Epoch, FrameNo, ServerId, StreamId, Timestamp};

pub use super::change::{Accept, Accepted, Prepare, Reason, Refuse, Report, Value, ValueRequest};
pub use super::genesis::{Challenge, Exists, Hello, Join, Pledge, SETTINGS_MAX, SettingsMismatch, Terms};

/// Most frames of one PULL.
pub const PULL_MAX: u64 = 64;
/// Points of a delay sketch.
pub const SKETCH_POINTS: usize = 32;

fixed_message! {
    /// PULL: frames wanted, answered with FRAMEs or GONE.
    ///
    /// ```text
    /// offset  0        8           16        24
    ///         | stream | from, u64 | to, u64 |      1 <= from <= to <= from + 63
    /// ```
    Pull = 3, 24 {
        /// Of which stream.
        stream: StreamId,
        /// First frame wanted.
        from: FrameNo,
        /// Last frame wanted.
        to: FrameNo,
    }
}

fixed_message! {
    /// GONE: a frame that was pulled and is held no more; take a snapshot.
    ///
    /// ```text
    /// offset  0        8        16
    ///         | stream | s, u64 |
    /// ```
    Gone = 4, 16 {
        /// Of which stream.
        stream: StreamId,
        /// Which frame.
        s: FrameNo,
    }
}

fixed_message! {
    /// ASK: the promise of a stream is wanted, whoever has it.
    ///
    /// ```text
    /// offset  0        8
    ///         | stream |
    /// ```
    Ask = 5, 8 {
        /// Which stream.
        stream: StreamId,
    }
}

fixed_message! {
    /// OWN: the newest own-part held of a stream, whoever's it is; answers ASK.
    ///
    /// ```text
    /// offset  0        8           16            24
    ///         | stream | last, u64 | promise, ns |
    /// ```
    Own = 6, 24 {
        /// Which stream.
        stream: StreamId,
        /// Its last frame then.
        last: FrameNo,
        /// Nothing at or below this follows `last`.
        promise: Timestamp,
    }
}

fixed_message! {
    /// SNAP_REQ: bytes of a snapshot wanted.
    ///
    /// ```text
    /// offset  0         8             16                20
    ///         | id, u64 | offset, u64 | at most, u32    |      id 0: begin a new one
    /// ```
    SnapRequest = 22, 20 {
        /// Which snapshot, as its first SNAP named it; zero: a new one.
        id: u64,
        /// From which byte on.
        offset: u64,
        /// How many bytes may be sent before the next request.
        credit: u32,
    }
}

/// CONFIG_REQ: which configuration the sender has; answered with the next one, or the one it needs.
///
/// ```text
/// offset  0        4          5
///         | e, u32 | has one  |      has one: 1, or 0 (then e is 0) before any
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigRequest {
    /// The epoch entered, if any.
    pub have: Option<Epoch>,
}

impl ConfigRequest {
    /// Message type.
    pub const KIND: u8 = 7;
    /// Bytes of the payload.
    pub const LEN: usize = 5;

    /// Appends it to a body.
    ///
    /// # Errors
    /// [`Full`] if it does not fit; nothing is written then.
    pub fn put(&self, body: &mut BodyWriter<'_>) -> Result<(), Full> {
        let mut f = body.message(Self::KIND, 0, Self::LEN)?;
        f.field(self.have.unwrap_or_default()).field(u8::from(self.have.is_some())).done();
        Ok(())
    }

    fn read(payload: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(Self::KIND, payload);
        let (epoch, has): (Epoch, u8) = (r.field("e")?, r.field("has one")?);
        r.end()?;
        match has {
            0 if epoch == Epoch::default() => Ok(Self { have: None }),
            0 => Err(r.not_zero("e without a configuration")),
            1 => Ok(Self { have: Some(epoch) }),
            other => Err(r.range("has one", other, 0, 1)),
        }
    }
}

/// SNAP: bytes of a snapshot.
///
/// ```text
/// offset  0         8             16           24
///         | id, u64 | offset, u64 | total, u64 | bytes |      offset + bytes <= total
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snap<'a> {
    /// Which snapshot.
    pub id: u64,
    /// Where these bytes begin.
    pub offset: u64,
    /// How long it is in all.
    pub total: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl<'a> Snap<'a> {
    /// Message type.
    pub const KIND: u8 = 23;

    /// Appends it to a body.
    ///
    /// # Errors
    /// [`Full`] if it does not fit; nothing is written then.
    pub fn put(&self, body: &mut BodyWriter<'_>) -> Result<(), Full> {
        let mut f = body.message(Self::KIND, 0, 24 + self.bytes.len())?;
        f.field(self.id).field(self.offset).field(self.total).bytes(self.bytes).done();
        Ok(())
    }

    fn read(payload: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(Self::KIND, payload);
        let (id, offset, total): (u64, u64, u64) = (r.field("id")?, r.field("offset")?, r.field("total")?);
        let bytes = r.rest();
        let held = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if offset.checked_add(held).is_none_or(|end| end > total) {
            return Err(r.range("offset", offset, 0, usize::try_from(total).unwrap_or(usize::MAX)));
        }
        Ok(Self { id, offset, total, bytes })
    }
}

/// SKETCH: quantiles of one link's delay.
///
/// ```text
/// offset  0                1             4              8
///         | link from, k   | reserved 0  | samples, u32 | 32 x ns, u32 |
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sketch {
    /// The link from this place to the sender.
    pub link: ServerId,
    /// How many samples it rests on.
    pub samples: u32,
    /// Delays in ns, by quantile.
    pub points: [u32; SKETCH_POINTS],
}

impl Sketch {
    /// Message type.
    pub const KIND: u8 = 24;
    /// Bytes of the payload.
    pub const LEN: usize = 8 + 4 * SKETCH_POINTS;

    /// Appends it to a body.
    ///
    /// # Errors
    /// [`Full`] if it does not fit; nothing is written then.
    pub fn put(&self, body: &mut BodyWriter<'_>) -> Result<(), Full> {
        let mut f = body.message(Self::KIND, 0, Self::LEN)?;
        f.field(self.link).bytes(&[0; 3]).field(self.samples).all(&self.points).done();
        Ok(())
    }

    fn read(payload: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(Self::KIND, payload);
        let link = r.field("link")?;
        r.zeros::<3>()?;
        let samples = r.field("samples")?;
        let mut points = [0; SKETCH_POINTS];
        for point in &mut points {
            *point = r.field("points")?;
        }
        r.end()?;
        Ok(Self { link, samples, points })
    }
}

macro_rules! peer_messages {
    ($($(#[$doc:meta])* $variant:ident($ty:ty)),* $(,)?) => {
        /// A message of a server to a server.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum PeerMessage<'a> {
            $($(#[$doc])* $variant($ty),)*
        }

        impl PeerMessage<'_> {
            /// Appends it to a body.
            ///
            /// # Errors
            /// [`Full`] if it does not fit; nothing is written then.
            pub fn put(&self, body: &mut BodyWriter<'_>) -> Result<(), Full> {
                match self {
                    $(Self::$variant(message) => message.put(body),)*
                }
            }
        }
    };
}

peer_messages! {
    /// HDR.
    Header(Header),
    /// FRAME.
    Frame(FrameView<'a>),
    /// PULL.
    Pull(Pull),
    /// GONE.
    Gone(Gone),
    /// ASK.
    Ask(Ask),
    /// OWN.
    Own(Own),
    /// CONFIG_REQ.
    ConfigRequest(ConfigRequest),
    /// CONFIG.
    Config(ConfigView<'a>),
    /// HELLO.
    Hello(Hello),
    /// PLEDGE.
    Pledge(Pledge),
    /// EXISTS.
    Exists(Exists),
    /// SETTINGS_MISMATCH.
    SettingsMismatch(SettingsMismatch),
    /// CHALLENGE.
    Challenge(Challenge),
    /// JOIN.
    Join(Join),
    /// PREPARE.
    Prepare(Prepare),
    /// REPORT.
    Report(Report<'a>),
    /// ACCEPT.
    Accept(Accept<'a>),
    /// ACCEPTED.
    Accepted(Accepted),
    /// VALUE_REQ.
    ValueRequest(ValueRequest),
    /// VALUE.
    Value(Value<'a>),
    /// REFUSE.
    Refuse(Refuse),
    /// SNAP_REQ.
    SnapRequest(SnapRequest),
    /// SNAP.
    Snap(Snap<'a>),
    /// SKETCH.
    Sketch(Sketch),
}

impl<'a> PeerMessage<'a> {
    fn read(raw: Raw<'a>) -> Result<Self, WireError> {
        let Raw { kind, aux, payload } = raw;
        if aux != 0 {
            return Err(WireError::Aux { kind, aux });
        }
        match kind {
            Header::KIND => Header::read(payload).map(Self::Header),
            FRAME => FrameView::parse(payload).map(Self::Frame),
            Pull::KIND => read_pull(payload).map(Self::Pull),
            Gone::KIND => Gone::read(payload).map(Self::Gone),
            Ask::KIND => Ask::read(payload).map(Self::Ask),
            Own::KIND => Own::read(payload).map(Self::Own),
            ConfigRequest::KIND => ConfigRequest::read(payload).map(Self::ConfigRequest),
            ConfigView::KIND => ConfigView::read(&mut Reader::new(kind, payload)).map(Self::Config),
            Hello::KIND => Hello::read(payload).map(Self::Hello),
            Pledge::KIND => Pledge::read(payload).map(Self::Pledge),
            Exists::KIND => Exists::read(payload).map(Self::Exists),
            SettingsMismatch::KIND => SettingsMismatch::read(payload).map(Self::SettingsMismatch),
            Challenge::KIND => Challenge::read(payload).map(Self::Challenge),
            Join::KIND => Join::read(payload).map(Self::Join),
            Prepare::KIND => Prepare::read(payload).map(Self::Prepare),
            Report::KIND => Report::read(payload).map(Self::Report),
            Accept::KIND => Accept::read(payload).map(Self::Accept),
            Accepted::KIND => Accepted::read(payload).map(Self::Accepted),
            ValueRequest::KIND => ValueRequest::read(payload).map(Self::ValueRequest),
            Value::KIND => Value::read(payload).map(Self::Value),
            Refuse::KIND => Refuse::read(payload).map(Self::Refuse),
            SnapRequest::KIND => SnapRequest::read(payload).map(Self::SnapRequest),
            Snap::KIND => Snap::read(payload).map(Self::Snap),
            Sketch::KIND => Sketch::read(payload).map(Self::Sketch),
            _ => Err(WireError::Unknown { kind }),
        }
    }
}

fn read_pull(payload: &[u8]) -> Result<Pull, WireError> {
    let pull = Pull::read(payload)?;
    let (from, to) = (pull.from.get(), pull.to.get());
    if from == 0 {
        return Err(WireError::Range { kind: Pull::KIND, field: "from", value: 0, low: 1, high: u64::MAX });
    }
    let high = from.saturating_add(PULL_MAX - 1);
    if to < from || to > high {
        return Err(WireError::Range { kind: Pull::KIND, field: "to", value: to, low: from, high });
    }
    Ok(pull)
}

/// The messages of a peer's datagram, each validated when it is reached; stop at the first error.
pub fn messages(body: &[u8]) -> impl Iterator<Item = Result<PeerMessage<'_>, WireError>> {
    RawMessages::new(body).map(|raw| PeerMessage::read(raw?))
}
