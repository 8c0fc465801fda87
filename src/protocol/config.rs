//! A configuration: which process fills which place, and which streams are open, in one epoch.
//!
//! **Why.** All that can change about the cluster changes here and only here, in one step from epoch e to e + 1; so
//! acknowledgements need no more than an epoch to be unambiguous.
//! **Invariants**: at most one open stream a server; rows sorted by nothing, but the same at every server (the row
//! index is what acknowledgements are indexed by).
//! **Limits**: [`SERVERS_MAX`] places, [`ROWS_MAX`] rows.
use super::{Epoch, FrameNo, Incarnation, Instance, ROWS_MAX, SERVERS_MAX, ServerId, StreamId, Timestamp};

/// One stream as a configuration lists it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Whose stream, opened when.
    pub stream: StreamId,
    /// Every time stamp in the stream is above this.
    pub ts0: Timestamp,
    /// Open: its server may write on. Closed: it ends at `base`.
    pub open: bool,
    /// What whoever enters the epoch must hold; for a closed stream, where it ends.
    pub base: FrameNo,
}

/// A configuration `C_e`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Its number.
    pub epoch: Epoch,
    /// The life of the numbering it belongs to.
    pub instance: Instance,
    servers: u8,
    incarnations: [Incarnation; SERVERS_MAX],
    rows: [Row; ROWS_MAX],
    row_count: u8,
}

impl Configuration {
    /// A configuration; `None` if there are no places, too many, or more than [`ROWS_MAX`] rows.
    #[must_use]
    pub fn new(epoch: Epoch, instance: Instance, incarnations: &[Incarnation], rows: &[Row]) -> Option<Self> {
        if incarnations.is_empty() || incarnations.len() > SERVERS_MAX || rows.len() > ROWS_MAX {
            return None;
        }
        let mut held = Self {
            epoch,
            instance,
            servers: u8::try_from(incarnations.len()).ok()?,
            incarnations: [Incarnation::default(); SERVERS_MAX],
            rows: [Row::default(); ROWS_MAX],
            row_count: u8::try_from(rows.len()).ok()?,
        };
        held.incarnations.iter_mut().zip(incarnations).for_each(|(to, from)| *to = *from);
        held.rows.iter_mut().zip(rows).for_each(|(to, from)| *to = *from);
        Some(held)
    }

    /// `C_0`: these incarnations, an open stream each from time stamp 0 on. `None` as for [`Configuration::new`].
    #[must_use]
    pub fn genesis(instance: Instance, incarnations: &[Incarnation]) -> Option<Self> {
        let mut rows = [Row::default(); SERVERS_MAX];
        for (place, row) in rows.iter_mut().enumerate().take(incarnations.len()) {
            let server = ServerId::from_place(place)?;
            *row = Row { stream: StreamId { server, opened: Epoch::new(0) }, open: true, ..Row::default() };
        }
        Self::new(Epoch::new(0), instance, incarnations, rows.get(..incarnations.len())?)
    }

    /// How many places there are.
    #[must_use]
    pub fn servers(&self) -> usize {
        usize::from(self.servers)
    }

    /// How many make a majority: f + 1 of the n places, always of n, whoever is down.
    #[must_use]
    pub fn majority(&self) -> usize {
        self.servers() / 2 + 1
    }

    /// The incarnations, by place.
    #[must_use]
    pub fn incarnations(&self) -> &[Incarnation] {
        &self.incarnations[..self.servers()]
    }

    /// The incarnation that fills `server`'s place, if there is such a place.
    #[must_use]
    pub fn incarnation(&self, server: ServerId) -> Option<Incarnation> {
        self.incarnations().get(server.place()).copied()
    }

    /// The streams, in the order that acknowledgements use.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows[..usize::from(self.row_count)]
    }

    /// The row of a stream, if it is listed.
    #[must_use]
    pub fn row_of(&self, stream: StreamId) -> Option<usize> {
        self.rows().iter().position(|row| row.stream == stream)
    }

    /// The row of `server`'s open stream, if it has one.
    #[must_use]
    pub fn open_row(&self, server: ServerId) -> Option<usize> {
        self.rows().iter().position(|row| row.open && row.stream.server == server)
    }
}
