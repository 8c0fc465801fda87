#![expect(unsafe_code, reason = "typed views of mapped memory")]
//! The writing side: plans a file of blocks, makes it, hands each block to its one owner, copies what they count into it.
//!
//! **Why owners do not write the mapped file itself.** A store to a page that the kernel is just writing back to a disk waits
//! for the file system: for microseconds, or as long as the disk hangs (statistics mapped from a disk have stopped Java
//! virtual machines for seconds: Jones, "The four month bug", 2015). So the blocks of threads that must not wait lie in plain
//! memory ([`Stats::owner`]); the one thread that may wait writes its own into the file ([`Stats::direct`]) and copies the
//! others' there, word by word, when it looks ([`Mirror::copy`]). A killed server's figures are as old as that look.
//!
//! **Why made beside and renamed.** Whoever reads the old file keeps it, whole and dead; whoever opens the path anew gets the
//! new one, whole: nobody ever sees a file half made. **Why filled with zeros first.** So that the disk has given all of it
//! before the first store: a store for which there is no room would be a bus error (`guard` catches what is left).
//! **Invariants**: only the words that changed are stored. A [`Place`] is turned into one [`Owner`] at most, so that every cell has one writer. Before
//! [`Stats::publish`] nobody finds the file; a start that fails leaves none.
//! **Limits**: labels have [`super::LABELS_MAX`] bytes.
//! **Not here**: what is in the blocks (`metrics`), reading (`read`).
use core::cell::Cell as OneThread;
use core::marker::PhantomData;
use core::ops::{Deref, Range};
use core::ptr::NonNull;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};

use super::cells::{Gauge, Kind};
use super::directory::{BlockEntry, Directory, Header};
use super::guard::Watch;
use super::metrics::{BLOCK_ALIGN, Block, Metric};
use super::process::Process;
use super::{HEADER_LEN, LABELS_MAX, PAGE};

/// Why there is no stats file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The directory cannot be made.
    #[error("{path}: cannot make this directory for the stats file: {cause}; set `state_dir` to a place this user may write to", path = path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// The system's answer.
        #[source]
        cause: io::Error,
    },
    /// The file cannot be made.
    #[error("{path}: cannot make the stats file: {cause}; make room or give access, or set `state_dir` to another place", path = path.display())]
    Make {
        /// Which.
        path: PathBuf,
        /// The system's answer.
        #[source]
        cause: io::Error,
    },
    /// `/proc` does not say which process this is.
    #[error("/proc: {0}: the stats file names its process by it; mount /proc")]
    Process(#[source] io::Error),
    /// The memory of one that is not a file.
    #[error("memory for {bytes} bytes of figures: {cause}")]
    Memory {
        /// How much.
        bytes: usize,
        /// The system's answer.
        #[source]
        cause: io::Error,
    },
}

impl FileError {
    /// Whether the system did not permit it.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        match self {
            Self::Directory { cause, .. } | Self::Make { cause, .. } | Self::Memory { cause, .. } => {
                cause.kind() == io::ErrorKind::PermissionDenied
            }
            Self::Process(_) => false,
        }
    }
}

/// Mapped memory, of a file or of nobody else.
#[derive(Debug)]
pub(super) struct Region {
    // Before the mapping it watches, so that it is dropped before.
    watch: Option<Watch>,
    map: MmapRaw,
}

impl Region {
    fn of_file(file: &File, len: usize) -> io::Result<Self> {
        // Populated: no page is looked up for the first time by a thread that has better things to do.
        let map = MmapOptions::new().len(len).populate().map_raw(file)?;
        Ok(Self::watched(map))
    }

    pub(super) fn to_read(file: &File, len: usize) -> io::Result<Self> {
        let map = MmapOptions::new().len(len).populate().map_raw_read_only(file)?;
        Ok(Self::watched(map))
    }

    fn watched(map: MmapRaw) -> Self {
        let watch = NonNull::new(map.as_mut_ptr()).map(|start| Watch::new(start, map.len()));
        Self { watch, map }
    }

    fn in_memory(len: usize) -> io::Result<Self> {
        Ok(Self { watch: None, map: MmapOptions::new().len(len.max(1)).populate().map_anon()?.into() })
    }

    /// Whether the file lost a page under the mapping.
    pub(super) fn is_hit(&self) -> bool {
        self.watch.as_ref().is_some_and(Watch::is_hit)
    }

    /// The block at an offset. `None` if it does not lie there whole, or not on its boundary.
    pub(super) fn block<B: Block>(&self, at: usize) -> Option<&B> {
        let end = at.checked_add(size_of::<B>())?;
        if !at.is_multiple_of(align_of::<B>()) || end > self.map.len() {
            return None;
        }
        // SAFETY: inside the mapping.
        let start = unsafe { self.map.as_mut_ptr().add(at) };
        // SAFETY: in bounds and aligned (mappings begin at pages), and lives as long as `self`. A block is atomics alone,
        // so that any bits are valid and other writers are no conflict.
        Some(unsafe { &*start.cast::<B>() })
    }

    /// The words of `len` bytes from an offset on; none if they do not lie there whole, or not on a word.
    fn words(&self, at: usize, len: usize) -> &[Word] {
        let inside = at.checked_add(len).is_some_and(|end| end <= self.map.len());
        if !inside || !at.is_multiple_of(align_of::<Word>()) {
            return &[];
        }
        // SAFETY: inside the mapping.
        let first = unsafe { self.map.as_mut_ptr().add(at) };
        // SAFETY: in bounds and aligned (mappings begin at pages), and lives as long as `self`. A word is one atomic, so that
        // any bits are valid and other writers are no conflict.
        unsafe { core::slice::from_raw_parts(first.cast::<Word>(), len / size_of::<Word>()) }
    }
}

/// One word of a region, whatever it belongs to.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Word(Gauge);

impl Word {
    pub(super) fn get(&self) -> u64 {
        self.0.get()
    }
}

// SAFETY: one atomic word.
unsafe impl Block for Word {
    const NAME: &'static str = "word";
    const METRICS: &'static [Metric] = &[];
}

/// Where a block will lie: to be turned into its owner, once.
#[derive(Debug)]
pub struct Place<B> {
    at: usize,
    block: PhantomData<B>,
}

/// Plans a file: which blocks it has.
#[derive(Debug, Default)]
pub struct Builder {
    blocks: Vec<BlockEntry>,
    directory: Directory,
    len: usize,
}

impl Builder {
    /// Adds a block; `instance` tells several of one kind apart.
    pub fn block<B: Block>(&mut self, instance: &str) -> Place<B> {
        let at = self.len;
        self.blocks.push(BlockEntry { name: B::NAME.to_owned(), instance: instance.to_owned(), at });
        self.directory.add::<B>();
        self.len = at + size_of::<B>().next_multiple_of(BLOCK_ALIGN);
        Place { at, block: PhantomData }
    }

    /// Bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let (front, _) = self.front();
        (front + self.len).next_multiple_of(PAGE)
    }

    /// Memory that the file takes with what its owners write: the page cache's and this process's.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.bytes() + self.len.next_multiple_of(PAGE)
    }

    /// Bytes before the blocks, and the directory that says where those are.
    fn front(&self) -> (usize, Vec<u8>) {
        let with_front = |front: usize| {
            let blocks = self.blocks.iter().map(|block| BlockEntry { at: block.at + front, ..block.clone() }).collect();
            Directory { blocks, ..self.directory.clone() }.encode()
        };
        // Offsets have more digits behind a front: as many as it takes for the front to be long enough for itself.
        let mut front = PAGE;
        loop {
            let text = with_front(front);
            let needed = (HEADER_LEN + text.len() + LABELS_MAX).next_multiple_of(PAGE);
            if needed <= front {
                return (front, text);
            }
            front = needed;
        }
    }

    /// Memory of this process alone, for cores that belong to no server, and for tests.
    ///
    /// # Errors
    /// [`FileError::Memory`].
    pub fn in_memory(self) -> Result<Stats, FileError> {
        let live = Arc::new(self.live()?);
        // Nothing to copy to: every block is where its owner writes.
        let mirror = Mirror { file: Arc::clone(&live), live, front: 0, ranges: Vec::new() };
        Ok(Stats { mirror, draft: None })
    }

    fn live(&self) -> Result<Region, FileError> {
        Region::in_memory(self.len).map_err(|cause| FileError::Memory { bytes: self.len, cause })
    }

    /// Makes the file in `dir` under a name that nobody looks for, all zeros, and maps it; `started_ns` is now by the wall
    /// clock. [`Stats::publish`] gives it its name.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn create(self, dir: &Path, name: &str, started_ns: u64) -> Result<Stats, FileError> {
        fs::create_dir_all(dir).map_err(|cause| FileError::Directory { path: dir.to_owned(), cause })?;
        let process = Process::this().map_err(FileError::Process)?;
        let ((front, directory), bytes) = (self.front(), self.bytes());
        let path = dir.join(name);
        let hidden = dir.join(format!("{name}.new"));
        let fail = |cause| FileError::Make { path: hidden.clone(), cause };
        // What an earlier start left that was killed on the way.
        match fs::remove_file(&hidden) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(fail(cause)),
            _ => {}
        }
        let mut file =
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&hidden).map_err(fail)?;
        let made = Draft { hidden: hidden.clone(), path, file: file.try_clone().map_err(fail)?, published: false };
        file.write_all(&vec![0; bytes]).map_err(fail)?;
        let (live, region) = (self.live()?, Region::of_file(&file, bytes).map_err(fail)?);
        let header = Header { file_len: bytes, directory_len: directory.len(), labels_len: 0, process, started_ns };
        let mirror = Mirror { live: Arc::new(live), file: Arc::new(region), front, ranges: Vec::new() };
        Ok(Stats { mirror, draft: Some(Box::new((made, header, directory))) })
    }
}

/// A file in the making; removed unless it was published.
#[derive(Debug)]
struct Draft {
    hidden: PathBuf,
    path: PathBuf,
    file: File,
    published: bool,
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.published {
            // Nobody is left to tell, and the next start removes it.
            drop(fs::remove_file(&self.hidden));
        }
    }
}

/// Where owners count, and the file that it is copied to.
#[derive(Clone, Debug)]
pub struct Mirror {
    live: Arc<Region>,
    file: Arc<Region>,
    /// Where the blocks begin in the file.
    front: usize,
    /// What is copied: bytes of the blocks.
    ranges: Vec<Range<usize>>,
}

impl Mirror {
    /// Copies what has changed since the last time. May wait for the disk.
    pub fn copy(&self) {
        for Range { start, end } in &self.ranges {
            let words = self.live.words(*start, end - start).iter();
            let copies = self.file.words(self.front + start, end - start);
            words.zip(copies).filter(|(from, to)| from.get() != to.get()).for_each(|(from, to)| to.0.set(from.get()));
        }
    }
}

/// Memory for the blocks of a [`Builder`].
#[derive(Debug)]
pub struct Stats {
    mirror: Mirror,
    draft: Option<Box<(Draft, Header, Vec<u8>)>>,
}

impl Stats {
    /// The block at a place of the same builder, for its one writer, who never waits: [`Mirror::copy`] takes it to the file.
    ///
    /// # Panics
    /// If the place is another builder's.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "a place is given up: there is one owner")]
    pub fn owner<B: Block>(&mut self, place: Place<B>) -> Owner<B> {
        self.mirror.ranges.push(place.at..place.at + size_of::<B>());
        Owner::at(&self.mirror.live, place.at)
    }

    /// The block at a place of the same builder, in the file itself: for a writer who may wait for a disk.
    ///
    /// # Panics
    /// If the place is another builder's.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "a place is given up: there is one owner")]
    pub fn direct<B: Block>(&self, place: Place<B>) -> Owner<B> {
        Owner::at(&self.mirror.file, self.mirror.front + place.at)
    }

    /// What copies the owners' blocks into the file, once all have been handed out.
    #[must_use]
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Gives the file its name, in place of the one an earlier life left there. `labels` is a JSON object of words that do
    /// not change: what is longer than [`super::LABELS_MAX`] is left out.
    ///
    /// # Errors
    /// [`FileError::Make`].
    pub fn publish(&mut self, labels: &serde_json::Value) -> Result<(), FileError> {
        self.mirror.copy();
        let Some(made) = self.draft.as_deref_mut() else { return Ok(()) };
        let (draft, header, directory) = made;
        let mut labels = labels.to_string().into_bytes();
        if labels.len() > LABELS_MAX {
            labels = b"{}".to_vec();
        }
        header.labels_len = labels.len();
        let bytes = header.encode(directory, &labels);
        let mode = Permissions::from_mode(0o444);
        let written = draft.file.write_all_at(&bytes, 0).and_then(|()| draft.file.set_permissions(mode));
        // Not to be written by anybody by accident: the server has it open already.
        let named = written.and_then(|()| fs::rename(&draft.hidden, &draft.path));
        named.map_err(|cause| FileError::Make { path: draft.path.clone(), cause })?;
        draft.published = true;
        Ok(())
    }

    /// Where the file is, once it has its name.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.draft.as_deref().filter(|(draft, ..)| draft.published).map(|(draft, ..)| &*draft.path)
    }

    /// Whether the file was truncated, or its disk had no room: figures are in memory only from then on.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.mirror.file.is_hit()
    }
}

/// A block, to be looked at by any thread while its owner writes it.
#[derive(Debug)]
pub struct View<B> {
    block: NonNull<B>,
    region: Arc<Region>,
}

// SAFETY: a block is atomics alone (`Block`), and lives as long as the region that is held here.
unsafe impl<B: Block> Send for View<B> {}
// SAFETY: as above.
unsafe impl<B: Block> Sync for View<B> {}

impl<B> Clone for View<B> {
    fn clone(&self) -> Self {
        Self { block: self.block, region: Arc::clone(&self.region) }
    }
}

impl<B: Block> View<B> {
    /// What `look` finds in it.
    pub fn look<T>(&self, look: impl FnOnce(&B) -> T) -> T {
        look(self.block())
    }

    /// Every counter and gauge of it: how it was declared, which element, its value.
    pub fn scalars(&self) -> impl Iterator<Item = (&'static Metric, Option<&'static str>, u64)> + '_ {
        let start = self.block.as_ptr().addr() - self.region.map.as_ptr().addr();
        B::METRICS.iter().filter(|metric| metric.kind != Kind::Histogram).flat_map(move |metric| {
            let count = metric.elements.len().max(1);
            (0..count).filter_map(move |at| {
                let word = self.region.block::<Word>(start + metric.at + at * size_of::<Word>())?;
                Some((metric, metric.elements.get(at).copied(), word.get()))
            })
        })
    }

    fn block(&self) -> &B {
        // SAFETY: it lies in the region held here, and is atomics alone.
        unsafe { self.block.as_ref() }
    }
}

/// A block, for the one thread that writes it: it can be sent, not shared or cloned.
///
/// Two threads that write one block do not compile:
/// ```compile_fail,E0277
/// use ordain::stats::{file::Builder, metrics::Core};
/// let mut builder = Builder::default();
/// let place = builder.block::<Core>("");
/// let owner = builder.in_memory().unwrap().direct(place);
/// let shared: &(dyn Sync) = &owner;
/// ```
/// nor do two owners of one place:
/// ```compile_fail,E0382
/// use ordain::stats::{file::Builder, metrics::Core};
/// let mut builder = Builder::default();
/// let place = builder.block::<Core>("");
/// let stats = builder.in_memory().unwrap();
/// let (one, two) = (stats.direct(place), stats.direct(place));
/// ```
#[derive(Debug)]
pub struct Owner<B> {
    view: View<B>,
    one_thread: PhantomData<OneThread<()>>,
}

impl<B: Block> Owner<B> {
    fn at(region: &Arc<Region>, at: usize) -> Self {
        let block = region.block::<B>(at).expect("a place of this builder lies in its memory");
        Self { view: View { block: NonNull::from(block), region: Arc::clone(region) }, one_thread: PhantomData }
    }

    /// For others to look at it.
    #[must_use]
    pub fn view(&self) -> View<B> {
        self.view.clone()
    }

    /// A block of this process alone: for what belongs to no server.
    ///
    /// # Panics
    /// If there is no memory for it.
    #[must_use]
    pub fn in_memory() -> Self {
        let mut builder = Builder::default();
        let place = builder.block::<B>("");
        builder.in_memory().expect("a few kilobytes of memory").direct(place)
    }
}

impl<B: Block> Deref for Owner<B> {
    type Target = B;

    fn deref(&self) -> &B {
        self.view.block()
    }
}
