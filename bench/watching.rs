//! `cargo bench --bench watching -- --json [--quick]`: what it costs to be looked at: processor time an ordered entry, with and without a watcher.
//!
//! **Not here**: the measurement (`runs/watching.rs`), what benchmarks share (`support`).

mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    support::main(env!("CARGO_CRATE_NAME"))
}
