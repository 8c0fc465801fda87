//! The client's machine against a scripted cluster that speaks the wire: packing, retries, refusals, endings.
#![cfg(test)]

use std::collections::{BTreeMap, HashMap};

use ordain::client::machine::{Ask, Choice, Config, Counters, End, Event, Machine, SubmitError};
use ordain::protocol::{
    Instance, LocalTime, NodeId, OrderNo, ParticipantSeq, Principal, Refusal, RequestNo, ServerId, SessionId, Span,
    Timestamp, TxId,
};
use ordain::wire::answer::{AnswerHead, AnswerKind, AnswerSource, PartHead, put_answer};
use ordain::wire::auth::{ClusterKey, KeyCache};
use ordain::wire::client::{OpenedSession, Refused, ToServer, parse_to_server, put_session};
use ordain::wire::{BodyWriter, ClientEnvelope, DropReason, ENVELOPE_LEN, Opened, open_client, seal_server};

const PAYLOAD: usize = 1472;
const INSTANCE: Instance = Instance::new(0xabc);

fn place(id: usize) -> ServerId {
    ServerId::from_place(id - 1).unwrap()
}

fn tx(number: u64) -> TxId {
    TxId::new(u128::from(number).to_le_bytes())
}

/// A REQUEST as a server saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    server: ServerId,
    session: SessionId,
    request: RequestNo,
    tx: TxId,
    retry: bool,
    ids: Vec<NodeId>,
    depth: u8,
}

/// What became of a request, by the caller's mark.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ended {
    Ordered(u64, Vec<(u32, u64, usize)>),
    Unanswered,
    Refused(Refusal, Span),
    InstanceChanged(Instance),
}

struct Places {
    parts: Vec<PartHead>,
}

impl AnswerSource for Places {
    fn total(&self) -> u8 {
        u8::try_from(self.parts.len()).unwrap()
    }
    fn part(&self, index: u8) -> PartHead {
        self.parts[usize::from(index)]
    }
    fn step(&self, index: u8, back: u8) -> (OrderNo, TxId) {
        (OrderNo::new(100 - u64::from(back)), tx(u64::from(index)))
    }
}

struct Rig {
    machine: Machine,
    keys: KeyCache,
    key: ClusterKey,
    principal: Principal,
    instance: Instance,
    now: LocalTime,
    /// Datagrams the machine sent and nobody looked at yet.
    sent: Vec<(ServerId, Vec<u8>)>,
    ended: BTreeMap<u64, Ended>,
    instances: Vec<(Instance, Instance)>,
    nonce: u64,
    next_user: u64,
}

impl Rig {
    fn new(change: impl FnOnce(&mut Config)) -> Self {
        let key = ClusterKey::from_bytes([7; 32]);
        let principal = ordain::wire::auth::principal_id("local").unwrap();
        let mut config = Config::new(3, "local".to_owned(), key.principal(principal), 1);
        config.choice = Choice::Server(place(1));
        change(&mut config);
        Self {
            machine: Machine::new(config).unwrap(),
            keys: KeyCache::new(&key),
            key,
            principal,
            instance: INSTANCE,
            now: LocalTime::new(1_000_000),
            sent: Vec::new(),
            ended: BTreeMap::new(),
            instances: Vec::new(),
            nonce: 0,
            next_user: 0,
        }
    }

    /// With all its sessions open.
    fn open(change: impl FnOnce(&mut Config)) -> Self {
        let mut rig = Self::new(change);
        rig.flush();
        rig.serve_opens();
        assert_eq!(rig.machine.sessions_open(), rig.machine.sessions());
        rig
    }

    fn flush(&mut self) {
        while let Some(server) = self.machine.output() {
            let mut buf = vec![0; PAYLOAD];
            let len = self.machine.fill(self.now, server, &mut buf);
            assert!(len > 0);
            buf.truncate(len);
            self.sent.push((server, buf));
        }
    }

    fn pass(&mut self, span: Span) {
        self.now = self.now.plus(span);
        let (machine, ended, instances) = (&mut self.machine, &mut self.ended, &mut self.instances);
        machine.tick(self.now, &mut |event| note(ended, instances, &event));
        self.flush();
    }

    fn submit_with(&mut self, ids: &[u32], depth: u8) -> Result<u64, SubmitError> {
        let ids: Vec<NodeId> = ids.iter().copied().map(NodeId::new).collect();
        let user = self.next_user;
        self.machine.submit(self.now, &Ask { tx: tx(user), participants: &ids, depth, user })?;
        self.next_user += 1;
        Ok(user)
    }

    fn submit(&mut self) -> u64 {
        self.submit_with(&[1, 2], 0).unwrap()
    }

    /// Answers every OPEN sent so far; returns the requests.
    fn serve_opens(&mut self) -> Vec<Seen> {
        let mut requests = Vec::new();
        for (server, datagram) in std::mem::take(&mut self.sent) {
            let Ok(Opened::Body(envelope, body)) = open_client(&datagram, &mut self.keys) else { panic!("no client") };
            let mut opened = Vec::new();
            for (session, message) in parse_to_server(body, envelope.session).unwrap() {
                match message {
                    ToServer::Open(open) => opened.push(open.nonce),
                    ToServer::Request(view) => requests.push(Seen {
                        server,
                        session,
                        request: view.request,
                        tx: view.tx,
                        retry: view.retry,
                        ids: view.participants.iter().collect(),
                        depth: view.depth,
                    }),
                    other => panic!("{other:?}"),
                }
            }
            for nonce in opened {
                self.nonce += 1;
                let session = SessionId { created: Timestamp::new(5), nonce: self.nonce };
                let (id, payload_max) = (server.id(), 1472);
                let opened =
                    OpenedSession { nonce, session, window: 64, payload_max, credit: 64, server: id, servers: 3 };
                self.say(server, session, |body| opened.put(body).unwrap());
            }
        }
        requests
    }

    /// Everything sent since the last look.
    fn seen(&mut self) -> Vec<Seen> {
        self.flush();
        self.serve_opens()
    }

    fn say(&mut self, server: ServerId, session: SessionId, put: impl FnOnce(&mut BodyWriter<'_>)) {
        let datagram = self.sealed(session, put);
        self.hear(server, &datagram);
    }

    fn sealed(&self, session: SessionId, put: impl FnOnce(&mut BodyWriter<'_>)) -> Vec<u8> {
        let mut buf = vec![0; PAYLOAD];
        let mut body = BodyWriter::new(&mut buf[ENVELOPE_LEN..PAYLOAD - 16]);
        put(&mut body);
        let len = body.len();
        let envelope = ClientEnvelope { instance: self.instance, principal: self.principal, session };
        let len = seal_server(&mut buf, &envelope, len, &self.key.principal(self.principal));
        buf.truncate(len);
        buf
    }

    fn hear(&mut self, server: ServerId, datagram: &[u8]) {
        let (machine, ended, instances) = (&mut self.machine, &mut self.ended, &mut self.instances);
        machine.receive(self.now, server, datagram, &mut |event| note(ended, instances, &event));
    }

    fn head(&self, seen: &Seen, order: u64) -> AnswerHead {
        let (order, ts) = (OrderNo::new(order), Timestamp::new(order));
        AnswerHead { request: seen.request, order, ts, instance: self.instance, provisional: false }
    }

    fn places(seen: &Seen) -> Places {
        let part = |id: &NodeId| PartHead { id: *id, seq: ParticipantSeq::new(9), depth: seen.depth };
        Places { parts: seen.ids.iter().map(part).collect() }
    }

    fn answer(&mut self, from: ServerId, seen: &Seen, order: u64) {
        let (head, places) = (self.head(seen, order), Self::places(seen));
        self.say(from, seen.session, |body| {
            assert_eq!(put_answer(body, AnswerKind::Answer, &head, &places, 0).unwrap(), places.total());
        });
    }

    fn refuse(&mut self, seen: &Seen, reason: Refusal, is_final: bool, retry_after_us: u32) {
        let refused = Refused { request: seen.request, retry_after_us, reason, is_final, detail: 0 };
        self.say(seen.server, seen.session, |body| refused.put(body).unwrap());
    }

    fn counters(&self) -> Counters {
        self.machine.counters()
    }
}

fn note(ended: &mut BTreeMap<u64, Ended>, instances: &mut Vec<(Instance, Instance)>, event: &Event<'_>) {
    match event {
        Event::Done(done) => {
            let end = match done.end {
                End::Ordered(view) => {
                    assert!(view.is_whole());
                    let parts = view.parts().map(|part| (part.id.get(), part.seq.get(), part.history.len()));
                    Ended::Ordered(view.head().order.get(), parts.collect())
                }
                End::Unanswered => Ended::Unanswered,
                End::Refused(verdict) => Ended::Refused(verdict.refusal, verdict.retry_after),
                End::InstanceChanged(to) => Ended::InstanceChanged(to),
            };
            assert!(ended.insert(done.user, end).is_none(), "request {} ended twice", done.user);
        }
        Event::InstanceChanged { from, to } => instances.push((*from, *to)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_of_a_turn_share_a_datagram_and_a_lone_one_does_not_wait() {
    let mut rig = Rig::open(|config| (config.sessions, config.in_flight_max) = (10, 640));
    rig.submit();
    rig.flush();
    assert_eq!(rig.sent.len(), 1);
    assert_eq!(rig.seen().len(), 1);
    (0..20).for_each(|_| {
        rig.submit();
    });
    rig.flush();
    assert_eq!(rig.sent.len(), 1, "twenty requests of 40 bytes fit one datagram");
    let seen = rig.seen();
    assert_eq!(seen.len(), 20);
    assert!(seen.iter().all(|seen| !seen.retry && seen.ids == [NodeId::new(1), NodeId::new(2)]));
}

#[test]
fn datagram_holds_as_many_requests_as_asked_for() {
    let mut rig = Rig::open(|config| config.requests_per_datagram = 3);
    (0..10).for_each(|_| {
        rig.submit();
    });
    rig.flush();
    assert_eq!(rig.sent.len(), 4);
    assert_eq!(rig.seen().len(), 10);
}

#[test]
fn sessions_take_turns_and_full_is_backpressure() {
    let mut rig = Rig::open(|config| (config.sessions, config.in_flight_max) = (2, 1_000));
    assert!(matches!(rig.submit_with(&[], 0), Err(SubmitError::Participants { got: 0, .. })));
    assert!(matches!(rig.submit_with(&[1], 17), Err(SubmitError::Depth { got: 17 })));
    while rig.submit_with(&[1], 0).is_ok() {}
    assert_eq!(rig.machine.in_flight(), 128);
    let seen = rig.seen();
    let mut sessions: HashMap<SessionId, u64> = HashMap::new();
    seen.iter().for_each(|seen| *sessions.entry(seen.session).or_default() += 1);
    assert_eq!(sessions.into_values().collect::<Vec<_>>(), [64, 64]);
    assert_eq!(rig.submit_with(&[1], 0), Err(SubmitError::Full));
    rig.answer(place(1), &seen[0], 1);
    assert!(rig.submit_with(&[1], 0).is_ok());
}

#[test]
fn request_before_any_session_is_told_so() {
    let mut rig = Rig::new(|_| ());
    assert_eq!(rig.submit_with(&[1], 0), Err(SubmitError::NoSession));
}

#[test]
fn answer_ends_a_request_and_another_number_for_it_is_noticed() {
    let mut rig = Rig::open(|_| ());
    let user = rig.submit_with(&[5, 6], 2).unwrap();
    let seen = rig.seen().remove(0);
    rig.answer(place(1), &seen, 41);
    assert_eq!(rig.ended[&user], Ended::Ordered(41, vec![(5, 9, 2), (6, 9, 2)]));
    rig.answer(place(2), &seen, 41);
    assert_eq!((rig.counters().late, rig.counters().duplicates), (1, 0));
    rig.answer(place(2), &seen, 42);
    assert_eq!(rig.counters().duplicates, 1);
    assert_eq!(rig.machine.deadline(), LocalTime::NEVER);
}

#[test]
fn silence_is_retried_with_the_same_number_at_the_next_server_after_doubling_pauses() {
    let mut rig = Rig::open(|_| ());
    let user = rig.submit();
    let first = rig.seen().remove(0);
    let start = rig.now;
    let mut at = Vec::new();
    for server in [2, 3, 1, 2, 3] {
        let pause = rig.machine.deadline().since(rig.now);
        rig.pass(Span::new(pause.get() - 1));
        assert!(rig.seen().is_empty());
        rig.pass(Span::new(1));
        let again = rig.seen().remove(0);
        assert_eq!(again, Seen { server: again.server, retry: true, ..first.clone() });
        at.push((again.server.id(), rig.now.since(start).get() / 1_000_000));
        assert!(server <= 3);
    }
    // Servers 1 to 3 were silent when asked, so that none is better than the next.
    assert_eq!(at.iter().map(|(_, ms)| *ms).collect::<Vec<_>>(), [50, 150, 350, 750, 1550]);
    assert_eq!(at.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [2, 3, 1, 2, 3]);
    rig.pass(Span::secs(5));
    assert_eq!(rig.ended[&user], Ended::Unanswered);
    assert_eq!(rig.machine.in_flight(), 0);
    rig.answer(place(2), &first, 7);
    assert_eq!((rig.ended.len(), rig.counters().late), (1, 1));
}

#[test]
fn lone_attempt_refused_is_final_and_carries_the_advice() {
    let mut rig = Rig::open(|_| ());
    let user = rig.submit();
    let seen = rig.seen().remove(0);
    rig.refuse(&seen, Refusal::Overloaded, false, 2_000);
    assert_eq!(rig.ended[&user], Ended::Refused(Refusal::Overloaded, Span::millis(2)));
}

#[test]
fn refusal_is_not_final_while_another_attempt_may_have_been_admitted() {
    let mut rig = Rig::open(|_| ());
    let user = rig.submit();
    let lost = rig.seen().remove(0);
    rig.pass(Span::millis(50));
    let second = rig.seen().remove(0);
    rig.refuse(&second, Refusal::Overloaded, true, 0);
    assert!(rig.ended.is_empty(), "the first attempt may be in the order");
    rig.refuse(&lost, Refusal::Overloaded, false, 0);
    assert_eq!(rig.ended[&user], Ended::Refused(Refusal::Overloaded, Span::default()));
}

#[test]
fn refusal_of_one_of_two_attempts_at_a_server_proves_nothing() {
    let mut rig = Rig::open(|config| config.servers = 1);
    let user = rig.submit();
    rig.flush();
    rig.pass(Span::millis(50));
    let second = rig.seen().remove(1);
    assert!(second.retry);
    rig.refuse(&second, Refusal::WindowExceeded, true, 0);
    assert!(rig.ended.is_empty());
    rig.pass(Span::secs(5));
    assert_eq!(rig.ended[&user], Ended::Unanswered);
}

/// A refusal without advice comes within a round trip: retries must not fall into that rhythm.
#[test]
fn refusals_do_not_undo_backoff() {
    let mut rig = Rig::open(|config| config.servers = 1);
    rig.submit();
    // The answer to the first attempt is lost; what is asked again is past retention.
    assert_eq!(rig.seen().len(), 1);
    let mut retries = 0;
    for _ in 0..2_000 {
        rig.pass(Span::millis(1));
        for seen in rig.seen() {
            retries += 1;
            rig.refuse(&seen, Refusal::WindowExceeded, true, 0);
        }
    }
    assert!((1..12).contains(&retries), "{retries} retries in two seconds");
}

#[test]
fn content_no_server_takes_is_final_however_often_it_was_sent() {
    for refusal in [Refusal::Malformed, Refusal::RequestDiffers, Refusal::TxDiffers] {
        let mut rig = Rig::open(|config| config.servers = 1);
        let user = rig.submit();
        rig.flush();
        rig.pass(Span::millis(50));
        let second = rig.seen().remove(1);
        rig.refuse(&second, refusal, true, 0);
        assert_eq!(rig.ended[&user], Ended::Refused(refusal, Span::default()));
    }
}

#[test]
fn server_that_is_no_member_sends_a_request_elsewhere_at_once() {
    let mut rig = Rig::open(|_| ());
    let user = rig.submit();
    let mut asked = Vec::new();
    for _ in 0..3 {
        let seen = rig.seen().remove(0);
        asked.push(seen.server.id());
        rig.refuse(&seen, Refusal::NotMember, false, 0);
    }
    assert_eq!(asked, [1, 2, 3]);
    assert_eq!(rig.ended[&user], Ended::Refused(Refusal::NotMember, Span::default()));
}

#[test]
fn answer_in_parts_is_put_together_in_any_order_and_twice() {
    let mut rig = Rig::open(|_| ());
    let ids: Vec<u32> = (0..64).collect();
    let user = rig.submit_with(&ids, 16).unwrap();
    let seen = rig.seen().remove(0);
    let (head, places) = (rig.head(&seen, 12), Rig::places(&seen));
    let (mut datagrams, mut first) = (Vec::new(), 0);
    while first < 64 {
        datagrams.push(rig.sealed(seen.session, |body| {
            first = put_answer(body, AnswerKind::Answer, &head, &places, first).unwrap();
        }));
    }
    assert!(datagrams.len() > 10);
    fastrand::Rng::with_seed(3).shuffle(&mut datagrams);
    for datagram in &datagrams[1..] {
        rig.hear(place(1), datagram);
        rig.hear(place(2), datagram);
    }
    assert!(rig.ended.is_empty());
    rig.hear(place(1), &datagrams[0]);
    let Ended::Ordered(12, parts) = &rig.ended[&user] else { panic!("{:?}", rig.ended) };
    assert_eq!(*parts, ids.iter().map(|id| (*id, 9, 16)).collect::<Vec<_>>());
}

#[test]
fn another_instance_ends_everything_and_the_old_one_is_not_listened_to() {
    let mut rig = Rig::open(|config| config.sessions = 3);
    let users = [rig.submit(), rig.submit()];
    let seen = rig.seen();
    let stale = {
        let (head, places) = (rig.head(&seen[0], 1), Rig::places(&seen[0]));
        rig.sealed(seen[0].session, |body| {
            put_answer(body, AnswerKind::Answer, &head, &places, 0).unwrap();
        })
    };
    rig.instance = Instance::new(0xdef);
    rig.refuse(&seen[1], Refusal::WrongInstance, true, 0);
    for user in users {
        assert_eq!(rig.ended[&user], Ended::InstanceChanged(rig.instance));
    }
    assert_eq!(rig.instances, [(INSTANCE, rig.instance)]);
    rig.hear(place(1), &stale);
    assert_eq!(rig.counters().dropped[DropReason::Instance.index()], 1);
    assert!(rig.seen().is_empty());
    assert_eq!(rig.machine.sessions_open(), 3, "sessions are opened anew");
    let user = rig.submit();
    let seen = rig.seen().remove(0);
    assert_eq!(seen.request, RequestNo::new(1));
    rig.answer(place(1), &seen, 1);
    assert!(matches!(rig.ended[&user], Ended::Ordered(1, _)));
}

#[test]
fn session_a_server_does_not_know_is_opened_anew() {
    let mut rig = Rig::open(|_| ());
    let users = [rig.submit(), rig.submit()];
    let seen = rig.seen();
    rig.refuse(&seen[0], Refusal::SessionUnknown, true, 0);
    assert_eq!(rig.machine.sessions_open(), 0);
    rig.refuse(&seen[1], Refusal::SessionUnknown, true, 0);
    for user in users {
        assert_eq!(rig.ended[&user], Ended::Refused(Refusal::SessionUnknown, Span::default()));
    }
    assert!(rig.seen().is_empty());
    assert_eq!(rig.machine.sessions_open(), 1);
    rig.submit();
    assert_ne!(rig.seen()[0].session, seen[0].session);
}

#[test]
fn sessions_are_asked_for_again_elsewhere_until_opened() {
    let mut rig = Rig::new(|config| config.sessions = 200);
    rig.flush();
    assert!(rig.sent.len() < 5, "many OPENs to a datagram");
    rig.sent.clear();
    rig.pass(Span::millis(100));
    assert!(rig.sent.iter().all(|(server, _)| *server == place(2)));
    rig.serve_opens();
    assert_eq!(rig.machine.sessions_open(), 200);
}

#[test]
fn silent_server_is_passed_over_and_probed_by_one_request_a_second() {
    let mut rig = Rig::open(|config| {
        (config.choice, config.sessions, config.in_flight_max) = (Choice::Spread, 3, 192);
    });
    let mut asked_of_one = 0;
    let mut order = 0;
    for _ in 0..3_000 {
        rig.submit();
        rig.pass(Span::millis(1));
        for seen in rig.seen() {
            if seen.server == place(1) {
                asked_of_one += u64::from(!seen.retry);
            } else {
                order += 1;
                rig.answer(seen.server, &seen, order);
            }
        }
    }
    assert!(order > 2_900 && (15..40).contains(&asked_of_one), "{order} ordered, {asked_of_one} asked of server 1");
}

#[test]
fn garbage_and_other_keys_are_dropped_and_counted() {
    let mut rig = Rig::open(|_| ());
    rig.submit();
    let seen = rig.seen().remove(0);
    let (head, places) = (rig.head(&seen, 1), Rig::places(&seen));
    let good = rig.sealed(seen.session, |body| {
        put_answer(body, AnswerKind::Answer, &head, &places, 0).unwrap();
    });
    let mut random = fastrand::Rng::with_seed(9);
    for _ in 0..2_000 {
        let mut bad = good.clone();
        let at = random.usize(0..bad.len());
        bad[at] ^= 1 << random.u8(0..8);
        bad.truncate(random.usize(0..=bad.len() * 2).min(bad.len()));
        if bad != good {
            rig.hear(place(1), &bad);
        }
    }
    assert!(rig.ended.is_empty());
    assert!(rig.counters().dropped.iter().sum::<u64>() >= 1_900);
    rig.hear(place(1), &good);
    assert_eq!(rig.ended.len(), 1);
}

/// A cluster of one mind behind a network that loses, repeats and delays, with refusals that tell the truth.
#[test]
fn every_request_ends_once_and_truly_whatever_the_network_does() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut rig = Rig::open(|config| {
            (config.choice, config.sessions, config.in_flight_max, config.seed) = (Choice::Spread, 5, 200, seed);
            config.timeout = Span::secs(1);
        });
        let mut ordered: HashMap<TxId, u64> = HashMap::new();
        let mut sent: BTreeMap<TxId, Seen> = BTreeMap::new();
        for turn in 0..3_000_u64 {
            if turn < 2_000 && random.u8(0..2) == 0 {
                let _full = rig.submit_with(&[1, 2, 3], random.u8(0..=16));
            }
            rig.pass(Span::micros(random.u64(1..2_000)));
            for seen in rig.seen() {
                sent.insert(seen.tx, seen.clone());
                let next = u64::try_from(ordered.len()).unwrap() + 1;
                match random.u8(0..10) {
                    0..2 => {}
                    2 if !ordered.contains_key(&seen.tx) => rig.refuse(&seen, Refusal::Overloaded, false, 100),
                    3 => drop(ordered.entry(seen.tx).or_insert(next)),
                    _ => {
                        let order = *ordered.entry(seen.tx).or_insert(next);
                        (0..random.u8(1..3)).for_each(|_| rig.answer(seen.server, &seen, order));
                    }
                }
            }
        }
        rig.pass(Span::secs(2));
        assert_eq!(rig.ended.len() as u64, rig.next_user, "seed {seed}: each request ends, and once");
        assert_eq!((rig.machine.in_flight(), rig.counters().duplicates), (0, 0));
        for (user, end) in &rig.ended {
            match (end, ordered.get(&tx(*user))) {
                (Ended::Ordered(order, _), truth) => assert_eq!(Some(order), truth),
                (Ended::Refused(..), truth) => assert_eq!(truth, None, "seed {seed}: refused and yet ordered"),
                _ => {}
            }
        }
    }
}

#[test]
fn session_switches_within_a_datagram_are_followed() {
    let mut rig = Rig::open(|config| (config.sessions, config.in_flight_max) = (2, 128));
    let one = rig.submit();
    let first = rig.seen().remove(0);
    let two = rig.submit();
    let second = rig.seen().remove(0);
    assert_ne!(first.session, second.session);
    let answers = [(rig.head(&first, 1), &first), (rig.head(&second, 2), &second)];
    let datagram = rig.sealed(SessionId::default(), |body| {
        let mut in_force = SessionId::default();
        for (head, seen) in &answers {
            put_session(body, &mut in_force, seen.session).unwrap();
            put_answer(body, AnswerKind::Answer, head, &Rig::places(seen), 0).unwrap();
        }
    });
    rig.hear(place(1), &datagram);
    assert!(matches!(rig.ended[&one], Ended::Ordered(1, _)) && matches!(rig.ended[&two], Ended::Ordered(2, _)));
}
