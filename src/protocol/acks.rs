//! Who holds how much of each stream, in the configuration entered and in no other (R-ACK, R-TAKE, I9).
//!
//! **Why.** An entry is decided when a majority acknowledged it *in one epoch*: adding up acknowledgements of two
//! epochs loses entries (S3). So this table is made anew with every configuration.
//! **Invariants**: no element ever falls; `decided` never falls.
//! **Limits**: [`SERVERS_MAX`] places by [`ROWS_MAX`] rows.
use super::config::Configuration;
use super::{FrameNo, ROWS_MAX, SERVERS_MAX, ServerId};

/// Acknowledgement vectors of every place, and what follows from them.
#[derive(Debug)]
pub struct Acks {
    held: [[FrameNo; ROWS_MAX]; SERVERS_MAX],
    decided: [FrameNo; ROWS_MAX],
    everywhere: [FrameNo; ROWS_MAX],
    servers: usize,
    majority: usize,
    rows: usize,
}

impl Acks {
    /// Nothing acknowledged yet in `configuration`; its bases are decided by entering it.
    #[must_use]
    pub fn new(configuration: &Configuration) -> Self {
        let mut acks = Self {
            held: [[FrameNo::default(); ROWS_MAX]; SERVERS_MAX],
            decided: [FrameNo::default(); ROWS_MAX],
            everywhere: [FrameNo::default(); ROWS_MAX],
            servers: configuration.servers(),
            majority: configuration.majority(),
            rows: configuration.rows().len(),
        };
        acks.decided.iter_mut().zip(configuration.rows()).for_each(|(decided, row)| *decided = row.base);
        acks
    }

    /// R-TAKE: `ack[k] := max`, element by element. True if anything grew.
    pub fn take(&mut self, server: ServerId, vector: &[FrameNo]) -> bool {
        let Some(mine) = self.held.get_mut(server.place()) else { return false };
        let mut grew = [false; ROWS_MAX];
        for ((held, got), grew) in mine.iter_mut().zip(vector).zip(grew.iter_mut()).take(self.rows) {
            if *got > *held {
                *held = *got;
                *grew = true;
            }
        }
        for row in (0..self.rows).filter(|row| grew.get(*row) == Some(&true)) {
            self.recount(row);
        }
        grew.contains(&true)
    }

    /// The (f + 1)-th largest acknowledgement is what a majority holds; the smallest is held everywhere.
    fn recount(&mut self, row: usize) {
        let mut column = [FrameNo::default(); SERVERS_MAX];
        for (to, from) in column.iter_mut().zip(&self.held).take(self.servers) {
            *to = from[row];
        }
        let column = &mut column[..self.servers];
        column.sort_unstable();
        self.decided[row] = self.decided[row].max(column[self.servers - self.majority]);
        self.everywhere[row] = column[0];
    }

    /// How many frames of `row` are decided: held by a majority, or at or below its base.
    #[must_use]
    pub fn decided(&self, row: usize) -> FrameNo {
        self.decided.get(row).copied().unwrap_or_default()
    }

    /// How many frames of `row` every place holds.
    #[must_use]
    pub fn everywhere(&self, row: usize) -> FrameNo {
        self.everywhere.get(row).copied().unwrap_or_default()
    }

    /// What `server` acknowledged, by row.
    #[must_use]
    pub fn of(&self, server: ServerId) -> &[FrameNo] {
        self.held.get(server.place()).map_or(&[], |vector| &vector[..self.rows])
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Incarnation, Instance};
    use super::*;

    fn frames(of: [u64; 3]) -> [FrameNo; 3] {
        of.map(FrameNo::new)
    }

    #[test]
    fn decided_is_what_a_majority_holds_and_late_vectors_change_nothing() {
        let incs = [1, 2, 3].map(Incarnation::new);
        let mut acks = Acks::new(&Configuration::genesis(Instance::new(1), &incs).unwrap());
        let server = |place| ServerId::from_place(place).unwrap();
        assert!(acks.take(server(0), &frames([5, 1, 0])));
        assert_eq!(acks.decided(0), FrameNo::new(0));
        assert!(acks.take(server(2), &frames([3, 0, 0])));
        assert_eq!(acks.decided(0), FrameNo::new(3));
        assert!(!acks.take(server(2), &frames([2, 0, 0])));
        assert_eq!((acks.decided(0), acks.everywhere(0)), (FrameNo::new(3), FrameNo::new(0)));
        assert!(acks.take(server(1), &frames([4, 4, 4])));
        assert_eq!((acks.decided(0), acks.everywhere(0)), (FrameNo::new(4), FrameNo::new(3)));
        assert_eq!((acks.decided(1), acks.decided(2)), (FrameNo::new(1), FrameNo::new(0)));
    }
}
