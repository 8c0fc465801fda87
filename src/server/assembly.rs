//! A running server: roles on cores, with the sockets, rings and memory they need.
//!
//! **Why here.** Roles know their links, cores know their roles; only this file knows both, and the configuration.
//! **Invariants**: all memory is taken before the first datagram is heard; the table of roles printed is what runs.
//! **Limits**: those of a [`Map`].
//! **Not here**: signals, readiness, the log (`run`).
use std::fmt;
use std::net::SocketAddr;

use super::config::Config;
use super::counts::Counts;
use super::figures::{self, House, Planned};
use super::ingress::{self, Ingress};
use super::keys::KeyError;
use super::map::{Map, Part};
use super::order::{self, Gate, Order, Waiter};
use super::servers::Server;
use super::settings;
use super::slots::{Asked, Done, Told};
use crate::engine::backend::SocketId;
use crate::engine::clock;
use crate::engine::cores::{Core, CoreConfig, CoreError, CoreReport, CoreStats, Role, Running, Waiting};
use crate::engine::link::{link, local_link};
use crate::engine::net::{Granted, Socket, SocketError, SocketOptions};
use crate::engine::pages::{self, Advised};
use crate::engine::place::{Placed, cpus};
use crate::engine::ring::{Consumer, ring};
use crate::engine::stop::Stop;
use crate::engine::uring::{Uring, UringConfig, UringError};
use crate::engine::wake::Bell;
use crate::protocol::machine::{Core as Protocol, Event, Settings};
use crate::protocol::plant::Plant;
use crate::protocol::{SERVERS_MAX, ServerId, Span};
use crate::stats::file::FileError;
use crate::wire::auth::KeyCache;
use crate::wire::peer::Terms;
use crate::wire::{Few, body_max};

/// Events that may wait for the log.
const EVENTS: usize = 256;
/// How long a start waits for a port that is in use.
const PORT_PATIENCE: Span = Span::secs(2);
/// How long a spinning core looks before it sleeps, when `hybrid` is asked for.
const HYBRID: Span = Span::micros(50);

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The cluster key cannot be had.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// An address of the configuration does not resolve.
    #[error("server {id}: {host}: {cause}: write an IP address, or a name that this host can resolve")]
    Address {
        /// Whose address.
        id: ServerId,
        /// As configured.
        host: String,
        /// The resolver's answer.
        #[source]
        cause: std::io::Error,
    },
    /// A socket cannot be had.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The ring cannot be had.
    #[error(transparent)]
    Ring(#[from] UringError),
    /// A core did not start.
    #[error(transparent)]
    Core(#[from] CoreError),
    /// Randomness or a descriptor is not to be had.
    #[error("{what}: {cause}")]
    System {
        /// What was wanted.
        what: &'static str,
        /// The system's answer.
        #[source]
        cause: std::io::Error,
    },
    /// There can be no stats file.
    #[error(transparent)]
    Stats(#[from] FileError),
    /// More settings must agree than a handshake can carry: a defect.
    #[error("{0} shared settings: at most {max} fit the handshake", max = crate::wire::peer::SETTINGS_MAX)]
    TooManyShared(usize),
}

/// A server that runs.
pub struct Assembly {
    /// Which one.
    pub id: ServerId,
    /// Its cores.
    pub cores: Vec<Running>,
    /// What it counts.
    pub counts: Counts,
    /// What `house` writes into the stats file.
    pub figures: House,
    /// Set once `order` has ended.
    pub done: Done,
    /// Changes of state, for the log.
    pub events: Consumer<Option<Event>>,
    /// Asks it to end.
    pub stop: Stop,
    /// Socket buffers smaller than asked for.
    pub shortage: Option<Shortage>,
    /// The processor wanted for `house`, the thread that follows the server.
    pub house_cpu: Option<usize>,
    /// Where `house` really runs, once it has been placed.
    pub house: Placed,
    /// The names of the shared settings, as events number them.
    pub shared: Vec<&'static str>,
    table: Table,
}

/// What runs where: printed at start.
struct Table {
    rows: Vec<Row>,
    bytes: usize,
    pages: Advised,
}

/// One role: where it runs, and with what.
struct Row {
    role: Part,
    core: usize,
    rings: String,
    socket: String,
}

/// Socket buffers smaller than asked for: one warning for all of a server's sockets, with its mend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    asked: usize,
    receive: usize,
    send: usize,
}

impl Shortage {
    /// The least that any socket got, if that is less than asked.
    fn of(sockets: &[&Socket]) -> Option<Self> {
        let least = |granted: fn(&Socket) -> Granted| {
            sockets.iter().map(|socket| granted(socket)).min_by_key(|granted| granted.got)
        };
        let (receive, send) = (least(Socket::receive_buffer)?, least(Socket::send_buffer)?);
        let asked = receive.asked.or(send.asked)?;
        (receive.is_short() || send.is_short()).then_some(Self { asked, receive: receive.got, send: send.got })
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, receive, send } = self;
        write!(
            f,
            "socket buffers: wanted {asked} bytes each, got {receive} to receive and {send} to send; bursts may be lost: \
             sysctl -w net.core.rmem_max={asked} net.core.wmem_max={asked}, or give the process CAP_NET_ADMIN, or ask for \
             less (engine.socket_buffer)"
        )
    }
}

impl Assembly {
    /// What all cores did since their start, together.
    #[must_use]
    pub fn report(&self) -> CoreReport {
        self.cores.iter().map(Running::report).fold(CoreReport::default(), |sum, core| sum.plus(&core))
    }

    /// Bytes of all tables, rings and buffers.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.table.bytes
    }

    /// What was asked for and not granted, for the log.
    pub fn refusals(&self) -> impl Iterator<Item = String> + '_ {
        let cores = self.cores.iter().map(|core| (core.name(), core.placed()));
        cores
            .chain([("house", &self.house)])
            .filter(|(_, placed)| !placed.is_granted())
            .map(|(name, placed)| format!("{name} runs on {placed}"))
    }
}

impl fmt::Display for Assembly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<8} {:<11} {:<4} {:<8} {:<13} {:<36} socket",
            "role", "core", "cpu", "priority", "waiting", "rings (slots)"
        )?;
        let mut row = |role: &str, core: &str, placed: &Placed, waiting: &str, rings: &str, socket: &str| {
            let (cpu, priority) = (placed.processor(), placed.priority());
            let row = format!("{role:<8} {core:<11} {cpu:<4} {priority:<8} {waiting:<13} {rings:<36} {socket}");
            writeln!(f, "{}", row.trim_end())
        };
        for of in &self.table.rows {
            let Some(core) = self.cores.get(of.core) else { continue };
            row(of.role.name(), core.name(), core.placed(), &core.waiting().to_string(), &of.rings, &of.socket)?;
        }
        let events = format!("from order {EVENTS}");
        let waiting = format!("park {} ms", super::run::LOOK_EVERY.as_millis());
        row(Part::House.name(), "main", &self.house, &waiting, &events, "")?;
        self.cores.iter().try_for_each(|core| writeln!(f, "{core}"))?;
        let bytes = self.table.bytes;
        writeln!(f, "tables, rings and buffers: {bytes} bytes ({} MiB)", bytes.div_ceil(1 << 20))?;
        write!(f, "{}", self.table.pages)
    }
}

/// The sizes and places of one server, read from its configuration.
struct Plan<'a> {
    config: &'a Config,
    id: ServerId,
    map: Map,
}

impl<'a> Plan<'a> {
    fn new(config: &'a Config, id: ServerId) -> Self {
        let mut plan = Self { config, id, map: Map::auto(1, 1) };
        let chosen = config.settings().engine.map.clone();
        plan.map = chosen.unwrap_or_else(|| Map::auto(cpus(), plan.local_servers()));
        plan
    }

    fn engine(&self) -> &settings::Engine {
        &self.config.settings().engine
    }

    fn payload(&self) -> usize {
        self.config.settings().wire.payload
    }

    fn uring(&self) -> UringConfig {
        let count = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
        UringConfig {
            receive_buffers: count(self.engine().receive_buffers),
            send_buffers: count(self.engine().send_buffers),
            payload_max: self.payload(),
        }
    }

    fn waiting(&self) -> Waiting {
        match self.engine().waiting {
            settings::Waiting::Spin => Waiting::Spin,
            settings::Waiting::Hybrid => Waiting::Hybrid { spin: HYBRID },
            settings::Waiting::Park => Waiting::Park,
            settings::Waiting::Auto => Waiting::Auto.resolve(self.local_servers() * self.map.cores().count()),
        }
    }

    /// How many servers of this cluster share this host: they share its processors.
    fn local_servers(&self) -> usize {
        let mine = &self.config.server(self.id).host;
        self.config.servers().iter().filter(|server| server.host == *mine).count().max(1)
    }

    /// Binds a port; waits for one that an earlier life of this server may still hold: the kernel takes a ring down
    /// some time after the process that was killed with it has gone.
    fn socket(&self, address: SocketAddr, shared_port: bool) -> Result<Socket, SocketError> {
        let bytes = Some(self.engine().socket_buffer);
        let options =
            SocketOptions { receive_bytes: bytes, send_bytes: bytes, shared_port, ..SocketOptions::default() };
        let until = clock::monotonic().plus(PORT_PATIENCE);
        loop {
            match Socket::bind(address, options) {
                Err(SocketError::InUse { .. }) if clock::monotonic() < until => {
                    std::thread::park_timeout(std::time::Duration::from_millis(5));
                }
                done => return done,
            }
        }
    }

    fn core(&self, name: &str, cpu: Option<usize>) -> CoreConfig {
        let fifo = self.engine().fifo.then_some(1);
        CoreConfig { cpu, fifo, waiting: self.waiting(), ..CoreConfig::new(format!("{name}-{}", self.id)) }
    }

    fn depth(&self) -> usize {
        self.config.settings().limits.ring_depth
    }

    fn settings(&self, seed: u64) -> Result<Settings, StartError> {
        let held = self.config.settings();
        let shared: Vec<u64> = self.config.shared().pairs().iter().map(|(_, value)| *value).collect();
        let settings = Few::from_slice(&shared).ok_or(StartError::TooManyShared(shared.len()))?;
        let servers = self.config.servers().len();
        Ok(Settings {
            me: self.id,
            servers,
            seed,
            body_max: body_max(self.payload()),
            beat: held.broadcast.beat,
            omega: held.broadcast.omega,
            ack_delay: held.broadcast.ack_delay,
            inflight: held.limits.requests_in_flight,
            frames: held.ledger.frames,
            limits: self.config.ledger_limits(),
            terms: Terms { servers: u8::try_from(servers).unwrap_or(0), vacant: 0, settings },
            plant: Plant::NONE,
        })
    }

    fn address(
        server: &Server,
        of: impl FnOnce(&Server) -> std::io::Result<SocketAddr>,
    ) -> Result<SocketAddr, StartError> {
        of(server).map_err(|cause| StartError::Address { id: server.id, host: server.host.clone(), cause })
    }

    fn peers(&self) -> Result<[Option<SocketAddr>; SERVERS_MAX], StartError> {
        let mut peers = [None; SERVERS_MAX];
        for server in self.config.servers() {
            if server.id != self.id
                && let Some(peer) = peers.get_mut(server.id.place())
            {
                *peer = Some(Self::address(server, Server::peer_address)?);
            }
        }
        Ok(peers)
    }

    /// What each core is called, by what it runs.
    fn core_names(&self) -> Vec<String> {
        let mut ingresses = 0;
        let name = |place: &super::map::Place| {
            if place.roles.contains(&Part::Order) {
                return "order".to_owned();
            }
            ingresses += 1;
            if ingresses == 1 { "ingress".to_owned() } else { format!("ingress{ingresses}") }
        };
        self.map.cores().map(name).collect()
    }

    fn figures(&self) -> Planned {
        Planned::new(&self.core_names(), self.map.ingresses())
    }

    /// Words about this server that do not change, for its stats file.
    fn labels(&self, cores: &[Running]) -> serde_json::Value {
        let limits = &self.config.settings().limits;
        serde_json::json!({
            "id": self.id.id(),
            "servers": self.config.servers().len(),
            "version": env!("CARGO_PKG_VERSION"),
            "wire": crate::wire::VERSION,
            "config": self.config.path().display().to_string(),
            "host": self.config.server(self.id).host,
            "cores": figures::core_labels(cores),
            "ring_depth": limits.ring_depth,
            "requests_in_flight": limits.requests_in_flight,
            "out_max": order::OUT_MAX,
        })
    }

    fn bytes(&self, protocol: &Settings) -> usize {
        let each = self.depth() * (size_of::<Asked>() + size_of::<Told>())
            + ingress::OPEN_MAX * self.payload()
            + size_of::<KeyCache>();
        let sockets = |place: &super::map::Place| place.roles.len();
        let cores: usize = self.map.cores().map(|place| self.uring().bytes(sockets(place))).sum();
        let order = Protocol::<Waiter>::memory(protocol) + order::OUT_MAX * self.payload();
        let figures = self.figures().memory();
        order + self.map.ingresses() * each + cores + EVENTS * size_of::<Option<Event>>() + figures
    }
}

/// Random bits of the system: incarnations must never repeat.
fn seed() -> Result<u64, StartError> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut source| std::io::Read::read_exact(&mut source, &mut bytes))
        .map_err(|cause| StartError::System { what: "/dev/urandom", cause })?;
    Ok(u64::from_le_bytes(bytes))
}

fn bell() -> Result<Bell, StartError> {
    Bell::new().map_err(|cause| StartError::System { what: "an event descriptor", cause })
}

/// A role with its socket, before it has a core.
struct Cast {
    role: Box<dyn Role>,
    socket: Socket,
}

/// The first socket of the client port, and as many more as share it.
fn client_sockets(plan: &Plan<'_>, address: SocketAddr) -> Result<Vec<Socket>, StartError> {
    let shared = plan.map.ingresses() > 1;
    let first = plan.socket(address, shared)?;
    let mut sockets = vec![first];
    while sockets.len() < plan.map.ingresses() {
        sockets.push(plan.socket(address, shared)?);
    }
    Ok(sockets)
}

/// What each role of a map is given: its core's bell, its socket, its rings.
fn rows(plan: &Plan<'_>, peer: &Socket, clients: &[Socket]) -> Vec<Row> {
    let depth = plan.depth();
    let about = |socket: &Socket| {
        let (receive, send) = (socket.receive_buffer().got >> 10, socket.send_buffer().got >> 10);
        format!("udp {}, buffers {receive} + {send} KiB", socket.local())
    };
    let mut clients = clients.iter();
    let mut rows = Vec::new();
    for (core, place) in plan.map.cores().enumerate() {
        for role in &place.roles {
            let (rings, socket) = match role {
                Part::Order => (format!("to each ingress {depth}, to house {EVENTS}"), about(peer)),
                _ => (format!("to order {depth}"), clients.next().map(about).unwrap_or_default()),
            };
            rows.push(Row { role: *role, core, rings, socket });
        }
    }
    rows
}

/// Runs the cores of a map, each over the sockets of its roles.
fn run(
    plan: &Plan<'_>,
    bells: Vec<Bell>,
    mut order: Option<Cast>,
    ingresses: Vec<Cast>,
    stats: Vec<CoreStats>,
    stop: &Stop,
) -> Result<Vec<Running>, StartError> {
    let mut ingresses = ingresses.into_iter();
    let mut cores = Vec::new();
    for (((place, bell), name), counting) in plan.map.cores().zip(bells).zip(plan.core_names()).zip(stats) {
        let mut cast = Vec::new();
        for part in &place.roles {
            cast.extend(if *part == Part::Order { order.take() } else { ingresses.next() });
        }
        let (roles, sockets): (Vec<_>, Vec<_>) = cast.into_iter().map(|Cast { role, socket }| (role, socket)).unzip();
        let mut core =
            Core::new(plan.core(&name, place.cpu), Uring::new(plan.uring(), sockets, bell)?).counting(counting);
        for (at, role) in (0..).zip(roles) {
            core = core.with(role, &[SocketId::new(at)]);
        }
        cores.push(core.spawn(stop)?);
    }
    Ok(cores)
}

/// Starts server `id` of the cluster: binds its sockets, takes its memory, runs its cores.
///
/// # Errors
/// What cannot be had, and how to mend it.
pub fn start(config: &Config, id: ServerId) -> Result<Assembly, StartError> {
    let plan = Plan::new(config, id);
    let key = config.cluster_key()?;
    let server = config.server(id);
    let peer_socket = plan.socket(Plan::address(server, Server::peer_address)?, false)?;
    let clients = client_sockets(&plan, Plan::address(server, Server::client_address)?)?;
    let shortage = Shortage::of(&clients.iter().chain([&peer_socket]).collect::<Vec<_>>());
    let (done, stop) = (Done::default(), Stop::new());
    let protocol = plan.settings(seed()?)?;
    let (rows, bytes) = (rows(&plan, &peer_socket, &clients), plan.bytes(&protocol));
    let (events_in, events) = ring(EVENTS);
    // Once the ports are ours: a file that another process writes is not replaced.
    let mut blocks = plan.figures().make(&config.state_dir(id), id.id())?;
    let counts = figures::views(&blocks.order, &blocks.ingresses);
    let mut countings = blocks.ingresses.into_iter();

    let bells: Vec<Bell> = plan.map.cores().map(|_| bell()).collect::<Result<_, _>>()?;
    bells.iter().for_each(|bell| stop.watch(bell.waker()));
    let at = |place: &super::map::Place, part| place.roles.iter().position(|role| *role == part);
    let order_core = plan.map.cores().position(|place| at(place, Part::Order).is_some()).unwrap_or(0);
    let (mut gates, mut ingresses, mut clients) = (Vec::new(), Vec::new(), clients.into_iter());
    for (place, bell) in plan.map.cores().zip(&bells) {
        for (index, _) in (0_u16..).zip(&place.roles).filter(|(_, role)| **role == Part::Ingress) {
            let (Some(socket), Some(counts)) = (clients.next(), countings.next()) else { break };
            // A request is pushed before its core's round begins, and `order` has the first turn in it: no waking there.
            let here = place.roles.contains(&Part::Order);
            let (asked_in, asked) =
                if here { local_link(plan.depth()) } else { link(plan.depth(), bells[order_core].waker()) };
            let (told_in, told) = if here { local_link(plan.depth()) } else { link(plan.depth(), bell.waker()) };
            gates.push(Gate { asked, told: told_in });
            let role = Box::new(Ingress::new(ingress::Parts {
                socket: SocketId::new(index),
                keys: KeyCache::new(&key),
                payload_max: plan.payload(),
                asked: asked_in,
                told,
                counts,
                done: done.clone(),
                stop: stop.clone(),
            }));
            ingresses.push(Cast { role, socket });
        }
    }
    let order_at = plan.map.cores().nth(order_core).and_then(|place| at(place, Part::Order)).unwrap_or(0);
    let role = Box::new(Order::new(order::Parts {
        settings: protocol,
        socket: SocketId::new(u16::try_from(order_at).unwrap_or(0)),
        peers: plan.peers()?,
        key: key.peer(),
        payload_max: plan.payload(),
        gates,
        events: events_in,
        counts: blocks.order,
        done: done.clone(),
        stop: stop.clone(),
    }));
    let pages = pages::advise();
    let cores = run(&plan, bells, Some(Cast { role, socket: peer_socket }), ingresses, blocks.cores, &stop)?;
    blocks.house.publish(&plan.labels(&cores))?;
    let shared = config.shared().pairs().iter().map(|(name, _)| *name).collect();
    let (house_cpu, house) = (plan.map.house_cpu(), Placed::default());
    let figures = blocks.house;
    let table = Table { rows, bytes, pages };
    Ok(Assembly { id, cores, counts, figures, done, events, stop, shortage, house_cpu, house, shared, table })
}
