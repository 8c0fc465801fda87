//! How a command fails: an exit status, and one line for the person who typed it.
//!
//! **Why.** Every part has its own error type with values in it; a command only adds which exit status it means.
//! **Invariants.** The text is one line: what is wrong, where, how to mend it. No backtrace, no `Debug` output.
//! **Not here**: the texts; they belong to the parts.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use super::out::Broken;

/// Exit statuses, for scripts and service managers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Done = 0,
    /// The answer is no: a check failed, an order was refused, a target was missed.
    No = 1,
    /// Wrong usage or configuration: the same again will fail again.
    Usage = 2,
    /// No quorum, or not reachable in time.
    Unreachable = 69,
    /// The system does not permit it.
    Permission = 77,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status as u8)
    }
}

/// Why a command ended without doing what was asked.
#[derive(Debug)]
pub struct Error {
    status: Status,
    /// `None`: nothing to say (the reader of our output has gone).
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error with `status` as its exit status and the text of `source` as its line.
    #[must_use]
    pub fn new(status: Status, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { status, source: Some(source.into()) }
    }

    /// The answer is no (exit 1).
    #[must_use]
    pub fn no(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::new(Status::No, source)
    }

    /// Wrong usage or configuration (exit 2).
    #[must_use]
    pub fn usage(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::new(Status::Usage, source)
    }

    /// No quorum, or not reachable in time (exit 69).
    #[must_use]
    pub fn unreachable(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::new(Status::Unreachable, source)
    }

    /// Not permitted (exit 77).
    #[must_use]
    pub fn permission(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::new(Status::Permission, source)
    }

    /// A system call failed on something named `what`: exit 77 if it was not permitted, else 2.
    #[must_use]
    pub fn io(what: impl fmt::Display, source: &std::io::Error) -> Self {
        let denied = source.kind() == std::io::ErrorKind::PermissionDenied;
        Self::new(if denied { Status::Permission } else { Status::Usage }, format!("{what}: {source}"))
    }

    /// A file or directory that `flag` names cannot be read or written: exit 77 if it was not permitted, else 2.
    #[must_use]
    pub fn file(flag: &str, path: &Path, source: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        let (why, mend) = match source.kind() {
            ErrorKind::NotFound => ("no such file or directory", "check the path, and make its directory first"),
            ErrorKind::PermissionDenied => ("permission denied", "choose a place you may use"),
            ErrorKind::IsADirectory => ("is a directory", "give a file"),
            ErrorKind::NotADirectory => ("a file is where a directory should be", "choose another path"),
            ErrorKind::AlreadyExists => ("exists already", "choose another path"),
            ErrorKind::StorageFull => ("no space left", "make room, or choose another disk"),
            ErrorKind::InvalidData => ("not text", "give a file that `ordain` wrote"),
            _ => return Self::io(format_args!("{flag} {}", path.display()), source),
        };
        let status = if source.kind() == ErrorKind::PermissionDenied { Status::Permission } else { Status::Usage };
        Self::new(status, format!("{flag} {}: {why}; {mend}", path.display()))
    }

    /// The exit status.
    #[must_use]
    pub const fn status(&self) -> Status {
        self.status
    }

    /// True if there is nothing to say.
    #[must_use]
    pub const fn is_silent(&self) -> bool {
        self.source.is_none()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.as_ref().map_or(Ok(()), |source| source.fmt(f))
    }
}

impl std::error::Error for Error {}

/// Output that cannot be written ends the command: in silence and well if the reader has gone, else as a failure.
impl From<Broken> for Error {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Closed => Self { status: Status::Done, source: None },
            Broken::Failed(_) => Self::no(broken),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn closed_pipe_is_silent_success_and_full_disk_is_not() {
        let closed = Error::from(Broken::from(io::Error::from(io::ErrorKind::BrokenPipe)));
        assert_eq!((closed.status(), closed.is_silent()), (Status::Done, true));
        let full = Error::from(Broken::from(io::Error::from(io::ErrorKind::StorageFull)));
        assert_eq!((full.status(), full.is_silent()), (Status::No, false));
    }

    #[test]
    fn denied_access_has_its_own_status() {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(Error::io("x", &denied).status(), Status::Permission);
        assert_eq!(Error::io("x", &io::Error::from(io::ErrorKind::NotFound)).status(), Status::Usage);
    }
}
