//! `cargo bench --bench stages -- --json [--quick]`: where an entry's instructions and time go, stage by stage, in the real roles without sockets.
//!
//! **Not here**: the measurement (`runs/stages.rs`), what benchmarks share (`support`).

mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    support::main(env!("CARGO_CRATE_NAME"))
}
