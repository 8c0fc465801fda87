#![cfg(test)]
//! The stats file: what is written is read; what is torn, truncated, foreign, altered or being replaced is told.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use ordain::stats::cells::Kind;
use ordain::stats::directory::FrontError;
use ordain::stats::errors::{ErrorLog, Errors, LastWords};
use ordain::stats::file::{Builder, FileError, Owner, Stats};
use ordain::stats::metrics::{Block, Core, House, Ingress, Io, Order};
use ordain::stats::process::{Life, Process};
use ordain::stats::read::{ReadError, Snapshot};
use ordain::stats::{HEADER_LEN, LABELS_MAX, LAYOUT_VERSION, PAGE};
use serde_json::json;

const NAME: &str = "server-1.stats";

/// A file with every kind of block, and its owners.
struct Made {
    stats: Stats,
    order: Owner<Order>,
    ingresses: Vec<Owner<Ingress>>,
    core: Owner<Core>,
    errors: ErrorLog,
    last_words: Owner<LastWords>,
    bytes: usize,
    path: PathBuf,
}

fn make(dir: &Path) -> Made {
    let mut builder = Builder::default();
    let (order, errors, last_words) = (builder.block("1"), builder.block::<Errors>(""), builder.block(""));
    let ingresses = [builder.block("1"), builder.block("2")];
    let (core, _io, _house) = (builder.block("order"), builder.block::<Io>("order"), builder.block::<House>(""));
    let bytes = builder.bytes();
    let mut stats = builder.create(dir, NAME, 1_234).unwrap();
    Made {
        order: stats.owner(order),
        ingresses: ingresses.into_iter().map(|place| stats.owner(place)).collect(),
        core: stats.owner(core),
        errors: ErrorLog::new(stats.direct(errors)),
        last_words: stats.direct(last_words),
        stats,
        bytes,
        path: dir.join(NAME),
    }
}

fn published(dir: &Path) -> Made {
    let mut made = make(dir);
    made.stats.publish(&json!({"id": 1})).unwrap();
    made
}

fn front(path: &Path) -> FrontError {
    match Snapshot::read(path) {
        Err(ReadError::Front { what, .. }) => what,
        other => panic!("{other:?}"),
    }
}

/// Lets a test write a file that is not meant to be written.
fn rewrite(path: &Path, bytes: &[u8]) {
    drop(fs::remove_file(path));
    fs::write(path, bytes).unwrap();
}

#[test]
fn what_owners_write_is_read_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut made = published(&dir.path().join("made/on/the/way"));
    made.order.ordered.set(42);
    made.order.refused[2].add(7);
    made.order.delay_ns[1].record(5_000);
    made.ingresses[0].told.add(3);
    made.ingresses[1].told.add(4);
    made.ingresses.iter().for_each(|ingress| ingress.answer_wait_ns.record(100));
    made.core.turn_ns.record(64);
    made.errors.note("key", "words", 99);
    assert_eq!(Snapshot::read(&made.path).unwrap().sum("order", "ordered"), Some(0));
    made.stats.mirror().copy();
    let read = Snapshot::read(&made.path).unwrap();
    assert_eq!((read.process.life(), read.started_ns), (Life::Running, 1_234));
    assert_eq!((read.process, &read.labels["id"]), (Process::this().unwrap(), &json!(1)));
    let order = read.block("order").unwrap();
    assert_eq!((order.value("ordered"), order.value("epoch")), (Some(42), Some(0)));
    let refused: Vec<(&str, u64)> = order.metric("refused").unwrap().values().filter(|(_, count)| *count > 0).collect();
    assert_eq!(refused, [("not_member", 7)]);
    let delays = order.metric("delay_ns").unwrap();
    assert_eq!((delays.entry.kind, &*delays.entry.unit), (Kind::Histogram, "ns"));
    assert_eq!(delays.distribution(0).unwrap().count(), 0);
    assert_eq!(delays.distribution(1).unwrap().quantile(0.5), Some(5_000));
    assert_eq!((delays.distribution(7), delays.value(1)), (None, None));
    assert_eq!(read.sum("ingress", "told"), Some(7));
    assert_eq!(read.distribution("ingress", "answer_wait_ns").unwrap().count(), 2);
    assert_eq!(read.block("core").unwrap().instance, "order");
    assert_eq!((read.sum("order", "no_such"), read.sum("nobody", "told")), (None, None));
    assert_eq!((read.errors.len(), &*read.errors[0].text, &read.last_words), (1, "words", &None));
    made.last_words.say("index out of bounds", 5);
    assert_eq!(Snapshot::read(&made.path).unwrap().last_words.unwrap().text, "index out of bounds");
}

/// The file describes itself: every metric declared is in its directory, with unit and help.
#[test]
fn every_declared_metric_stands_in_the_file_with_its_help() {
    let dir = tempfile::tempdir().unwrap();
    let made = published(dir.path());
    let read = Snapshot::read(&made.path).unwrap();
    let check = |name: &str, metrics: &[ordain::stats::metrics::Metric]| {
        let block = read.block(name).unwrap();
        assert_eq!(block.metrics.len(), metrics.len());
        for metric in metrics {
            let entry = &block.metric(metric.name).unwrap().entry;
            assert_eq!((entry.kind, &*entry.unit, entry.at), (metric.kind, metric.unit, metric.at));
            assert!(entry.help.len() > 8 && entry.help.ends_with('.'), "{}: {}", metric.name, entry.help);
            assert_eq!(entry.elements, metric.elements);
        }
    };
    check(Order::NAME, Order::METRICS);
    check(Ingress::NAME, Ingress::METRICS);
    check(Core::NAME, Core::METRICS);
    check(Io::NAME, Io::METRICS);
    check(House::NAME, House::METRICS);
    // Drawn in the documentation of `stats`.
    let bytes = fs::read(&made.path).unwrap();
    let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().unwrap());
    assert_eq!((&bytes[..8], word(8), word(16)), (&b"ORDSTATS"[..], LAYOUT_VERSION, bytes.len() as u64));
    assert_eq!((bytes.len(), bytes.len() % PAGE, word(48)), (made.bytes, 0, u64::from(std::process::id())));
    let directory_end = HEADER_LEN + usize::try_from(word(24)).unwrap();
    let directory: serde_json::Value = serde_json::from_slice(&bytes[HEADER_LEN..directory_end]).unwrap();
    assert_eq!(directory["blocks"][0]["name"], "order");
    assert_eq!(directory["blocks"][0]["at"].as_u64().unwrap() % 128, 0);
}

/// A thread counts as fast as it can, words whose halves are equal and figures that only grow; another copies them to the
/// file; a third reads it.
#[test]
fn a_reader_sees_no_torn_word_and_nothing_going_back() {
    const HALVES: u64 = 0x1_0000_0001;
    let dir = tempfile::tempdir().unwrap();
    let made = published(dir.path());
    let (path, done) = (made.path.clone(), AtomicBool::new(false));
    let Made { stats, order, ingresses, core, mut errors, last_words, .. } = made;
    std::thread::scope(|scope| {
        let done = &done;
        let mirror = stats.mirror().clone();
        scope.spawn(move || {
            // Relaxed: a flag alone.
            while !done.load(Ordering::Relaxed) {
                mirror.copy();
            }
        });
        scope.spawn(move || {
            // Kept until the end: they own the mapping.
            let _others = (&stats, &ingresses, &last_words);
            let mut number = 1_u64;
            // Relaxed: a flag alone; the reader sets it when it has seen enough.
            while !done.load(Ordering::Relaxed) {
                order.ordered.set((number % 0xFFFF_FFFF) * HALVES);
                order.instance.set((!number & 0xFFFF_FFFF) * HALVES);
                order.stamped.add(1);
                core.turn_ns.record(number % 1_000_000);
                if number.is_multiple_of(64) {
                    errors.note("k", &number.to_string().repeat(20), number);
                }
                number += 1;
            }
        });
        let (mut stamped, mut turns, mut noted) = (0, 0, 0);
        for _ in 0..300 {
            let read = Snapshot::read(&path).unwrap();
            let order = read.block("order").unwrap();
            for name in ["ordered", "instance"] {
                let value = order.value(name).unwrap();
                assert_eq!(value >> 32, value & 0xFFFF_FFFF, "{name} is torn");
            }
            let turn = read.distribution("core", "turn_ns").unwrap();
            let now = (order.value("stamped").unwrap(), turn.count());
            assert!(now.0 >= stamped && now.1 >= turns, "{now:?} after {:?}", (stamped, turns));
            (stamped, turns) = now;
            assert!(turn.quantile(1.0).unwrap_or(0) <= turn.max().max(1_000_000));
            if let [error] = &read.errors[..] {
                assert_eq!(error.text, error.last_ns.to_string().repeat(20));
                assert_eq!(error.count, error.last_ns / 64);
                assert!(error.last_ns >= noted);
                noted = error.last_ns;
            }
        }
        // Relaxed: as above.
        done.store(true, Ordering::Relaxed);
        assert!(stamped > 0 && turns > 0 && noted > 0, "{stamped} {turns} {noted}");
    });
}

#[test]
fn a_file_cut_anywhere_is_truncated_and_one_that_goes_on_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let made = published(dir.path());
    let whole = fs::read(&made.path).unwrap();
    let path = dir.path().join("cut");
    let lens = (0..HEADER_LEN + 2).chain((HEADER_LEN..whole.len()).step_by(997)).chain([whole.len() - 1]);
    for len in lens {
        rewrite(&path, &whole[..len]);
        let error = Snapshot::read(&path).unwrap_err().to_string();
        assert!(matches!(front(&path), FrontError::Truncated { has, .. } if has == len as u64), "{len}: {error}");
        assert!(error.contains("truncated") && error.contains("restart it"), "{error}");
    }
    rewrite(&path, &[&whole[..], &[0]].concat());
    assert!(matches!(front(&path), FrontError::Damaged(_)), "{:?}", front(&path));
    rewrite(&path, &whole);
    assert!(Snapshot::read(&path).is_ok());
}

#[test]
fn no_altered_byte_of_the_front_passes() {
    let dir = tempfile::tempdir().unwrap();
    let made = published(dir.path());
    let whole = fs::read(&made.path).unwrap();
    let word = |at: usize| usize::try_from(u64::from_le_bytes(*whole[at..].first_chunk().unwrap())).unwrap();
    let end = HEADER_LEN + word(24) + word(32);
    let path = dir.path().join("altered");
    for at in (0..HEADER_LEN).chain((HEADER_LEN..end).step_by(61)).chain([end - 1]) {
        for flip in [1, 0x80] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            rewrite(&path, &bytes);
            let what = front(&path);
            match at {
                0..8 => assert_eq!(what, FrontError::Foreign),
                8..16 => assert!(matches!(what, FrontError::Version { found } if found != LAYOUT_VERSION), "{what:?}"),
                16..24 => assert!(matches!(what, FrontError::Truncated { .. } | FrontError::Damaged(_)), "{what:?}"),
                _ => assert!(matches!(what, FrontError::Damaged(_)), "byte {at}: {what:?}"),
            }
        }
    }
}

#[test]
fn what_is_no_stats_file_is_told_and_blocks_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("foreign");
    rewrite(&path, b"[package]\nname = \"ordain\"\n");
    assert_eq!(front(&path), FrontError::Foreign);
    rewrite(&path, &vec![0x55; 100_000]);
    assert_eq!(front(&path), FrontError::Foreign);
    assert_eq!(front(Path::new("/dev/zero")), FrontError::Foreign);
    // A pipe that nobody writes to.
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert_eq!(front(&pipe), FrontError::Foreign);
    let Err(ReadError::Io { cause, .. }) = Snapshot::read(dir.path()) else { panic!("a directory was read") };
    assert_eq!(cause.kind(), std::io::ErrorKind::IsADirectory);
    let Err(ReadError::Io { cause, .. }) = Snapshot::read(&dir.path().join("none")) else { panic!("nothing was read") };
    assert_eq!(cause.kind(), std::io::ErrorKind::NotFound);
    // Longer than any stats file, though it begins as one.
    let made = published(dir.path());
    let long = fs::OpenOptions::new().write(true).create_new(true).open(dir.path().join("long")).unwrap();
    long.set_len(1 << 30).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&long, &fs::read(&made.path).unwrap()[..64], 0).unwrap();
    assert_eq!(front(&dir.path().join("long")), FrontError::Foreign);
}

#[test]
fn another_version_names_both() {
    let dir = tempfile::tempdir().unwrap();
    let made = published(dir.path());
    let mut bytes = fs::read(&made.path).unwrap();
    bytes[8] = 2;
    let path = dir.path().join("newer");
    rewrite(&path, &bytes);
    let error = Snapshot::read(&path).unwrap_err().to_string();
    assert!(error.contains("version 2") && error.contains("reads 1") && error.contains("that wrote it"), "{error}");
}

/// While new files are renamed over old ones as fast as it goes, every read gives one of them, whole.
#[test]
fn a_file_being_replaced_is_read_whole() {
    let dir = tempfile::tempdir().unwrap();
    let generation = |number: u64| {
        let mut made = make(dir.path());
        made.order.ordered.set(number);
        made.order.stamped.set(number);
        made.stats.publish(&json!({"generation": number})).unwrap();
        made.path
    };
    let path = generation(1);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 2;
            // Relaxed: a flag alone.
            while !done.load(Ordering::Relaxed) {
                generation(number);
                number += 1;
            }
        });
        let (mut last, mut seen) = (0, 0);
        while seen < 100 {
            match Snapshot::read(&path) {
                Ok(read) => {
                    let number = read.labels["generation"].as_u64().unwrap();
                    let order = read.block("order").unwrap();
                    assert_eq!((order.value("ordered"), order.value("stamped")), (Some(number), Some(number)));
                    assert!(number >= last, "{number} after {last}");
                    (last, seen) = (number, seen + 1);
                }
                // Quicker than five looks: told as what it is.
                Err(ReadError::Replaced { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        // Relaxed: as above.
        done.store(true, Ordering::Relaxed);
        assert!(last > 1, "nothing was replaced");
    });
}

/// A reader that holds the old file keeps it: a start does not touch it.
#[test]
fn the_file_of_an_earlier_life_is_left_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let first = published(dir.path());
    first.order.ordered.set(11);
    first.stats.mirror().copy();
    let kept = dir.path().join("kept");
    fs::hard_link(&first.path, &kept).unwrap();
    drop(first);
    let second = published(dir.path());
    assert_eq!(Snapshot::read(&kept).unwrap().block("order").unwrap().value("ordered"), Some(11));
    assert_eq!(Snapshot::read(&second.path).unwrap().block("order").unwrap().value("ordered"), Some(0));
}

/// Who writes a truncated file goes on, and knows it; the owners of blocks count on.
#[test]
fn truncation_ends_neither_writer_nor_reader() {
    let dir = tempfile::tempdir().unwrap();
    let made = published(dir.path());
    made.order.stamped.add(5);
    made.stats.mirror().copy();
    assert!(!made.stats.is_lost());
    fs::set_permissions(&made.path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::OpenOptions::new().write(true).open(&made.path).unwrap().set_len(4_096).unwrap();
    made.order.stamped.add(5);
    made.core.turn_ns.record(77);
    made.stats.mirror().copy();
    assert!(made.stats.is_lost());
    assert_eq!(made.order.stamped.get(), 10);
    assert!(matches!(front(&made.path), FrontError::Truncated { has: 4_096, .. }));
}

#[test]
fn a_start_that_fails_leaves_no_file_and_one_that_was_killed_is_cleaned_up() {
    let dir = tempfile::tempdir().unwrap();
    drop(make(dir.path()));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    fs::write(dir.path().join("server-1.stats.new"), "half").unwrap();
    let made = published(dir.path());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    assert_eq!(fs::metadata(&made.path).unwrap().permissions().mode() & 0o777, 0o444);
    // A file where the directory should be.
    let error = Builder::default().create(&made.path, NAME, 0).unwrap_err();
    assert!(matches!(error, FileError::Directory { .. }) && error.to_string().contains("state_dir"), "{error}");
}

#[test]
fn labels_that_are_too_long_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let mut made = make(dir.path());
    made.stats.publish(&json!({"id": 1, "long": "x".repeat(LABELS_MAX)})).unwrap();
    assert!(Snapshot::read(&made.path).unwrap().labels.is_empty());
}
