//! Ordain: a crash-proof transaction-ordering appliance.
//!
//! A few dedicated hosts (1, 3, 5 or 7 servers) give distributed transactions one global order. A *Tx host* sends any
//! server a transaction id and the participants; it gets back a dense order number and, for each participant, the place
//! in that participant's own dense sequence with a short history of what precedes it. No server leads; what was answered
//! is held by a majority.
//!
//! # The map of the house
//! | room | what is there | may use |
//! |---|---|---|
//! | [`protocol`] | the pure core: time stamps, streams, merge, genesis, repair; [`protocol::ledger`] gives the numbers | `wire` |
//! | [`wire`] | datagrams drawn byte by byte, parsed in place, authenticated; how to write a client | `protocol`'s words |
//! | [`stats`] | the metrics, declared once; the mapped file they live in, its reader | `protocol`'s and `wire`'s words |
//! | [`engine`] | cores, roles, rings, io_uring; the only reader of clocks | `stats`, `protocol`'s words |
//! | [`sim`] | the same core under a seeded network and clock, with checkers | the pure rooms |
//! | [`client`] | for Tx hosts: sessions, retries, packing; traces and their judge | `engine`, `wire` |
//! | [`server`] | configuration, keys, the roles of a server and their assembly | all above but `client` |
//! | [`cli`] | the commands, one file each | all |
//!
//! The arrows point inwards, and `tests/tidy.rs` says so. `protocol` and `wire` compile without std
//! (`tests/pure/lib.rs`), so no socket, clock, thread or random source can hide in them.
//!
//! # One entry's way
//! 1. A client's datagram reaches [`server::ingress`], is authenticated and parsed, and its requests cross a ring.
//! 2. [`server::order`] hands them to [`protocol::machine`], which stamps them (R-STAMP) into the frame of this turn and
//!    broadcasts it with a header on top.
//! 3. Each peer accepts the frame (R-ACCEPT) and answers with a header: its acknowledgements and its promise (R-ACK,
//!    R-PROMISE). At light load at once, under load on its next frame.
//! 4. When every open stream has promised past an entry and a majority holds it, the entry is delivered (R-DELIVER) at
//!    every server: the ledger numbers it, and the server that was asked answers.
//!
//! # What may be relied on, and what not yet
//! Numbers are dense from 1, one per request and per transaction within retention, the same at every server; an answered
//! request is held by a majority. Clocks only affect speed. In this version the configuration never changes: while any
//! one server is stopped, nothing new is answered, and a server started anew is refused until all are.

extern crate alloc;

pub mod cli;
pub mod client;
pub mod engine;
pub mod protocol;
pub mod server;
pub mod sim;
pub mod stats;
pub mod wire;
