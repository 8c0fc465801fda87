//! Messages by which servers find each other: HELLO, PLEDGE, EXISTS, SETTINGS_MISMATCH, CHALLENGE, JOIN.
//!
//! **Why settings travel.** Servers whose limits differ would number differently; the one that differs is named.
//! **Limits**: [`SETTINGS_MAX`] settings. **Not here**: who may form an instance (`protocol`), what the settings are
//! (`server`).

use super::bytes::{BodyWriter, Few, Field, Fields, Full, HEAD_LEN, Reader, fixed_message};
use super::{PAYLOAD_MIN, WireError, body_max};
use crate::protocol::{Epoch, Incarnation, Instance, SERVERS_MAX};

/// Most settings that servers compare.
pub const SETTINGS_MAX: usize = 24;

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
    /// Most bytes it takes.
    pub const LEN_MAX: usize = 4 + 8 * SETTINGS_MAX;

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

    fn write(&self, f: &mut Fields<'_>) {
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

const _: () = assert!(HEAD_LEN + 24 + Terms::LEN_MAX <= body_max(PAYLOAD_MIN));

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

            pub(super) fn read(payload: &[u8]) -> Result<Self, WireError> {
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
