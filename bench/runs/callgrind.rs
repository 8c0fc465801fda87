//! Reads what callgrind counted: instructions by function, with what it called, and by source file.
//!
//! **Why by file too.** The compiler inlines; a line keeps the file it was written in, so what a part of the source costs
//! is known even where its functions have vanished into others. A line of the standard library inlined into a function
//! counts for the file of the line before it there.
//! **Limits**: one thread, one kind of event. Source: valgrind's "Callgrind format specification".

use std::collections::{BTreeMap, HashMap};

/// In place of a file: the functions that copy, fill and compare memory.
pub(super) const COPYING: &str = "copying";

/// Instructions by function and by file.
#[derive(Debug, Default)]
pub(super) struct Counted {
    /// All.
    pub(super) total: u64,
    /// With everything it called, by name. A recursive function counts again and again.
    pub(super) inclusive: HashMap<String, u64>,
    /// Its lines alone, by file.
    pub(super) by_file: BTreeMap<String, u64>,
}

impl Counted {
    /// Of the function whose path ends so, inclusive; 0 if there is none.
    pub(super) fn of(&self, end: &str) -> u64 {
        let matching = self.inclusive.iter().filter(|(name, _)| name.ends_with(end));
        matching.map(|(_, count)| *count).sum()
    }
}

/// Names are given once and then by number.
#[derive(Default)]
struct Names(HashMap<String, String>);

impl Names {
    fn read(&mut self, text: &str) -> String {
        let Some((number, name)) = text.split_once(')') else { return text.to_owned() };
        let name = name.trim();
        if name.is_empty() {
            return self.0.get(number).cloned().unwrap_or_default();
        }
        self.0.insert(number.to_owned(), name.to_owned());
        name.to_owned()
    }
}

/// Reads a file of callgrind's.
pub(super) fn read(text: &str) -> Counted {
    let (mut files, mut functions) = (Names::default(), Names::default());
    let (mut file, mut function) = (String::new(), String::new());
    let mut counted = Counted::default();
    let (mut called, mut home) = (false, String::new());
    for line in text.lines() {
        if let Some((key, value)) = line
            .split_once('=')
            .filter(|(key, _)| !key.starts_with(['+', '-', '*']) && !key.starts_with(|c: char| c.is_ascii_digit()))
        {
            match key {
                "fl" | "fi" | "fe" => file = files.read(value),
                "fn" => {
                    function = functions.read(value);
                    home = if is_library(&file) { String::new() } else { file.clone() };
                }
                "cfn" => drop(functions.read(value)),
                "cfi" | "cfl" => drop(files.read(value)),
                "calls" => called = true,
                _ => {}
            }
            continue;
        }
        if !line.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '*')) {
            continue;
        }
        let Some(cost) = line.split_ascii_whitespace().nth(1).and_then(|cost| cost.parse::<u64>().ok()) else {
            continue;
        };
        *counted.inclusive.entry(function.clone()).or_insert(0) += cost;
        if !called {
            counted.total += cost;
            if !is_library(&file) {
                home.clone_from(&file);
            }
            let copies = ["memcpy", "memmove", "memset", "memcmp", "bcmp"].iter().any(|name| function.contains(name));
            let place = if copies { COPYING.to_owned() } else { home.clone() };
            *counted.by_file.entry(place).or_insert(0) += cost;
        }
        called = false;
    }
    counted
}

fn is_library(file: &str) -> bool {
    file.contains("/rustc/") || file.contains("library/core/") || file.contains("library/std/")
}
