//! The commands: one file a subcommand, and this table of them.
//!
//! A command is a file with `pub struct Args` (a [`clap::Args`]) and `pub fn run(args: &Args) -> Result<ExitCode, Error>`.
//! It joins the house with two lines here: its `pub mod`, and its row in the table, whose comment is its help.
//!
//! **Why a table.** Help, dispatch and the list of commands follow from it, so none can be forgotten.
//! **Invariants.** Results go to stdout, all else to stderr, both through [`out`]; a closed pipe is no error. The exit
//! statuses are [`Status`]; whatever goes wrong is said in one line: what, where, and how to mend it.
//! **Not here**: what the commands do.

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};

pub mod config;
pub mod demo;
pub mod error;
pub mod hist;
pub mod init;
pub mod keygen;
pub mod load;
pub mod order;
pub mod out;
pub mod serve;
pub mod sim;
pub mod status;
pub mod target;
pub mod top;
pub mod verify;

pub use error::{Error, Status};

/// Declares the commands: `Name(module)`, the comment above being the help; makes the parser and the dispatch.
macro_rules! commands {
    ($($(#[doc = $help:literal])+ $name:ident($module:ident),)*) => {
        #[derive(Debug, clap::Subcommand)]
        enum Command {
            $($(#[doc = $help])+ $name($module::Args),)*
        }

        impl Command {
            fn run(&self) -> Result<ExitCode, Error> {
                match self {
                    $(Self::$name(args) => $module::run(args),)*
                }
            }
        }
    };
}

commands! {
    /// Run a cluster on this machine, load it, verify the order
    Demo(demo),
    /// Write the configuration and the key of a new cluster
    Init(init),
    /// Check a configuration, or show what is in force
    Config(config),
    /// Make a cluster key, or the key of one principal
    Keygen(keygen),
    /// Run one server
    Serve(serve),
    /// Show what servers of this host do, or did before they died
    Status(status),
    /// The same, live
    Top(top),
    /// Have one transaction ordered
    Order(order),
    /// Offer requests at a rate and report what became of them
    Load(load),
    /// Show interval logs of latencies
    Hist(hist),
    /// Check that traces taken together keep the contract
    Verify(verify),
    /// Try to break the order: the real core under simulated faults
    Sim(sim),
}

/// Ordain: one global order for transactions, with dense numbers, no leader, and no loss while a majority is up.
#[derive(Debug, clap::Parser)]
#[command(name = "ordain", version = VERSION, arg_required_else_help = true, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What `ordain --version` says after the name: product, wire and stats-file versions.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (wire 1, stats file 1)");
// A string constant cannot be made of a number; this one must follow them.
const _: () = assert!(crate::wire::VERSION == 1, "VERSION must name the wire version");
const _: () = assert!(crate::stats::LAYOUT_VERSION == 1, "VERSION must name the stats file's version");

const AFTER_HELP: &str = "Example:
  ordain init d && ordain config check d/ordain.toml

Exit status: 0 done; 1 the answer is no; 2 usage or configuration; 69 no quorum or not reachable in time; 77 permission.";

/// Runs the command line of this process; returns its exit status.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refused(&error, &command(std::env::args().skip(1))),
    };
    match cli.command.run() {
        Ok(code) => code,
        Err(error) => {
            if !error.is_silent() {
                out::note(format_args!("ordain: {error}"));
            }
            error.status().into()
        }
    }
}

/// What the parser answers itself: help and version to stdout; a mistake as one line on stderr.
fn refused(error: &clap::Error, command: &str) -> ExitCode {
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match out::text(text) {
            Ok(()) => ExitCode::SUCCESS,
            Err(broken) => Error::from(broken).status().into(),
        },
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            out::note(text.trim_end());
            Status::Usage.into()
        }
        _ => {
            out::note(format_args!("ordain: {}", one_line(&text, command)));
            Status::Usage.into()
        }
    }
}

/// The command that the words begin with, as far as there is one: `ordain config show`.
fn command(words: impl Iterator<Item = String>) -> String {
    let mut all = Cli::command();
    all.build();
    let (mut at, mut name) = (&all, "ordain".to_owned());
    for word in words {
        let Some(next) = at.find_subcommand(&word) else { break };
        at = next;
        name = format!("{name} {word}");
    }
    name
}

/// The parser's message of several paragraphs as one line: the mistake, the tip, and where to read on.
fn one_line(text: &str, command: &str) -> String {
    let (message, _) = text.split_once("Usage: ").unwrap_or((text, ""));
    let message = message.split("For more information").next().unwrap_or(message);
    let words: Vec<&str> = message.split_whitespace().collect();
    let message = words.join(" ");
    let message = message.strip_prefix("error: ").unwrap_or(&message).replace(" tip: ", "; tip: ");
    format!("{message}; see `{command} --help`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_table_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        fn look(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "`{}` has no example in its help", command.get_name());
            command.get_subcommands().for_each(look);
        }
        look(&Cli::command());
    }

    #[test]
    fn mistake_is_told_in_one_line() {
        for args in [&["ordain", "keygen"][..], &["ordain", "kegen"], &["ordain", "keygen", "--bogus"]] {
            let command = command(args[1..].iter().map(|word| (*word).to_owned()));
            let line = one_line(&Cli::try_parse_from(args).unwrap_err().render().to_string(), &command);
            assert!(!line.contains('\n') && line.contains("--help`"), "{line}");
        }
    }
}
