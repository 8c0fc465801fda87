//! `ordain order` and `ordain load` as users run them, and the blocking client, against a stand-in for a cluster: three
//! sockets with one plain ledger behind them, which loses, refuses or stalls as told.
#![cfg(test)]

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ordain::client::blocking::{Client, OrderError};
use ordain::client::cluster::Cluster;
use ordain::engine::clock;
use ordain::protocol::{
    Instance, NodeId, OrderNo, ParticipantSeq, Principal, Refusal, RequestNo, SessionId, Span, Timestamp, TxId,
};
use ordain::server::keys::Identity;
use ordain::wire::answer::{AnswerHead, AnswerKind, AnswerSource, PartHead, put_answer};
use ordain::wire::auth::{ClusterKey, KeyCache, PrincipalKey};
use ordain::wire::client::{OpenedSession, Refused, RequestView, ToServer, parse_to_server, put_session};
use ordain::wire::{BodyWriter, ClientEnvelope, ENVELOPE_LEN, Full, Opened, open_client, seal_server};

const PAYLOAD: usize = 1472;
const INSTANCE: Instance = Instance::new(0x0123_4567_89ab_cdef);

/// How the stand-in behaves.
#[derive(Clone, Copy, Default)]
struct Manners {
    /// Datagrams lost, of a hundred, in each direction.
    lost_percent: u8,
    /// Refuse every so-manieth request.
    refuse_every: u64,
    /// Fall silent for this long, this long after the first request.
    stall: Option<(Span, Span)>,
    /// Open no session: no server is a member.
    no_members: bool,
}

#[derive(Clone)]
struct Record {
    order: u64,
    ts: u64,
    parts: Vec<(NodeId, u64)>,
}

/// The ledger of the stand-in: as plain as can be.
#[derive(Default)]
struct Ledger {
    by_tx: HashMap<TxId, Record>,
    sequences: HashMap<NodeId, Vec<(OrderNo, TxId)>>,
    requests: u64,
}

impl Ledger {
    fn place(&mut self, tx: TxId, ids: impl Iterator<Item = NodeId>) -> Record {
        let order = self.by_tx.len() as u64 + 1;
        if let Some(record) = self.by_tx.get(&tx) {
            return record.clone();
        }
        let mut parts = Vec::new();
        for id in ids {
            let sequence = self.sequences.entry(id).or_default();
            sequence.push((OrderNo::new(order), tx));
            parts.push((id, sequence.len() as u64));
        }
        let record = Record { order, ts: 1_000 + order, parts };
        self.by_tx.insert(tx, record.clone());
        record
    }
}

struct Source<'a> {
    ledger: &'a Ledger,
    record: Record,
    depth: u8,
}

impl AnswerSource for Source<'_> {
    fn total(&self) -> u8 {
        u8::try_from(self.record.parts.len()).unwrap()
    }
    fn part(&self, index: u8) -> PartHead {
        let (id, seq) = self.record.parts[usize::from(index)];
        let depth = u8::try_from(u64::from(self.depth).min(seq - 1)).unwrap();
        PartHead { id, seq: ParticipantSeq::new(seq), depth }
    }
    fn step(&self, index: u8, back: u8) -> (OrderNo, TxId) {
        let (id, seq) = self.record.parts[usize::from(index)];
        self.ledger.sequences[&id][usize::try_from(seq).unwrap() - 2 - usize::from(back)]
    }
}

struct StandIn {
    sockets: Vec<UdpSocket>,
    addresses: Vec<SocketAddr>,
    key: ClusterKey,
    manners: Manners,
}

impl StandIn {
    fn new(manners: Manners) -> Self {
        let socket = |_| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        };
        let sockets: Vec<UdpSocket> = (0..3).map(socket).collect();
        let addresses = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
        Self { sockets, addresses, key: ClusterKey::from_bytes([3; 32]), manners }
    }

    fn identity(&self) -> Identity {
        Identity::derive(&self.key, "tester").unwrap()
    }

    fn cluster(&self) -> Cluster {
        let identity = self.identity();
        Cluster {
            servers: self.addresses.clone(),
            name: identity.name().to_owned(),
            key: *identity.key(),
            payload_max: PAYLOAD,
        }
    }

    /// Runs `client` while the stand-in serves.
    fn during<T: Send>(self, client: impl FnOnce(&Self) -> T) -> T {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| Serving::new(&self).until(&done));
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client(&self)));
            done.store(true, Ordering::Relaxed);
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs `ordain` with the flags that lead here.
    fn ordain(&self, args: &[&str]) -> Output {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("tester.key");
        self.identity().create(&key).unwrap();
        let servers: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        let (command, rest) = args.split_first().unwrap();
        let program = env!("CARGO_BIN_EXE_ordain");
        let mut ordain = Command::new(program);
        ordain.arg(command).args(["--servers", &servers.join(",")]).arg("--key").arg(&key).args(rest);
        ordain.output().unwrap()
    }
}

/// The stand-in at work.
struct Serving<'a> {
    stand_in: &'a StandIn,
    keys: KeyCache,
    ledger: Ledger,
    random: fastrand::Rng,
    sessions: u64,
    first_request: Option<u64>,
}

impl<'a> Serving<'a> {
    fn new(stand_in: &'a StandIn) -> Self {
        let keys = KeyCache::new(&stand_in.key);
        let random = fastrand::Rng::with_seed(5);
        Self { stand_in, keys, ledger: Ledger::default(), random, sessions: 0, first_request: None }
    }

    fn until(mut self, done: &AtomicBool) {
        let mut buf = [0; 2048];
        while !done.load(Ordering::Relaxed) {
            let mut idle = true;
            for socket in &self.stand_in.sockets {
                match socket.recv_from(&mut buf) {
                    Ok((len, from)) => {
                        idle = false;
                        self.serve(socket, from, &buf[..len]);
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
            if idle {
                std::thread::park_timeout(Duration::from_micros(50));
            }
        }
    }

    fn lost(&mut self) -> bool {
        self.random.u8(0..100) < self.stand_in.manners.lost_percent
    }

    fn stalled(&self) -> bool {
        let (Some((after, length)), Some(first)) = (self.stand_in.manners.stall, self.first_request) else {
            return false;
        };
        let now = clock::monotonic().get() - first;
        now >= after.get() && now < after.get() + length.get()
    }

    fn serve(&mut self, socket: &UdpSocket, from: SocketAddr, datagram: &[u8]) {
        let Ok(Opened::Body(envelope, body)) = open_client(datagram, &mut self.keys) else { return };
        let opening = envelope.session == SessionId::default();
        if !opening {
            self.first_request.get_or_insert(clock::monotonic().get());
            while self.stalled() {
                std::thread::park_timeout(Duration::from_millis(1));
            }
            if self.lost() {
                return;
            }
        }
        let key = self.keys.key(envelope.principal);
        let mut out = Out::new(socket, from, envelope.principal, key);
        for (session, message) in parse_to_server(body, envelope.session).unwrap() {
            match message {
                ToServer::Open(_) if self.stand_in.manners.no_members => {
                    out.refuse(session, RequestNo::default(), Refusal::NotMember, 0);
                }
                ToServer::Open(open) => {
                    self.sessions += 1;
                    let id = SessionId { created: Timestamp::new(1), nonce: self.sessions };
                    let opened = OpenedSession {
                        nonce: open.nonce,
                        session: id,
                        window: 64,
                        payload_max: 1472,
                        credit: 64,
                        server: 1,
                        servers: 3,
                    };
                    out.put(id, |body| opened.put(body));
                }
                ToServer::Request(view) => self.request(&mut out, session, &view),
                ToServer::Fault(fault) => {
                    out.refuse(session, fault.request, Refusal::Malformed, fault.fault.code());
                }
                other => panic!("{other:?}"),
            }
        }
        if opening || !self.lost() {
            out.flush();
        }
    }

    fn request(&mut self, out: &mut Out<'_>, session: SessionId, view: &RequestView<'_>) {
        self.ledger.requests += 1;
        let every = self.stand_in.manners.refuse_every;
        let known = self.ledger.by_tx.contains_key(&view.tx);
        if every > 0 && self.ledger.requests.is_multiple_of(every) && !known {
            return out.refuse(session, view.request, Refusal::Overloaded, 0);
        }
        let record = self.ledger.place(view.tx, view.participants.iter());
        let (order, ts) = (OrderNo::new(record.order), Timestamp::new(record.ts));
        let head = AnswerHead { request: view.request, order, ts, instance: INSTANCE, provisional: false };
        let source = Source { ledger: &self.ledger, record, depth: view.depth };
        let mut first = 0;
        while first < source.total() {
            out.put(session, |body| {
                first = put_answer(body, AnswerKind::Answer, &head, &source, first)?;
                Ok(())
            });
        }
    }
}

/// Datagrams to one client.
struct Out<'a> {
    socket: &'a UdpSocket,
    to: SocketAddr,
    principal: Principal,
    key: PrincipalKey,
    buf: Vec<u8>,
    len: usize,
    in_force: SessionId,
}

impl<'a> Out<'a> {
    fn new(socket: &'a UdpSocket, to: SocketAddr, principal: Principal, key: PrincipalKey) -> Self {
        Self { socket, to, principal, key, buf: vec![0; PAYLOAD], len: 0, in_force: SessionId::default() }
    }

    fn put(&mut self, session: SessionId, mut write: impl FnMut(&mut BodyWriter<'_>) -> Result<(), Full>) {
        for _ in 0..2 {
            let mut body = BodyWriter::new(&mut self.buf[ENVELOPE_LEN + self.len..PAYLOAD - 16]);
            let mut in_force = self.in_force;
            if put_session(&mut body, &mut in_force, session).and_then(|()| write(&mut body)).is_ok() {
                self.len += body.len();
                self.in_force = in_force;
                return;
            }
            self.flush();
        }
        panic!("a message fits an empty datagram");
    }

    fn refuse(&mut self, session: SessionId, request: RequestNo, reason: Refusal, detail: u8) {
        let refused = Refused { request, retry_after_us: 1_000, reason, is_final: detail != 0, detail };
        self.put(session, |body| refused.put(body));
    }

    fn flush(&mut self) {
        if self.len > 0 {
            let envelope =
                ClientEnvelope { instance: INSTANCE, principal: self.principal, session: SessionId::default() };
            let len = seal_server(&mut self.buf, &envelope, self.len, &self.key);
            let _nobody_there = self.socket.send_to(&self.buf[..len], self.to);
        }
        (self.len, self.in_force) = (0, SessionId::default());
    }
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn blocking_client_orders_again_and_again_and_tells_one_place() {
    StandIn::new(Manners::default()).during(|stand_in| {
        let mut client = Client::connect(stand_in.cluster(), Span::secs(5)).unwrap();
        let ids = [NodeId::new(7), NodeId::new(9)];
        for order in 1..=100_u64 {
            let place = client.order(TxId::new(u128::from(order).to_le_bytes()), &ids, 3).unwrap();
            assert_eq!((place.order, place.instance), (OrderNo::new(order), INSTANCE));
            let depth = usize::try_from(order - 1).unwrap().min(3);
            assert!(place.parts.iter().all(|part| part.seq.get() == order && part.history.len() == depth));
        }
        let again = client.order(TxId::new(5_u128.to_le_bytes()), &ids, 0).unwrap();
        assert_eq!(again.order, OrderNo::new(5));
        let wide: Vec<NodeId> = (0..64).map(NodeId::new).collect();
        assert_eq!(client.order(TxId::new([1; 16]), &wide, 16).unwrap().parts.len(), 64);
        let twice = client.order(TxId::new([2; 16]), &[NodeId::new(1), NodeId::new(1)], 0).unwrap_err();
        assert!(twice.to_string().contains("a participant twice"), "{twice}");
        assert!(matches!(client.order(TxId::new([2; 16]), &[], 0), Err(OrderError::Invalid(_))));
    });
}

#[test]
fn blocking_client_polls_many_at_once() {
    StandIn::new(Manners { lost_percent: 10, ..Manners::default() }).during(|stand_in| {
        let mut client = Client::connect(stand_in.cluster(), Span::secs(5)).unwrap();
        let (mut submitted, mut ordered) = (0_u128, 0);
        while ordered < 500 {
            while submitted < 500 && client.submit(TxId::new(submitted.to_le_bytes()), &[NodeId::new(1)], 0).is_ok() {
                submitted += 1;
            }
            client
                .poll(Span::millis(100), &mut |_, done| {
                    OrderError::or_place(done).unwrap();
                    ordered += 1;
                })
                .unwrap();
        }
        assert_eq!(client.in_flight(), 0);
    });
}

#[test]
fn nobody_there_is_said_in_time() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let stand_in = StandIn::new(Manners::default());
    let cluster = Cluster { servers: vec![silent.local_addr().unwrap()], ..stand_in.cluster() };
    assert!(matches!(Client::connect(cluster, Span::millis(300)), Err(OrderError::Unreachable)));
}

#[test]
fn order_prints_number_sequences_and_histories() {
    StandIn::new(Manners::default()).during(|stand_in| {
        let tx = "000102030405060708090a0b0c0d0e0f";
        let first = stand_in.ordain(&["order", "--participants", "1,2,3", "--tx", tx]);
        let text = String::from_utf8_lossy(&first.stdout).into_owned();
        assert!(first.status.success() && text.contains(&format!("transaction {tx}\nnumber      1\n")), "{text}");
        let second = json(&stand_in.ordain(&["order", "--participants", "3", "--json"]));
        assert_eq!((&second["order"], &second["status"]), (&2.into(), &"ordered".into()));
        assert_eq!(second["parts"], serde_json::json!([{"id": 3, "seq": 2, "hist": [[1, tx]]}]));
        let again = json(&stand_in.ordain(&["order", "--participants", "1,2,3", "--tx", tx, "--json"]));
        assert_eq!(again["order"], 1);
    });
}

#[test]
fn order_tells_what_is_wrong_in_one_line() {
    StandIn::new(Manners { refuse_every: 1, ..Manners::default() }).during(|stand_in| {
        let refused = stand_in.ordain(&["order", "--participants", "1", "--json"]);
        assert_eq!(refused.status.code(), Some(1));
        assert_eq!(json(&refused)["status"], "overloaded");
        let cases = [
            (&["order", "--participants", "1", "--history", "17"][..], 2, "17"),
            (&["order", "--participants", "1", "--tx", "12"], 2, "32 hexadecimal digits"),
            (&["order", "--participants", "x"], 2, "x"),
            (&["load", "--rate", "fast"], 2, "requests a second, or max"),
            (&["load", "--rate", "10", "--server", "4"], 2, "servers 1..3"),
            (&["load", "--rate", "10", "--participants", "1..9", "--participant-space", "3"], 2, "fewer than the 9"),
            (&["load", "--rate", "10", "--trace", "/nowhere/x"], 2, "/nowhere/x"),
        ];
        for (args, status, want) in cases {
            let output = stand_in.ordain(args);
            assert_eq!(output.status.code(), Some(status), "{args:?}: {output:?}");
            let text = stderr(&output);
            assert!(text.contains(want) && text.trim_end().lines().count() == 1, "{args:?}: {text}");
        }
    });
}

#[test]
fn order_without_servers_is_unreachable() {
    let silent = StandIn::new(Manners::default());
    let output = silent.ordain(&["order", "--participants", "1", "--timeout", "300ms"]);
    assert_eq!(output.status.code(), Some(69), "{output:?}");
    assert!(stderr(&output).contains("no server answered in time"));
}

#[test]
fn servers_that_are_no_members_are_named_with_what_they_said() {
    StandIn::new(Manners { no_members: true, ..Manners::default() }).during(|stand_in| {
        let order = stand_in.ordain(&["order", "--participants", "1", "--timeout", "500ms"]);
        let load = stand_in.ordain(&["load", "--rate", "10", "--duration", "100ms", "--timeout", "1s"]);
        for output in [order, load] {
            let text = stderr(&output);
            let said = format!("server 1 ({}) says not_member, server 2 ", stand_in.addresses[0]);
            assert!(output.status.code() == Some(69) && text.contains(&said) && text.lines().count() == 1, "{text}");
        }
    });
}

#[test]
fn load_orders_all_and_its_trace_and_log_are_right() {
    let dir = tempfile::tempdir().unwrap();
    let (trace, hist) = (dir.path().join("run.trace"), dir.path().join("run.hlog"));
    let report = StandIn::new(Manners::default()).during(|stand_in| {
        let flags = ["load", "--rate", "5000", "--duration", "1200ms", "--warmup", "300ms", "--json"];
        let files = ["--trace", trace.to_str().unwrap(), "--hist", hist.to_str().unwrap()];
        let output = stand_in.ordain(&[&flags[..], &files[..]].concat());
        assert!(output.status.success(), "{output:?}");
        json(&output)
    });
    let offered = report["offered"].as_u64().unwrap();
    assert!((5_000..7_000).contains(&offered), "{report}");
    assert_eq!((&report["ordered"], &report["sent"]), (&offered.into(), &offered.into()));
    for zero in ["unanswered", "duplicates", "contradictions", "provisional", "corrected"] {
        assert_eq!(report[zero], 0, "{zero}");
    }
    assert_eq!(report["refused"], serde_json::json!({}));
    for (group, fields) in [
        ("latency_us", &["p50", "p90", "p99", "p999", "p9999", "max"][..]),
        ("service_us", &["p50", "p99", "p999", "max"]),
        ("send_lag_us", &["p50", "p99", "max"]),
    ] {
        let values: Vec<f64> = fields.iter().map(|field| report[group][field].as_f64().unwrap()).collect();
        assert!(values.is_sorted() && values[0] >= 0.0, "{group}: {values:?}");
    }
    assert!(report["longest_gap_ms"]["by_server"]["3"].as_f64().unwrap() >= 0.0, "{report}");
    assert!(report["cpu_seconds"]["generator"].as_f64().is_some() && report["cpu_seconds"]["server_1"].is_number());
    let verify = Command::new(env!("CARGO_BIN_EXE_ordain")).args(["verify", "--from", "1"]).arg(&trace).output();
    let verify = verify.unwrap();
    assert!(verify.status.success(), "{}", String::from_utf8_lossy(&verify.stdout));
    let lines = std::fs::read_to_string(&trace).unwrap();
    let warm = lines.lines().filter(|line| line.contains("\"warmup\":true")).count() as u64;
    assert!(warm > 1_000 && lines.lines().count() as u64 == warm + offered);
    let show = Command::new(env!("CARGO_BIN_EXE_ordain")).args(["hist", "show", "--json"]).arg(&hist).output();
    let show = json(&show.unwrap());
    assert_eq!(show["logs"][0]["count"], offered);
    assert_eq!(show["logs"][0]["intervals"], 2);
}

#[test]
fn load_of_which_all_is_refused_says_no_and_why() {
    StandIn::new(Manners { refuse_every: 1, ..Manners::default() }).during(|stand_in| {
        let flags = ["load", "--rate", "500", "--duration", "300ms", "--warmup", "0s", "--timeout", "500ms", "--json"];
        let output = stand_in.ordain(&flags);
        assert_eq!((output.status.code(), &json(&output)["ordered"]), (Some(1), &0.into()), "{output:?}");
        let text = stderr(&output);
        assert!(text.contains("requests were refused: overloaded") && text.contains("(lower --rate)"), "{text}");
    });
}

#[test]
fn load_through_loss_and_refusals_still_verifies() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("run.trace");
    let manners = Manners { lost_percent: 5, refuse_every: 97, ..Manners::default() };
    let report = StandIn::new(manners).during(|stand_in| {
        let flags = ["load", "--rate", "2000", "--duration", "1s", "--warmup", "0s", "--json", "--timeout", "800ms"];
        let more = ["--skew", "zipf:1.1", "--participants", "1..8", "--history", "16", "--clients", "40"];
        let files = ["--trace", trace.to_str().unwrap()];
        json(&stand_in.ordain(&[&flags[..], &more[..], &files[..]].concat()))
    });
    assert!(
        report["refused"]["overloaded"].as_u64().unwrap() > 5 && report["retries"].as_u64().unwrap() > 50,
        "{report}"
    );
    let sum = report["ordered"].as_u64().unwrap()
        + report["refused"]["overloaded"].as_u64().unwrap()
        + report["unanswered"].as_u64().unwrap();
    assert_eq!(report["offered"], sum);
    assert_eq!((&report["duplicates"], &report["contradictions"]), (&0.into(), &0.into()));
    let verify = Command::new(env!("CARGO_BIN_EXE_ordain")).arg("verify").arg(&trace).output().unwrap();
    assert!(verify.status.success(), "{}", String::from_utf8_lossy(&verify.stdout));
}

#[test]
fn stall_of_the_servers_shows_in_the_latency_and_as_a_gap() {
    let stall = Some((Span::millis(400), Span::millis(300)));
    let report = StandIn::new(Manners { stall, ..Manners::default() }).during(|stand_in| {
        let flags = ["load", "--rate", "1000", "--duration", "1s", "--warmup", "0s", "--json"];
        json(&stand_in.ordain(&flags))
    });
    let (gap, max) = (&report["longest_gap_ms"]["overall"], &report["latency_us"]["max"]);
    assert!(gap.as_f64().unwrap() >= 290.0 && max.as_f64().unwrap() >= 290_000.0, "{report}");
    let p90 = report["latency_us"]["p90"].as_f64().unwrap();
    assert!(p90 > 150_000.0, "a third of the requests were due in the stall, and all of them count: {report}");
}

#[test]
fn search_reports_its_best_step() {
    let report = StandIn::new(Manners::default()).during(|stand_in| {
        let output = stand_in.ordain(&["load", "--rate", "max", "--duration", "3s", "--target-p99", "500ms", "--json"]);
        assert!(output.status.success(), "{output:?}");
        json(&output)
    });
    let best = report["best_rate"].as_f64().unwrap();
    let steps = report["steps"].as_array().unwrap();
    assert!(steps.iter().any(|step| step["passed"] == true && step["rate"].as_f64() == Some(best)), "{report}");
    assert!(report["ordered_per_s"].as_f64().unwrap() > best * 0.8, "{report}");
}

#[test]
fn missed_target_is_told_with_what_was_measured() {
    StandIn::new(Manners::default()).during(|stand_in| {
        let flags = ["load", "--rate", "500", "--duration", "300ms", "--warmup", "0s", "--target-p99", "1us"];
        let output = stand_in.ordain(&flags);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("--target-p99 was missed: the 99 % point is ") && text.contains("target 1 us"), "{text}");
    });
}

#[test]
fn search_in_which_some_are_refused_has_no_best_step_and_says_why() {
    StandIn::new(Manners { refuse_every: 50, ..Manners::default() }).during(|stand_in| {
        let flags = ["load", "--rate", "max", "--duration", "1s", "--target-p99", "5s", "--timeout", "300ms", "--json"];
        let output = stand_in.ordain(&flags);
        let (text, report) = (stderr(&output), json(&output));
        assert_eq!((output.status.code(), &report["best_rate"]), (Some(1), &serde_json::Value::Null), "{text}");
        assert!(text.contains("no rate kept the target") && text.contains("refused: overloaded"), "{text}");
    });
}

#[test]
fn interrupted_load_prints_what_it_has() {
    StandIn::new(Manners::default()).during(|stand_in| {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("tester.key");
        stand_in.identity().create(&key).unwrap();
        let servers: Vec<String> = stand_in.addresses.iter().map(ToString::to_string).collect();
        let mut load = Command::new(env!("CARGO_BIN_EXE_ordain"));
        load.args(["load", "--rate", "1000", "--duration", "60s", "--warmup", "0s", "--json", "--servers"]);
        load.arg(servers.join(",")).arg("--key").arg(&key).arg("--trace").arg(dir.path().join("trace"));
        load.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let child = load.spawn().unwrap();
        let deadline = clock::monotonic().plus(Span::secs(20));
        // It is under way once its trace, flushed in blocks of a quarter of a megabyte, has something in it.
        while std::fs::metadata(dir.path().join("trace")).map_or(0, |file| file.len()) == 0 {
            assert!(clock::monotonic() < deadline, "the load did not begin");
            std::thread::park_timeout(Duration::from_millis(20));
        }
        let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
        assert!(interrupt.success());
        let output = child.wait_with_output().unwrap();
        let report = json(&output);
        assert_eq!((output.status.code(), &report["interrupted"]), (Some(1), &true.into()));
        assert!(report["ordered"].as_u64().unwrap() > 100 && report["unanswered"] == 0, "{report}");
    });
}
