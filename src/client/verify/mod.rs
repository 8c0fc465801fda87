//! What traces must satisfy together: the contract with a user, checked from the answers alone.
//!
//! Each [`Kind`] is one promise. The order is rebuilt from the answered lines; everything else follows from it.
//!
//! **Why with holes.** A request without an answer may have got a number, so a number nobody has is a contradiction only
//! if there are more of them than unanswered requests; likewise in a participant's sequence, and a history may name
//! such a transaction, and no other that is unknown. Numbers before the first one seen belong to earlier runs: they
//! are counted, not judged, unless [`Options::from`] says that the traces begin at a given number.
//! **Why equal timestamps pass.** Two servers may stamp the same nanosecond; the order is by (timestamp, server), so as
//! many equal ones in a row as there are servers are right, and they never fall.
//! **Invariants.** Sound: a trace of a correct cluster, whole, is never rejected, whatever was lost or retried.
//! **Limits.** All lines are in memory ([`super::trace`]); of each kind the first [`SHOWN_MAX`] are kept, all counted.
//! **Not here**: reading files ([`super::trace::read`]), printing (`cli::verify`).

mod numbers;
mod sequences;

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::trace::{Line, Outcome};
use crate::protocol::{OrderNo, TxId};

/// Contradictions of one kind that are kept with their lines; more are only counted.
pub const SHOWN_MAX: u64 = 20;

/// A trace, and what to call it.
#[derive(Debug)]
pub struct Trace {
    /// The file's name.
    pub name: String,
    /// Its lines, the first being line 1.
    pub lines: Vec<Line>,
}

/// What the reader of the report knows beyond the traces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The number the traces begin at: all from here on must be there. `None`: the smallest seen.
    pub from: Option<OrderNo>,
    /// The traces come from different hosts: times are compared within each only.
    pub clock_per_trace: bool,
    /// How many records the servers retain at least: a history may end where its next step lies further back than that
    /// from the last number. `None`: no history may end early.
    pub retained: Option<u64>,
}

/// A promise that can be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Two instances in the traces: numbers began anew.
    Instance,
    /// A request with two transactions, two sets of participants, or two numbers.
    RequestTwice,
    /// A transaction with two numbers.
    TxTwice,
    /// A number with two transactions, or zero.
    NumberTwice,
    /// More numbers missing than there are unanswered requests.
    NumberHole,
    /// The same transaction, told with another timestamp, other participants or other sequence numbers.
    AnswerDiffers,
    /// None, too many, or one twice; or others than asked for.
    Participants,
    /// A participant's sequence number with two transactions, or zero.
    SequenceTwice,
    /// A participant's sequence falls while the order rises.
    SequenceFalls,
    /// More numbers of a participant missing than unanswered requests can have taken.
    SequenceHole,
    /// A history is not as long as min(depth, sequence - 1).
    HistoryLength,
    /// A history does not say what the order says.
    HistoryWrong,
    /// A history names a transaction that nobody can have ordered: refused, or of no line.
    HistoryUnknown,
    /// A later transaction has an earlier timestamp, or more share one than there can be servers.
    Timestamp,
    /// Answered before the other was sent, and yet after it in the order.
    RealTime,
    /// Done before it was sent.
    Backwards,
}

/// One broken promise.
#[derive(Clone, Debug, Serialize)]
pub struct Contradiction {
    /// Which promise.
    pub kind: Kind,
    /// What is wrong, in words.
    pub what: String,
    /// The lines that show it, each as `file:line: text`.
    pub lines: Vec<String>,
}

/// What the traces hold, and what is wrong with them.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Lines in all.
    pub lines: u64,
    /// Lines with a number.
    pub ordered: u64,
    /// Lines without an answer.
    pub unanswered: u64,
    /// Lines refused, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Lines whose answer was never confirmed.
    pub provisional: u64,
    /// The number the traces are judged from; numbers before it belong to earlier runs.
    pub order_first: u64,
    /// The largest number seen.
    pub order_last: u64,
    /// Numbers between the two that no line has.
    pub holes: u64,
    /// Different participants in the answers.
    pub participants: u64,
    /// History entries compared with the order.
    pub history_entries: u64,
    /// How many contradictions, by kind.
    pub contradiction_counts: BTreeMap<Kind, u64>,
    /// The first [`SHOWN_MAX`] of each kind.
    pub contradictions: Vec<Contradiction>,
}

impl Report {
    /// True if nothing contradicts.
    #[must_use]
    pub fn verified(&self) -> bool {
        self.contradiction_counts.is_empty()
    }

    /// All contradictions, shown or not.
    #[must_use]
    pub fn contradictions_total(&self) -> u64 {
        self.contradiction_counts.values().sum()
    }
}

/// Checks traces taken together.
#[must_use]
pub fn check(traces: &[Trace], options: Options) -> Report {
    let mut judge = Judge { traces, report: Report::default() };
    judge.count();
    let index = Index::build(&mut judge, options);
    numbers::requests(&mut judge);
    numbers::dense(&mut judge, &index);
    numbers::timestamps(&mut judge, &index);
    numbers::real_time(&mut judge, &index, options);
    sequences::check(&mut judge, &index);
    judge.report
}

/// Where a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    trace: usize,
    line: usize,
}

/// The lines, and the report in the making.
struct Judge<'a> {
    traces: &'a [Trace],
    report: Report,
}

impl<'a> Judge<'a> {
    fn line(&self, at: At) -> &'a Line {
        &self.traces[at.trace].lines[at.line]
    }

    fn all(&self) -> impl Iterator<Item = (At, &'a Line)> + use<'a> {
        let traces = self.traces;
        traces.iter().enumerate().flat_map(|(trace, Trace { lines, .. })| {
            lines.iter().enumerate().map(move |(line, content)| (At { trace, line }, content))
        })
    }

    /// Notes a contradiction; its text is made only if it will be shown.
    fn against(&mut self, kind: Kind, lines: &[At], what: impl FnOnce() -> String) {
        let count = self.report.contradiction_counts.entry(kind).or_default();
        *count += 1;
        if *count <= SHOWN_MAX {
            let lines = lines.iter().map(|at| self.text(*at)).collect();
            self.report.contradictions.push(Contradiction { kind, what: what(), lines });
        }
    }

    fn text(&self, at: At) -> String {
        let mut text = Vec::new();
        self.line(at).write_to(&mut text);
        format!("{}:{}: {}", self.traces[at.trace].name, at.line + 1, String::from_utf8_lossy(&text).trim_end())
    }

    fn count(&mut self) {
        for (_, line) in self.all() {
            self.report.lines += 1;
            match line.outcome {
                Outcome::Ordered => self.report.ordered += 1,
                Outcome::Unanswered => self.report.unanswered += 1,
                Outcome::Refused(refusal) => *self.report.refused.entry(refusal.name()).or_default() += 1,
            }
            self.report.provisional += u64::from(line.provisional);
        }
    }
}

/// A transaction that has a number.
struct Placed {
    order: u64,
    /// The first line that tells so; it speaks for all.
    at: At,
    /// When it was first asked for, by any line.
    sent_ns: u64,
    /// When its number was first known.
    done_ns: u64,
}

/// What the lines say of a transaction id.
#[derive(Clone, Copy)]
struct Known {
    /// A line with a number, and that number.
    placed: Option<(At, u64)>,
    /// A line without an answer.
    unanswered: Option<At>,
    /// Any line.
    any: At,
    sent_ns: u64,
    done_ns: u64,
}

/// The order, rebuilt.
struct Index {
    /// By number, each number once.
    order: Vec<Placed>,
    tx: HashMap<TxId, Known>,
    /// Numbers before it are not judged.
    from: u64,
    /// Transactions that may have a number nobody was told.
    may_be_placed: u64,
    /// Numbers before it may have left retention.
    retained_from: u64,
}

impl Index {
    fn build(judge: &mut Judge<'_>, options: Options) -> Self {
        let mut index = Self { order: Vec::new(), tx: HashMap::new(), from: 0, may_be_placed: 0, retained_from: 0 };
        for (at, line) in judge.all() {
            index.learn(judge, at, line, options);
        }
        index.may_be_placed =
            index.tx.values().map(|known| u64::from(known.placed.is_none() && known.unanswered.is_some())).sum();
        let mut placed: Vec<(u64, At)> = judge
            .all()
            .filter(|(_, line)| line.outcome == Outcome::Ordered)
            .map(|(at, line)| (line.order.get(), at))
            .collect();
        placed.sort_by_key(|(order, at)| (*order, at.trace, at.line));
        for (order, at) in placed {
            let known = index.tx.get(&judge.line(at).tx).copied();
            match index.order.last() {
                Some(first) if first.order == order => numbers::same_number(judge, first.at, at),
                _ => {
                    let (sent_ns, done_ns) = known.map_or((0, u64::MAX), |known| (known.sent_ns, known.done_ns));
                    index.order.push(Placed { order, at, sent_ns, done_ns });
                }
            }
        }
        let smallest = index.order.first().map_or(1, |first| first.order);
        index.from = options.from.map_or(smallest, |from| from.get().min(smallest));
        judge.report.order_first = index.from;
        judge.report.order_last = index.order.last().map_or(0, |last| last.order);
        let last = judge.report.order_last;
        index.retained_from = options.retained.map_or(0, |kept| last.saturating_sub(kept) + 1);
        index
    }

    fn learn(&mut self, judge: &mut Judge<'_>, at: At, line: &Line, options: Options) {
        let done_ns = if line.outcome == Outcome::Ordered { line.done_ns } else { u64::MAX };
        let known = self.tx.entry(line.tx).or_insert(Known {
            placed: None,
            unanswered: None,
            any: at,
            sent_ns: line.sent_ns,
            done_ns,
        });
        if !options.clock_per_trace || known.any.trace == at.trace {
            known.sent_ns = known.sent_ns.min(line.sent_ns);
            known.done_ns = known.done_ns.min(done_ns);
        }
        match (line.outcome, known.placed) {
            (Outcome::Ordered, None) => known.placed = Some((at, line.order.get())),
            (Outcome::Ordered, Some((first, order))) if order != line.order.get() => {
                judge.against(Kind::TxTwice, &[first, at], || {
                    format!("transaction {} has the numbers {order} and {}", line.tx, line.order)
                });
            }
            (Outcome::Unanswered, _) => known.unanswered = Some(at),
            _ => {}
        }
    }

    /// Numbers from the first judged one up to before the one at `position` that no line has.
    fn holes_before(&self, position: usize) -> u64 {
        let known = u64::try_from(position).unwrap_or(u64::MAX);
        self.order[position].order.saturating_sub(self.from).saturating_sub(known)
    }

    fn position(&self, order: u64) -> Option<usize> {
        self.order.binary_search_by_key(&order, |placed| placed.order).ok()
    }
}
