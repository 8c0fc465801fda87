//! Keys as files: the cluster key (32 bytes), and the key of one principal, derived from it by name.
//!
//! Cluster key: 64 hexadecimal digits and a newline. Principal's key: two lines, `name = NAME` and `key = HEX`;
//! lines that begin with `#` are skipped in both.
//!
//! **Why text.** An operator can see, copy and compare it, and a truncated copy is noticed.
//! **Invariants.** A key file is created with mode 0600 and never overwritten; one that group or others can read is
//! refused, since a key that leaked is no key. Neither kind of key is ever printed, `Debug` included.
//! **Limits.** A file of more than [`FILE_BYTES_MAX`] bytes is no key file.
//! **Not here**: how keys are derived, and what for (`wire::auth`).

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::protocol::Principal;
use crate::wire::auth::{self, ClusterKey, KEY_LEN, NameError, PrincipalKey};

/// Longest file that is read as a key file.
pub const FILE_BYTES_MAX: u64 = 4096;

/// What can be wrong with a key file or a principal's name.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// No such file.
    #[error("{}: no such key file; make one with `ordain keygen {}` and copy it to every host", .0.display(), .0.display())]
    Missing(PathBuf),
    /// No such file, for a principal.
    #[error("{}: no such key file; make one with `ordain keygen --client NAME --config FILE {}` on a host of the cluster", .0.display(), .0.display())]
    MissingPrincipal(PathBuf),
    /// Group or others have access.
    #[error("{}: mode {mode:04o} lets others at the key; run `chmod 600 {}`", .path.display(), .path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Wrong number of digits.
    #[error("{}: {got} characters where a key has 64 hexadecimal digits (32 bytes); copy the file again, or make a new key with `ordain keygen`", .path.display())]
    Length {
        /// The file.
        path: PathBuf,
        /// Characters found.
        got: usize,
    },
    /// Something that is no hexadecimal digit.
    #[error("{}: character {at} is not a hexadecimal digit; a key has 64 of them (32 bytes); copy the file again, or make a new key with `ordain keygen`", .path.display())]
    Digit {
        /// The file.
        path: PathBuf,
        /// Which character, from 1.
        at: usize,
    },
    /// No text, or too long.
    #[error("{}: not a key file (more than {FILE_BYTES_MAX} bytes, or no text); make one with `ordain keygen`", .0.display())]
    NotText(PathBuf),
    /// A principal's file without its two lines.
    #[error("{}: not a principal's key file: no line `{line} = ..`; make one with `ordain keygen --client NAME --config FILE OUT`", .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// What is missing.
        line: &'static str,
    },
    /// Already there.
    #[error("{}: exists already and is not overwritten; remove it first, or choose another name", .0.display())]
    Exists(PathBuf),
    /// A name that is not allowed.
    #[error("{0}; choose another name")]
    Name(#[from] NameError),
    /// The system refused.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl KeyError {
    /// The underlying error of the system, if that is what it is.
    #[must_use]
    pub const fn io(&self) -> Option<&io::Error> {
        if let Self::Io { source, .. } = self { Some(source) } else { None }
    }
}

/// A new cluster key from the system's random numbers.
///
/// # Errors
/// If the system gives none.
pub fn generate() -> Result<ClusterKey, KeyError> {
    let path = Path::new("/dev/urandom");
    let mut bytes = [0; KEY_LEN];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut bytes)).map_err(|source| io_error(path, source))?;
    Ok(ClusterKey::from_bytes(bytes))
}

/// Reads a cluster key, having checked who else may.
///
/// # Errors
/// If it is missing, exposed, or not a key.
pub fn read_cluster(path: &Path) -> Result<ClusterKey, KeyError> {
    let text = read_private(path, KeyError::Missing)?;
    let digits = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    parse_hex(path, digits.unwrap_or("")).map(ClusterKey::from_bytes)
}

/// Writes a cluster key to a new file, mode 0600.
///
/// # Errors
/// If the file is there already or cannot be written.
pub fn create_cluster(path: &Path, key: &ClusterKey) -> Result<(), KeyError> {
    create_private(path, &format!("{}\n", hex(key.expose())))
}

/// Who a client is: the name of a principal (a Tx host), and its key.
#[derive(Clone, Debug)]
pub struct Identity {
    name: String,
    principal: Principal,
    key: PrincipalKey,
}

/// The principal of whoever has the cluster's configuration and key.
pub const LOCAL: &str = "local";

impl Identity {
    /// The principal called `name` in the cluster of `key`.
    ///
    /// # Errors
    /// If no principal can have that name.
    pub fn derive(key: &ClusterKey, name: &str) -> Result<Self, KeyError> {
        let principal = auth::principal_id(name)?;
        Ok(Self { name: name.to_owned(), principal, key: key.principal(principal) })
    }

    /// Reads a principal's key file, having checked who else may.
    ///
    /// # Errors
    /// If it is missing, exposed, or not such a file.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let text = read_private(path, KeyError::MissingPrincipal)?;
        let line = |key: &'static str| {
            let fields = text.lines().filter_map(|line| line.split_once('='));
            let mut found = fields.filter(|(name, _)| name.trim() == key).map(|(_, value)| value.trim());
            found.next().ok_or(KeyError::Line { path: path.to_owned(), line: key })
        };
        let name = line("name")?;
        let principal = auth::principal_id(name)?;
        let key = PrincipalKey::from_bytes(parse_hex(path, line("key")?)?);
        Ok(Self { name: name.to_owned(), principal, key })
    }

    /// Writes it to a new file, mode 0600.
    ///
    /// # Errors
    /// If the file is there already or cannot be written.
    pub fn create(&self, path: &Path) -> Result<(), KeyError> {
        let (name, key) = (&self.name, hex(self.key.expose()));
        let head = "# The key of one principal of an Ordain cluster: keep it secret.";
        create_private(path, &format!("{head}\nname = {name}\nkey = {key}\n"))
    }

    /// The principal's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The principal's id: the digest of its name.
    #[must_use]
    pub const fn principal(&self) -> Principal {
        self.principal
    }

    /// The principal's key.
    #[must_use]
    pub const fn key(&self) -> &PrincipalKey {
        &self.key
    }
}

fn io_error(path: &Path, source: io::Error) -> KeyError {
    KeyError::Io { path: path.to_owned(), source }
}

fn hex(bytes: &[u8; KEY_LEN]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse_hex(path: &Path, text: &str) -> Result<[u8; KEY_LEN], KeyError> {
    if let Some(at) = text.chars().position(|c| !c.is_ascii_hexdigit()) {
        return Err(KeyError::Digit { path: path.to_owned(), at: at + 1 });
    }
    if text.len() != 2 * KEY_LEN {
        return Err(KeyError::Length { path: path.to_owned(), got: text.len() });
    }
    let mut key = [0; KEY_LEN];
    for (byte, pair) in key.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = pair.iter().fold(0, |sum, digit| (sum << 4) | nibble(*digit));
    }
    Ok(key)
}

/// A hexadecimal digit's value; the caller has checked that it is one.
fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit.to_ascii_lowercase() - b'a') + 10,
    }
}

/// Reads a file that only its owner may read; `missing` makes the error if it is not there.
fn read_private(path: &Path, missing: impl Fn(PathBuf) -> KeyError) -> Result<String, KeyError> {
    let fail = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => missing(path.to_owned()),
        _ => io_error(path, error),
    };
    let file = fs::File::open(path).map_err(fail)?;
    let mode = file.metadata().map_err(fail)?.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(KeyError::Exposed { path: path.to_owned(), mode });
    }
    let mut bytes = Vec::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(fail)?;
    if u64::try_from(read).unwrap_or(u64::MAX) > FILE_BYTES_MAX {
        return Err(KeyError::NotText(path.to_owned()));
    }
    String::from_utf8(bytes).map_err(|_| KeyError::NotText(path.to_owned()))
}

/// Writes a new file that only its owner may read.
fn create_private(path: &Path, text: &str) -> Result<(), KeyError> {
    let fail = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => KeyError::Exists(path.to_owned()),
        _ => io_error(path, error),
    };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(fail)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_back_as_written() {
        let dir = tempfile::tempdir().unwrap();
        let (cluster, principal) = (dir.path().join("c"), dir.path().join("p"));
        let key = generate().unwrap();
        create_cluster(&cluster, &key).unwrap();
        assert!(read_cluster(&cluster).unwrap() == key);
        let identity = Identity::derive(&key, "tx-host.1").unwrap();
        identity.create(&principal).unwrap();
        let read = Identity::read(&principal).unwrap();
        assert!(read.key() == identity.key() && read.principal() == identity.principal() && read.name() == "tx-host.1");
        assert!(!format!("{identity:?}").contains(&hex(identity.key().expose())));
    }

    #[test]
    fn one_kind_of_key_file_is_not_taken_for_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let (cluster, principal) = (dir.path().join("c"), dir.path().join("p"));
        let key = generate().unwrap();
        create_cluster(&cluster, &key).unwrap();
        Identity::derive(&key, LOCAL).unwrap().create(&principal).unwrap();
        assert!(matches!(read_cluster(&principal), Err(KeyError::Digit { at: 1, .. })));
        assert!(matches!(Identity::read(&cluster), Err(KeyError::Line { line: "name", .. })));
    }

    #[test]
    fn hexadecimal_digits_of_both_cases_are_read() {
        let path = Path::new("k");
        let key = parse_hex(path, &"aF".repeat(32)).unwrap();
        assert_eq!(key, [0xaf; 32]);
        assert!(matches!(parse_hex(path, &"aF".repeat(33)), Err(KeyError::Length { got: 66, .. })));
    }
}
