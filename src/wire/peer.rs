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
//! **Invariants**: [`parse`] validates a whole body; [`PeerMessages`] then cannot fail.
//! **Limits**: [`PULL_MAX`] frames a PULL. **Not here**: what follows from a message (`protocol`).

use super::WireError;
use super::bytes::{BodyWriter, Few, Field, Full, Raw, RawMessages, Reader, fixed_message};
use super::config::ConfigView;
use super::frame::{FRAME, FrameView};
use super::header::Header;
use crate::protocol::{Epoch, FrameNo, Incarnation, Instance, ROWS_MAX, SERVERS_MAX, ServerId, StreamId, Timestamp};

/// Most frames of one PULL.
pub const PULL_MAX: u64 = 64;
/// Most settings that servers compare.
pub const SETTINGS_MAX: usize = 24;
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
    /// EXISTS: a member's answer to HELLO: there is an instance, and who stands at the addressee's place in it.
    ///
    /// ```text
    /// offset  0          8                 16       20
    ///         | instance | inc there, u64  | e, u32 |
    /// ```
    Exists = 11, 20 {
        /// The instance.
        instance: Instance,
        /// The incarnation at the addressee's place; zero: vacant.
        standing: Incarnation,
        /// The epoch the sender has entered.
        epoch: Epoch,
    }
}

fixed_message! {
    /// SETTINGS_MISMATCH: the settings of HELLO, PLEDGE or JOIN are not the sender's; this one differs first.
    ///
    /// ```text
    /// offset  0           8            16         17
    ///         | mine, u64 | yours, u64 | index u8 |      index 0..23: a setting; 254: n; 255: the vacant places
    /// ```
    SettingsMismatch = 12, 17 {
        /// The sender's value.
        mine: u64,
        /// The addressee's value.
        yours: u64,
        /// Which: an index into [`Terms::settings`], [`SettingsMismatch::SERVERS`] or [`SettingsMismatch::VACANT`].
        index: u8,
    }
}

impl SettingsMismatch {
    /// The number of servers differs.
    pub const SERVERS: u8 = 254;
    /// The list of vacant places differs.
    pub const VACANT: u8 = 255;
}

fixed_message! {
    /// CHALLENGE: a joiner must echo this.
    ///
    /// ```text
    /// offset  0       8
    ///         | nonce |
    /// ```
    Challenge = 13, 8 {
        /// The sender's nonce.
        nonce: u64,
    }
}

fixed_message! {
    /// PREPARE: fence yourself under ballot `b` of epoch `e`, and report.
    ///
    /// ```text
    /// offset  0        4        8        9
    ///         | e, u32 | b, u32 | reason |      reason: 1 suspected, 2 admit, 3 drain, 4 reopen
    /// ```
    Prepare = 15, 9 {
        /// The epoch to leave.
        epoch: Epoch,
        /// The ballot.
        ballot: u32,
        /// Why.
        reason: Reason,
    }
}

fixed_message! {
    /// ACCEPTED: the sender has accepted the value with this digest.
    ///
    /// ```text
    /// offset  0        4        8             16
    ///         | e, u32 | b, u32 | digest, u64 |      digest: first 8 bytes of BLAKE3 over the value's bytes
    /// ```
    Accepted = 18, 16 {
        /// The epoch to leave.
        epoch: Epoch,
        /// The ballot.
        ballot: u32,
        /// What the value is named by.
        digest: u64,
    }
}

fixed_message! {
    /// VALUE_REQ: the value with this digest is wanted.
    ///
    /// ```text
    /// offset  0        4             12
    ///         | e, u32 | digest, u64 |
    /// ```
    ValueRequest = 19, 12 {
        /// The epoch to leave.
        epoch: Epoch,
        /// What the value is named by.
        digest: u64,
    }
}

fixed_message! {
    /// REFUSE: your ballot, or your epoch, is too old.
    ///
    /// ```text
    /// offset  0        4             8           12
    ///         | e, u32 | b seen, u32 | newer, u32|
    /// ```
    Refuse = 21, 12 {
        /// The epoch of what is refused.
        epoch: Epoch,
        /// The highest ballot seen in it; 0: none.
        ballot: u32,
        /// The epoch the sender has entered.
        entered: Epoch,
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

/// Why a configuration is proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// A majority suspects an open stream.
    Suspected = 1,
    /// A learner has caught up.
    Admit = 2,
    /// A member leaves in good order.
    Drain = 3,
    /// A member wants a stream again.
    Reopen = 4,
}

impl Field for Reason {
    const LEN: usize = 1;
    fn read(r: &mut Reader<'_>, name: &'static str) -> Result<Self, WireError> {
        match r.field::<u8>(name)? {
            1 => Ok(Self::Suspected),
            2 => Ok(Self::Admit),
            3 => Ok(Self::Drain),
            4 => Ok(Self::Reopen),
            other => Err(r.range(name, other, 1, 4)),
        }
    }
    fn write(self, f: &mut super::bytes::Fields<'_>) {
        f.field(self as u8);
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

/// What all servers of a cluster must have configured alike: part of HELLO, PLEDGE and JOIN.
///
/// ```text
/// offset  0      1          2           3             4
///         | n u8 | vacant   | count u8  | reserved 0  | count x value, u64 |      vacant: bit k: place k is vacant
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Places, 1..7.
    pub servers: u8,
    /// Bit k: place k is left out of genesis.
    pub vacant: u8,
    /// Values in an order that the configuration fixes, so that the one that differs can be named.
    pub settings: Few<u64, SETTINGS_MAX>,
}

impl Terms {
    /// Bytes it takes.
    #[must_use]
    pub const fn len(&self) -> usize {
        4 + 8 * self.settings.len()
    }

    /// Never: it has a fixed part.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// The first difference from `theirs`, to tell them.
    #[must_use]
    pub fn mismatch(&self, theirs: &Self) -> Option<SettingsMismatch> {
        let (mine, yours) = (self.settings.as_slice(), theirs.settings.as_slice());
        let at = |list: &[u64], index: usize| list.get(index).copied().unwrap_or(0);
        if self.servers != theirs.servers {
            let (mine, yours) = (u64::from(self.servers), u64::from(theirs.servers));
            return Some(SettingsMismatch { mine, yours, index: SettingsMismatch::SERVERS });
        }
        if self.vacant != theirs.vacant {
            let (mine, yours) = (u64::from(self.vacant), u64::from(theirs.vacant));
            return Some(SettingsMismatch { mine, yours, index: SettingsMismatch::VACANT });
        }
        let count = mine.len().max(yours.len());
        let index = (0..count).find(|index| mine.get(*index) != yours.get(*index))?;
        let (mine, yours) = (at(mine, index), at(yours, index));
        Some(SettingsMismatch { mine, yours, index: u8::try_from(index).unwrap_or(u8::MAX) })
    }

    fn write(&self, f: &mut super::bytes::Fields<'_>) {
        f.field(self.servers).field(self.vacant).field(self.settings.count()).field(0_u8);
        f.all(self.settings.as_slice());
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let [servers, vacant, count, reserved] = r.array()?;
        if servers == 0 || usize::from(servers) > SERVERS_MAX {
            return Err(r.range("n", servers, 1, SERVERS_MAX));
        }
        if reserved != 0 {
            return Err(r.not_zero("reserved"));
        }
        Ok(Self { servers, vacant, settings: r.few("settings", count)? })
    }
}

macro_rules! with_terms {
    ($(#[$doc:meta])* $name:ident = $kind:literal, $fixed:literal {
        $($(#[$field_doc:meta])* $field:ident: $ty:ty),* $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $ty,)*
            /// What the sender has configured.
            pub terms: Terms,
        }

        impl $name {
            /// Message type.
            pub const KIND: u8 = $kind;

            /// Appends it to a body.
            ///
            /// # Errors
            /// [`Full`] if it does not fit; nothing is written then.
            pub fn put(&self, body: &mut BodyWriter<'_>) -> Result<(), Full> {
                let mut f = body.message($kind, 0, $fixed + self.terms.len())?;
                $(f.field(self.$field);)*
                self.terms.write(&mut f);
                f.done();
                Ok(())
            }

            fn read(payload: &[u8]) -> Result<Self, WireError> {
                let mut r = Reader::new($kind, payload);
                let message = Self { $($field: r.field(stringify!($field))?,)* terms: Terms::read(&mut r)? };
                r.end()?;
                Ok(message)
            }
        }

        const _: () = assert!($fixed == 0 $(+ <$ty as Field>::LEN)*);
    };
}

with_terms! {
    /// HELLO: the lowest place not vacant asks the others to pledge themselves to its incarnation.
    ///
    /// ```text
    /// offset  0     8
    ///         | inc | terms |
    /// ```
    Hello = 9, 8 {
        /// The sender's incarnation.
        inc: Incarnation,
    }
}

with_terms! {
    /// PLEDGE: the sender's incarnation is pledged to that one, and to no other.
    ///
    /// ```text
    /// offset  0     8    16
    ///         | inc | to | terms |
    /// ```
    Pledge = 10, 16 {
        /// The pledger's incarnation.
        inc: Incarnation,
        /// Pledged to.
        to: Incarnation,
    }
}

with_terms! {
    /// JOIN: a learner asks to be admitted.
    ///
    /// ```text
    /// offset  0     8       16        24
    ///         | inc | nonce | pos,u64 | terms |      nonce: the addressee's, of its CHALLENGE; 0: none had yet
    /// ```
    Join = 14, 24 {
        /// The learner's incarnation.
        inc: Incarnation,
        /// Echo of the addressee's nonce.
        nonce: u64,
        /// Entries delivered.
        pos: u64,
    }
}

/// REPORT: what a fenced member holds; frames follow as FRAME messages.
///
/// ```text
/// offset  0        4        8           9         10           12             16         24
///         | e, u32 | b, u32 | rows u8 r | suspects| reserved 0 | acc b, u32   | maxts    | r x len, u64 | value |
/// ```
///
/// `acc b` 0: nothing accepted, and no value follows. The value is a configuration ([`super::config`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report<'a> {
    /// The epoch to leave.
    pub epoch: Epoch,
    /// The ballot it is made for.
    pub ballot: u32,
    /// Whom the reporter suspects.
    pub suspects: u8,
    /// Largest timestamp ever accepted.
    pub max_ts: Timestamp,
    /// Frames held, by row of `C_e`.
    pub lens: Few<FrameNo, ROWS_MAX>,
    /// What it has accepted, under which ballot.
    pub accepted: Option<(u32, ConfigView<'a>)>,
}

impl<'a> Report<'a> {
    /// Message type.
    pub const KIND: u8 = 16;
    const FIXED: usize = 24;

    /// Appends it to a body.
    ///
    /// # Errors
    /// [`Full`] if it does not fit; nothing is written then.
    pub fn put(&self, body: &mut BodyWriter<'_>) -> Result<(), Full> {
        let value = self.accepted.map_or(&[][..], |(_, value)| value.bytes());
        let mut f = body.message(Self::KIND, 0, Self::FIXED + 8 * self.lens.len() + value.len())?;
        f.field(self.epoch).field(self.ballot).field(self.lens.count()).field(self.suspects).field(0_u16);
        f.field(self.accepted.map_or(0, |(ballot, _)| ballot)).field(self.max_ts);
        f.all(self.lens.as_slice()).bytes(value).done();
        Ok(())
    }

    fn read(payload: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(Self::KIND, payload);
        let (epoch, ballot) = (r.field("e")?, r.field("b")?);
        let (rows, suspects) = (r.field("rows")?, r.field("suspects")?);
        r.zeros::<2>()?;
        let accepted: u32 = r.field("acc b")?;
        let (max_ts, lens) = (r.field("maxts")?, r.few("rows", rows)?);
        let accepted = if accepted == 0 { None } else { Some((accepted, ConfigView::read(&mut r)?)) };
        r.end()?;
        Ok(Self { epoch, ballot, suspects, max_ts, lens, accepted })
    }
}

macro_rules! with_value {
    ($(#[$doc:meta])* $name:ident = $kind:literal) => {
        $(#[$doc])*
        ///
        /// ```text
        /// offset  0        4        8
        ///         | e, u32 | b, u32 | value |      value: a configuration
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name<'a> {
            /// The epoch to leave.
            pub epoch: Epoch,
            /// The ballot.
            pub ballot: u32,
            /// The configuration proposed.
            pub value: ConfigView<'a>,
        }

        impl<'a> $name<'a> {
            /// Message type.
            pub const KIND: u8 = $kind;

            /// Appends it to a body.
            ///
            /// # Errors
            /// [`Full`] if it does not fit; nothing is written then.
            pub fn put(&self, body: &mut BodyWriter<'_>) -> Result<(), Full> {
                let mut f = body.message($kind, 0, 8 + self.value.bytes().len())?;
                f.field(self.epoch).field(self.ballot).bytes(self.value.bytes()).done();
                Ok(())
            }

            fn read(payload: &'a [u8]) -> Result<Self, WireError> {
                let mut r = Reader::new($kind, payload);
                Ok(Self { epoch: r.field("e")?, ballot: r.field("b")?, value: ConfigView::read(&mut r)? })
            }
        }
    };
}

with_value! {
    /// ACCEPT: accept this configuration; frames that the addressee lacks follow as FRAME messages.
    Accept = 17
}

with_value! {
    /// VALUE: the configuration that was asked for.
    Value = 20
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

/// Validates the body of a peer's datagram; nothing is acted on unless all of it can be read.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn parse(body: &[u8]) -> Result<PeerMessages<'_>, WireError> {
    for raw in RawMessages::new(body) {
        PeerMessage::read(raw?)?;
    }
    Ok(PeerMessages { left: RawMessages::new(body) })
}

/// The messages of a body that [`parse`] has validated.
#[derive(Clone, Debug)]
pub struct PeerMessages<'a> {
    left: RawMessages<'a>,
}

impl<'a> Iterator for PeerMessages<'a> {
    type Item = PeerMessage<'a>;
    fn next(&mut self) -> Option<Self::Item> {
        let raw = self.left.next()?.ok()?;
        let read = match raw.kind {
            FRAME => FrameView::again(raw.payload).map(PeerMessage::Frame),
            _ => PeerMessage::read(raw),
        };
        debug_assert!(read.is_ok(), "validated when parsed: {read:?}");
        read.ok()
    }
}
