//! Keys and tags: who may speak as whom.
//!
//! ```text
//! cluster key (32 bytes, a file)
//!   |- derive_key("ordain 2026 peer datagrams")    -> PeerKey           servers among themselves
//!   `- derive_key("ordain 2026 principal keys")    -> root
//!        `- keyed_hash(root, principal id, 8 bytes LE) -> PrincipalKey  one Tx host, by name
//! principal id = first 8 bytes, LE, of derive_key("ordain 2026 principal names", name)
//! tag          = SipHash-2-4, 128-bit output, key = first 16 bytes of the key, over envelope and body
//! ```
//!
//! `derive_key` and `keyed_hash` are those of BLAKE3. The tag is the 16 bytes of the reference implementation: first
//! `u64`, then second `u64`, both little-endian.
//!
//! To check an implementation: with the cluster key `00 01 .. 1f` and the name `alpha`,
//!
//! ```text
//! principal id   fc4c7e05f5a64712 (as a number; travels as 12 47 a6 f5 05 7e 4c fc)
//! peer key       3b77aac73897b4a697b8475e65a499e7235f2e9ff872acdda5517599986df3eb
//! principal key  99c6e671e28200b19fb881f76053003a3768025f91d706c239e488b3881cf235
//! tag of nothing under the peer key        72bb240038c3f0478ac873f0715c27cf
//! tag of nothing under the key 00 .. 1f    a3817f04ba25a8e66df67214c7550293 (the reference vector of SipHash-2-4-128)
//! ```
//!
//! **Why SipHash-2-4.** A datagram is short, and SipHash (Aumasson, Bernstein, 2012) is made for short input: a 128-bit
//! key, a 128-bit tag, no special instructions, pure Rust. Median ns a tag on two busy cores (`cargo bench --bench mac`):
//!
//! | bytes | SipHash-2-4 | SipHash-1-3 | keyed BLAKE3 |
//! |---|---|---|---|
//! | 64 | 53 | 35 | 93 |
//! | 256 | 162 | 102 | 319 |
//! | 1024 | 564 | 346 | 1237 |
//! | 1472 | 830 | 514 | 1839 |
//!
//! SipHash-1-3 is a third faster, with fewer rounds than its authors propose. Measured elsewhere: AEGIS-128L is faster on
//! long datagrams, but only in C with AES instructions (its portable Rust is more than ten times slower than SipHash), and
//! HMAC-SHA256 takes a microsecond for 64 bytes. The choice stands in two functions, [`tag`] and [`verify`]; another one is another wire version.
//!
//! **Invariants**: a principal's key says nothing about another's or about the peers' (one-way derivation); the `kind`
//! byte is under the tag, so that nothing sent to a client verifies as sent by one. Debug output of a key has no secret.
//!
//! **Limits.** Replays are harmless by sequence and window, not by the tag. Nothing is encrypted. Two names with the
//! same 64-bit id would be one principal: 2^64 work to find one for a given name.
//! **Not here**: key files (`server`).

use core::fmt;
use core::hint::black_box;

use crate::protocol::Principal;

/// Bytes of a key.
pub const KEY_LEN: usize = 32;
/// Bytes of a tag.
pub const TAG_LEN: usize = 16;
/// Longest name of a principal.
pub const NAME_MAX: usize = 32;
/// Slots of a [`KeyCache`].
pub const KEY_CACHE_SLOTS: usize = 256;

const PEER_CONTEXT: &str = "ordain 2026 peer datagrams";
const PRINCIPAL_CONTEXT: &str = "ordain 2026 principal keys";
const NAME_CONTEXT: &str = "ordain 2026 principal names";

const _: () = assert!(KEY_CACHE_SLOTS.is_power_of_two() && KEY_LEN == blake3::KEY_LEN);

macro_rules! key {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub struct $name([u8; KEY_LEN]);

        impl $name {
            /// From the 32 bytes of a file.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; KEY_LEN]) -> Self {
                Self(bytes)
            }
            /// The 32 bytes, to write a file.
            #[must_use]
            pub const fn expose(&self) -> &[u8; KEY_LEN] {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "(..)"))
            }
        }
    };
}

key!(
    /// The secret of a cluster: every other key follows from it.
    ClusterKey
);
key!(
    /// What servers authenticate each other's datagrams with.
    PeerKey
);
key!(
    /// What one principal and the servers authenticate their datagrams with, in both directions.
    PrincipalKey
);

impl ClusterKey {
    /// The key that everybody knows: `auth = "none"`. Tags are then checksums.
    pub const PUBLIC: Self = Self([0; KEY_LEN]);

    /// The servers' key.
    #[must_use]
    pub fn peer(&self) -> PeerKey {
        PeerKey(blake3::derive_key(PEER_CONTEXT, &self.0))
    }

    /// A principal's key. Two derivations; a server that does it often keeps a [`KeyCache`].
    #[must_use]
    pub fn principal(&self, principal: Principal) -> PrincipalKey {
        self.root().derive(principal)
    }

    fn root(&self) -> Root {
        Root(blake3::derive_key(PRINCIPAL_CONTEXT, &self.0))
    }
}

impl PrincipalKey {
    /// The key of `principal` in the cluster of `key`.
    #[must_use]
    pub fn derive(key: &ClusterKey, principal: Principal) -> Self {
        key.principal(principal)
    }
}

/// What the principals' keys are derived from: one compression each.
#[derive(Clone, Copy)]
struct Root([u8; KEY_LEN]);

impl Root {
    fn derive(&self, principal: Principal) -> PrincipalKey {
        PrincipalKey(*blake3::keyed_hash(&self.0, &principal.get().to_le_bytes()).as_bytes())
    }
}

/// A name that no principal can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Empty, or too long.
    #[error("a principal's name has 1 to 32 characters, this has {got}")]
    Length {
        /// Bytes it has.
        got: usize,
    },
    /// A character that names do not have.
    #[error("byte {byte:#04x} at position {at} of a principal's name: allowed are A-Z a-z 0-9 . _ -")]
    Character {
        /// Where, from 0.
        at: usize,
        /// The byte.
        byte: u8,
    },
}

/// Checks that `name` is one that a principal can have.
///
/// # Errors
/// What is wrong with it.
pub fn check_name(name: &[u8]) -> Result<(), NameError> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(NameError::Length { got: name.len() });
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    match name.iter().enumerate().find(|(_, byte)| !allowed(**byte)) {
        Some((at, byte)) => Err(NameError::Character { at, byte: *byte }),
        None => Ok(()),
    }
}

/// The id of the principal called `name`.
///
/// # Errors
/// If no principal can have that name.
pub fn principal_id(name: &str) -> Result<Principal, NameError> {
    check_name(name.as_bytes())?;
    let digest = blake3::derive_key(NAME_CONTEXT, name.as_bytes());
    let [a, b, c, d, e, f, g, h, ..] = digest;
    Ok(Principal::new(u64::from_le_bytes([a, b, c, d, e, f, g, h])))
}

/// A key that tags can be made with.
pub trait Mac: sealed::Sealed {}
impl Mac for PeerKey {}
impl Mac for PrincipalKey {}

mod sealed {
    /// The bytes of a key, for the two functions of this module.
    pub trait Sealed {
        /// All 32 bytes.
        fn bytes(&self) -> &[u8; super::KEY_LEN];
    }
    impl Sealed for super::PeerKey {
        fn bytes(&self) -> &[u8; super::KEY_LEN] {
            &self.0
        }
    }
    impl Sealed for super::PrincipalKey {
        fn bytes(&self) -> &[u8; super::KEY_LEN] {
            &self.0
        }
    }
}

/// The tag of `bytes` under `key`.
#[must_use]
pub fn tag(key: &impl Mac, bytes: &[u8]) -> [u8; TAG_LEN] {
    let (half, _) = key.bytes().split_at(16);
    let mut short = [0; 16];
    short.copy_from_slice(half);
    siphasher::sip128::SipHasher24::new_with_key(&short).hash(bytes).as_bytes()
}

/// Whether `claimed` is the tag of `bytes` under `key`, in a time that does not depend on where they differ.
#[must_use]
pub fn verify(key: &impl Mac, bytes: &[u8], claimed: &[u8; TAG_LEN]) -> bool {
    let real = u128::from_le_bytes(tag(key, bytes));
    black_box(real ^ u128::from_le_bytes(*claimed)) == 0
}

/// The keys of the principals heard last: direct-mapped, filled only after a tag has verified, so that garbage under
/// made-up principals evicts nothing.
pub struct KeyCache {
    root: Root,
    slots: [Option<(Principal, PrincipalKey)>; KEY_CACHE_SLOTS],
}

impl KeyCache {
    /// For the principals of the cluster of `key`.
    #[must_use]
    pub fn new(key: &ClusterKey) -> Self {
        Self { root: key.root(), slots: [None; KEY_CACHE_SLOTS] }
    }

    /// The key of `principal`: from its slot, else derived (one compression). The cache does not change.
    #[must_use]
    pub fn key(&self, principal: Principal) -> PrincipalKey {
        match self.slots[Self::slot(principal)] {
            Some((held, key)) if held == principal => key,
            _ => self.root.derive(principal),
        }
    }

    /// Whether `principal`'s key is held.
    #[must_use]
    pub fn holds(&self, principal: Principal) -> bool {
        matches!(self.slots[Self::slot(principal)], Some((held, _)) if held == principal)
    }

    /// Verifies a tag of `principal`, and keeps its key if it is valid.
    pub(super) fn verify(&mut self, principal: Principal, bytes: &[u8], claimed: &[u8; TAG_LEN]) -> bool {
        let key = self.key(principal);
        let valid = verify(&key, bytes, claimed);
        if valid {
            self.slots[Self::slot(principal)] = Some((principal, key));
        }
        valid
    }

    const fn slot(principal: Principal) -> usize {
        // The id is a digest, so its low bits are as good as any.
        let low = principal.get().to_le_bytes();
        (low[0] as usize | (low[1] as usize) << 8) & (KEY_CACHE_SLOTS - 1)
    }
}

impl fmt::Debug for KeyCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.slots.iter().filter(|slot| slot.is_some()).count();
        f.debug_struct("KeyCache").field("held", &held).finish_non_exhaustive()
    }
}
