//! Printing: results to stdout, everything else to stderr, and a reader that goes away is no error.
//!
//! **Why not `println!`.** It panics when the pipe is closed (`ordain config show .. | head -1`); here the caller gets
//! [`Broken`], which `?` turns into a silent, successful end, so that destructors still run (a demo's children go).
//! **Invariants.** A line is written whole, with its newline, in one call.

use std::fmt;
use std::io::{self, Write as _};

/// Why stdout takes no more.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The reader has gone: nothing more to do, and no fault.
    #[error("stdout: the reader has gone")]
    Closed,
    /// Anything else, such as a full disk.
    #[error("stdout: {0}: send the output elsewhere")]
    Failed(#[source] io::Error),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::Closed } else { Self::Failed(error) }
    }
}

/// Writes one line of results to stdout.
///
/// # Errors
/// If stdout takes no more; `?` in a command does what is right.
pub fn line(text: impl fmt::Display) -> Result<(), Broken> {
    write(&format!("{text}\n"))
}

/// Writes text to stdout as it is.
///
/// # Errors
/// If stdout takes no more; `?` in a command does what is right.
pub fn text(text: impl fmt::Display) -> Result<(), Broken> {
    write(&text.to_string())
}

/// Writes one line to stderr: a warning, progress, what was done. If nobody can read it, it is dropped.
pub fn note(text: impl fmt::Display) {
    let _nobody_to_tell = io::stderr().lock().write_all(format!("{text}\n").as_bytes());
}

fn write(text: &str) -> Result<(), Broken> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}
