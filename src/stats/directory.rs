//! The front of a stats file as bytes: header, directory, labels. Pure: bytes in, values out.
//!
//! **Why JSON for the directory.** It is written once, read by people as well as programs, and lets a reader of another
//! version, or in another language, find every metric by name without this code.
//! **Invariants**: what [`Header::encode`] wrote [`Front::decode`] reads; anything else is an error that says what is wrong.
//! **Limits**: [`FILE_MAX`]. **Not here**: files.
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cells::Kind;
use super::metrics::Block;
use super::process::Process;
use super::{FILE_MAX, HEADER_LEN, LAYOUT_VERSION, MAGIC};

/// One block of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockEntry {
    /// Which kind of block: a key of [`Directory::metrics`].
    pub name: String,
    /// Which of several of its kind.
    pub instance: String,
    /// Where it begins, in bytes from the file's beginning.
    pub at: usize,
}

/// One metric of a kind of block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetricEntry {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Its unit; empty for plain counts.
    pub unit: String,
    /// What it tells.
    pub help: String,
    /// Where it begins, in bytes from its block's beginning.
    pub at: usize,
    /// The names of its elements; empty for a metric of one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elements: Vec<String>,
}

impl MetricEntry {
    /// Words of all its elements.
    #[must_use]
    pub fn words(&self) -> usize {
        self.kind.words() * self.elements.len().max(1)
    }
}

/// What is where in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directory {
    /// The blocks.
    pub blocks: Vec<BlockEntry>,
    /// What is in a block of a kind, by the kind's name.
    pub metrics: BTreeMap<String, Vec<MetricEntry>>,
}

impl Directory {
    /// Declares a kind of block.
    pub fn add<B: Block>(&mut self) {
        let entry = |metric: &super::metrics::Metric| MetricEntry {
            name: metric.name.to_owned(),
            kind: metric.kind,
            unit: metric.unit.to_owned(),
            help: metric.help.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" "),
            at: metric.at,
            elements: metric.elements.iter().map(|name| (*name).to_owned()).collect(),
        };
        self.metrics.entry(B::NAME.to_owned()).or_insert_with(|| B::METRICS.iter().map(entry).collect());
    }

    /// As it stands in the file.
    pub(super) fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// The header's own values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the whole file.
    pub file_len: usize,
    /// Bytes of the directory.
    pub directory_len: usize,
    /// Bytes of the labels.
    pub labels_len: usize,
    /// Who writes the file.
    pub process: Process,
    /// When that began (wall clock).
    pub started_ns: u64,
}

/// What is wrong with a file's front.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrontError {
    /// It does not begin as a stats file does.
    #[error("not a stats file of `ordain serve`")]
    Foreign,
    /// Another layout.
    #[error("layout version {found}; this program reads {LAYOUT_VERSION}")]
    Version {
        /// Which.
        found: u64,
    },
    /// It is shorter than it says.
    #[error("truncated: {has} bytes of {wants}")]
    Truncated {
        /// Bytes there.
        has: u64,
        /// Bytes there should be.
        wants: u64,
    },
    /// Its front contradicts itself.
    #[error("damaged: {0}")]
    Damaged(&'static str),
}

impl Header {
    /// Header, directory and labels, one after the other.
    #[must_use]
    pub fn encode(&self, directory: &[u8], labels: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        let wide = |len: usize| len as u64;
        let boot = self.process.boot.to_le_bytes();
        let words = [
            (8, LAYOUT_VERSION),
            (16, wide(self.file_len)),
            (24, wide(self.directory_len)),
            (32, wide(self.labels_len)),
            (48, self.process.pid),
            (56, self.process.start_ticks),
            (64, self.process.namespace),
            (72, self.started_ns),
        ];
        words.iter().for_each(|(at, word)| bytes[*at..at + 8].copy_from_slice(&word.to_le_bytes()));
        bytes[80..96].copy_from_slice(&boot);
        bytes.extend_from_slice(directory);
        bytes.extend_from_slice(labels);
        let sum = checksum(&bytes);
        bytes[40..48].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
}

/// A digest of a file's front, its own eight bytes taken as zero.
fn checksum(front: &[u8]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&front[..40]).update(&[0; 8]).update(&front[48..]);
    word_at(hasher.finalize().as_bytes(), 0)
}

fn word_at(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>());
    word.map_or(0, |word| u64::from_le_bytes(*word))
}

/// The front of a file, read and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Front {
    /// The header.
    pub header: Header,
    /// The directory: every block and metric in it lies in the file.
    pub directory: Directory,
    /// Words that do not change, by name.
    pub labels: serde_json::Map<String, serde_json::Value>,
}

impl Front {
    /// How many bytes the front of a file has that begins with `head` and is `has` bytes long.
    ///
    /// # Errors
    /// [`FrontError`].
    pub fn len(head: &[u8], has: u64) -> Result<usize, FrontError> {
        let magic = &head[..head.len().min(8)];
        if magic != &MAGIC[..magic.len()] {
            return Err(FrontError::Foreign);
        }
        if head.len() < HEADER_LEN {
            return Err(FrontError::Truncated { has, wants: HEADER_LEN as u64 });
        }
        let found = word_at(head, 8);
        if found != LAYOUT_VERSION {
            return Err(FrontError::Version { found });
        }
        let wants = word_at(head, 16);
        if wants > FILE_MAX {
            return Err(FrontError::Damaged("it claims to be longer than any stats file"));
        }
        if has != wants {
            let longer = has > wants;
            return Err(if longer {
                FrontError::Damaged("it goes on after its end")
            } else {
                FrontError::Truncated { has, wants }
            });
        }
        let lens = word_at(head, 24).checked_add(word_at(head, 32)).and_then(|sum| sum.checked_add(HEADER_LEN as u64));
        let len = lens.filter(|len| *len <= wants).and_then(|len| usize::try_from(len).ok());
        len.ok_or(FrontError::Damaged("directory and labels reach beyond its end"))
    }

    /// Reads a front: `bytes` are as many as [`Front::len`] says.
    ///
    /// # Errors
    /// [`FrontError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, FrontError> {
        if bytes.len() < HEADER_LEN || checksum(bytes) != word_at(bytes, 40) {
            return Err(FrontError::Damaged("its checksum differs"));
        }
        let len = |at: usize| usize::try_from(word_at(bytes, at)).unwrap_or(usize::MAX);
        let header = Header {
            file_len: len(16),
            directory_len: len(24),
            labels_len: len(32),
            process: Process {
                pid: word_at(bytes, 48),
                start_ticks: word_at(bytes, 56),
                namespace: word_at(bytes, 64),
                boot: u128::from(word_at(bytes, 80)) | (u128::from(word_at(bytes, 88)) << 64),
            },
            started_ns: word_at(bytes, 72),
        };
        let (directory, labels) = bytes
            .get(HEADER_LEN..)
            .and_then(|rest| rest.split_at_checked(header.directory_len))
            .ok_or(FrontError::Damaged("its directory reaches beyond its front"))?;
        let directory: Directory =
            serde_json::from_slice(directory).map_err(|_| FrontError::Damaged("its directory cannot be read"))?;
        let labels = serde_json::from_slice(labels).map_err(|_| FrontError::Damaged("its labels cannot be read"))?;
        let front = Self { header, directory, labels };
        if front.fits() { Ok(front) } else { Err(FrontError::Damaged("a metric lies beyond its end")) }
    }

    /// Whether every metric of every block lies in the file, on a word.
    fn fits(&self) -> bool {
        self.directory.blocks.iter().all(|block| {
            self.directory.metrics.get(&block.name).is_some_and(|metrics| {
                metrics.iter().all(|metric| {
                    let end = metric.words().checked_mul(8).and_then(|len| len.checked_add(metric.at));
                    let end = end.and_then(|end| end.checked_add(block.at));
                    let aligned = block.at.is_multiple_of(8) && metric.at.is_multiple_of(8);
                    aligned && end.is_some_and(|end| end <= self.header.file_len)
                })
            })
        })
    }
}
