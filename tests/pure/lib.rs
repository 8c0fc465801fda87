//! Proof of purity: the pure parts of the house, compiled without std. A socket, a clock, a thread, a file or a
//! `HashMap` in them does not compile here.
#![no_std]

extern crate alloc;

#[path = "../../src/protocol/mod.rs"]
pub mod protocol;
#[path = "../../src/wire/mod.rs"]
pub mod wire;
