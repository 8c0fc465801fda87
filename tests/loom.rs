//! Models of the lock-free parts: the sources of the ring and of the sleeping protocol, with loom's atomics in place of std's,
//! run through every interleaving that the preemption bound allows.
#![cfg(test)]

use loom::sync::atomic::AtomicU32;
use loom::sync::{Arc, Notify};

use self::doze::Doze;
use self::ring::ring;
use self::sync::Ordering;

/// What the product has in `engine::sync`.
mod sync {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::Arc;
    pub(crate) use loom::sync::atomic::{AtomicU8, AtomicUsize};
    pub(crate) use std::sync::atomic::Ordering;
}

#[path = "../src/engine/doze.rs"]
mod doze;
#[expect(dead_code, unreachable_pub, reason = "the product's source; a model uses a part of it")]
#[path = "../src/engine/ring.rs"]
mod ring;

#[test]
fn loom_two_slots_four_items_arrive_whole_and_in_order() {
    // Two preemptions: what more would find is not worth the hours (a relaxed `publish` is found with one).
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let (mut tx, mut rx) = ring::<u32>(2);
        let writer = loom::thread::spawn(move || {
            let mut value = 1;
            while value <= 4 {
                if tx.push_with(|slot| *slot = value).is_ok() {
                    value += 1;
                } else {
                    loom::thread::yield_now();
                }
            }
        });
        let mut expected = 1;
        while expected <= 4 {
            let got = rx.pop_batch(2, |slot| {
                assert_eq!(*slot, expected);
                expected += 1;
            });
            if got == 0 {
                loom::thread::yield_now();
            }
        }
        writer.join().expect("the writer ends");
    });
}

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
