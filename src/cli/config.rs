//! `ordain config`: check a configuration, or show every setting in force.

use std::fs::File as Open;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value as Json, json};

use super::{Error, Status, out};
use crate::protocol::{HISTORY_MAX, PARTICIPANTS_MAX, WINDOW};
use crate::server::config::Config;
use crate::server::fault::Faults;
use crate::server::settings::{Auth, find};
use crate::server::value::{Kind, literal, quoted};

const EXAMPLES: &str = "Examples:
  ordain config check d/ordain.toml
  ordain config show d/ordain.toml --set wire.payload=1400";
const CHECK_EXAMPLE: &str = "Example:
  ordain config check d/ordain.toml";
const SHOW_EXAMPLES: &str = "Examples:
  ordain config show d/ordain.toml
  ordain config show d/ordain.toml --set ledger.profile=laptop --json";

/// What `ordain config` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Say whether a configuration and its key are right, and what is wrong
    #[command(after_help = CHECK_EXAMPLE)]
    Check(File),
    /// Print every setting in force, with its unit and where it comes from
    #[command(after_help = SHOW_EXAMPLES)]
    Show(Show),
}

#[derive(Debug, clap::Args)]
struct File {
    /// The configuration
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Override a setting; may be given several times
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
}

#[derive(Debug, clap::Args)]
struct Show {
    #[command(flatten)]
    file: File,
    /// Print one JSON object instead
    #[arg(long)]
    json: bool,
}

/// Checks or shows.
///
/// # Errors
/// What is wrong with the file or its key.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    match &args.what {
        What::Check(file) => check(file),
        What::Show(Show { file, json }) => show(file, *json),
    }
}

/// Reads a configuration; what is no text file at all is told as such.
///
/// # Errors
/// What is wrong with it.
pub(super) fn load(path: &Path, set: &[String]) -> Result<Config, Error> {
    Config::load(path, set).map_err(|faults| no_text(path).unwrap_or_else(|| faults.into()))
}

/// Why a file that cannot be read as a configuration never could be: a directory, or no text.
fn no_text(path: &Path) -> Option<Error> {
    let say = |why: &str| Error::usage(format!("{}: cannot be read: {why}", path.display()));
    if path.is_dir() {
        return Some(say("it is a directory; give the file, such as d/ordain.toml"));
    }
    let mut bytes = Vec::new();
    Open::open(path).ok().filter(|_| path.is_file())?.take(BYTES_LOOKED_AT).read_to_end(&mut bytes).ok()?;
    // A character cut off at the end has no length.
    let is_text = std::str::from_utf8(&bytes).map_or_else(|error| error.error_len().is_none(), |_| true);
    (!is_text).then(|| say("it is not text (UTF-8); give a configuration such as `ordain init DIR` writes"))
}

/// How far a file is looked at for whether it is text.
const BYTES_LOOKED_AT: u64 = 1 << 20;

/// A configuration with faults: wrong usage, or no permission.
impl From<Faults> for Error {
    fn from(faults: Faults) -> Self {
        let status = if faults.is_denied() { Status::Permission } else { Status::Usage };
        Self::new(status, faults)
    }
}

fn check(file: &File) -> Result<ExitCode, Error> {
    let config = match Config::load(&file.file, &file.set) {
        Ok(config) => config,
        Err(faults) => {
            if let Some(error) = no_text(&file.file) {
                return Err(error);
            }
            faults.iter().for_each(|fault| out::note(format_args!("ordain: {fault}")));
            return Ok(if faults.is_denied() { Status::Permission.into() } else { Status::Usage.into() });
        }
    };
    let _key_is_good = config.cluster_key()?;
    warn_if_open(&config);
    let auth = config.rows().find(|row| row.key == "auth").map(|row| row.value).unwrap_or_default();
    let servers = config.servers().len();
    let plural = if servers == 1 { "" } else { "s" };
    out::line(format_args!("{}: ok: {servers} server{plural}, auth {auth}", file.file.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Says aloud, on stderr, that nothing is authenticated.
pub(super) fn warn_if_open(config: &Config) {
    if config.settings().cluster.auth == Auth::None {
        out::note(format_args!(
            "ordain: warning: {}: auth = \"none\": whoever reaches a port can order, and forge the order",
            config.path().display()
        ));
    }
}

fn show(file: &File, json: bool) -> Result<ExitCode, Error> {
    let config = load(&file.file, &file.set)?;
    warn_if_open(&config);
    if json {
        out::line(as_json(&config))?
    } else {
        out::text(as_toml(&config))?
    }
    Ok(ExitCode::SUCCESS)
}

/// As a file that says the same: what is shown can be checked, or run.
fn as_toml(config: &Config) -> String {
    let line = |setting: String, note: String| format!("{setting:<44} # {note}\n");
    let mut text = String::new();
    for row in config.rows() {
        let is_word = find(row.key).is_some_and(|(_, setting)| matches!(setting.kind, Kind::Path | Kind::Host));
        let value = if is_word { quoted(&row.value) } else { literal(&row.value) };
        text.push_str(&line(format!("{} = {value}", row.key), format!("{}; {}", row.unit, row.origin)));
    }
    for (name, value, unit) in CONSTANTS {
        text.push_str(&line(format!("# {name} = {value}"), format!("{unit}; constant")));
    }
    for server in config.servers() {
        text.push_str(&format!(
            "\n[[server]]\nid = {}\nhost = {}\npeer_port = {}\nclient_port = {}\n",
            server.id,
            quoted(&server.host),
            server.peer_port,
            server.client_port
        ));
    }
    text
}

/// What users may want to know and cannot set.
const CONSTANTS: [(&str, usize, &str); 3] = [
    ("window", WINDOW, "requests in flight in a session"),
    ("participants_max", PARTICIPANTS_MAX, "participants of a transaction"),
    ("history_max", HISTORY_MAX, "transactions"),
];

fn as_json(config: &Config) -> Json {
    let settings: serde_json::Map<String, Json> = config
        .rows()
        .map(|row| {
            (row.key.to_owned(), json!({"value": row.value, "unit": row.unit, "origin": row.origin.to_string()}))
        })
        .collect();
    let servers: Vec<Json> = config
        .servers()
        .iter()
        .map(|server| {
            let (id, host) = (server.id.id(), &server.host);
            json!({"id": id, "host": host, "peer_port": server.peer_port, "client_port": server.client_port})
        })
        .collect();
    let constants: serde_json::Map<String, Json> =
        CONSTANTS.iter().map(|(name, value, _)| ((*name).to_owned(), json!(value))).collect();
    json!({
        "schema": 1,
        "file": config.path().display().to_string(),
        "settings": settings,
        "constants": constants,
        "servers": servers,
        "shared_fingerprint": format!("{:016x}", config.shared().fingerprint()),
    })
}
