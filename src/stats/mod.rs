//! A server's figures in a file that any process can read at any time, and still after the server has died.
//!
//! **Map.** [`metrics`] declares every metric, once; [`cells`] what they are made of; [`errors`] the table of distinct
//! errors; [`mod@file`] makes the file and hands its blocks to their owners; [`read`] reads one; [`directory`] its front as bytes;
//! [`process`] who wrote it; `guard` what happens when somebody truncates it.
//!
//! **Why a mapped file.** Counting costs a store to memory, no lock, no system call; the kernel keeps the pages when the
//! process is killed, so that the last figures of a dead server can be read. Made after Aeron's command-and-control file; but
//! threads that must not wait for a disk count beside it, and one that may copies their words into it ([`mod@file`] says why).
//!
//! # The file, layout version 1
//! Integers are 64 bits, little-endian (cells: of the host, which is the same on all that Linux servers run on).
//!
//! ```text
//! 0        8  magic: "ORDSTATS"
//! 8        8  layout version: 1
//! 16       8  bytes of the file: a multiple of 4096
//! 24       8  bytes of the directory
//! 32       8  bytes of the labels
//! 40       8  checksum: the first 8 bytes of BLAKE3 over header, directory and labels, these 8 taken as zero
//! 48       8  the server's process number
//! 56       8  ... its start, in ticks since boot (field 22 of /proc/PID/stat)
//! 64       8  ... its process namespace (inode of /proc/PID/ns/pid)
//! 72       8  start of the server, in nanoseconds since 1970
//! 80      16  the boot's id (/proc/sys/kernel/random/boot_id)
//! 96      32  zero
//! 128      .  directory: JSON, {"blocks":[{"name","instance","at"}], "metrics":{block name:
//!             [{"name","kind","unit","help","at","elements"}]}}; a block's `at` counts from the file's beginning,
//!             a metric's from its block's
//! .        .  labels: a JSON object of words that do not change; then zeros to a multiple of 4096
//! .        .  blocks, each at a multiple of 128, one writer each
//! ```
//! A counter or gauge is one word; a metric with `elements` has one after the other of them. A histogram is 1,026 words: the sum
//! of all values, the greatest, and the counts of 1,024 buckets ([`cells::bucket`]). The block `errors` has 32 slots of 512
//! bytes, `last_words` one:
//!
//! ```text
//! 0        8  version: odd while the slot is written; a reader that saw it odd or changed reads again
//! 8        8  how often; 0: the slot is free
//! 16       8  when first, in nanoseconds since 1970
//! 24       8  when last
//! 32       4  bytes of the key
//! 36       4  bytes of the words
//! 40     472  key, then words: UTF-8
//! ```
//!
//! **Invariants.** All up to the labels is written before the file gets its name and never changes after. Every later word has
//! one writer, and is stored and loaded whole. A start makes a new file and renames it over the old one.
//!
//! **Limits**: [`FILE_MAX`]; [`LABELS_MAX`]; those of each part.
//!
//! **Not here**: what is counted when (the roles), printing (`ordain status`).

pub mod cells;
pub mod directory;
pub mod errors;
pub mod file;
mod guard;
pub mod metrics;
pub mod process;
pub mod read;

/// What a stats file begins with.
pub const MAGIC: [u8; 8] = *b"ORDSTATS";
/// The version of its layout; a reader takes no other.
pub const LAYOUT_VERSION: u64 = 1;
/// Bytes of the header.
pub const HEADER_LEN: usize = 128;
/// Most bytes that labels have.
pub const LABELS_MAX: usize = 4_096;
/// Blocks begin at a multiple of this, and so ends the file.
pub const PAGE: usize = 4_096;
/// Longest file that is read: more than any server writes.
pub const FILE_MAX: u64 = 16 << 20;

/// The name of the stats file of server `id` (1..n) in its `state_dir`.
#[must_use]
pub fn file_name(id: u8) -> String {
    format!("server-{id}.stats")
}

const _: () = assert!(PAGE.is_multiple_of(metrics::BLOCK_ALIGN) && HEADER_LEN.is_multiple_of(8));
