//! A configuration as it travels: in CONFIG, REPORT, ACCEPT and VALUE.
//!
//! ```text
//! offset size field                     row: offset size field
//!      0    4 e, epoch                            0    1 k, place
//!      4    1 n, places, 1..7                     1    1 state, 0 open, 1 closed
//!      5    1 r, rows, 0..2n                      2    4 g, epoch that opened the stream
//!      6    2 reserved, 0                         6    8 ts0, ns
//!      8    8 instance                           14    8 base; of a closed stream: its cut
//!     16   8n incarnations, 0: vacant
//! 16+8n  22r rows
//! ```
//!
//! Rows are in the order both ends agree on: acknowledgements index the open ones, reports all. No stream twice, at most
//! one open stream a place, no `g` above `e`.
//!
//! **Why plain.** The wire knows what a configuration looks like, the protocol what it means.
//! **Limits**: [`CONFIG_LEN_MAX`] bytes, which fits the least payload. **Not here**: majorities, entering (`protocol`).

use super::WireError;
use super::bytes::{BodyWriter, Few, Field, Fields, Full, HEAD_LEN, Reader};
use crate::protocol::{Epoch, FrameNo, Incarnation, Instance, ROWS_MAX, SERVERS_MAX, ServerId, StreamId, Timestamp};

const FIXED_LEN: usize = 16;
const ROW_LEN: usize = 22;
/// Longest configuration.
pub const CONFIG_LEN_MAX: usize = FIXED_LEN + 8 * SERVERS_MAX + ROW_LEN * ROWS_MAX;

const _: () = {
    assert!(Epoch::LEN + 4 + Instance::LEN == FIXED_LEN);
    assert!(ServerId::LEN + 1 + Epoch::LEN + Timestamp::LEN + FrameNo::LEN == ROW_LEN);
    assert!(HEAD_LEN + 8 + CONFIG_LEN_MAX <= super::body_max(super::PAYLOAD_MIN));
};

/// Whether a stream goes on in a configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum RowState {
    /// It goes on.
    #[default]
    Open = 0,
    /// It ends at its base.
    Closed = 1,
}

/// One stream of a configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConfigRow {
    /// Which stream.
    pub stream: StreamId,
    /// Whether it goes on.
    pub state: RowState,
    /// All its timestamps are above this.
    pub ts0: Timestamp,
    /// What whoever enters must hold; of a closed stream its end.
    pub base: FrameNo,
}

/// A configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConfigBody {
    /// Its number.
    pub epoch: Epoch,
    /// The instance it belongs to.
    pub instance: Instance,
    /// By place: who fills it; zero: nobody. As many as there are places.
    pub incs: Few<Incarnation, SERVERS_MAX>,
    /// The streams open before, and those it opens.
    pub rows: Few<ConfigRow, ROWS_MAX>,
}

impl ConfigBody {
    /// Bytes it takes.
    #[must_use]
    pub const fn len(&self) -> usize {
        FIXED_LEN + 8 * self.incs.len() + ROW_LEN * self.rows.len()
    }

    /// Never: a configuration has a fixed part.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes its bytes into `buf`: what messages carry.
    #[must_use]
    pub fn view_in<'b>(&self, buf: &'b mut [u8; CONFIG_LEN_MAX]) -> ConfigView<'b> {
        let bytes = &mut buf[..self.len()];
        let mut fields = Fields::new(bytes);
        self.write(&mut fields);
        fields.done();
        ConfigView { bytes }
    }

    /// Appends a CONFIG message to a body.
    ///
    /// # Errors
    /// [`Full`] if it does not fit; nothing is written then.
    pub fn put(&self, body: &mut BodyWriter<'_>) -> Result<(), Full> {
        let mut fields = body.message(ConfigView::KIND, 0, self.len())?;
        self.write(&mut fields);
        fields.done();
        Ok(())
    }

    fn write(&self, f: &mut Fields<'_>) {
        f.field(self.epoch).field(self.incs.count()).field(self.rows.count()).field(0_u16).field(self.instance);
        f.all(self.incs.as_slice());
        for row in self.rows.as_slice() {
            f.field(row.stream.server).field(row.state as u8).field(row.stream.opened);
            f.field(row.ts0).field(row.base);
        }
    }

    /// The first 8 bytes, little-endian, of BLAKE3 over its bytes: what ACCEPTED names a value by.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.view_in(&mut [0; CONFIG_LEN_MAX]).digest()
    }

    /// Reads all that is left of a payload.
    fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let epoch: Epoch = r.field("e")?;
        let (n, rows): (u8, u8) = (r.field("places")?, r.field("rows")?);
        r.zeros::<2>()?;
        if n == 0 || usize::from(n) > SERVERS_MAX {
            return Err(r.range("places", n, 1, SERVERS_MAX));
        }
        if rows > 2 * n {
            return Err(r.range("rows", rows, 0, 2 * usize::from(n)));
        }
        let mut config = Self { epoch, instance: r.field("instance")?, incs: r.few("inc", n)?, rows: Few::new() };
        for _ in 0..rows {
            let row = read_row(r, n, epoch)?;
            let clash = config.rows.as_slice().iter().position(|held| excludes(held, &row));
            if let Some(first) = clash {
                return Err(WireError::Rows { first, second: config.rows.len() });
            }
            config.rows.push(row).map_err(|_| r.range("rows", rows, 0, ROWS_MAX))?;
        }
        r.end()?;
        Ok(config)
    }
}

/// The bytes of a configuration, validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigView<'a> {
    bytes: &'a [u8],
}

impl<'a> ConfigView<'a> {
    /// Message type of CONFIG, whose payload is nothing else.
    pub const KIND: u8 = 8;

    /// Validates all that is left of a payload.
    pub(super) fn read(r: &mut Reader<'a>) -> Result<Self, WireError> {
        let bytes = r.rest();
        ConfigBody::read(r).map(|_| Self { bytes })
    }

    /// The configuration.
    ///
    /// # Panics
    /// Never: the bytes were validated when the view was made.
    #[must_use]
    pub fn body(&self) -> ConfigBody {
        let read = ConfigBody::read(&mut Reader::new(Self::KIND, self.bytes));
        read.expect("validated when the view was made")
    }

    /// The bytes.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The first 8 bytes, little-endian, of BLAKE3 over the bytes: what ACCEPTED names a value by.
    #[must_use]
    pub fn digest(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = *blake3::hash(self.bytes).as_bytes();
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// Appends a CONFIG message to a body.
    ///
    /// # Errors
    /// [`Full`] if it does not fit; nothing is written then.
    pub fn put(&self, body: &mut BodyWriter<'_>) -> Result<(), Full> {
        body.put_payload(Self::KIND, 0, self.bytes)
    }
}

fn read_row(r: &mut Reader<'_>, n: u8, epoch: Epoch) -> Result<ConfigRow, WireError> {
    let server: ServerId = r.field("row k")?;
    if server.byte() >= n {
        return Err(r.range("row k", server.byte(), 0, usize::from(n) - 1));
    }
    let state = match r.field::<u8>("row state")? {
        0 => RowState::Open,
        1 => RowState::Closed,
        other => return Err(r.range("row state", other, 0, 1)),
    };
    let opened: Epoch = r.field("row g")?;
    if opened > epoch {
        let high = usize::try_from(epoch.get()).unwrap_or(usize::MAX);
        return Err(r.range("row g", opened.get(), 0, high));
    }
    let stream = StreamId { server, opened };
    Ok(ConfigRow { stream, state, ts0: r.field("row ts0")?, base: r.field("row base")? })
}

fn excludes(a: &ConfigRow, b: &ConfigRow) -> bool {
    let both_open = a.state == RowState::Open && b.state == RowState::Open;
    a.stream == b.stream || (both_open && a.stream.server == b.stream.server)
}
