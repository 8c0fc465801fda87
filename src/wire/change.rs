//! Messages of an epoch change: PREPARE, REPORT, ACCEPT, ACCEPTED, VALUE_REQ, VALUE, REFUSE.
//!
//! One step of single-decree Paxos (Lamport, "The Part-Time Parliament") among the members of an epoch; a value is a
//! configuration. **Why frames are not in REPORT and ACCEPT**: they follow as FRAME messages, so that a message has a
//! bound. **Limits**: one configuration a message. **Not here**: who may propose what (`protocol`).

use super::bytes::{BodyWriter, Few, Field, Fields, Full, HEAD_LEN, Reader, fixed_message};
use super::config::{CONFIG_LEN_MAX, ConfigView};
use super::{PAYLOAD_MIN, WireError, body_max};
use crate::protocol::{Epoch, FrameNo, ROWS_MAX, Timestamp};

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
    fn write(self, f: &mut Fields<'_>) {
        f.field(self as u8);
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
    /// Longest payload.
    pub const LEN_MAX: usize = Self::FIXED + 8 * ROWS_MAX + CONFIG_LEN_MAX;

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

    pub(super) fn read(payload: &'a [u8]) -> Result<Self, WireError> {
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

const _: () = assert!(HEAD_LEN + Report::LEN_MAX <= body_max(PAYLOAD_MIN));

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

            pub(super) fn read(payload: &'a [u8]) -> Result<Self, WireError> {
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
