//! `cargo bench --bench saturation -- --json [--quick]`: what a cluster carries at most: rates, windows, packing, three to seven servers; and what an entry costs.
//!
//! **Not here**: the measurement (`runs/saturation.rs`), what benchmarks share (`support`).

mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    support::main(env!("CARGO_CRATE_NAME"))
}
