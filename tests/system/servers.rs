//! Servers as an operator meets them: started, stopped, killed, started anew.
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use ordain::protocol::{
    Epoch, FrameNo, Incarnation, Instance, NodeId, OrderNo, ParticipantSeq, Refusal, ServerId, StreamId, Timestamp,
};
use ordain::wire::peer::{PeerMessage, Pull, messages};
use ordain::wire::{BodyWriter, ENVELOPE_LEN, PeerEnvelope, open_peer, seal_peer};

use super::support::{Cluster, RawClient, Said, ordain, tx_id, wait_for};

fn order_of(said: &Said) -> u64 {
    match said {
        Said::Ordered { order, .. } => order.get(),
        Said::Refused { .. } => panic!("refused: {said:?}"),
    }
}

/// This is no sequencer: any server takes requests, and all of them give one order, with sequences and histories.
#[test]
fn any_server_takes_requests_and_all_give_one_order() {
    let cluster = Cluster::start(3);
    let mut client = RawClient::new(&cluster, "local");
    client.open(cluster.client_address(1));
    for (number, id) in (1..).zip([1, 2, 3, 3, 2, 1]) {
        let said = client.order(cluster.client_address(id), number, number, &[5, 6], 2);
        assert_eq!(order_of(&said), number, "asked at server {id}");
    }
    // A retry at another server has the same place; its depth is its own.
    let said = client.order(cluster.client_address(2), 4, 4, &[5, 6], 16);
    let before = |n| (OrderNo::new(n), tx_id(n));
    let part = |id| (NodeId::new(id), ParticipantSeq::new(4), vec![before(3), before(2), before(1)]);
    assert_eq!(said, Said::Ordered { order: OrderNo::new(4), parts: vec![part(5), part(6)] });
}

#[test]
fn clusters_of_one_five_and_seven_order() {
    for n in [1, 5, 7] {
        let cluster = Cluster::start_with(n, &["ledger.retain_entries=1000", "ledger.retain_parts=3000"]);
        let mut client = RawClient::new(&cluster, "local");
        client.open(cluster.client_address(n));
        for number in 1..=3_u8 {
            let id = 1 + number % n;
            let number = u64::from(number);
            let said = client.order(cluster.client_address(id), number, number, &[1], 1);
            assert_eq!(order_of(&said), number, "{n} servers");
        }
    }
}

#[test]
fn ingress_and_order_run_on_threads_of_their_own() {
    let cluster = Cluster::start_with(3, &["engine.map=order | ingress"]);
    assert!(cluster.log(1).contains("core ingress-1"), "{}", cluster.log(1));
    let mut client = RawClient::new(&cluster, "local");
    client.open(cluster.client_address(1));
    for number in 1..=20 {
        let said = client.order(cluster.client_address(1), number, number, &[1, 2], 4);
        assert_eq!(order_of(&said), number);
    }
}

/// `order` ends first and says so to `ingress`, which no datagram may come to wake.
#[test]
#[expect(clippy::disallowed_methods, reason = "how long the end takes is what is asked")]
fn a_server_that_holds_nothing_ends_at_once() {
    for map in ["engine.map=order+ingress", "engine.map=order | ingress", "engine.map=ingress | order+ingress"] {
        let mut cluster = Cluster::start_with(1, &[map]);
        let asked = Instant::now();
        assert!(cluster.terminate(1).success(), "{}", cluster.log(1));
        let took = asked.elapsed();
        assert!(took < Duration::from_secs(2), "{map}: {took:?}\n{}", cluster.log(1));
    }
}

/// While any one server is stopped nothing new is answered anywhere, and everything is once it goes on: an entry needs
/// the promise of every open stream (R-DELIVER), and no configuration changes in this version.
#[test]
fn with_one_server_stopped_nothing_new_is_answered_until_it_goes_on() {
    let cluster = Cluster::start(3);
    let mut client = RawClient::new(&cluster, "local");
    client.open(cluster.client_address(1));
    assert_eq!(order_of(&client.order(cluster.client_address(1), 1, 1, &[9], 0)), 1);
    for (stopped, request) in [(1_u8, 2_u64), (2, 3), (3, 4)] {
        cluster.stop(stopped);
        for id in (1..=3).filter(|id| *id != stopped) {
            let datagram = client.request(request, request, &[9], 0);
            client.send(cluster.client_address(id), &datagram);
            let said = client.said_within(request, Duration::from_millis(400));
            assert_eq!(said, None, "server {stopped} stopped, asked at {id}");
        }
        // What is answered already needs nobody.
        let other = if stopped == 1 { 2 } else { 1 };
        assert_eq!(order_of(&client.order(cluster.client_address(other), 1, 1, &[9], 0)), 1);
        cluster.signal(stopped, "-CONT");
        let said = wait_for("the answer after it goes on", || client.said_within(request, Duration::from_millis(500)));
        // Two copies, stamped at two servers: one number.
        assert_eq!(order_of(&said), request);
    }
}

/// A process that has a server's key, in the place of a server that was killed.
struct InItsPlace {
    socket: UdpSocket,
    key: ordain::wire::auth::PeerKey,
    place: ServerId,
}

impl InItsPlace {
    fn send(&self, to: std::net::SocketAddr, instance: Instance, write: impl FnOnce(&mut BodyWriter<'_>)) {
        let mut buf = vec![0; 1472];
        let mut body = BodyWriter::new(&mut buf[ENVELOPE_LEN..1400]);
        write(&mut body);
        let len = body.len();
        let (from, inc, sent) = (self.place, Incarnation::new(1), Timestamp::new(1));
        let envelope = PeerEnvelope { from, instance, inc, sent, eps_ns: 0 };
        let len = seal_peer(&mut buf, &envelope, len, &self.key);
        self.socket.send_to(&buf[..len], to).unwrap();
    }

    fn receive<T>(&self, mut take: impl FnMut(&PeerEnvelope, PeerMessage<'_>) -> Option<T>) -> Option<T> {
        let mut buf = [0; 2048];
        let (len, _) = self.socket.recv_from(&mut buf).ok()?;
        let (envelope, body) = open_peer(&buf[..len], &self.key).unwrap();
        messages(body).find_map(|message| take(&envelope, message.unwrap()))
    }
}

/// What was answered is at a majority: after kill -9 of the server that answered, its entry is in a survivor's streams,
/// whether the survivor could deliver it or not. The survivor is asked by PULL, as a server would ask.
#[test]
fn what_a_killed_server_answered_is_in_a_survivors_streams() {
    let mut cluster = Cluster::start(3);
    let mut client = RawClient::new(&cluster, "local");
    client.open(cluster.client_address(1));
    let tx = |n: u64| tx_id(100 + n);
    for number in 1..=10 {
        client.order(cluster.client_address(1), number, 100 + number, &[3], 0);
    }
    cluster.kill(1);
    let socket = wait_for("the killed server's port", || UdpSocket::bind(cluster.peer_address(1)).ok());
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let place = ServerId::from_place(0).unwrap();
    let survivors = InItsPlace { socket, key: cluster.key().peer(), place };
    let instance = wait_for("a survivor's header", || survivors.receive(|envelope, _| Some(envelope.instance)));
    let mut found = std::collections::BTreeSet::new();
    let stream = StreamId { server: place, opened: Epoch::new(0) };
    wait_for("the answered entries at the survivors", || {
        for id in [2, 3] {
            let pull = Pull { stream, from: FrameNo::new(1), to: FrameNo::new(64) };
            survivors.send(cluster.peer_address(id), instance, |body| pull.put(body).unwrap());
        }
        survivors.receive(|_, message| -> Option<()> {
            if let PeerMessage::Frame(frame) = message {
                found.extend(frame.entries().map(|entry| entry.tx));
            }
            None
        });
        // Frames that every server held may have been dropped after delivery: then the survivors' ledgers have them.
        let mut said = |number| client.order(cluster.client_address(2), number, 100 + number, &[3], 0);
        let held = |number: &u64| found.contains(&tx(*number));
        let delivered =
            (1..=10).filter(|number| !held(number)).all(|number| matches!(said(number), Said::Ordered { .. }));
        delivered.then_some(())
    });
}

/// Until epochs change, a server that restarts is refused by the others, clearly; it takes no part and harms nobody.
#[test]
fn a_restarted_server_is_refused_and_says_why() {
    let mut cluster = Cluster::start(3);
    let mut client = RawClient::new(&cluster, "local");
    client.open(cluster.client_address(1));
    assert_eq!(order_of(&client.order(cluster.client_address(1), 1, 1, &[9], 0)), 1);
    let instance = client.instance;
    for id in [3, 1] {
        cluster.kill(id);
        cluster.spawn(id, &[]);
        cluster.wait_log(id, &format!("refused: instance {instance} lives"));
        cluster.wait_log(2, &format!("server {id} was started anew"));
        let said = client.order(cluster.client_address(id), 1, 1, &[9], 0);
        assert_eq!(said, Said::Refused { why: Refusal::NotMember, is_final: false, detail: 0 });
    }
    // The one that remembers still answers what was ordered, and nothing new.
    assert_eq!(order_of(&client.order(cluster.client_address(2), 1, 1, &[9], 0)), 1);
    let datagram = client.request(2, 2, &[9], 0);
    client.send(cluster.client_address(2), &datagram);
    assert_eq!(client.said_within(2, Duration::from_millis(300)), None);
}

/// SIGTERM stops admitting, finishes what is held, exits 0; a server that cannot finish says how much it left, exits 69.
#[test]
fn sigterm_finishes_what_is_held() {
    let mut cluster = Cluster::start(3);
    let mut client = RawClient::new(&cluster, "local");
    client.open(cluster.client_address(1));
    assert_eq!(order_of(&client.order(cluster.client_address(1), 1, 1, &[9], 0)), 1);
    // A request that waits for a stopped server is finished by a server that was told to end meanwhile.
    cluster.stop(3);
    let datagram = client.request(2, 2, &[9], 0);
    client.send(cluster.client_address(1), &datagram);
    assert_eq!(client.said_within(2, Duration::from_millis(200)), None);
    cluster.signal(1, "-TERM");
    cluster.wait_log(1, "finishing what is held");
    let refused = client.order(cluster.client_address(1), 3, 3, &[9], 0);
    assert_eq!(refused, Said::Refused { why: Refusal::NotMember, is_final: false, detail: 0 });
    cluster.signal(3, "-CONT");
    let said = wait_for("the answer of the ending server", || client.said_within(2, Duration::from_millis(200)));
    assert_eq!(order_of(&said), 2);
    assert_eq!(cluster.ended(1).code(), Some(0), "{}", cluster.log(1));
    // Without server 1 nothing new can be finished: told to end, server 2 leaves it, and says so.
    let datagram = client.request(4, 4, &[9], 0);
    client.send(cluster.client_address(2), &datagram);
    assert_eq!(client.said_within(4, Duration::from_millis(200)), None);
    assert_eq!(cluster.terminate(2).code(), Some(69), "{}", cluster.log(2));
    assert!(cluster.log(2).contains("1 requests unanswered"), "{}", cluster.log(2));
}

/// A setting that must agree and does not is named by both sides, and no instance forms.
#[test]
fn a_setting_that_differs_is_named_by_both_sides() {
    let mut cluster = Cluster::prepare(3, &[]);
    cluster.spawn(1, &[]);
    cluster.spawn(2, &["ledger.retain_entries=5000"]);
    cluster.spawn(3, &[]);
    for (id, other) in [(1, 2), (2, 1)] {
        cluster.wait_log(id, &format!("server {other} is configured differently: ledger.retain_entries is"));
    }
    assert!(!cluster.log(1).contains("ready: instance"));
}

/// Servers may come in any order and late; whoever is missing is named.
#[test]
fn servers_wait_for_each_other_and_name_who_is_missing() {
    let mut cluster = Cluster::prepare(3, &[]);
    cluster.spawn(1, &[]);
    cluster.spawn(3, &[]);
    cluster.wait_log(1, "waiting for server 2");
    let mut client = RawClient::new(&cluster, "local");
    let said = client.order(cluster.client_address(1), 1, 1, &[9], 0);
    assert_eq!(said, Said::Refused { why: Refusal::NotMember, is_final: false, detail: 0 });
    cluster.spawn(2, &[]);
    (1..=3).for_each(|id| cluster.wait_log(id, "ready: instance"));
}

#[test]
fn a_port_in_use_is_named_with_its_mend() {
    let cluster = Cluster::start(1);
    let config = cluster.config();
    let output = ordain().args(["serve", "--id", "1", "--config"]).arg(&config).output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{err}");
    let port = cluster.peer_address(1).port().to_string();
    assert!(err.contains(&port) && err.contains("in use"), "{err}");
    assert!(!err.contains("panicked"), "{err}");
}
