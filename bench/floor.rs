//! `cargo bench --bench floor -- --json [--quick]`: bare sockets, as processes of their own: what a request costs on this host when nothing is ordered, only carried.
//!
//! **Not here**: the measurement (`runs/floor.rs`), what benchmarks share (`support`).

mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    support::main(env!("CARGO_CRATE_NAME"))
}
