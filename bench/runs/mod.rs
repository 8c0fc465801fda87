//! What each benchmark measures: one file a program.
//!
//! **Not here**: processes, the floor, figures (`support`).

pub(super) mod callgrind;
pub(super) mod corosync;
pub(super) mod floor;
pub(super) mod light;
pub(super) mod peers;
pub(super) mod redis;
pub(super) mod saturation;
pub(super) mod stages;
pub(super) mod watching;
