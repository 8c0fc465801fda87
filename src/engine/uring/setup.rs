#![expect(unsafe_code, reason = "one system call for a limit")]
//! Opening a ring: sizes, features of this kernel, and errors that say what to do.
//!
//! **Why.** A ring asks for locked memory and for kernel features that may be missing or forbidden; each refusal has its
//! own mend, and a lesser engine than expected must not be used silently. **Invariants**: the ring is opened disabled, so
//! that errors come before any thread starts and the thread that enables it becomes its only issuer.
//! **Limits**: the constants here. **Not here**: use of the ring.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use io_uring::{IoUring, Probe, opcode};

use super::memory::BufferRing;
use super::message::Shape;
use super::outbox::Outbox;
use crate::engine::net::Socket;
use crate::engine::wake::Bell;

/// Longest payload: that of a jumbo frame of 9000 bytes.
pub const PAYLOAD_MAX: usize = 8_972;
/// Most sockets of one ring.
pub const SOCKETS_MAX: usize = 64;
/// Most receive buffers of one socket, and most send buffers: what the kernel's rings take.
pub const BUFFERS_MAX: u16 = 1 << 15;

/// Most receive buffers of a socket that receives several datagrams as one.
pub const MERGING_BUFFERS_MAX: u16 = 64;
/// Longest payload of several datagrams received as one.
const MERGED_MAX: usize = 65_535;

const _: () = assert!(SOCKETS_MAX * (BUFFERS_MAX as usize + 2) < u32::MAX as usize);

/// Sizes of a ring. Everything is taken at construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UringConfig {
    /// Receive buffers of each socket, a power of two: how many datagrams may come in while the core is busy before the
    /// receive must be armed again. More wait in the socket's own buffer.
    pub receive_buffers: u16,
    /// Send buffers of the core, a power of two: datagrams of one turn sent in one system call.
    pub send_buffers: u16,
    /// Longest payload sent or received.
    pub payload_max: usize,
}

impl Default for UringConfig {
    fn default() -> Self {
        Self { receive_buffers: 512, send_buffers: 256, payload_max: 1_472 }
    }
}

impl UringConfig {
    /// Receive buffers of a socket and the payload each is for: fewer and longer ones where datagrams come merged.
    pub(super) fn receive(&self, merges: bool) -> (u16, usize) {
        if merges {
            (self.receive_buffers.min(MERGING_BUFFERS_MAX), MERGED_MAX)
        } else {
            (self.receive_buffers, self.payload_max)
        }
    }

    /// Bytes of memory a ring over `sockets` sockets takes at most; socket buffers are the kernel's and come on top. A socket
    /// that receives merged ([`crate::engine::net::Coalesce::Both`]) has 64 buffers of 64 KiB, one that does not the
    /// configured ones: the larger is counted.
    #[must_use]
    pub fn bytes(&self, sockets: usize) -> usize {
        let receive = |merges| {
            let (count, payload) = self.receive(merges);
            BufferRing::bytes(count, Shape::new().buffer_len(payload))
        };
        let rings = 64 * self.submissions() as usize + 16 * self.completions(sockets) as usize;
        sockets * receive(true).max(receive(false)) + Outbox::bytes(self.send_buffers, self.payload_max) + rings
    }

    pub(super) fn check(&self, sockets: usize) -> Result<(), UringError> {
        let power = |count: u16| count.is_power_of_two() && count <= BUFFERS_MAX;
        if !power(self.receive_buffers) || !power(self.send_buffers) {
            return Err(UringError::Buffers { receive: self.receive_buffers, send: self.send_buffers });
        }
        if self.payload_max == 0 || self.payload_max > PAYLOAD_MAX {
            return Err(UringError::Payload { payload_max: self.payload_max });
        }
        if sockets > SOCKETS_MAX {
            return Err(UringError::Sockets { sockets });
        }
        Ok(())
    }

    /// Room for every send, and for arming every socket and the bell.
    fn submissions(&self) -> u32 {
        let armings = u32::try_from(SOCKETS_MAX).unwrap_or(u32::MAX) + 1;
        (u32::from(self.send_buffers) + armings).next_power_of_two()
    }

    /// Room for a completion of every receive buffer, the end of every receive, every failed send and the bell.
    fn completions(&self, sockets: usize) -> u32 {
        let sockets = u32::try_from(sockets.min(SOCKETS_MAX)).unwrap_or(0);
        (sockets * (u32::from(self.receive_buffers) + 2) + 2 * u32::from(self.send_buffers) + 64).next_power_of_two()
    }
}

/// How far down the ladder of features this kernel made us go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskWork {
    /// Completions are worked off when the issuing thread asks (Linux 6.1).
    Deferred,
    /// ... whenever it enters the kernel (Linux 5.19).
    Cooperative,
    /// ... by interrupting it.
    Interrupting,
}

/// What a ring uses of what the kernel offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Who decides when completions are worked off.
    pub task_work: TaskWork,
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.task_work {
            TaskWork::Deferred => "io_uring multishot defer-taskrun",
            TaskWork::Cooperative => "io_uring multishot coop-taskrun (this kernel has no deferred task work)",
            TaskWork::Interrupting => "io_uring multishot (this kernel has neither deferred nor cooperative task work)",
        })
    }
}

/// Why there is no ring.
#[derive(Debug, thiserror::Error)]
pub enum UringError {
    /// Sizes of buffers.
    #[error(
        "receive_buffers = {receive}, send_buffers = {send}: each must be a power of two, at most {max}",
        max = BUFFERS_MAX
    )]
    Buffers {
        /// As configured.
        receive: u16,
        /// As configured.
        send: u16,
    },
    /// Size of payloads.
    #[error("payload_max = {payload_max}: must be 1 to {max}", max = PAYLOAD_MAX)]
    Payload {
        /// As configured.
        payload_max: usize,
    },
    /// Number of sockets.
    #[error("{sockets} sockets for one core: at most {max}", max = SOCKETS_MAX)]
    Sockets {
        /// As asked.
        sockets: usize,
    },
    /// Locked memory.
    #[error(
        "io_uring: {what} needs {bytes} bytes, and the memory this user may lock (RLIMIT_MEMLOCK) is {limit} bytes, rings \
         of its other processes included; raise it (`ulimit -l`, in a unit LimitMEMLOCK=), or give the process \
         CAP_IPC_LOCK, or configure fewer buffers"
    )]
    Memory {
        /// What was being allocated.
        what: &'static str,
        /// How much.
        bytes: usize,
        /// The limit now.
        limit: u64,
    },
    /// Forbidden.
    #[error(
        "io_uring is forbidden here: see `sysctl kernel.io_uring_disabled` (0 allows it); in a container its seccomp \
         profile must allow io_uring_setup, io_uring_enter and io_uring_register"
    )]
    Forbidden,
    /// Missing or too old.
    #[error("this kernel's io_uring lacks multishot receive: Linux 6.0 or later is needed (`uname -r`)")]
    TooOld,
    /// Too many descriptors.
    #[error("io_uring: too many open files; raise `ulimit -n` or LimitNOFILE=")]
    TooManyFiles,
    /// Anything else.
    #[error("io_uring: {what}: {cause}")]
    Other {
        /// What was being done.
        what: &'static str,
        /// What the system said.
        cause: io::Error,
    },
}

impl UringError {
    pub(super) fn from_system(what: &'static str, bytes: usize, cause: io::Error) -> Self {
        match cause.raw_os_error() {
            Some(libc::ENOMEM) => Self::Memory { what, bytes, limit: memlock() },
            Some(libc::EPERM | libc::EACCES) => Self::Forbidden,
            Some(libc::ENOSYS) => Self::TooOld,
            Some(libc::EMFILE | libc::ENFILE) => Self::TooManyFiles,
            _ => Self::Other { what, cause },
        }
    }
}

fn memlock() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the answer.
    let _status = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    limit.rlim_cur
}

/// Opens the best ring this kernel has, disabled, with the sockets and then the bell as its files.
pub(super) fn open(config: &UringConfig, sockets: &[Socket], bell: &Bell) -> Result<(IoUring, Features), UringError> {
    let (ring, task_work) = build(config, sockets.len())?;
    let mut probe = Probe::new();
    let submitter = ring.submitter();
    submitter.register_probe(&mut probe).map_err(|cause| UringError::from_system("asking for features", 0, cause))?;
    // Multishot receive has no flag of its own; SEND_ZC came with the same release (6.0).
    if !probe.is_supported(opcode::SendZc::CODE) {
        return Err(UringError::TooOld);
    }
    let files: Vec<RawFd> = sockets.iter().map(AsRawFd::as_raw_fd).chain([bell.event()]).collect();
    submitter.register_files(&files).map_err(|cause| UringError::from_system("registering sockets", 0, cause))?;
    Ok((ring, Features { task_work }))
}

fn build(config: &UringConfig, sockets: usize) -> Result<(IoUring, TaskWork), UringError> {
    // The same choice first without the index array between ring and entries (Linux 6.6), then with it.
    let ladder = [
        (TaskWork::Deferred, false),
        (TaskWork::Deferred, true),
        (TaskWork::Cooperative, true),
        (TaskWork::Interrupting, true),
    ];
    let (submissions, completions) = (config.submissions(), config.completions(sockets));
    let bytes = 64 * submissions as usize + 16 * completions as usize;
    for (task_work, index_array) in ladder {
        let mut builder = IoUring::builder();
        builder.setup_r_disabled().setup_submit_all().setup_cqsize(completions);
        match task_work {
            TaskWork::Deferred => builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag(),
            TaskWork::Cooperative => builder.setup_coop_taskrun().setup_taskrun_flag(),
            TaskWork::Interrupting => &mut builder,
        };
        if !index_array {
            builder.setup_no_sqarray();
        }
        match builder.build(submissions) {
            Ok(ring) => return Ok((ring, task_work)),
            Err(cause) if cause.raw_os_error() == Some(libc::EINVAL) => {}
            Err(cause) => return Err(UringError::from_system("opening the ring", bytes, cause)),
        }
    }
    Err(UringError::TooOld)
}

#[cfg(test)]
mod tests {
    use super::{UringConfig, UringError};
    use std::io;

    #[test]
    fn want_of_locked_memory_names_limit_unit_setting_and_capability() {
        let cause = io::Error::from_raw_os_error(libc::ENOMEM);
        let text = UringError::from_system("opening the ring", 65_536, cause).to_string();
        for word in ["RLIMIT_MEMLOCK", "LimitMEMLOCK=", "CAP_IPC_LOCK", "65536"] {
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    fn impossible_sizes_are_refused_with_their_values() {
        let odd = UringConfig { receive_buffers: 300, ..UringConfig::default() };
        assert!(odd.check(1).expect_err("no power of two").to_string().contains("300"));
        let long = UringConfig { payload_max: 9_000, ..UringConfig::default() };
        assert!(long.check(1).expect_err("too long").to_string().contains("9000"));
        assert!(UringConfig::default().check(65).is_err());
        assert!(UringConfig::default().check(64).is_ok());
    }

    #[test]
    fn stated_memory_covers_the_buffers() {
        let config = UringConfig::default();
        assert!(config.bytes(2) >= 2 * 512 * 1_472 + 256 * 1_472);
        assert!(config.bytes(2) >= 2 * 64 * 65_535 && config.bytes(2) < 10 << 20);
    }
}
