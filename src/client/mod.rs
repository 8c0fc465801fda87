//! Users of the library: asking for a transaction's place, and judging what was answered.
//!
//! * [`machine`]: a client without I/O; everything else here that asks for places drives it.
//! * [`trace`]: one line a request, written by `load` and `order`, read by `verify`.
//! * [`verify`]: what a set of traces must satisfy, checked without knowing anything of the servers.
//! * [`stats`]: what a load run reports, and [`interval_log`]: its histograms second by second.
//!
//! **Not here**: the bytes on the wire (`wire`), the servers' side (`server`).

pub mod interval_log;
pub mod machine;
pub mod stats;
pub mod trace;
pub mod verify;
