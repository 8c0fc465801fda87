//! The role `ingress`: a client socket; authenticates, reads, hands on, and packs what clients are told.
//!
//! **Why.** Clients never reach the peer socket, so a flood of theirs costs no peer a frame; and what is not authentic
//! reaches no parser. Answers to one client share datagrams, since a datagram costs the same whatever its size.
//! **Invariants**: nothing unauthenticated is answered; every answer is sealed for the principal that asked.
//! **Limits**: [`OPEN_MAX`] clients with a datagram under construction, [`REFUSALS_MAX`] refusals of a batch; beyond, the
//! oldest datagram leaves early, and refusals are counted and dropped.
//! **Not here**: what a request means (`order`), flow control.
use std::net::SocketAddr;

use super::slots::{Asked, Done, MESSAGE_MAX, Reply, Told, Want};
use crate::engine::backend::{Io, Received, SocketId};
use crate::engine::cores::{Now, Role, Turn};
use crate::engine::link::Outlet;
use crate::engine::ring::Consumer;
use crate::engine::stop::Stop;
use crate::protocol::{Instance, LocalTime, Principal, Refusal, RequestNo, SessionId};
use crate::stats::{file::Owner, metrics};
use crate::wire::auth::{KeyCache, principal_id};
use crate::wire::bytes::HEAD_LEN;
use crate::wire::client::{Fault, Refused, ToServer, parse_to_server, put_session};
use crate::wire::{
    BodyWriter, ClientEnvelope, DropReason, ENVELOPE_LEN, Opened, VERSION, body_max, open_client, seal_server,
};

/// Most clients with a datagram under construction in one turn.
pub const OPEN_MAX: usize = 32;
/// Most refusals that ingress makes itself between two turns.
pub const REFUSALS_MAX: usize = 512;
/// Most messages taken from the ring in one turn.
const TAKE_MAX: usize = 4_096;

/// What the role is made of.
#[derive(Debug)]
pub struct Parts {
    /// Its client socket.
    pub socket: SocketId,
    /// The keys of principals.
    pub keys: KeyCache,
    /// Longest datagram.
    pub payload_max: usize,
    /// What clients ask.
    pub asked: Outlet<Asked>,
    /// What they are told.
    pub told: Consumer<Told>,
    /// What is counted.
    pub counts: Owner<metrics::Ingress>,
    /// Whether `order` has ended.
    pub done: Done,
    /// Asked to stop: it ends once `order` has ended and all is told.
    pub stop: Stop,
}

/// A datagram under construction.
struct Packet {
    address: SocketAddr,
    envelope: ClientEnvelope,
    session: SessionId,
    len: usize,
    bytes: Box<[u8]>,
}

/// The role.
pub struct Ingress {
    socket: SocketId,
    keys: KeyCache,
    asked: Outlet<Asked>,
    told: Consumer<Told>,
    counts: Owner<metrics::Ingress>,
    done: Done,
    stop: Stop,
    /// When the core was handed what it hands on.
    now: LocalTime,
    packets: Packets,
    refusals: Vec<(Reply, Refused)>,
}

struct Packets {
    open: Vec<Packet>,
    used: usize,
    body_max: usize,
}

impl Ingress {
    /// The role, with all its memory.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts { socket, keys, payload_max, asked, told, counts, done, stop } = parts;
        let packet = || Packet {
            address: Reply::default().address,
            envelope: ClientEnvelope {
                instance: Instance::NONE,
                principal: Principal::default(),
                session: SessionId::default(),
            },
            session: SessionId::default(),
            len: 0,
            bytes: vec![0; payload_max].into_boxed_slice(),
        };
        let open = (0..OPEN_MAX).map(|_| packet()).collect();
        let packets = Packets { open, used: 0, body_max: body_max(payload_max) };
        let refusals = Vec::with_capacity(REFUSALS_MAX);
        let now = LocalTime::default();
        Self { socket, keys, asked, told, counts, done, stop, now, packets, refusals }
    }

    fn refuse(&mut self, reply: Reply, request: RequestNo, reason: Refusal, detail: u8) {
        self.counts.turned_away[usize::from(reason.code()) - 1].add(1);
        if self.refusals.len() == REFUSALS_MAX {
            self.counts.client_out_full.add(1);
            return;
        }
        let overloaded = reason == Refusal::Overloaded;
        let retry_after_us = if overloaded { 5_000 } else { 0 };
        self.refusals.push((reply, Refused { request, retry_after_us, reason, is_final: !overloaded, detail }));
    }

    fn body(&mut self, envelope: &ClientEnvelope, body: &[u8], address: SocketAddr) {
        let reply = |session| Reply { address, principal: envelope.principal, session };
        let Ok(messages) = parse_to_server(body, envelope.session) else {
            self.counts.client_dropped[DropReason::Malformed.index()].add(1);
            self.refuse(reply(envelope.session), RequestNo::default(), Refusal::Malformed, Fault::Unreadable.code());
            return;
        };
        for (session, message) in messages {
            let reply = reply(session);
            match message {
                ToServer::Open(open) => self.open(reply, open.nonce, open.name),
                ToServer::Request(request) => {
                    let pushed = self.asked.push_with(|slot| {
                        slot.reply = reply;
                        slot.want = Want::Place;
                        slot.number = request.request.get();
                        slot.at = self.now;
                        slot.tx = request.tx;
                        slot.depth = request.depth;
                        slot.instance = envelope.instance;
                        slot.set_participants(request.participants.bytes());
                    });
                    if pushed.is_err() {
                        self.refuse(reply, request.request, Refusal::Overloaded, 0);
                    }
                }
                ToServer::Fault(fault) => {
                    self.refuse(reply, fault.request, Refusal::Malformed, fault.fault.code());
                }
                // A session costs a server nothing until it orders; queries are not served by this version.
                ToServer::Close => {}
                ToServer::Query(_) | ToServer::Follow(_) => self.counts.not_served.add(1),
            }
        }
    }

    /// OPEN: the name must be the one whose digest the envelope's principal is.
    fn open(&mut self, reply: Reply, nonce: u64, name: &str) {
        if principal_id(name) != Ok(reply.principal) {
            self.counts.client_dropped[DropReason::Principal.index()].add(1);
            return;
        }
        let pushed = self.asked.push_with(|slot| {
            slot.reply = reply;
            slot.want = Want::Open;
            slot.number = nonce;
            slot.at = self.now;
            slot.set_participants(&[]);
        });
        if pushed.is_err() {
            self.refuse(reply, RequestNo::default(), Refusal::Overloaded, 0);
        }
    }

    fn tell_all(&mut self, io: &mut dyn Io) -> usize {
        let Self { packets, told, refusals, keys, counts, socket, now, .. } = self;
        let mut send = |packet: &mut Packet| packet.send(io, *socket, keys, counts);
        let mut count = refusals.len();
        for (reply, refused) in refusals.drain(..) {
            let mut bytes = [0; MESSAGE_MAX];
            let mut body = BodyWriter::new(&mut bytes);
            let fits = refused.put(&mut body);
            debug_assert!(fits.is_ok(), "a REFUSED fits every slot");
            packets.add(reply, Instance::NONE, body.bytes(), &mut send);
        }
        let waiting = told.len() as u64;
        counts.told_depth.set(waiting);
        counts.told_high.raise(waiting);
        count += told.pop_batch(TAKE_MAX, |slot| {
            counts.answer_wait_ns.record(now.since(slot.at).get());
            packets.add(slot.reply, slot.instance, slot.message(), &mut send);
        });
        counts.told.add(count as u64);
        packets.send_all(&mut send);
        count
    }
}

impl Packet {
    fn begin(&mut self, reply: Reply, instance: Instance) {
        self.address = reply.address;
        self.envelope = ClientEnvelope { instance, principal: reply.principal, session: reply.session };
        self.session = reply.session;
        self.len = 0;
    }

    /// Appends a message, with a switch of session before it where one is due. False if it does not fit.
    fn append(&mut self, session: SessionId, message: &[u8], body_max: usize) -> bool {
        let Some(room) = self.bytes.get_mut(ENVELOPE_LEN + self.len..ENVELOPE_LEN + body_max) else { return false };
        let mut body = BodyWriter::new(room);
        let mut in_force = self.session;
        let Some(([kind, aux, _, _], payload)) = message.split_first_chunk::<HEAD_LEN>() else { return true };
        let put = put_session(&mut body, &mut in_force, session).and_then(|()| body.put_payload(*kind, *aux, payload));
        if put.is_err() {
            return false;
        }
        self.len += body.len();
        self.session = in_force;
        true
    }

    fn send(&mut self, io: &mut dyn Io, socket: SocketId, keys: &KeyCache, counts: &metrics::Ingress) {
        if self.len == 0 {
            return;
        }
        let key = keys.key(self.envelope.principal);
        let len = seal_server(&mut self.bytes, &self.envelope, self.len, &key);
        let sent = io.send(socket, self.address, &mut |buffer| {
            buffer[..len].copy_from_slice(&self.bytes[..len]);
            len
        });
        if sent.is_err() {
            counts.client_out_full.add(1);
        }
        self.len = 0;
    }
}

impl Packets {
    fn add(&mut self, reply: Reply, instance: Instance, message: &[u8], send: &mut impl FnMut(&mut Packet)) {
        let same = |packet: &Packet| packet.address == reply.address && packet.envelope.principal == reply.principal;
        let at = self.open[..self.used].iter().position(same).unwrap_or_else(|| {
            if self.used == OPEN_MAX {
                // The oldest leaves early; its place is taken.
                send(&mut self.open[0]);
                self.open.rotate_left(1);
                self.used -= 1;
            }
            self.open[self.used].begin(reply, instance);
            self.used += 1;
            self.used - 1
        });
        let packet = &mut self.open[at];
        if instance != Instance::NONE {
            packet.envelope.instance = instance;
        }
        if !packet.append(reply.session, message, self.body_max) {
            send(packet);
            packet.begin(reply, instance);
            let fits = packet.append(reply.session, message, self.body_max);
            debug_assert!(fits, "a message fits an empty datagram");
        }
    }

    fn send_all(&mut self, send: &mut impl FnMut(&mut Packet)) {
        self.open[..self.used].iter_mut().for_each(send);
        self.used = 0;
    }
}

impl Role for Ingress {
    fn name(&self) -> &'static str {
        "ingress"
    }

    fn datagram(&mut self, now: Now, got: Received<'_>) {
        self.now = now.local;
        match open_client(got.data, &mut self.keys) {
            Ok(Opened::Body(envelope, body)) => self.body(&envelope, body, got.from),
            Ok(Opened::OtherVersion(envelope, _)) => {
                self.counts.client_dropped[DropReason::Version.index()].add(1);
                let reply = Reply { address: got.from, principal: envelope.principal, session: envelope.session };
                self.refuse(reply, RequestNo::default(), Refusal::Version, VERSION);
            }
            Err(reason) => self.counts.client_dropped[reason.index()].add(1),
        }
    }

    fn turn(&mut self, now: Now, _: bool, io: &mut dyn Io) -> Turn {
        self.now = now.local;
        self.asked.flush();
        let told = self.tell_all(io);
        if self.stop.is_requested() && self.done.is_set() && self.told.is_empty() {
            return Turn::FINISHED;
        }
        Turn::new(told, LocalTime::NEVER)
    }
}
