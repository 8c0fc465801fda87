//! Whole-system tests: real processes on the loopback, spoken to as clients and as enemies do.
#![cfg(test)]

mod hostile;
mod servers;
mod support;
