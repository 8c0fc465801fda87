//! One schedule: servers, network, clients, faults, and the heap of what happens next.
//!
//! **Why like an engine.** A server takes some of the inputs that wait, then has its turn, and is called again at the
//! time it asked for, as under the real engine; so batching, `more_input` and timers are tried too.
//! **Invariants**: events of one time happen in the order they were made; every draw is of the one generator.
//! **Limits**: [`STEPS_MAX`] steps a server-second is what a core that never rests would exceed; [`FAULTS_END_NS`],
//! [`LIVENESS_NS`]. **Not here**: what must hold (`check`, `told`).
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;

use super::check::{Broken, Checks, receivers};
use super::client::{Desk, Done};
use super::clock::{Clock, Grain};
use super::net::{Network, OUTSIDE, chance};
use super::outbox::Said;
use super::{Faults, Schedule, Tally};
use crate::protocol::ledger::{Limits, Participants};
use crate::protocol::machine::{Core, Request, Sender, Settings};
use crate::protocol::{Instance, PARTICIPANTS_MAX, Principal, RequestNo, ServerId, SessionId, Span, Timestamp};
use crate::wire::auth::{ClusterKey, PeerKey};
use crate::wire::peer::Terms;
use crate::wire::{ENVELOPE_LEN, OVERHEAD, PAYLOAD_MIN, PeerEnvelope, open_peer, seal_peer};

/// Faults cease at the latest then.
pub const FAULTS_END_NS: u64 = 2_000_000_000;
/// After the faults everything must be answered within so long.
pub const LIVENESS_NS: u64 = 3_000_000_000;
/// How long a schedule goes on after restarts: usually a while, sometimes until pledges have been given up and over.
const AFTER_RESTARTS_NS: [u64; 4] = [300_000_000, 300_000_000, 300_000_000, 7_000_000_000];
/// More steps than any schedule needs.
pub const STEPS_MAX: u64 = 200_000;

/// What waits for a server.
#[derive(Clone, Debug)]
enum Input {
    Letter { sender: Sender, sent: Timestamp, body: Rc<[u8]> },
    Open { client: usize },
    Ask { waiter: u32, depth: u8, session: SessionId, instance: Instance },
}

/// What comes to a client.
#[derive(Clone, Copy, Debug)]
enum Reply {
    Opened { client: usize, session: SessionId },
    Answered { waiter: u32 },
    Refused { waiter: u32, why: crate::protocol::Refusal, is_final: bool },
}

#[derive(Clone, Debug)]
enum Happening {
    Arrive {
        server: usize,
        input: Input,
    },
    Wake {
        server: usize,
    },
    Reply(Reply),
    /// A client without a session asks for one.
    Open {
        client: usize,
    },
    /// A request is sent, or sent again, unless it is done.
    Send {
        ask: usize,
    },
    Fault,
    Restart {
        server: usize,
    },
}

#[derive(Debug)]
struct Next {
    at: u64,
    made: u64,
    what: Happening,
}

impl PartialEq for Next {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.made) == (other.at, other.made)
    }
}
impl Eq for Next {}
impl PartialOrd for Next {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Next {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.made).cmp(&(other.at, other.made))
    }
}

#[derive(Debug)]
struct Server {
    core: Core<u32>,
    clock: Clock,
    inbox: VecDeque<Input>,
    /// When its loop runs next; a wake at any other time is an old one.
    wake_at: u64,
    paused_until: u64,
    /// At most so many inputs before a turn.
    batch_max: usize,
}

/// A schedule under way.
#[derive(Debug)]
pub struct World {
    schedule: Schedule,
    rng: fastrand::Rng,
    now: u64,
    made: u64,
    heap: BinaryHeap<Reverse<Next>>,
    network: Network,
    servers: Vec<Server>,
    settings: Settings,
    desk: Desk,
    checks: Checks,
    tally: Tally,
    said: Said,
    key: PeerKey,
    sealed: Vec<u8>,
    healed_at: Option<u64>,
    /// With restarts: when the schedule ends, answered or not.
    ends_at: u64,
    instances: u32,
}

impl World {
    /// Draws everything a schedule begins with.
    #[must_use]
    pub fn new(schedule: &Schedule) -> Self {
        let mut rng = fastrand::Rng::with_seed(schedule.seed);
        let settings = draw_settings(&mut rng, schedule);
        let network = Network::draw(&mut rng, schedule.faults);
        let grain = Grain::draw(&mut rng);
        let desk = Desk::draw(&mut rng);
        let servers = (0..schedule.servers).filter_map(ServerId::from_place).map(|me| {
            let settings = Settings { me, seed: rng.u64(..), ..settings.clone() };
            let clock = Clock::draw(&mut rng, grain);
            let batch_max = [1, 2, 8][rng.usize(0..3)];
            Server { core: Core::new(settings), clock, inbox: VecDeque::new(), wake_at: 0, paused_until: 0, batch_max }
        });
        let servers = servers.collect();
        let mut world = Self {
            schedule: *schedule,
            now: 0,
            made: 0,
            heap: BinaryHeap::new(),
            network,
            servers,
            checks: Checks::new(settings.limits),
            settings,
            desk,
            tally: Tally { schedules: 1, ..Tally::default() },
            said: Said::default(),
            key: ClusterKey::PUBLIC.peer(),
            sealed: vec![0; OVERHEAD],
            healed_at: None,
            ends_at: u64::MAX,
            instances: 0,
            rng,
        };
        world.begin();
        world
    }

    /// Simulated time.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    fn begin(&mut self) {
        for server in 0..self.servers.len() {
            let at = self.rng.u64(0..2_000_000);
            self.wake(server, at);
        }
        for client in 0..self.desk.clients.len() {
            let at = self.rng.u64(0..4_000_000);
            self.put(at, Happening::Open { client });
        }
        if self.schedule.faults == Faults::Loss {
            let at = self.rng.u64(0..4_000_000);
            self.put(at, Happening::Fault);
        }
        let latest = [2_000_000, 100_000_000, 5_500_000_000][self.rng.usize(0..3)];
        self.ends_at = latest + AFTER_RESTARTS_NS[self.rng.usize(0..4)];
        for _ in 0..self.schedule.restarts {
            let server = self.rng.usize(0..self.servers.len());
            let at = self.rng.u64(0..latest);
            self.put(at, Happening::Restart { server });
        }
    }

    fn put(&mut self, at: u64, what: Happening) {
        self.made += 1;
        self.heap.push(Reverse(Next { at, made: self.made, what }));
    }

    fn wake(&mut self, server: usize, at: u64) {
        let at = at.max(self.servers[server].paused_until).max(self.now);
        self.servers[server].wake_at = at;
        self.put(at, Happening::Wake { server });
    }

    /// Plays to the end: everything answered and level, or an invariant broken.
    ///
    /// # Errors
    /// The invariant that does not hold.
    pub fn play(&mut self) -> Result<Tally, Broken> {
        while !self.is_over()? {
            let Some(Reverse(next)) = self.heap.pop() else {
                return Err(self.stuck("nothing is left to happen"));
            };
            self.now = next.at;
            self.happen(next.what)?;
        }
        self.tally.entries = self.checks.model.last();
        self.tally.instances = u64::from(self.checks.instances);
        Ok(self.tally)
    }

    /// Whether the schedule has come to its end; ends the faults when everything was asked.
    fn is_over(&mut self) -> Result<bool, Broken> {
        if self.schedule.restarts > 0 {
            return Ok(self.now >= self.ends_at || (self.desk.open == 0 && self.checks.is_level()));
        }
        if self.desk.open == 0 && self.checks.is_level() {
            return Ok(true);
        }
        match self.healed_at {
            None => {
                let all_sent = self.desk.asks.iter().all(|ask| ask.floor.is_some());
                if all_sent || self.now >= FAULTS_END_NS {
                    self.heal();
                }
            }
            Some(at) if self.now > at + LIVENESS_NS => return Err(self.stuck("faults have ceased")),
            Some(_) if self.tally.steps > STEPS_MAX => return Err(self.stuck("too many steps")),
            Some(_) => {}
        }
        Ok(false)
    }

    fn heal(&mut self) {
        self.healed_at = Some(self.now);
        self.network.heal();
        for server in 0..self.servers.len() {
            if self.servers[server].paused_until > self.now {
                self.servers[server].paused_until = self.now;
                self.wake(server, self.now);
            }
        }
    }

    fn stuck(&self, why: &str) -> Broken {
        let open = self.desk.asks.iter().filter(|ask| ask.done.is_none()).map(|ask| (ask.client, ask.request));
        let open: Vec<_> = open.collect();
        let blocked: Vec<_> = self
            .servers
            .iter()
            .map(|server| (server.core.ledger().delivered(), server.core.blocked(), server.core.under_way()))
            .collect();
        Broken {
            rule: "stuck",
            what: format!(
                "{why}, yet of {} entries delivered somewhere, servers have (delivered, blocked, under way) {blocked:?}; \
                 {} requests are open: {open:?}",
                self.checks.ordered(),
                self.desk.open,
            ),
        }
    }

    fn happen(&mut self, what: Happening) -> Result<(), Broken> {
        match what {
            Happening::Arrive { server, input } => {
                self.servers[server].inbox.push_back(input);
                let soon = self.now + self.rng.u64(0..4_000);
                if self.servers[server].wake_at > soon {
                    self.wake(server, soon);
                }
            }
            Happening::Wake { server } => {
                if self.servers[server].wake_at == self.now {
                    self.step(server)?;
                }
            }
            Happening::Reply(reply) => self.reply(reply),
            Happening::Open { client } => self.open(client),
            Happening::Send { ask } => self.send(ask),
            Happening::Fault => self.fault(),
            Happening::Restart { server } => self.restart(server),
        }
        Ok(())
    }

    /// One round of a server's loop, and all checks.
    fn step(&mut self, server: usize) -> Result<(), Broken> {
        self.tally.steps += 1;
        self.said.clear();
        let node = &mut self.servers[server];
        let now = node.clock.read(self.now);
        let batch = self.rng.usize(1..=node.batch_max);
        let mut opened = Vec::new();
        for _ in 0..batch {
            let Some(input) = node.inbox.pop_front() else { break };
            match input {
                Input::Letter { sender, sent, body } => node.core.datagram(now, sender, sent, &body, &mut self.said),
                Input::Open { client } => opened.extend(node.core.open_session(now).map(|session| (client, session))),
                Input::Ask { waiter, depth, session, instance } => {
                    let ask = &self.desk.asks[self.desk.ask_of(waiter)];
                    let mut ids = [[0; 4]; PARTICIPANTS_MAX];
                    ids.iter_mut().zip(&ask.body.participants).for_each(|(to, id)| *to = id.to_le_bytes());
                    let request = Request {
                        principal: Principal::new(Desk::principal(ask.client)),
                        session,
                        request: RequestNo::new(ask.request),
                        tx: ask.body.tx,
                        participants: Participants::held(&ids[..ask.body.participants.len()]),
                        depth,
                        instance,
                    };
                    node.core.request(now, &request, waiter, &mut self.said);
                }
            }
        }
        // Usually the truth; a loop may also expect more than comes.
        let more_input = !node.inbox.is_empty() || chance(&mut self.rng, 50_000);
        let again = node.core.turn(now, more_input, &mut self.said);
        let waits = !node.inbox.is_empty();
        let at = node.clock.when(again).max(self.now + 1);
        let at = if waits { self.now + self.rng.u64(500..10_000) } else { at.saturating_add(self.rng.u64(0..50_000)) };
        self.wake(server, at);
        self.checks.after(server, &self.servers[server].core, &self.said, &self.desk)?;
        if self.checks.instances > self.instances {
            self.instances = self.checks.instances;
            if self.instances > 1 {
                self.desk.forget();
                self.checks.answered = 0;
            }
        }
        self.post(server, now.clock, opened);
        Ok(())
    }

    /// Hands what a step put out to the network.
    fn post(&mut self, server: usize, sent: Timestamp, opened: Vec<(usize, SessionId)>) {
        let said = std::mem::take(&mut self.said);
        for (to, sender, body) in &said.letters {
            let (sender, sent, body) = self.travel(*sender, sent, body);
            for receiver in receivers(*to, server, self.servers.len()) {
                let arrivals = self.network.send(&mut self.rng, &mut self.tally, server, receiver, self.now);
                for at in arrivals {
                    let input = Input::Letter { sender, sent, body: Rc::clone(&body) };
                    self.put(at, Happening::Arrive { server: receiver, input });
                }
            }
        }
        let opened = opened.into_iter().map(|(client, session)| Reply::Opened { client, session });
        let answers = said.answers.iter().map(|answer| Reply::Answered { waiter: answer.waiter });
        let refusals = said.refusals.iter().map(|(waiter, refused)| Reply::Refused {
            waiter: *waiter,
            why: refused.why,
            is_final: refused.is_final,
        });
        self.tally.refusals += said.refusals.len() as u64;
        for reply in opened.chain(answers).chain(refusals) {
            let arrivals = self.network.send(&mut self.rng, &mut self.tally, server, OUTSIDE, self.now);
            for at in arrivals {
                self.put(at, Happening::Reply(reply));
            }
        }
        self.said = said;
    }

    /// Every sixteenth datagram really is sealed and opened.
    fn travel(&mut self, sender: Sender, sent: Timestamp, body: &Rc<[u8]>) -> (Sender, Timestamp, Rc<[u8]>) {
        if self.rng.u32(0..16) != 0 {
            return (sender, sent, Rc::clone(body));
        }
        self.sealed.resize(body.len() + OVERHEAD, 0);
        self.sealed[ENVELOPE_LEN..ENVELOPE_LEN + body.len()].copy_from_slice(body);
        let envelope =
            PeerEnvelope { from: sender.server, instance: sender.instance, inc: sender.incarnation, sent, eps_ns: 0 };
        let len = seal_peer(&mut self.sealed, &envelope, body.len(), &self.key);
        let opened = open_peer(&self.sealed[..len], &self.key);
        let (envelope, body) = opened.expect("what was sealed with a key opens with it");
        let sender = Sender { server: envelope.from, incarnation: envelope.inc, instance: envelope.instance };
        (sender, envelope.sent, body.into())
    }

    fn ask_server(&mut self, server: usize, input: &Input) {
        let arrivals = self.network.send(&mut self.rng, &mut self.tally, OUTSIDE, server, self.now);
        for at in arrivals {
            self.put(at, Happening::Arrive { server, input: input.clone() });
        }
    }

    fn open(&mut self, client: usize) {
        if self.desk.clients[client].session.is_some() {
            return;
        }
        let server = self.rng.usize(0..self.servers.len());
        self.ask_server(server, &Input::Open { client });
        self.desk.clients[client].tries += 1;
        let wait = self.patience(self.desk.clients[client].tries);
        self.put(self.now + wait, Happening::Open { client });
    }

    /// How long a client waits before it asks again.
    fn patience(&mut self, tries: u32) -> u64 {
        (500_000 + self.rng.u64(0..2_000_000)) << tries.min(5)
    }

    fn send(&mut self, at: usize) {
        let ask = &mut self.desk.asks[at];
        if ask.done.is_some() {
            return;
        }
        let first = ask.floor.is_none();
        ask.floor.get_or_insert(self.checks.answered);
        let tries = ask.tries;
        let Some(session) = self.desk.clients[ask.client].session else { return };
        self.tally.retries += u64::from(!first);
        let (waiter, depth) = self.desk.try_again(at, &mut self.rng);
        let instance = self.checks.configuration.map_or(Instance::NONE, |held| held.instance);
        let instance = if self.rng.bool() { instance } else { Instance::NONE };
        let server = self.rng.usize(0..self.servers.len());
        self.ask_server(server, &Input::Ask { waiter, depth, session, instance });
        let wait = self.patience(tries);
        self.put(self.now + wait, Happening::Send { ask: at });
    }

    fn reply(&mut self, reply: Reply) {
        match reply {
            Reply::Opened { client, session } => {
                if self.desk.clients[client].session.is_some() {
                    return;
                }
                self.desk.clients[client].session = Some(session);
                for ask in 0..self.desk.asks.len() {
                    if self.desk.asks[ask].client == client {
                        let at = self.now + self.desk.asks[ask].start_ns;
                        self.put(at, Happening::Send { ask });
                    }
                }
            }
            Reply::Answered { waiter } => self.desk.finish(self.desk.ask_of(waiter), Done::Answered),
            Reply::Refused { waiter, why, is_final } => {
                // What has left retention was numbered once; asking on would bring nothing else.
                if is_final || why == crate::protocol::Refusal::WindowExceeded {
                    self.desk.finish(self.desk.ask_of(waiter), Done::Refused(why));
                }
            }
        }
    }

    fn fault(&mut self) {
        if self.healed_at.is_some() {
            return;
        }
        let server = self.rng.usize(0..self.servers.len());
        let until = self.now + self.rng.u64(200_000..20_000_000);
        match self.rng.u32(0..4) {
            0 => {
                self.servers[server].paused_until = until;
                self.tally.pauses += 1;
                self.wake(server, until);
            }
            1 => {
                self.servers[server].clock.step_back(&mut self.rng);
                self.tally.clock_jumps += 1;
            }
            _ => {
                let other = self.rng.usize(0..self.servers.len());
                self.network.cut(server, other, until);
                self.tally.cuts += u64::from(other != server);
            }
        }
        let again = self.now + self.rng.u64(500_000..8_000_000);
        self.put(again, Happening::Fault);
    }

    fn restart(&mut self, server: usize) {
        let Some(me) = ServerId::from_place(server) else { return };
        let settings = Settings { me, seed: self.rng.u64(..), ..self.settings.clone() };
        self.servers[server].core = Core::new(settings);
        self.servers[server].inbox.clear();
        self.checks.died(server);
        self.tally.restarts += 1;
        self.wake(server, self.now + 1_000);
    }
}

/// Draws what all servers are told: small tables, so that they fill, and a schedule costs little.
fn draw_settings(rng: &mut fastrand::Rng, schedule: &Schedule) -> Settings {
    let payload = [PAYLOAD_MIN, 640, 1_472][rng.usize(0..3)];
    let body_max = crate::wire::body_max(payload);
    let limits = Limits {
        retain_entries: [8, 64, 256][rng.usize(0..3)],
        retain_parts: 4_096,
        sessions: 16,
        sessions_per_key: 4,
        session_ttl: Span::secs(3_600),
        participants: [10, 64, 64, 64][rng.usize(0..4)],
    };
    let servers = schedule.servers;
    let terms = Terms { servers: u8::try_from(servers).unwrap_or(0), ..Terms::default() };
    Settings {
        me: ServerId::default(),
        servers,
        seed: 0,
        body_max,
        beat: [Span::millis(10), Span::millis(2)][rng.usize(0..2)],
        omega: [Span::micros(100), Span::micros(20), Span::millis(1)][rng.usize(0..3)],
        ack_delay: [Span::micros(20), Span::micros(0), Span::micros(200)][rng.usize(0..3)],
        inflight: [4, 64][rng.usize(0..2)],
        frames: servers * body_max * [3, 8, 40][rng.usize(0..3)],
        limits,
        terms,
        plant: schedule.plant,
    }
}
