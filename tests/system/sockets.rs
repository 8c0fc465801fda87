#![expect(unsafe_code, reason = "system calls that take another process's socket and change it")]
//! Sockets as unkind kernels give them: small buffers, no receive stamps (situations 2 and 4 of the field).
use std::fs::{self, File};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};

use super::support::{Cluster, RawClient, Said, wait_for};

/// A duplicate of another process's descriptor.
fn steal(pid: u32, descriptor: i32) -> Option<OwnedFd> {
    let pid = i32::try_from(pid).unwrap();
    // SAFETY: takes no pointers.
    let process = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let process = i32::try_from(process).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: a descriptor just made, owned by nobody else.
    let process = unsafe { OwnedFd::from_raw_fd(process) };
    // SAFETY: takes no pointers.
    let stolen = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), descriptor, 0) };
    let stolen = i32::try_from(stolen).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: a descriptor just made, owned by nobody else.
    Some(unsafe { OwnedFd::from_raw_fd(stolen) })
}

/// Makes the kernel stop stamping what a process's sockets receive; returns how many it did so for.
fn unstamp(pid: u32) -> usize {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let sockets = descriptors
        .filter(|entry| fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:")));
    sockets
        .filter(|entry| {
            let number = entry.file_name().to_string_lossy().parse().unwrap();
            let Some(socket) = steal(pid, number) else { return false };
            let off: libc::c_int = 0;
            let len = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap();
            // SAFETY: the value is an int and its length is given.
            let status = unsafe {
                libc::setsockopt(
                    socket.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_TIMESTAMPING,
                    (&raw const off).cast(),
                    len,
                )
            };
            status == 0
        })
        .count()
}

/// Situation 2: where receive stamps do not come, datagrams are dated when they are read; one line says so, and order goes on.
#[test]
fn without_receive_stamps_order_goes_on_and_one_line_says_so() {
    const LINE: &str = "without the kernel's receive stamps";
    let cluster = Cluster::start_with(3, &["ledger.profile=laptop"]);
    assert!(!cluster.log(1).contains(LINE), "{}", cluster.log(1));
    assert!(unstamp(cluster.pid(1)) >= 2, "the sockets of server 1");
    let to = cluster.client_address(1);
    let mut client = RawClient::new(&cluster, "local");
    client.open(to);
    for number in 1..=20 {
        let said = client.order(to, number, number, &[7], 0);
        assert!(matches!(&said, Said::Ordered { order, .. } if order.get() == number), "{said:?}");
    }
    cluster.wait_log(1, LINE);
    assert_eq!(cluster.log(1).matches(LINE).count(), 1, "{}", cluster.log(1));
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Situation 4: where the kernel cuts socket buffers, one warning names what was wanted, what was got, and the sysctl.
#[test]
fn small_socket_buffers_are_warned_about_once() {
    let limit: u64 = fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap().trim().parse().unwrap();
    let wanted = 4 * limit;
    let cluster = Cluster::prepare(1, &[]);
    let log_path = cluster.config().with_file_name("small-buffers.log");
    // The capability that forces larger buffers is taken away, as an ordinary user would lack it.
    let mut server = Command::new("setpriv");
    server.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin", env!("CARGO_BIN_EXE_ordain"), "serve"]);
    server.args(["--id", "1", "--set", "ledger.profile=laptop", "--set", &format!("engine.socket_buffer={wanted}")]);
    server.arg("--config").arg(cluster.config());
    let log = File::create(&log_path).unwrap();
    let started = server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
    let _server = Ended(started.expect("setpriv (util-linux) starts the server without CAP_NET_ADMIN"));
    let log = || fs::read_to_string(&log_path).unwrap_or_default();
    wait_for("the server to be ready", || log().contains("ready: instance").then_some(()));
    let log = log();
    let warnings: Vec<_> = log.lines().filter(|line| line.contains("WARN") && line.contains("buffer")).collect();
    assert_eq!(warnings.len(), 1, "{log}");
    let words = [format!("wanted {wanted} bytes"), format!("got {limit} to receive"), "net.core.rmem_max".to_owned()];
    assert!(words.iter().all(|word| warnings[0].contains(word)), "{log}");
}
