#![expect(unsafe_code, reason = "two calls about memory that is already ours")]
//! Large pages for large tables, and all of it present before the first request.
//!
//! **Why.** The ledger's tables are read at random places, and with pages of 4 KiB nearly each read misses the
//! processor's translation cache as well as its data caches; under a hypervisor such a miss walks two page tables. Pages
//! of 2 MiB make that rare. And a page that is first touched while an entry is delivered costs that entry a fault.
//! **How.** The kernel is *advised* (madvise(2): `MADV_HUGEPAGE`, `MADV_POPULATE_WRITE`, `MADV_COLLAPSE`) about every private,
//! anonymous mapping of [`LEAST`] or more that exists when [`advise`] is called: a server calls it when its
//! tables stand and no thread has been started. What the kernel refuses changes nothing but speed.
//! **Limits**: nothing is allocated; `/sys/kernel/mm/transparent_hugepage/enabled` set to `never` leaves small pages.
//! **Not here**: locking memory (the unit has no swap to fear when `tuning` is applied).

use std::fmt;
use std::io::BufRead as _;
use std::ops::Range;

/// The smallest mapping worth advising about, in bytes: two large pages.
pub const LEAST: usize = 4 << 20;

/// What became of the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advised {
    /// Bytes of the mappings that are now present.
    pub present: usize,
    /// Bytes of them that the kernel backs with large pages; less by what lies beside 2 MiB boundaries.
    pub large: usize,
}

impl fmt::Display for Advised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: usize| bytes >> 20;
        write!(f, "{} MiB of tables present, {} MiB of it in large pages", mib(self.present), mib(self.large))?;
        if self.large == 0 && self.present > 0 {
            write!(f, " (to have them: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled)")?;
        }
        Ok(())
    }
}

/// Asks for large pages under every large mapping of this process, and has all of them present.
#[must_use]
pub fn advise() -> Advised {
    let mut present = 0;
    for range in mappings() {
        let advise = |advice| {
            let len = range.end - range.start;
            let start = std::ptr::with_exposed_provenance_mut::<libc::c_void>(range.start);
            // SAFETY: a mapping of this process, and none of these three changes what its bytes are.
            unsafe { libc::madvise(start, len, advice) == 0 }
        };
        advise(libc::MADV_HUGEPAGE);
        if advise(libc::MADV_POPULATE_WRITE) {
            present += range.end - range.start;
        }
        // What had been touched before is in small pages still.
        advise(libc::MADV_COLLAPSE);
    }
    Advised { present, large: large_bytes() }
}

/// The large private anonymous mappings, as proc(5) tells them. Stacks and the heap proper have names.
fn mappings() -> Vec<Range<usize>> {
    let Ok(maps) = std::fs::File::open("/proc/self/maps") else { return Vec::new() };
    let lines = std::io::BufReader::new(maps).lines().map_while(Result::ok);
    lines.filter_map(|line| large_mapping(&line)).collect()
}

fn large_mapping(line: &str) -> Option<Range<usize>> {
    let mut fields = line.split_ascii_whitespace();
    let (range, access) = (fields.next()?, fields.next()?);
    let is_file = fields.nth(2)? != "0";
    if access != "rw-p" || is_file || fields.next().is_some() {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16).ok());
    let range = start?..end?;
    (range.len() >= LEAST).then_some(range)
}

fn large_bytes() -> usize {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix("AnonHugePages:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<usize>().ok());
    kib.unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_large_private_memory_without_a_name_is_meant() {
        let mapping = |rest: &str| large_mapping(&format!("7f0000000000-7f0000400000 {rest}"));
        assert_eq!(mapping("rw-p 00000000 00:00 0 "), Some(0x7f00_0000_0000..0x7f00_0040_0000));
        for other in [
            "r--p 00000000 00:00 0",
            "rw-s 00000000 00:00 0",
            "rw-p 00000000 fe:00 71 /usr/lib/x.so",
            "rw-p 00000000 00:00 0 [heap]",
            "",
        ] {
            assert_eq!(mapping(other), None, "{other}");
        }
        assert_eq!(large_mapping("7f0000000000-7f00003ff000 rw-p 00000000 00:00 0"), None);
    }

    #[test]
    fn advice_leaves_bytes_as_they_are_and_makes_them_present() {
        let mut table = vec![0_u64; 2 * LEAST / 8];
        table[1] = 7;
        let advised = advise();
        assert!(advised.present >= LEAST, "{advised:?}");
        assert_eq!((table[0], table[1], table[table.len() - 1]), (0, 7, 0));
    }
}
