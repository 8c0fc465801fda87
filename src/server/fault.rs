//! What can be wrong with a configuration, each in one line: where, what, what is allowed, how to mend it.
//!
//! **Why all at once.** Who mends a file wants every fault of it, so [`Faults`] holds them all.
//! **Limits.** At most [`FAULTS_MAX`] are kept.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Most faults that are told of one file.
pub const FAULTS_MAX: usize = 50;

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file.
    File(PathBuf),
    /// A line of a file, from 1.
    Line(PathBuf, usize),
    /// The command line.
    Set,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Line(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Set => f.write_str("--set"),
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// No such file.
    #[error("{}: no such configuration; make one with `ordain init DIR`", .0.display())]
    Missing(PathBuf),
    /// The system refused to read it.
    #[error("{}: cannot be read: {source}; the file must be readable by who runs ordain", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Too long.
    #[error("{}: longer than {limit} bytes, so not a configuration; name the ordain.toml", .path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The most.
        limit: u64,
    },
    /// Not TOML.
    #[error("{place}: not TOML: {message}; see `ordain init` for a file to start from")]
    Syntax {
        /// Where.
        place: Place,
        /// What the parser said.
        message: String,
    },
    /// A key that means nothing.
    #[error("{place}: unknown key `{key}`; {}", nearest.as_ref().map_or_else(|| "`ordain config show FILE` lists the known keys".to_owned(), |nearest| format!("the nearest known key is `{nearest}`")))]
    UnknownKey {
        /// Where.
        place: Place,
        /// The key.
        key: String,
        /// A known one like it.
        nearest: Option<String>,
    },
    /// A value that is not allowed.
    #[error("{place}: {key} = {value}: allowed is {allowed}; {mend}")]
    Value {
        /// Where.
        place: Place,
        /// The key.
        key: String,
        /// The value, as written.
        value: String,
        /// What would be.
        allowed: String,
        /// What to write.
        mend: String,
    },
    /// An override that cannot be read.
    #[error("--set {0}: not of the form section.key=value; write e.g. --set wire.payload=1472")]
    Override(String),
    /// A list where there should be one value, or the like.
    #[error("{place}: {key} is of type {found}; write {expected}")]
    Shape {
        /// Where.
        place: Place,
        /// The key.
        key: String,
        /// What it is.
        found: &'static str,
        /// What it should be.
        expected: String,
    },
    /// A wrong number of servers.
    #[error("{}: {got} servers: allowed is 1, 3, 5 or 7; add or remove [[server]] entries", .path.display())]
    ServerCount {
        /// The file.
        path: PathBuf,
        /// How many it has.
        got: usize,
    },
    /// An entry without one of its keys.
    #[error("{place}: this [[server]] has no `{key}`; add it: an entry has id, host, peer_port and client_port")]
    ServerKey {
        /// Where the entry begins.
        place: Place,
        /// What is missing.
        key: &'static str,
    },
    /// Ids that are not 1..n.
    #[error("{place}: server id {id} is {problem}; number the servers 1 to {servers}, each once")]
    ServerId {
        /// Where.
        place: Place,
        /// The id.
        id: u64,
        /// What is wrong with it.
        problem: &'static str,
        /// How many there are.
        servers: usize,
    },
    /// Two sockets at one address.
    #[error(
        "{place}: server {id}: {host}:{port} is used twice in this file; give every peer_port and client_port of a host its own number"
    )]
    Port {
        /// Where the later one is.
        place: Place,
        /// Whose it is.
        id: u8,
        /// The host.
        host: String,
        /// The port.
        port: u16,
    },
    /// One limit above another that bounds it.
    #[error("{place}: {key} = {value} is more than {bound} = {most}; lower the first or raise the second")]
    Above {
        /// Where the first is, or the file.
        place: Place,
        /// What is too large.
        key: &'static str,
        /// How large.
        value: usize,
        /// What bounds it.
        bound: &'static str,
        /// How large that is.
        most: usize,
    },
    /// No server of that id.
    #[error("--id {id}: {} has servers 1 to {servers}; choose one of them", .path.display())]
    NoSuchId {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        id: u8,
        /// How many there are.
        servers: usize,
    },
    /// No host in the file is this one.
    #[error("{}: no [[server]] has an address of this host; say which one runs here with --id N, or correct its host", .0.display())]
    NotHere(PathBuf),
    /// Several are.
    #[error("{}: servers {ids} all have addresses of this host; say which one to run with --id N", .path.display())]
    Several {
        /// The file.
        path: PathBuf,
        /// Which.
        ids: String,
    },
    /// A host name that leads nowhere.
    #[error("{}: server {id}: host {host}: no address found ({source}); write an address, or mend the name service", .path.display())]
    Resolve {
        /// The file.
        path: PathBuf,
        /// Whose host.
        id: u8,
        /// The name.
        host: String,
        /// What the resolver said.
        source: io::Error,
    },
}

impl Fault {
    /// True if the system denied access.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Read { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }
}

/// All that is wrong with a configuration: at least one fault. As text it is the first, and how many more there are.
#[derive(Debug, Default)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// Adds a fault, up to [`FAULTS_MAX`].
    pub fn push(&mut self, fault: Fault) {
        if self.0.len() < FAULTS_MAX {
            self.0.push(fault);
        }
    }

    /// True if nothing is wrong so far.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each fault, in the order found.
    pub fn iter(&self) -> impl Iterator<Item = &Fault> {
        self.0.iter()
    }

    /// `value` if nothing is wrong.
    ///
    /// # Errors
    /// The faults, if there are any.
    pub fn none_or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }

    /// True if the system denied access.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.0.iter().any(Fault::is_denied)
    }
}

impl From<Fault> for Faults {
    fn from(fault: Fault) -> Self {
        Self(vec![fault])
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, more) = (self.0.first(), self.0.len().saturating_sub(1));
        first.map_or(Ok(()), |first| first.fmt(f))?;
        if more > 0 {
            write!(f, " (and {more} more: `ordain config check FILE` tells all)")?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}
