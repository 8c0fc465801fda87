//! What a core put out in one step, kept for the checks and for the network.
use std::rc::Rc;

use crate::protocol::inflight::RequestKey;
use crate::protocol::ledger::Ledger;
use crate::protocol::machine::{Answer, Event, Outbox, Refused, Sender, To};
use crate::protocol::{Instance, OrderNo, TxId};

/// One participant's part of an answer: id, sequence number, history.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) id: u32,
    pub(super) seq: u64,
    pub(super) history: Vec<(u64, TxId)>,
}

/// An answer, read out of the ledger at the moment it was given.
#[derive(Clone, Debug)]
pub(super) struct Answered {
    pub(super) waiter: u32,
    pub(super) key: RequestKey,
    pub(super) order: u64,
    pub(super) depth: u8,
    pub(super) instance: Instance,
    /// The last number the server had given.
    pub(super) last: u64,
    /// Time stamp, transaction and parts; `None` if the record was not there.
    pub(super) record: Option<(u64, TxId, Vec<Told>)>,
}

/// What a core said in one step.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) letters: Vec<(To, Sender, Rc<[u8]>)>,
    pub(super) answers: Vec<Answered>,
    /// Refusals, with the last number the server had given when the step began.
    pub(super) refusals: Vec<(u32, Refused)>,
    pub(super) events: Vec<Event>,
    /// Numbers given in this step.
    pub(super) delivered: Vec<u64>,
}

impl Said {
    pub(super) fn clear(&mut self) {
        self.letters.clear();
        self.answers.clear();
        self.refusals.clear();
        self.events.clear();
        self.delivered.clear();
    }
}

impl Outbox<u32> for Said {
    fn datagram(&mut self, to: To, sender: Sender, body: &[u8]) {
        self.letters.push((to, sender, body.into()));
    }

    fn answer(&mut self, waiter: u32, answer: &Answer<'_>) {
        let record = answer.ledger.record(answer.order).map(|record| {
            let parts = record.parts().map(|part| Told {
                id: part.id.get(),
                seq: part.seq.get(),
                history: answer
                    .ledger
                    .history(part, usize::from(answer.depth))
                    .map(|(order, tx)| (order.get(), tx))
                    .collect(),
            });
            (record.ts().get(), record.tx(), parts.collect())
        });
        self.answers.push(Answered {
            waiter,
            key: answer.key,
            order: answer.order.get(),
            depth: answer.depth,
            instance: answer.instance,
            last: answer.ledger.last_order().get(),
            record,
        });
    }

    fn refuse(&mut self, waiter: u32, refused: &Refused) {
        self.refusals.push((waiter, *refused));
    }

    fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    fn delivered(&mut self, order: OrderNo, _: &Ledger) {
        self.delivered.push(order.get());
    }
}
