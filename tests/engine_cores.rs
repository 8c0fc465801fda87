//! Cores and roles: messages between roles on one core and on two, stopping, idling, answering datagrams.
#![cfg(test)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use ordain::engine::backend::{Io, Received, SocketId};
use ordain::engine::clock;
use ordain::engine::cores::{Core, CoreConfig, Now, Role, Running, Turn, Waiting};
use ordain::engine::link::{Outlet, link};
use ordain::engine::net::{Socket, SocketOptions};
use ordain::engine::ring::Consumer;
use ordain::engine::stop::Stop;
use ordain::engine::uring::{Uring, UringConfig};
use ordain::engine::wake::Bell;
use ordain::protocol::{LocalTime, Span};

/// Sends numbers up to `last` one at a time to the other, which adds one; or is that other.
struct Player {
    inbox: Consumer<u64>,
    outbox: Outlet<u64>,
    serves: Option<u64>,
    last: u64,
    reached: Arc<AtomicU64>,
}

impl Role for Player {
    fn name(&self) -> &'static str {
        "player"
    }

    fn datagram(&mut self, _: Now, _: Received<'_>) {}

    fn turn(&mut self, _: Now, _: bool, _: &mut dyn Io) -> Turn {
        let (outbox, last) = (&mut self.outbox, self.last);
        let mut reached = self.reached.load(Ordering::Relaxed);
        let mut work = 0;
        if let Some(first) = self.serves.take() {
            outbox.push(first).expect("room for one ball");
            work += 1;
        }
        work += self.inbox.pop_batch(8, |ball| {
            reached = *ball;
            if *ball < last {
                outbox.push(*ball + 1).expect("room for one ball");
            }
        });
        outbox.flush();
        self.reached.store(reached, Ordering::Relaxed);
        Turn { finished: reached >= last.saturating_sub(1), ..Turn::new(work, LocalTime::NEVER) }
    }
}

fn backend(sockets: Vec<Socket>, bell: Bell) -> Uring {
    Uring::new(UringConfig::default(), sockets, bell).expect("a ring")
}

fn config(waiting: Waiting) -> CoreConfig {
    CoreConfig { waiting, ..CoreConfig::new("test") }
}

fn players(last: u64, bells: [&Bell; 2]) -> ([Box<dyn Role>; 2], [Arc<AtomicU64>; 2]) {
    let (to_right, from_left) = link(4, bells[1].waker());
    let (to_left, from_right) = link(4, bells[0].waker());
    let reached: [Arc<AtomicU64>; 2] = [Arc::default(), Arc::default()];
    let left = Player { inbox: from_right, outbox: to_right, serves: Some(1), last, reached: Arc::clone(&reached[0]) };
    let right = Player { inbox: from_left, outbox: to_left, serves: None, last, reached: Arc::clone(&reached[1]) };
    ([Box::new(left), Box::new(right)], reached)
}

#[test]
fn roles_on_one_core_exchange_messages_without_sleeping() {
    let bell = Bell::new().expect("an event descriptor");
    let ([left, right], reached) = players(10_000, [&bell, &bell]);
    let core = Core::new(config(Waiting::Park), backend(Vec::new(), bell)).with(left, &[]).with(right, &[]);
    let report = core.run(&Stop::new()).expect("the core starts");
    assert_eq!(reached.map(|ball| ball.load(Ordering::Relaxed)).into_iter().max(), Some(10_000));
    assert_eq!(report.io.waits, 0, "{report:?}");
    assert!(report.io.enters < 100, "no system calls between roles: {report:?}");
}

fn across_two_cores(waiting: Waiting, last: u64) {
    let bells = [Bell::new().expect("an event descriptor"), Bell::new().expect("an event descriptor")];
    let ([left, right], reached) = players(last, [&bells[0], &bells[1]]);
    let stop = Stop::new();
    let running: Vec<Running> = [left, right]
        .into_iter()
        .zip(bells)
        .map(|(role, bell)| {
            Core::new(config(waiting), backend(Vec::new(), bell)).with(role, &[]).spawn(&stop).expect("it starts")
        })
        .collect();
    for core in running {
        core.join().expect("the core ends");
    }
    assert_eq!(reached.map(|ball| ball.load(Ordering::Relaxed)).into_iter().max(), Some(last));
}

#[test]
fn roles_on_two_cores_exchange_messages_parked() {
    across_two_cores(Waiting::Park, 2_000);
}

#[test]
fn roles_on_two_cores_exchange_messages_hybrid() {
    across_two_cores(Waiting::Hybrid { spin: Span::micros(20) }, 2_000);
}

/// Answers every datagram with its bytes, and ends when asked to.
struct Echo {
    socket: SocketId,
    stop: Stop,
    waiting: Vec<(SocketAddr, Vec<u8>)>,
}

impl Role for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn datagram(&mut self, now: Now, got: Received<'_>) {
        assert!(now.local <= clock::monotonic());
        self.waiting.push((got.from, got.data.to_vec()));
    }

    fn turn(&mut self, _: Now, _: bool, io: &mut dyn Io) -> Turn {
        let work = self.waiting.len();
        for (to, data) in self.waiting.drain(..) {
            io.send_bytes(self.socket, to, &data).expect("a send buffer");
        }
        Turn { finished: self.stop.is_requested(), ..Turn::new(work, LocalTime::NEVER) }
    }
}

fn echo(waiting: Waiting) -> (Running, SocketAddr, Stop) {
    let (stop, bell) = (Stop::new(), Bell::new().expect("an event descriptor"));
    stop.watch(bell.waker());
    let socket = Socket::bind("127.0.0.1:0".parse().expect("an address"), SocketOptions::default()).expect("a port");
    let address = socket.local();
    let role = Echo { socket: SocketId::new(0), stop: stop.clone(), waiting: Vec::new() };
    let core = Core::new(config(waiting), backend(vec![socket], bell)).with(Box::new(role), &[SocketId::new(0)]);
    (core.spawn(&stop).expect("the core starts"), address, stop)
}

fn peer(to: SocketAddr) -> std::net::UdpSocket {
    let peer = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    peer.set_read_timeout(Some(std::time::Duration::from_secs(10))).expect("a timeout");
    peer.connect(to).expect("the loopback");
    peer
}

#[test]
fn light_load_costs_one_system_call_a_datagram() {
    let (core, address, stop) = echo(Waiting::Park);
    let peer = peer(address);
    let before = core.report();
    let mut buffer = [0; 64];
    for number in 0..1000_u64 {
        peer.send(&number.to_ne_bytes()).expect("a send");
        assert_eq!(peer.recv(&mut buffer).expect("the answer"), 8);
        assert_eq!(buffer[..8], number.to_ne_bytes());
    }
    stop.request();
    let report = core.join().expect("the core ends");
    assert_eq!(report.io.received, 1000);
    let enters = report.io.enters - before.io.enters;
    assert!(enters <= 1100, "{enters} system calls for 1000 datagrams: {report:?}");
}

#[test]
fn burst_is_answered_with_few_system_calls() {
    let (core, address, stop) = echo(Waiting::Park);
    let peer = peer(address);
    let mut buffer = [0; 64];
    for _ in 0..50 {
        for number in 0..64_u64 {
            peer.send(&number.to_ne_bytes()).expect("a send");
        }
        for _ in 0..64 {
            assert_eq!(peer.recv(&mut buffer).expect("the answer"), 8);
        }
    }
    stop.request();
    let report = core.join().expect("the core ends");
    assert_eq!((report.io.received, report.io.send_failed), (3200, 0));
}

#[test]
fn idle_core_sleeps() {
    let (core, _, stop) = echo(Waiting::Park);
    let begun = clock::monotonic();
    let turns = core.report().core.turns;
    while clock::monotonic().since(begun) < Span::millis(50) {
        thread::yield_now();
    }
    assert!(core.report().core.turns - turns <= 3, "{:?}", core.report());
    stop.request();
    let report = core.join().expect("the core ends");
    assert!(report.core.turns < 10 && report.core.overdue == 0, "{report:?}");
}

#[test]
fn forced_stop_ends_a_role_that_does_not_listen() {
    struct Deaf;
    impl Role for Deaf {
        fn name(&self) -> &'static str {
            "deaf"
        }
        fn datagram(&mut self, _: Now, _: Received<'_>) {}
        fn turn(&mut self, _: Now, _: bool, _: &mut dyn Io) -> Turn {
            Turn::IDLE
        }
    }
    // Many times: the second ring must not be lost while the core is between its turn and its sleep.
    for _ in 0..100 {
        let (stop, bell) = (Stop::new(), Bell::new().expect("an event descriptor"));
        stop.watch(bell.waker());
        let core = Core::new(config(Waiting::Park), backend(Vec::new(), bell)).with(Box::new(Deaf), &[]);
        let core = core.spawn(&stop).expect("the core starts");
        assert!(core.to_string().starts_with("core test: any processor, park, io_uring"), "{core}");
        stop.request();
        stop.force();
        core.join().expect("the core ends");
    }
}

#[test]
fn timer_of_a_role_fires_on_time_and_does_not_spin() {
    struct Timer {
        due: LocalTime,
        fired: u32,
    }
    impl Role for Timer {
        fn name(&self) -> &'static str {
            "timer"
        }
        fn datagram(&mut self, _: Now, _: Received<'_>) {}
        fn turn(&mut self, now: Now, _: bool, _: &mut dyn Io) -> Turn {
            let mut work = 0;
            if now.local >= self.due {
                (self.due, self.fired, work) = (now.local.plus(Span::millis(2)), self.fired + 1, 1);
            }
            Turn { finished: self.fired >= 10, ..Turn::new(work, self.due) }
        }
    }
    let bell = Bell::new().expect("an event descriptor");
    let role = Timer { due: LocalTime::new(0), fired: 0 };
    let core = Core::new(config(Waiting::Park), backend(Vec::new(), bell)).with(Box::new(role), &[]);
    let begun = clock::monotonic();
    let report = core.run(&Stop::new()).expect("the core starts");
    assert!(clock::monotonic().since(begun) >= Span::millis(18));
    assert!(report.core.turns <= 30 && report.core.overdue == 0, "{report:?}");
}
