//! Whole-system tests: real processes on the loopback, spoken to as clients and as enemies do.
#![cfg(test)]

mod flood;
mod hostile;
mod idle;
mod maps;
mod memory;
mod servers;
mod sockets;
mod status;
mod support;
