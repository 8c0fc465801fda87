//! `ordain serve`: one server in the foreground.
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

use super::target::number;
use super::{Error, Status, config::load, config::warn_if_open};
use crate::server::assembly::{StartError, start};
use crate::server::run::{End, follow};

const EXAMPLES: &str = "Examples:
  ordain serve --config d/ordain.toml --id 1
  ordain serve --config d/ordain.toml --id 1 --set engine.waiting=park";

/// What `ordain serve` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The configuration of the cluster
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Which server to run, 1..n; without it, the one whose address is this host's
    #[arg(long, value_name = "N", value_parser = |text: &str| number(text, 1..=7_u8))]
    id: Option<u8>,
    /// Override a setting; may be given several times
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
}

impl From<StartError> for Error {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Key(key) => key.into(),
            StartError::Stats(file) if file.is_denied() => Self::permission(file),
            other => Self::new(Status::Usage, other),
        }
    }
}

/// Counts SIGINT and SIGTERM from now on.
///
/// # Errors
/// If the handlers cannot be installed.
pub fn count_signals() -> io::Result<Arc<AtomicUsize>> {
    let count = Arc::new(AtomicUsize::new(0));
    for signal in [SIGINT, SIGTERM] {
        let count = Arc::clone(&count);
        register(signal, count)?;
    }
    Ok(count)
}

#[expect(unsafe_code, reason = "installing a signal handler")]
fn register(signal: i32, count: Arc<AtomicUsize>) -> io::Result<()> {
    // Relaxed: a count alone; its partner is the load of who looks at it.
    let add = move || {
        count.fetch_add(1, Ordering::Relaxed);
    };
    // SAFETY: the handler only adds to an atomic, which is async-signal-safe.
    unsafe { signal_hook::low_level::register(signal, add) }.map(|_| ())
}

/// Logs go to stderr: with the time on a terminal, without it under a service manager that adds its own.
fn log() {
    let under_manager = std::env::var_os("JOURNAL_STREAM").is_some();
    let lines = tracing_subscriber::fmt().with_writer(io::stderr).with_target(false);
    let lines = lines.with_ansi(io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none());
    let installed = if under_manager { lines.without_time().try_init() } else { lines.try_init() };
    // Only a second log in one process fails, and then the first one serves.
    drop(installed);
}

/// Runs the server until it is asked to end.
///
/// # Errors
/// What keeps it from starting; [`Status::Unreachable`] if it could not finish what it held.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let config = load(&args.config, &args.set)?;
    warn_if_open(&config);
    let id = config.whoami(args.id)?;
    log();
    let signals = count_signals().map_err(|cause| Error::io("signal handlers", &cause))?;
    let server = start(&config, id)?;
    match follow(server, &signals) {
        End::Drained => Ok(ExitCode::SUCCESS),
        End::Cut { left } => Err(Error::unreachable(format!(
            "server {id} ended with {left} requests unanswered: too few other servers answered"
        ))),
        End::Died => Err(Error::no(format!("server {id}: a core ended by itself; the log above says why"))),
    }
}
