//! Ordain: a crash-proof transaction-ordering appliance.

extern crate alloc;

pub mod cli;
pub mod client;
pub mod engine;
pub mod protocol;
pub mod server;
pub mod sim;
pub mod wire;
