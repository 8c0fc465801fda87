//! What whole-system tests share: a cluster of real processes, and a client made from the wire's documentation alone.
//!
//! Nothing here sleeps for luck: everything waits on a condition, with a deadline that fails the test.

use std::fs::{self, File};
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use ordain::protocol::{Instance, NodeId, OrderNo, ParticipantSeq, Refusal, RequestNo, SessionId, TxId};
use ordain::wire::auth::{ClusterKey, PrincipalKey, principal_id};
use ordain::wire::client::{Open, RequestView, ToClient, parse_to_client, put_session};
use ordain::wire::{
    BodyWriter, ClientEnvelope, ENVELOPE_LEN, OVERHEAD, Opened, Participants, open_server, seal_client,
};

/// The longest any condition may take on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `condition` gives something.
#[expect(clippy::disallowed_methods, reason = "a poll between two looks at a condition, with a deadline")]
pub(crate) fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(got) = condition() {
            return got;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A cluster of real processes on the loopback; its processes end with it.
pub(crate) struct Cluster {
    dir: tempfile::TempDir,
    base_port: u16,
    servers: Vec<Option<Child>>,
    settings: Vec<String>,
}

/// Ports that no other test of this process, and nobody else now, uses.
fn free_ports(count: u16) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = 20_000 + u16::try_from(std::process::id() % 500).unwrap() * 60;
    for _ in 0..100 {
        // Relaxed: a counter alone, shared by the tests of this process.
        let base = start + NEXT.fetch_add(count, Ordering::Relaxed) % 9_000;
        if (base..base + count).all(|port| UdpSocket::bind(("127.0.0.1", port)).is_ok()) {
            return base;
        }
    }
    panic!("no {count} free ports in a row");
}

/// A transaction's id from a small number.
pub(crate) fn tx_id(number: u64) -> TxId {
    TxId::new(u128::from(number).to_le_bytes())
}

pub(crate) fn ordain() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ordain"))
}

impl Cluster {
    /// `n` servers, started and ready.
    pub(crate) fn start(n: u8) -> Self {
        Self::start_with(n, &[])
    }

    /// `n` servers with settings overridden, started and ready.
    pub(crate) fn start_with(n: u8, settings: &[&str]) -> Self {
        let mut cluster = Self::prepare(n, settings);
        (1..=n).for_each(|id| cluster.spawn(id, &[]));
        (1..=n).for_each(|id| cluster.wait_log(id, "ready: instance"));
        cluster
    }

    /// A configuration, and nothing started.
    pub(crate) fn prepare(n: u8, settings: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let base_port = free_ports(2 * u16::from(n));
        let config = dir.path().join("c");
        let status = ordain()
            .args([
                "init",
                config.to_str().unwrap(),
                "--servers",
                &n.to_string(),
                "--base-port",
                &base_port.to_string(),
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
        let settings = settings.iter().map(|text| (*text).to_owned()).collect();
        Self { dir, base_port, servers: (0..n).map(|_| None).collect(), settings }
    }

    /// Starts one server; its log is a file of its own, made anew.
    pub(crate) fn spawn(&mut self, id: u8, more: &[&str]) {
        let log = File::create(self.log_path(id)).unwrap();
        let mut command = ordain();
        command.args(["serve", "--id", &id.to_string(), "--config"]).arg(self.config());
        for setting in self.settings.iter().map(String::as_str).chain(more.iter().copied()) {
            command.args(["--set", setting]);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.servers[usize::from(id) - 1] = Some(child);
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.dir.path().join("c/ordain.toml")
    }

    pub(crate) fn key(&self) -> ClusterKey {
        let text = fs::read_to_string(self.dir.path().join("c/cluster.key")).unwrap();
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text.trim()[2 * at..2 * at + 2], 16).unwrap();
        }
        ClusterKey::from_bytes(bytes)
    }

    pub(crate) fn peer_address(&self, id: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.base_port + 2 * (u16::from(id) - 1)))
    }

    pub(crate) fn client_address(&self, id: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.base_port + 2 * (u16::from(id) - 1) + 1))
    }

    fn log_path(&self, id: u8) -> PathBuf {
        self.dir.path().join(format!("log-{id}"))
    }

    pub(crate) fn log(&self, id: u8) -> String {
        fs::read_to_string(self.log_path(id)).unwrap_or_default()
    }

    pub(crate) fn wait_log(&self, id: u8, text: &str) {
        wait_for(&format!("`{text}` in the log of server {id}:\n{}", self.log(id)), || {
            self.log(id).contains(text).then_some(())
        });
    }

    /// One figure of the `counted:` line a server writes when it ends.
    pub(crate) fn counted(&self, id: u8, name: &str) -> u64 {
        let log = self.log(id);
        let line = log.lines().rfind(|line| line.contains("counted:")).unwrap_or_default();
        let field = line.split_whitespace().find_map(|word| word.strip_prefix(&format!("{name}=")));
        field.map_or(0, |value| value.parse().unwrap())
    }

    pub(crate) fn pid(&self, id: u8) -> u32 {
        self.servers[usize::from(id) - 1].as_ref().unwrap().id()
    }

    pub(crate) fn signal(&self, id: u8, signal: &str) {
        let status = Command::new("kill").args([signal, &self.pid(id).to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// SIGSTOP, and stopped: every thread of it, which takes the kernel a moment.
    pub(crate) fn stop(&self, id: u8) {
        self.signal(id, "-STOP");
        let tasks = format!("/proc/{}/task", self.pid(id));
        let stopped = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
        };
        wait_for("every thread to stop", || fs::read_dir(&tasks).unwrap().flatten().all(stopped).then_some(()));
    }

    /// SIGKILL, and gone.
    pub(crate) fn kill(&mut self, id: u8) {
        let mut child = self.servers[usize::from(id) - 1].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// SIGTERM, and its exit status.
    pub(crate) fn terminate(&mut self, id: u8) -> ExitStatus {
        self.signal(id, "-TERM");
        self.ended(id)
    }

    /// The exit status, once it has ended.
    pub(crate) fn ended(&mut self, id: u8) -> ExitStatus {
        let mut child = self.servers[usize::from(id) - 1].take().unwrap();
        wait_for(&format!("server {id} to end"), || child.try_wait().unwrap())
    }

    /// Resident memory, in KiB.
    pub(crate) fn resident_kib(&self, id: u8) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid(id))).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.servers.iter_mut().flatten() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// A participant's id, sequence number and history.
pub(crate) type Part = (NodeId, ParticipantSeq, Vec<(OrderNo, TxId)>);

/// What a server said to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// Its place, and for each participant id, sequence number and history.
    Ordered { order: OrderNo, parts: Vec<Part> },
    /// No number, and why.
    Refused { why: Refusal, is_final: bool, detail: u8 },
}

/// A client made from the wire's documentation: one socket, no retries, no packing.
pub(crate) struct RawClient {
    socket: UdpSocket,
    name: String,
    key: PrincipalKey,
    pub(crate) instance: Instance,
    pub(crate) session: SessionId,
}

impl RawClient {
    /// For the principal `name` of the cluster.
    pub(crate) fn new(cluster: &Cluster, name: &str) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let key = cluster.key().principal(principal_id(name).unwrap());
        Self { socket, name: name.to_owned(), key, instance: Instance::NONE, session: SessionId::default() }
    }

    /// A datagram of messages, sealed.
    pub(crate) fn seal(&self, write: impl FnOnce(&mut BodyWriter<'_>)) -> Vec<u8> {
        let mut buf = vec![0; 1472];
        let mut body = BodyWriter::new(&mut buf[ENVELOPE_LEN..1472 - (OVERHEAD - ENVELOPE_LEN)]);
        let mut in_force = SessionId::default();
        put_session(&mut body, &mut in_force, self.session).unwrap();
        write(&mut body);
        let len = body.len();
        let principal = principal_id(&self.name).unwrap();
        let envelope = ClientEnvelope { instance: self.instance, principal, session: SessionId::default() };
        let len = seal_client(&mut buf, &envelope, len, &self.key);
        buf.truncate(len);
        buf
    }

    pub(crate) fn send(&self, to: SocketAddr, datagram: &[u8]) {
        self.socket.send_to(datagram, to).unwrap();
    }

    /// Opens a session at a server, asking again until it answers.
    pub(crate) fn open(&mut self, to: SocketAddr) {
        let nonce = 77;
        let datagram = self.seal(|body| Open { nonce, name: &self.name }.put(body).unwrap());
        self.session = wait_for("a session", || {
            self.send(to, &datagram);
            let mut session = None;
            self.receive(|_, message| {
                if let ToClient::Opened(opened) = message
                    && opened.nonce == nonce
                {
                    session = Some(opened.session);
                }
            });
            session
        });
    }

    /// Hands the messages of the next datagram, if one comes, to `take`.
    pub(crate) fn receive(&mut self, mut take: impl FnMut(SessionId, ToClient<'_>)) -> bool {
        let mut buf = [0; 2048];
        let Ok((len, _)) = self.socket.recv_from(&mut buf) else { return false };
        let principal = principal_id(&self.name).unwrap();
        let Ok(Opened::Body(envelope, body)) = open_server(&buf[..len], principal, &self.key) else {
            panic!("a server's datagram does not open");
        };
        if envelope.instance != Instance::NONE {
            self.instance = envelope.instance;
        }
        parse_to_client(body, envelope.session).unwrap().for_each(|(session, message)| take(session, message));
        true
    }

    /// A request as a datagram.
    pub(crate) fn request(&self, request: u64, tx: u64, participants: &[u32], depth: u8) -> Vec<u8> {
        let bytes: Vec<u8> = participants.iter().flat_map(|id| id.to_le_bytes()).collect();
        self.seal(|body| {
            let view = RequestView {
                request: RequestNo::new(request),
                tx: tx_id(tx),
                depth,
                retry: false,
                participants: Participants::new(&bytes),
            };
            view.put(body).unwrap();
        })
    }

    /// What is said to `request` within `patience`, if anything.
    #[expect(clippy::disallowed_methods, reason = "a deadline of the test")]
    pub(crate) fn said_within(&mut self, request: u64, patience: Duration) -> Option<Said> {
        let deadline = Instant::now() + patience;
        let mut said = None;
        while said.is_none() && Instant::now() < deadline {
            let session = self.session;
            self.receive(|of, message| match message {
                ToClient::Answer(answer) if of == session && answer.head().request.get() == request => {
                    let parts = answer.parts().map(|part| (part.id, part.seq, part.history.iter().collect())).collect();
                    said = Some(Said::Ordered { order: answer.head().order, parts });
                }
                ToClient::Refused(refused) if refused.request.get() == request => {
                    said =
                        Some(Said::Refused { why: refused.reason, is_final: refused.is_final, detail: refused.detail });
                }
                _ => {}
            });
        }
        said
    }

    /// Sends a request until something is said.
    pub(crate) fn order(&mut self, to: SocketAddr, request: u64, tx: u64, participants: &[u32], depth: u8) -> Said {
        let datagram = self.request(request, tx, participants, depth);
        wait_for("an answer", || {
            self.send(to, &datagram);
            self.said_within(request, Duration::from_millis(500))
        })
    }
}
