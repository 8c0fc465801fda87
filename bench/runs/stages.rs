//! `stages`: the roles of a cluster's servers and its client, in one thread, exchanging datagrams in memory.
//!
//! **Why.** Without sockets and sleep, what is left is the work of an entry. The roles are those that servers run; a step
//! gives one host what has come for it, then its roles their turns, as a core does.
//! **How.** Natively for time, by stage; under callgrind for instructions, if valgrind is installed: by stage, and by the
//! part of the source, which tells more. Per entry, all servers together.
//! **Limits**: one memory, warm caches, no contention; times hold the clock reads around stages (some nanoseconds).

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use ordain::client::machine::{Ask, Choice, Config, Event, Machine};
use ordain::engine::backend::{Io, Received, SendRefused, SocketId};
use ordain::engine::clock;
use ordain::engine::cores::{Now, Role};
use ordain::engine::link::link;
use ordain::engine::ring::{Consumer, ring};
use ordain::engine::stop::Stop;
use ordain::engine::wake::Bell;
use ordain::protocol::ledger::Limits;
use ordain::protocol::machine::{Event as CoreEvent, Settings};
use ordain::protocol::plant::Plant;
use ordain::protocol::{LocalTime, NodeId, SERVERS_MAX, ServerId, Span, TxId};
use ordain::server::ingress::{self, Ingress};
use ordain::server::keys::{Identity, LOCAL};
use ordain::server::order::{self, Gate, Order};
use ordain::server::slots::Done;
use ordain::stats::file::{Owner, View};
use ordain::stats::metrics;
use ordain::wire::auth::{ClusterKey, KeyCache};
use ordain::wire::peer::Terms;
use ordain::wire::{Few, PAYLOAD_DEFAULT, body_max};
use serde_json::{Map, Value, json};

use super::callgrind;
use crate::support::figures::{Figures, count, round, spreads};
use crate::support::process::{self, Process};
use crate::support::{Args, Failure, Found};

/// First argument of the driver.
pub(in crate::support) const DRIVER: &str = "stages-driver";
/// Requests handed over for each server in a round.
const BURST: usize = 32;
/// The set-up takes at most so many rounds.
const ROUNDS_MAX: usize = 100_000;
const VALGRIND_MAX: Span = Span::secs(120);
const PEERS: SocketId = SocketId::new(0);
const CLIENTS: SocketId = SocketId::new(1);
const CLIENT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 100)), 9);

/// Stages, in the order of an entry's way; each is one call into the product.
const STAGES: [&str; 6] =
    ["client_ask", "ingress_datagram", "order_datagram", "order_turn", "ingress_turn", "client_answer"];

/// What part of the source belongs to what part of the work.
const PARTS: [(&str, &[&str]); 9] = [
    ("seal_and_open", &["siphasher", "src/wire/auth.rs", "src/wire/envelope.rs"]),
    (
        "parse_request",
        &["src/wire/client.rs", "src/wire/participants.rs", "src/server/ingress.rs", "src/server/slots.rs"],
    ),
    (
        "stamp_and_frame",
        &["src/wire/builder.rs", "src/protocol/hlc.rs", "src/protocol/inflight.rs", "src/protocol/machine.rs"],
    ),
    ("accept_frame", &["src/wire/frame.rs", "src/protocol/stream.rs", "src/protocol/store.rs"]),
    (
        "header_make_and_take",
        &[
            "src/wire/header.rs",
            "src/wire/peer.rs",
            "src/protocol/acks.rs",
            "src/protocol/normal.rs",
            "src/protocol/config.rs",
            "src/protocol/repair.rs",
        ],
    ),
    ("merge_and_ledger", &["src/protocol/merge.rs", "src/protocol/ledger/"]),
    ("answer_encode", &["src/wire/answer.rs", "src/server/order.rs"]),
    ("rings_and_bytes", &["src/engine/", "src/wire/bytes.rs", "src/server/counts.rs", "src/protocol/mod.rs"]),
    ("client", &["src/client/"]),
];

/// What a run of the driver is to do.
#[derive(Clone, Copy, Debug)]
struct Plan {
    entries: usize,
    servers: usize,
    per_datagram: usize,
    participants: usize,
    history: u8,
}

/// Datagrams on their way; buffers are used again.
#[derive(Default)]
struct Net {
    sent: VecDeque<(SocketId, SocketAddr, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    /// What the roles say they did.
    work: usize,
}

impl Io for Net {
    fn send(
        &mut self,
        socket: SocketId,
        to: SocketAddr,
        fill: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> Result<(), SendRefused> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.resize(PAYLOAD_DEFAULT, 0);
        let len = fill(&mut buffer);
        buffer.truncate(len);
        self.sent.push_back((socket, to, buffer));
        Ok(())
    }

    fn payload_max(&self) -> usize {
        PAYLOAD_DEFAULT
    }
}

/// A server: its roles, what has come for it, what it counts.
struct Host {
    ingress: Box<dyn Role>,
    order: Box<dyn Role>,
    from_clients: Vec<Vec<u8>>,
    from_peers: Vec<(SocketAddr, Vec<u8>)>,
    counts: View<metrics::Order>,
    _events: Consumer<Option<CoreEvent>>,
}

struct Driver {
    hosts: Vec<Host>,
    client: Machine,
    answers: Vec<(usize, Vec<u8>)>,
    net: Net,
    plan: Plan,
    asked: u64,
    answered: usize,
    spent_ns: [u64; STAGES.len()],
    datagrams: u64,
}

fn peer_address(place: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, u8::try_from(place + 1).unwrap_or(0)), 1))
}

fn host(me: ServerId, servers: usize) -> Result<Host, Failure> {
    let key = ClusterKey::PUBLIC;
    let (done, stop) = (Done::default(), Stop::new());
    let counted = Owner::<metrics::Order>::in_memory();
    let counts = counted.view();
    let (order_bell, ingress_bell) = (Bell::new()?, Bell::new()?);
    let (asked_in, asked) = link(4_096, order_bell.waker());
    let (told_in, told) = link(4_096, ingress_bell.waker());
    let (events_in, events) = ring(64);
    let settings = Settings {
        me,
        servers,
        seed: 7 + u64::from(me.byte()),
        body_max: body_max(PAYLOAD_DEFAULT),
        beat: Span::millis(10),
        omega: Span::millis(100),
        ack_delay: Span::micros(20),
        inflight: 65_536,
        frames: 16 << 20,
        limits: Limits::laptop(),
        terms: Terms { servers: u8::try_from(servers)?, vacant: 0, settings: Few::new() },
        plant: Plant::NONE,
    };
    let mut peers = [None; SERVERS_MAX];
    for (place, peer) in peers.iter_mut().enumerate().take(servers) {
        *peer = (place != me.place()).then(|| peer_address(place));
    }
    let order = Order::new(order::Parts {
        settings,
        socket: PEERS,
        peers,
        key: key.peer(),
        payload_max: PAYLOAD_DEFAULT,
        gates: vec![Gate { asked, told: told_in }],
        events: events_in,
        counts: counted,
        done: done.clone(),
        stop: stop.clone(),
    });
    let ingress = Ingress::new(ingress::Parts {
        socket: CLIENTS,
        keys: KeyCache::new(&key),
        payload_max: PAYLOAD_DEFAULT,
        asked: asked_in,
        told,
        counts: Owner::in_memory(),
        done,
        stop,
    });
    Ok(Host {
        ingress: Box::new(ingress),
        order: Box::new(order),
        from_clients: Vec::new(),
        from_peers: Vec::new(),
        counts,
        _events: events,
    })
}

impl Driver {
    fn new(plan: Plan) -> Result<Self, Failure> {
        let hosts: Result<Vec<_>, _> =
            (0..plan.servers).filter_map(ServerId::from_place).map(|me| host(me, plan.servers)).collect();
        let identity = Identity::derive(&ClusterKey::PUBLIC, LOCAL)?;
        let mut config = Config::new(plan.servers, identity.name().to_owned(), *identity.key(), 11);
        config.choice = Choice::Spread;
        config.sessions = 16 * plan.servers;
        config.in_flight_max = 16 * 64 * plan.servers;
        config.requests_per_datagram = plan.per_datagram;
        Ok(Self {
            hosts: hosts?,
            client: Machine::new(config)?,
            answers: Vec::new(),
            net: Net::default(),
            plan,
            asked: 0,
            answered: 0,
            spent_ns: [0; STAGES.len()],
            datagrams: 0,
        })
    }

    /// Genesis, then sessions, then a first few thousand requests.
    fn prepare(&mut self) -> Result<(), Failure> {
        let mut rounds = 0;
        while self.client.sessions_open() < self.client.sessions() {
            self.round(0);
            rounds += 1;
            if rounds > ROUNDS_MAX {
                let formed = self.hosts.iter().filter(|host| host.counts.look(|order| order.member.get()) == 1).count();
                return Err(
                    format!("{formed} servers formed an instance, {} sessions", self.client.sessions_open()).into()
                );
            }
        }
        let goal = self.answered + 2_000;
        while self.answered < goal {
            self.round(BURST * self.plan.servers);
        }
        self.drain();
        (self.spent_ns, self.datagrams, self.answered) = Default::default();
        Ok(())
    }

    fn drain(&mut self) {
        for _ in 0..ROUNDS_MAX {
            if self.client.in_flight() == 0 {
                return;
            }
            self.round(0);
        }
    }

    /// Hands over requests, then lets every host have a step, then the client its answers.
    fn round(&mut self, requests: usize) {
        let start = clock::monotonic();
        client_ask(self, start, requests);
        let mut at = self.spend(0, start);
        self.route(0);
        for place in 0..self.hosts.len() {
            at = clock::monotonic();
            let (now, host, net) = (Now::read(), &mut self.hosts[place], &mut self.net);
            ingress_datagram(host, now, net);
            at = self.spend(1, at);
            let (host, net) = (&mut self.hosts[place], &mut self.net);
            order_datagram(host, now, net);
            at = self.spend(2, at);
            let (host, net) = (&mut self.hosts[place], &mut self.net);
            ingress_turn(host, now, net);
            at = self.spend(4, at);
            let (host, net) = (&mut self.hosts[place], &mut self.net);
            order_turn(host, now, net);
            self.spend(3, at);
            self.route(place);
        }
        at = at.max(clock::monotonic());
        client_answer(self, at);
        self.spend(5, at);
    }

    fn spend(&mut self, stage: usize, since: LocalTime) -> LocalTime {
        let now = clock::monotonic();
        self.spent_ns[stage] += now.since(since).get();
        now
    }

    /// Carries what was sent to whom it is for; answers come from the server whose turn it was.
    fn route(&mut self, sender: usize) {
        while let Some((socket, to, datagram)) = self.net.sent.pop_front() {
            self.datagrams += 1;
            if to == CLIENT {
                self.answers.push((sender, datagram));
            } else if let Some(host) = (0..self.hosts.len()).find(|place| peer_address(*place).ip() == to.ip()) {
                if socket == PEERS {
                    self.hosts[host].from_peers.push((peer_address(sender), datagram));
                } else {
                    self.hosts[host].from_clients.push(datagram);
                }
            }
        }
    }
}

#[inline(never)]
fn client_ask(driver: &mut Driver, now: LocalTime, requests: usize) {
    let Driver { client, net, plan, asked, .. } = driver;
    for _ in 0..requests {
        let first = u32::try_from(*asked % 997).unwrap_or(0);
        let ids: [NodeId; 3] =
            std::array::from_fn(|at| NodeId::new(1 + first + u32::try_from(at).unwrap_or(0) * 1_000));
        let tx = TxId::new(u128::from(*asked).to_be_bytes());
        let ask = Ask { tx, participants: &ids[..plan.participants.min(3)], depth: plan.history, user: 0 };
        if client.submit(now, &ask).is_err() {
            break;
        }
        *asked += 1;
    }
    while let Some(server) = client.output() {
        let to = SocketAddr::new(peer_address(server.place()).ip(), 2);
        let sent = net.send(CLIENTS, to, &mut |buffer| client.fill(now, server, buffer));
        debug_assert!(sent.is_ok(), "memory takes all");
    }
}

#[inline(never)]
fn ingress_datagram(host: &mut Host, now: Now, net: &mut Net) {
    for datagram in host.from_clients.drain(..) {
        host.ingress.datagram(now, Received { socket: CLIENTS, from: CLIENT, stamp: None, data: &datagram });
        net.spare.push(datagram);
    }
}

#[inline(never)]
fn order_datagram(host: &mut Host, now: Now, net: &mut Net) {
    for (from, datagram) in host.from_peers.drain(..) {
        host.order.datagram(now, Received { socket: PEERS, from, stamp: None, data: &datagram });
        net.spare.push(datagram);
    }
}

#[inline(never)]
fn ingress_turn(host: &mut Host, now: Now, net: &mut Net) {
    // Added up, so that the call is no jump, which callgrind would count for the caller.
    let done = host.ingress.turn(now, false, net);
    net.work += done.work;
}

#[inline(never)]
fn order_turn(host: &mut Host, now: Now, net: &mut Net) {
    let done = host.order.turn(now, false, net);
    net.work += done.work;
}

#[inline(never)]
fn client_answer(driver: &mut Driver, now: LocalTime) {
    let Driver { client, answers, net, answered, plan, .. } = driver;
    for (place, datagram) in answers.drain(..) {
        let server = ServerId::from_place(place % plan.servers).expect("at most seven servers");
        client.receive(now, server, &datagram, &mut |event| *answered += usize::from(matches!(event, Event::Done(_))));
        net.spare.push(datagram);
    }
    client.tick(now, &mut |_| ());
}

/// What callgrind collects.
#[inline(never)]
fn measured_rounds(driver: &mut Driver) {
    while driver.answered < driver.plan.entries {
        driver.round(BURST * driver.plan.servers);
    }
}

/// The driver as a process of its own: entries, servers, requests a datagram, participants, history.
pub(in crate::support) fn driver(arguments: &[String]) -> Result<(), Failure> {
    let numbers: Vec<usize> = arguments.iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
    let [entries, servers, per_datagram, participants, history] = numbers[..] else {
        return Err("five numbers".into());
    };
    let plan = Plan { entries, servers, per_datagram, participants, history: u8::try_from(history)? };
    let mut driver = Driver::new(plan)?;
    driver.prepare()?;
    measured_rounds(&mut driver);
    let entries = count(u64::try_from(driver.answered)?);
    let stages = STAGES.iter().zip(driver.spent_ns).map(|(name, ns)| ((*name).to_owned(), json!(count(ns) / entries)));
    let retries = driver.client.counters().retries;
    let object = json!({
        "entries": driver.answered, "retries": retries, "datagrams": count(driver.datagrams) / entries,
        "ns": Value::Object(stages.collect()),
    });
    std::io::Write::write_all(&mut std::io::stdout().lock(), format!("{object}\n").as_bytes())?;
    Ok(())
}

impl Plan {
    fn arguments(self) -> Vec<String> {
        let numbers = [self.entries, self.servers, self.per_datagram, self.participants, usize::from(self.history)];
        std::iter::once(DRIVER.to_owned()).chain(numbers.map(|number| number.to_string())).collect()
    }

    /// Nanoseconds an entry by stage, and datagrams.
    fn times(self) -> Result<Figures, Failure> {
        let output = Command::new(std::env::current_exe()?).args(self.arguments()).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let object: Value = serde_json::from_str(&said)
            .map_err(|_| format!("the driver said: {said} {}", String::from_utf8_lossy(&output.stderr)))?;
        let ns = |name: &str| object["ns"][name].as_f64().unwrap_or(0.0);
        let mut figures: Figures = STAGES.iter().map(|name| (*name, ns(name))).collect();
        let servers: f64 = STAGES[1..5].iter().map(|name| ns(name)).sum();
        figures.extend([("servers", servers), ("all", servers + ns(STAGES[0]) + ns(STAGES[5]))]);
        figures.insert("datagrams", object["datagrams"].as_f64().unwrap_or(0.0));
        Ok(figures)
    }

    /// Instructions an entry, by stage and by part; `None` without valgrind.
    fn instructions(self) -> Result<Option<Value>, Failure> {
        if Command::new("valgrind").arg("--version").output().is_err() {
            return Ok(None);
        }
        let dir = tempfile::tempdir()?;
        let (out, log) = (dir.path().join("callgrind.out"), dir.path().join("log"));
        let mut command = process::command("valgrind");
        command.args(["--tool=callgrind", "--toggle-collect=*measured_rounds*", "--compress-pos=no"]);
        command.arg(format!("--callgrind-out-file={}", out.display()));
        command.arg(std::env::current_exe()?).args(self.arguments());
        let mut run = Process::start(&mut command, &log)?;
        if !process::wait_for(VALGRIND_MAX, || run.ended().is_some()) {
            return Err("callgrind did not end in time".into());
        }
        drop(run);
        let said = std::fs::read_to_string(&log)?;
        let entries = said
            .lines()
            .find_map(|line| serde_json::from_str::<Value>(line.get(line.find('{')?..)?).ok()?["entries"].as_f64());
        let entries = entries.ok_or_else(|| format!("callgrind said: {said}"))?;
        let text = std::fs::read_to_string(&out)?;
        Ok(Some(by_stage_and_part(&callgrind::read(&text), entries)))
    }
}

fn by_stage_and_part(counted: &callgrind::Counted, entries: f64) -> Value {
    let per_entry = |value: u64| json!(round(count(value) / entries));
    let stages: Map<String, Value> =
        STAGES.iter().map(|stage| ((*stage).to_owned(), per_entry(counted.of(&format!("stages::{stage}"))))).collect();
    let mut parts: BTreeMap<&str, u64> = BTreeMap::new();
    for (file, value) in &counted.by_file {
        let part = PARTS.iter().find(|(_, files)| files.iter().any(|part| file.contains(part))).map(|(name, _)| *name);
        let rest = match file.as_str() {
            callgrind::COPYING => callgrind::COPYING,
            file if file.contains("bench/") => "driver",
            _ => "library",
        };
        *parts.entry(part.unwrap_or(rest)).or_insert(0) += value;
    }
    let parts: Map<String, Value> =
        parts.into_iter().map(|(name, value)| (name.to_owned(), per_entry(value))).collect();
    json!({"total": per_entry(counted.total), "by_stage": stages, "by_part": parts})
}

pub(in crate::support) fn run(args: &Args) -> Result<Found, Failure> {
    let rounds = args.rounds(3, 7);
    let entries = if args.quick { 50_000 } else { 500_000 };
    let counted = if args.quick { 3_000 } else { 30_000 };
    let plain = Plan { entries, servers: 3, per_datagram: 1 << 20, participants: 2, history: 1 };
    let mut shapes = vec![
        ("packed", plain),
        ("one_a_datagram", Plan { per_datagram: 1, ..plain }),
        ("three_four", Plan { participants: 3, history: 4, ..plain }),
        ("servers_5", Plan { servers: 5, ..plain }),
        ("servers_7", Plan { servers: 7, ..plain }),
    ];
    if args.quick {
        shapes.truncate(3);
    }
    let mut times: Vec<Vec<Figures>> = vec![Vec::new(); shapes.len()];
    for _ in 0..rounds {
        for ((_, plan), times) in shapes.iter().zip(&mut times) {
            times.push(plan.times()?);
        }
    }
    let mut figures = Map::new();
    for ((name, plan), times) in shapes.iter().zip(&times) {
        let instructions = Plan { entries: counted, ..*plan }.instructions()?;
        figures.insert(
            (*name).to_owned(),
            json!({
                "servers": plan.servers, "participants": plan.participants, "history": plan.history,
                "ns_an_entry": spreads(times),
                "instructions_an_entry": instructions.unwrap_or_else(
                    || json!({"unavailable": "valgrind is not installed: times only; apt-get install valgrind"})),
            }),
        );
    }
    let floor = json!("none: no sockets, no sleep");
    Ok(Found { engine: "memory: the roles without sockets".to_owned(), waiting: "none", floor, figures })
}
