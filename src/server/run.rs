//! A server in the foreground: readiness, signals, the log, the end.
//!
//! **Why a thread of its own.** The roles never format or block; what they have to tell comes as small values through a
//! ring, and this thread, which has nothing else to do, writes it.
//! **Invariants**: SIGTERM and SIGINT drain: no request is admitted any more, what is held is finished; a second signal,
//! or [`DRAIN_MAX`], ends the server at once.
//! **Limits**: at most [`ALIKE_MAX`] events of one kind are logged in ten seconds; the rest is counted.
//! **Not here**: what the roles do.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tracing::{error, info, warn};

use super::assembly::Assembly;
use super::figures::House;
use crate::engine::clock;
use crate::engine::cores::CoreReport;
use crate::engine::place::place;
use crate::protocol::machine::Event;
use crate::protocol::{Instance, LocalTime, Span};
use crate::stats::metrics::Ended;
use crate::wire::peer::SettingsMismatch;

/// How long a server may take to finish what it holds.
pub const DRAIN_MAX: Span = Span::secs(5);
/// Most events of one kind logged in ten seconds.
pub const ALIKE_MAX: u32 = 3;
/// How often the log is written and signals are looked at.
pub const LOOK_EVERY: Duration = Duration::from_millis(50);
const REPORT_EVERY: Span = Span::secs(10);

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All it held was finished.
    Drained,
    /// It was told to end at once, or could not finish in time: so many requests were left unanswered.
    Cut {
        /// Requests stamped here and not answered.
        left: u64,
    },
    /// A core ended by itself: a defect.
    Died,
}

/// Limits repeated events of one kind.
#[derive(Default)]
struct Alike {
    since: LocalTime,
    count: [u32; 8],
}

impl Alike {
    fn admits(&mut self, kind: usize, now: LocalTime) -> bool {
        if now.since(self.since) >= REPORT_EVERY {
            let suppressed: u32 = self.count.iter().map(|count| count.saturating_sub(ALIKE_MAX)).sum();
            if suppressed > 0 {
                info!(suppressed, "events like those above");
            }
            *self = Self { since: now, count: [0; 8] };
        }
        self.count[kind] += 1;
        self.count[kind] <= ALIKE_MAX
    }
}

/// Follows a running server until it ends; `signals` counts what asked it to.
#[must_use]
pub fn follow(mut server: Assembly, signals: &Arc<AtomicUsize>) -> End {
    server.house = place(server.house_cpu, None);
    for line in server.to_string().lines() {
        info!("{line}");
    }
    if let Some(path) = server.figures.path() {
        info!("figures: {}", path.display());
    }
    last_words(&mut server.figures);
    let refusals: Vec<String> = server.refusals().collect();
    refusals.iter().for_each(|refusal| warn!("{refusal}"));
    refusals.iter().for_each(|refusal| server.figures.note("not_granted", refusal));
    if let Some(shortage) = &server.shortage {
        warn!("{shortage}");
        server.figures.note("socket_buffers", &shortage.to_string());
    }
    notify(&[sd_notify::NotifyState::Status("waiting for the other servers")]);
    let mut alike = Alike::default();
    let mut asked_at: Option<LocalTime> = None;
    let mut reported = Report::new();
    while !server.cores.iter().all(crate::engine::cores::Running::is_ended) {
        std::thread::park_timeout(LOOK_EVERY);
        let now = clock::monotonic();
        let Assembly { events, shared, figures, .. } = &mut server;
        events.pop_batch(64, |event| {
            if let Some(event) = event.take() {
                tell(event, shared, &mut alike, figures, now);
            }
        });
        reported.look(&mut server, now);
        // Relaxed: a count of signals, nothing hangs on its order; its partner is the handler's add.
        let signals = signals.load(Ordering::Relaxed);
        if signals > 0 && asked_at.is_none() {
            info!("asked to stop: finishing what is held");
            notify(&[sd_notify::NotifyState::Stopping]);
            server.stop.request();
            asked_at = Some(now);
        }
        let late = asked_at.is_some_and(|at| now.since(at) >= DRAIN_MAX);
        if late || signals > 1 {
            server.stop.force();
        }
    }
    end(server, asked_at)
}

fn end(server: Assembly, asked_at: Option<LocalTime>) -> End {
    let (counts, figures_of, forced) = (server.counts, server.figures, server.stop.is_forced());
    let (mut died, mut engine) = (false, CoreReport::default());
    for core in server.cores {
        match core.join() {
            Ok(report) => engine = engine.plus(&report),
            Err(_) => died = true,
        }
    }
    info!("counted: {counts}{}", figures(&engine));
    if died || asked_at.is_none() {
        error!("a core ended by itself");
        figures_of.ended(Ended::Died);
        return End::Died;
    }
    let left = counts.order.look(|order| order.under_way.get());
    if forced && (left > 0 || !server.done.is_set()) {
        error!(left, "ended before all was finished: other servers did not answer in time");
        figures_of.ended(Ended::Cut);
        return End::Cut { left };
    }
    info!("ended in good order");
    figures_of.ended(Ended::Drained);
    End::Drained
}

/// Has a panic of any thread leave its reason in the stats file before it ends the process.
fn last_words(figures: &mut House) {
    let Some(last) = figures.take_last_words() else { return };
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        last.say(&panic.to_string());
        before(panic);
    }));
}

fn notify(states: &[sd_notify::NotifyState<'_>]) {
    if let Err(cause) = sd_notify::notify(states) {
        warn!(%cause, "the service manager could not be told");
    }
}

/// What the log says every now and then.
struct Report {
    at: LocalTime,
    lost: u64,
    ready: bool,
    unstamped: bool,
    unkept: bool,
}

impl Report {
    fn new() -> Self {
        Self { at: clock::monotonic(), lost: 0, ready: false, unstamped: false, unkept: false }
    }

    fn look(&mut self, server: &mut Assembly, now: LocalTime) {
        let engine = server.report();
        server.figures.look(&server.counts, &engine, now);
        let (counts, id) = (&server.counts, server.id);
        let (member, instance, awaited) =
            counts.order.look(|order| (order.member.get(), order.instance.get(), order.awaited.get()));
        if !self.ready && member == 1 {
            self.ready = true;
            info!("server {id} ready: instance {}", Instance::new(instance));
            notify(&[sd_notify::NotifyState::Ready, sd_notify::NotifyState::Status("ordering")]);
        }
        if !self.unstamped && engine.io.stamps_missing > 0 {
            self.unstamped = true;
            warn!("{UNSTAMPED}");
            server.figures.note("stamps_missing", UNSTAMPED);
        }
        if !self.unkept && server.figures.is_lost() {
            self.unkept = true;
            warn!("{UNKEPT}");
        }
        if now.since(self.at) < REPORT_EVERY {
            return;
        }
        self.at = now;
        if !self.ready && awaited != 0 {
            let ids: Vec<String> = (0..8).filter(|k| awaited & (1 << k) != 0).map(|k| (k + 1).to_string()).collect();
            info!("waiting for server{} {}", if ids.len() > 1 { "s" } else { "" }, ids.join(", "));
        }
        let lost = counts.dropped() + engine.io.kernel_drops;
        if lost > self.lost {
            let more = lost - self.lost;
            warn!("dropped {more} datagrams since the last report: {counts}{}", figures(&engine));
            server.figures.note("datagrams_dropped", &format!("dropped {lost} datagrams so far, {more} in 10 s"));
            self.lost = lost;
        }
    }
}

/// What is told when the kernel dates no datagrams.
const UNSTAMPED: &str = "datagrams come without the kernel's receive stamps: each is dated when it is read, so that \
                         delays measured here include this server's own";
/// What is told when the stats file is gone from under the server.
const UNKEPT: &str = "the stats file was truncated, or its disk is full: figures are kept in memory only until this \
                      server is started anew; keep hands off the file, make room";

/// What the engine counted and is not zero, each with a space before it.
fn figures(engine: &CoreReport) -> String {
    engine.named().filter(|(_, value)| *value > 0).map(|(name, value)| format!(" {name}={value}")).collect()
}

/// How loud an event is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loud {
    Info,
    Warn,
    Error,
}

/// Logs an event, unless many like it were; keeps it among the distinct errors, if it is one.
fn tell(event: Event, shared: &[&'static str], alike: &mut Alike, figures: &mut House, now: LocalTime) {
    let (kind, loud, key, text) = words(event, shared);
    if loud != Loud::Info {
        figures.note(&key, &text);
    }
    if !alike.admits(kind, now) {
        return;
    }
    match loud {
        Loud::Info => info!("{text}"),
        Loud::Warn => warn!("{text}"),
        Loud::Error => error!("{text}"),
    }
}

/// An event's kind, its weight, what it is without what varies, and its words.
fn words(event: Event, shared: &[&'static str]) -> (usize, Loud, String, String) {
    match event {
        Event::Entered { epoch, instance } => {
            (0, Loud::Info, "entered".to_owned(), format!("entered epoch {epoch} of instance {instance}"))
        }
        Event::NotNamed { instance, standing } => (
            1,
            Loud::Error,
            "not_named".to_owned(),
            format!(
                "refused: instance {instance} lives, and another life of this server ({standing}) has its place in it. \
                 This process remembers nothing and takes no part. To begin a new instance, whose numbers start again \
                 from 1, stop all servers, then start them"
            ),
        ),
        Event::PeerNotNamed { server, incarnation } => (
            2,
            Loud::Warn,
            format!("peer_started_anew.{server}"),
            format!(
                "server {server} was started anew (as {incarnation}) and is refused: it has forgotten what it acknowledged"
            ),
        ),
        Event::SettingsDiffer { server, index, mine, theirs } => {
            let name = match index {
                SettingsMismatch::SERVERS => "the number of servers",
                SettingsMismatch::VACANT => "the list of vacant places",
                _ => shared.get(usize::from(index)).copied().unwrap_or("an unknown setting"),
            };
            let text = format!(
                "server {server} is configured differently: {name} is {mine} here and {theirs} there; use one file"
            );
            (3, Loud::Error, format!("settings_differ.{server}.{index}"), text)
        }
        Event::PeerDefect { server } => (
            4,
            Loud::Error,
            format!("peer_defect.{server}"),
            format!(
                "server {server} said what no server following the protocol says: that is left out of account; look at \
                 its log"
            ),
        ),
    }
}
