//! Distinct errors: each kept once, with how often, when first and when last, and its newest words. After Aeron's
//! distinct error log.
//!
//! **Why distinct.** One cause repeats thousands of times and hides the other; a count and two times say as much.
//! **How torn reads are detected.** A slot has a version: its writer makes it odd, writes, makes it even. A reader that saw
//! it odd or changed reads again. All words are atomic, so that a reader that comes between sees old or new ones, which the
//! version then tells (Boehm, "Can seqlocks get along with programming language memory models?", MSPC 2012).
//! **Invariants**: one writer a slot. **Limits**: [`SLOTS`] errors; a new one takes the place of the one not seen for
//! longest, which is counted. Key and words together have [`TEXT_MAX`] bytes; longer words are cut.
//! **Not here**: what is an error (the log of a server).
use core::sync::atomic::{AtomicU64, Ordering, fence};

use super::file::Owner;
use super::metrics::{BLOCK_ALIGN, Block, Metric};

/// Distinct errors kept.
pub const SLOTS: usize = 32;
/// Words of a slot: 512 bytes.
pub const SLOT_WORDS: usize = 64;
/// Words of a slot before its text.
const HEAD_WORDS: usize = 5;
/// Bytes that key and words of an error have together.
pub const TEXT_MAX: usize = (SLOT_WORDS - HEAD_WORDS) * 8;
/// How often a reader tries to see a slot whole; a writer takes less than a microsecond.
const TRIES: usize = 10_000;

/// One error.
#[derive(Debug)]
#[repr(C)]
pub struct Slot {
    /// Odd while it is being written.
    version: AtomicU64,
    count: AtomicU64,
    first_ns: AtomicU64,
    last_ns: AtomicU64,
    /// Bytes of the key, and in the upper half of the words, both in `text`.
    lens: AtomicU64,
    text: [AtomicU64; SLOT_WORDS - HEAD_WORDS],
}

const _: () = assert!(size_of::<Slot>() == SLOT_WORDS * 8);

/// An error as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted {
    /// What it is, without what varies.
    pub key: String,
    /// Its newest words.
    pub text: String,
    /// How often it came.
    pub count: u64,
    /// When first (wall clock, ns).
    pub first_ns: u64,
    /// When last (wall clock, ns).
    pub last_ns: u64,
}

/// A slot that is being written, and stays so: its writer died at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an error was being written when the server died")]
pub struct Torn;

impl Slot {
    /// Writes all of it; by its one writer.
    fn write(&self, noted: &Noted) {
        let key = &noted.key.as_bytes()[..noted.key.len().min(TEXT_MAX / 2)];
        let text = cut(&noted.text, TEXT_MAX - key.len());
        // Relaxed: only this writer stores it.
        let version = self.version.load(Ordering::Relaxed);
        // Relaxed, and the fence after it: no word below is seen before the odd version; partner: the fence in `read`.
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        let lens = key.len() as u64 | ((text.len() as u64) << 32);
        // Relaxed, all of them: the version orders them.
        self.count.store(noted.count, Ordering::Relaxed);
        self.first_ns.store(noted.first_ns, Ordering::Relaxed);
        self.last_ns.store(noted.last_ns, Ordering::Relaxed);
        self.lens.store(lens, Ordering::Relaxed);
        let mut bytes = key.iter().chain(text.as_bytes()).copied();
        for word in &self.text {
            let word_bytes = core::array::from_fn(|_| bytes.next().unwrap_or(0));
            // Relaxed: as above.
            word.store(u64::from_ne_bytes(word_bytes), Ordering::Relaxed);
        }
        // Release: the words are seen before the even version; partner: the Acquire load in `read`.
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// The error in it, whole, if any.
    ///
    /// # Errors
    /// [`Torn`] if it is being written at every try.
    pub fn read(&self) -> Result<Option<Noted>, Torn> {
        for _ in 0..TRIES {
            // Acquire: pairs with the Release store of the even version: the words read below are at least that new.
            let before = self.version.load(Ordering::Acquire);
            if before.is_multiple_of(2) {
                // Relaxed, all of them: the fence below orders them before the second look at the version.
                let [count, first_ns, last_ns, lens] =
                    [&self.count, &self.first_ns, &self.last_ns, &self.lens].map(|word| word.load(Ordering::Relaxed));
                let text: Vec<u8> =
                    self.text.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
                fence(Ordering::Acquire);
                // Relaxed, after the fence: partner of the fence in `write`; a word of a later write shows its version.
                if self.version.load(Ordering::Relaxed) == before {
                    return Ok((count > 0).then(|| noted(count, first_ns, last_ns, lens, &text)));
                }
            }
            core::hint::spin_loop();
        }
        Err(Torn)
    }
}

/// Lengths are of another process, and trusted as little as anything else in the file.
fn noted(count: u64, first_ns: u64, last_ns: u64, lens: u64, text: &[u8]) -> Noted {
    let len = |bits: u64| usize::try_from(bits & 0xFFFF_FFFF).unwrap_or(0).min(TEXT_MAX);
    let key_len = len(lens);
    let end = (key_len + len(lens >> 32)).min(TEXT_MAX);
    let words =
        |range: core::ops::Range<usize>| String::from_utf8_lossy(text.get(range).unwrap_or_default()).into_owned();
    Noted { key: words(0..key_len), text: words(key_len..end), count, first_ns, last_ns }
}

/// The beginning of a text, at most so many bytes, cut between characters.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

/// The table of errors: written by the thread that logs.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Errors {
    pub(super) slots: [Slot; SLOTS],
}

/// Why the process ended, if it ended by a panic: written by whichever thread it was.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct LastWords {
    pub(super) slot: Slot,
}

const _: () = assert!(align_of::<Errors>() == BLOCK_ALIGN && align_of::<LastWords>() == BLOCK_ALIGN);

// SAFETY: words that are atomic, and nothing else; there are no metrics among them.
#[expect(unsafe_code, reason = "what may be laid over shared memory is a promise")]
unsafe impl Block for Errors {
    const NAME: &'static str = "errors";
    const METRICS: &'static [Metric] = &[];
}

// SAFETY: as above.
#[expect(unsafe_code, reason = "what may be laid over shared memory is a promise")]
unsafe impl Block for LastWords {
    const NAME: &'static str = "last_words";
    const METRICS: &'static [Metric] = &[];
}

/// Writes the table.
#[derive(Debug)]
pub struct ErrorLog {
    table: Owner<Errors>,
    /// What stands in the slots, so that nothing is read back from memory that others could reach.
    kept: Vec<Noted>,
    forgotten: u64,
}

impl ErrorLog {
    /// Nothing noted yet.
    #[must_use]
    pub fn new(table: Owner<Errors>) -> Self {
        Self { table, kept: Vec::with_capacity(SLOTS), forgotten: 0 }
    }

    /// Notes an error at `now_ns` (wall clock): `key` says what it is, without what varies; `text` all of it.
    pub fn note(&mut self, key: &str, text: &str, now_ns: u64) {
        let at = if let Some(at) = self.kept.iter().position(|kept| kept.key == key) {
            let kept = &mut self.kept[at];
            kept.count += 1;
            kept.last_ns = now_ns;
            text.clone_into(&mut kept.text);
            at
        } else {
            let new = Noted { key: key.to_owned(), text: text.to_owned(), count: 1, first_ns: now_ns, last_ns: now_ns };
            if self.kept.len() < SLOTS {
                self.kept.push(new);
                self.kept.len() - 1
            } else {
                self.forgotten += 1;
                let oldest = (0..SLOTS).min_by_key(|at| self.kept[*at].last_ns).unwrap_or(0);
                self.kept[oldest] = new;
                oldest
            }
        };
        self.table.slots[at].write(&self.kept[at]);
    }

    /// Errors that had to make room.
    #[must_use]
    pub const fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

impl Owner<LastWords> {
    /// Writes why the process ends, at `now_ns` (wall clock).
    pub fn say(&self, text: &str, now_ns: u64) {
        let noted =
            Noted { key: "panic".to_owned(), text: text.to_owned(), count: 1, first_ns: now_ns, last_ns: now_ns };
        self.slot.write(&noted);
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::Builder;
    use super::*;

    fn log() -> ErrorLog {
        let mut builder = Builder::default();
        let place = builder.block::<Errors>("");
        ErrorLog::new(builder.in_memory().unwrap().direct(place))
    }

    fn read(log: &ErrorLog) -> Vec<Noted> {
        log.table.slots.iter().filter_map(|slot| slot.read().unwrap()).collect()
    }

    #[test]
    fn same_key_is_one_error_with_its_newest_words() {
        let mut log = log();
        log.note("lost", "3 datagrams", 100);
        log.note("anew.2", "server 2 was started anew", 150);
        log.note("lost", "5 datagrams", 200);
        let [lost, anew] = &read(&log)[..] else { panic!("{:?}", read(&log)) };
        assert_eq!((lost.count, lost.first_ns, lost.last_ns, &*lost.text), (2, 100, 200, "5 datagrams"));
        assert_eq!((anew.count, &*anew.key), (1, "anew.2"));
    }

    #[test]
    fn table_is_bounded_and_forgets_what_was_not_seen_for_longest() {
        let mut log = log();
        for at in 0..SLOTS as u64 {
            log.note(&format!("e{at}"), "x", 1_000 + at);
        }
        log.note("e0", "again", 5_000);
        log.note("new", "x", 6_000);
        assert_eq!((read(&log).len(), log.forgotten()), (SLOTS, 1));
        let keys: Vec<String> = read(&log).into_iter().map(|noted| noted.key).collect();
        assert!(
            keys.contains(&"e0".to_owned()) && keys.contains(&"new".to_owned()) && !keys.contains(&"e1".to_owned())
        );
    }

    #[test]
    fn long_words_are_cut_between_characters() {
        let mut log = log();
        log.note("k", &"é".repeat(TEXT_MAX), 1);
        let text = &read(&log)[0].text;
        assert!(text.len() >= TEXT_MAX - 2 && text.chars().all(|letter| letter == 'é'), "{}", text.len());
    }

    /// One thread writes errors whose parts all say the same number, another reads: whatever it gets is of one write.
    #[test]
    fn a_reader_never_sees_half_of_a_write() {
        let slot = Slot {
            version: AtomicU64::new(0),
            count: AtomicU64::new(0),
            first_ns: AtomicU64::new(0),
            last_ns: AtomicU64::new(0),
            lens: AtomicU64::new(0),
            text: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        let of = |number: u64| Noted {
            key: format!("k{}", number % 97),
            text: number.to_string().repeat(18),
            count: number,
            first_ns: number,
            last_ns: number,
        };
        let writes = 200_000_u64;
        let seen = std::thread::scope(|scope| {
            scope.spawn(|| (1..=writes).for_each(|number| slot.write(&of(number))));
            let (mut seen, mut last) = (0_u64, 0);
            while last < writes {
                // Torn: the writer was quicker than every try; that is told, not hidden.
                let Ok(Some(noted)) = slot.read() else { continue };
                assert_eq!(noted, of(noted.count));
                assert!(noted.count >= last);
                (seen, last) = (seen + 1, noted.count);
            }
            seen
        });
        assert!(seen > 0);
    }

    #[test]
    fn a_slot_whose_writer_died_is_told() {
        let mut log = log();
        log.note("k", "words", 1);
        // Relaxed: one thread.
        log.table.slots[0].version.store(7, Ordering::Relaxed);
        assert_eq!(log.table.slots[0].read(), Err(Torn));
    }
}
