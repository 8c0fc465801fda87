//! The order itself: one instance, one number each, dense, in time.
//!
//! **Why one pass each.** Lines are sorted by number once; real time needs only the latest send among smaller numbers.
//! **Not here**: what each participant sees of it ([`super::sequences`]).

use std::collections::HashMap;

use super::{At, Index, Judge, Kind, Options};
use crate::client::trace::{Line, Outcome};
use crate::protocol::{Instance, NodeId, PARTICIPANTS_MAX, RequestNo, SERVERS_MAX, SessionId};

/// Lines by themselves and requests: times, participants, instance, one number a request.
pub(super) fn requests(judge: &mut Judge<'_>) {
    let mut requests: HashMap<(SessionId, RequestNo), At> = HashMap::new();
    let mut first_instance: Option<(At, Instance)> = None;
    let mut ids = Vec::new();
    for (at, line) in judge.all() {
        if line.done_ns < line.sent_ns {
            judge.against(Kind::Backwards, &[at], || {
                format!("done {} ns before it was sent", line.sent_ns - line.done_ns)
            });
        }
        if line.outcome == Outcome::Ordered {
            participants(judge, at, line, &mut ids);
        }
        if line.instance != Instance::NONE {
            let (first, instance) = *first_instance.get_or_insert((at, line.instance));
            if instance != line.instance {
                judge.against(Kind::Instance, &[first, at], || {
                    format!("instances {instance} and {}: numbers began anew", line.instance)
                });
            }
        }
        let first = *requests.entry((line.session, line.req)).or_insert(at);
        if first != at {
            same_request(judge, first, at);
        }
    }
}

fn participants(judge: &mut Judge<'_>, at: At, line: &Line, ids: &mut Vec<NodeId>) {
    ids.clear();
    ids.extend(line.parts.iter().map(|part| part.id));
    if ids.is_empty() || ids.len() > PARTICIPANTS_MAX {
        let count = ids.len();
        judge.against(Kind::Participants, &[at], || format!("{count} participants, not 1 to {PARTICIPANTS_MAX}"));
    }
    if !line.asked.is_empty() && line.asked != *ids {
        judge.against(Kind::Participants, &[at], || "answered for other participants than asked".to_owned());
    }
    ids.sort_unstable();
    if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        judge.against(Kind::Participants, &[at], || format!("participant {} twice", pair[0]));
    }
}

fn same_request(judge: &mut Judge<'_>, first: At, again: At) {
    let (one, two) = (judge.line(first), judge.line(again));
    let both = one.outcome == Outcome::Ordered && two.outcome == Outcome::Ordered;
    if one.tx != two.tx {
        judge.against(Kind::RequestTwice, &[first, again], || {
            format!("request {} of session {} has two transactions", one.req, one.session)
        });
    } else if both && one.order != two.order {
        judge.against(Kind::RequestTwice, &[first, again], || {
            format!("request {} of session {} has the numbers {} and {}", one.req, one.session, one.order, two.order)
        });
    }
}

/// Two lines with one number: the same transaction, told alike?
pub(super) fn same_number(judge: &mut Judge<'_>, first: At, again: At) {
    let (one, two) = (judge.line(first), judge.line(again));
    let places = |line: &Line| line.parts.iter().map(|part| (part.id, part.seq)).collect::<Vec<_>>();
    if one.tx != two.tx {
        judge.against(Kind::NumberTwice, &[first, again], || format!("number {} has two transactions", one.order));
    } else if one.ts != two.ts || places(one) != places(two) {
        judge.against(Kind::AnswerDiffers, &[first, again], || {
            format!("number {} is told with different timestamps, participants or sequences", one.order)
        });
    }
}

/// Dense: holes only as many as transactions that may have got a number unseen.
pub(super) fn dense(judge: &mut Judge<'_>, index: &Index) {
    let Some(last) = index.order.len().checked_sub(1) else { return };
    if index.order[0].order == 0 {
        judge.against(Kind::NumberTwice, &[index.order[0].at], || "number 0: numbers begin at 1".to_owned());
    }
    let holes = index.holes_before(last);
    judge.report.holes = holes;
    if holes <= index.may_be_placed {
        return;
    }
    let say = |from: u64, to: u64| {
        let unanswered = index.may_be_placed;
        format!("{from}..{to} missing; {holes} numbers are, and {unanswered} unanswered requests could have them")
    };
    let first = &index.order[0];
    if first.order > index.from {
        judge.against(Kind::NumberHole, &[first.at], || say(index.from, first.order - 1));
    }
    for pair in index.order.windows(2) {
        if pair[1].order - pair[0].order > 1 {
            judge.against(Kind::NumberHole, &[pair[0].at, pair[1].at], || say(pair[0].order + 1, pair[1].order - 1));
        }
    }
}

/// Never falling, and equal only as often as servers can have stamped the same instant.
pub(super) fn timestamps(judge: &mut Judge<'_>, index: &Index) {
    let mut equal = 1;
    for pair in index.order.windows(2) {
        let (one, two) = (judge.line(pair[0].at), judge.line(pair[1].at));
        equal = if one.ts == two.ts { equal + 1 } else { 1 };
        if two.ts < one.ts {
            judge.against(Kind::Timestamp, &[pair[0].at, pair[1].at], || {
                format!("number {} has {}, number {} the earlier {}", one.order, one.ts, two.order, two.ts)
            });
        } else if equal > SERVERS_MAX {
            judge.against(Kind::Timestamp, &[pair[0].at, pair[1].at], || {
                format!("{equal} numbers up to {} share {}; {SERVERS_MAX} servers are the most", two.order, two.ts)
            });
        }
    }
}

/// Answered before the other was sent: the smaller number.
pub(super) fn real_time(judge: &mut Judge<'_>, index: &Index, options: Options) {
    let mut latest_sent: Vec<Option<(u64, At)>> = vec![None; judge.traces.len()];
    for placed in &index.order {
        let latest = &mut latest_sent[if options.clock_per_trace { placed.at.trace } else { 0 }];
        if let Some((sent_ns, at)) = *latest
            && placed.done_ns < sent_ns
        {
            let (this, other) = (judge.line(placed.at), judge.line(at));
            judge.against(Kind::RealTime, &[placed.at, at], || {
                format!(
                    "number {} was known {} ns before number {} was sent",
                    this.order,
                    sent_ns - placed.done_ns,
                    other.order
                )
            });
        }
        if latest.is_none_or(|(sent_ns, _)| sent_ns < placed.sent_ns) {
            *latest = Some((placed.sent_ns, placed.at));
        }
    }
}
