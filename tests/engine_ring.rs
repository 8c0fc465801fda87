//! Rings against an oracle: random pushes and pops, full rings, and messages across two threads.
#![cfg(test)]

use std::collections::VecDeque;

use proptest::prelude::*;

use ordain::engine::ring::ring;

#[derive(Clone, Debug)]
enum Step {
    Push,
    PushBatch(usize),
    Pop(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => Just(Step::Push),
        1 => (0_usize..9).prop_map(Step::PushBatch),
        2 => (0_usize..9).prop_map(Step::Pop)
    ];
    prop::collection::vec(step, 0..400)
}

proptest! {
    #[test]
    fn ring_behaves_like_a_bounded_queue(steps in steps(), log_capacity in 0_u32..4) {
        let capacity = 1_usize << log_capacity;
        let (mut tx, mut rx) = ring::<u64>(capacity);
        let mut oracle = VecDeque::new();
        let (mut next, mut refused) = (0_u64, 0_u64);
        for step in steps {
            match step {
                Step::Push => {
                    next += 1;
                    let room = oracle.len() < capacity;
                    prop_assert_eq!(tx.push_with(|slot| *slot = next).is_ok(), room);
                    if room { oracle.push_back(next) } else { refused += 1 }
                }
                Step::PushBatch(wanted) => {
                    let expected = wanted.min(capacity - oracle.len());
                    let mut made = 0;
                    let pushed = tx.push_batch(|slot| {
                        if made == wanted { return false }
                        made += 1;
                        next += 1;
                        *slot = next;
                        oracle.push_back(next);
                        true
                    });
                    prop_assert_eq!(pushed, expected);
                }
                Step::Pop(max) => {
                    let expected = max.min(oracle.len());
                    let mut same = true;
                    let popped = rx.pop_batch(max, |slot| same &= Some(*slot) == oracle.pop_front());
                    prop_assert!(same);
                    // A batch may stop at the end of what was known; the rest comes with the next call.
                    prop_assert!(popped <= expected && (popped > 0 || expected == 0));
                }
            }
            prop_assert_eq!(tx.len(), oracle.len());
            prop_assert_eq!(rx.len(), oracle.len());
            prop_assert_eq!(rx.is_empty(), oracle.is_empty());
            prop_assert_eq!(tx.refused(), refused);
        }
    }
}

#[test]
fn full_ring_hands_the_value_back_and_counts() {
    let (mut tx, mut rx) = ring::<String>(1);
    tx.push("first".to_owned()).expect("the ring is empty");
    assert_eq!(tx.push("second".to_owned()), Err("second".to_owned()));
    assert_eq!(tx.refused(), 1);
    assert_eq!(rx.pop_batch(8, |slot| assert_eq!(slot, "first")), 1);
    assert!(rx.is_empty());
}

#[test]
fn messages_cross_threads_in_order() {
    const COUNT: u64 = 200_000;
    let (mut tx, mut rx) = ring::<u64>(64);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for value in 0..COUNT {
                while tx.push_with(|slot| *slot = value).is_err() {
                    std::thread::yield_now();
                }
            }
        });
        let mut expected = 0;
        while expected < COUNT {
            let got = rx.pop_batch(16, |slot| {
                assert_eq!(*slot, expected);
                expected += 1;
            });
            if got == 0 {
                std::thread::yield_now();
            }
        }
    });
}
