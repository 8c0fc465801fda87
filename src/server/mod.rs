//! The running server: its configuration, its keys; the assembly of roles on cores.
//!
//! - [`settings`]: every setting, declared once: name, type, default, range, help;
//! - [`value`]: how values are written, read, ranged and shown (durations, sizes, choices);
//! - [`config`]: one `ordain.toml` for the whole cluster, with overrides and the origin of each value;
//! - [`fault`]: what can be wrong with it, in words that mend it;
//! - [`template`]: the commented file that `ordain init` writes;
//! - [`keys`]: the cluster key and the keys of principals, as files;
//! - [`order`]: the role of the protocol core and the peer socket; [`ingress`]: the role of the client socket;
//!   [`slots`]: what they say to each other; [`counts`]: what they count, as [`figures`] keeps it in the stats file;
//! - [`assembly`]: roles on cores; [`run`]: a server in the foreground, with its log and its end.

pub mod assembly;
pub mod config;
pub mod counts;
pub mod fault;
pub mod figures;
pub mod ingress;
pub mod keys;
pub mod map;
pub mod order;
pub mod run;
pub mod servers;
pub mod settings;
pub mod slots;
pub mod template;
pub mod value;
