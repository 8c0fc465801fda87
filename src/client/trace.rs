//! The trace: one JSON line for every request, with what was asked and what was answered.
//!
//! ```text
//! {"session":"<32 hex>","req":41,"tx":"<32 hex>","server":2,"instance":"<16 hex>","sent_ns":N,"done_ns":N,
//!  "status":"ordered","provisional":false,"order":N,"ts":N,
//!  "parts":[{"id":12,"seq":5,"hist":[[order,"tx"],...newest first]},...],"h":4}
//! ```
//!
//! A request without an answer has no `order`, `ts` and `parts` but `"asked":[ids]`; one of the warm-up has
//! `"warmup":true`. `instance` is absent while the client knows none.
//!
//! **Why by hand.** Hundreds of thousands of lines a second leave the load generator, which shares its processor with
//! what it measures; so [`Line::write_to`] appends digits to a buffer the caller reuses. Reading is by derivation, and
//! says file and line of what it cannot read.
//! **Invariants.** What is written reads back equal. Histories of all participants lie in one flat list, so that a
//! line is two allocations, and none when it is reused.
//! **Limits.** Lines are held in memory: about 150 bytes, 16 a participant and 24 a history entry.
//! **Not here**: what the lines must satisfy together ([`super::verify`]).

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::protocol::{Instance, NodeId, OrderNo, ParticipantSeq, Refusal, RequestNo, SessionId, Timestamp, TxId};

/// How a request ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It has a number.
    Ordered,
    /// Nobody said anything final in time: it may have a number.
    #[default]
    Unanswered,
    /// It has no number and will get none.
    Refused(Refusal),
}

impl Outcome {
    /// The word in the trace.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ordered => "ordered",
            Self::Unanswered => "unanswered",
            Self::Refused(refusal) => refusal.name(),
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        match name {
            "ordered" => Some(Self::Ordered),
            "unanswered" => Some(Self::Unanswered),
            _ => Refusal::ALL.into_iter().find(|refusal| refusal.name() == name).map(Self::Refused),
        }
    }
}

/// A participant's part of an answer: its sequence number, and how much of [`Line::history`] is its history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The participant.
    pub id: NodeId,
    /// The transaction's place in its sequence.
    pub seq: ParticipantSeq,
    /// Number of history entries.
    pub depth: u8,
}

/// One entry of a history: an earlier transaction of the same participant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Earlier {
    /// Its order number.
    pub order: OrderNo,
    /// The transaction.
    pub tx: TxId,
}

/// One request and its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The session it was asked in.
    pub session: SessionId,
    /// Its number there.
    pub req: RequestNo,
    /// The transaction.
    pub tx: TxId,
    /// The server (1..n) first asked.
    pub server: u8,
    /// The instance that answered, or that the session was opened in; [`Instance::NONE`] if none is known.
    pub instance: Instance,
    /// First send, `CLOCK_MONOTONIC`.
    pub sent_ns: u64,
    /// The end of it, `CLOCK_MONOTONIC`.
    pub done_ns: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// Answered before certain, and neither confirmed nor corrected since.
    pub provisional: bool,
    /// Its place in the order; zero unless ordered.
    pub order: OrderNo,
    /// Its timestamp; zero unless ordered.
    pub ts: Timestamp,
    /// Its participants' parts, in the order asked for; none unless ordered.
    pub parts: Vec<Part>,
    /// All histories, one after the other in the order of `parts`, each newest first.
    pub history: Vec<Earlier>,
    /// Participants asked for, where there is no answer that says so.
    pub asked: Vec<NodeId>,
    /// The history depth asked for.
    pub h: u8,
    /// Sent before the measured time began.
    pub warmup: bool,
}

impl Line {
    /// The participants' parts with their histories.
    pub fn parts(&self) -> impl Iterator<Item = (Part, &[Earlier])> {
        let mut rest = self.history.as_slice();
        self.parts.iter().map(move |part| {
            let (history, after) = rest.split_at(usize::from(part.depth).min(rest.len()));
            rest = after;
            (*part, history)
        })
    }

    /// Appends the line, with its newline.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"session\":\"");
        hex(out, &self.session.to_bytes());
        number(out, b"\",\"req\":", self.req.get());
        out.extend_from_slice(b",\"tx\":\"");
        hex(out, &self.tx.bytes());
        number(out, b"\",\"server\":", u64::from(self.server));
        if self.instance != Instance::NONE {
            out.extend_from_slice(b",\"instance\":\"");
            hex(out, &self.instance.get().to_be_bytes());
            out.push(b'"');
        }
        number(out, b",\"sent_ns\":", self.sent_ns);
        number(out, b",\"done_ns\":", self.done_ns);
        out.extend_from_slice(b",\"status\":\"");
        out.extend_from_slice(self.outcome.name().as_bytes());
        out.extend_from_slice(if self.provisional { b"\",\"provisional\":true" } else { b"\",\"provisional\":false" });
        if self.outcome == Outcome::Ordered {
            self.write_answer(out);
        } else {
            out.extend_from_slice(b",\"asked\":[");
            self.asked.iter().enumerate().for_each(|(at, id)| number(out, comma(at), u64::from(id.get())));
            out.push(b']');
        }
        number(out, b",\"h\":", u64::from(self.h));
        out.extend_from_slice(if self.warmup { b",\"warmup\":true}\n" } else { b"}\n" });
    }

    fn write_answer(&self, out: &mut Vec<u8>) {
        number(out, b",\"order\":", self.order.get());
        number(out, b",\"ts\":", self.ts.get());
        out.extend_from_slice(b",\"parts\":[");
        for (at, (part, history)) in self.parts().enumerate() {
            out.extend_from_slice(comma(at));
            number(out, b"{\"id\":", u64::from(part.id.get()));
            number(out, b",\"seq\":", part.seq.get());
            out.extend_from_slice(b",\"hist\":[");
            for (at, earlier) in history.iter().enumerate() {
                out.extend_from_slice(comma(at));
                number(out, b"[", earlier.order.get());
                out.extend_from_slice(b",\"");
                hex(out, &earlier.tx.bytes());
                out.extend_from_slice(b"\"]");
            }
            out.extend_from_slice(b"]}");
        }
        out.push(b']');
    }

    /// Reads one line.
    ///
    /// # Errors
    /// If it is no trace line; the error says what is wrong and at which column.
    pub fn parse(text: &str) -> Result<Self, Reason> {
        let raw: Raw<'_> = serde_json::from_str(text).map_err(Reason::Json)?;
        let outcome = Outcome::from_name(&raw.status).ok_or_else(|| Reason::Status(raw.status.to_string()))?;
        let mut line = Self {
            session: SessionId::from_bytes(unhex("session", &raw.session)?),
            req: RequestNo::new(raw.req),
            tx: TxId::new(unhex("tx", &raw.tx)?),
            server: raw.server,
            instance: match &raw.instance {
                Some(text) => Instance::new(u64::from_be_bytes(unhex("instance", text)?)),
                None => Instance::NONE,
            },
            sent_ns: raw.sent_ns,
            done_ns: raw.done_ns,
            outcome,
            provisional: raw.provisional,
            order: OrderNo::new(raw.order.unwrap_or(0)),
            ts: Timestamp::new(raw.ts.unwrap_or(0)),
            asked: raw.asked.into_iter().map(NodeId::new).collect(),
            h: raw.h,
            warmup: raw.warmup,
            ..Self::default()
        };
        for part in raw.parts.iter().flatten() {
            let depth = u8::try_from(part.hist.len()).map_err(|_| Reason::History(part.hist.len()))?;
            line.parts.push(Part { id: NodeId::new(part.id), seq: ParticipantSeq::new(part.seq), depth });
            for (order, tx) in &part.hist {
                line.history.push(Earlier { order: OrderNo::new(*order), tx: TxId::new(unhex("hist", tx)?) });
            }
        }
        if outcome == Outcome::Ordered && (raw.order.is_none() || raw.ts.is_none() || raw.parts.is_none()) {
            return Err(Reason::Incomplete);
        }
        Ok(line)
    }
}

/// Writes trace lines to a file through one buffer.
#[derive(Debug)]
pub struct Writer {
    file: File,
    buffer: Vec<u8>,
}

impl Writer {
    /// Bytes gathered before they go to the file.
    const BUFFER_BYTES: usize = 256 * 1024;

    /// Creates or empties the file.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::create(path)?, buffer: Vec::with_capacity(Self::BUFFER_BYTES + 16 * 1024) })
    }

    /// Adds a line; it is in the file after [`Writer::flush`] at the latest.
    ///
    /// # Errors
    /// If the file takes no more.
    pub fn push(&mut self, line: &Line) -> io::Result<()> {
        line.write_to(&mut self.buffer);
        if self.buffer.len() >= Self::BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Hands all lines to the kernel.
    ///
    /// # Errors
    /// If the file takes no more.
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

/// Why a line could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// It is not the JSON of a trace line.
    #[error("{0}")]
    Json(#[source] serde_json::Error),
    /// A field that should be hexadecimal of a given length is not.
    #[error("{field} \"{text}\" is not {digits} hexadecimal digits")]
    Hex {
        /// Which field.
        field: &'static str,
        /// What it held.
        text: String,
        /// How many digits it should have.
        digits: usize,
    },
    /// An unknown status.
    #[error("status \"{0}\" is none of: ordered, unanswered, the refusals")]
    Status(String),
    /// More history than there can be.
    #[error("a history of {0} entries is longer than any that can be asked for")]
    History(usize),
    /// An ordered line lacks its answer.
    #[error("status is ordered, but order, ts or parts is missing")]
    Incomplete,
}

/// Why a trace could not be read: the file, and the line where there is one.
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
    /// A line of it is no trace line.
    #[error("{}:{line}: {reason}: is this a trace of `ordain load`, whole?", path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: Reason,
    },
}

/// Reads a whole trace; the k-th line of the file is the k-th here.
///
/// # Errors
/// If the file cannot be read, or has a line that is no trace line.
pub fn read(path: &Path) -> Result<Vec<Line>, ReadError> {
    let at = |source| ReadError::File { path: path.to_owned(), source };
    let mut reader = BufReader::with_capacity(256 * 1024, File::open(path).map_err(at)?);
    let (mut lines, mut text) = (Vec::new(), String::new());
    loop {
        text.clear();
        if reader.read_line(&mut text).map_err(at)? == 0 {
            return Ok(lines);
        }
        let line = Line::parse(text.trim_end()).map_err(|reason| ReadError::Line {
            path: path.to_owned(),
            line: lines.len() + 1,
            reason,
        })?;
        lines.push(line);
    }
}

#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(borrow)]
    session: Cow<'a, str>,
    req: u64,
    #[serde(borrow)]
    tx: Cow<'a, str>,
    #[serde(default)]
    server: u8,
    #[serde(borrow, default)]
    instance: Option<Cow<'a, str>>,
    sent_ns: u64,
    done_ns: u64,
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(default)]
    provisional: bool,
    #[serde(default)]
    order: Option<u64>,
    #[serde(default)]
    ts: Option<u64>,
    #[serde(borrow, default)]
    parts: Option<Vec<RawPart<'a>>>,
    #[serde(default)]
    asked: Vec<u32>,
    #[serde(default)]
    h: u8,
    #[serde(default)]
    warmup: bool,
}

#[derive(Deserialize)]
struct RawPart<'a> {
    id: u32,
    seq: u64,
    #[serde(borrow)]
    hist: Vec<(u64, Cow<'a, str>)>,
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

fn hex(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

fn unhex<const N: usize>(field: &'static str, text: &str) -> Result<[u8; N], Reason> {
    parse_hex(text).ok_or_else(|| Reason::Hex { field, text: text.chars().take(80).collect(), digits: 2 * N })
}

/// Exactly `N` bytes from `2 * N` hexadecimal digits.
#[must_use]
pub fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        *byte = (value(pair[0])? << 4) | value(pair[1])?;
    }
    Some(bytes)
}

const fn comma(at: usize) -> &'static [u8] {
    if at == 0 { b"" } else { b"," }
}

fn number(out: &mut Vec<u8>, key: &[u8], mut value: u64) {
    out.extend_from_slice(key);
    let (mut digits, mut at) = ([0_u8; 20], 20);
    loop {
        at -= 1;
        digits[at] = DIGITS[usize::try_from(value % 10).unwrap_or(0)];
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered() -> Line {
        Line {
            session: SessionId { created: Timestamp::new(5), nonce: u64::MAX },
            req: RequestNo::new(41),
            tx: TxId::new([0xab; 16]),
            server: 2,
            instance: Instance::new(7),
            sent_ns: 10,
            done_ns: u64::MAX,
            outcome: Outcome::Ordered,
            order: OrderNo::new(100),
            ts: Timestamp::new(1_000_000),
            parts: vec![
                Part { id: NodeId::new(0), seq: ParticipantSeq::new(3), depth: 2 },
                Part { id: NodeId::new(u32::MAX), seq: ParticipantSeq::new(1), depth: 0 },
            ],
            history: vec![
                Earlier { order: OrderNo::new(90), tx: TxId::new([1; 16]) },
                Earlier { order: OrderNo::new(10), tx: TxId::new([2; 16]) },
            ],
            h: 4,
            ..Line::default()
        }
    }

    fn text(line: &Line) -> String {
        let mut out = Vec::new();
        line.write_to(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn line_reads_back_equal() {
        let unanswered = Line { asked: vec![NodeId::new(1), NodeId::new(2)], warmup: true, ..Line::default() };
        let refused = Line { outcome: Outcome::Refused(Refusal::SessionsFull), ..unanswered.clone() };
        for line in [ordered(), Line { provisional: true, ..ordered() }, unanswered, refused] {
            assert_eq!(Line::parse(&text(&line)).unwrap(), line);
        }
    }

    #[test]
    fn line_looks_as_documented() {
        let tx = "ab".repeat(16);
        let (one, two) = ("01".repeat(16), "02".repeat(16));
        assert_eq!(
            text(&ordered()),
            format!(
                "{{\"session\":\"0500000000000000ffffffffffffffff\",\"req\":41,\"tx\":\"{tx}\",\"server\":2,\
                 \"instance\":\"0000000000000007\",\"sent_ns\":10,\"done_ns\":18446744073709551615,\
                 \"status\":\"ordered\",\"provisional\":false,\"order\":100,\"ts\":1000000,\"parts\":[{{\"id\":0,\
                 \"seq\":3,\"hist\":[[90,\"{one}\"],[10,\"{two}\"]]}},{{\"id\":4294967295,\"seq\":1,\"hist\":[]}}],\
                 \"h\":4}}\n"
            )
        );
    }

    #[test]
    fn every_status_has_a_word_and_is_read_from_it() {
        let refusals = Refusal::ALL.into_iter().map(Outcome::Refused);
        for outcome in [Outcome::Ordered, Outcome::Unanswered].into_iter().chain(refusals) {
            assert_eq!(Outcome::from_name(outcome.name()), Some(outcome));
        }
    }

    #[test]
    fn what_cannot_be_read_is_named_with_file_and_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let good = text(&ordered());
        let cases = [
            ("{", "EOF"),
            (&good.replace("abab", "xyxy"), "tx \"xy"),
            (&good.replace("\"status\":\"ordered\"", "\"status\":\"lost\""), "status \"lost\""),
            (&good.replace("\"order\":100,", ""), "missing"),
            (&good.replace("\"req\":41,", ""), "req"),
            (&good.replace("ffffffff\"", "\""), "session"),
            (&good[..good.len() / 2], "EOF"),
        ];
        for (bad, want) in cases {
            std::fs::write(&path, format!("{good}{bad}")).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains("trace:2: ") && error.contains(want), "{error}");
        }
        assert!(read(&dir.path().join("none")).unwrap_err().to_string().contains("none: No such file"));
    }

    #[test]
    fn file_written_through_the_buffer_is_read_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let mut writer = Writer::create(&path).unwrap();
        for req in 1..=5_000 {
            writer.push(&Line { req: RequestNo::new(req), ..ordered() }).unwrap();
        }
        writer.flush().unwrap();
        let lines = read(&path).unwrap();
        assert_eq!(lines.len(), 5_000);
        assert_eq!(lines[4_999].req, RequestNo::new(5_000));
    }
}
