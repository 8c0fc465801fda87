#![cfg(test)]
//! House rules that lints cannot check: file sizes, the opening of every file, arrows between rooms, atomics.

use std::fs;
use std::path::{Path, PathBuf};

/// Longest file, tests included; a file without its tests has to be shorter (800).
const LINES_MAX: usize = 1_000;
const LINES_WITHOUT_TESTS_MAX: usize = 800;

/// Which rooms a room may name. The pure rooms name no engine, server, client or command.
const ARROWS: &[(&str, &[&str])] = &[
    ("protocol", &["wire"]),
    ("wire", &["protocol"]),
    ("stats", &["protocol", "wire"]),
    ("engine", &["protocol", "stats"]),
    ("sim", &["protocol", "wire"]),
    ("client", &["engine", "protocol", "server", "wire"]),
    ("server", &["engine", "protocol", "stats", "wire"]),
    ("cli", &["client", "engine", "protocol", "server", "sim", "stats", "wire"]),
];

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
}

fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for dir in ["src", "tests", "bench"] {
        if root.join(dir).is_dir() {
            files(&root.join(dir), &mut found);
        }
    }
    assert!(found.len() > 40, "only {} files found under {}", found.len(), root.display());
    found.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

fn room(path: &Path) -> Option<String> {
    let inside = path.strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).ok()?;
    (inside.components().count() > 1).then(|| inside.components().next().unwrap().as_os_str().to_string_lossy().into())
}

#[test]
fn every_file_says_what_it_is_and_fits_a_reader() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        if !text.lines().any(|line| line.starts_with("//!")) {
            wrong.push(format!("{}: no `//!` opening", path.display()));
        }
        let lines = text.lines().count();
        let product = text.find("#[cfg(test)]\nmod ").map_or(lines, |at| text[..at].lines().count());
        if lines > LINES_MAX || product > LINES_WITHOUT_TESTS_MAX {
            wrong.push(format!("{}: {lines} lines, {product} without tests", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn arrows_between_rooms_point_inwards() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let Some(room) = room(&path) else { continue };
        let allowed = ARROWS.iter().find(|(name, _)| *name == room).map(|(_, to)| *to);
        let Some(allowed) = allowed else { panic!("room {room} has no row in ARROWS") };
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for (other, _) in ARROWS {
                let named = code.contains(&format!("crate::{other}::")) || code.contains(&format!("crate::{{{other}"));
                if named && *other != room && !allowed.contains(other) {
                    wrong.push(format!("{}:{}: {room} names {other}", path.display(), number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_atomic_ordering_names_its_partner() {
    let mut wrong = Vec::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| room(path).is_some()) {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let names =
                ["Ordering::Relaxed", "Ordering::Acquire", "Ordering::Release", "Ordering::AcqRel", "Ordering::SeqCst"];
            if !names.iter().any(|name| line.contains(name)) || line.trim_start().starts_with("//") {
                continue;
            }
            let near = &lines[at.saturating_sub(8)..=at];
            if !near.iter().any(|line| line.contains("//")) {
                wrong.push(format!("{}:{}: an ordering without a word on its partner", path.display(), at + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
