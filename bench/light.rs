//! `cargo bench --bench light -- --json [--quick]`: 1,000 requests a second, beside the bare floor in the same run: latency, processor time, datagrams.
//!
//! **Not here**: the measurement (`runs/light.rs`), what benchmarks share (`support`).

mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    support::main(env!("CARGO_CRATE_NAME"))
}
