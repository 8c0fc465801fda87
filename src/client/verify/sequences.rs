//! What each participant sees of the order: its sequence, and the histories that let it apply in sequence.
//!
//! **Why walk.** A participant's transactions are sorted by number, so a history is a walk backwards from its own
//! place; nothing is looked up for the entries that are known.
//! **Not here**: the order itself ([`super::numbers`]).

use std::collections::HashMap;

use super::{At, Index, Judge, Kind};
use crate::client::trace::{Earlier, Line, Outcome, Part};
use crate::protocol::{NodeId, TxId};

/// A participant's transaction.
#[derive(Clone, Copy)]
struct Row {
    id: NodeId,
    /// Position in [`Index::order`].
    position: usize,
    seq: u64,
}

/// What histories told of transactions that no line places: by participant and sequence, and by number.
#[derive(Default)]
struct Heard {
    by_seq: HashMap<(NodeId, u64), (Earlier, At)>,
    by_order: HashMap<u64, (TxId, At)>,
    by_tx: HashMap<TxId, (u64, At)>,
}

pub(super) fn check(judge: &mut Judge<'_>, index: &Index) {
    let mut rows = Vec::new();
    for (position, placed) in index.order.iter().enumerate() {
        let parts = &judge.line(placed.at).parts;
        rows.extend(parts.iter().map(|part| Row { id: part.id, position, seq: part.seq.get() }));
    }
    rows.sort_unstable_by_key(|row| (row.id, row.position, row.seq));
    let budget = Budget::new(judge, index);
    for of_one in rows.chunk_by(|a, b| a.id == b.id) {
        judge.report.participants += 1;
        dense(judge, index, of_one, budget.of(of_one[0].id));
    }
    let mut heard = Heard::default();
    for (at, line) in judge.all() {
        if line.outcome == Outcome::Ordered {
            histories(judge, index, &rows, &mut heard, at, line);
        }
    }
}

/// How many transactions may have taken a participant's number unseen.
struct Budget {
    by_participant: HashMap<NodeId, u64>,
    /// Those that do not say whom they named.
    anybody: u64,
}

impl Budget {
    fn new(judge: &Judge<'_>, index: &Index) -> Self {
        let mut budget = Self { by_participant: HashMap::new(), anybody: 0 };
        for known in index.tx.values().filter(|known| known.placed.is_none()) {
            let Some(at) = known.unanswered else { continue };
            let asked = &judge.line(at).asked;
            budget.anybody += u64::from(asked.is_empty());
            for id in asked {
                *budget.by_participant.entry(*id).or_default() += 1;
            }
        }
        budget
    }

    fn of(&self, id: NodeId) -> u64 {
        self.anybody + self.by_participant.get(&id).copied().unwrap_or(0)
    }
}

/// A participant's sequence rises with the order, without holes but those that unanswered requests explain.
fn dense(judge: &mut Judge<'_>, index: &Index, rows: &[Row], budget: u64) {
    let at = |row: Row| index.order[row.position].at;
    let (first, id) = (rows[0], rows[0].id);
    if first.seq == 0 {
        judge.against(Kind::SequenceTwice, &[at(first)], || format!("participant {id} at 0: sequences begin at 1"));
    }
    let before = index.from.saturating_sub(1).saturating_add(index.holes_before(first.position));
    if first.seq.saturating_sub(1) > before {
        judge.against(Kind::SequenceHole, &[at(first)], || {
            format!("participant {id} begins at {}, with {before} transactions that could come before", first.seq)
        });
    }
    let mut missing_total = 0_u64;
    for pair in rows.windows(2) {
        let (one, two) = (pair[0], pair[1]);
        if two.seq == one.seq {
            judge.against(Kind::SequenceTwice, &[at(one), at(two)], || {
                format!("participant {id}: {} has two transactions", one.seq)
            });
        } else if two.seq < one.seq {
            judge.against(Kind::SequenceFalls, &[at(one), at(two)], || {
                format!("participant {id}: from {} to {} while the order rises", one.seq, two.seq)
            });
        } else {
            let missing = two.seq - one.seq - 1;
            let holes = index.holes_before(two.position) - index.holes_before(one.position);
            missing_total = missing_total.saturating_add(missing);
            if missing > 0 && (missing > holes || missing_total > budget) {
                judge.against(Kind::SequenceHole, &[at(one), at(two)], || {
                    format!(
                        "participant {id}: {missing} missing between {} and {}; {holes} numbers are missing there, and \
                         {budget} unanswered requests may have named it",
                        one.seq, two.seq
                    )
                });
            }
        }
    }
}

/// Whether the transaction with this number in the participant's sequence may have left retention, so that a history
/// ends before it.
fn left_retention(index: &Index, rows: &[Row], id: NodeId, seq: u64) -> bool {
    let row = rows.partition_point(|row| (row.id, row.seq) < (id, seq));
    let known = rows.get(row).filter(|row| row.id == id && row.seq == seq);
    index.retained_from > 0 && known.is_none_or(|row| index.order[row.position].order < index.retained_from)
}

fn histories(judge: &mut Judge<'_>, index: &Index, rows: &[Row], heard: &mut Heard, at: At, line: &Line) {
    for (part, history) in line.parts() {
        let wanted = u64::from(line.h).min(part.seq.get().saturating_sub(1));
        let ends_early = u64::from(part.depth) < wanted;
        let next = part.seq.get().saturating_sub(u64::from(part.depth) + 1);
        if u64::from(part.depth) != wanted && !(ends_early && left_retention(index, rows, part.id, next)) {
            judge.against(Kind::HistoryLength, &[at], || {
                format!(
                    "participant {} at {}: {} entries of history, not min({}, {} - 1)",
                    part.id, part.seq, part.depth, line.h, part.seq
                )
            });
        }
        let Some(position) = index.position(line.order.get()) else { continue };
        let mut row = rows.partition_point(|row| (row.id, row.position) < (part.id, position));
        let (mut seq, mut above) = (part.seq.get(), line.order.get());
        for earlier in history {
            judge.report.history_entries += 1;
            seq = seq.saturating_sub(1);
            while row > 0 && rows[row - 1].id == part.id && rows[row - 1].seq > seq {
                row -= 1;
            }
            let known = row.checked_sub(1).map(|below| rows[below]).filter(|row| row.id == part.id && row.seq == seq);
            if let Some(known) = known {
                says_the_order(judge, index, at, (part, seq), *earlier, index.order[known.position].at);
            } else {
                Unplaced { at, part, seq, earlier: *earlier, above }.check(judge, index, heard);
            }
            above = earlier.order.get();
        }
    }
}

/// The entry is of a transaction that has a line: it must be that one.
fn says_the_order(judge: &mut Judge<'_>, index: &Index, at: At, place: (Part, u64), said: Earlier, truth: At) {
    let line = judge.line(truth);
    if said.order == line.order && said.tx == line.tx {
        return;
    }
    let (part, seq) = place;
    judge.against(Kind::HistoryWrong, &[at, truth], || {
        let placed = index.tx.get(&said.tx).and_then(|known| known.placed);
        let where_is_it = placed.map_or(String::new(), |(_, order)| format!(" (whose own number is {order})"));
        format!(
            "participant {} at {seq}: the history says number {}, {}{where_is_it}; the order says number {}, {}",
            part.id, said.order, said.tx, line.order, line.tx
        )
    });
}

/// A history entry whose place no line has.
struct Unplaced {
    at: At,
    part: Part,
    seq: u64,
    earlier: Earlier,
    /// The number it must be below.
    above: u64,
}

impl Unplaced {
    fn check(&self, judge: &mut Judge<'_>, index: &Index, heard: &mut Heard) {
        let (order, tx, id, seq) = (self.earlier.order.get(), self.earlier.tx, self.part.id, self.seq);
        let says = format!("participant {id} at {seq}: the history says number {order}, {tx}");
        let known = index.tx.get(&tx);
        if order >= self.above || order == 0 {
            judge.against(Kind::HistoryWrong, &[self.at], || {
                format!("{says}, which is not between 0 and the later number {}", self.above)
            });
        } else if let Some((line, number)) = known.and_then(|known| known.placed) {
            judge.against(Kind::HistoryWrong, &[self.at, line], || {
                format!("{says}, whose own line has number {number} and not this place")
            });
        } else if let Some(position) = index.position(order) {
            judge.against(Kind::HistoryWrong, &[self.at, index.order[position].at], || {
                format!("{says}, but this number is another transaction's")
            });
        } else if let Some(line) = known.filter(|known| known.unanswered.is_none()).map(|known| known.any) {
            judge.against(Kind::HistoryUnknown, &[self.at, line], || format!("{says}, which was refused"));
        } else if known.is_none() && order >= index.from {
            judge.against(Kind::HistoryUnknown, &[self.at], || {
                format!("{says}, which no line of these traces asked for")
            });
        } else {
            self.agrees(judge, known.and_then(|known| known.unanswered), heard, &says);
        }
    }

    /// Nothing speaks against the entry by itself: it must agree with whom it names and with all other histories.
    fn agrees(&self, judge: &mut Judge<'_>, unanswered: Option<At>, heard: &mut Heard, says: &str) {
        if let Some(line) = unanswered {
            let asked = &judge.line(line).asked;
            if !asked.is_empty() && !asked.contains(&self.part.id) {
                judge.against(Kind::HistoryWrong, &[self.at, line], || {
                    format!("{says}, which did not name this participant")
                });
            }
        }
        let Earlier { order, tx } = self.earlier;
        let key = (self.part.id, self.seq);
        let (said, first) = *heard.by_seq.entry(key).or_insert((self.earlier, self.at));
        let (tx_said, tx_first) = *heard.by_order.entry(order.get()).or_insert((tx, self.at));
        let (order_said, order_first) = *heard.by_tx.entry(tx).or_insert((order.get(), self.at));
        if said != self.earlier {
            judge.against(Kind::HistoryWrong, &[self.at, first], || {
                format!("{says}; another history says number {}, {}", said.order, said.tx)
            });
        } else if tx_said != tx {
            judge.against(Kind::HistoryWrong, &[self.at, tx_first], || format!("{says}; another history: {tx_said}"));
        } else if order_said != order.get() {
            judge.against(Kind::HistoryWrong, &[self.at, order_first], || {
                format!("{says}; another history has this transaction at number {order_said}")
            });
        }
    }
}
