//! A bench for scripted scenarios: cores whose datagrams lie on the table until the script hands them over.
use std::collections::BTreeMap;

use crate::protocol::ledger::{Ledger, Limits, Participants};
use crate::protocol::machine::{Answer, Core, Event, Now, Outbox, Refused, Request, Sender, Settings, To};
use crate::protocol::plant::{Fault, Plant};
use crate::protocol::{Instance, LocalTime, OrderNo, Principal, RequestNo, ServerId, SessionId, Span, Timestamp, TxId};
use crate::wire::frame::FrameView;
use crate::wire::header::Header;
use crate::wire::peer::{PeerMessage, Terms, messages};

pub(super) const A: usize = 0;
pub(super) const B: usize = 1;
pub(super) const C: usize = 2;

/// A datagram on the table: from whom, to whom.
#[derive(Clone, Debug)]
pub(super) struct Letter {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) sender: Sender,
    pub(super) body: Vec<u8>,
}

impl Letter {
    /// Its header, if it has one.
    pub(super) fn header(&self) -> Option<Header> {
        messages(&self.body).find_map(|message| match message {
            Ok(PeerMessage::Header(header)) => Some(header),
            _ => None,
        })
    }

    /// Numbers and first time stamps of the frames in it.
    pub(super) fn frames(&self) -> Vec<(u64, u64)> {
        let frame = |frame: FrameView<'_>| (frame.number().get(), frame.first_ts().get());
        let found = messages(&self.body).filter_map(|message| match message {
            Ok(PeerMessage::Frame(found)) => Some(frame(found)),
            _ => None,
        });
        found.collect()
    }
}

#[derive(Debug, Default)]
struct Table {
    letters: Vec<(To, Sender, Vec<u8>)>,
    answers: Vec<(u32, u64)>,
    refusals: Vec<(u32, Refused)>,
    events: Vec<Event>,
    delivered: Vec<TxId>,
}

impl Outbox<u32> for Table {
    fn datagram(&mut self, to: To, sender: Sender, body: &[u8]) {
        self.letters.push((to, sender, body.to_vec()));
    }
    fn answer(&mut self, waiter: u32, answer: &Answer<'_>) {
        self.answers.push((waiter, answer.order.get()));
    }
    fn refuse(&mut self, waiter: u32, refused: &Refused) {
        self.refusals.push((waiter, *refused));
    }
    fn event(&mut self, event: Event) {
        self.events.push(event);
    }
    fn delivered(&mut self, order: OrderNo, ledger: &Ledger) {
        self.delivered.extend(ledger.record(order).map(|record| record.tx()));
    }
}

/// Cores, their clocks, and all that was put out.
pub(super) struct Lab {
    pub(super) cores: Vec<Core<u32>>,
    /// What each server's cluster clock shows.
    pub(super) clocks: Vec<u64>,
    /// All servers' local clocks.
    pub(super) local: u64,
    pub(super) table: Vec<Letter>,
    pub(super) answers: Vec<(u32, u64)>,
    pub(super) refusals: Vec<(u32, Refused)>,
    pub(super) events: Vec<(usize, Event)>,
    /// Of each server, the transactions it gave numbers to, in order.
    pub(super) delivered: BTreeMap<usize, String>,
    fault: Option<Fault>,
    lives: u64,
}

impl Lab {
    /// Fresh servers before genesis, with a rule removed or none.
    pub(super) fn fresh(servers: usize, fault: Option<Fault>) -> Self {
        let mut lab = Self {
            cores: Vec::new(),
            clocks: vec![1_000; servers],
            local: 1_000_000_000,
            table: Vec::new(),
            answers: Vec::new(),
            refusals: Vec::new(),
            events: Vec::new(),
            delivered: (0..servers).map(|server| (server, String::new())).collect(),
            fault,
            lives: 0,
        };
        for place in 0..servers {
            let core = lab.process(place, servers);
            lab.cores.push(core);
        }
        lab
    }

    /// Servers that have formed an instance, all datagrams of it handed over.
    pub(super) fn formed(servers: usize, fault: Option<Fault>) -> Self {
        let mut lab = Self::fresh(servers, fault);
        (0..servers).for_each(|server| lab.turn(server));
        lab.pass_all();
        assert!(lab.cores.iter().all(Core::is_member), "genesis needs no luck here");
        lab
    }

    fn process(&mut self, place: usize, servers: usize) -> Core<u32> {
        self.lives += 1;
        let plant = self.fault.map_or(Plant::NONE, Plant::new);
        Core::new(Settings {
            me: ServerId::from_place(place).unwrap(),
            servers,
            seed: self.lives,
            body_max: 1_400,
            beat: Span::millis(10),
            omega: Span::micros(100),
            ack_delay: Span::micros(20),
            inflight: 16,
            frames: 30_000,
            limits: Limits {
                retain_entries: 64,
                retain_parts: 256,
                sessions: 8,
                sessions_per_key: 8,
                session_ttl: Span::secs(60),
                participants: 16,
            },
            terms: Terms { servers: u8::try_from(servers).unwrap(), ..Terms::default() },
            plant,
        })
    }

    /// The process at this place is replaced by a fresh one that remembers nothing.
    pub(super) fn restart(&mut self, server: usize) {
        let servers = self.cores.len();
        self.cores[server] = self.process(server, servers);
    }

    pub(super) fn at(&self, server: usize) -> Now {
        Now { clock: Timestamp::new(self.clocks[server]), local: LocalTime::new(self.local) }
    }

    fn with(&mut self, server: usize, act: impl FnOnce(&mut Core<u32>, Now, &mut Table)) {
        let (now, mut said) = (self.at(server), Table::default());
        act(&mut self.cores[server], now, &mut said);
        for (to, sender, body) in said.letters {
            for to in super::check::receivers(to, server, self.cores.len()) {
                self.table.push(Letter { from: server, to, sender, body: body.clone() });
            }
        }
        self.answers.extend(said.answers);
        self.refusals.extend(said.refusals);
        self.events.extend(said.events.into_iter().map(|event| (server, event)));
        let names = said.delivered.iter().map(|tx| char::from(tx.bytes()[0]));
        self.delivered.entry(server).or_default().extend(names);
    }

    /// A turn of a server.
    pub(super) fn turn(&mut self, server: usize) {
        self.with(server, |core, now, said| {
            core.turn(now, false, said);
        });
    }

    /// A turn of a server a beat later: it speaks.
    pub(super) fn beat(&mut self, server: usize) {
        self.local += Span::millis(10).get();
        self.turn(server);
    }

    /// Request number `request` of the one session, for the transaction named by a letter; then a turn.
    pub(super) fn ask(&mut self, server: usize, tx: char, request: u64) {
        let waiter = u32::try_from(server).unwrap() * 1_000 + u32::try_from(request).unwrap();
        self.with(server, |core, now, said| {
            let request = Request {
                principal: Principal::new(1),
                session: SessionId { created: Timestamp::new(900), nonce: 7 },
                request: RequestNo::new(request),
                tx: TxId::new([u8::try_from(tx).unwrap(); 16]),
                participants: Participants::held(&[[1, 0, 0, 0]]),
                depth: 0,
                instance: Instance::NONE,
            };
            core.request(now, &request, waiter, said);
            core.turn(now, false, said);
        });
    }

    /// Hands one datagram over; then a turn of who got it.
    pub(super) fn hand(&mut self, letter: &Letter) {
        self.with(letter.to, |core, now, said| {
            core.datagram(now, letter.sender, Timestamp::new(900), &letter.body, said);
            core.turn(now, false, said);
        });
    }

    /// Takes from the table all that goes from one server to another.
    pub(super) fn take(&mut self, from: usize, to: usize) -> Vec<Letter> {
        let (taken, left) = self.table.drain(..).partition(|letter| (letter.from, letter.to) == (from, to));
        self.table = left;
        taken
    }

    /// Hands over what lies there from one server to another.
    pub(super) fn pass(&mut self, from: usize, to: usize) {
        let letters = self.take(from, to);
        assert!(!letters.is_empty(), "nothing lies there from server {} to {}", from + 1, to + 1);
        letters.iter().for_each(|letter| self.hand(letter));
    }

    /// Loses what lies there from one server to another.
    pub(super) fn lose(&mut self, from: usize, to: usize) {
        let lost = self.take(from, to);
        assert!(!lost.is_empty(), "nothing to lose from server {} to {}", from + 1, to + 1);
    }

    /// Hands over everything, and what is sent because of it, until nothing is.
    pub(super) fn pass_all(&mut self) {
        for _ in 0..10_000 {
            if self.table.is_empty() {
                return;
            }
            let letter = self.table.remove(0);
            self.hand(&letter);
        }
        panic!("the servers never stop talking");
    }

    /// Time goes on, beat by beat, and everything is handed over: whatever can be repaired is.
    pub(super) fn settle(&mut self) {
        for _ in 0..8 {
            for server in 0..self.cores.len() {
                self.clocks[server] += 10_000;
                self.beat(server);
            }
            self.pass_all();
        }
    }

    /// What a server has given numbers to, in order.
    pub(super) fn order(&self, server: usize) -> &str {
        &self.delivered[&server]
    }

    /// Hands over a body as if `from`, of its present life, had sent it.
    pub(super) fn forge(&mut self, from: usize, to: usize, write: impl FnOnce(&mut crate::wire::BodyWriter<'_>)) {
        let mut bytes = [0; 1_400];
        let mut body = crate::wire::BodyWriter::new(&mut bytes);
        write(&mut body);
        let len = body.len();
        let sender = self.cores[from].sender();
        self.hand(&Letter { from, to, sender, body: bytes[..len].to_vec() });
    }
}
