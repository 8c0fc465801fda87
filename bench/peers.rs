//! `cargo bench --bench peers -- --json [--quick]`: other systems that give transactions an order, in the same run: Redis and corosync.
//!
//! **Not here**: the measurement (`runs/peers.rs`), what benchmarks share (`support`).

mod support;

use std::process::ExitCode;

fn main() -> ExitCode {
    support::main(env!("CARGO_CRATE_NAME"))
}
