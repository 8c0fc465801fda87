//! The one file of a cluster, `ordain.toml`: read, checked, overridden, and shown.
//!
//! The same file lies on every host. It lists the servers as `[[server]]` entries with `id`, `host`, `peer_port` and
//! `client_port`, so that every port is in it; all else has defaults (`settings`).
//!
//! **Why entries, not a list of hosts and a base port.** A firewall rule is written from what stands in the file; and
//! a cluster with one odd port needs no other form.
//! **Why not serde's derivation.** It stops at the first fault; here each value keeps its line, all faults are told at
//! once, and an unknown key brings its nearest known one.
//! **Invariants.** A [`Config`] has passed every check: 1, 3, 5 or 7 servers with ids 1..n, no address twice, every
//! value in its range. What it shows ([`Config::rows`]) is what is in force.
//! **Limits.** [`FILE_BYTES_MAX`].
//! **Not here**: key files (`keys`), names resolved to addresses (`servers`).

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::fault::{Fault, Faults, Place};
use super::keys::{self, Identity, KeyError};
use super::servers::{Server, ServerRows};
use super::settings::{Auth, SETTINGS, Scope, Settings, find, nearest};
use super::value::Value;
use crate::protocol::ledger::Limits;
use crate::protocol::{HISTORY_MAX, PARTICIPANTS_MAX, ServerId, WINDOW};
use crate::wire::auth::ClusterKey;

/// Longest file that is read as a configuration.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where a value in force came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// `ledger.profile` set it.
    Profile,
    /// The file, at this line.
    File(usize),
    /// `--set` on the command line.
    Set,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Profile => f.write_str("profile"),
            Self::File(line) => write!(f, "file, line {line}"),
            Self::Set => f.write_str("--set"),
        }
    }
}

/// One setting in force, for people.
#[derive(Clone, Debug)]
pub struct Row {
    /// The key.
    pub key: &'static str,
    /// The value, as written in a file but for quotes.
    pub value: String,
    /// Its unit.
    pub unit: &'static str,
    /// Where it came from.
    pub origin: Origin,
}

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    path: PathBuf,
    settings: Settings,
    servers: Vec<Server>,
    values: Vec<(Value, Origin)>,
}

/// One value as somebody wrote it.
pub(super) struct Written {
    pub(super) key: String,
    pub(super) text: String,
    pub(super) place: Place,
}

impl Config {
    /// Reads and checks a file, with overrides of the form `section.key=value`, the later ones stronger.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(path: &Path, overrides: &[String]) -> Result<Self, Faults> {
        let fail = |source: std::io::Error| match source.kind() {
            std::io::ErrorKind::NotFound => Fault::Missing(path.to_owned()),
            _ => Fault::Read { path: path.to_owned(), source },
        };
        let file = fs::File::open(path).map_err(fail)?;
        let mut text = String::new();
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(fail)?;
        if u64::try_from(text.len()).unwrap_or(u64::MAX) > FILE_BYTES_MAX {
            return Err(Fault::TooLong { path: path.to_owned(), limit: FILE_BYTES_MAX }.into());
        }
        Self::parse(path, &text, overrides)
    }

    /// Checks a file's text; `path` is for messages, and where relative paths in it start.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(path: &Path, text: &str, overrides: &[String]) -> Result<Self, Faults> {
        let reader =
            Reader { path, text, faults: Faults::default(), written: Vec::new(), servers: ServerRows::default() };
        reader.read(overrides)
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All settings.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The servers, by place.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The server at a place.
    ///
    /// # Panics
    /// If `id` is of another configuration.
    #[must_use]
    pub fn server(&self, id: ServerId) -> &Server {
        &self.servers[id.place()]
    }

    /// Which server runs here: `id` (1..n) if given, else the only one whose host is an address of this host.
    ///
    /// # Errors
    /// If there is no such server, or not exactly one here.
    pub fn whoami(&self, id: Option<u8>) -> Result<ServerId, Faults> {
        super::servers::whoami(&self.path, &self.servers, id)
    }

    /// A path of the file: a relative one starts at the file's directory.
    fn resolve(&self, path: &Path) -> PathBuf {
        self.path.parent().unwrap_or_else(|| Path::new("")).join(path)
    }

    /// The file of the cluster key.
    #[must_use]
    pub fn key_path(&self) -> PathBuf {
        self.resolve(&self.settings.cluster.key)
    }

    /// The cluster key; the one that everybody knows if `auth = "none"`.
    ///
    /// # Errors
    /// If the file is missing, exposed, or not a key.
    pub fn cluster_key(&self) -> Result<ClusterKey, KeyError> {
        match self.settings.cluster.auth {
            Auth::Keyed => keys::read_cluster(&self.key_path()),
            Auth::None => Ok(ClusterKey::PUBLIC),
        }
    }

    /// Who a client is that has this file and the cluster key: the principal `local`.
    ///
    /// # Errors
    /// If the cluster key cannot be had.
    pub fn local_identity(&self) -> Result<Identity, KeyError> {
        Identity::derive(&self.cluster_key()?, keys::LOCAL)
    }

    /// What a ledger keeps.
    #[must_use]
    pub fn ledger_limits(&self) -> Limits {
        let ledger = &self.settings.ledger;
        Limits {
            retain_entries: ledger.retain_entries,
            retain_parts: ledger.retain_parts,
            sessions: ledger.sessions,
            sessions_per_key: ledger.sessions_per_key,
            session_ttl: ledger.session_ttl,
            participants: ledger.participants,
        }
    }

    /// Where a server keeps what must outlive it.
    #[must_use]
    pub fn state_dir(&self, id: ServerId) -> PathBuf {
        let dir = self.settings.cluster.state_dir.to_string_lossy().replace("{id}", &id.to_string());
        self.resolve(Path::new(&dir))
    }

    /// Every setting in force, in the order of the table.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        SETTINGS.iter().zip(&self.values).map(|(setting, (value, origin))| Row {
            key: setting.key,
            value: setting.kind.show(value),
            unit: setting.kind.unit(),
            origin: origin.clone(),
        })
    }

    /// What must be the same on all servers.
    #[must_use]
    pub fn shared(&self) -> SharedSettings {
        let wide = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let mut pairs = vec![
            ("servers", wide(self.servers.len())),
            ("window", wide(WINDOW)),
            ("participants_max", wide(PARTICIPANTS_MAX)),
            ("history_max", wide(HISTORY_MAX)),
        ];
        let rows = SETTINGS.iter().zip(&self.values).filter(|(setting, _)| setting.scope == Scope::Shared);
        pairs.extend(rows.map(|(setting, (value, _))| (setting.key, as_number(value))));
        SharedSettings { pairs }
    }
}

/// A value as one number: words by the digest of their text.
fn as_number(value: &Value) -> u64 {
    match value {
        Value::Number(number) => *number,
        Value::Word(word) => first_word(&blake3::hash(word.as_bytes())),
    }
}

fn first_word(hash: &blake3::Hash) -> u64 {
    hash.as_bytes().iter().take(8).rev().fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
}

/// What must be the same on all servers of a cluster, by name, in an order that is the same everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedSettings {
    pairs: Vec<(&'static str, u64)>,
}

impl SharedSettings {
    /// Names and values: numbers, in the least unit (ns, bytes); words by a digest.
    #[must_use]
    pub fn pairs(&self) -> &[(&'static str, u64)] {
        &self.pairs
    }

    /// A digest of all names and values. Unequal: the servers must not listen to each other.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = blake3::Hasher::new();
        for (name, value) in &self.pairs {
            hasher.update(name.as_bytes()).update(&[0]).update(&value.to_le_bytes());
        }
        first_word(&hasher.finalize())
    }

    /// The first setting in which another server's values, in the same order, differ: its name, ours, theirs.
    /// `None` if all are the same; a missing or surplus value counts as a difference of `count`.
    #[must_use]
    pub fn difference(&self, theirs: &[u64]) -> Option<(&'static str, u64, u64)> {
        let pairs = self.pairs.iter().zip(theirs);
        let differs =
            pairs.map(|((name, ours), theirs)| (*name, *ours, *theirs)).find(|(_, ours, theirs)| ours != theirs);
        let wide = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let (ours, theirs) = (wide(self.pairs.len()), wide(theirs.len()));
        differs.or_else(|| (ours != theirs).then_some(("count", ours, theirs)))
    }
}

/// Reads one file.
struct Reader<'t> {
    path: &'t Path,
    text: &'t str,
    faults: Faults,
    written: Vec<Written>,
    servers: ServerRows,
}

impl Reader<'_> {
    fn read(mut self, overrides: &[String]) -> Result<Config, Faults> {
        self.file()?;
        overrides.iter().for_each(|text| self.set(text));
        let values = self.values();
        let Self { path, mut faults, servers, .. } = self;
        let servers = servers.check(path, &mut faults);
        let settings = Settings::from_values(values.iter().map(|(value, _)| value));
        if faults.is_empty() {
            check_together(path, &settings, &values, &mut faults);
        }
        faults.none_or(Config { path: path.to_owned(), settings, servers, values })
    }

    /// Takes the file apart into written values and server entries.
    fn file(&mut self) -> Result<(), Faults> {
        let table = DeTable::parse(self.text).map_err(|error| Fault::Syntax {
            place: error.span().map_or_else(|| Place::File(self.path.to_owned()), |span| self.place(span.start)),
            message: error.message().replace('\n', " "),
        })?;
        let mut entries: Vec<_> = table.get_ref().iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in entries {
            let name = key.get_ref().as_ref();
            let at = key.span().start;
            match value.get_ref() {
                _ if name == "server" => self.server_list(at, value.get_ref()),
                DeValue::Table(section) => self.section(name, at, section),
                value => self.value(name, at, value),
            }
        }
        Ok(())
    }

    fn section(&mut self, name: &str, at: usize, section: &DeTable<'_>) {
        let sections = || SETTINGS.iter().map(|setting| setting.section).filter(|section| !section.is_empty());
        if !sections().any(|section| section == name) {
            let nearest = nearest(name, sections().chain(["server"])).map(str::to_owned);
            self.faults.push(Fault::UnknownKey { place: self.place(at), key: name.to_owned(), nearest });
            return;
        }
        let mut entries: Vec<_> = section.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in entries {
            self.value(&format!("{name}.{}", key.get_ref()), key.span().start, value.get_ref());
        }
    }

    fn value(&mut self, key: &str, at: usize, value: &DeValue<'_>) {
        let place = self.place(at);
        match scalar(value) {
            Some(text) => self.written.push(Written { key: key.to_owned(), text, place }),
            None if find(key).is_none() => self.faults.push(unknown(key, place)),
            None => {
                let expected = find(key).map(|(_, setting)| setting.kind.allowed()).unwrap_or_default();
                self.faults.push(Fault::Shape { place, key: key.to_owned(), found: value.type_str(), expected });
            }
        }
    }

    fn server_list(&mut self, at: usize, value: &DeValue<'_>) {
        let expected = "each server as an entry of its own, headed [[server]]".to_owned();
        let DeValue::Array(list) = value else {
            let fault =
                Fault::Shape { place: self.place(at), key: "server".to_owned(), found: value.type_str(), expected };
            self.faults.push(fault);
            return;
        };
        for entry in list.iter() {
            let place = self.place(entry.span().start);
            let DeValue::Table(table) = entry.get_ref() else {
                let found = entry.get_ref().type_str();
                self.faults.push(Fault::Shape { place, key: "server".to_owned(), found, expected: expected.clone() });
                continue;
            };
            let keys = table.iter().map(|(key, value)| {
                let place = self.place(key.span().start);
                (key.get_ref().to_string(), scalar(value.get_ref()).ok_or(value.get_ref().type_str()), place)
            });
            self.servers.add(place, keys.collect(), &mut self.faults);
        }
    }

    /// Takes one `--set section.key=value`.
    fn set(&mut self, text: &str) {
        let Some((key, value)) = text.split_once('=') else {
            self.faults.push(Fault::Override(text.to_owned()));
            return;
        };
        let (key, value) = (key.trim(), value.trim());
        let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        let value = quoted.unwrap_or(value).to_owned();
        match key.strip_prefix("server.") {
            Some(rest) => self.servers.set(rest, &value, &mut self.faults),
            None => self.written.push(Written { key: key.to_owned(), text: value, place: Place::Set }),
        }
    }

    /// The value in force for each row of the table; what cannot be read is a fault and keeps its default.
    fn values(&mut self) -> Vec<(Value, Origin)> {
        let mut found: Vec<Option<(Value, Origin)>> = vec![None; SETTINGS.len()];
        for Written { key, text, place } in std::mem::take(&mut self.written) {
            let Some((index, setting)) = find(&key) else {
                self.faults.push(unknown(&key, place));
                continue;
            };
            let Some(value) = setting.kind.parse(&text) else {
                let mend = format!("the default is {}", super::value::literal(setting.default));
                let value = super::value::literal(&text);
                self.faults.push(Fault::Value { place, key, value, allowed: setting.kind.allowed(), mend });
                continue;
            };
            let origin = if let Place::Line(_, line) = place { Origin::File(line) } else { Origin::Set };
            found[index] = Some((value, origin));
        }
        let profile = find("ledger.profile").and_then(|(index, _)| found[index].as_ref());
        let laptop = profile.is_some_and(|(value, _)| *value == Value::Word("laptop".to_owned()));
        let in_force = SETTINGS.iter().zip(found).map(|(setting, found)| {
            let (text, origin) = match setting.laptop {
                Some(text) if laptop => (text, Origin::Profile),
                _ => (setting.default, Origin::Default),
            };
            found
                .unwrap_or_else(|| (setting.kind.parse(text).expect("a test reads every default of the table"), origin))
        });
        in_force.collect()
    }

    fn place(&self, offset: usize) -> Place {
        let before = self.text.as_bytes().iter().take(offset);
        Place::Line(self.path.to_owned(), 1 + before.filter(|byte| **byte == b'\n').count())
    }
}

/// What the settings must be to each other.
fn check_together(path: &Path, settings: &Settings, values: &[(Value, Origin)], faults: &mut Faults) {
    let place = |key: &str| match find(key).map(|(index, _)| &values[index].1) {
        Some(Origin::File(line)) => Place::Line(path.to_owned(), *line),
        Some(Origin::Set) => Place::Set,
        _ => Place::File(path.to_owned()),
    };
    let ledger = &settings.ledger;
    let pairs = [
        ("ledger.sessions_per_key", ledger.sessions_per_key, "ledger.sessions", ledger.sessions),
        ("ledger.retain_entries", ledger.retain_entries, "ledger.retain_parts", ledger.retain_parts),
    ];
    for (key, value, bound, most) in pairs {
        if value > most {
            faults.push(Fault::Above { place: place(key), key, value, bound, most });
        }
    }
}

fn unknown(key: &str, place: Place) -> Fault {
    let nearest = nearest(key, SETTINGS.iter().map(|setting| setting.key)).map(str::to_owned);
    Fault::UnknownKey { place, key: key.to_owned(), nearest }
}

/// One value as text; `None` for lists, tables and dates.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(flag) => Some(flag.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::value::Kind;

    const ONE: &str = "[[server]]\nid = 1\nhost = \"127.0.0.1\"\npeer_port = 7100\nclient_port = 7101\n";

    fn parse(text: &str, set: &[&str]) -> Result<Config, Faults> {
        let set: Vec<String> = set.iter().map(ToString::to_string).collect();
        Config::parse(Path::new("d/ordain.toml"), text, &set)
    }

    fn faults(text: &str, set: &[&str]) -> Vec<String> {
        parse(text, set).unwrap_err().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn later_origin_wins_and_is_named() {
        let config =
            parse(&format!("{ONE}[wire]\npayload = 1200\n[ledger]\nprofile = \"laptop\"\n"), &["broadcast.beat=5ms"])
                .unwrap();
        let row = |key: &str| {
            let row = config.rows().find(|row| row.key == key).unwrap();
            (row.value, row.origin.to_string())
        };
        assert_eq!(row("wire.payload"), ("1200".to_owned(), "file, line 7".to_owned()));
        assert_eq!(row("broadcast.beat"), ("5ms".to_owned(), "--set".to_owned()));
        assert_eq!(row("ledger.retain_entries"), ("200000".to_owned(), "profile".to_owned()));
        assert_eq!(row("broadcast.omega"), ("100us".to_owned(), "default".to_owned()));
    }

    #[test]
    fn profiles_are_the_ledgers_own_and_extremes_pass_its_check() {
        assert_eq!(parse(ONE, &[]).unwrap().ledger_limits(), Limits::default());
        assert_eq!(parse(ONE, &["ledger.profile=laptop"]).unwrap().ledger_limits(), Limits::laptop());
        let keys = SETTINGS.iter().filter(|setting| setting.section == "ledger" && setting.scope == Scope::Shared);
        let ends = keys.map(|setting| match setting.kind {
            Kind::Count { min, max, .. } => (setting.key, min.to_string(), max.to_string()),
            _ => (setting.key, "1s".to_owned(), "86400s".to_owned()),
        });
        let ends: Vec<_> = ends.collect();
        let least: Vec<String> = ends.iter().map(|(key, min, _)| format!("{key}={min}")).collect();
        let most: Vec<String> = ends.iter().map(|(key, _, max)| format!("{key}={max}")).collect();
        for set in [least, most] {
            let config = Config::parse(Path::new("ordain.toml"), ONE, &set).unwrap();
            config.ledger_limits().check().unwrap();
        }
    }

    #[test]
    fn all_faults_are_told_with_their_lines() {
        let text = format!("kye = 1\n{ONE}[wire]\npayload = 9999\n[brodcast]\nomega = \"1us\"\n[engine]\nfifo = [1]\n");
        let faults = faults(&text, &["wire", "ledger.sessions=0"]);
        let told = faults.join("\n");
        for part in [
            "unknown key `brodcast`; the nearest known key is `broadcast`",
            "d/ordain.toml:12: engine.fifo is of type array; write true or false",
            "d/ordain.toml:1: unknown key `kye`; the nearest known key is `key`",
            "d/ordain.toml:8: wire.payload = 9999: allowed is 592 to 8972 (bytes, or with KiB, MiB, GiB); the default is 1472",
            "--set wire: not of the form section.key=value",
            "--set: ledger.sessions = 0: allowed is 1 to 1048576 sessions; the default is 16384",
        ] {
            assert!(told.contains(part), "{part}\nnot in\n{told}");
        }
        assert_eq!(faults.len(), 6, "{told}");
    }

    #[test]
    fn servers_are_an_odd_number_numbered_and_apart() {
        let entry = |id: u8, port: u16| {
            format!("[[server]]\nid = {id}\nhost = \"h\"\npeer_port = {port}\nclient_port = {}\n", port + 1)
        };
        let list = |list: &[(u8, u16)]| list.iter().map(|(id, port)| entry(*id, *port)).collect::<String>();
        assert_eq!(parse(&list(&[(3, 10), (1, 20), (2, 30)]), &[]).unwrap().servers()[2].peer_port, 10);
        let told = |text: String| faults(&text, &[]).join("\n");
        assert!(told(String::new()).contains("0 servers: allowed is 1, 3, 5 or 7"));
        assert!(told(list(&[(1, 10), (2, 20)])).contains("2 servers"));
        assert!(told(list(&[(1, 10), (2, 20), (2, 30)])).contains("server id 2 is there twice"));
        assert!(told(list(&[(1, 10), (2, 20), (4, 30)])).contains("server id 4 is more than there are servers"));
        assert!(told(list(&[(1, 10), (2, 11), (3, 30)])).contains("h:11 is used twice"));
        assert!(told(list(&[(8, 10)])).contains("server.id = 8"));
        let without = entry(1, 10).replace("host = \"h\"\n", "");
        assert!(told(without).contains("d/ordain.toml:1: this [[server]] has no `host`"));
        assert!(told("[server]\nid = 1\n".to_owned()).contains("write each server as an entry of its own"));
        let odd = entry(1, 10).replace("peer_port", "peerport");
        assert!(told(odd).contains("unknown key `server.peerport`; the nearest known key is `server.peer_port`"));
    }

    #[test]
    fn overrides_reach_servers() {
        assert_eq!(parse(ONE, &["server.1.client_port=9000"]).unwrap().servers()[0].client_port, 9000);
        assert!(faults(ONE, &["server.2.client_port=9000"])[0].contains("unknown key `server.2.client_port`"));
        assert!(faults(ONE, &["server.1.peer_port=0"])[0].contains("server.1.peer_port = 0: allowed is 1 to 65535"));
    }

    #[test]
    fn limits_bound_each_other() {
        let told = faults(&format!("{ONE}[ledger]\nsessions = 100\n"), &[]);
        assert_eq!(told.len(), 1);
        assert!(told[0].contains("ledger.sessions_per_key = 4096 is more than ledger.sessions = 100"), "{told:?}");
    }

    #[test]
    fn what_is_not_toml_is_told_with_its_line() {
        let told = faults("auth = \"keyed\"\nkey = = 1\n", &[]);
        assert!(told[0].starts_with("d/ordain.toml:2: not TOML: ") && !told[0].contains('\n'), "{told:?}");
    }

    #[test]
    fn paths_start_at_the_file() {
        let config = parse(ONE, &[]).unwrap();
        let id = config.whoami(Some(1)).unwrap();
        assert_eq!((config.key_path(), config.state_dir(id)), ("d/cluster.key".into(), "d/state-1".into()));
        let config = parse(ONE, &["key=/etc/k", "state_dir=/var/lib/ordain"]).unwrap();
        assert_eq!((config.key_path(), config.state_dir(id)), ("/etc/k".into(), "/var/lib/ordain".into()));
    }

    #[test]
    fn server_is_chosen_by_id_or_by_the_one_local_address() {
        let hosts = |hosts: [&str; 3]| {
            let entry = |(index, host): (usize, &&str)| {
                let id = index + 1;
                format!("[[server]]\nid = {id}\nhost = \"{host}\"\npeer_port = 1{id}\nclient_port = 2{id}\n")
            };
            parse(&hosts.iter().enumerate().map(entry).collect::<String>(), &[]).unwrap()
        };
        let here = hosts(["198.51.100.1", "127.0.0.1", "198.51.100.3"]);
        assert_eq!(here.whoami(None).unwrap().id(), 2);
        assert_eq!(here.whoami(Some(3)).unwrap().id(), 3);
        assert!(here.whoami(Some(4)).unwrap_err().to_string().contains("has servers 1 to 3"));
        assert!(here.whoami(Some(0)).is_err());
        let all = hosts(["127.0.0.1"; 3]).whoami(None).unwrap_err().to_string();
        assert!(all.contains("servers 1, 2, 3 all have addresses of this host"), "{all}");
        assert!(hosts(["198.51.100.1", "198.51.100.2", "198.51.100.3"]).whoami(None).is_err());
    }

    #[test]
    fn shared_settings_name_what_differs() {
        let (ours, theirs) = (parse(ONE, &[]).unwrap().shared(), parse(ONE, &["wire.payload=1400"]).unwrap().shared());
        let values = |shared: &SharedSettings| shared.pairs().iter().map(|(_, value)| *value).collect::<Vec<_>>();
        assert_ne!(ours.fingerprint(), theirs.fingerprint());
        assert_eq!(ours.difference(&values(&theirs)), Some(("wire.payload", 1472, 1400)));
        assert_eq!(ours.difference(&values(&ours)), None);
        let count = u64::try_from(ours.pairs().len()).unwrap();
        assert_eq!(ours.difference(&values(&ours)[..3]), Some(("count", count, 3)));
        let local = parse(ONE, &["broadcast.beat=5ms", "engine.fifo=true"]).unwrap().shared();
        assert_eq!(local.fingerprint(), ours.fingerprint());
    }
}
