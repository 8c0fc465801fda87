//! The engine: pinned cores that poll roles, rings between roles, datagrams by io_uring.
//!
//! **Map.** [`sync`] atomics (loom's in models); [`ring`] bounded single-producer single-consumer rings;
//! [`wake`] how a thread ends another's sleep ([`doze`] its protocol); [`link`] a ring and a waker in one; [`clock`] the only reader of time;
//! [`net`] UDP sockets; [`backend`] what a core asks of the kernel; [`uring`] its answer; [`cores`] roles and the
//! threads that poll them, [`place`] where those run, [`pages`] what their tables lie in, [`stop`] how they end.
//!
//! **Why.** A datagram costs microseconds whatever its size and waking an idle processor ten times that, so the engine
//! spends one `io_uring_enter` a turn, which both sends what is queued and, when there is nothing to do, sleeps.
//!
//! **Invariants.** After start nothing here allocates, locks or makes a system call per message. What is full is refused
//! and counted. No wake-up is lost (`wake`, modelled with loom).
//!
//! **Limits** are arguments of constructors; memory is taken at construction ([`uring::UringConfig::bytes`]).
//!
//! **Not here**: what the datagrams mean (`wire`), what roles do (`server`, `client`).

pub mod backend;
pub mod clock;
pub mod cores;
pub mod doze;
pub mod link;
pub mod net;
pub mod pages;
pub mod place;
pub mod ring;
pub mod stop;
pub mod sync;
pub mod uring;
pub mod wake;
