//! Lists of rows by when they were last used, linked through arrays of numbers.
//!
//! **Why.** Ledger time rises strictly, so the longest unused is whoever was moved to the end longest ago: no search,
//! no clock. Sessions stand in two such lists, that of all and that of their principal.
//! **Invariants**: a row is in at most one list over the same links. **Limits**: none of its own; no allocation.

/// No row.
pub(super) const NONE: u32 = u32::MAX;

/// A row's neighbours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    older: u32,
    newer: u32,
}

impl Link {
    pub(super) const FREE: Self = Self { older: NONE, newer: NONE };
}

/// A list's two ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    oldest: u32,
    newest: u32,
}

impl List {
    pub(super) const EMPTY: Self = Self { oldest: NONE, newest: NONE };

    /// The row longest unused, or [`NONE`].
    pub(super) const fn oldest(&self) -> u32 {
        self.oldest
    }

    /// Adds a row as the one used last.
    pub(super) fn push(&mut self, links: &mut [Link], row: u32) {
        links[row as usize] = Link { older: self.newest, newer: NONE };
        if self.newest == NONE {
            self.oldest = row;
        } else {
            links[self.newest as usize].newer = row;
        }
        self.newest = row;
    }

    /// Takes a row out.
    pub(super) fn unlink(&mut self, links: &mut [Link], row: u32) {
        let Link { older, newer } = links[row as usize];
        if older == NONE {
            self.oldest = newer;
        } else {
            links[older as usize].newer = newer;
        }
        if newer == NONE {
            self.newest = older;
        } else {
            links[newer as usize].older = older;
        }
    }

    /// Makes a row of the list the one used last.
    pub(super) fn touch(&mut self, links: &mut [Link], row: u32) {
        if self.newest != row {
            self.unlink(links, row);
            self.push(links, row);
        }
    }
}
