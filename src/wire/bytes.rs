//! Reading and writing little-endian fields in place, and messages in a body.
//!
//! A **body** is a run of messages, each with a head of 4 bytes:
//!
//! ```text
//! byte   0      1      2      3      4 ..
//!     +------+------+------+------+----------------+
//!     | type | aux  | length, u16 | payload        |
//!     +------+------+------+------+----------------+
//! ```
//!
//! `length` counts the payload only. `aux` is zero unless the message says otherwise.
//!
//! **Why no serialisation crate.** The layout is the contract with clients in other languages: it is drawn, not derived.
//! **Invariants**: reading never panics, whatever the bytes; a writer writes a message whole or not at all.
//! **Limits**: one payload, 65,535 bytes by its length field, [`super::PAYLOAD_MAX`] by the datagram.

use super::WireError;
use crate::protocol::{
    Epoch, FrameNo, Incarnation, Instance, NodeId, OrderNo, ParticipantSeq, Principal, RequestNo, ServerId, SessionId,
    StreamId, Timestamp, TxId,
};

/// Bytes of a message head.
pub const HEAD_LEN: usize = 4;

/// The message does not fit into what is left of the buffer: send what there is and start another datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("message of {need} bytes with its head, {room} left")]
pub struct Full {
    /// Bytes needed, head included.
    pub need: usize,
    /// Bytes left.
    pub room: usize,
}

/// A short list in place: at most `N` values, no allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Few<T, const N: usize> {
    items: [T; N],
    len: u8,
}

impl<T: Copy + Default, const N: usize> Few<T, N> {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        const { assert!(N <= u8::MAX as usize) };
        Self { items: [T::default(); N], len: 0 }
    }
    /// A copy of `items`; `None` if there are more than `N`.
    #[must_use]
    pub fn from_slice(items: &[T]) -> Option<Self> {
        let mut list = Self::new();
        items.iter().try_for_each(|item| list.push(*item).ok())?;
        Some(list)
    }
    /// Appends; gives the value back when there are `N` already.
    ///
    /// # Errors
    /// The value, when the list is full.
    pub fn push(&mut self, item: T) -> Result<(), T> {
        let Some(slot) = self.items.get_mut(usize::from(self.len)) else { return Err(item) };
        *slot = item;
        self.len += 1;
        Ok(())
    }
    /// The values.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        &self.items[..usize::from(self.len)]
    }
    /// The values, to change.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.items[..usize::from(self.len)]
    }
    /// How many.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }
    /// How many, as it travels.
    pub(super) const fn count(&self) -> u8 {
        self.len
    }
    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T: Copy + Default, const N: usize> Default for Few<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: core::fmt::Debug + Copy + Default, const N: usize> core::fmt::Debug for Few<T, N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// Reads the fields of one payload in order; every read is checked.
pub(super) struct Reader<'a> {
    kind: u8,
    len: usize,
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    /// At the start of `payload`, of a message of type `kind` (for errors).
    pub(super) const fn new(kind: u8, payload: &'a [u8]) -> Self {
        Self { kind, len: payload.len(), left: payload }
    }
    fn short(&self, wanted: usize) -> WireError {
        WireError::Short { kind: self.kind, need: self.len - self.left.len() + wanted, got: self.len }
    }
    /// The next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let Some((head, rest)) = self.left.split_first_chunk::<N>() else { return Err(self.short(N)) };
        self.left = rest;
        Ok(*head)
    }
    /// The next `n` bytes, borrowed.
    pub(super) fn slice(&mut self, n: usize) -> Result<&'a [u8], WireError> {
        let Some((head, rest)) = self.left.split_at_checked(n) else { return Err(self.short(n)) };
        self.left = rest;
        Ok(head)
    }
    /// A field of its type; `name` is for errors.
    pub(super) fn field<T: Field>(&mut self, name: &'static str) -> Result<T, WireError> {
        T::read(self, name)
    }
    /// `N` bytes that must be zero.
    pub(super) fn zeros<const N: usize>(&mut self) -> Result<(), WireError> {
        if self.array::<N>()? == [0; N] { Ok(()) } else { Err(self.not_zero("reserved")) }
    }
    /// `count` fields, at most `N`.
    pub(super) fn few<T: Field + Default, const N: usize>(
        &mut self,
        name: &'static str,
        count: u8,
    ) -> Result<Few<T, N>, WireError> {
        let mut list = Few::new();
        for _ in 0..count {
            let item = self.field(name)?;
            list.push(item).map_err(|_| self.range(name, count, 0, N))?;
        }
        Ok(list)
    }
    /// What is left.
    pub(super) const fn rest(&self) -> &'a [u8] {
        self.left
    }
    /// Nothing may be left.
    pub(super) const fn end(&self) -> Result<(), WireError> {
        if self.left.is_empty() {
            return Ok(());
        }
        Err(WireError::Long { kind: self.kind, want: self.len - self.left.len(), got: self.len })
    }
    /// The error of a field outside its range.
    pub(super) fn range(&self, field: &'static str, value: impl Into<u64>, low: u64, high: usize) -> WireError {
        let high = u64::try_from(high).unwrap_or(u64::MAX);
        WireError::Range { kind: self.kind, field, value: value.into(), low, high }
    }
    /// The error of a field that must be zero.
    pub(super) const fn not_zero(&self, field: &'static str) -> WireError {
        WireError::NotZero { kind: self.kind, field }
    }
}

/// Fills the payload of one message, whose length was reserved; leaving a byte unwritten or writing one too many is a
/// defect of ours.
pub(super) struct Fields<'b> {
    left: &'b mut [u8],
}

impl<'b> Fields<'b> {
    /// Over exactly `bytes`.
    pub(super) const fn new(bytes: &'b mut [u8]) -> Self {
        Self { left: bytes }
    }
    /// Appends bytes.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        let (head, rest) = core::mem::take(&mut self.left).split_at_mut(bytes.len());
        head.copy_from_slice(bytes);
        self.left = rest;
        self
    }
    /// Appends a field.
    pub(super) fn field<T: Field>(&mut self, value: T) -> &mut Self {
        value.write(self);
        self
    }
    /// Appends a list of fields.
    pub(super) fn all<T: Field>(&mut self, values: &[T]) -> &mut Self {
        for value in values {
            value.write(self);
        }
        self
    }
    /// Everything reserved has been written.
    pub(super) fn done(&self) {
        debug_assert!(self.left.is_empty(), "{} bytes of a message left unwritten", self.left.len());
    }
}

/// Writes messages into a caller's buffer: the body of one datagram.
#[derive(Debug)]
pub struct BodyWriter<'b> {
    buf: &'b mut [u8],
    len: usize,
}

impl<'b> BodyWriter<'b> {
    /// Over `buf`, whose length is the limit of the body ([`super::body_max`] of the payload configured).
    pub const fn new(buf: &'b mut [u8]) -> Self {
        Self { buf, len: 0 }
    }
    /// Bytes written.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }
    /// Whether nothing has been written.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Largest payload that the next message can have.
    #[must_use]
    pub const fn room(&self) -> usize {
        (self.buf.len() - self.len).saturating_sub(HEAD_LEN)
    }
    /// What was written.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buf[..self.len]
    }
    /// Forgets what was written.
    pub const fn clear(&mut self) {
        self.len = 0;
    }
    /// Forgets what was written after the first `len` bytes, which must end a message.
    pub const fn truncate(&mut self, len: usize) {
        if len < self.len {
            self.len = len;
        }
    }
    /// Appends a message whose payload is ready.
    ///
    /// # Errors
    /// [`Full`] if it does not fit; nothing is written then.
    pub fn put_payload(&mut self, kind: u8, aux: u8, payload: &[u8]) -> Result<(), Full> {
        self.message(kind, aux, payload.len())?.bytes(payload);
        Ok(())
    }
    /// Writes the head of a message and hands out its payload to fill.
    pub(super) fn message(&mut self, kind: u8, aux: u8, payload_len: usize) -> Result<Fields<'_>, Full> {
        let room = self.buf.len() - self.len;
        let need = HEAD_LEN + payload_len;
        let (Ok(length), true) = (u16::try_from(payload_len), need <= room) else { return Err(Full { need, room }) };
        let mut fields = Fields::new(&mut self.buf[self.len..self.len + need]);
        self.len += need;
        fields.field(kind).field(aux).field(length);
        Ok(fields)
    }
}

/// One message as it lies in the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Raw<'a> {
    pub(super) kind: u8,
    pub(super) aux: u8,
    pub(super) payload: &'a [u8],
}

/// Splits a body into messages.
#[derive(Clone, Debug)]
pub(super) struct RawMessages<'a> {
    left: &'a [u8],
}

impl<'a> RawMessages<'a> {
    pub(super) const fn new(body: &'a [u8]) -> Self {
        Self { left: body }
    }
    fn split(&mut self) -> Result<Raw<'a>, WireError> {
        let left = core::mem::take(&mut self.left);
        let Some((&[kind, aux, low, high], rest)) = left.split_first_chunk::<HEAD_LEN>() else {
            return Err(WireError::Head { left: left.len() });
        };
        let length = usize::from(u16::from_le_bytes([low, high]));
        let Some((payload, rest)) = rest.split_at_checked(length) else {
            return Err(WireError::Overrun { kind, length, left: rest.len() });
        };
        self.left = rest;
        Ok(Raw { kind, aux, payload })
    }
}

impl<'a> Iterator for RawMessages<'a> {
    type Item = Result<Raw<'a>, WireError>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.left.is_empty() { None } else { Some(self.split()) }
    }
}

/// A fixed-size field: little-endian, in place.
pub(super) trait Field: Copy {
    /// Bytes on the wire.
    const LEN: usize;
    /// Reads it; `name` is for errors.
    fn read(r: &mut Reader<'_>, name: &'static str) -> Result<Self, WireError>;
    /// Writes it.
    fn write(self, f: &mut Fields<'_>);
}

macro_rules! plain {
    ($($int:ty),*) => {$(
        impl Field for $int {
            const LEN: usize = size_of::<$int>();
            fn read(r: &mut Reader<'_>, _: &'static str) -> Result<Self, WireError> {
                r.array().map(<$int>::from_le_bytes)
            }
            fn write(self, f: &mut Fields<'_>) {
                f.bytes(&self.to_le_bytes());
            }
        }
    )*};
}
plain!(u8, u16, u32, u64);

macro_rules! wrapped {
    ($($name:ident($inner:ty)),* $(,)?) => {$(
        impl Field for $name {
            const LEN: usize = <$inner>::LEN;
            fn read(r: &mut Reader<'_>, name: &'static str) -> Result<Self, WireError> {
                <$inner>::read(r, name).map($name::new)
            }
            fn write(self, f: &mut Fields<'_>) {
                self.get().write(f);
            }
        }
    )*};
}
wrapped!(
    Timestamp(u64),
    OrderNo(u64),
    ParticipantSeq(u64),
    FrameNo(u64),
    Epoch(u32),
    RequestNo(u64),
    NodeId(u32),
    Incarnation(u64),
    Instance(u64),
    Principal(u64),
);

impl Field for ServerId {
    const LEN: usize = 1;
    fn read(r: &mut Reader<'_>, name: &'static str) -> Result<Self, WireError> {
        let place: u8 = r.field(name)?;
        Self::from_place(usize::from(place)).ok_or_else(|| r.range(name, place, 0, crate::protocol::SERVERS_MAX - 1))
    }
    fn write(self, f: &mut Fields<'_>) {
        self.byte().write(f);
    }
}

impl Field for StreamId {
    const LEN: usize = 8;
    fn read(r: &mut Reader<'_>, name: &'static str) -> Result<Self, WireError> {
        let server = r.field(name)?;
        r.zeros::<3>()?;
        Ok(Self { server, opened: r.field(name)? })
    }
    fn write(self, f: &mut Fields<'_>) {
        f.field(self.server).bytes(&[0; 3]).field(self.opened);
    }
}

impl Field for SessionId {
    const LEN: usize = 16;
    fn read(r: &mut Reader<'_>, _: &'static str) -> Result<Self, WireError> {
        r.array().map(Self::from_bytes)
    }
    fn write(self, f: &mut Fields<'_>) {
        f.bytes(&self.to_bytes());
    }
}

impl Field for TxId {
    const LEN: usize = 16;
    fn read(r: &mut Reader<'_>, _: &'static str) -> Result<Self, WireError> {
        r.array().map(Self::new)
    }
    fn write(self, f: &mut Fields<'_>) {
        f.bytes(&self.bytes());
    }
}

/// Declares a message whose payload is its fields in the order written, nothing between them; `check` may refuse
/// contents. Every one gets `LEN`, `put` and a reader.
macro_rules! fixed_message {
    ($(#[$doc:meta])* $name:ident = $kind:literal, $len:literal {
        $($(#[$field_doc:meta])* $field:ident: $ty:ty),* $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $ty,)*
        }

        impl $name {
            /// Message type.
            pub const KIND: u8 = $kind;
            /// Bytes of the payload.
            pub const LEN: usize = $len;

            /// Appends it to a body.
            ///
            /// # Errors
            /// [`Full`]($crate::wire::Full) if it does not fit; nothing is written then.
            pub fn put(&self, body: &mut $crate::wire::BodyWriter<'_>) -> Result<(), $crate::wire::Full> {
                let mut fields = body.message($kind, 0, $len)?;
                $(fields.field(self.$field);)*
                fields.done();
                Ok(())
            }

            pub(super) fn read(payload: &[u8]) -> Result<Self, $crate::wire::WireError> {
                let mut reader = $crate::wire::bytes::Reader::new($kind, payload);
                let message = Self { $($field: reader.field(stringify!($field))?,)* };
                reader.end()?;
                Ok(message)
            }
        }

        const _: () = assert!($len == 0 $(+ <$ty as $crate::wire::bytes::Field>::LEN)*);
    };
}
pub(super) use fixed_message;
