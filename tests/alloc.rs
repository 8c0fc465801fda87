#![cfg(test)]
#![expect(unsafe_code, reason = "an allocator that counts")]
//! No allocation after start: three servers in this process, a load from outside, and an allocator that counts what the
//! threads of `order` and `ingress` ask of it.
use std::alloc::{GlobalAlloc, Layout, System};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ordain::protocol::ServerId;
use ordain::server::assembly::{Assembly, start};
use ordain::server::config::Config;

static ARMED: AtomicBool = AtomicBool::new(false);
static COUNTED: AtomicU64 = AtomicU64::new(0);

struct Counting;

/// Whether the calling thread is a core's, by the name the kernel has for it. Allocates nothing.
fn on_a_core() -> bool {
    let mut name = [0_u8; 16];
    // SAFETY: the kernel writes at most 16 bytes, with their end.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name.starts_with(b"order") || name.starts_with(b"ingress")
}

fn count() {
    // Relaxed: figures; the test reads them once the load has ended.
    if ARMED.load(Ordering::Relaxed) && on_a_core() {
        COUNTED.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(old, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn ordain() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ordain"));
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command
}

/// A configuration of three servers on ports that are free now.
fn configuration(dir: &Path) -> PathBuf {
    let first = 10_000 + u16::try_from(std::process::id() % 1_000).unwrap() * 8;
    let free = |base: &u16| (*base..base + 6).all(|port| UdpSocket::bind(("127.0.0.1", port)).is_ok());
    let base = (first..19_000).step_by(6).find(free).expect("six free ports in a row");
    let made = ordain().arg("init").arg(dir).args(["--base-port", &base.to_string()]).stdout(Stdio::null()).status();
    assert!(made.unwrap().success());
    dir.join("ordain.toml")
}

fn load(config: &Path, duration: &str) {
    let load = ordain()
        .args(["load", "--json", "--rate", "25000", "--history", "4", "--participants", "1..3", "--warmup", "0s"])
        .args(["--duration", duration, "--config"])
        .arg(config)
        .output()
        .unwrap();
    assert!(load.status.success(), "{}", String::from_utf8_lossy(&load.stdout));
}

fn ordered(servers: &[Assembly]) -> u64 {
    servers.iter().map(|server| server.counts.ordered()).min().unwrap()
}

/// Tests the test: what a thread with a core's name allocates is counted. Starts the count anew.
fn canary_is_counted() -> bool {
    let canary = || drop(std::hint::black_box(vec![1_u8; 100]));
    std::thread::Builder::new().name("order-canary".to_owned()).spawn(canary).unwrap().join().unwrap();
    // Relaxed: the thread has been joined.
    COUNTED.swap(0, Ordering::Relaxed) > 0
}

#[test]
fn cores_allocate_nothing_over_a_hundred_thousand_requests() {
    let dir = tempfile::tempdir().unwrap();
    let path = configuration(&dir.path().join("c"));
    let set = ["ledger.profile=laptop".to_owned(), "engine.map=order | ingress+ingress".to_owned()];
    let config = Config::load(&path, &set).unwrap();
    let servers: Vec<Assembly> =
        (0..3).map(|place| start(&config, ServerId::from_place(place).unwrap()).unwrap()).collect();
    // Warm-up: genesis, sessions, and whatever is made when it is first needed.
    load(&path, "1s");
    let begun = ordered(&servers);
    assert!(begun > 0);
    // Relaxed: the load that follows starts a process, long after every core sees it.
    ARMED.store(true, Ordering::Relaxed);
    assert!(canary_is_counted(), "a thread with a core's name allocated and was not counted");
    for _ in 0..20 {
        if ordered(&servers) - begun >= 100_000 {
            break;
        }
        load(&path, "4s");
    }
    ARMED.store(false, Ordering::Relaxed);
    let (requests, allocations) = (ordered(&servers) - begun, COUNTED.load(Ordering::Relaxed));
    assert!(requests >= 100_000, "only {requests} requests were ordered");
    assert_eq!(allocations, 0, "allocations over {requests} requests");
    servers.iter().for_each(|server| server.stop.request());
    for core in servers.into_iter().flat_map(|server| server.cores) {
        let report = core.join().unwrap();
        assert!(report.io.received > 0, "{report:?}");
    }
}
