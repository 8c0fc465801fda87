//! `ordain keygen`: a new cluster key, or the key of one principal derived from it.

use std::path::PathBuf;
use std::process::ExitCode;

use super::{Error, out};
use crate::server::keys::{ClusterKey, KeyError};

const EXAMPLES: &str = "Examples:
  ordain keygen cluster.key";

/// What `ordain keygen` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file to create; never overwritten
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Makes the key.
///
/// # Errors
/// If the file exists or cannot be written.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    ClusterKey::generate().and_then(|key| key.create(&args.file))?;
    out::note(format_args!(
        "{}: cluster key written; copy it to every host of the cluster, mode 600",
        args.file.display()
    ));
    Ok(ExitCode::SUCCESS)
}

/// A key that cannot be read or written is a fault of configuration, or of permission.
impl From<KeyError> for Error {
    fn from(error: KeyError) -> Self {
        match error.io().map(std::io::Error::kind) {
            Some(std::io::ErrorKind::PermissionDenied) => Self::permission(error),
            _ => Self::usage(error),
        }
    }
}
