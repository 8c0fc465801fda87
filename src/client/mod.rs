//! Users of the library: asking for a transaction's place, and judging what was answered.
//!
//! * [`machine`]: a client without I/O; everything else here that asks for places drives it.
//! * [`blocking`]: the client for programs that wait for answers.
//! * [`load`]: an open-loop load generator over it; [`cluster`]: whom both talk to.
//! * [`trace`]: one line a request, written by `load` and `order`, read by `verify`.
//! * [`verify`]: what a set of traces must satisfy, checked without knowing anything of the servers.
//! * [`stats`]: what a load run reports, and [`interval_log`]: its histograms second by second.
//!
//! **Not here**: the bytes on the wire (`wire`), the servers' side (`server`).

pub mod blocking;
pub mod cluster;
pub mod interval_log;
pub mod load;
pub mod machine;
pub mod stats;
pub mod trace;
pub mod verify;

use std::hash::{BuildHasher as _, Hasher as _};

/// Random bits that differ in every process and call: for nonces and for ids that must be new.
#[must_use]
pub fn seed() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
