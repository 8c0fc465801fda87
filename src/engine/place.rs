#![expect(unsafe_code, reason = "one call of the scheduler")]
//! Where a thread runs: its processor and its scheduling class.
//!
//! **Why.** A pinned core keeps its caches, and SCHED_FIFO keeps foreign work from delaying it; neither is always allowed,
//! and a wish not granted must be said aloud, not hidden. **Invariants**: asking never fails the start; the answer is a
//! [`Placed`] to be logged. **Limits**: one processor a thread. **Not here**: isolating processors (tuning).

use std::fmt;
use std::io;

use core_affinity::CoreId;

/// What was wished for a thread and whether it was granted.
#[derive(Debug, Default)]
pub struct Placed {
    /// The processor asked for, and whether the thread is there.
    pub cpu: Option<(usize, bool)>,
    /// The SCHED_FIFO priority asked for, and the system's answer.
    pub fifo: Option<(u8, Result<(), io::Error>)>,
}

impl Placed {
    /// The processor in one word, for tables.
    #[must_use]
    pub fn processor(&self) -> String {
        self.cpu.filter(|(_, there)| *there).map_or_else(|| "any".to_owned(), |(cpu, _)| cpu.to_string())
    }

    /// The priority in a word or two, for tables.
    #[must_use]
    pub fn priority(&self) -> String {
        match &self.fifo {
            Some((priority, Ok(()))) => format!("fifo {priority}"),
            _ => "normal".to_owned(),
        }
    }

    /// Whether everything asked for was granted.
    #[must_use]
    pub fn is_granted(&self) -> bool {
        self.cpu.is_none_or(|(_, there)| there) && self.fifo.as_ref().is_none_or(|(_, answer)| answer.is_ok())
    }
}

impl fmt::Display for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cpu {
            None => write!(f, "any processor")?,
            Some((cpu, true)) => write!(f, "processor {cpu}")?,
            Some((cpu, false)) => {
                write!(f, "any processor (not allowed on {cpu}: see `taskset -p` and the unit's CPUAffinity=)")?;
            }
        }
        match &self.fifo {
            None => Ok(()),
            Some((priority, Ok(()))) => write!(f, ", fifo priority {priority}"),
            Some((priority, Err(cause))) => write!(
                f,
                ", normal priority (fifo {priority} refused: {cause}; it needs CAP_SYS_NICE or LimitRTPRIO={priority})"
            ),
        }
    }
}

/// Puts the calling thread on `cpu` and into SCHED_FIFO with priority `fifo`, as far as asked and allowed.
#[must_use]
pub fn place(cpu: Option<usize>, fifo: Option<u8>) -> Placed {
    Placed {
        cpu: cpu.map(|cpu| (cpu, core_affinity::set_for_current(CoreId { id: cpu }))),
        fifo: fifo.map(|priority| (priority, set_fifo(priority))),
    }
}

/// Processors this process may use.
#[must_use]
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn set_fifo(priority: u8) -> io::Result<()> {
    let param = libc::sched_param { sched_priority: i32::from(priority) };
    // SAFETY: thread 0 is the caller; the parameters are valid.
    let status = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn impossible_processor_is_said_aloud() {
        let placed = std::thread::scope(|scope| {
            scope.spawn(|| place(Some(1000), None)).join().expect("the thread ends").to_string()
        });
        assert!(placed.contains("not allowed on 1000"), "{placed}");
    }
}
