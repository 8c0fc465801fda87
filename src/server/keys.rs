//! Keys as files: the cluster key (32 bytes), and the key of one principal, derived from it by name.
//!
//! Cluster key: 64 hexadecimal digits and a newline. Principal's key: two lines, `name = NAME` and `key = HEX`;
//! lines that begin with `#` are skipped in both.
//!
//! **Why text.** An operator can see, copy and compare it, and a truncated copy is noticed.
//! **Invariants.** A key file is created with mode 0600 and never overwritten; one that group or others can read is
//! refused, since a key that leaked is no key. Neither kind of key is ever printed, `Debug` included.
//! **Limits.** A file of more than [`FILE_BYTES_MAX`] bytes is no key file.
//! **Not here**: what is derived from keys, and for what (`wire::auth`).

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;
/// Longest file that is read as a key file.
pub const FILE_BYTES_MAX: u64 = 4096;
/// Longest name of a principal.
pub const NAME_BYTES_MAX: usize = 32;

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
    #[error("principal name '{0}': not allowed; a name has 1 to {NAME_BYTES_MAX} characters out of A-Z a-z 0-9 . _ -")]
    Name(String),
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

/// The name of a principal (a Tx host): 1 to 32 characters out of `A-Z a-z 0-9 . _ -`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrincipalName(String);

impl PrincipalName {
    /// Checks a name.
    ///
    /// # Errors
    /// If it is empty, too long, or has other characters.
    pub fn new(name: &str) -> Result<Self, KeyError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(allowed) {
            return Err(KeyError::Name(name.escape_debug().take(2 * NAME_BYTES_MAX).collect()));
        }
        Ok(Self(name.to_owned()))
    }

    /// The principal of whoever has the configuration and the cluster key: `local`.
    #[must_use]
    pub fn local() -> Self {
        Self("local".to_owned())
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PrincipalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The secret of the whole cluster: whoever has it can speak as a server and as any principal.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey([u8; KEY_BYTES]);

impl ClusterKey {
    /// Wraps the bytes.
    #[must_use]
    pub const fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// A new key from the system's random numbers.
    ///
    /// # Errors
    /// If the system gives none.
    pub fn generate() -> Result<Self, KeyError> {
        let path = Path::new("/dev/urandom");
        let mut bytes = [0; KEY_BYTES];
        fs::File::open(path)
            .and_then(|mut file| file.read_exact(&mut bytes))
            .map_err(|source| io_error(path, source))?;
        Ok(Self(bytes))
    }

    /// Reads a cluster key, having checked who else may.
    ///
    /// # Errors
    /// If it is missing, exposed, or not a key.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let text = read_private(path, KeyError::Missing)?;
        let digits = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
        parse_hex(path, digits.unwrap_or("")).map(Self)
    }

    /// Writes it to a new file, mode 0600.
    ///
    /// # Errors
    /// If the file is there already or cannot be written.
    pub fn create(&self, path: &Path) -> Result<(), KeyError> {
        create_private(path, &format!("{}\n", hex(&self.0)))
    }

    /// The bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(..)")
    }
}

/// What a principal holds: its name, and its key derived from the cluster key.
#[derive(Clone, PartialEq, Eq)]
pub struct PrincipalKey {
    /// Whose key it is.
    pub name: PrincipalName,
    key: [u8; KEY_BYTES],
}

impl PrincipalKey {
    /// Wraps a derived key.
    #[must_use]
    pub const fn new(name: PrincipalName, key: [u8; KEY_BYTES]) -> Self {
        Self { name, key }
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
        let name = PrincipalName::new(line("name")?)?;
        Ok(Self { name, key: parse_hex(path, line("key")?)? })
    }

    /// Writes it to a new file, mode 0600.
    ///
    /// # Errors
    /// If the file is there already or cannot be written.
    pub fn create(&self, path: &Path) -> Result<(), KeyError> {
        create_private(
            path,
            &format!(
                "# Key of one principal of an Ordain cluster; keep it secret.\nname = {}\nkey = {}\n",
                self.name,
                hex(&self.key)
            ),
        )
    }

    /// The bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.key
    }
}

impl fmt::Debug for PrincipalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrincipalKey({}, ..)", self.name)
    }
}

fn io_error(path: &Path, source: io::Error) -> KeyError {
    KeyError::Io { path: path.to_owned(), source }
}

fn hex(bytes: &[u8; KEY_BYTES]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse_hex(path: &Path, text: &str) -> Result<[u8; KEY_BYTES], KeyError> {
    if let Some(at) = text.chars().position(|c| !c.is_ascii_hexdigit()) {
        return Err(KeyError::Digit { path: path.to_owned(), at: at + 1 });
    }
    if text.len() != 2 * KEY_BYTES {
        return Err(KeyError::Length { path: path.to_owned(), got: text.len() });
    }
    let mut key = [0; KEY_BYTES];
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
