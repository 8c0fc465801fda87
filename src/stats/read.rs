//! The reading side: a whole stats file, of a server that runs or of one that is dead, as values by name.
//!
//! **How torn reads are avoided.** The file is mapped, and every cell is loaded as one atomic word: old or new, never a
//! mixture, which copying by `read(2)` does not promise. Errors lie under a version each (`errors`). No two cells are promised
//! to be of one moment.
//! **Truncation.** Lengths are checked before and after; if the file is truncated in between, the missing page reads as
//! zeros (`guard`) and the second check tells. **Replacement.** A server that starts anew renames its new file over the old:
//! if the path leads elsewhere after reading than before, it is read again.
//! **Limits**: [`super::FILE_MAX`] bytes. **Not here**: what the names mean (`metrics`), printing (`cli`).
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::cells::{Distribution, Kind};
use super::directory::{Front, FrontError, MetricEntry};
use super::errors::{Errors, LastWords, Noted, SLOT_WORDS, SLOTS};
use super::file::{Region, Word};
use super::metrics::Block;
use super::process::Process;
use super::{FILE_MAX, HEADER_LEN};

/// How often a file that is being replaced is read again.
const TRIES: usize = 5;

/// Why a file gives no figures.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be opened or read.
    #[error("{path}: {cause}", path = path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// The system's answer.
        #[source]
        cause: io::Error,
    },
    /// It is none, or not whole.
    #[error("{path}: {what}: {mend}", path = path.display(), mend = mend(what))]
    Front {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        what: FrontError,
    },
    /// It was replaced again and again while it was read.
    #[error("{path}: replaced while it was read, {TRIES} times: its server keeps starting anew; look at its log, then ask again", path = path.display())]
    Replaced {
        /// Which.
        path: PathBuf,
    },
}

fn mend(what: &FrontError) -> &'static str {
    match what {
        FrontError::Foreign => {
            "give the file that `ordain serve` keeps in its `state_dir`, such as d/state-1/server-1.stats"
        }
        FrontError::Version { .. } => "read it with the `ordain` that wrote it, or restart the server with this one",
        FrontError::Truncated { .. } => {
            "what is missing cannot be had again; a server makes a whole file when it starts, so restart it"
        }
        FrontError::Damaged(_) => "it was altered; a server makes a new file when it starts, so restart it",
    }
}

/// A metric of one block, as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// How it was declared.
    pub entry: MetricEntry,
    words: Vec<u64>,
}

impl Read {
    /// One element's value, if it is a counter or a gauge.
    #[must_use]
    pub fn value(&self, element: usize) -> Option<u64> {
        if self.entry.kind == Kind::Histogram { None } else { self.words.get(element).copied() }
    }

    /// Elements and their values, if it is a counter or a gauge.
    pub fn values(&self) -> impl Iterator<Item = (&str, u64)> {
        let names = self.entry.elements.iter().map(String::as_str);
        names.enumerate().filter_map(|(at, name)| Some((name, self.value(at)?)))
    }

    /// One element, if it is a histogram.
    #[must_use]
    pub fn distribution(&self, element: usize) -> Option<Distribution> {
        if self.entry.kind != Kind::Histogram {
            return None;
        }
        let words = self.entry.kind.words();
        Distribution::from_words(self.words.get(element * words..(element + 1) * words)?)
    }
}

/// One block, as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadBlock {
    /// Its kind.
    pub name: String,
    /// Which of several.
    pub instance: String,
    /// Its metrics.
    pub metrics: Vec<Read>,
}

impl ReadBlock {
    /// A metric by name.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<&Read> {
        self.metrics.iter().find(|metric| metric.entry.name == name)
    }

    /// The value of a metric of one element.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<u64> {
        self.metric(name)?.value(0)
    }

    /// The histogram of a metric of one element.
    #[must_use]
    pub fn distribution(&self, name: &str) -> Option<Distribution> {
        self.metric(name)?.distribution(0)
    }
}

/// A whole file, as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Who wrote it.
    pub process: Process,
    /// When that began (wall clock).
    pub started_ns: u64,
    /// Words that do not change, by name.
    pub labels: serde_json::Map<String, serde_json::Value>,
    /// The blocks.
    pub blocks: Vec<ReadBlock>,
    /// Distinct errors.
    pub errors: Vec<Noted>,
    /// Errors that were being written when the server died: their words are lost.
    pub errors_torn: usize,
    /// Why it ended, if by a panic.
    pub last_words: Option<Noted>,
}

impl Snapshot {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let fail = |cause| ReadError::Io { path: path.to_owned(), cause };
        for _ in 0..TRIES {
            // What is no file must not block: a pipe would.
            let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(fail)?;
            let held = file.metadata().map_err(fail)?;
            if held.is_dir() {
                return Err(fail(io::ErrorKind::IsADirectory.into()));
            }
            if !held.is_file() {
                return Err(ReadError::Front { path: path.to_owned(), what: FrontError::Foreign });
            }
            let read = Self::of(&file, held.len());
            let now = fs::metadata(path).map_err(fail)?;
            if (now.dev(), now.ino()) == (held.dev(), held.ino()) {
                return read.map_err(|what| match what {
                    Unread::Io(cause) => fail(cause),
                    Unread::Front(what) => ReadError::Front { path: path.to_owned(), what },
                });
            }
        }
        Err(ReadError::Replaced { path: path.to_owned() })
    }

    fn of(file: &File, has: u64) -> Result<Self, Unread> {
        let front = read_front(file, has)?;
        let region = Region::to_read(file, front.header.file_len)?;
        let load = |at: usize| region.block::<Word>(at).map_or(0, Word::get);
        let blocks = front.directory.blocks.iter().map(|block| {
            let metrics = front.directory.metrics.get(&block.name).map_or(&[][..], Vec::as_slice);
            let read = |entry: &MetricEntry| {
                let words = (0..entry.words()).map(|word| load(block.at + entry.at + word * 8)).collect();
                Read { entry: entry.clone(), words }
            };
            ReadBlock {
                name: block.name.clone(),
                instance: block.instance.clone(),
                metrics: metrics.iter().map(read).collect(),
            }
        });
        let at = |name: &str| front.directory.blocks.iter().find(|block| block.name == name).map(|block| block.at);
        let table = at(Errors::NAME).and_then(|at| region.block::<Errors>(at));
        let slots = table.map_or(&[][..], |table| &table.slots);
        let (kept, torn): (Vec<_>, Vec<_>) = slots.iter().map(super::errors::Slot::read).partition(Result::is_ok);
        let last = at(LastWords::NAME).and_then(|at| region.block::<LastWords>(at));
        let last = last.and_then(|last| last.slot.read().ok().flatten());
        let snapshot = Self {
            process: front.header.process,
            started_ns: front.header.started_ns,
            labels: front.labels.clone(),
            blocks: blocks.filter(|block| !block.metrics.is_empty()).collect(),
            errors: kept.into_iter().flatten().flatten().collect(),
            errors_torn: torn.len(),
            last_words: last,
        };
        let now = file.metadata()?.len();
        let wants = front.header.file_len as u64;
        if now != wants || region.is_hit() {
            return Err(FrontError::Truncated { has: now.min(wants), wants }.into());
        }
        Ok(snapshot)
    }

    /// The blocks of a kind.
    pub fn of_kind(&self, name: &str) -> impl Iterator<Item = &ReadBlock> {
        self.blocks.iter().filter(move |block| block.name == name)
    }

    /// The first block of a kind.
    #[must_use]
    pub fn block(&self, name: &str) -> Option<&ReadBlock> {
        self.of_kind(name).next()
    }

    /// The sum of a metric over all blocks of a kind; `None` if none has it.
    #[must_use]
    pub fn sum(&self, block: &str, metric: &str) -> Option<u64> {
        self.of_kind(block).filter_map(|block| block.value(metric)).reduce(u64::saturating_add)
    }

    /// A histogram of all blocks of a kind together; `None` if none has it.
    #[must_use]
    pub fn distribution(&self, block: &str, metric: &str) -> Option<Distribution> {
        let found = self.of_kind(block).filter_map(|block| block.distribution(metric));
        found.reduce(|sum, other| sum.plus(&other))
    }
}

const _: () = assert!(size_of::<Errors>() == SLOTS * SLOT_WORDS * 8);

enum Unread {
    Io(io::Error),
    Front(FrontError),
}

impl From<io::Error> for Unread {
    fn from(cause: io::Error) -> Self {
        Self::Io(cause)
    }
}

impl From<FrontError> for Unread {
    fn from(what: FrontError) -> Self {
        Self::Front(what)
    }
}

/// The front does not change once the file has its name.
fn read_front(file: &File, has: u64) -> Result<Front, Unread> {
    let head_len = usize::try_from(has).unwrap_or(usize::MAX).min(HEADER_LEN);
    let mut bytes = vec![0; head_len];
    file.read_exact_at(&mut bytes, 0)?;
    if has > FILE_MAX {
        return Err(FrontError::Foreign.into());
    }
    bytes.resize(Front::len(&bytes, has)?, 0);
    file.read_exact_at(&mut bytes, 0)?;
    Ok(Front::decode(&bytes)?)
}
