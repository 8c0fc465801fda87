//! The running server: its configuration, its keys, and (later files) the assembly of roles on cores.
//!
//! - [`settings`]: every setting, declared once: name, type, default, range, help;
//! - [`value`]: how values are written, read, ranged and shown (durations, sizes, choices);
//! - [`config`]: one `ordain.toml` for the whole cluster, with overrides and the origin of each value;
//! - [`fault`]: what can be wrong with it, in words that mend it;
//! - [`template`]: the commented file that `ordain init` writes;
//! - [`keys`]: the cluster key and the keys of principals, as files.

pub mod config;
pub mod fault;
pub mod keys;
pub mod servers;
pub mod settings;
pub mod template;
pub mod value;
