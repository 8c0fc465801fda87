//! `ordain top`: the pages of `ordain status`, again and again.
//!
//! **Why no more than that.** Files are read, nobody is asked, so it can run beside a loaded server; a second is as often as
//! rates change. **Invariants**: on a terminal a page is drawn over the last one, elsewhere they follow one another.
//! A server that cannot be read now may be there the next time: it is told in its place.
//! **Not here**: the page ([`super::status`]).
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::Duration;

use super::target::span;
use super::{Error, out, status};
use crate::engine::clock;
use crate::protocol::Span;

const EXAMPLES: &str = "Examples:
  ordain top --config d/ordain.toml
  ordain top d/state-1/server-1.stats --every 200ms

Ctrl-C ends it. What the lines mean: `ordain status --help`.";

/// Shortest time between two pages.
const EVERY_MIN: Span = Span::millis(50);

/// What `ordain top` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    files: status::Files,
    /// How often, at most every 50ms
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = span)]
    every: Span,
    /// End after so many pages
    #[arg(long, value_name = "N")]
    pages: Option<u64>,
}

/// Draws until it is interrupted, its reader has gone, or as many pages as asked for are drawn.
///
/// # Errors
/// If there is nothing to show.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let files = args.files.paths()?;
    let over = io::stdout().is_terminal();
    let every = args.every.max(EVERY_MIN);
    let mut drawn = 0;
    let mut due = clock::monotonic();
    while args.pages.is_none_or(|pages| drawn < pages) {
        while clock::monotonic() < due {
            std::thread::park_timeout(Duration::from_nanos(due.since(clock::monotonic()).get()));
        }
        // Pages that were missed are not made up for.
        due = due.plus(every).max(clock::monotonic());
        let pages: Vec<String> = files.iter().map(|file| status::page(file)).collect();
        out::text(drawing(&pages.join("\n"), over))?;
        drawn += 1;
    }
    Ok(ExitCode::SUCCESS)
}

/// A page as a terminal draws it over the last one: from the upper left corner, the rest of each line and of the screen
/// emptied; elsewhere as it is, with a line between.
fn drawing(page: &str, over: bool) -> String {
    if !over {
        return format!("{page}\n");
    }
    format!("\x1b[H{}\x1b[J", page.replace('\n', "\x1b[K\n"))
}

#[cfg(test)]
mod tests {
    use super::drawing;

    #[test]
    fn terminal_page_empties_what_it_does_not_fill() {
        assert_eq!(drawing("a\nb\n", true), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
        assert_eq!(drawing("a\n", false), "a\n\n");
    }
}
