//! What a phase records: every request once, in the figures if it was due in the measured time, in the trace always.
//!
//! **Not here**: figures ([`crate::client::stats`]), files' formats ([`trace`], [`interval_log`]).

use std::io;

use hdrhistogram::Histogram;

use super::{Files, Phase};
use crate::client::machine::{Completion, End, Event};
use crate::client::stats::{Recorder, Report, Times, histogram};
use crate::client::trace::Line;
use crate::client::{interval_log, trace};
use crate::protocol::{LocalTime, Refusal, ServerId, Span};

/// Longest row of the log.
const ROW: Span = Span::millis(1_000);
/// In a request's mark, beside its intended start: it was due in the measured time.
const MEASURED: u64 = 1 << 63;

/// How a phase goes, for people who wait.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Since its start.
    pub elapsed: Span,
    /// How long it will be: warm-up and measured time.
    pub planned: Span,
    /// Requests due in the measured time so far.
    pub offered: u64,
    /// Of them, ordered.
    pub ordered: u64,
    /// Requests in flight.
    pub in_flight: usize,
    /// 99 % point of the latency so far.
    pub latency_p99: Span,
    /// Requests a second that are offered.
    pub rate: f64,
}

pub(super) struct Book {
    phase: Phase,
    start: LocalTime,
    /// When the measured time begins, and when it is to end.
    measured: (LocalTime, LocalTime),
    /// When it was ended before its time.
    stopped: Option<LocalTime>,
    recorder: Recorder,
    last_answer: LocalTime,
    row: Histogram<u64>,
    row_start: LocalTime,
    line: Line,
    files: Files,
    failure: Option<io::Error>,
}

impl Book {
    pub(super) fn new(phase: Phase, start: LocalTime, files: Files) -> Self {
        let from = start.plus(phase.warmup);
        Self {
            phase,
            start,
            measured: (from, from.plus(phase.duration)),
            stopped: None,
            recorder: Recorder::new(),
            last_answer: from,
            row: histogram(),
            row_start: from,
            line: Line::default(),
            files,
            failure: None,
        }
    }

    /// When no more requests start: the end of the measured time, or now if `stop`, or a file failed.
    pub(super) fn end_at(&mut self, stop: bool, now: LocalTime) -> LocalTime {
        if (stop || self.failure.is_some()) && self.stopped.is_none() && now < self.measured.1 {
            self.stopped = Some(now);
        }
        self.stopped.unwrap_or(self.measured.1)
    }

    /// The mark of a request due at `start`.
    pub(super) fn mark(&self, start: LocalTime) -> u64 {
        if start < self.measured.0 { start.get() } else { start.get() | MEASURED }
    }

    /// A request is due.
    pub(super) fn due(&mut self, start: LocalTime) {
        if start >= self.measured.0 {
            self.recorder.due(start);
        }
    }

    /// It was handed over.
    pub(super) fn asked(&mut self, server: ServerId, start: LocalTime) {
        if start >= self.measured.0 {
            self.recorder.asked(server, start);
        }
    }

    /// A request was due for so long that nobody waits for it any more.
    pub(super) fn never_asked(&mut self, start: LocalTime, now: LocalTime) {
        if start >= self.measured.0 {
            self.recorder.never_asked(now);
        }
    }

    pub(super) fn take(&mut self, now: LocalTime, event: Event<'_>) {
        match event {
            Event::Done(done) => self.done(now, &done),
            Event::Corrected(..) => self.recorder.corrected(),
            Event::Confirmed(..) | Event::InstanceChanged { .. } | Event::OtherVersion(..) => {}
        }
    }

    fn done(&mut self, now: LocalTime, done: &Completion<'_>) {
        let due = LocalTime::new(done.user & !MEASURED);
        if let End::Ordered(view) = done.end {
            self.recorder.number(view.head().order);
        }
        if done.user & MEASURED != 0 {
            self.record(now, due, done);
        }
        if let Some(trace) = &mut self.files.trace {
            done.describe(&mut self.line, now);
            self.line.warmup = done.user & MEASURED == 0;
            if let Err(error) = trace.push(&self.line) {
                self.failure.get_or_insert(error);
            }
        }
    }

    fn record(&mut self, now: LocalTime, due: LocalTime, done: &Completion<'_>) {
        if done.sent != LocalTime::NEVER {
            self.recorder.sent(due, done.sent);
        }
        match done.end {
            End::Ordered(view) => {
                self.last_answer = now;
                self.row.saturating_record(now.since(due).get());
                self.recorder.ordered(done.server, Times { due, sent: done.sent, done: now });
                if view.head().provisional {
                    self.recorder.provisional();
                }
            }
            End::Refused(verdict) => self.recorder.refused(done.server, verdict.refusal, now),
            End::InstanceChanged(_) => self.recorder.refused(done.server, Refusal::WrongInstance, now),
            End::Unanswered => self.recorder.unanswered(done.server, now),
        }
    }

    /// Writes the rows of the log that are complete.
    pub(super) fn rows(&mut self, now: LocalTime) {
        while now >= self.row_start.plus(ROW) {
            self.write_row(ROW);
        }
    }

    fn write_row(&mut self, length: Span) {
        let start = self.row_start.since(self.measured.0);
        if let Some(log) = &mut self.files.log
            && let Err(error) = log.row(start, length, &self.row)
        {
            self.failure.get_or_insert(error);
        }
        self.row_start = self.row_start.plus(length);
        self.row.reset();
    }

    pub(super) fn progress(&self, now: LocalTime, in_flight: usize) -> Progress {
        Progress {
            elapsed: now.since(self.start),
            planned: Span::new(self.phase.warmup.get() + self.phase.duration.get()),
            offered: self.recorder.offered_so_far(),
            ordered: self.recorder.ordered_so_far(),
            in_flight,
            latency_p99: self.recorder.latency_p99(),
            rate: self.phase.rate,
        }
    }

    /// The end: last row, files, figures. The time measured reaches to the last answer, if that came after its end, so
    /// that a backlog worked off later does not look like throughput.
    pub(super) fn close(mut self, now: LocalTime, end: LocalTime, servers: usize) -> (io::Result<Files>, Report) {
        if now > self.row_start && !self.row.is_empty() {
            self.write_row(now.since(self.row_start));
        }
        let measured = end.max(self.last_answer).since(self.measured.0);
        let report = self.recorder.report(now, measured, servers);
        let flushed = self.files.trace.as_mut().map_or(Ok(()), trace::Writer::flush);
        let flushed = flushed.and_then(|()| self.files.log.as_mut().map_or(Ok(()), interval_log::Writer::flush));
        (self.failure.map_or(flushed, Err).map(|()| self.files), report)
    }
}
