//! `ordain status`: what servers of this host do, or did before they died, from their stats files.
//!
//! **Why from files.** No question is put to a server, so asking costs it nothing, and a dead one still answers.
//! **Invariants**: JSON is one line a server, each one object, with every field that is documented: one whose part this
//! version does not have is null. A file that cannot be read is told on stderr and makes the exit status; the others
//! are shown all the same.
//! **Limits**: servers of this host; those of others are asked there. **Not here**: the file ([`crate::stats`]), what the
//! fields are made of ([`report`]), the table (`table`).
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::{Error, Status, config::load, out};
use crate::engine::clock;
use crate::stats::file_name;
use crate::stats::read::{ReadError, Snapshot};

pub mod report;
mod table;

use report::{Moment, Report};

const HELP: &str = "Examples:
  ordain status --config d/ordain.toml
  ordain status d/state-1/server-1.stats --json

With --config, the servers whose stats files lie on this host: `server-N.stats` in each `state_dir`. A server runs if its
process is there, started when the file says; else it is dead, and the figures are its last, at most 50 ms older than its
end.

--json prints one JSON object a server, each on a line of its own: for one STATSFILE, exactly one object. Fields of parts
that this version does not have are null: d_ns, d_parts, eps_ns, clock (but for stamps: whether the kernel dates
datagrams), loss and one_way_fault of peers, epoch_changes, over_d, provisional, corrected. delay_us is by the wall clocks
of both hosts, and off by how far they differ. heard is how long ago, in ms, a peer was heard last (null: never). rates are
over the last full second. stages_us: ring_wait (in the ring from ingress to order), order (from stamp to delivery),
answer_wait (from delivery until packed into a datagram). loop: turns of each core that were idle, busy, or under pressure
(more came in than a turn takes, or something found no room to leave). safe_to_stop is false for a member: in this version
nothing new is answered while any one server is stopped.";

/// Whose files.
#[derive(Debug, clap::Args)]
pub(super) struct Files {
    /// The configuration of the cluster: all its servers on this host
    #[arg(long, value_name = "FILE", required_unless_present = "files", conflicts_with = "files")]
    config: Option<PathBuf>,
    /// Override a setting of the configuration; may be given several times
    #[arg(long, value_name = "SECTION.KEY=VALUE", requires = "config")]
    set: Vec<String>,
    /// Stats files
    #[arg(value_name = "STATSFILE")]
    files: Vec<PathBuf>,
}

impl Files {
    /// Their paths.
    pub(super) fn paths(&self) -> Result<Vec<PathBuf>, Error> {
        self.config.as_ref().map_or_else(|| Ok(self.files.clone()), |config| found(config, &self.set))
    }
}

/// What `ordain status` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(flatten)]
    files: Files,
    /// One JSON object a server, each on a line of its own
    #[arg(long)]
    json: bool,
}

/// Prints what each file says.
///
/// # Errors
/// The first file that could not be read; the others have been printed.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let files = args.files.paths()?;
    let mut failed = None;
    for (at, file) in files.iter().enumerate() {
        match Snapshot::read(file) {
            Ok(snapshot) => show(&Report::new(file, &snapshot, Moment::now()), at, args.json)?,
            Err(error) => {
                if let Some(earlier) = failed.replace(told(file, error)) {
                    out::note(format_args!("ordain: {earlier}"));
                }
            }
        }
    }
    failed.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// A server's page, or why there is none.
pub(super) fn page(file: &Path) -> String {
    match Snapshot::read(file) {
        Ok(snapshot) => table::of(&Report::new(file, &snapshot, Moment::now())),
        Err(error) => format!("{}\n", told(file, error)),
    }
}

fn show(report: &Report, at: usize, json: bool) -> Result<(), Error> {
    if json {
        let text = serde_json::to_string(report).map_err(|error| Error::no(format!("status: {error}")))?;
        out::line(text)?;
    } else {
        out::text(format_args!("{}{}", if at == 0 { "" } else { "\n" }, table::of(report)))?;
    }
    Ok(())
}

/// The stats files of a configuration's servers on this host.
fn found(config: &Path, set: &[String]) -> Result<Vec<PathBuf>, Error> {
    let config = load(config, set)?;
    let ids = || config.servers().iter().map(|server| server.id);
    let files: Vec<PathBuf> = ids().map(|id| config.state_dir(id).join(file_name(id.id()))).collect();
    // What is there and cannot be read is told by name.
    let there = files.iter().filter(|file| file.symlink_metadata().is_ok()).cloned().collect::<Vec<_>>();
    if there.is_empty() {
        let (first, last) = (files.first().map(|file| file.display()), files.last().map(|file| file.display()));
        let range = first.zip(last).map_or_else(String::new, |(first, last)| format!("{first} to {last}"));
        return Err(Error::no(format!(
            "no server of {} has run on this host: none of {range} is there; start one with `ordain serve`, or give the \
             --set state_dir=... that it was started with",
            config.path().display()
        )));
    }
    Ok(there)
}

fn told(file: &Path, error: ReadError) -> Error {
    match error {
        ReadError::Io { cause, .. } => Error::file("STATSFILE", file, &cause),
        error @ ReadError::Replaced { .. } => Error::unreachable(error),
        error @ ReadError::Front { .. } => Error::new(Status::Usage, error),
    }
}

impl Moment {
    /// Both clocks, now.
    fn now() -> Self {
        Self { wall_ns: clock::realtime().get(), local_ns: clock::monotonic().get() }
    }
}
