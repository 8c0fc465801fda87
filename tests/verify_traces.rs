//! Traces of a plain model pass, whatever was lost or retried; a trace with one thing wrong is rejected for that thing.
//!
//! **Why a model of its own.** It orders by sorting and counts by counting, and shares no code with the product.
#![cfg(test)]

use std::collections::BTreeMap;

use ordain::client::trace::{Earlier, Line, Outcome, Part};
use ordain::client::verify::{Kind, Options, Report, SHOWN_MAX, Trace, check};
use ordain::protocol::{Instance, NodeId, OrderNo, ParticipantSeq, Refusal, RequestNo, SessionId, Timestamp, TxId};

const REQUESTS: u64 = 600;
const PARTICIPANTS: u32 = 20;

fn tx(number: u64) -> TxId {
    TxId::new((u128::from(number) << 64 | 0xfeed).to_be_bytes())
}

/// What happened, before anything is answered: when it was placed, and what was asked.
struct Asked {
    line: Line,
    placed_ns: Option<u64>,
    ids: Vec<NodeId>,
}

fn ask(random: &mut fastrand::Rng, number: u64) -> Asked {
    let sent_ns = number * 1_000;
    let placed_ns = sent_ns + random.u64(1..6_000);
    let done_ns = placed_ns + random.u64(1..6_000);
    let mut ids: Vec<NodeId> = (0..PARTICIPANTS).map(NodeId::new).collect();
    random.shuffle(&mut ids);
    ids.truncate(random.usize(1..=5));
    let (outcome, placed) = match random.u8(0..100) {
        0..4 => (Outcome::Unanswered, true),
        4..7 => (Outcome::Unanswered, false),
        7..10 => (Outcome::Refused(Refusal::Overloaded), false),
        _ => (Outcome::Ordered, true),
    };
    let line = Line {
        session: SessionId { created: Timestamp::new(1), nonce: number % 7 },
        req: RequestNo::new(number / 7 + 1),
        tx: tx(number),
        server: u8::try_from(number % 3 + 1).unwrap(),
        instance: Instance::new(77),
        sent_ns,
        done_ns,
        outcome,
        h: random.u8(0..=16),
        asked: ids.clone(),
        warmup: number < 50,
        ..Line::default()
    };
    Asked { line, placed_ns: placed.then_some(placed_ns), ids }
}

/// A run on a cluster that had ordered `before` transactions, each of which named participants 0 and 1.
fn model(seed: u64, before: u64) -> Vec<Line> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut asked: Vec<Asked> = (0..REQUESTS).map(|number| ask(&mut random, number)).collect();
    let mut by_place: Vec<usize> = (0..asked.len()).filter(|at| asked[*at].placed_ns.is_some()).collect();
    by_place.sort_by_key(|at| asked[*at].placed_ns);
    let mut sequences: BTreeMap<NodeId, Vec<Earlier>> = BTreeMap::new();
    for order in 1..=before {
        for id in [0, 1] {
            let earlier = Earlier { order: OrderNo::new(order), tx: tx(1_000_000 + order) };
            sequences.entry(NodeId::new(id)).or_default().push(earlier);
        }
    }
    for (order, at) in (before + 1..).zip(by_place) {
        let Asked { line, placed_ns, ids } = &mut asked[at];
        let answered = line.outcome == Outcome::Ordered;
        for id in ids {
            let sequence = sequences.entry(*id).or_default();
            if answered {
                let depth = sequence.len().min(usize::from(line.h));
                line.history.extend(sequence.iter().rev().take(depth));
                let seq = ParticipantSeq::new(sequence.len() as u64 + 1);
                line.parts.push(Part { id: *id, seq, depth: u8::try_from(depth).unwrap() });
            }
            sequence.push(Earlier { order: OrderNo::new(order), tx: line.tx });
        }
        if answered {
            line.order = OrderNo::new(order);
            line.ts = Timestamp::new(1_000_000 + placed_ns.unwrap());
            line.asked.clear();
        }
    }
    let mut lines: Vec<Line> = asked.into_iter().map(|asked| asked.line).collect();
    let again: Vec<Line> = lines.iter().filter(|line| line.outcome == Outcome::Ordered).step_by(40).cloned().collect();
    for (number, line) in (1..).zip(again) {
        let session = SessionId { created: Timestamp::new(2), nonce: 99 };
        let later = line.done_ns + 50_000;
        lines.push(Line { session, req: RequestNo::new(number), sent_ns: later, done_ns: later + 10, ..line });
    }
    lines
}

fn judge(lines: Vec<Line>) -> Report {
    check(&[Trace { name: "trace".to_owned(), lines }], Options::default())
}

/// The model's run without losses, one line per transaction, changed by `change`; what it is rejected for.
fn kinds(change: impl FnOnce(&mut Vec<Line>)) -> Vec<Kind> {
    let mut lines = model(7, 0);
    change(&mut lines);
    let report = judge(lines);
    assert!(!report.verified());
    for contradiction in &report.contradictions {
        assert!(contradiction.lines.iter().all(|line| line.starts_with("trace:")), "{contradiction:?}");
    }
    report.contradiction_counts.into_keys().collect()
}

/// The answered line with the smallest number from `from` on.
fn at(lines: &mut [Line], from: u64) -> &mut Line {
    lines.iter_mut().filter(|line| line.order.get() >= from).min_by_key(|line| line.order).unwrap()
}

#[test]
fn traces_of_the_model_pass_with_losses_refusals_retries_and_earlier_runs() {
    for seed in 0..40 {
        for before in [0, 25] {
            let report = judge(model(seed, before));
            assert!(report.verified(), "seed {seed}, {before} before: {:#?}", report.contradictions.first());
            assert!(report.holes > 0 && report.unanswered > report.holes / 2 && report.history_entries > 1_000);
        }
    }
}

#[test]
fn lines_in_several_traces_in_any_order_are_judged_as_one() {
    let (left, right): (Vec<_>, Vec<_>) = model(3, 0).into_iter().rev().partition(|line| line.session.nonce % 2 == 0);
    let traces = |right| {
        [Trace { name: "left".to_owned(), lines: left.clone() }, Trace { name: "right".to_owned(), lines: right }]
    };
    assert!(check(&traces(right), Options::default()).verified());
    let report = check(&traces(Vec::new()), Options::default());
    assert!(report.contradiction_counts.contains_key(&Kind::NumberHole), "half of the traces is missing");
}

#[test]
fn beginning_can_be_demanded() {
    let lines = model(5, 25);
    let options = Options { from: Some(OrderNo::new(1)), ..Options::default() };
    let report = check(&[Trace { name: "trace".to_owned(), lines }], options);
    assert!(report.contradiction_counts.contains_key(&Kind::NumberHole));
}

#[test]
fn clocks_of_two_hosts_are_compared_only_if_they_are_one() {
    let (left, right): (Vec<_>, Vec<_>) = model(3, 0).into_iter().partition(|line| line.session.nonce % 2 == 0);
    let shifted = right.into_iter().map(|line| Line {
        sent_ns: line.sent_ns + 1_000_000_000,
        done_ns: line.done_ns + 1_000_000_000,
        ..line
    });
    let traces =
        [Trace { name: "left".to_owned(), lines: left }, Trace { name: "right".to_owned(), lines: shifted.collect() }];
    assert!(check(&traces, Options { clock_per_trace: true, ..Options::default() }).verified());
    let report = check(&traces, Options::default());
    assert_eq!(report.contradiction_counts.into_keys().collect::<Vec<_>>(), [Kind::RealTime]);
}

#[test]
fn only_the_first_of_a_kind_are_shown_and_all_are_counted() {
    let mut lines = model(7, 0);
    lines.iter_mut().filter(|line| line.req.get() > 1).for_each(|line| line.instance = Instance::new(78));
    let report = judge(lines);
    let total = report.contradiction_counts[&Kind::Instance];
    assert!(total > SHOWN_MAX);
    assert_eq!(report.contradictions.len() as u64, SHOWN_MAX);
    assert_eq!(report.contradictions_total(), total);
}

#[test]
fn second_instance_is_rejected() {
    assert_eq!(kinds(|lines| at(lines, 300).instance = Instance::new(78)), [Kind::Instance]);
}

#[test]
fn request_with_two_transactions_is_rejected() {
    let changed = kinds(|lines| {
        let (session, req) = (lines[10].session, lines[10].req);
        let other = at(lines, 300);
        (other.session, other.req) = (session, req);
    });
    assert_eq!(changed, [Kind::RequestTwice]);
}

#[test]
fn request_with_two_numbers_is_rejected() {
    let changed = kinds(|lines| {
        let first = at(lines, 300).clone();
        let last = lines.iter().map(|line| line.order.get()).max().unwrap();
        let nothing = Line { parts: Vec::new(), history: Vec::new(), ..first };
        lines.push(Line { order: OrderNo::new(last + 1), ts: Timestamp::new(u64::MAX), ..nothing });
    });
    assert!(changed.contains(&Kind::RequestTwice) && changed.contains(&Kind::TxTwice), "{changed:?}");
}

#[test]
fn transaction_with_two_numbers_is_rejected() {
    let changed = kinds(|lines| {
        let twice = lines.last_mut().unwrap();
        twice.order = OrderNo::new(100_000);
    });
    assert!(changed.contains(&Kind::TxTwice), "{changed:?}");
    assert!(!changed.contains(&Kind::RequestTwice), "{changed:?}");
}

#[test]
fn number_with_two_transactions_is_rejected() {
    let changed = kinds(|lines| {
        let session = SessionId { created: Timestamp::new(3), nonce: 1 };
        let other = Line { session, tx: tx(5_000), ..at(lines, 300).clone() };
        lines.push(other);
    });
    assert_eq!(changed, [Kind::NumberTwice]);
}

#[test]
fn more_holes_than_unanswered_requests_are_rejected() {
    let changed = kinds(|lines| {
        let unanswered = lines.iter().filter(|line| line.outcome == Outcome::Unanswered).count();
        let mut victims: Vec<u64> = lines.iter().map(|line| line.order.get()).filter(|order| *order > 100).collect();
        victims.sort_unstable();
        victims.dedup();
        victims.truncate(unanswered + 1);
        lines.retain(|line| !victims.contains(&line.order.get()));
    });
    assert!(changed.contains(&Kind::NumberHole), "{changed:?}");
}

#[test]
fn one_missing_line_is_rejected_where_all_were_answered() {
    let mut lines = model(7, 0);
    lines.retain(|line| line.outcome != Outcome::Unanswered);
    let report = judge(lines);
    assert!(report.contradiction_counts.contains_key(&Kind::NumberHole));
}

#[test]
fn transaction_told_in_two_ways_is_rejected() {
    let changed = kinds(|lines| lines.last_mut().unwrap().ts = Timestamp::new(1));
    assert_eq!(changed, [Kind::AnswerDiffers]);
}

#[test]
fn participant_named_twice_is_rejected() {
    let changed = kinds(|lines| {
        let line = lines.iter_mut().rfind(|line| line.warmup && line.parts.len() > 1 && line.h == 0).unwrap();
        line.parts[1].id = line.parts[0].id;
    });
    assert!(changed.contains(&Kind::Participants), "{changed:?}");
}

#[test]
fn answer_for_others_than_asked_is_rejected() {
    let changed = kinds(|lines| at(lines, 300).asked = vec![NodeId::new(1_000)]);
    assert_eq!(changed, [Kind::Participants]);
}

#[test]
fn sequence_number_with_two_transactions_is_rejected() {
    let changed = kinds(|lines| {
        let first = at(lines, 300).parts[0];
        let next = |part: &&mut Part| part.id == first.id && part.seq > first.seq;
        let parts = lines.iter_mut().flat_map(|line| &mut line.parts);
        parts.filter(next).min_by_key(|part| part.seq).unwrap().seq = first.seq;
    });
    assert!(changed.contains(&Kind::SequenceTwice), "{changed:?}");
}

#[test]
fn falling_sequence_is_rejected() {
    let changed = kinds(|lines| {
        let id = at(lines, 300).parts[0].id;
        let last = lines
            .iter_mut()
            .filter(|line| line.parts.iter().any(|part| part.id == id))
            .max_by_key(|line| line.order)
            .unwrap();
        last.h = 0;
        last.history.clear();
        last.parts.iter_mut().for_each(|part| part.depth = 0);
        last.parts.iter_mut().find(|part| part.id == id).unwrap().seq = ParticipantSeq::new(1);
    });
    assert_eq!(changed, [Kind::SequenceFalls]);
}

#[test]
fn hole_in_a_sequence_that_nobody_can_fill_is_rejected() {
    let changed = kinds(|lines| {
        let id = at(lines, 300).parts[0].id;
        let last = lines
            .iter_mut()
            .filter(|line| line.parts.iter().any(|part| part.id == id))
            .max_by_key(|line| line.order)
            .unwrap();
        last.h = 0;
        last.history.clear();
        last.parts.iter_mut().for_each(|part| part.depth = 0);
        let part = last.parts.iter_mut().find(|part| part.id == id).unwrap();
        part.seq = ParticipantSeq::new(part.seq.get() + 1);
    });
    assert_eq!(changed, [Kind::SequenceHole]);
}

/// A line deep in the order with a history of at least two entries, and nobody's retry.
fn with_history(lines: &mut [Line]) -> &mut Line {
    lines
        .iter_mut()
        .find(|line| line.order.get() > 300 && line.parts.first().is_some_and(|part| part.depth > 2))
        .unwrap()
}

#[test]
fn short_history_is_rejected() {
    let changed = kinds(|lines| {
        let line = with_history(lines);
        line.parts[0].depth -= 1;
        let last = usize::from(line.parts[0].depth);
        line.history.remove(last);
    });
    assert_eq!(changed, [Kind::HistoryLength]);
}

/// A history may end where retention does, and nowhere else.
#[test]
fn history_may_end_at_retention_if_that_is_told() {
    let mut lines = model(5, 0);
    let line = with_history(&mut lines);
    line.parts[0].depth -= 1;
    let last = usize::from(line.parts[0].depth);
    let missing = line.history.remove(last).order.get();
    let end = lines.iter().map(|line| line.order.get()).max().unwrap();
    let verdict = |retained| {
        let traces = [Trace { name: "t".to_owned(), lines: lines.clone() }];
        check(&traces, Options { retained, ..Options::default() }).contradictions_total()
    };
    assert_eq!(verdict(None), 1);
    assert_eq!(verdict(Some(end - missing + 1)), 1, "number {missing} of {end} was retained");
    assert_eq!(verdict(Some(end - missing)), 0, "number {missing} of {end} had left");
}

#[test]
fn history_out_of_order_is_rejected() {
    let changed = kinds(|lines| with_history(lines).history.swap(0, 1));
    assert_eq!(changed, [Kind::HistoryWrong]);
}

#[test]
fn history_with_a_wrong_number_is_rejected() {
    let changed = kinds(|lines| {
        let earlier = &mut with_history(lines).history[0];
        earlier.order = OrderNo::new(earlier.order.get() - 1);
    });
    assert_eq!(changed, [Kind::HistoryWrong]);
}

#[test]
fn history_that_names_an_unknown_or_refused_transaction_is_rejected() {
    for with_refused in [false, true] {
        let changed = kinds(|lines| {
            let refused = lines.iter().find(|line| matches!(line.outcome, Outcome::Refused(_))).unwrap().tx;
            let unanswered: Vec<TxId> =
                lines.iter().filter(|line| line.outcome == Outcome::Unanswered).map(|line| line.tx).collect();
            let named = |earlier: &&mut Earlier| unanswered.contains(&earlier.tx);
            let earlier = lines.iter_mut().flat_map(|line| &mut line.history).find(named).unwrap();
            earlier.tx = if with_refused { refused } else { tx(9_999) };
        });
        assert!(changed.contains(&Kind::HistoryUnknown), "{changed:?}");
    }
}

#[test]
fn falling_timestamp_is_rejected() {
    let changed = kinds(|lines| {
        at(lines, 300).ts = Timestamp::new(5);
    });
    assert!(changed.contains(&Kind::Timestamp), "{changed:?}");
}

#[test]
fn timestamp_shared_by_more_than_there_are_servers_is_rejected() {
    let changed = kinds(|lines| {
        let mut orders: Vec<u64> = lines.iter().map(|line| line.order.get()).filter(|order| *order > 300).collect();
        orders.sort_unstable();
        orders.dedup();
        let ts = at(lines, orders[0]).ts;
        let same = |line: &&mut Line| orders[..8].contains(&line.order.get());
        lines.iter_mut().filter(same).for_each(|line| line.ts = ts);
    });
    assert_eq!(changed, [Kind::Timestamp]);
}

#[test]
fn answered_before_the_other_was_sent_and_yet_later_is_rejected() {
    let changed = kinds(|lines| {
        let line = at(lines, 300);
        (line.sent_ns, line.done_ns) = (1, 2);
    });
    assert_eq!(changed, [Kind::RealTime]);
}

#[test]
fn done_before_it_was_sent_is_rejected() {
    let changed = kinds(|lines| {
        let refused = lines.iter_mut().find(|line| matches!(line.outcome, Outcome::Refused(_))).unwrap();
        refused.done_ns = refused.sent_ns - 1;
    });
    assert_eq!(changed, [Kind::Backwards]);
}

/// Runs `ordain verify` on a file with these lines.
fn command(lines: &[Line], args: &[&str]) -> std::process::Output {
    let dir = tempfile::tempdir().unwrap();
    let mut text = Vec::new();
    lines.iter().for_each(|line| line.write_to(&mut text));
    std::fs::write(dir.path().join("run.trace"), text).unwrap();
    let program = env!("CARGO_BIN_EXE_ordain");
    std::process::Command::new(program).current_dir(&dir).arg("verify").args(args).output().unwrap()
}

#[test]
fn command_says_verified_or_shows_both_lines() {
    let mut lines = model(7, 0);
    let good = command(&lines, &["run.trace"]);
    assert!(good.status.success() && String::from_utf8_lossy(&good.stdout).ends_with("order verified\n"));
    with_history(&mut lines).history.swap(0, 1);
    let bad = command(&lines, &["run.trace"]);
    let text = String::from_utf8_lossy(&bad.stdout);
    assert_eq!(bad.status.code(), Some(1));
    assert!(text.contains("history_wrong: ") && text.matches("\n    run.trace:").count() == 4, "{text}");
    assert!(text.ends_with("order contradicted 2 times\n"), "{text}");
    let json: serde_json::Value = serde_json::from_slice(&command(&lines, &["run.trace", "--json"]).stdout).unwrap();
    assert_eq!(json["verified"], false);
    assert_eq!(json["contradiction_counts"]["history_wrong"], 2);
}

#[test]
fn command_names_what_it_cannot_read() {
    let missing = command(&[], &["none.trace"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).starts_with("ordain: TRACE none.trace: no such file"));
    assert_eq!(command(&[], &[]).status.code(), Some(2));
}

#[test]
fn order_of_nothing_is_not_verified() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    std::fs::write(&trace, "").unwrap();
    let run = std::process::Command::new(env!("CARGO_BIN_EXE_ordain")).arg("verify").arg(&trace).output().unwrap();
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.code() == Some(1) && text.ends_with("nothing to verify: no request was ordered\n"), "{text}");
}
