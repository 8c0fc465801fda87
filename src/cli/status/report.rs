//! What a stats file says, as the fields of `ordain status`.
//!
//! **Why a struct.** The fields are a promise to scripts; here each is declared, in the order they are printed.
//! **Invariants**: a field whose part does not exist is null, never an invented number; so is one that the file does not
//! have (it may be of another version of this program).
//! **Not here**: reading files ([`crate::stats::read`]).
use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::protocol::Instance;
use crate::stats::cells::{Distribution, Kind};
use crate::stats::errors::Noted;
use crate::stats::metrics::{Ended, State};
use crate::stats::process::Life;
use crate::stats::read::{ReadBlock, Snapshot};

/// A peer not heard for so long does not count for a majority.
const HEARD_WITHIN_MS: f64 = 1_000.0;
/// A server of another process namespace is taken to run if its file is as fresh as this.
const FRESH_MS: f64 = 1_000.0;

/// When a file was read, by both clocks of this host.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Wall clock.
    pub wall_ns: u64,
    /// Monotonic clock.
    pub local_ns: u64,
}

/// A server.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The version of these fields.
    pub schema: u8,
    /// The stats file.
    pub file: String,
    /// The server, 1..n.
    pub id: Option<u64>,
    /// How many servers there are.
    pub servers: Option<u64>,
    /// The instance, in hexadecimal digits; null before genesis.
    pub instance: Option<String>,
    /// The configuration it is in; null before genesis.
    pub epoch: Option<u64>,
    /// What it is; of a dead server: was.
    pub state: Option<&'static str>,
    /// Whether its process lives.
    pub running: bool,
    /// Its process.
    pub pid: u64,
    /// How it ended, if it said so: null of a server that runs or was killed.
    pub ended: Option<&'static str>,
    /// When it started, in ms since 1970.
    pub started_unix_ms: u64,
    /// How long it has run, or ran.
    pub uptime_ms: f64,
    /// How long ago it last wrote.
    pub written_ago_ms: Option<f64>,
    /// The program's version.
    pub version: Option<String>,
    /// How datagrams are moved.
    pub engine: Option<String>,
    /// How its cores wait.
    pub waiting: Option<String>,
    /// The last order number given here.
    pub n_ordered: Option<u64>,
    /// The streams.
    pub streams: Vec<Stream>,
    /// The other servers.
    pub peers: Vec<Peer>,
    /// Not in this version.
    pub d_ns: Option<u64>,
    /// Not in this version.
    pub d_parts: Option<Value>,
    /// Not in this version.
    pub eps_ns: Option<u64>,
    /// The clock.
    pub clock: Clock,
    /// What happened in the last full second.
    pub rates: BTreeMap<String, u64>,
    /// Requests refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// What waits, what ever waited, what may.
    pub queues: Vec<Queue>,
    /// Datagrams the kernel dropped.
    pub kernel_drops: Option<u64>,
    /// Not in this version.
    pub epoch_changes: Option<Value>,
    /// Not in this version.
    pub over_d: Option<u64>,
    /// Not in this version.
    pub provisional: Option<u64>,
    /// Not in this version.
    pub corrected: Option<u64>,
    /// Whether it may be stopped without holding up the others; null of a dead server.
    pub safe_to_stop: Option<bool>,
    /// System calls into the rings, and of them those that could sleep.
    pub syscalls: BTreeMap<&'static str, Option<u64>>,
    /// Latencies by stage.
    pub stages_us: BTreeMap<&'static str, Option<Latency>>,
    /// The loops of its cores.
    #[serde(rename = "loop")]
    pub cores: Vec<Loop>,
    /// Datagrams dropped, by socket and reason.
    pub dropped: BTreeMap<String, u64>,
    /// Distinct errors.
    pub errors: Vec<Fault>,
    /// Why it ended, if by a panic.
    pub last_words: Option<Fault>,
    /// Everything in the file, by block and name.
    pub metrics: Map<String, Value>,
}

/// A stream.
#[derive(Debug, Serialize)]
pub struct Stream {
    /// Whose.
    pub server: u64,
    /// Frames held without a gap.
    pub frames: u64,
    /// Nothing at or below this time stamp follows in it.
    pub promise_ns: u64,
}

/// Another server, as seen from this one.
#[derive(Debug, Serialize)]
pub struct Peer {
    /// Which.
    pub id: u64,
    /// How long its datagrams take.
    pub delay_us: Option<Delay>,
    /// Not in this version.
    pub loss: Option<f64>,
    /// How long before the last look it was heard last, in ms.
    pub heard: Option<f64>,
    /// Not in this version.
    pub one_way_fault: Option<bool>,
}

/// One-way delays.
#[derive(Debug, Serialize)]
pub struct Delay {
    /// Half of them take at most this.
    pub p50: f64,
    /// All but one of ten thousand.
    pub p9999: f64,
}

/// The clock.
#[derive(Debug, Serialize)]
pub struct Clock {
    /// Not in this version.
    pub state: Option<Value>,
    /// Not in this version.
    pub reference: Option<u64>,
    /// Not in this version.
    pub offset_ns: Option<i64>,
    /// Not in this version.
    pub drift_ppb: Option<i64>,
    /// Who dates datagrams: `kernel`, `read` (when they are read), or `mixed`.
    pub stamps: Option<&'static str>,
}

/// A queue.
#[derive(Debug, Serialize)]
pub struct Queue {
    /// Which.
    pub name: String,
    /// How much waited when it was last looked at.
    pub depth: Option<u64>,
    /// The most that ever waited.
    pub high_water: Option<u64>,
    /// The most that may.
    pub capacity: Option<u64>,
}

/// A stage's latency.
#[derive(Debug, Serialize)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// Of them half take at most this.
    pub p50: f64,
    /// 99 of 100.
    pub p99: f64,
    /// 999 of 1,000.
    pub p999: f64,
    /// 9,999 of 10,000.
    pub p9999: f64,
    /// All.
    pub max: f64,
}

/// A core's loop.
#[derive(Debug, Serialize)]
pub struct Loop {
    /// Its name.
    pub core: String,
    /// Turns.
    pub turns: u64,
    /// ... that found nothing to do.
    pub idle: u64,
    /// ... that did something.
    pub busy: u64,
    /// ... of these, those under pressure.
    pub pressed: u64,
    /// Time in busy turns.
    pub busy_ms: f64,
    /// ... of it, under pressure.
    pub pressed_ms: f64,
    /// Times it slept.
    pub sleeps: u64,
    /// Its longest turn.
    pub longest_turn_us: f64,
    /// Its busy turns.
    pub turn_us: Option<Latency>,
}

/// A distinct error.
#[derive(Debug, Serialize)]
pub struct Fault {
    /// What it is.
    pub key: String,
    /// How often it came.
    pub count: u64,
    /// When first, in ms since 1970.
    pub first_unix_ms: u64,
    /// When last.
    pub last_unix_ms: u64,
    /// Its newest words.
    pub text: String,
}

/// Nanoseconds as microseconds.
#[expect(clippy::cast_precision_loss, reason = "times of a process are far below 2^53 ns")]
fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn ms(ns: u64) -> f64 {
    us(ns / 1_000)
}

impl Latency {
    fn of(times: &Distribution) -> Option<Self> {
        let at = |share: f64| times.quantile(share).map(us);
        Some(Self {
            count: times.count(),
            p50: at(0.5)?,
            p99: at(0.99)?,
            p999: at(0.999)?,
            p9999: at(0.9999)?,
            max: us(times.max()),
        })
    }
}

impl From<&Noted> for Fault {
    fn from(noted: &Noted) -> Self {
        Self {
            key: noted.key.clone(),
            count: noted.count,
            first_unix_ms: noted.first_ns / 1_000_000,
            last_unix_ms: noted.last_ns / 1_000_000,
            text: noted.text.clone(),
        }
    }
}

impl Report {
    /// What a file says that was read at `now`.
    #[must_use]
    pub fn new(file: &Path, read: &Snapshot, now: Moment) -> Self {
        let view = View { read, now };
        let label = |name: &str| read.labels.get(name).and_then(Value::as_u64);
        let order = |name: &str| read.block("order").and_then(|order| order.value(name));
        let instance = order("instance").filter(|instance| *instance != 0);
        let (id, servers) = (label("id"), label("servers"));
        let peers = view.peers(id, servers);
        let running = view.is_running();
        let ended = read.block("house").and_then(|house| house.value("ended"));
        Self {
            schema: 1,
            file: file.display().to_string(),
            id,
            servers,
            epoch: instance.and_then(|_| order("epoch")),
            instance: instance.map(|instance| Instance::new(instance).to_string()),
            state: order("state").and_then(|state| state_name(state, &peers, servers)),
            running,
            pid: read.process.pid,
            ended: Ended::ALL.into_iter().find(|known| Some(known.number()) == ended).map(Ended::name),
            started_unix_ms: read.started_ns / 1_000_000,
            uptime_ms: view.uptime_ms(running),
            written_ago_ms: view.written_ago_ms(),
            version: read.labels.get("version").and_then(Value::as_str).map(str::to_owned),
            engine: view.of_cores("engine"),
            waiting: view.of_cores("waiting"),
            n_ordered: order("ordered"),
            streams: view.streams(servers),
            peers,
            d_ns: None,
            d_parts: None,
            eps_ns: None,
            clock: Clock { state: None, reference: None, offset_ns: None, drift_ppb: None, stamps: view.stamps() },
            rates: view.rates(),
            refused: view.reasons(&[("order", "refused", ""), ("ingress", "turned_away", "")]),
            queues: view.queues(),
            kernel_drops: read.sum("io", "kernel_drops"),
            epoch_changes: None,
            over_d: None,
            provisional: None,
            corrected: None,
            safe_to_stop: order("safe_to_stop").filter(|_| running).map(|safe| safe == 1),
            syscalls: ["enters", "waits"].into_iter().map(|name| (name, read.sum("io", name))).collect(),
            stages_us: view.stages(),
            cores: read.of_kind("core").map(core_loop).collect(),
            dropped: view.reasons(&[("order", "peer_dropped", "peer_"), ("ingress", "client_dropped", "client_")]),
            errors: read.errors.iter().map(Fault::from).collect(),
            last_words: read.last_words.as_ref().map(Fault::from),
            metrics: metrics(read),
        }
    }
}

/// The state's word. A member that hears too few for a majority can order nothing.
fn state_name(state: u64, peers: &[Peer], servers: Option<u64>) -> Option<&'static str> {
    let state = State::ALL.into_iter().find(|known| known.number() == state)?;
    let heard = peers.iter().filter(|peer| peer.heard.is_some_and(|ms| ms < HEARD_WITHIN_MS)).count();
    let majority = servers.and_then(|servers| usize::try_from(servers / 2).ok()).unwrap_or(0);
    Some(if state == State::Member && heard < majority { State::NoQuorum.name() } else { state.name() })
}

fn core_loop(core: &ReadBlock) -> Loop {
    let value = |name: &str| core.value(name).unwrap_or(0);
    Loop {
        core: core.instance.clone(),
        turns: value("turns"),
        idle: value("turns").saturating_sub(value("busy_turns")),
        busy: value("busy_turns"),
        pressed: value("pressed_turns"),
        busy_ms: ms(value("busy_ns")),
        pressed_ms: ms(value("pressed_ns")),
        sleeps: value("sleeps"),
        longest_turn_us: us(value("longest_turn_ns")),
        turn_us: core.distribution("turn_ns").as_ref().and_then(Latency::of),
    }
}

/// Everything in a file: `{"order": {..}, "core.order": {..}}`.
fn metrics(read: &Snapshot) -> Map<String, Value> {
    let of_block = |block: &ReadBlock| {
        let metrics = block.metrics.iter().map(|metric| {
            let names = &metric.entry.elements;
            let one = |element: usize| match metric.entry.kind {
                Kind::Counter | Kind::Gauge => json!(metric.value(element)),
                Kind::Histogram => metric.distribution(element).map_or(Value::Null, |times| {
                    json!({
                        "count": times.count(),
                        "sum": times.sum(),
                        "p50": times.quantile(0.5),
                        "p9999": times.quantile(0.9999),
                        "max": times.max(),
                    })
                }),
            };
            let all = names.iter().enumerate().map(|(at, name)| (name.clone(), one(at)));
            let value = if names.is_empty() { one(0) } else { Value::Object(all.collect()) };
            (metric.entry.name.clone(), value)
        });
        Value::Object(metrics.collect())
    };
    let name = |block: &ReadBlock| {
        if block.instance.is_empty() { block.name.clone() } else { format!("{}.{}", block.name, block.instance) }
    };
    read.blocks.iter().map(|block| (name(block), of_block(block))).collect()
}

/// A file at a moment.
struct View<'a> {
    read: &'a Snapshot,
    now: Moment,
}

impl View<'_> {
    fn house(&self, name: &str) -> Option<u64> {
        self.read.block("house").and_then(|house| house.value(name))
    }

    fn is_running(&self) -> bool {
        match self.read.process.life() {
            Life::Running => true,
            Life::Dead => false,
            // The monotonic clock is the whole boot's.
            Life::Elsewhere => self
                .house("written_local_ns")
                .is_some_and(|written| ms(self.now.local_ns.saturating_sub(written)) < FRESH_MS),
        }
    }

    fn written_ago_ms(&self) -> Option<f64> {
        let written = self.house("written_ns").filter(|written| *written > 0)?;
        Some(ms(self.now.wall_ns.saturating_sub(written)))
    }

    fn uptime_ms(&self, running: bool) -> f64 {
        let until = if running { self.now.wall_ns } else { self.house("written_ns").unwrap_or(0) };
        ms(until.saturating_sub(self.read.started_ns))
    }

    /// What all cores say alike, or one after the other.
    fn of_cores(&self, name: &str) -> Option<String> {
        let cores = self.read.labels.get("cores")?.as_array()?;
        let mut said: Vec<&str> = cores.iter().filter_map(|core| core.get(name)?.as_str()).collect();
        said.dedup();
        (!said.is_empty()).then(|| said.join("; "))
    }

    fn peers(&self, id: Option<u64>, servers: Option<u64>) -> Vec<Peer> {
        let Some(order) = self.read.block("order") else { return Vec::new() };
        let (heard, delays) = (order.metric("heard_ns"), order.metric("delay_ns"));
        let written = self.house("written_local_ns").unwrap_or(0);
        let peer = |id: u64| {
            let at = usize::try_from(id - 1).unwrap_or(usize::MAX);
            let heard = heard.and_then(|heard| heard.value(at)).filter(|heard| *heard > 0);
            let delay = delays
                .and_then(|delays| delays.distribution(at))
                .and_then(|delay| Some(Delay { p50: us(delay.quantile(0.5)?), p9999: us(delay.quantile(0.9999)?) }));
            let heard = heard.map(|heard| ms(written.saturating_sub(heard)));
            Peer { id, delay_us: delay, loss: None, heard, one_way_fault: None }
        };
        (1..=servers.unwrap_or(0)).filter(|other| Some(*other) != id).map(peer).collect()
    }

    fn streams(&self, servers: Option<u64>) -> Vec<Stream> {
        let value = |name: &str, at: usize| self.read.block("order")?.metric(name)?.value(at);
        let servers = usize::try_from(servers.unwrap_or(0)).unwrap_or(0);
        let stream = |(at, server)| {
            Some(Stream { server, frames: value("stream_frames", at)?, promise_ns: value("stream_promise_ns", at)? })
        };
        (0..servers).zip(1..).filter_map(stream).collect()
    }

    fn stamps(&self) -> Option<&'static str> {
        let (received, missing) = (self.read.sum("io", "received")?, self.read.sum("io", "stamps_missing")?);
        match (received, missing) {
            (0, _) => None,
            (_, 0) => Some("kernel"),
            (received, missing) if missing >= received => Some("read"),
            _ => Some("mixed"),
        }
    }

    fn rates(&self) -> BTreeMap<String, u64> {
        let metrics = self.read.block("house").map_or(&[][..], |house| &house.metrics);
        let rates = metrics.iter().filter(|metric| metric.entry.name.ends_with("_per_s"));
        rates.filter_map(|metric| Some((metric.entry.name.clone(), metric.value(0)?))).collect()
    }

    /// Counts by reason, those that are not 0, of several metrics.
    fn reasons(&self, metrics: &[(&str, &str, &str)]) -> BTreeMap<String, u64> {
        let mut found = BTreeMap::new();
        for (kind, name, prefix) in metrics {
            for metric in self.read.of_kind(kind).filter_map(|block| block.metric(name)) {
                for (reason, count) in metric.values().filter(|(_, count)| *count > 0) {
                    *found.entry(format!("{prefix}{reason}")).or_insert(0) += count;
                }
            }
        }
        found
    }

    fn queues(&self) -> Vec<Queue> {
        let label = |name: &str| self.read.labels.get(name).and_then(Value::as_u64);
        let Some(order) = self.read.block("order") else { return Vec::new() };
        let mut queues = vec![
            Queue {
                name: "under_way".to_owned(),
                depth: order.value("under_way"),
                high_water: order.value("under_way_high"),
                capacity: label("requests_in_flight"),
            },
            Queue {
                name: "to_peers".to_owned(),
                depth: None,
                high_water: order.value("out_high"),
                capacity: label("out_max"),
            },
        ];
        for (at, ingress) in self.read.of_kind("ingress").enumerate() {
            let asked = |name: &str| order.metric(name).and_then(|metric| metric.value(at));
            queues.push(Queue {
                name: format!("ingress{}_to_order", ingress.instance),
                depth: asked("asked_depth"),
                high_water: asked("asked_high"),
                capacity: label("ring_depth"),
            });
            queues.push(Queue {
                name: format!("order_to_ingress{}", ingress.instance),
                depth: ingress.value("told_depth"),
                high_water: ingress.value("told_high"),
                capacity: label("ring_depth"),
            });
        }
        queues
    }

    fn stages(&self) -> BTreeMap<&'static str, Option<Latency>> {
        [
            ("ring_wait", "order", "ring_wait_ns"),
            ("order", "order", "order_ns"),
            ("answer_wait", "ingress", "answer_wait_ns"),
        ]
        .into_iter()
        .map(|(stage, block, name)| (stage, self.read.distribution(block, name).as_ref().and_then(Latency::of)))
        .collect()
    }
}
