//! What goes into a [`super::Machine`] and what comes out: configuration, requests, events.
//!
//! **Not here**: behaviour.

use crate::client::trace::{Earlier, Line, Outcome, Part};
use crate::protocol::{
    HISTORY_MAX, Instance, LocalTime, NodeId, PARTICIPANTS_MAX, Refusal, RequestNo, ServerId, SessionId, Span, TxId,
    WINDOW,
};
use crate::wire::answer::AnswerView;
use crate::wire::auth::PrincipalKey;
use crate::wire::{DropReason, PAYLOAD_DEFAULT, Participants};

/// Which server a session's requests are first asked of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// This one.
    Server(ServerId),
    /// Sessions take turns; a server that fell silent is passed over.
    Spread,
}

/// What a [`super::Machine`] is made for.
#[derive(Clone, Debug)]
pub struct Config {
    /// How many servers there are, 1..[`crate::protocol::SERVERS_MAX`].
    pub servers: usize,
    /// Whom to ask first.
    pub choice: Choice,
    /// The principal's name.
    pub name: String,
    /// The principal's key.
    pub key: PrincipalKey,
    /// Sessions to open; each has up to [`WINDOW`] requests in flight.
    pub sessions: usize,
    /// Requests in flight in all.
    pub in_flight_max: usize,
    /// Participants of a request, at most [`PARTICIPANTS_MAX`].
    pub participants_max: usize,
    /// Longest datagram to send, in bytes of UDP payload; the servers may tell a shorter one.
    pub payload_max: usize,
    /// Requests in one datagram at most; what fits, if larger.
    pub requests_per_datagram: usize,
    /// Pause before the first retry; doubled for each later one.
    pub retry_after: Span,
    /// After it a request is [`End::Unanswered`].
    pub timeout: Span,
    /// For nonces; two clients with the same principal should differ in it.
    pub seed: u64,
}

impl Config {
    /// One session with its window, in flight at whichever of `servers` servers; 50 ms to the first retry, 5 s in all.
    #[must_use]
    pub const fn new(servers: usize, name: String, key: PrincipalKey, seed: u64) -> Self {
        Self {
            servers,
            choice: Choice::Spread,
            name,
            key,
            sessions: 1,
            in_flight_max: WINDOW,
            participants_max: PARTICIPANTS_MAX,
            payload_max: PAYLOAD_DEFAULT,
            requests_per_datagram: usize::MAX,
            retry_after: Span::millis(50),
            timeout: Span::secs(5),
            seed,
        }
    }
}

/// What is to be ordered.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The transaction.
    pub tx: TxId,
    /// Who takes part.
    pub participants: &'a [NodeId],
    /// How much history to tell each of them.
    pub depth: u8,
    /// The caller's mark; comes back with the end.
    pub user: u64,
}

/// Why a request was not taken. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// As many requests are in flight as may be: backpressure. Try again when one ended.
    #[error("as many requests are in flight as may be; try again when one has ended")]
    Full,
    /// No session is open yet, or none is any more: try again after the next turn.
    #[error("no session is open yet")]
    NoSession,
    /// More participants than this client was made for, or none.
    #[error("{got} participants; 1 to {most} are allowed")]
    Participants {
        /// How many there were.
        got: usize,
        /// How many there may be.
        most: usize,
    },
    /// A deeper history than there is.
    #[error("a history of depth {got}; the deepest is {HISTORY_MAX}")]
    Depth {
        /// What was asked for.
        got: u8,
    },
}

/// A request in flight, to give it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub enum End<'a> {
    /// It has its place; the view is whole.
    Ordered(AnswerView<'a>),
    /// Nobody said anything final in time: it may have a place, and asking for the transaction again tells it.
    Unanswered,
    /// It has no place, and no attempt at it can get one any more.
    Refused(Verdict),
    /// The cluster's memory was lost and numbers begin anew; what place it had in the old order, if any, is void.
    InstanceChanged(Instance),
}

/// A refusal, with what the server advised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Why.
    pub refusal: Refusal,
    /// When to come again; zero: no advice.
    pub retry_after: Span,
    /// For [`Refusal::Malformed`] the code of a [`crate::wire::client::Fault`].
    pub detail: u8,
}

/// A request that ended.
#[derive(Clone, Copy, Debug)]
pub struct Completion<'a> {
    /// What [`super::Machine::submit`] returned.
    pub handle: Handle,
    /// The caller's mark.
    pub user: u64,
    /// Its session.
    pub session: SessionId,
    /// Its number there.
    pub request: RequestNo,
    /// The transaction.
    pub tx: TxId,
    /// The history depth asked for.
    pub depth: u8,
    /// Who takes part.
    pub participants: Participants<'a>,
    /// The server first asked.
    pub server: ServerId,
    /// The instance known when it ended.
    pub instance: Instance,
    /// When it was taken.
    pub submitted: LocalTime,
    /// When it was first sent; [`LocalTime::NEVER`] if it was not.
    pub sent: LocalTime,
    /// How often it was sent.
    pub attempts: u32,
    /// How it ended.
    pub end: End<'a>,
}

impl Completion<'_> {
    /// Writes it into a trace line, as ended at `done`.
    ///
    /// # Panics
    /// Never: a history is at most [`HISTORY_MAX`] deep.
    pub fn describe(&self, line: &mut Line, done: LocalTime) {
        line.session = self.session;
        line.req = self.request;
        line.tx = self.tx;
        line.server = self.server.id();
        line.instance = self.instance;
        line.sent_ns = if self.sent == LocalTime::NEVER { done.get() } else { self.sent.get() };
        line.done_ns = done.get();
        line.provisional = false;
        line.h = self.depth;
        line.warmup = false;
        line.parts.clear();
        line.history.clear();
        line.asked.clear();
        (line.order, line.ts) = Default::default();
        line.outcome = match self.end {
            End::Ordered(_) => Outcome::Ordered,
            End::Unanswered => Outcome::Unanswered,
            End::Refused(verdict) => Outcome::Refused(verdict.refusal),
            End::InstanceChanged(_) => Outcome::Refused(Refusal::WrongInstance),
        };
        let End::Ordered(view) = self.end else { return line.asked.extend(self.participants.iter()) };
        let head = view.head();
        (line.order, line.ts, line.instance, line.provisional) = (head.order, head.ts, head.instance, head.provisional);
        for part in view.parts() {
            let depth = u8::try_from(part.history.len()).expect("at most HISTORY_MAX");
            line.parts.push(Part { id: part.id, seq: part.seq, depth });
            line.history.extend(part.history.iter().map(|(order, tx)| Earlier { order, tx }));
        }
    }
}

/// What a [`super::Machine`] has to tell.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A request ended.
    Done(Completion<'a>),
    /// The provisional answer to this request was right.
    Confirmed(SessionId, RequestNo),
    /// It was wrong; here is the true one, or a part of it.
    Corrected(SessionId, AnswerView<'a>),
    /// Another instance than before: every request in flight has ended, numbers begin anew.
    InstanceChanged {
        /// The one that is gone.
        from: Instance,
        /// The one in force.
        to: Instance,
    },
    /// A server speaks another version of the wire.
    OtherVersion(ServerId, u8),
}

/// What was done, and what went wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams that came in.
    pub received: u64,
    /// Of them, dropped, by [`DropReason::index`].
    pub dropped: [u64; DropReason::COUNT],
    /// Datagrams to be sent.
    pub sent: u64,
    /// Requests sent again.
    pub retries: u64,
    /// Answers to requests that had ended, or that nobody asked.
    pub late: u64,
    /// Requests that were told two different places: never, unless the cluster is broken.
    pub duplicates: u64,
}
