//! A client for programs that wait: one UDP socket, one thread, [`Machine`] inside.
//!
//! ```no_run
//! use ordain::client::blocking::Client;
//! use ordain::client::cluster::Cluster;
//! use ordain::protocol::{NodeId, Span, TxId};
//! use ordain::server::keys::Identity;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let identity = Identity::read("bank-3.key".as_ref())?;
//! let cluster = Cluster {
//!     servers: vec!["10.0.0.1:7101".parse()?, "10.0.0.2:7101".parse()?, "10.0.0.3:7101".parse()?],
//!     name: identity.name().to_owned(),
//!     key: *identity.key(),
//!     payload_max: 1472,
//! };
//! let mut client = Client::connect(cluster, Span::secs(5))?;
//! let tx = TxId::new(*b"transaction 4711");
//! let place = client.order(tx, &[NodeId::new(12), NodeId::new(30)], 4)?;
//! for part in &place.parts {
//!     println!("participant {}: {} is its number {}", part.id, tx, part.seq);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Many at once: [`Client::submit`] until it says [`SubmitError::Full`], [`Client::poll`] for what ended.
//!
//! **Why one socket.** A server tells clients apart by session and key, not by port.
//! **Invariants.** A call returns within the timeout, give or take one datagram.
//! **Not here**: more than a thread's worth of load (`client::load`), reading configurations (`cli::target`).

use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::time::Duration;

use super::cluster::{Cluster, Said};
use super::machine::{Ask, Completion, Config, End, Event, Handle, Machine, SubmitError, Verdict};
use super::stats::human;
use crate::engine::clock;
use crate::protocol::{
    Instance, LocalTime, NodeId, OrderNo, ParticipantSeq, Refusal, ServerId, Span, Timestamp, TxId, WINDOW,
};
use crate::wire::PAYLOAD_MAX;
use crate::wire::auth::NameError;
use crate::wire::client::Fault;

/// Sessions of a client: each has [`WINDOW`] requests in flight.
const SESSIONS: usize = 16;
/// Longest sleep in the socket: the system's timeout takes no more than a `Duration`, and none of zero.
const SLEEP_MAX: Span = Span::secs(1);

/// A transaction's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// In which life of the order. If it differs from an earlier answer's, numbers have begun anew.
    pub instance: Instance,
    /// The position in the one order.
    pub order: OrderNo,
    /// When, in cluster time.
    pub ts: Timestamp,
    /// Told before it was certain; it will be confirmed or corrected.
    pub provisional: bool,
    /// The participants' places, in the order asked for.
    pub parts: Vec<PlacePart>,
}

/// A transaction's place in one participant's sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacePart {
    /// The participant.
    pub id: NodeId,
    /// The position in its sequence.
    pub seq: ParticipantSeq,
    /// The transactions before it there, newest first.
    pub history: Vec<(OrderNo, TxId)>,
}

/// Why a transaction has no place, or none that is known; each says what a Tx host does about it.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// Nobody answered in time. The transaction may have its place: **ask again with the same id**, as often as needed;
    /// it gets one place, however often it is asked.
    #[error("no answer in time: the transaction may be ordered; ask again with the same id")]
    Unanswered,
    /// No server could be reached, nothing was sent. Check addresses, servers and key; ask again later.
    #[error("no server answered in time; check that servers run, and that the key is theirs")]
    Unreachable,
    /// No server opens a session, as none is a member of a cluster with a majority. Nothing was sent. Ask again later; an
    /// operator must see to the servers.
    #[error("no server can order: {0}; their logs say what they wait for")]
    NoSession(Said),
    /// The servers have more to do than they can. Nothing was ordered. Wait for the time advised, then ask again.
    #[error("overloaded: ask again in {}", human(*.0))]
    Overloaded(Span),
    /// The servers reached hear no majority. Nothing was ordered. Ask again later; an operator must bring servers back.
    #[error("no quorum: ask again later")]
    NoQuorum,
    /// The servers reached are not members of the cluster, yet or any more. Nothing was ordered. Ask again later.
    #[error("no server reached is a member of the cluster; ask again later")]
    NotMember,
    /// The session's window moved past this request. Nothing was ordered by it; ask again with the same transaction id.
    #[error("the request was overtaken by its session's window; ask again with the same transaction id")]
    WindowExceeded,
    /// The session is too old. Nothing was ordered; the client opens a new one by itself, so ask again.
    #[error("the session has expired; ask again, a new one is being opened")]
    SessionUnknown,
    /// There is no room for another session, in all or of this principal. Close clients, or have the limit raised.
    #[error(
        "no room for another session: wait ledger.session_ttl, 60 s if not set, for those of earlier clients to end, close \
         other clients, or raise ledger.sessions or ledger.sessions_per_key"
    )]
    SessionsFull,
    /// There is no room for another participant id. An operator must raise `ledger.participants`.
    #[error("no room for another participant id: raise ledger.participants")]
    ParticipantsFull,
    /// The request number was used for something else: two clients share a session, a defect. Make a new client.
    #[error("the request number was used for another transaction: make a new client")]
    RequestDiffers,
    /// The transaction has a place with other participants. Its id is not unique, or its participants changed: a defect of
    /// the Tx host. Query the transaction to see its place.
    #[error("the transaction has a place already, with other participants: is its id unique?")]
    TxDiffers,
    /// The content is not allowed: a defect of the Tx host. Asking again is of no use.
    #[error("not allowed: {}", .0.map_or("the servers do not say why", Fault::text))]
    Malformed(Option<Fault>),
    /// The cluster lost its memory and began a new order: places told before are void. Asking again orders the transaction
    /// in the new one; whether that is right only the application knows.
    #[error("the cluster began a new order (instance {0}): places told before are void")]
    InstanceChanged(Instance),
    /// Servers speak another version of the wire. Use the client of their release.
    #[error("server {server} speaks wire version {version}, this client {}", crate::wire::VERSION)]
    Version {
        /// Which server.
        server: ServerId,
        /// Its version.
        version: u8,
    },
    /// The request cannot be asked at all.
    #[error(transparent)]
    Invalid(SubmitError),
    /// No principal can have this name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The socket failed.
    #[error("socket: {0}")]
    Io(#[from] io::Error),
}

impl OrderError {
    /// The error a refusal is.
    #[must_use]
    pub fn from_verdict(verdict: Verdict, server: ServerId) -> Self {
        match verdict.refusal {
            Refusal::Overloaded => Self::Overloaded(verdict.retry_after),
            Refusal::NoQuorum => Self::NoQuorum,
            Refusal::NotMember => Self::NotMember,
            Refusal::WindowExceeded => Self::WindowExceeded,
            Refusal::SessionUnknown => Self::SessionUnknown,
            Refusal::SessionsFull => Self::SessionsFull,
            Refusal::ParticipantsFull => Self::ParticipantsFull,
            Refusal::RequestDiffers => Self::RequestDiffers,
            Refusal::TxDiffers => Self::TxDiffers,
            Refusal::Malformed => Self::Malformed(Fault::from_code(verdict.detail)),
            Refusal::WrongInstance => Self::InstanceChanged(Instance::NONE),
            Refusal::Version => Self::Version { server, version: verdict.detail },
        }
    }

    /// The error of a completion that has no place; `Ok` with the place of one that has.
    ///
    /// # Errors
    /// Why there is no place, or none known.
    pub fn or_place(done: &Completion<'_>) -> Result<Place, Self> {
        match done.end {
            End::Ordered(view) => {
                let head = view.head();
                let parts = view.parts().map(|part| PlacePart {
                    id: part.id,
                    seq: part.seq,
                    history: part.history.iter().collect(),
                });
                Ok(Place {
                    instance: head.instance,
                    order: head.order,
                    ts: head.ts,
                    provisional: head.provisional,
                    parts: parts.collect(),
                })
            }
            End::Unanswered => Err(Self::Unanswered),
            End::Refused(verdict) => Err(Self::from_verdict(verdict, done.server)),
            End::InstanceChanged(instance) => Err(Self::InstanceChanged(instance)),
        }
    }
}

/// A client. See the module for how to use it.
#[derive(Debug)]
pub struct Client {
    machine: Machine,
    cluster: Cluster,
    socket: UdpSocket,
    timeout: Span,
    buffer: Vec<u8>,
    other_version: Option<(ServerId, u8)>,
}

impl Client {
    /// Opens a client whose requests are given up after `timeout`; waits for its first session.
    ///
    /// # Errors
    /// If no session was opened in that time, or there is no socket.
    pub fn connect(cluster: Cluster, timeout: Span) -> Result<Self, OrderError> {
        Self::connect_sessions(cluster, timeout, SESSIONS)
    }

    /// As [`Client::connect`], with so many sessions: one suffices for 64 requests in flight, and each counts against
    /// `ledger.sessions_per_key` until it was unused for `ledger.session_ttl`.
    ///
    /// # Errors
    /// If no session was opened in that time, or there is no socket.
    ///
    /// # Panics
    /// If there are to be no sessions.
    pub fn connect_sessions(cluster: Cluster, timeout: Span, sessions: usize) -> Result<Self, OrderError> {
        let local = cluster.servers.iter().copied().map(Cluster::local_for).find(|local| !local.ip().is_loopback());
        let first = cluster.servers.first().copied().map(Cluster::local_for);
        let local = local.or(first).ok_or(OrderError::Unreachable)?;
        let mut config = Config::new(cluster.servers.len(), cluster.name.clone(), cluster.key, super::seed());
        config.sessions = sessions;
        config.in_flight_max = sessions * WINDOW;
        config.payload_max = cluster.payload_max;
        config.timeout = timeout;
        let machine = Machine::new(config)?;
        let socket = UdpSocket::bind(local)?;
        let buffer = vec![0; PAYLOAD_MAX];
        let mut client = Self { machine, cluster, socket, timeout, buffer, other_version: None };
        let deadline = clock::monotonic().plus(timeout);
        while client.machine.sessions_open() == 0 {
            client.turn(deadline, &mut |_, _| ())?;
            if clock::monotonic() >= deadline {
                return Err(client.no_session());
            }
        }
        Ok(client)
    }

    /// Has a transaction ordered: returns its place, and for each participant the last `depth` transactions before it.
    ///
    /// Transactions submitted before may end meanwhile; what [`Client::poll`] would have told of them is lost.
    ///
    /// # Errors
    /// [`OrderError`]; after [`OrderError::Unanswered`] it may have its place all the same.
    pub fn order(&mut self, tx: TxId, participants: &[NodeId], depth: u8) -> Result<Place, OrderError> {
        let deadline = clock::monotonic().plus(self.timeout);
        let handle = loop {
            match self.submit(tx, participants, depth) {
                Ok(handle) => break handle,
                Err(SubmitError::Full | SubmitError::NoSession) if clock::monotonic() < deadline => {
                    self.turn(deadline, &mut |_, _| ())?;
                }
                Err(SubmitError::Full | SubmitError::NoSession) => return Err(OrderError::Unreachable),
                Err(error) => return Err(OrderError::Invalid(error)),
            }
        };
        let mut place = None;
        while place.is_none() {
            self.turn(LocalTime::NEVER, &mut |_, done| {
                if done.handle == handle {
                    place = Some(OrderError::or_place(done));
                }
            })?;
        }
        place.unwrap_or(Err(OrderError::Unanswered))
    }

    /// Takes a transaction to be ordered; it is sent by the next [`Client::poll`].
    ///
    /// # Errors
    /// [`SubmitError`]: nothing was taken. [`SubmitError::Full`]: poll first.
    pub fn submit(&mut self, tx: TxId, participants: &[NodeId], depth: u8) -> Result<Handle, SubmitError> {
        self.machine.submit(clock::monotonic(), &Ask { tx, participants, depth, user: 0 })
    }

    /// Sends what was submitted and waits for something to happen, for `wait` at most; tells each request that ended, and
    /// when.
    ///
    /// # Errors
    /// If the socket failed, or servers speak another version; requests stay in flight.
    pub fn poll(&mut self, wait: Span, told: &mut dyn FnMut(LocalTime, &Completion<'_>)) -> Result<(), OrderError> {
        self.turn(clock::monotonic().plus(wait), told)
    }

    /// Requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.machine.in_flight()
    }

    /// Why no session was opened in time.
    fn no_session(&self) -> OrderError {
        match self.machine.open_refused() {
            None => OrderError::Unreachable,
            Some(Verdict { refusal: Refusal::NotMember | Refusal::NoQuorum, .. }) => {
                OrderError::NoSession(self.cluster.said(self.machine.open_refusals()))
            }
            Some(verdict) => OrderError::from_verdict(verdict, ServerId::default()),
        }
    }

    /// Sends, waits for one datagram until `until` or the machine's deadline, takes it.
    fn turn(&mut self, until: LocalTime, told: &mut dyn FnMut(LocalTime, &Completion<'_>)) -> Result<(), OrderError> {
        let now = clock::monotonic();
        while let Some(server) = self.machine.output() {
            let len = self.machine.fill(now, server, &mut self.buffer);
            self.socket.send_to(&self.buffer[..len], self.cluster.servers[server.place()])?;
        }
        let sleep = until.min(self.machine.deadline()).since(now).min(SLEEP_MAX).max(Span::micros(1));
        self.socket.set_read_timeout(Some(Duration::from_nanos(sleep.get())))?;
        let got = match self.socket.recv_from(&mut self.buffer) {
            Ok((len, from)) => self.cluster.server_at(from).map(|server| (len, server)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => None,
            Err(error) if error.kind() == ErrorKind::Interrupted => None,
            Err(error) => return Err(error.into()),
        };
        let now = clock::monotonic();
        let mut other_version = self.other_version;
        let mut sink = |event: Event<'_>| match event {
            Event::Done(done) => told(now, &done),
            Event::OtherVersion(server, version) => other_version = Some((server, version)),
            _ => {}
        };
        if let Some((len, server)) = got {
            self.machine.receive(now, server, &self.buffer[..len], &mut sink);
        }
        self.machine.tick(now, &mut sink);
        self.other_version = other_version;
        match self.other_version {
            Some((server, version)) => Err(OrderError::Version { server, version }),
            None => Ok(()),
        }
    }
}
