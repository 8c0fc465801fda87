//! The commands: one file a subcommand.

/// Runs the command line of this process.
#[must_use]
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
