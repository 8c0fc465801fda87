//! How one thread ends another's sleep in the kernel, without a system call unless it sleeps.
//!
//! **Why.** A core that parks must not miss a message pushed just before it fell asleep, and a core that is awake must not
//! be sent an event for every message. One byte of state decides both: `AWAKE`, `RUNG`, `ASLEEP`.
//!
//! **Why no fence.** The usual shape (the sleeper stores "asleep", then looks at the queue; the waker stores the message,
//! then looks at "asleep") needs a store-load fence on both sides (Dekker). Here every step on the state is a
//! read-modify-write of one location, and those are totally ordered:
//! - the waker, after its push, swaps in `RUNG` (Release); if it finds `ASLEEP` it signals;
//! - the sleeper begins each turn with [`Bell::hear`]: a ring found is taken by a swap (Acquire), so that what was pushed
//!   before it is seen by this turn's polls;
//! - it falls asleep only by exchanging `AWAKE` for `ASLEEP`. A ring since the turn began makes the exchange fail, and there
//!   is another turn; a ring after it finds `ASLEEP` and signals. There is no third case.
//!
//! Several wakers ring in turn: each swap continues the release sequence of those before it, so the sleeper's Acquire sees
//! all their pushes.
//!
//! **Invariants**: no wake-up is lost (modelled under loom below). Spurious ones happen and are harmless.
//! **Not here**: what is signalled; the event descriptor is watched by the backend.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::sync::{Arc, AtomicU8, Ordering};

const AWAKE: u8 = 0;
const RUNG: u8 = 1;
const ASLEEP: u8 = 2;

/// The state shared by a sleeper and its wakers.
#[derive(Debug)]
pub(crate) struct Doze(AtomicU8);

impl Doze {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(AWAKE))
    }

    /// The waker's half. `true`: the sleeper sleeps, and this caller is the one to signal it.
    #[inline]
    pub(crate) fn ring(&self) -> bool {
        // Release: pairs with the Acquire swap in `hear`; what was pushed before is seen after it.
        self.0.swap(RUNG, Ordering::Release) == ASLEEP
    }

    /// The sleeper's: a turn begins, and sees all that was pushed before the rings heard here.
    #[inline]
    pub(crate) fn hear(&self) {
        // Relaxed: an old AWAKE read here only leaves the ring for `fall_asleep` to find.
        if self.0.load(Ordering::Relaxed) != AWAKE {
            // Acquire: pairs with the Release swap in `ring`.
            self.0.swap(AWAKE, Ordering::Acquire);
        }
    }

    /// The sleeper's: `true` if nobody rang since `hear`; from then on a ring signals.
    #[inline]
    pub(crate) fn fall_asleep(&self) -> bool {
        // Relaxed: only the place in this location's order counts; data is ordered by `ring` and `hear`.
        self.0.compare_exchange(AWAKE, ASLEEP, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

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

#[cfg(all(test, not(loom)))]
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

#[cfg(all(test, loom))]
mod models {
    use super::Doze;
    use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::sync::{Arc, Notify};

    /// A lost wake-up would leave the sleeper waiting for ever, which loom reports as a deadlock.
    fn sleeper_sees_all(wakers: u32) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let doze = Arc::new(Doze::new());
            let event = Arc::new(Notify::new());
            let pushed: Vec<_> = (0..wakers).map(|_| Arc::new(AtomicU32::new(0))).collect();
            let threads: Vec<_> = pushed
                .iter()
                .map(|slot| {
                    let (doze, event, slot) = (Arc::clone(&doze), Arc::clone(&event), Arc::clone(slot));
                    loom::thread::spawn(move || {
                        // Relaxed: `ring` and `hear` order it; its partner is the load below.
                        slot.store(1, Ordering::Relaxed);
                        if doze.ring() {
                            event.notify();
                        }
                    })
                })
                .collect();
            loop {
                doze.hear();
                // Relaxed: partner of the store above.
                if pushed.iter().all(|slot| slot.load(Ordering::Relaxed) == 1) {
                    break;
                }
                if doze.fall_asleep() {
                    event.wait();
                }
            }
            threads.into_iter().for_each(|thread| thread.join().expect("the waker ends"));
        });
    }

    #[test]
    fn loom_one_waker_is_never_lost() {
        sleeper_sees_all(1);
    }

    #[test]
    fn loom_two_wakers_are_never_lost() {
        sleeper_sees_all(2);
    }
}
