//! A running server: roles on cores, with the sockets, rings and memory they need.
//!
//! **Why here.** Roles know their links, cores know their roles; only this file knows both, and the configuration.
//! **Invariants**: all memory is taken before the first datagram is heard; the table of roles printed is what runs.
//! **Limits**: at most two cores: `order` alone, or with `ingress` beside it on another.
//! **Not here**: signals, readiness, the log (`run`).
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use super::config::Config;
use super::counts::Counts;
use super::ingress::{self, Ingress};
use super::keys::KeyError;
use super::order::{self, Gate, Order, Waiter};
use super::servers::Server;
use super::settings;
use super::slots::{Asked, Told};
use crate::engine::backend::SocketId;
use crate::engine::clock;
use crate::engine::cores::{Core, CoreConfig, CoreError, Running, Waiting};
use crate::engine::link::link;
use crate::engine::net::{Shortage, Socket, SocketError, SocketOptions};
use crate::engine::place::cpus;
use crate::engine::ring::{Consumer, ring};
use crate::engine::stop::Stop;
use crate::engine::uring::{Uring, UringConfig, UringError};
use crate::engine::wake::Bell;
use crate::protocol::machine::{Core as Protocol, Event, Settings};
use crate::protocol::plant::Plant;
use crate::protocol::{SERVERS_MAX, ServerId, Span};
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
    pub counts: Arc<Counts>,
    /// Changes of state, for the log.
    pub events: Consumer<Option<Event>>,
    /// Asks it to end.
    pub stop: Stop,
    /// Buffers smaller than asked for.
    pub shortages: Vec<Shortage>,
    /// The names of the shared settings, as events number them.
    pub shared: Vec<&'static str>,
    table: Table,
}

/// What runs where: printed at start.
struct Table {
    rows: Vec<String>,
    bytes: usize,
}

impl fmt::Display for Assembly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<8} {:<7} sockets and rings", "role", "core")?;
        self.table.rows.iter().try_for_each(|row| writeln!(f, "{row}"))?;
        self.cores.iter().try_for_each(|core| writeln!(f, "{core}"))?;
        write!(f, "tables and buffers: {} MiB", self.table.bytes >> 20)
    }
}

/// The sizes and places of one server, read from its configuration.
struct Plan<'a> {
    config: &'a Config,
    id: ServerId,
    split: bool,
}

impl Plan<'_> {
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

    fn waiting(&self, threads: usize) -> Waiting {
        match self.engine().waiting {
            settings::Waiting::Spin => Waiting::Spin,
            settings::Waiting::Hybrid => Waiting::Hybrid { spin: HYBRID },
            settings::Waiting::Park => Waiting::Park,
            settings::Waiting::Auto => Waiting::Auto.resolve(self.local_servers() * threads),
        }
    }

    /// How many servers of this cluster share this host: they share its processors.
    fn local_servers(&self) -> usize {
        let mine = &self.config.server(self.id).host;
        self.config.servers().iter().filter(|server| server.host == *mine).count().max(1)
    }

    /// Binds a port; waits for one that an earlier life of this server may still hold: the kernel takes a ring down
    /// some time after the process that was killed with it has gone.
    fn socket(&self, address: SocketAddr) -> Result<Socket, SocketError> {
        let bytes = Some(self.engine().socket_buffer);
        let options = SocketOptions { receive_bytes: bytes, send_bytes: bytes, ..SocketOptions::default() };
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

    fn core(&self, name: &str, cpu: Option<usize>, waiting: Waiting) -> CoreConfig {
        let fifo = self.engine().fifo.then_some(1);
        CoreConfig { cpu, fifo, waiting, ..CoreConfig::new(format!("{name}-{}", self.id)) }
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

    fn rows(&self, peer: SocketAddr, client: SocketAddr) -> Vec<String> {
        let depth = self.config.settings().limits.ring_depth;
        let ingress = if self.split { "ingress" } else { "order" };
        vec![
            format!("{:<8} {:<7} peers at {peer}; {depth} slots to ingress", "order", "order"),
            format!("{:<8} {ingress:<7} clients at {client}; {depth} slots to order", "ingress"),
        ]
    }

    fn bytes(&self, protocol: &Settings) -> usize {
        let depth = self.config.settings().limits.ring_depth;
        let rings = depth * (size_of::<Asked>() + size_of::<Told>());
        let outgoing = (order::OUT_MAX + ingress::OPEN_MAX) * self.payload();
        Protocol::<Waiter>::memory(protocol) + rings + outgoing + self.uring().bytes(2)
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

/// Starts server `id` of the cluster: binds its sockets, takes its memory, runs its cores.
///
/// # Errors
/// What cannot be had, and how to mend it.
pub fn start(config: &Config, id: ServerId) -> Result<Assembly, StartError> {
    let engine = &config.settings().engine;
    // Two threads pay only where each of them has a processor: not where the servers of a test share a host.
    let mut plan = Plan { config, id, split: false };
    plan.split = engine.threads.map_or_else(|| cpus() > 2 * plan.local_servers(), |threads| threads == 2);
    let key = config.cluster_key()?;
    let server = config.server(id);
    let peer_socket = plan.socket(Plan::address(server, Server::peer_address)?)?;
    let client_socket = plan.socket(Plan::address(server, Server::client_address)?)?;
    let shortages = peer_socket.shortages().chain(client_socket.shortages()).collect();
    let (peer_at, client_at) = (peer_socket.local(), client_socket.local());
    let (counts, stop) = (Arc::new(Counts::default()), Stop::new());
    let protocol = plan.settings(seed()?)?;
    let table = Table { rows: plan.rows(peer_at, client_at), bytes: plan.bytes(&protocol) };
    let (events_in, events) = ring(EVENTS);

    let (order_bell, ingress_bell) = (bell()?, bell()?);
    let ingress_waker = if plan.split { ingress_bell.waker() } else { order_bell.waker() };
    let depth = config.settings().limits.ring_depth;
    let (asked_in, asked) = link(depth, order_bell.waker());
    let (told_in, told) = link(depth, ingress_waker.clone());
    stop.watch(order_bell.waker());
    stop.watch(ingress_waker);

    let order = Box::new(Order::new(order::Parts {
        settings: protocol,
        socket: SocketId::new(0),
        peers: plan.peers()?,
        key: key.peer(),
        payload_max: plan.payload(),
        gates: vec![Gate { asked, told: told_in }],
        events: events_in,
        counts: Arc::clone(&counts),
        stop: stop.clone(),
    }));
    let ingress = Box::new(Ingress::new(ingress::Parts {
        socket: SocketId::new(u16::from(!plan.split)),
        keys: KeyCache::new(&key),
        payload_max: plan.payload(),
        asked: asked_in,
        told,
        counts: Arc::clone(&counts),
        stop: stop.clone(),
    }));

    let waiting = plan.waiting(if plan.split { 2 } else { 1 });
    let order_core = plan.core("order", engine.order_cpu, waiting);
    let mut cores = Vec::new();
    if plan.split {
        let ingress_core = plan.core("ingress", engine.ingress_cpu, waiting);
        let backend = Uring::new(plan.uring(), vec![client_socket], ingress_bell)?;
        cores.push(Core::new(ingress_core, backend).with(ingress, &[SocketId::new(0)]).spawn(&stop)?);
        let backend = Uring::new(plan.uring(), vec![peer_socket], order_bell)?;
        cores.push(Core::new(order_core, backend).with(order, &[SocketId::new(0)]).spawn(&stop)?);
    } else {
        let backend = Uring::new(plan.uring(), vec![peer_socket, client_socket], order_bell)?;
        // Ingress first: what its clients asked is ordered in the same round, and told in the next.
        let core = Core::new(order_core, backend).with(ingress, &[SocketId::new(1)]).with(order, &[SocketId::new(0)]);
        cores.push(core.spawn(&stop)?);
    }
    let shared = config.shared().pairs().iter().map(|(name, _)| *name).collect();
    Ok(Assembly { id, cores, counts, events, stop, shortages, shared, table })
}
