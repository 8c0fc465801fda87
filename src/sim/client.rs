//! Simulated clients: Tx hosts that open a session each, ask, lose answers, and ask again elsewhere.
//!
//! **What they do wrong on purpose**: another request for the same transaction (a host that restarted), the same
//! transaction with other participants, the same request number for another transaction.
//! **Invariants**: all attempts at a request carry the same body; only the depth may differ.
//! **Limits**: at most [`ASKS_MAX`] requests a schedule, so a session never outruns its window.
//! **Not here**: whether answers are right (`told`).
use super::model::{Body, Key};
use crate::protocol::{HISTORY_MAX, Refusal, SessionId, TxId, WINDOW};

/// Most requests of a schedule, and so of a session.
pub(super) const ASKS_MAX: usize = WINDOW;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    Answered,
    Refused(Refusal),
}

/// A request and how it goes.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) client: usize,
    pub(super) request: u64,
    pub(super) body: Body,
    /// When it is first sent, counted from when its session is open.
    pub(super) start_ns: u64,
    /// The largest number answered before it was first sent; none before that.
    pub(super) floor: Option<u64>,
    pub(super) done: Option<Done>,
    pub(super) tries: u32,
}

/// A client: one principal, one session.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Client {
    pub(super) session: Option<SessionId>,
    pub(super) tries: u32,
}

/// All clients of a schedule.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) clients: Vec<Client>,
    pub(super) asks: Vec<Ask>,
    /// Attempts: which request, to which depth.
    attempts: Vec<(usize, u8)>,
    pub(super) open: usize,
}

impl Desk {
    /// Draws clients and what they will ask.
    pub(super) fn draw(rng: &mut fastrand::Rng) -> Self {
        let clients = rng.usize(1..=5);
        let count = rng.usize(16..=ASKS_MAX);
        let participants = [3, 8, 40][rng.usize(0..3)];
        let most = [1, 3, 3, 12][rng.usize(0..4)].min(participants);
        let span = [1_000_000, 10_000_000, 40_000_000][rng.usize(0..3)];
        let odd = [0, 30_000, 150_000][rng.usize(0..3)];
        let mut asks: Vec<Ask> = Vec::with_capacity(count);
        let mut requests = vec![0; clients];
        for at in 0..count {
            let client = rng.usize(0..clients);
            requests[client] += 1;
            let mut request = requests[client];
            let mut body = Body { tx: tx(rng, at), participants: some(rng, participants, most) };
            if at > 0 && super::net::chance(rng, odd) {
                let other = &asks[rng.usize(0..at)];
                match rng.u32(0..4) {
                    0 => body.participants.clone_from(&other.body.participants),
                    1 if other.client == client => request = other.request,
                    _ => {}
                }
                if request == requests[client] {
                    body.tx = other.body.tx;
                } else {
                    requests[client] -= 1;
                }
            }
            let start_ns = rng.u64(0..span);
            asks.push(Ask { client, request, body, start_ns, floor: None, done: None, tries: 0 });
        }
        let open = asks.len();
        Self { clients: vec![Client::default(); clients], asks, attempts: Vec::new(), open }
    }

    /// The principal of a client.
    pub(super) fn principal(client: usize) -> u64 {
        client as u64 + 1
    }

    /// The name of a request whose session is open.
    pub(super) fn key(&self, ask: &Ask) -> Option<Key> {
        Some((Self::principal(ask.client), self.clients[ask.client].session?, ask.request))
    }

    /// A new attempt at a request: its waiter, and the depth asked for.
    pub(super) fn try_again(&mut self, ask: usize, rng: &mut fastrand::Rng) -> (u32, u8) {
        let depth = u8::try_from(rng.usize(0..=HISTORY_MAX)).unwrap_or(0);
        self.attempts.push((ask, depth));
        self.asks[ask].tries += 1;
        (u32::try_from(self.attempts.len() - 1).unwrap_or(u32::MAX), depth)
    }

    /// Which request an attempt is at.
    pub(super) fn ask_of(&self, waiter: u32) -> usize {
        self.attempts[waiter as usize].0
    }

    /// What an attempt asked: the request's name, its body, the depth.
    pub(super) fn attempt(&self, waiter: u32) -> (Key, &Body, u8) {
        let (ask, depth) = self.attempts[waiter as usize];
        let ask = &self.asks[ask];
        let key = self.key(ask).unwrap_or((0, SessionId::default(), 0));
        (key, &ask.body, depth)
    }

    /// The largest number answered before this request, for this transaction, was first sent.
    pub(super) fn floor(&self, key: &Key, tx: TxId) -> Option<u64> {
        let client = usize::try_from(key.0.checked_sub(1)?).ok()?;
        let same = |ask: &&Ask| ask.client == client && ask.request == key.2 && ask.body.tx == tx;
        self.asks.iter().filter(same).filter_map(|ask| ask.floor).min()
    }

    /// How many bodies were sent under one name.
    pub(super) fn bodies(&self, key: &Key) -> usize {
        self.asks.iter().filter(|ask| self.key(ask) == Some(*key)).count()
    }

    /// Ends a request, once.
    pub(super) fn finish(&mut self, ask: usize, done: Done) {
        if self.asks[ask].done.is_none() {
            self.asks[ask].done = Some(done);
            self.open -= 1;
        }
    }

    /// A new instance numbers from 1: what was answered in the old one counts for nothing.
    pub(super) fn forget(&mut self) {
        for ask in &mut self.asks {
            ask.floor = ask.floor.map(|_| 0);
            ask.done = None;
        }
        self.open = self.asks.len();
    }
}

fn tx(rng: &mut fastrand::Rng, at: usize) -> TxId {
    // The number makes it unlike all others of the schedule, the rest unlike those of other schedules.
    TxId::new(((u128::from(rng.u64(..)) << 64) | at as u128).to_le_bytes())
}

/// Some distinct participants out of `space`, at most `most`.
fn some(rng: &mut fastrand::Rng, space: usize, most: usize) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..space).filter_map(|id| u32::try_from(id).ok()).collect();
    rng.shuffle(&mut ids);
    ids.truncate(rng.usize(1..=most));
    ids
}
