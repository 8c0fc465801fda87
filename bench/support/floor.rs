//! The bare floor: the least that any server with the same datagrams and the same waiting can do on this host.
//!
//! Each node is a process of its own, on the product's own rings, parked, and does no work but to copy:
//!
//! ```text
//! pair     client -> server -> client
//! commit   client -> server -> every peer -> server -> client, all peers awaited
//! ```
//!
//! **Why these.** *commit* is one exchange between servers, as ordering needs; its client has intended starts, wakes and
//! spins as the generator does, so that a ratio to it is about servers. *pair* with many in flight is an echo server: what
//! the stack carries with one request a datagram.
//! **Invariants**: a node ends when its time is up, or with its parent.
//! **Limits**: [`SLOTS`] requests in flight. **Not here**: authentication, loss (what is lost is counted as unanswered).

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use ordain::client::load::{Arrival, Schedule};
use ordain::client::stats::{Recorder, Report, Times};
use ordain::engine::backend::{Backend, Io as _, SocketId};
use ordain::engine::clock;
use ordain::engine::net::{Socket, SocketOptions};
use ordain::engine::uring::{Uring, UringConfig};
use ordain::engine::wake::Bell;
use ordain::protocol::{LocalTime, ServerId, Span};

use super::Failure;
use super::cluster::{PATIENCE, free_ports};
use super::figures::{Figures, count};
use super::load::latencies;
use super::process::{self, Meter, Process};

/// First argument of a node.
pub(crate) const NODE: &str = "floor-node";
/// Requests in flight at most.
pub(crate) const SLOTS: usize = 4_096;
/// Bytes of every datagram: an ordering request of two or three participants with its envelope and tag.
pub(crate) const BYTES: usize = 104;
/// Nodes live no longer than this, whatever happens.
const LIFE: Span = Span::secs(600);
/// How early the client wakes for a start, then to spin, as the generator does at low rates.
const SPIN: Span = Span::micros(40);
/// Answers that have not come so long after the last request are lost.
const LAST_ANSWERS: Span = Span::millis(200);
const BUFFER_BYTES: usize = 4 << 20;
const BATCH: usize = 64;
const ONE: SocketId = SocketId::new(0);

const REQUEST: u8 = 1;
const FRAME: u8 = 2;
const ACK: u8 = 3;
const RESPONSE: u8 = 4;

/// What a datagram says: its kind, its slot, its number there.
#[derive(Clone, Copy)]
struct Message {
    kind: u8,
    slot: u16,
    number: u64,
}

impl Message {
    fn read(bytes: &[u8]) -> Option<Self> {
        let (head, _) = bytes.split_first_chunk::<11>()?;
        let [kind, slot_low, slot_high, number @ ..] = *head;
        let slot = u16::from_le_bytes([slot_low, slot_high]);
        (usize::from(slot) < SLOTS).then(|| Self { kind, slot, number: u64::from_le_bytes(number) })
    }

    fn write(self, bytes: &mut [u8]) -> usize {
        let bytes = &mut bytes[..BYTES];
        bytes[0] = self.kind;
        bytes[1..3].copy_from_slice(&self.slot.to_le_bytes());
        bytes[3..11].copy_from_slice(&self.number.to_le_bytes());
        bytes[11..].fill(0x5a);
        BYTES
    }
}

fn ring(address: SocketAddr) -> Result<Uring, Failure> {
    let options = SocketOptions {
        receive_bytes: Some(BUFFER_BYTES),
        send_bytes: Some(BUFFER_BYTES),
        shared_port: false,
        ..SocketOptions::default()
    };
    let socket = Socket::bind(address, options)?;
    // The sizes the servers use.
    let config = UringConfig { receive_buffers: 1024, send_buffers: 1024, payload_max: 1_472 };
    let mut ring = Uring::new(config, vec![socket], Bell::new()?)?;
    ring.start()?;
    Ok(ring)
}

/// A node: its own address, then those of its peers.
pub(crate) fn node(arguments: &[String]) -> Result<(), Failure> {
    let addresses: Result<Vec<SocketAddr>, _> = arguments.iter().map(|text| text.parse()).collect();
    let addresses = addresses?;
    let (me, peers) = addresses.split_first().ok_or("a node needs an address")?;
    let mut ring = ring(*me)?;
    std::io::Write::write_all(&mut std::io::stdout().lock(), b"ready\n")?;
    // By slot: who asked, under which number, and how many peers have answered.
    let mut open = vec![(*me, u64::MAX, 0_usize); SLOTS];
    let mut out: Vec<(SocketAddr, Message)> = Vec::with_capacity(BATCH * peers.len().max(1));
    let end = clock::monotonic().plus(LIFE);
    while clock::monotonic() < end {
        ring.fetch();
        while ring.receive(BATCH, &mut |got| {
            if let Some(message) = Message::read(got.data) {
                answer(message, got.from, peers, &mut open, &mut out);
            }
        }) > 0
        {
            for (to, message) in out.drain(..) {
                // What finds no buffer is lost, and counted by the client.
                let _refused = ring.send(ONE, to, &mut |buffer| message.write(buffer)).is_err();
            }
        }
        if ring.more() {
            ring.flush();
        } else {
            ring.wait(Some(end));
        }
    }
    Ok(())
}

fn answer(
    got: Message,
    from: SocketAddr,
    peers: &[SocketAddr],
    open: &mut [(SocketAddr, u64, usize)],
    out: &mut Vec<(SocketAddr, Message)>,
) {
    let slot = &mut open[usize::from(got.slot)];
    match got.kind {
        REQUEST if peers.is_empty() => out.push((from, Message { kind: RESPONSE, ..got })),
        REQUEST => {
            *slot = (from, got.number, 0);
            out.extend(peers.iter().map(|peer| (*peer, Message { kind: FRAME, ..got })));
        }
        FRAME => out.push((from, Message { kind: ACK, ..got })),
        ACK if slot.1 == got.number => {
            slot.2 += 1;
            if slot.2 == peers.len() {
                out.push((slot.0, Message { kind: RESPONSE, ..got }));
            }
        }
        _ => {}
    }
}

/// Running nodes and their client.
pub(crate) struct Floor {
    nodes: Vec<Process>,
    addresses: Vec<SocketAddr>,
    ring: Uring,
    recorder: Recorder,
    /// By slot: the number awaited, and when it was due and sent.
    awaited: Vec<Option<(u64, LocalTime, LocalTime)>>,
    numbers: u64,
    _dir: tempfile::TempDir,
}

impl Floor {
    /// One server that answers at once: an echo.
    pub(crate) fn pair() -> Result<Self, Failure> {
        Self::start(1)
    }

    /// `n` servers; whichever is asked awaits all others.
    pub(crate) fn commit(n: u16) -> Result<Self, Failure> {
        Self::start(n)
    }

    fn start(n: u16) -> Result<Self, Failure> {
        let base = free_ports(n)?;
        let addresses: Vec<SocketAddr> =
            (base..base + n).map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).collect();
        let dir = tempfile::tempdir()?;
        let mut nodes = Vec::new();
        for (at, me) in addresses.iter().enumerate() {
            let log = dir.path().join(format!("node-{at}"));
            let mut command = process::command(std::env::current_exe()?);
            command.arg(NODE).arg(me.to_string());
            command.args(addresses.iter().filter(|peer| *peer != me).map(ToString::to_string));
            nodes.push((Process::start(&mut command, &log)?, log));
        }
        for (_, log) in &nodes {
            ready(log)?;
        }
        Ok(Self {
            nodes: nodes.into_iter().map(|(node, _)| node).collect(),
            addresses,
            ring: ring(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?,
            recorder: Recorder::new(),
            awaited: vec![None; SLOTS],
            numbers: 0,
            _dir: dir,
        })
    }

    /// How its datagrams are moved.
    pub(crate) fn engine(&self) -> String {
        self.ring.describe()
    }

    fn meter(&self) -> Meter {
        Meter::start(self.nodes.iter().map(Process::pid).collect())
    }

    /// Takes answers that have come; `taken` is told the slots that are free again.
    fn take(&mut self, taken: &mut Vec<usize>) {
        let Self { ring, recorder, awaited, addresses, .. } = self;
        ring.fetch();
        while ring.receive(BATCH, &mut |got| {
            let Some(message) = Message::read(got.data).filter(|message| message.kind == RESPONSE) else { return };
            let slot = usize::from(message.slot);
            let Some((number, due, sent)) = awaited[slot].filter(|(number, ..)| *number == message.number) else {
                return;
            };
            awaited[slot] = None;
            taken.push(slot);
            recorder.sent(due, sent);
            recorder.ordered(server(number, addresses.len()), Times { due, sent, done: clock::monotonic() });
        }) > 0
        {}
    }

    /// Sends a request from a free slot; requests go to the servers in turn.
    fn ask(&mut self, slot: usize, due: LocalTime, now: LocalTime) -> Result<(), Failure> {
        let number = self.numbers;
        self.numbers += 1;
        let server = server(number, self.addresses.len());
        self.recorder.due(due);
        self.recorder.asked(server, due);
        let message = Message { kind: REQUEST, slot: u16::try_from(slot)?, number };
        self.awaited[slot] = Some((number, due, now));
        let to = self.addresses[server.place()];
        let sent = self.ring.send(ONE, to, &mut |buffer| message.write(buffer));
        if sent.is_err() {
            self.ring.flush();
            self.ring.send(ONE, to, &mut |buffer| message.write(buffer))?;
        }
        Ok(())
    }

    /// `rate` requests a second for `duration`, each when it is due, after a quarter of that as a warm-up.
    pub(crate) fn open(&mut self, rate: f64, duration: Span) -> Result<Figures, Failure> {
        self.run_open(rate, Span::new(duration.get() / 4))?;
        let meter = self.meter();
        let report = self.run_open(rate, duration)?;
        Ok(figures(&report, &meter))
    }

    fn run_open(&mut self, rate: f64, duration: Span) -> Result<Report, Failure> {
        self.recorder = Recorder::new();
        let start = clock::monotonic();
        let end = start.plus(duration);
        let give_up = end.plus(LAST_ANSWERS);
        let mut schedule = Schedule::new(self.numbers, Arrival::Poisson, rate, start);
        let mut free: Vec<usize> = (0..SLOTS).rev().collect();
        self.awaited.fill(None);
        loop {
            self.take(&mut free);
            let now = clock::monotonic();
            while schedule.next() <= now && schedule.next() < end {
                let slot = free.pop().ok_or("the floor lost too many datagrams")?;
                self.ask(slot, schedule.next(), now)?;
                schedule.advance();
            }
            let next = schedule.next();
            if next >= end && now >= end && (free.len() == SLOTS || now >= give_up) {
                let servers = self.addresses.len();
                return Ok(std::mem::take(&mut self.recorder).report(now, duration, servers));
            }
            let until = if next < end { next } else { give_up };
            if until.since(now) <= SPIN && next < end {
                self.ring.flush();
            } else {
                self.ring.wait(Some(LocalTime::new(until.get().saturating_sub(SPIN.get())).max(now)));
            }
        }
    }

    /// `window` requests in flight for `duration`, after a quarter of that as a warm-up: the rate it carries.
    pub(crate) fn closed(&mut self, window: usize, duration: Span) -> Result<Figures, Failure> {
        self.run_closed(window, Span::new(duration.get() / 4))?;
        let meter = self.meter();
        let report = self.run_closed(window, duration)?;
        Ok(figures(&report, &meter))
    }

    fn run_closed(&mut self, window: usize, duration: Span) -> Result<Report, Failure> {
        self.recorder = Recorder::new();
        self.awaited.fill(None);
        let start = clock::monotonic();
        let (end, give_up) = (start.plus(duration), start.plus(duration).plus(LAST_ANSWERS));
        let mut free: Vec<usize> = (0..window.min(SLOTS)).rev().collect();
        let mut progress = start;
        loop {
            let before = free.len();
            self.take(&mut free);
            let now = clock::monotonic();
            if free.len() > before {
                progress = now;
            } else if now.since(progress) > LAST_ANSWERS && now < end {
                // Everything in flight is lost: begin anew, so that loss shows as a low rate and not as a hang.
                self.awaited.fill(None);
                free = (0..window.min(SLOTS)).rev().collect();
                progress = now;
            }
            if now >= end && (free.len() >= window.min(SLOTS) || now >= give_up) {
                let servers = self.addresses.len();
                return Ok(std::mem::take(&mut self.recorder).report(now, now.since(start), servers));
            }
            while now < end
                && let Some(slot) = free.pop()
            {
                self.ask(slot, now, now)?;
            }
            if self.ring.more() {
                self.ring.flush();
            } else {
                self.ring.wait(Some(now.plus(LAST_ANSWERS)));
            }
        }
    }
}

fn server(number: u64, servers: usize) -> ServerId {
    let place = usize::try_from(number).unwrap_or(0) % servers;
    ServerId::from_place(place).expect("the floor has at most seven servers")
}

fn ready(log: &Path) -> Result<(), Failure> {
    let said = || std::fs::read_to_string(log).unwrap_or_default();
    let ready = process::wait_for(PATIENCE, || said().contains("ready") || said().contains("floor-node:"));
    if ready && said().contains("ready") {
        Ok(())
    } else {
        Err(format!("a floor node did not start: {}", said()).into())
    }
}

/// Rate, latencies, longest gap, processor time.
fn figures(report: &Report, meter: &Meter) -> Figures {
    let (client, servers) = meter.used_us();
    let ordered = count(report.ordered.max(1));
    let mut figures = latencies(report);
    figures.extend([
        ("per_s", report.ordered_per_s),
        ("client_cpu_us", client / ordered),
        ("server_cpu_us", servers / ordered),
        ("cpu_us", (client + servers) / ordered),
        ("lost", count(report.offered - report.ordered)),
    ]);
    figures
}
