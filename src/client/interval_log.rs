//! Interval logs: one latency histogram a row, in the HdrHistogram log format, readable by its other readers.
//!
//! ```text
//! #[Histogram log format version 1.3]
//! #[StartTime: 1700000000.000 (seconds since epoch)]
//! #[BaseTime: 1700000000.000 (seconds since epoch)]
//! #[MaxValueDivisor: 1000000.000]
//! "StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"
//! 0.000,1.000,4.567,HISTFAAA...
//! ```
//!
//! Values are nanoseconds, the third column milliseconds; histograms are V2, deflated, in base64.
//!
//! **Why rows by hand.** The crate's log writer borrows its file for life; a row is one line, its histogram the crate's.
//! **Not here**: what is recorded ([`super::stats`]).

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry, LogIteratorError};
use hdrhistogram::serialization::{Deserializer, Serializer as _, V2DeflateSerializer};

use crate::protocol::{Span, Timestamp};

/// Writes a log, row by row.
pub struct Writer {
    out: BufWriter<File>,
    serializer: V2DeflateSerializer,
    bytes: Vec<u8>,
    text: String,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("out", &self.out).finish_non_exhaustive()
    }
}

impl Writer {
    /// Creates or empties the file; rows count from `base`, a wall clock.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn create(path: &Path, base: Timestamp) -> io::Result<Self> {
        let mut out = BufWriter::new(File::create(path)?);
        let (seconds, millis) = (base.get() / 1_000_000_000, base.get() / 1_000_000 % 1_000);
        writeln!(out, "#[Histogram log format version 1.3]")?;
        writeln!(out, "#[StartTime: {seconds}.{millis:03} (seconds since epoch)]")?;
        writeln!(out, "#[BaseTime: {seconds}.{millis:03} (seconds since epoch)]")?;
        writeln!(out, "#[MaxValueDivisor: 1000000.000]")?;
        writeln!(out, "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"")?;
        Ok(Self { out, serializer: V2DeflateSerializer::new(), bytes: Vec::new(), text: String::new() })
    }

    /// Writes the row that begins `start` after the base and lasts `length`.
    ///
    /// # Errors
    /// If the file takes no more.
    pub fn row(&mut self, start: Span, length: Span, histogram: &Histogram<u64>) -> io::Result<()> {
        self.bytes.clear();
        self.text.clear();
        self.serializer.serialize(histogram, &mut self.bytes).map_err(io::Error::other)?;
        STANDARD.encode_string(&self.bytes, &mut self.text);
        let thousandths = |value: u64| (value / 1_000, value % 1_000);
        let (start, length) = (thousandths(start.get() / 1_000_000), thousandths(length.get() / 1_000_000));
        let max = thousandths(histogram.max() / 1_000);
        writeln!(
            self.out,
            "{}.{:03},{}.{:03},{}.{:03},{}",
            start.0, start.1, length.0, length.1, max.0, max.1, self.text
        )
    }

    /// Hands all rows to the kernel.
    ///
    /// # Errors
    /// If the file takes no more.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A row read back.
#[derive(Debug)]
pub struct Row {
    /// Whose histogram it is, in logs that hold several.
    pub tag: Option<String>,
    /// Its beginning: after the base where the log has one, else seconds since 1970.
    pub start: Span,
    /// How long it lasts.
    pub length: Span,
    /// What was recorded.
    pub histogram: Histogram<u64>,
}

/// Why a log could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be opened or read.
    #[error("{}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line is neither a comment nor a row.
    #[error("{}: byte {offset} begins neither a comment nor a row: is this an HdrHistogram log, whole?", path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// Where the line begins.
        offset: usize,
    },
    /// A row's histogram cannot be decoded.
    #[error("{}: row {row}: the histogram is damaged", path.display())]
    Histogram {
        /// Which file.
        path: PathBuf,
        /// Which row, from 1.
        row: usize,
    },
}

/// Reads a whole log.
///
/// # Errors
/// If the file cannot be read or is no such log.
pub fn read(path: &Path) -> Result<Vec<Row>, ReadError> {
    let bytes = std::fs::read(path).map_err(|source| ReadError::File { path: path.to_owned(), source })?;
    let mut deserializer = Deserializer::new();
    let mut rows = Vec::new();
    for entry in IntervalLogIterator::new(&bytes) {
        let interval = match entry {
            Ok(LogEntry::Interval(interval)) => interval,
            Ok(LogEntry::StartTime(_) | LogEntry::BaseTime(_)) => continue,
            Err(LogIteratorError::ParseError { offset }) => {
                return Err(ReadError::Line { path: path.to_owned(), offset });
            }
        };
        let damaged = || ReadError::Histogram { path: path.to_owned(), row: rows.len() + 1 };
        let encoded = STANDARD.decode(interval.encoded_histogram()).map_err(|_| damaged())?;
        let histogram = deserializer.deserialize(&mut encoded.as_slice()).map_err(|_| damaged())?;
        let span = |time: std::time::Duration| Span::new(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        rows.push(Row {
            tag: interval.tag().map(|tag| tag.as_str().to_owned()),
            start: span(interval.start_timestamp()),
            length: span(interval.duration()),
            histogram,
        });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_read_back_with_times_and_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.hlog");
        let mut writer = Writer::create(&path, Timestamp::new(1_700_000_000_123_456_789)).unwrap();
        let mut histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
        for second in 0..3 {
            histogram.reset();
            histogram.record_n(1_000_000 * (second + 1), 10).unwrap();
            writer.row(Span::secs(second), Span::millis(1_000), &histogram).unwrap();
        }
        writer.flush().unwrap();
        let rows = read(&path).unwrap();
        assert_eq!(rows.len(), 3);
        assert_eq!((rows[2].start, rows[2].length), (Span::secs(2), Span::secs(1)));
        assert_eq!((rows[2].histogram.len(), rows[2].histogram.max() / 10_000), (10, 300));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.contains("[BaseTime: 1700000000.123 (") && text.contains("\n1.000,1.000,2.000,HISTFAAA"),
            "{text}"
        );
    }

    #[test]
    fn damage_is_named_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.hlog");
        for (text, want) in [("what\n", "byte 0 "), ("#x\n0.0,1.0,1.0,!!!\n", "row 1: "), ("#x\n0.0,1.0\n", "byte 3 ")]
        {
            std::fs::write(&path, text).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        }
    }
}
