//! A ring together with the waker of its reader's core: what roles hand messages over with.
//!
//! **Why.** A role that pushes ten messages in a turn must ring once, not ten times, and must not forget to. The outlet
//! remembers that something was pushed; [`Outlet::flush`] at the end of the turn rings if so.
//! Between two roles of one core there is nobody to wake: [`local_link`] has no waker, and costs no extra turn.
//! **Invariants**: after `flush` the reader's core begins a turn that sees everything pushed before. The reader of a local
//! link has its turns after the writer's, in the same round.
//! **Limits**: the ring's. **Not here**: the ring and the bell themselves.

use super::ring::{Consumer, Full, Producer, ring};
use super::wake::Waker;

/// The writing end of a link.
#[derive(Debug)]
pub struct Outlet<T> {
    ring: Producer<T>,
    waker: Option<Waker>,
    unrung: bool,
}

/// Makes a ring of `capacity` slots (a power of two) to a role on the core that `waker` wakes.
///
/// # Panics
/// If `capacity` is not a power of two.
#[must_use]
pub fn link<T: Default + Send>(capacity: usize, waker: Waker) -> (Outlet<T>, Consumer<T>) {
    let (tx, rx) = ring(capacity);
    (Outlet { ring: tx, waker: Some(waker), unrung: false }, rx)
}

/// The same to a role that has its turns on the writer's core, after the writer: nobody has to be woken.
///
/// # Panics
/// If `capacity` is not a power of two.
#[must_use]
pub fn local_link<T: Default + Send>(capacity: usize) -> (Outlet<T>, Consumer<T>) {
    let (tx, rx) = ring(capacity);
    (Outlet { ring: tx, waker: None, unrung: false }, rx)
}

impl<T> Outlet<T> {
    /// Fills the next slot in place; the reader may see it at once, and is woken at [`Outlet::flush`].
    ///
    /// # Errors
    /// [`Full`], counted; `fill` is not called.
    #[inline]
    pub fn push_with(&mut self, fill: impl FnOnce(&mut T)) -> Result<(), Full> {
        self.ring.push_with(fill)?;
        self.unrung = true;
        Ok(())
    }

    /// Puts `value` into the next slot; the reader may see it at once, and is woken at [`Outlet::flush`].
    ///
    /// # Errors
    /// The value back when the ring is full; counted.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), T> {
        self.ring.push(value)?;
        self.unrung = true;
        Ok(())
    }

    /// Wakes the reader if something was pushed since the last call. For the end of a role's turn.
    #[inline]
    pub fn flush(&mut self) {
        if self.unrung {
            self.unrung = false;
            self.wake();
        }
    }

    /// Wakes the reader, whether something was pushed or not: for news that do not travel in the ring.
    #[inline]
    pub fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }

    /// The ring, for its figures.
    #[must_use]
    pub fn ring(&self) -> &Producer<T> {
        &self.ring
    }
}
