#![expect(unsafe_code, reason = "a signal handler that gives a page of memory where a file has lost it")]
//! A mapped file that somebody truncates must not end the process that uses it.
//!
//! **Why.** The kernel answers an access beyond the end of a mapped file with SIGBUS, which ends the process; so does a write
//! for which a disk has no room left. An appliance must not die of its statistics. Here the page is replaced by empty memory
//! and the access goes on; the owner of the mapping can tell ([`Watch::is_hit`]), and says so.
//! **Invariants**: the handler uses only atomics, `mmap` and `sigaction`, which may be called from one. A SIGBUS elsewhere
//! goes to whoever had it before.
//! **Limits**: [`WATCHED_MAX`] mappings at a time; more are used unwatched.
//! **Not here**: the mappings themselves (`file`, `read`).
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

/// Mappings watched at a time.
const WATCHED_MAX: usize = 64;

/// A watched range of addresses.
struct Range {
    taken: AtomicBool,
    start: AtomicUsize,
    len: AtomicUsize,
    hit: AtomicBool,
}

static RANGES: [Range; WATCHED_MAX] = [const {
    Range {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        hit: AtomicBool::new(false),
    }
}; WATCHED_MAX];

/// Who had SIGBUS before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// A watched mapping; it must be dropped before the mapping is.
#[derive(Debug)]
pub(super) struct Watch(Option<usize>);

impl Watch {
    /// Watches `len` bytes from `start` on.
    pub(super) fn new(start: NonNull<u8>, len: usize) -> Self {
        install();
        let free = RANGES.iter().position(|range| {
            // Acquire: pairs with the Release in `drop`: the range's former use is over.
            range.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
        });
        if let Some(range) = free.and_then(|at| RANGES.get(at)) {
            // Relaxed, and Release on the length, which the handler loads first: it is 0 until all is set.
            range.hit.store(false, Ordering::Relaxed);
            range.start.store(start.as_ptr().addr(), Ordering::Relaxed);
            range.len.store(len, Ordering::Release);
        }
        Self(free)
    }

    /// Whether a page was replaced: what is read there is not the file's.
    pub(super) fn is_hit(&self) -> bool {
        let range = self.0.and_then(|at| RANGES.get(at));
        // Relaxed: set by the handler on the thread that touched the page; others learn of it some time later.
        range.is_some_and(|range| range.hit.load(Ordering::Relaxed))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(range) = self.0.and_then(|at| RANGES.get(at)) {
            // Relaxed: an access to the mapping after this would be a defect. Release: pairs with the Acquire in `new`.
            range.len.store(0, Ordering::Relaxed);
            range.taken.store(false, Ordering::Release);
        }
    }
}

fn install() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        // SAFETY: all zeros are a valid `sigaction`: the default action, an empty mask.
        let mut before: libc::sigaction = unsafe { core::mem::zeroed() };
        // SAFETY: `before` is a valid place for the answer, and nothing is changed.
        if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before) } != 0 {
            return;
        }
        // Before the handler, which looks at it.
        let _first_time = BEFORE.set(before);
        let mut action = before;
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus_error;
        action.sa_sigaction = handler as *const () as libc::sighandler_t;
        // On the alternate stack: std gives its threads one, and a bus error may come on an exhausted stack.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the handler is one, and does only what a handler may. If it is refused, all stays as it was.
        unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) };
    });
}

extern "C" fn on_bus_error(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO a valid `siginfo_t`.
    let info = unsafe { &*info };
    // SAFETY: of a SIGBUS it has an address.
    let address = unsafe { info.si_addr() }.addr();
    for range in &RANGES {
        // Acquire: pairs with the Release store in `Watch::new`; Relaxed: ordered by it.
        let len = range.len.load(Ordering::Acquire);
        let start = range.start.load(Ordering::Relaxed);
        if address.wrapping_sub(start) < len && replace(address) {
            // Relaxed: orders nothing else; its partner is `Watch::is_hit`.
            range.hit.store(true, Ordering::Relaxed);
            return;
        }
    }
    // Nobody's: the access is made again under the former action.
    if let Some(before) = BEFORE.get() {
        // SAFETY: it is what `sigaction` gave.
        unsafe { libc::sigaction(libc::SIGBUS, before, ptr::null_mut()) };
    }
}

/// Puts an empty page of memory where `address` lies.
fn replace(address: usize) -> bool {
    // SAFETY: reads a constant of the system.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4_096);
    let start = ptr::without_provenance_mut::<libc::c_void>(address & !(page - 1));
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
    // SAFETY: the page belongs to a watched mapping, which is ours, and holds nothing any more.
    let got = unsafe { libc::mmap(start, page, access, kind, -1, 0) };
    got != libc::MAP_FAILED
}
