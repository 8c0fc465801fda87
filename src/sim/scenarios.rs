//! The scenarios of protocol.md, section 16, as far as they need no change of epoch; each passes, and fails with its
//! rule removed.
use super::lab::{A, B, C, Lab};
use crate::protocol::machine::Event;
use crate::protocol::plant::Fault;
use crate::protocol::{Epoch, FrameNo, Incarnation, Timestamp};
use crate::wire::header::{Header, OwnPart};
use crate::wire::peer::{PeerMessage, messages};

/// What three servers delivered at the end, all the same.
fn all_delivered(lab: &mut Lab, expected: &str) {
    lab.settle();
    for server in [A, B, C] {
        assert_eq!(lab.order(server), expected, "server {}", server + 1);
    }
}

/// S1. B stamps b, C accepts it and stamps c above it; A gets c, decided by C and A, but neither b nor B's promise.
fn s1(fault: Option<Fault>) -> Lab {
    let mut lab = Lab::formed(3, fault);
    lab.clocks = vec![1_000, 2_001, 2_002];
    lab.ask(B, 'b', 1);
    lab.pass(B, C);
    lab.lose(B, A);
    lab.ask(C, 'c', 2);
    lab.pass(C, A);
    lab
}

/// R-DELIVER: an entry is delivered only once *every* open stream has promised past it.
#[test]
fn s1_nothing_is_delivered_before_every_open_stream_has_promised_past_it() {
    let mut lab = s1(None);
    assert_eq!(lab.order(A), "");
    all_delivered(&mut lab, "bc");
}

/// R-DELIVER without its promises: A delivers c first, and has another order than b, c.
#[test]
fn s1_without_promises_a_smaller_entry_is_passed_over() {
    assert_eq!(s1(Some(Fault::DeliverWithoutPromise)).order(A), "c");
}

/// S1t. B has promised one nanosecond less than c's time stamp, then stamps b with the very same one: b comes first.
fn s1t(fault: Option<Fault>) -> Lab {
    let mut lab = Lab::formed(3, fault);
    lab.clocks = vec![1_000, 2_000, 2_001];
    lab.beat(B);
    lab.pass(B, A);
    lab.lose(B, C);
    lab.ask(C, 'c', 1);
    lab.clocks[B] = 2_001;
    lab.ask(B, 'b', 2);
    lab.pass(C, A);
    lab
}

/// R-DELIVER: "past it" is `promise >= ts`, since a promise excludes its own value; one less is not enough in a tie.
#[test]
fn s1t_a_promise_of_one_less_is_no_promise_in_a_tie() {
    let mut lab = s1t(None);
    assert_eq!(lab.order(A), "");
    all_delivered(&mut lab, "bc");
}

/// The same with a promise of one less taken for enough.
#[test]
fn s1t_with_a_promise_of_one_less_the_tie_is_lost() {
    assert_eq!(s1t(Some(Fault::DeliverWithEarlierPromise)).order(A), "c");
}

/// S2 without its change. C alone holds c, and has promises past it from A and B.
fn s2(fault: Option<Fault>) -> Lab {
    let mut lab = Lab::formed(3, fault);
    lab.clocks = vec![3_000, 3_000, 2_003];
    lab.ask(C, 'c', 1);
    lab.lose(C, A);
    lab.lose(C, B);
    for server in [A, B] {
        lab.beat(server);
        lab.pass(server, C);
    }
    lab
}

/// R-DELIVER: an entry is delivered only when it is decided, that is, held by a majority.
#[test]
fn s2_who_alone_holds_an_entry_delivers_nothing() {
    let mut lab = s2(None);
    assert_eq!((lab.order(C), lab.answers.len()), ("", 0));
    all_delivered(&mut lab, "c");
}

/// R-DELIVER without the majority: C answers what only C has.
#[test]
fn s2_without_the_majority_an_entry_of_one_holder_is_answered() {
    let lab = s2(Some(Fault::DeliverUndecided));
    assert_eq!((lab.order(C), lab.answers.len()), ("c", 1));
}

/// S14. B promises 6,000 while idle, its clock is set back to 2,000, a request comes. Returns what it is stamped.
fn s14(fault: Option<Fault>) -> u64 {
    let mut lab = Lab::formed(3, fault);
    lab.clocks[B] = 6_000;
    lab.beat(B);
    let promised = lab.table.iter().filter_map(super::lab::Letter::header).filter_map(|header| header.own).next_back();
    assert_eq!(promised.map(|own| own.promise), Some(Timestamp::new(6_000)));
    lab.clocks[B] = 2_000;
    lab.ask(B, 'b', 1);
    let stamped = lab.table.iter().flat_map(super::lab::Letter::frames).next();
    stamped.map(|(_, ts)| ts).unwrap()
}

/// R-STAMP: above one's own promise, whatever the clock says.
#[test]
fn s14_a_promise_is_kept_though_the_clock_went_back() {
    assert_eq!(s14(None), 6_001);
}

/// R-STAMP by the clock alone: the promise is broken.
#[test]
fn s14_by_the_clock_alone_a_promise_is_broken() {
    assert_eq!(s14(Some(Fault::StampBelowPromise)), 2_000);
}

/// S15. Frames 1 and 3 of B reach A. Returns what A then acknowledges of B's stream, and the lab.
fn s15(fault: Option<Fault>) -> (u64, Lab) {
    let mut lab = Lab::formed(3, fault);
    for (request, tx) in ['p', 'q', 'r'].into_iter().enumerate() {
        lab.clocks[B] = 2_000 + request as u64;
        lab.ask(B, tx, request as u64 + 1);
        match tx {
            'q' => lab.lose(B, A),
            _ => lab.pass(B, A),
        }
    }
    let mut headers = lab.table.iter().filter(|letter| letter.from == A).filter_map(super::lab::Letter::header);
    let acknowledged = headers.next_back().map(|header| header.acks.as_slice()[B].get()).unwrap();
    (acknowledged, lab)
}

/// R-ACCEPT: a frame is held only if it is the next of its stream; what comes early is not acknowledged, and the
/// missing one is pulled.
#[test]
fn s15_a_frame_after_a_gap_is_not_acknowledged_and_the_missing_one_is_pulled() {
    let (acknowledged, mut lab) = s15(None);
    assert_eq!(acknowledged, 1);
    lab.table.clear();
    lab.local += 200_000;
    lab.turn(A);
    let pulls = lab.table.iter().filter(|letter| (letter.from, letter.to) == (A, B)).filter_map(|letter| {
        messages(&letter.body).find_map(|message| match message {
            Ok(PeerMessage::Pull(pull)) => Some((pull.stream.server.place(), pull.from.get(), pull.to.get())),
            _ => None,
        })
    });
    assert_eq!(pulls.collect::<Vec<_>>(), [(B, 2, 2)]);
    all_delivered(&mut lab, "pqr");
}

/// R-ACCEPT with gaps: A acknowledges a frame it does not have.
#[test]
fn s15_with_gaps_a_frame_is_acknowledged_that_is_not_held() {
    assert_eq!(s15(Some(Fault::AcceptGaps)).0, 3);
}

/// S16. A hears B's promise past frame 1, but not frame 1; then c, above b and below the promise.
fn s16(fault: Option<Fault>) -> Lab {
    let mut lab = Lab::formed(3, fault);
    lab.clocks = vec![1_000, 2_001, 2_003];
    lab.ask(B, 'b', 1);
    lab.lose(B, A);
    lab.lose(B, C);
    lab.clocks[B] = 2_005;
    lab.beat(B);
    lab.pass(B, A);
    lab.ask(C, 'c', 2);
    lab.pass(C, A);
    lab
}

/// R-TAKE: a promise past frame `last` counts only for who holds the stream up to `last`.
#[test]
fn s16_a_promise_is_not_taken_without_the_prefix_it_speaks_of() {
    let mut lab = s16(None);
    assert_eq!(lab.order(A), "");
    all_delivered(&mut lab, "bc");
}

/// R-TAKE of promises whose prefix is not held: A passes over b.
#[test]
fn s16_with_the_promise_alone_a_missing_entry_is_passed_over() {
    assert_eq!(s16(Some(Fault::PromiseWithoutPrefix)).order(A), "c");
}

/// A header as B would send it in this instance, with another life of its stream or process where told.
fn header_of_b(lab: &Lab) -> Header {
    Header {
        from: lab.cores[B].sender().server,
        inc: lab.cores[B].sender().incarnation,
        sent: Timestamp::new(900),
        ..Header::default()
    }
}

/// S29 as far as there is one life of each stream: C has c, decided with A, and hears a promise of the stream (B, 7).
fn s29(fault: Option<Fault>) -> Lab {
    let mut lab = Lab::formed(3, fault);
    lab.clocks = vec![3_000, 1_000, 2_000];
    lab.ask(C, 'c', 1);
    lab.lose(C, B);
    lab.pass(C, A);
    lab.pass(A, C);
    let own = OwnPart { opened: Epoch::new(7), last: FrameNo::new(0), promise: Timestamp::new(9_000) };
    let header = Header { own: Some(own), ..header_of_b(&lab) };
    lab.forge(B, C, |body| header.put(body).unwrap());
    lab
}

/// R-TAKE: a promise speaks for the stream it names and for no other life of it.
#[test]
fn s29_a_promise_does_not_speak_for_another_life_of_the_stream() {
    let mut lab = s29(None);
    assert_eq!(lab.order(C), "");
    all_delivered(&mut lab, "c");
}

/// R-TAKE of any promise of the server: C delivers on the word of a stream that is not open.
#[test]
fn s29_taken_for_the_open_stream_it_delivers_too_early() {
    assert_eq!(s29(Some(Fault::PromiseOfOtherStream)).order(C), "c");
}

/// I9. C alone holds c, with promises past it; acknowledgements of c come from another epoch, and from another process
/// at B's place.
fn foreign_acknowledgements(fault: Option<Fault>) -> Lab {
    let mut lab = s2(fault);
    let mut acks = crate::wire::Few::new();
    for held in [0, 0, 1] {
        acks.push(FrameNo::new(held)).unwrap();
    }
    let other_epoch = Header { epoch: Epoch::new(1), acks, ..header_of_b(&lab) };
    lab.forge(B, C, |body| other_epoch.put(body).unwrap());
    let other_process = Header { inc: Incarnation::new(99), acks, ..header_of_b(&lab) };
    lab.forge(B, C, |body| other_process.put(body).unwrap());
    lab
}

/// R-TAKE, I9: acknowledgements count only in the epoch and of the incarnations of the receiver's configuration.
#[test]
fn i9_acknowledgements_of_another_epoch_or_incarnation_decide_nothing() {
    let mut lab = foreign_acknowledgements(None);
    assert_eq!(lab.order(C), "");
    all_delivered(&mut lab, "c");
}

/// The same with any acknowledgement counted.
#[test]
fn i9_counted_they_decide_what_no_majority_holds() {
    assert_eq!(foreign_acknowledgements(Some(Fault::CountForeignAcks)).order(C), "c");
}

/// S27 without its change. Request 7 is stamped at A, and retried at B before B knows of it. Returns what all deliver.
fn s27(fault: Option<Fault>) -> Lab {
    let mut lab = Lab::formed(3, fault);
    lab.clocks = vec![2_000, 2_001, 1_000];
    lab.ask(A, 'x', 7);
    lab.ask(B, 'x', 7);
    lab.pass_all();
    lab.settle();
    lab
}

/// Ledger: a request has one number; its other copy uses none, and both who asked get the same answer.
#[test]
fn s27_two_copies_of_a_request_use_one_number() {
    let mut lab = s27(None);
    let answered: Vec<u64> = lab.answers.iter().map(|(_, order)| *order).collect();
    assert_eq!(answered, [1, 1]);
    assert!(lab.cores.iter().all(|core| core.ledger().delivered() == 2));
    all_delivered(&mut lab, "x");
}

/// Ledger that keeps duplicates: the second copy is numbered too.
#[test]
fn s27_kept_duplicates_are_numbered_twice() {
    assert_eq!(s27(Some(Fault::LedgerKeepsDuplicates)).order(A), "xx");
}

/// All pledges have come, A forms the instance, and dies before anybody has it.
fn s37() -> Lab {
    let mut lab = Lab::fresh(3, None);
    lab.turn(A);
    lab.pass(A, B);
    lab.pass(A, C);
    lab.pass(B, A);
    lab.pass(C, A);
    assert!(lab.cores[A].is_member() && !lab.cores[B].is_member());
    lab
}

fn wait_for_pledges_to_end(lab: &mut Lab) {
    lab.local += 5_100_000_000;
    lab.turn(B);
    lab.turn(C);
    lab.table.clear();
}

/// Genesis: a pledge is given to one incarnation; only when it has been given up, and its giver's incarnation with it,
/// can another instance form. The first one's CONFIG, late, then names nobody.
#[test]
fn s37_a_second_instance_forms_only_when_nobody_of_the_first_can_live() {
    let mut lab = s37();
    let (late_b, late_c) = (lab.take(A, B), lab.take(A, C));
    assert!(!late_b.is_empty() && !late_c.is_empty(), "the CONFIGs of the first instance");
    let first = lab.cores[A].instance();
    lab.restart(A);
    for _ in 0..3 {
        lab.local += 50_000_000;
        lab.turn(A);
        lab.pass_all();
    }
    assert!(lab.cores.iter().all(|core| !core.is_member()), "B and C are pledged to the first process of A");
    wait_for_pledges_to_end(&mut lab);
    lab.turn(A);
    lab.pass_all();
    assert!(lab.cores.iter().all(|core| core.is_member() && core.instance() != first));
    for letter in late_b.iter().chain(&late_c) {
        lab.hand(letter);
    }
    lab.pass_all();
    assert!(lab.cores.iter().all(|core| core.instance() == lab.cores[A].instance() && core.instance() != first));
}

/// The same, but B has the first instance before A's process dies: it lives, C enters it too, A's new process is told.
#[test]
fn s37_an_instance_with_a_living_member_is_the_only_one() {
    let mut lab = s37();
    let first = lab.cores[A].instance();
    lab.pass(A, B);
    lab.lose(A, C);
    assert!(lab.cores[B].is_member());
    lab.restart(A);
    lab.table.clear();
    for _ in 0..3 {
        lab.local += 50_000_000;
        (0..3).for_each(|server| lab.turn(server));
        lab.pass_all();
    }
    assert_eq!((lab.cores[B].instance(), lab.cores[C].instance()), (first, first));
    assert!(!lab.cores[A].is_member());
    assert_eq!(lab.cores[A].not_named(), Some(first));
}

/// One pledge is given up: the instance that names it forms all the same, lives where its other members are, and the
/// one that gave up never enters it.
#[test]
fn s37_who_gave_its_pledge_up_never_enters() {
    let mut lab = s37();
    lab.lose(A, C);
    lab.local += 5_100_000_000;
    lab.turn(C);
    lab.table.retain(|letter| letter.from != C);
    lab.pass_all();
    lab.local += 50_000_000;
    lab.turn(C);
    lab.pass_all();
    assert!(lab.cores[A].is_member() && lab.cores[B].is_member() && !lab.cores[C].is_member());
    assert_eq!(lab.cores[C].not_named(), Some(lab.cores[A].instance()));
}

/// A restarted server is refused, clearly, and misorders nothing; what was ordered before stays; nothing new is.
#[test]
fn restarted_server_is_told_that_it_has_no_place_and_nothing_new_is_ordered() {
    let mut lab = Lab::formed(3, None);
    lab.ask(A, 'a', 1);
    lab.pass_all();
    all_delivered(&mut lab, "a");
    lab.restart(C);
    lab.delivered.insert(C, String::new());
    lab.ask(B, 'b', 2);
    lab.settle();
    assert_eq!((lab.order(A), lab.order(B), lab.order(C)), ("a", "a", ""));
    let (instance, standing) = (lab.cores[A].instance(), lab.cores[A].configuration().unwrap().incarnations()[C]);
    assert!(lab.events.contains(&(C, Event::NotNamed { instance, standing })));
    assert!(lab.events.iter().any(|(at, event)| *at == A && matches!(event, Event::PeerNotNamed { .. })));
    // What was answered is still found at a majority: here in a survivor's ledger.
    lab.ask(B, 'a', 1);
    assert_eq!(lab.answers.last().map(|(_, order)| *order), Some(1));
}

/// With any one server stopped nothing new is answered anywhere; when it goes on, everything is.
#[test]
fn while_one_server_is_stopped_nothing_new_is_answered() {
    for stopped in [A, B, C] {
        let mut lab = Lab::formed(3, None);
        for (request, server) in [A, B, C].into_iter().filter(|server| *server != stopped).enumerate() {
            lab.ask(server, char::from(b'p' + u8::try_from(request).unwrap()), request as u64 + 1);
        }
        for _ in 0..20 {
            for server in [A, B, C].into_iter().filter(|server| *server != stopped) {
                lab.clocks[server] += 10_000;
                lab.beat(server);
            }
            while let Some(at) = lab.table.iter().position(|letter| letter.to != stopped) {
                let letter = lab.table.remove(at);
                lab.hand(&letter);
            }
        }
        assert_eq!(lab.answers, [], "server {} is stopped", stopped + 1);
        lab.settle();
        assert_eq!(lab.answers.len(), 2, "server {} goes on", stopped + 1);
    }
}
