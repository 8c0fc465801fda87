//! `ordain keygen`: a new cluster key, or the key of one principal derived from it.
//!
//! **Invariants.** No key is ever printed; a key file is created with mode 600 and never overwritten.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::{Error, config::load, out};
use crate::server::keys::{self, Identity, KeyError};
use crate::server::settings::Auth;

const EXAMPLES: &str = "Examples:
  ordain keygen cluster.key                                             a new cluster key
  ordain keygen --client tx-host-1 --config d/ordain.toml tx-host-1.key   the key of one principal

The second needs the cluster key; give its result to the Tx host, which can then speak for itself and for nobody else.";

/// What `ordain keygen` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file to create; never overwritten
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Derive the key of this principal instead: 1 to 32 characters out of A-Z a-z 0-9 . _ -
    #[arg(long, value_name = "NAME", requires = "config")]
    client: Option<String>,
    /// The configuration whose cluster key the principal's is derived from
    #[arg(long, value_name = "FILE", requires = "client")]
    config: Option<PathBuf>,
}

/// Why a principal's key is not made.
#[derive(Debug, thiserror::Error)]
#[error("{}: auth = \"none\": there are no keys to derive; set auth = \"keyed\" first", .0.display())]
struct NoAuth(PathBuf);

/// Makes the key.
///
/// # Errors
/// If the file exists or cannot be written, or there is no cluster key to derive from.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let (Some(name), Some(config)) = (&args.client, &args.config) else {
        keys::generate()
            .and_then(|key| keys::create_cluster(&args.file, &key))
            .map_err(|error| created("FILE", &args.file, error))?;
        out::note(format_args!("{}: a new cluster key; copy it to every host, with mode 600", args.file.display()));
        return Ok(ExitCode::SUCCESS);
    };
    let config = load(config, &[])?;
    if config.settings().cluster.auth == Auth::None {
        return Err(Error::usage(NoAuth(config.path().to_owned())));
    }
    let identity = Identity::derive(&config.cluster_key()?, name)?;
    identity.create(&args.file).map_err(|error| created("FILE", &args.file, error))?;
    out::note(format_args!("{}: the key of principal {name}; for its host only", args.file.display()));
    Ok(ExitCode::SUCCESS)
}

/// Why a key file named by `flag` was not created.
pub(super) fn created(flag: &str, path: &Path, error: KeyError) -> Error {
    match error.io() {
        Some(source) => Error::file(flag, path, source),
        None => error.into(),
    }
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
