//! Floods: ten times what a server's receive rings hold, of what it must drop, while it orders (situations 1 and 5 of the field).
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Stdio};

use ordain::protocol::{Incarnation, Instance, LocalTime, ServerId, Span, Timestamp};
use ordain::wire::auth::{ClusterKey, principal_id};
use ordain::wire::{ClientEnvelope, ENVELOPE_LEN, PeerEnvelope, seal_client, seal_peer};

use super::support::{Cluster, RawClient, Said, ordain, wait_for};

/// What each ring of the default configuration holds.
const RING: u64 = 1_024;

/// `ordain load`, running; ended with the test.
struct Load(Child);

impl Load {
    fn start(cluster: &Cluster, args: &[&str]) -> Self {
        let mut load = ordain();
        load.args(["load", "--json", "--config"]).arg(cluster.config()).args(args);
        Self(load.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Its report, once it has ended.
    fn report(mut self) -> serde_json::Value {
        wait_for("the load to end", || self.0.try_wait().unwrap());
        serde_json::from_reader(self.0.stdout.take().unwrap()).unwrap()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Two datagrams for each port that a server must drop: garbage, and one that is right in everything but its key.
struct Enemy {
    socket: UdpSocket,
    targets: [(SocketAddr, [Vec<u8>; 2]); 2],
    sent: u64,
}

impl Enemy {
    fn of(cluster: &Cluster, id: u8) -> Self {
        let key = ClusterKey::from_bytes([9; 32]);
        let garbage: Vec<u8> = (0..200_u8).collect();
        let principal = principal_id("local").unwrap();
        let mut client = vec![0; 300];
        let envelope = ClientEnvelope { instance: Instance::new(1), principal, session: Default::default() };
        let len = seal_client(&mut client, &envelope, 300 - ENVELOPE_LEN - 16, &key.principal(principal));
        client.truncate(len);
        let mut peer = vec![0; 300];
        let from = ServerId::from_place(usize::from(id % 3)).unwrap();
        let (inc, sent) = (Incarnation::new(5), Timestamp::new(1));
        let envelope = PeerEnvelope { from, instance: Instance::new(1), inc, sent, eps_ns: 0 };
        let len = seal_peer(&mut peer, &envelope, 300 - ENVELOPE_LEN - 16, &key.peer());
        peer.truncate(len);
        let targets =
            [(cluster.client_address(id), [garbage.clone(), client]), (cluster.peer_address(id), [garbage, peer])];
        Self { socket: UdpSocket::bind("127.0.0.1:0").unwrap(), targets, sent: 0 }
    }

    /// So many datagrams to each port.
    fn flood(&mut self, count: u64) {
        for _ in 0..count / 2 {
            for (to, datagrams) in &self.targets {
                for datagram in datagrams {
                    self.socket.send_to(datagram, to).unwrap();
                    self.sent += 1;
                }
            }
        }
    }
}

fn dropped(cluster: &Cluster, id: u8) -> u64 {
    let reasons = ["magic", "tag", "kind", "too_short", "version", "principal", "place", "own"];
    let of = |socket: &str, reason: &str| cluster.counted(id, &format!("{socket}_dropped_{reason}"));
    reasons.iter().map(|reason| of("client", reason) + of("peer", reason)).sum()
}

fn number(report: &serde_json::Value, field: &str) -> u64 {
    report[field].as_u64().unwrap_or_else(|| panic!("no {field} in {report}"))
}

/// Garbage and mis-keyed datagrams, ten times the receive ring and more at both ports of a server, while 5,000 requests a
/// second are ordered there: every one is ordered, memory does not grow, each drop is counted by its reason.
#[test]
fn a_flood_while_ordering_costs_no_request_and_no_memory() {
    let mut cluster = Cluster::start_with(3, &["ledger.profile=laptop", "engine.receive_buffers=1024"]);
    let warm = Load::start(&cluster, &["--rate", "5000", "--duration", "1s", "--warmup", "100ms", "--server", "1"]);
    assert!(number(&warm.report(), "ordered") > 0);
    let before = cluster.resident_kib(1);
    let mut load = Load::start(&cluster, &["--rate", "5000", "--duration", "4s", "--warmup", "100ms", "--server", "1"]);
    let mut enemy = Enemy::of(&cluster, 1);
    while enemy.sent < 2 * 10 * RING || (load.is_running() && enemy.sent < 8 * 10 * RING) {
        enemy.flood(RING);
    }
    let report = load.report();
    assert_eq!(number(&report, "ordered"), number(&report, "offered"), "{report}");
    assert_eq!((number(&report, "unanswered"), number(&report, "duplicates")), (0, 0), "{report}");
    assert_eq!(number(&report, "contradictions"), 0, "{report}");
    let after = cluster.resident_kib(1);
    // What the second load's own records touch of the tables taken at start: some 100 bytes each.
    assert!(after < before + 8_192, "memory grew from {before} to {after} KiB");
    assert_eq!(cluster.terminate(1).code(), Some(0), "{}", cluster.log(1));
    let (dropped, kernel) = (dropped(&cluster, 1), cluster.counted(1, "kernel_drops"));
    assert!(cluster.counted(1, "client_dropped_tag") > 100, "{}", cluster.log(1));
    assert!(cluster.counted(1, "peer_dropped_tag") > 100, "{}", cluster.log(1));
    assert!(dropped <= enemy.sent, "{dropped} dropped of {}", enemy.sent);
    assert!(dropped + kernel + 64 >= enemy.sent, "{dropped} and {kernel} by the kernel of {}", enemy.sent);
}

/// Situation 1: a burst of ten times the provided buffers at each port ends the multishot receives (ENOBUFS): they are armed
/// again, that is counted, and ordering resumes at once.
#[test]
fn receive_buffers_that_run_dry_do_not_silence_a_server() {
    let mut cluster = Cluster::start_with(3, &["engine.receive_buffers=64", "ledger.profile=laptop"]);
    let to = cluster.client_address(1);
    let mut client = RawClient::new(&cluster, "local");
    client.open(to);
    let mut enemy = Enemy::of(&cluster, 1);
    let mut best = Span::secs(60);
    for round in 1..=5 {
        cluster.stop(1);
        enemy.flood(640);
        cluster.signal(1, "-CONT");
        let begun = ordain::engine::clock::monotonic();
        let said = client.order(to, round, round, &[7], 0);
        best = best.min(ordain::engine::clock::monotonic().since(begun));
        assert!(matches!(&said, Said::Ordered { order, .. } if order.get() == round), "{said:?}");
    }
    // The best of five: the others may have met a busy machine.
    assert!(best < Span::millis(100), "ordering resumed after {best} at best");
    assert_eq!(cluster.terminate(1).code(), Some(0));
    let [dry, rearmed, lost] = ["no_buffers", "rearmed", "kernel_drops"].map(|name| cluster.counted(1, name));
    assert!(dry >= 2 && rearmed >= dry && lost == 0, "{}", cluster.log(1));
    assert_eq!(dropped(&cluster, 1), enemy.sent);
}

/// A socket whose own queue overflows: the kernel's drops are seen and counted.
#[test]
fn drops_by_the_kernel_are_counted() {
    let settings = ["engine.socket_buffer=65536", "engine.receive_buffers=64", "ledger.profile=laptop"];
    let mut cluster = Cluster::start_with(3, &settings);
    cluster.stop(1);
    let mut enemy = Enemy::of(&cluster, 1);
    enemy.flood(RING);
    cluster.signal(1, "-CONT");
    let mut client = RawClient::new(&cluster, "local");
    client.open(cluster.client_address(1));
    assert!(matches!(client.order(cluster.client_address(1), 1, 1, &[7], 0), Said::Ordered { .. }));
    assert_eq!(cluster.terminate(1).code(), Some(0));
    let (dropped, kernel) = (dropped(&cluster, 1), cluster.counted(1, "kernel_drops"));
    assert!(kernel > 100, "{}", cluster.log(1));
    assert!(dropped < enemy.sent && dropped + kernel >= enemy.sent, "{dropped} + {kernel} of {}", enemy.sent);
}

/// Situation 5: numbers are dense, so nobody ever waits at a hole: across pauses of each server, the retries they cause, and
/// a flood. `ordain verify` looks at every answer.
#[test]
fn numbers_have_no_gap_across_pauses_retries_and_a_flood() {
    let cluster = Cluster::start_with(3, &["engine.receive_buffers=64", "ledger.profile=laptop"]);
    let scratch = tempfile::tempdir().unwrap();
    let trace = scratch.path().join("trace.jsonl");
    let trace = trace.to_str().unwrap();
    let mut load = Load::start(
        &cluster,
        &["--rate", "3000", "--duration", "4s", "--warmup", "100ms", "--history", "4", "--trace", trace],
    );
    let mut enemy = Enemy::of(&cluster, 2);
    for id in [1, 2, 3] {
        assert!(load.is_running());
        cluster.stop(id);
        let begun = ordain::engine::clock::monotonic();
        enemy.flood(640);
        wait_for("a pause", || (ordain::engine::clock::monotonic().since(begun) >= Span::millis(200)).then_some(()));
        cluster.signal(id, "-CONT");
        let resumed: LocalTime = ordain::engine::clock::monotonic();
        wait_for("some ordering", || {
            (ordain::engine::clock::monotonic().since(resumed) >= Span::millis(300)).then_some(())
        });
    }
    let report = load.report();
    assert_eq!(number(&report, "ordered"), number(&report, "offered"), "{report}");
    let verify = ordain().args(["verify", trace]).output().unwrap();
    let text = String::from_utf8_lossy(&verify.stdout).into_owned() + &String::from_utf8_lossy(&verify.stderr);
    assert_eq!(verify.status.code(), Some(0), "{text}");
}
