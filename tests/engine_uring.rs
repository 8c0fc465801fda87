//! The io_uring backend against real sockets of the loopback: data, floods, long datagrams, sleep and waking.
#![cfg(test)]

use std::net::{SocketAddr, UdpSocket};
use std::thread;

use ordain::engine::backend::{Backend, Io, SendRefused, SocketId};
use ordain::engine::clock;
use ordain::engine::net::{Coalesce, Socket, SocketOptions};
use ordain::engine::uring::{Uring, UringConfig};
use ordain::engine::wake::{Bell, Waker};
use ordain::protocol::{LocalTime, Span};

const FIRST: SocketId = SocketId::new(0);

fn socket(host: &str, options: SocketOptions) -> Socket {
    Socket::bind(format!("{host}:0").parse().expect("an address"), options).expect("a socket")
}

fn uring(config: UringConfig, sockets: Vec<Socket>) -> (Uring, Waker) {
    let bell = Bell::new().expect("an event descriptor");
    let waker = bell.waker();
    let mut uring = Uring::new(config, sockets, bell).expect("a ring");
    uring.start().expect("the ring starts");
    (uring, waker)
}

fn local(uring: &Uring) -> SocketAddr {
    uring.sockets().next().expect("one socket").local()
}

fn peer() -> UdpSocket {
    let peer = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    peer.set_read_timeout(Some(std::time::Duration::from_secs(10))).expect("a timeout");
    peer
}

fn deadline() -> LocalTime {
    clock::monotonic().plus(Span::secs(10))
}

/// Turns until `done` says so; panics after ten seconds.
fn turns(uring: &mut Uring, mut done: impl FnMut(&mut Uring) -> bool) {
    let end = deadline();
    while !done(uring) {
        assert!(clock::monotonic() < end, "nothing more after ten seconds: {:?}", uring.counters());
        uring.wait(Some(clock::monotonic().plus(Span::millis(50))));
        uring.fetch();
    }
}

fn collect(uring: &mut Uring, count: usize) -> Vec<(SocketAddr, Vec<u8>, bool)> {
    let mut got = Vec::new();
    turns(uring, |uring| {
        uring.receive(64, &mut |datagram| got.push((datagram.from, datagram.data.to_vec(), datagram.stamp.is_some())));
        got.len() >= count
    });
    got
}

fn send(uring: &mut Uring, to: SocketAddr, data: &[u8]) {
    uring.send_bytes(FIRST, to, data).expect("a send buffer");
}

fn echo_between(host: &str) {
    let (mut left, _) = uring(UringConfig::default(), vec![socket(host, SocketOptions::default())]);
    let (mut right, _) = uring(UringConfig::default(), vec![socket(host, SocketOptions::default())]);
    for round in 0..200_u16 {
        let data: Vec<u8> = (0..=round).map(|byte| (byte % 251) as u8).collect();
        send(&mut left, local(&right), &data);
        left.flush();
        let got = collect(&mut right, 1);
        assert_eq!(got[0].0, local(&left));
        assert_eq!(got[0].1, data);
        send(&mut right, got[0].0, &got[0].1);
        right.flush();
        assert_eq!(collect(&mut left, 1)[0].1, data);
    }
    let counters = left.counters();
    assert_eq!((counters.sent, counters.received, counters.send_failed), (200, 200, 0));
    assert_eq!(counters.sent_bytes, counters.received_bytes);
    assert!(left.describe().starts_with("io_uring multishot"), "{}", left.describe());
}

#[test]
fn echo_brings_every_byte_back_over_ipv4() {
    echo_between("127.0.0.1");
}

#[test]
fn echo_brings_every_byte_back_over_ipv6() {
    if UdpSocket::bind("[::1]:0").is_ok() {
        echo_between("[::1]");
    }
}

#[test]
fn datagrams_carry_the_kernels_stamp() {
    let (mut uring, _) = uring(UringConfig::default(), vec![socket("127.0.0.1", SocketOptions::default())]);
    let peer = peer();
    // Stamping is switched on for the whole host a moment after it was asked for: the first few may lack it.
    let end = deadline();
    loop {
        let before = clock::realtime();
        peer.send_to(b"stamp me", local(&uring)).expect("a send");
        let mut stamp = None;
        turns(&mut uring, |uring| uring.receive(1, &mut |got| stamp = got.stamp) == 1);
        if let Some(stamp) = stamp {
            assert!(stamp >= before && stamp <= clock::realtime(), "{stamp} is not in between");
            break;
        }
        assert!(uring.counters().stamps_missing > 0);
        assert!(clock::monotonic() < end, "no stamp within ten seconds");
    }
}

#[test]
fn flood_of_ten_rings_ends_the_receive_but_not_the_receiving() {
    let options = SocketOptions { receive_bytes: Some(16 << 20), ..SocketOptions::default() };
    // The kernel moves 32 datagrams at a time: fewer buffers than that run out in one call.
    let config = UringConfig { receive_buffers: 16, ..UringConfig::default() };
    let (mut uring, _) = uring(config, vec![socket("127.0.0.1", options)]);
    let peer = peer();
    for number in 0..160_u64 {
        peer.send_to(&number.to_ne_bytes(), local(&uring)).expect("a send");
    }
    let got = collect(&mut uring, 160);
    let numbers: Vec<u64> = got.iter().map(|(_, data, _)| u64::from_ne_bytes(data[..].try_into().unwrap())).collect();
    assert_eq!(numbers, (0..160).collect::<Vec<_>>(), "every datagram, in order");
    let counters = uring.counters();
    assert!(counters.no_buffers > 0, "the buffers ran out: {counters:?}");
    assert!(counters.rearmed >= counters.no_buffers);
    assert_eq!(counters.kernel_drops, 0);
}

#[test]
fn drops_of_the_kernel_are_counted_and_receiving_goes_on() {
    let options = SocketOptions { receive_bytes: Some(4096), ..SocketOptions::default() };
    let config = UringConfig { receive_buffers: 8, ..UringConfig::default() };
    let (mut uring, _) = uring(config, vec![socket("127.0.0.1", options)]);
    let peer = peer();
    let sent = 500;
    for _ in 0..sent {
        peer.send_to(&[7; 1000], local(&uring)).expect("a send");
    }
    turns(&mut uring, |uring| uring.receive(64, &mut |_| ()) == 0 && uring.counters().received > 0);
    // The drop counter travels with datagrams that come after the drops.
    turns(&mut uring, |uring| {
        peer.send_to(b"how many were lost", local(uring)).expect("a send");
        uring.fetch();
        uring.receive(64, &mut |_| ());
        uring.counters().kernel_drops > 0
    });
    let counters = *uring.counters();
    assert!(counters.kernel_drops <= sent, "{counters:?}");
    assert!(
        counters.received + counters.kernel_drops >= sent,
        "received or dropped, none unaccounted for: {counters:?}"
    );
}

#[test]
fn datagram_longer_than_the_buffers_is_counted_and_not_handed_on() {
    let config = UringConfig { payload_max: 100, ..UringConfig::default() };
    let (mut uring, _) = uring(config, vec![socket("127.0.0.1", SocketOptions::default())]);
    let peer = peer();
    for len in [101, 160, 1400, 60_000, 100] {
        peer.send_to(&vec![1; len], local(&uring)).expect("a send");
    }
    let got = collect(&mut uring, 1);
    assert_eq!(got[0].1.len(), 100);
    assert_eq!(uring.counters().truncated, 4);
    assert_eq!(uring.counters().received, 1);
}

#[test]
fn more_sends_than_buffers_leave_in_the_middle() {
    let config = UringConfig { send_buffers: 8, ..UringConfig::default() };
    let (mut uring, _) = uring(config, vec![socket("127.0.0.1", SocketOptions::default())]);
    let peer = peer();
    let to = peer.local_addr().expect("an address");
    for number in 0..100_u8 {
        send(&mut uring, to, &[number; 3]);
    }
    uring.flush();
    let mut buffer = [0; 16];
    for number in 0..100_u8 {
        assert_eq!(peer.recv(&mut buffer).expect("a datagram"), 3);
        assert_eq!(buffer[..3], [number; 3]);
    }
    assert_eq!(uring.counters().sent, 100);
    assert!(uring.counters().enters <= 16, "one system call for eight datagrams: {:?}", uring.counters());
}

#[test]
fn nothing_to_send_takes_no_buffer_and_no_system_call() {
    let (mut uring, _) = uring(UringConfig::default(), vec![socket("127.0.0.1", SocketOptions::default())]);
    let to = local(&uring);
    let enters = uring.counters().enters;
    uring.send(FIRST, to, &mut |_| 0).expect("a buffer");
    uring.fetch();
    uring.flush();
    assert!(!uring.more());
    assert_eq!((uring.counters().sent, uring.counters().enters), (0, enters));
    let foreign = SocketId::new(3);
    assert_eq!(uring.send(foreign, to, &mut |_| 1), Err(SendRefused::NoSocket(foreign)));
    assert_eq!(uring.counters().send_refused, 1);
}

#[test]
fn failed_sends_are_counted_by_reason_and_harm_nobody() {
    let (mut uring, _) = uring(UringConfig::default(), vec![socket("127.0.0.1", SocketOptions::default())]);
    let peer = peer();
    // The broadcast address is forbidden to sockets that did not ask for it.
    send(&mut uring, "255.255.255.255:9".parse().expect("an address"), b"forbidden");
    send(&mut uring, "[::1]:9".parse().expect("an address"), b"wrong family");
    send(&mut uring, peer.local_addr().expect("an address"), b"fine");
    uring.flush();
    turns(&mut uring, |uring| {
        uring.receive(8, &mut |_| ());
        uring.counters().send_failed == 2
    });
    let counters = uring.counters();
    assert_eq!(counters.send_failed_forbidden + counters.send_failed_unreachable, 1, "{counters:?}");
    let mut buffer = [0; 16];
    assert_eq!(peer.recv(&mut buffer).expect("a datagram"), 4);
}

#[test]
fn sleep_ends_at_its_deadline() {
    let (mut uring, _) = uring(UringConfig::default(), vec![socket("127.0.0.1", SocketOptions::default())]);
    let begun = clock::monotonic();
    let until = begun.plus(Span::millis(20));
    uring.receive(8, &mut |_| ());
    uring.wait(Some(until));
    let ended = clock::monotonic();
    assert!(ended >= until, "woke {} early", until.since(ended));
    assert!(ended.since(begun) < Span::secs(5));
    assert_eq!(uring.counters().waits, 1);
    uring.wait(Some(begun));
    assert_eq!(uring.counters().waits, 1, "a deadline in the past is no sleep");
}

#[test]
fn sleep_ends_with_a_datagram() {
    let (mut uring, _) = uring(UringConfig::default(), vec![socket("127.0.0.1", SocketOptions::default())]);
    let to = local(&uring);
    let sender = thread::scope(|scope| {
        let sender = scope.spawn(move || peer().send_to(b"wake up", to).expect("a send"));
        uring.receive(8, &mut |_| ());
        uring.wait(Some(deadline()));
        sender.join()
    });
    assert_eq!(sender.expect("the sender ends"), 7);
    uring.fetch();
    assert_eq!(uring.receive(8, &mut |got| assert_eq!(got.data, b"wake up")), 1);
}

#[test]
fn sleep_ends_when_another_thread_rings_every_time() {
    let (mut uring, waker) = uring(UringConfig::default(), vec![socket("127.0.0.1", SocketOptions::default())]);
    let (ask, asked) = std::sync::mpsc::channel::<()>();
    let (done, begun) = (deadline(), clock::monotonic());
    thread::scope(|scope| {
        scope.spawn(move || asked.iter().for_each(|()| waker.wake()));
        for _ in 0..1000 {
            uring.receive(8, &mut |_| ());
            ask.send(()).expect("the waker lives");
            uring.wait(Some(done));
            assert!(clock::monotonic() < done, "a wake-up was lost");
        }
        drop(ask);
    });
    assert!(clock::monotonic().since(begun) < Span::secs(10));
    assert!(uring.counters().rung >= 500, "{:?}", uring.counters());
}

#[test]
fn ring_before_sleep_prevents_it() {
    let (mut uring, waker) = uring(UringConfig::default(), vec![socket("127.0.0.1", SocketOptions::default())]);
    uring.receive(8, &mut |_| ());
    waker.wake();
    let end = deadline();
    uring.wait(Some(end));
    assert!(clock::monotonic() < end);
    assert_eq!(uring.counters().waits, 0);
}

#[test]
fn sockets_of_one_core_keep_their_datagrams_apart() {
    let sockets = vec![socket("127.0.0.1", SocketOptions::default()), socket("127.0.0.1", SocketOptions::default())];
    let addresses: Vec<_> = sockets.iter().map(Socket::local).collect();
    let config = UringConfig { receive_buffers: 16, ..UringConfig::default() };
    let (mut uring, _) = uring(config, sockets);
    let peer = peer();
    // A flood on the first does not cost the second its buffers.
    for _ in 0..100 {
        peer.send_to(b"flood", addresses[0]).expect("a send");
    }
    peer.send_to(b"quiet", addresses[1]).expect("a send");
    uring.fetch();
    let mut quiet = 0;
    uring.receive(64, &mut |got| {
        assert_eq!(got.data, if got.socket == FIRST { b"flood" } else { b"quiet" });
        quiet += usize::from(got.socket != FIRST);
    });
    assert_eq!(quiet, 1, "it came with the first batch");
}

#[test]
fn datagrams_of_one_turn_to_one_destination_leave_as_one_batch_in_order() {
    for host in ["127.0.0.1", "[::1]"] {
        if UdpSocket::bind(format!("{host}:0")).is_err() {
            continue;
        }
        let (mut left, _) = uring(UringConfig::default(), vec![socket(host, SocketOptions::default())]);
        let others: Vec<_> = (0..2).map(|_| UdpSocket::bind(format!("{host}:0")).expect("a socket")).collect();
        let to: Vec<_> = others.iter().map(|other| other.local_addr().expect("an address")).collect();
        for number in 0..40_u8 {
            let len = if number >= 36 { 900 + usize::from(number) } else { 1400 };
            send(&mut left, to[usize::from(number % 2)], &vec![number; len]);
        }
        let enters = left.counters().enters;
        left.flush();
        for (which, other) in (0_u8..).zip(&others) {
            other.set_read_timeout(Some(std::time::Duration::from_secs(10))).expect("a timeout");
            let mut buffer = [0; 2048];
            for number in (which..40).step_by(2) {
                let len = other.recv(&mut buffer).expect("a datagram");
                assert_eq!(len, if number >= 36 { 900 + usize::from(number) } else { 1400 });
                assert!(buffer[..len].iter().all(|byte| *byte == number), "{number} in its turn, whole");
            }
        }
        let counters = left.counters();
        // 18 equal ones and a shorter one each; the longer one after that leaves alone.
        assert_eq!((counters.batches, counters.batched, counters.sent), (2, 38, 40));
        assert_eq!((counters.enters - enters, counters.send_failed), (1, 0));
        assert!(left.describe().contains(" gso"), "{}", left.describe());
    }
}

#[test]
fn coalescing_can_be_switched_off() {
    let options = SocketOptions { coalesce: Coalesce::Off, ..SocketOptions::default() };
    let (mut uring, _) = uring(UringConfig::default(), vec![socket("127.0.0.1", options)]);
    let peer = peer();
    (0..5).for_each(|_| send(&mut uring, peer.local_addr().expect("an address"), b"singly"));
    uring.flush();
    assert_eq!((uring.counters().sent, uring.counters().batches), (5, 0));
    assert!(uring.describe().contains("no gso"), "{}", uring.describe());
}

#[test]
fn merged_datagrams_arrive_each_on_its_own_with_sender_and_length() {
    let both = SocketOptions { coalesce: Coalesce::Both, ..SocketOptions::default() };
    let (mut left, _) = uring(UringConfig::default(), vec![socket("127.0.0.1", SocketOptions::default())]);
    let (mut right, _) = uring(UringConfig::default(), vec![socket("127.0.0.1", both)]);
    assert!(right.describe().ends_with("gso gro"), "{}", right.describe());
    let to = local(&right);
    for number in 0..40_u8 {
        send(&mut left, to, &vec![number; if number == 39 { 7 } else { 1400 }]);
    }
    left.flush();
    send(&mut left, to, b"alone");
    left.flush();
    let got = collect(&mut right, 41);
    for (number, (from, data, _)) in (0_u8..).zip(&got[..40]) {
        assert_eq!((*from, data.len()), (local(&left), if number == 39 { 7 } else { 1400 }));
        assert!(data.iter().all(|byte| *byte == number), "{number} in its turn, whole");
    }
    assert_eq!(got[40].1, b"alone");
    assert_eq!((right.counters().received, right.counters().merged), (41, 40));
    // Too long for the buffers of a role, though not for the kernel's: counted, not handed on.
    let long = UringConfig { payload_max: 8_000, ..UringConfig::default() };
    let (mut longer, _) = uring(long, vec![socket("127.0.0.1", SocketOptions::default())]);
    (0..3).for_each(|_| send(&mut longer, to, &[1; 2000]));
    longer.flush();
    turns(&mut right, |right| {
        right.receive(64, &mut |_| panic!("longer than the limit"));
        right.counters().truncated > 0
    });
}
