//! The invariants of protocol.md, section 13, as far as there is one epoch, looked at after every step of a server.
//!
//! **Why after every step.** A wrong order is seen where it begins, with the values that show it, not where it ends.
//! **How it is cheap.** A step changes one server, so only what it changed is compared: new frames with the frames as
//! their author made them, new deliveries with one list that is common to all servers, new answers with a plain ledger.
//! **Invariants**: what is listed here was made by authors' cores; nothing is believed that a receiver says of others.
//! **Limits**: one instance at a time, epoch 0. **Not here**: what clients are told (`told`).
use crate::protocol::config::Configuration;
use crate::protocol::ledger::Limits;
use crate::protocol::machine::{Core, To};
use crate::protocol::stream::Stream;
use crate::protocol::{FrameNo, OrderNo, SERVERS_MAX, ServerId, Timestamp, TxId};
use crate::wire::frame::FrameView;
use crate::wire::header::Header;
use crate::wire::peer::{PeerMessage, messages};

use super::client::Desk;
use super::model::{Body, Fate, Key, Model};
use super::outbox::Said;

/// A rule that does not hold, and the values that show it.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Which rule.
    pub rule: &'static str,
    /// The values.
    pub what: String,
}

/// Ends a check: the rule, and a message as `format!` takes it, unless the condition holds.
macro_rules! hold {
    ($condition:expr, $rule:literal, $($message:tt)+) => {
        if !$condition {
            return Err(Broken { rule: $rule, what: format!($($message)+) });
        }
    };
}
pub(super) use hold;

/// A frame as its author made it.
#[derive(Debug)]
struct Frame {
    bytes: Box<[u8]>,
    first_ts: u64,
    /// Entries of the stream up to and including this frame.
    entries: usize,
}

/// An entry as its author stamped it.
#[derive(Debug)]
struct Stamped {
    ts: u64,
    frame: u64,
    key: Key,
    body: Body,
}

/// A stream as its author made it.
#[derive(Debug, Default)]
struct Row {
    frames: Vec<Frame>,
    entries: Vec<Stamped>,
    /// The largest promise that left any server for it.
    said: u64,
    /// Entries of it in the common order.
    placed: usize,
}

/// An entry in the common order.
#[derive(Clone, Copy, Debug)]
struct Placed {
    row: usize,
    index: usize,
    ts: u64,
    /// The last number given when it was delivered.
    last: u64,
}

/// What was seen of a member.
#[derive(Clone, Copy, Debug, Default)]
struct View {
    lens: [u64; SERVERS_MAX],
    taken: [usize; SERVERS_MAX],
    delivered: usize,
    last: u64,
    clock: u64,
    living: bool,
}

/// All that is known of a schedule so far.
#[derive(Debug)]
pub(super) struct Checks {
    limits: Limits,
    /// How many instances were formed.
    pub(super) instances: u32,
    pub(super) configuration: Option<Configuration>,
    rows: Vec<Row>,
    order: Vec<Placed>,
    pub(super) model: Model,
    /// Prefix hash by order number.
    hashes: Vec<u64>,
    views: [View; SERVERS_MAX],
    /// The largest order number answered anywhere.
    pub(super) answered: u64,
}

impl Checks {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            instances: 0,
            configuration: None,
            rows: Vec::new(),
            order: Vec::new(),
            model: Model::new(limits),
            hashes: Vec::new(),
            views: [View::default(); SERVERS_MAX],
            answered: 0,
        }
    }

    /// Entries in the common order, those without a number included.
    pub(super) fn ordered(&self) -> usize {
        self.order.len()
    }

    /// Whether every member has delivered all that any has, and no entry waits.
    pub(super) fn is_level(&self) -> bool {
        let mut living = self.views.iter().filter(|view| view.living);
        living.all(|view| view.delivered == self.order.len())
            && self.rows.iter().all(|row| row.placed == row.entries.len())
    }

    /// The process at this place is gone; what it acknowledged stands.
    pub(super) fn died(&mut self, server: usize) {
        self.views[server].living = false;
    }

    /// I1: one value per epoch; and never two instances with living members.
    fn entered(&mut self, server: usize, configuration: &Configuration) -> Result<(), Broken> {
        if let Some(held) = self.configuration
            && held != *configuration
        {
            let living = self.views.iter().position(|view| view.living);
            hold!(
                living.is_none(),
                "I1",
                "server {} entered {configuration:?} while a member of {held:?} lives (place {living:?})",
                server + 1
            );
            *self = Self { instances: self.instances, ..Self::new(self.limits) };
        }
        if self.configuration.is_none() {
            self.configuration = Some(*configuration);
            self.instances += 1;
            self.rows.resize_with(configuration.servers(), Row::default);
        }
        self.views[server].living = true;
        Ok(())
    }

    /// Looks at a server after a step of it, and at all it said in the step.
    pub(super) fn after(&mut self, server: usize, core: &Core<u32>, said: &Said, desk: &Desk) -> Result<(), Broken> {
        let Some(configuration) = core.configuration() else {
            hold!(said.answers.is_empty(), "membership", "server {} answers without a configuration", server + 1);
            return Ok(());
        };
        hold!(core.is_member(), "membership", "server {} holds a configuration that does not name it", server + 1);
        if !self.views[server].living || self.configuration.as_ref() != Some(configuration) {
            self.entered(server, configuration)?;
        }
        self.own_frames(server, core)?;
        self.frames_of_others(server, core)?;
        for (_, _, letter) in &said.letters {
            self.letter(server, letter)?;
        }
        self.promises_held(server, core)?;
        self.acknowledgements(server, core)?;
        self.deliveries(server, core, desk)?;
        self.ledger(server, core)?;
        self.told(server, said, core.ledger().last_order().get(), desk)
    }

    /// I2 and I8 at the author: its stream grows by frames that rise above all before, above every promise, and above
    /// all that was delivered anywhere.
    fn own_frames(&mut self, server: usize, core: &Core<u32>) -> Result<(), Broken> {
        let stream = &core.streams()[server];
        let row = &mut self.rows[server];
        let clock = core.hlc().get();
        hold!(clock >= self.views[server].clock, "hlc", "of server {} fell to {clock}", server + 1);
        self.views[server].clock = clock;
        while (row.frames.len() as u64) < stream.len().get() {
            let s = FrameNo::new(row.frames.len() as u64 + 1);
            let frame = stream.store.bytes(s).and_then(|bytes| FrameView::parse(bytes).ok());
            let Some(frame) = frame else {
                return Err(Broken { rule: "I2", what: format!("own frame {s} of {} cannot be read", stream.id) });
            };
            hold!(frame.stream() == stream.id && frame.number() == s, "I2", "frame {s} of {} names another", stream.id);
            let first = frame.first_ts().get();
            hold!(
                first > row.said,
                "I8",
                "frame {s} of {} begins at {first}, though {} was promised",
                stream.id,
                row.said
            );
            for entry in frame.entries() {
                let ts = entry.ts.get();
                let before = row.entries.last().map_or(0, |entry| entry.ts);
                hold!(ts > before, "I2", "stream {}: {ts} after {before}", stream.id);
                let placed = self.order.last().map(|last| (last.ts, last.row));
                hold!(placed < Some((ts, server)), "I6", "server {} stamps {ts}, delivered is {placed:?}", server + 1);
                let participants = entry.participants.bytes().as_chunks::<4>().0;
                row.entries.push(Stamped {
                    ts,
                    frame: s.get(),
                    key: (entry.principal.get(), entry.session, entry.request.get()),
                    body: Body {
                        tx: entry.tx,
                        participants: participants.iter().map(|id| u32::from_le_bytes(*id)).collect(),
                    },
                });
            }
            row.frames.push(Frame { bytes: frame.bytes().into(), first_ts: first, entries: row.entries.len() });
        }
        self.views[server].lens[server] = stream.len().get();
        Ok(())
    }

    /// I2 at receivers: what they hold is what its author made, without a gap; what they have dropped, all hold.
    fn frames_of_others(&mut self, server: usize, core: &Core<u32>) -> Result<(), Broken> {
        for (at, stream) in core.streams().iter().enumerate() {
            let row = &self.rows[at];
            let (before, len) = (self.views[server].lens[at], stream.len().get());
            hold!(len >= before, "I2", "server {} held {before} frames of {}, now {len}", server + 1, stream.id);
            hold!(len <= row.frames.len() as u64, "I2", "server {} holds {len} frames of {}", server + 1, stream.id);
            self.views[server].lens[at] = len;
            for s in before + 1..=len {
                if let Some(bytes) = stream.store.bytes(FrameNo::new(s)) {
                    let made = &row.frames[index(s)].bytes;
                    hold!(*bytes == **made, "I2", "frame {s} of {} differs at server {}", stream.id, server + 1);
                }
            }
            let dropped = stream.store.first().get() - 1;
            let everywhere = self.views.iter().take(self.rows.len()).map(|view| view.lens[at]).min().unwrap_or(0);
            hold!(
                dropped <= everywhere && dropped < stream.head_frame().get(),
                "R-DISCARD",
                "server {} dropped {dropped} frames of {}; all hold {everywhere}, next is {}",
                server + 1,
                stream.id,
                stream.head_frame()
            );
        }
        Ok(())
    }

    /// What leaves a server: frames as they were made, promises that hold, acknowledgements of what is held.
    fn letter(&mut self, server: usize, letter: &[u8]) -> Result<(), Broken> {
        for message in messages(letter) {
            let Ok(message) = message else {
                return Err(Broken { rule: "wire", what: format!("server {} sent {message:?}", server + 1) });
            };
            match message {
                PeerMessage::Header(header) => self.header(server, &header)?,
                PeerMessage::Own(own) => self.promise(own.stream.server, own.last, own.promise)?,
                PeerMessage::Frame(frame) => {
                    let made = self.rows.get(frame.stream().server.place());
                    let made = made.and_then(|row| row.frames.get(index(frame.number().get())));
                    let same = made.is_some_and(|made| *made.bytes == *frame.bytes());
                    hold!(same, "I2", "server {} sent frame {} otherwise", server + 1, frame.number());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn header(&mut self, server: usize, header: &Header) -> Result<(), Broken> {
        let Some(configuration) = self.configuration else { return Ok(()) };
        hold!(header.from.place() == server, "I9", "server {} speaks for {}", server + 1, header.from);
        let named = configuration.incarnation(header.from) == Some(header.inc);
        hold!(named || header.acks.is_empty(), "R-ACK", "server {} acknowledges unnamed", server + 1);
        for (row, acknowledged) in header.acks.as_slice().iter().enumerate() {
            let held = self.views[server].lens[row];
            hold!(
                acknowledged.get() <= held,
                "I4",
                "server {} acknowledges {acknowledged} frames of row {row}, holds {held}",
                server + 1
            );
        }
        let hash = self.hash(header.ordered.get());
        hold!(
            header.ordered.get() == 0 || hash.is_none_or(|hash| hash == header.hash),
            "I7",
            "server {} says hash {:x} at {}",
            server + 1,
            header.hash,
            header.ordered
        );
        let Some(own) = header.own else { return Ok(()) };
        self.promise(header.from, own.last, own.promise)
    }

    /// I8: no frame after `last` has a time stamp at or below the promise. Later frames are compared when made.
    fn promise(&mut self, of: ServerId, last: FrameNo, promise: Timestamp) -> Result<(), Broken> {
        let Some(row) = self.rows.get_mut(of.place()) else { return Ok(()) };
        hold!(last.get() <= row.frames.len() as u64, "I8", "a promise speaks of frame {last} of {of}, never made");
        let next = usize::try_from(last.get()).ok().and_then(|next| row.frames.get(next));
        hold!(
            next.is_none_or(|next| next.first_ts > promise.get()),
            "I8",
            "{of} promised {promise} past frame {last}, the next begins at {:?}",
            next.map(|next| next.first_ts)
        );
        row.said = row.said.max(promise.get());
        Ok(())
    }

    /// R-TAKE: what a server believes promised lies below the first frame it lacks.
    fn promises_held(&self, server: usize, core: &Core<u32>) -> Result<(), Broken> {
        for (row, stream) in self.rows.iter().zip(core.streams()) {
            let next = usize::try_from(stream.len().get()).ok().and_then(|next| row.frames.get(next));
            hold!(
                next.is_none_or(|next| next.first_ts > stream.promise().get()),
                "R-TAKE",
                "server {} holds {} frames of {} and a promise of {}; the next frame begins at {:?}",
                server + 1,
                stream.len(),
                stream.id,
                stream.promise(),
                next.map(|next| next.first_ts)
            );
        }
        Ok(())
    }

    /// I9: no acknowledgement is counted that its author did not make in this configuration.
    fn acknowledgements(&self, server: usize, core: &Core<u32>) -> Result<(), Broken> {
        let Some(acks) = core.acks() else { return Ok(()) };
        for (place, view) in self.views.iter().enumerate().take(self.rows.len()) {
            let Some(id) = ServerId::from_place(place) else { continue };
            for (row, (counted, held)) in acks.of(id).iter().zip(view.lens).enumerate() {
                hold!(
                    counted.get() <= held,
                    "I9",
                    "server {} counts {counted} frames of row {row} for server {id}, which holds {held}",
                    server + 1
                );
            }
        }
        Ok(())
    }

    /// I6: all servers deliver one sequence, rising in (ts, server).
    fn deliveries(&mut self, server: usize, core: &Core<u32>, desk: &Desk) -> Result<(), Broken> {
        let mut now = [0; SERVERS_MAX];
        for (at, stream) in core.streams().iter().enumerate() {
            now[at] = self.delivered_of(at, stream)?;
        }
        let mut view = self.views[server];
        let sum: usize = now.iter().sum();
        let told = core.ledger().delivered();
        hold!(sum as u64 == told, "I6", "server {} delivered {told} entries, its streams say {sum}", server + 1);
        while view.delivered < sum {
            if let Some(placed) = self.order.get(view.delivered) {
                hold!(
                    placed.index == view.taken[placed.row] && placed.index < now[placed.row],
                    "I6",
                    "two orders: entry {} is {placed:?}; server {} has delivered {now:?} by row",
                    view.delivered + 1,
                    server + 1
                );
                view.taken[placed.row] += 1;
            } else {
                let row = self.place(server, &view.taken, &now, desk)?;
                view.taken[row] += 1;
            }
            view.delivered += 1;
        }
        hold!(view.taken == now, "I6", "two orders: server {} delivered {now:?} by row", server + 1);
        self.views[server] = view;
        Ok(())
    }

    /// How many entries of a row a server has delivered, by where its stream stands.
    fn delivered_of(&self, at: usize, stream: &Stream) -> Result<usize, Broken> {
        let row = &self.rows[at];
        let wholly = stream.head_frame().get() - 1;
        hold!(wholly <= row.frames.len() as u64, "I6", "{wholly} frames of {} delivered, never made", stream.id);
        let before = if wholly == 0 { 0 } else { row.frames[index(wholly)].entries };
        let Some(head) = stream.head() else { return Ok(before) };
        let part = row.entries.iter().skip(before).take_while(|entry| entry.ts < head.get()).count();
        Ok(before + part)
    }

    /// A server is the first to deliver past the common order: what it delivers next is next for all.
    fn place(
        &mut self,
        server: usize,
        taken: &[usize; SERVERS_MAX],
        now: &[usize; SERVERS_MAX],
        desk: &Desk,
    ) -> Result<usize, Broken> {
        let next = |at: usize| self.rows[at].entries.get(taken[at]).map(|entry| (entry.ts, at));
        let rows = self.rows.len();
        let delivered = (0..rows).filter(|at| taken[*at] < now[*at]).filter_map(next).min();
        let smallest = (0..rows).filter_map(next).min();
        hold!(
            delivered == smallest,
            "I6",
            "server {} delivers {delivered:?} before {smallest:?}, which is stamped and smaller",
            server + 1
        );
        let Some((ts, row)) = delivered else {
            return Err(Broken { rule: "I6", what: format!("server {} delivered what nobody stamped", server + 1) });
        };
        let before = self.order.last().map(|last| (last.ts, last.row));
        hold!(before < Some((ts, row)), "I6", "server {} delivers {ts} of row {row} after {before:?}", server + 1);
        let entry = &self.rows[row].entries[taken[row]];
        for (at, other) in self.rows.iter().enumerate() {
            hold!(
                at == server || other.said >= ts,
                "R-DELIVER",
                "server {} delivers {ts}; row {at} has promised {}",
                server + 1,
                other.said
            );
        }
        self.held_by_majority(row, entry.frame, "I5")?;
        let fate = self.model.deliver(ts, entry.key, &entry.body);
        if let Fate::Numbered(order) = fate {
            let floor = desk.floor(&entry.key, entry.body.tx);
            hold!(
                floor.is_some_and(|floor| order > floor),
                "real time",
                "{:?} got number {order}, was sent after {floor:?} had been answered",
                entry.key
            );
        }
        self.order.push(Placed { row, index: taken[row], ts, last: self.model.last() });
        self.rows[row].placed = taken[row] + 1;
        Ok(row)
    }

    /// The prefix hash of the first server that came to `order`.
    fn hash(&self, order: u64) -> Option<u64> {
        self.hashes.get(index(order)).copied()
    }

    fn held_by_majority(&self, row: usize, frame: u64, rule: &'static str) -> Result<(), Broken> {
        let holders = self.views.iter().take(self.rows.len()).filter(|view| view.lens[row] >= frame).count();
        if holders * 2 > self.rows.len() {
            return Ok(());
        }
        let servers = self.rows.len();
        Err(Broken { rule, what: format!("frame {frame} of row {row}: delivered, held by {holders} of {servers}") })
    }

    /// I7: at equal N the ledgers are equal, record by record and by their hash.
    fn ledger(&mut self, server: usize, core: &Core<u32>) -> Result<(), Broken> {
        let view = self.views[server];
        let ledger = core.ledger();
        let last = ledger.last_order().get();
        let expected = view.delivered.checked_sub(1).map_or(0, |at| self.order[at].last);
        let delivered = view.delivered;
        hold!(last == expected, "I7", "server {} gave {last} of {expected} numbers to {delivered} entries", server + 1);
        for order in view.last + 1..=last {
            let number = OrderNo::new(order);
            let hash = ledger.hash_at(number).unwrap_or_default();
            match self.hash(order) {
                Some(known) => hold!(known == hash, "I7", "hash {hash:x} of server {} at {order}", server + 1),
                None => self.hashes.push(hash),
            }
            let Some(record) = ledger.record(number) else { continue };
            let parts: Vec<(u32, u64)> = record.parts().map(|part| (part.id.get(), part.seq.get())).collect();
            self.record(order, record.ts().get(), record.tx(), &parts)?;
        }
        self.views[server].last = last;
        Ok(())
    }

    /// A record, as told by a server, is the plain ledger's.
    pub(super) fn record(&self, order: u64, ts: u64, tx: TxId, parts: &[(u32, u64)]) -> Result<(), Broken> {
        let Some(known) = self.model.record(order) else {
            return Err(Broken { rule: "I7", what: format!("number {order} was never given") });
        };
        let same_parts = parts.len() == known.seqs.len()
            && parts
                .iter()
                .zip(known.body.participants.iter().zip(&known.seqs))
                .all(|(told, (id, seq))| *told == (*id, *seq));
        hold!(
            known.ts == ts && known.body.tx == tx && same_parts,
            "I7",
            "number {order} is told as {tx} at {ts} with {parts:?}; it is {known:?}"
        );
        Ok(())
    }
}

/// Where the thing numbered from 1 stands.
fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX).wrapping_sub(1)
}

/// How many servers a datagram goes to.
pub(super) fn receivers(to: To, from: usize, servers: usize) -> impl Iterator<Item = usize> {
    (0..servers).filter(move |place| match to {
        To::Others => *place != from,
        To::One(one) => one.place() == *place,
    })
}
