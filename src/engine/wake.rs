//! How one thread ends another's sleep in the kernel, without a system call unless it sleeps.
//!
//! **Why.** A core that parks must not miss a message pushed just before it fell asleep, and a core that is awake must not
//! be sent an event for every message: `doze` decides both, this file adds the event descriptor.
//! **Invariants**: no wake-up is lost. Spurious ones happen and are harmless.
//! **Not here**: the protocol of sleeping (`doze`); what watches the descriptor (the backend).

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::doze::Doze;
use super::sync::Arc;

#[derive(Debug)]
struct Shared {
    doze: Doze,
    event: File,
}

/// The sleeper's end: given to the backend of the core that is to be woken.
#[derive(Debug)]
pub struct Bell(Arc<Shared>);

/// A waker's end: may be cloned and used from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Shared>);

impl Bell {
    /// Makes a bell nobody has rung yet.
    ///
    /// # Errors
    /// The system's, when no event descriptor is to be had.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Shared { doze: Doze::new(), event: event()? })))
    }

    /// A waker for this bell.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.0))
    }

    /// A turn begins: forgets rings so far; what was pushed before them is seen by the polls that follow.
    #[inline]
    pub fn hear(&self) {
        self.0.doze.hear();
    }

    /// Whether the thread may now sleep on the event descriptor: nobody rang since [`Bell::hear`].
    #[inline]
    #[must_use]
    pub fn fall_asleep(&self) -> bool {
        self.0.doze.fall_asleep()
    }

    /// The event descriptor, readable once a ring found the thread asleep. It is never drained: watch it edge-triggered.
    #[must_use]
    pub fn event(&self) -> RawFd {
        self.0.event.as_raw_fd()
    }
}

impl Waker {
    /// Makes sure that the sleeper begins another turn after what this thread did before. A system call only if it sleeps.
    #[inline]
    pub fn wake(&self) {
        if self.0.doze.ring() {
            self.signal();
        }
    }

    #[cold]
    fn signal(&self) {
        // The only failure of this write is a full counter, and that is readable too.
        let _full = (&self.0.event).write(&1_u64.to_ne_bytes());
    }
}

#[expect(unsafe_code, reason = "one system call")]
fn event() -> io::Result<File> {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor just made, owned by nobody else.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

#[cfg(test)]
mod tests {
    use super::Bell;
    use std::io::Read;

    #[test]
    fn waker_signals_only_a_sleeper() {
        let bell = Bell::new().expect("an event descriptor");
        let waker = bell.waker();
        waker.wake();
        assert!(!bell.fall_asleep(), "a ring since the turn began forbids sleep");
        bell.hear();
        assert!(bell.fall_asleep());
        waker.wake();
        waker.wake();
        let mut count = [0; 8];
        (&bell.0.event).read_exact(&mut count).expect("the event is readable");
        assert_eq!(u64::from_ne_bytes(count), 1, "one signal for one sleep");
    }
}
