//! What enemies and defective clients send: dropped and counted, or refused by name; nothing else happens.
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use ordain::protocol::{Instance, Principal, Refusal, RequestNo, SessionId, TxId};
use ordain::wire::auth::{ClusterKey, principal_id};
use ordain::wire::client::{Fault, RequestView, SESSION};
use ordain::wire::{BodyWriter, ClientEnvelope, ENVELOPE_LEN, Participants, PeerEnvelope, seal_client, seal_peer};

use super::support::{Cluster, RawClient, Said};

fn malformed(fault: Fault) -> Said {
    Said::Refused { why: Refusal::Malformed, is_final: true, detail: fault.code() }
}

/// A valid key and invalid content: an explicit refusal that names the fault.
#[test]
fn invalid_content_under_a_valid_key_is_refused_by_name() {
    let cluster = Cluster::start(1);
    let to = cluster.client_address(1);
    let mut client = RawClient::new(&cluster, "local");
    client.open(to);
    let many: Vec<u32> = (0..65).collect();
    let cases: [(u64, &[u32], u8, Fault); 5] = [
        (1, &[], 0, Fault::NoParticipants),
        (2, &many, 0, Fault::TooManyParticipants),
        (3, &[7, 8, 7], 0, Fault::DuplicateParticipant),
        (4, &[7], 17, Fault::DepthTooLarge),
        (0, &[7], 0, Fault::RequestZero),
    ];
    for (request, participants, depth, fault) in cases {
        assert_eq!(client.order(to, request, 1, participants, depth), malformed(fault), "{fault:?}");
    }
    // Bytes that are no messages, under a valid tag.
    let junk = client.seal(|body| body.put_payload(0x99, 0, &[1, 2, 3]).unwrap());
    client.send(to, &junk);
    assert_eq!(client.said_within(0, Duration::from_secs(5)), Some(malformed(Fault::Unreadable)));
    // None of it used a number.
    let said = client.order(to, 9, 9, &[7], 0);
    assert!(matches!(said, Said::Ordered { order, .. } if order.get() == 1), "{said:?}");
}

/// Another version under a valid tag is told which one is spoken here.
#[test]
fn another_version_is_refused_as_such() {
    let cluster = Cluster::start(1);
    let to = cluster.client_address(1);
    let mut client = RawClient::new(&cluster, "local");
    client.open(to);
    // The tag covers the version, so it has to be made anew.
    let mut datagram = client.request(1, 1, &[7], 0);
    datagram[2] = 2;
    let covered = datagram.len() - 16;
    let key = cluster.key().principal(principal_id("local").unwrap());
    let tag = ordain::wire::auth::tag(&key, &datagram[..covered]);
    datagram[covered..].copy_from_slice(&tag);
    client.send(to, &datagram);
    let said = client.said_within(0, Duration::from_secs(5));
    assert_eq!(said, Some(Said::Refused { why: Refusal::Version, is_final: true, detail: ordain::wire::VERSION }));
}

/// One of each kind of bad datagram, to one port.
struct Volley {
    socket: UdpSocket,
    to: SocketAddr,
    sent: u64,
}

impl Volley {
    fn new(to: SocketAddr) -> Self {
        Self { socket: UdpSocket::bind("127.0.0.1:0").unwrap(), to, sent: 0 }
    }

    fn send(&mut self, datagram: &[u8]) {
        self.socket.send_to(datagram, self.to).unwrap();
        self.sent += 1;
    }

    /// Garbage, every truncation of a good datagram, the good one with each byte changed, and too long a one.
    fn all(&mut self, good: &[u8]) {
        let mut rng = fastrand::Rng::with_seed(11);
        for len in [0, 1, 3, 16, 55, 56, 57, 200, 1472] {
            let garbage: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
            self.send(&garbage);
        }
        for len in 0..good.len() {
            self.send(&good[..len]);
        }
        for at in 0..good.len() {
            let mut altered = good.to_vec();
            altered[at] ^= 1 << rng.u32(..8);
            self.send(&altered);
        }
        self.send(&vec![0x4f; 9_000]);
    }
}

fn request(session: SessionId) -> Vec<u8> {
    let ids = 7_u32.to_le_bytes();
    let mut buf = vec![0; 400];
    let mut body = BodyWriter::new(&mut buf[ENVELOPE_LEN..]);
    body.put_payload(SESSION, 0, &session.to_bytes()).unwrap();
    let view = RequestView {
        request: RequestNo::new(50),
        tx: TxId::new([50; 16]),
        depth: 0,
        retry: false,
        participants: Participants::new(&ids),
    };
    view.put(&mut body).unwrap();
    let len = body.len();
    buf.truncate(ENVELOPE_LEN + len);
    buf
}

/// Sealed as `principal` with the key of `key`.
fn sealed(session: SessionId, principal: Principal, key: &ClusterKey, keyed_as: &str) -> Vec<u8> {
    let mut buf = request(session);
    let body_len = buf.len() - ENVELOPE_LEN;
    buf.resize(buf.len() + 16, 0);
    let envelope = ClientEnvelope { instance: Instance::NONE, principal, session };
    let key = key.principal(principal_id(keyed_as).unwrap());
    let len = seal_client(&mut buf, &envelope, body_len, &key);
    assert_eq!(len, buf.len());
    buf
}

/// Truncated, oversized, altered, mis-keyed and garbage datagrams, at the client port and at the peer port: dropped and
/// counted by reason, never answered; a replayed request changes nothing; order goes on and memory does not grow.
#[test]
fn hostile_datagrams_are_dropped_and_counted_and_nothing_else() {
    let mut cluster = Cluster::start(3);
    let to = cluster.client_address(1);
    let mut client = RawClient::new(&cluster, "local");
    client.open(to);
    assert!(matches!(client.order(to, 1, 1, &[7], 0), Said::Ordered { .. }));
    let before = cluster.resident_kib(1);
    let (key, other_key) = (cluster.key(), ClusterKey::from_bytes([9; 32]));
    let local = principal_id("local").unwrap();

    let mut clients = Volley::new(to);
    clients.all(&sealed(client.session, local, &key, "local"));
    // As another principal, with the own key; with the key of another cluster; a peer's datagram at the client port.
    clients.send(&sealed(client.session, local, &key, "mallory"));
    clients.send(&sealed(client.session, local, &other_key, "local"));
    let mut peers = Volley::new(cluster.peer_address(1));
    let peer = |key: &ClusterKey, inc: u64| {
        let mut buf = vec![0; 400];
        let from = ordain::protocol::ServerId::from_place(1).unwrap();
        let (inc, sent) = (ordain::protocol::Incarnation::new(inc), ordain::protocol::Timestamp::new(1));
        let envelope = PeerEnvelope { from, instance: client.instance, inc, sent, eps_ns: 0 };
        let len = seal_peer(&mut buf, &envelope, 0, &key.peer());
        buf.truncate(len);
        buf
    };
    clients.send(&peer(&key, 5));
    peers.all(&peer(&key, 5));
    peers.send(&peer(&other_key, 5));
    // A client's datagram, with a client's key, at the peer port.
    peers.send(&sealed(client.session, local, &key, "local"));

    // Replayed a thousand times, the request has the one place it had.
    let replay = client.request(1, 1, &[7], 0);
    (0..1000).for_each(|_| client.send(to, &replay));
    let said = client.order(to, 2, 2, &[7], 1);
    assert!(matches!(&said, Said::Ordered { order, .. } if order.get() == 2), "{said:?}");
    let mut buf = [0; 64];
    for volley in [&clients, &peers] {
        volley.socket.set_nonblocking(true).unwrap();
        assert!(volley.socket.recv(&mut buf).is_err(), "a datagram that is not authentic was answered");
    }
    let after = cluster.resident_kib(1);
    assert!(after < before + 4_096, "memory grew from {before} to {after} KiB");
    assert_eq!(cluster.terminate(1).code(), Some(0));
    let dropped = |socket: &str| {
        let reasons =
            ["too_short", "too_long", "magic", "version", "kind", "place", "principal", "tag", "own", "instance"];
        reasons.iter().map(|reason| cluster.counted(1, &format!("{socket}_dropped_{reason}"))).sum::<u64>()
    };
    assert!(cluster.counted(1, "client_dropped_tag") > 50 && cluster.counted(1, "client_dropped_too_short") > 50);
    assert!(cluster.counted(1, "peer_dropped_tag") > 20 && cluster.counted(1, "peer_dropped_kind") >= 1);
    // The one that is longer than any buffer never reaches a parser; whatever else was sent is accounted for.
    assert!(dropped("client") + 2 >= clients.sent, "{} of {}", dropped("client"), clients.sent);
    assert!(dropped("peer") + 2 >= peers.sent, "{} of {}", dropped("peer"), peers.sent);
}

/// A flood of ten times the receive buffers, while the server cannot keep up with it: receiving goes on afterwards,
/// and requests of honest clients are answered.
#[test]
fn a_flood_at_both_ports_does_not_silence_a_server() {
    let cluster = Cluster::start_with(3, &["engine.receive_buffers=64"]);
    let to = cluster.client_address(1);
    let mut client = RawClient::new(&cluster, "local");
    client.open(to);
    cluster.stop(1);
    let (mut clients, mut peers) = (Volley::new(to), Volley::new(cluster.peer_address(1)));
    for round in 0..700_u32 {
        clients.send(&round.to_le_bytes().repeat(50));
        peers.send(&round.to_le_bytes().repeat(50));
    }
    cluster.signal(1, "-CONT");
    for number in 1..=50 {
        let said = client.order(to, number, number, &[7], 0);
        assert!(matches!(&said, Said::Ordered { order, .. } if order.get() == number), "{said:?}");
    }
}
