//! Which process writes a stats file, and whether it lives: so that a dead server's file is told from a running one's.
//!
//! **Why not the process number alone.** Numbers are used again; together with the process's start (in ticks since boot) and
//! the boot's id they are not. A number means nothing in another process namespace: there the file's freshness decides.
//! **Limits**: the host's own `/proc`. **Not here**: the file.
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;

/// One life of a process on one boot of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u64,
    /// Its start, in ticks since boot.
    pub start_ticks: u64,
    /// The boot: `/proc/sys/kernel/random/boot_id`.
    pub boot: u128,
    /// The process namespace that the number belongs to.
    pub namespace: u64,
}

/// Whether a process lives, as far as can be told from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It lives.
    Running,
    /// It has ended, or the host was started anew.
    Dead,
    /// It belongs to another process namespace of this boot.
    Elsewhere,
}

impl Process {
    /// The calling process.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn this() -> io::Result<Self> {
        let stat = fs::read_to_string("/proc/self/stat")?;
        let (_, start_ticks) = stat_of(&stat).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { pid: u64::from(std::process::id()), start_ticks, boot: boot()?, namespace: namespace()? })
    }

    /// Whether it lives.
    #[must_use]
    pub fn life(&self) -> Life {
        if boot().ok() != Some(self.boot) {
            return Life::Dead;
        }
        if namespace().ok() != Some(self.namespace) {
            return Life::Elsewhere;
        }
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok();
        match stat.as_deref().and_then(stat_of) {
            // What is dead and not yet reaped keeps its number.
            Some((state, start)) if start == self.start_ticks && !matches!(state, 'Z' | 'X') => Life::Running,
            _ => Life::Dead,
        }
    }
}

/// State and start of a process. Its name may hold anything; what follows its last parenthesis is plain.
fn stat_of(stat: &str) -> Option<(char, u64)> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    // The state is field 3 of proc_pid_stat(5), the start field 22.
    Some((state, fields.nth(18)?.parse().ok()?))
}

fn boot() -> io::Result<u128> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.trim().chars().filter(|digit| *digit != '-').collect();
    u128::from_str_radix(&digits, 16).map_err(|_| io::ErrorKind::InvalidData.into())
}

fn namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_its_number_alone_does_not_count() {
        let this = Process::this().unwrap();
        assert_eq!(this.life(), Life::Running);
        assert_eq!(Process { start_ticks: this.start_ticks + 1, ..this }.life(), Life::Dead);
        assert_eq!(Process { boot: this.boot ^ 1, ..this }.life(), Life::Dead);
        assert_eq!(Process { namespace: this.namespace ^ 1, ..this }.life(), Life::Elsewhere);
    }

    #[test]
    fn a_process_not_reaped_yet_is_dead() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        let (_, start_ticks) = stat_of(&stat).unwrap();
        let process = Process { pid: u64::from(child.id()), start_ticks, ..Process::this().unwrap() };
        assert_eq!(process.life(), Life::Running);
        child.kill().unwrap();
        // Not waited for: it stays as a zombie. The kernel takes a moment to make it one.
        while process.life() == Life::Running {
            std::thread::yield_now();
        }
        let kept = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        assert_eq!(stat_of(&kept), Some(('Z', start_ticks)));
        child.wait().unwrap();
        assert_eq!(process.life(), Life::Dead);
    }

    #[test]
    fn names_with_parentheses_are_read_past() {
        let fields: Vec<String> = (4..60).map(|field| field.to_string()).collect();
        assert_eq!(stat_of(&format!("7 (a) b) R {}", fields.join(" "))), Some(('R', 22)));
        assert_eq!(stat_of("7 (short) R 1 2"), None);
    }
}
