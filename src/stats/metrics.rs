//! Every metric of a server, declared once: its block, name, kind, unit, help.
//!
//! From the table at the end follow the memory that its owner writes, the directory of the file ([`super::read`] finds
//! metrics by it alone), the names in `ordain status --json`, and this documentation.
//!
//! **Why blocks.** A block belongs to one thread, which alone writes it, and begins on cache lines of its own: no two
//! threads ever write the same line.
//! **Invariants**: a name never changes its meaning; what is added comes beside it. The list of an array's elements is
//! part of the declaration. A unit stands in the name where the value has one.
//! **Limits**: [`INGRESS_ELEMENTS`] ingresses and as many servers as a cluster can have.
//! **Not here**: who counts what when (the roles).
use super::cells::{Cell, Counter, Gauge, Histogram, Kind, Scalar};
use crate::protocol::{Refusal, SERVERS_MAX};
use crate::wire::DropReason;

/// One metric of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name in its block.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Its unit; empty for plain counts.
    pub unit: &'static str,
    /// What it tells; lines, each with a space before it.
    pub help: &'static [&'static str],
    /// Where it begins, in bytes from its block.
    pub at: usize,
    /// The names of its elements; empty for a metric of one.
    pub elements: &'static [&'static str],
}

/// Memory of one owner: cells, and nothing else.
///
/// # Safety
/// A `repr(C)` struct made of cells alone, so that any bits are valid and zero is its beginning; `METRICS` lists them all,
/// each where it lies.
#[expect(unsafe_code, reason = "what may be laid over shared memory is a promise")]
pub unsafe trait Block: Sync + 'static {
    /// The block's name.
    const NAME: &'static str;
    /// What is in it.
    const METRICS: &'static [Metric];
}

/// Blocks begin at multiples of this: two cache lines, since processors fetch them in pairs.
pub const BLOCK_ALIGN: usize = 128;

/// Ingress roles that `order` keeps figures of.
pub const INGRESS_ELEMENTS: usize = 8;

/// Names of server places, as people count them.
const SERVERS: [&str; SERVERS_MAX] = ["1", "2", "3", "4", "5", "6", "7"];
const INGRESSES: [&str; INGRESS_ELEMENTS] = ["1", "2", "3", "4", "5", "6", "7", "8"];

/// The words of refusals, by code less one.
const REFUSALS: [&str; Refusal::ALL.len()] = {
    let mut names = [""; Refusal::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = Refusal::ALL[at].name();
        assert!(Refusal::ALL[at].code() as usize == at + 1, "refusals are numbered from 1");
        at += 1;
    }
    names
};

/// The words of drops, by index.
const DROPS: [&str; DropReason::COUNT] = {
    let mut names = [""; DropReason::COUNT];
    let mut at = 0;
    while at < names.len() {
        names[at] = DropReason::ALL[at].name();
        at += 1;
    }
    names
};

/// What a server is, as far as it knows itself: the gauge `state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u64)]
pub enum State {
    /// No instance has formed yet: it waits for the other servers.
    #[default]
    NoQuorum = 0,
    /// It orders.
    Member = 1,
    /// It finishes what it holds and admits nothing.
    Draining = 2,
    /// An instance lives in which this process has no place: it was started anew and remembers nothing.
    Lost = 3,
}

impl State {
    /// All of them, by number.
    pub const ALL: [Self; 4] = [Self::NoQuorum, Self::Member, Self::Draining, Self::Lost];

    /// The number in the file.
    #[must_use]
    pub const fn number(self) -> u64 {
        self as u64
    }

    /// The word in `ordain status`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoQuorum => "no_quorum",
            Self::Member => "member",
            Self::Draining => "draining",
            Self::Lost => "lost",
        }
    }
}

/// How a server ended: the gauge `ended`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Ended {
    /// All it held was finished.
    Drained = 1,
    /// It left requests unanswered.
    Cut = 2,
    /// A core ended by itself.
    Died = 3,
}

impl Ended {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Drained, Self::Cut, Self::Died];

    /// The number in the file; 0 is: it did not say.
    #[must_use]
    pub const fn number(self) -> u64 {
        self as u64
    }

    /// The word in `ordain status`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drained => "drained",
            Self::Cut => "cut",
            Self::Died => "died",
        }
    }
}

/// Declares the blocks; see the table. `as Name` also makes plain values of the first list, for an owner that counts in
/// private and publishes now and then.
macro_rules! blocks {
    ($(
        $(#[doc = $about:literal])+
        $block:ident($block_name:literal) {
            $($(#[doc = $help:literal])+ $metric:ident: $cell:ident $(of $elements:ident)?, $unit:literal;)*
        } $(as $twin:ident)? $(and {
            $($(#[doc = $more_help:literal])+ $more:ident: $more_cell:ident $(of $more_elements:ident)?, $more_unit:literal;)*
        })?
    )+) => {$(
        $(#[doc = $about])+
        #[derive(Debug)]
        #[repr(C, align(128))]
        pub struct $block {
            $($(#[doc = $help])+ pub $metric: blocks!(@type $cell $($elements)?),)*
            $($($(#[doc = $more_help])+ pub $more: blocks!(@type $more_cell $($more_elements)?),)*)?
        }

        const _: () = assert!(align_of::<$block>() == BLOCK_ALIGN);

        // SAFETY: made by this macro of cells alone, each listed where `offset_of` finds it.
        #[expect(unsafe_code, reason = "what may be laid over shared memory is a promise")]
        unsafe impl Block for $block {
            const NAME: &'static str = $block_name;
            const METRICS: &'static [Metric] = &[
                $(blocks!(@metric $block [$($help)+] $metric $cell $unit $($elements)?),)*
                $($(blocks!(@metric $block [$($more_help)+] $more $more_cell $more_unit $($more_elements)?),)*)?
            ];
        }

        blocks!(@twin $block [$($twin)?] $($(#[doc = $help])+ $metric: $cell;)*);
    )+};
    (@type $cell:ident) => { $cell };
    (@type $cell:ident $elements:ident) => { [$cell; $elements.len()] };
    (@metric $block:ident [$($help:literal)+] $metric:ident $cell:ident $unit:literal $($elements:ident)?) => {
        Metric {
            name: stringify!($metric),
            kind: <$cell as Cell>::KIND,
            unit: $unit,
            help: &[$($help),+],
            at: core::mem::offset_of!($block, $metric),
            elements: blocks!(@elements $($elements)?),
        }
    };
    (@elements) => { &[] };
    (@elements $elements:ident) => { &$elements };
    (@twin $block:ident [] $($rest:tt)*) => {};
    (@twin $block:ident [$twin:ident] $($(#[doc = $help:literal])+ $metric:ident: $cell:ident;)*) => {
        /// Values of a block, counted in private.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $twin {
            $($(#[doc = $help])+ pub $metric: u64,)*
        }

        impl $twin {
            /// Every value by name.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($metric), self.$metric)),*].into_iter()
            }

            /// Two of them as one: counters added, of gauges the greater.
            #[must_use]
            pub fn plus(&self, other: &Self) -> Self {
                Self { $($metric: <$cell as Scalar>::merge(self.$metric, other.$metric)),* }
            }

            /// Puts them where readers see them: each exact, not the moment of all of them.
            #[inline]
            pub fn publish(&self, block: &$block) {
                $(block.$metric.put(self.$metric);)*
            }

            /// The values that were published last.
            #[must_use]
            pub fn of(block: &$block) -> Self {
                Self { $($metric: block.$metric.get()),* }
            }
        }
    };
}

blocks! {
    /// A core: a thread that polls roles.
    Core("core") {
        /// Turns of the loop.
        turns: Counter, "";
        /// ... of them, those that found work: the others are idle ones.
        busy_turns: Counter, "";
        /// ... of them, those under pressure: more had come in than a turn takes, or something found no room to leave.
        pressed_turns: Counter, "";
        /// Time spent in busy turns.
        busy_ns: Counter, "ns";
        /// ... of it, in turns under pressure.
        pressed_ns: Counter, "ns";
        /// Datagrams handed on and work reported by roles.
        work: Counter, "";
        /// Rounds of role turns.
        rounds: Counter, "";
        /// Times it went to sleep, or tried to.
        sleeps: Counter, "";
        /// Sleeps asked for with a deadline already past by a role that then did nothing: such a role spins.
        overdue: Counter, "";
        /// The longest turn, sleep not counted.
        longest_turn_ns: Gauge, "ns";
    } as CoreFigures and {
        /// Length of busy turns.
        turn_ns: Histogram, "ns";
    }

    /// What a core moved through the kernel, and what went wrong.
    Io("io") {
        /// Datagrams handed on.
        received: Counter, "";
        /// Their payload bytes.
        received_bytes: Counter, "bytes";
        /// ... of them, those that came with others as one (GRO).
        merged: Counter, "";
        /// Datagrams queued for sending.
        sent: Counter, "";
        /// Their payload bytes.
        sent_bytes: Counter, "bytes";
        /// Batches of several datagrams to one destination, each handed to the kernel as one (GSO).
        batches: Counter, "";
        /// Datagrams in them.
        batched: Counter, "";
        /// Batches that kernel or device could not cut, their datagrams lost; the socket sends singly from then on.
        batches_refused: Counter, "";
        /// Sends refused for want of a buffer.
        send_refused: Counter, "";
        /// Sends the kernel failed, for any of the reasons below or another.
        send_failed: Counter, "";
        /// ... the other end has no such port (ECONNREFUSED).
        send_failed_refused: Counter, "";
        /// ... the socket's send buffer was full (EAGAIN).
        send_failed_full: Counter, "";
        /// ... the device's queue or the kernel's memory was full (ENOBUFS, ENOMEM).
        send_failed_no_memory: Counter, "";
        /// ... a local filter forbade it (EPERM, EACCES).
        send_failed_forbidden: Counter, "";
        /// ... longer than the path takes (EMSGSIZE).
        send_failed_too_long: Counter, "";
        /// ... no route, host or network (EHOSTUNREACH, ENETUNREACH, ENETDOWN, EADDRNOTAVAIL).
        send_failed_unreachable: Counter, "";
        /// Times a receive ended because its buffers had run out, and was armed again.
        no_buffers: Counter, "";
        /// Times a receive was armed again, for any reason.
        rearmed: Counter, "";
        /// Receives that ended with an error other than want of buffers.
        receive_failed: Counter, "";
        /// Datagrams longer than the buffers, dropped.
        truncated: Counter, "";
        /// Datagrams whose sender's address made no sense, dropped.
        malformed: Counter, "";
        /// Datagrams the kernel dropped because the socket's queue was full (SO_RXQ_OVFL).
        kernel_drops: Counter, "";
        /// Datagrams handed on without a kernel receive stamp.
        stamps_missing: Counter, "";
        /// System calls into the ring.
        enters: Counter, "";
        /// ... of them, those that could sleep.
        waits: Counter, "";
        /// Times the core's waker ended or prevented a sleep.
        rung: Counter, "";
    } as IoFigures

    /// The role `order`: the protocol and the peer socket.
    Order("order") {
        /// What this server is, as far as it knows itself: [`State`].
        state: Gauge, "";
        /// The last order number given here.
        ordered: Gauge, "";
        /// The instance; 0 before genesis.
        instance: Gauge, "";
        /// The configuration entered.
        epoch: Gauge, "";
        /// 1 once this process is a member.
        member: Gauge, "";
        /// A living instance in which this process has no place; 0: none heard of.
        not_named: Gauge, "";
        /// Bit k: genesis waits for place k.
        awaited: Gauge, "";
        /// 1 if nobody waits for this server, so that it may be stopped without holding up the others.
        safe_to_stop: Gauge, "";
        /// Own requests being ordered.
        under_way: Gauge, "";
        /// ... the most there ever were.
        under_way_high: Gauge, "";
        /// Frames held without a gap, by server: the length of its stream.
        stream_frames: Gauge of SERVERS, "";
        /// The promise of a stream, by server: nothing at or below it follows there.
        stream_promise_ns: Gauge of SERVERS, "ns";
        /// When a peer was last heard, by server (monotonic clock); 0: never.
        heard_ns: Gauge of SERVERS, "ns";
        /// Requests that waited in the ring from an ingress when it was last emptied.
        asked_depth: Gauge of INGRESSES, "";
        /// ... the most there ever were.
        asked_high: Gauge of INGRESSES, "";
        /// Most datagrams to peers that ever waited for the end of a turn.
        out_high: Gauge, "";
        /// Datagrams to peers dropped because too many waited, or no buffer was free.
        peer_out_full: Counter, "";
        /// Answers dropped because the ring to ingress was full; the client asks again.
        answer_dropped: Counter, "";
        /// Events that the log did not take in time.
        event_dropped: Counter, "";
        /// Requests stamped.
        stamped: Counter, "";
        /// Own frames broadcast.
        frames_sent: Counter, "";
        /// Datagrams that carried own frames.
        frame_datagrams: Counter, "";
        /// Headers broadcast with no frame to ride on.
        headers_alone: Counter, "";
        /// Headers broadcast at the beat.
        headers_beat: Counter, "";
        /// Frames of others accepted.
        frames_accepted: Counter, "";
        /// Frames held already.
        frame_duplicate: Counter, "";
        /// Frames that came before an earlier one.
        frame_early: Counter, "";
        /// Frames there was no room for.
        frame_no_room: Counter, "";
        /// Frames no protocol-following server sends.
        frame_defect: Counter, "";
        /// Headers taken.
        headers_taken: Counter, "";
        /// PULLs sent.
        pulls_sent: Counter, "";
        /// Frames sent because they were pulled.
        frames_pulled: Counter, "";
        /// ASKs sent.
        asks_sent: Counter, "";
        /// Datagrams of another instance.
        other_instance: Counter, "";
        /// Messages that did not parse, or belong to rules this version has not.
        messages_refused: Counter, "";
        /// Answers given.
        answered: Counter, "";
        /// Retries that found their request under way.
        retries_joined: Counter, "";
        /// Datagrams dropped at the peer socket, by reason.
        peer_dropped: Counter of DROPS, "";
        /// Requests refused by the core, by reason.
        refused: Counter of REFUSALS, "";
        /// Stage: from a client's datagram being handed to ingress until `order` takes the request from the ring.
        ring_wait_ns: Histogram, "ns";
        /// Stage: from the stamp of an own request until its delivery: the time that ordering takes.
        order_ns: Histogram, "ns";
        /// From the stamp on a peer's datagram until its receipt, by server: by the wall clocks of both hosts, so it is off by
        /// how far they differ; what seems to come before it was sent counts as 0.
        delay_ns: Histogram of SERVERS, "ns";
    }

    /// A role `ingress`: a client socket.
    Ingress("ingress") {
        /// Answers and refusals that waited in the ring from `order` when it was last emptied.
        told_depth: Gauge, "";
        /// ... the most there ever were.
        told_high: Gauge, "";
        /// Messages to clients handed on.
        told: Counter, "";
        /// Datagrams to clients dropped because no buffer was free.
        client_out_full: Counter, "";
        /// Messages of kinds this version does not serve.
        not_served: Counter, "";
        /// Datagrams dropped at the client socket, by reason.
        client_dropped: Counter of DROPS, "";
        /// Requests refused here, before the core saw them, by reason: `overloaded` if the ring to `order` was full.
        turned_away: Counter of REFUSALS, "";
        /// Stage: from an entry's delivery until its answer is packed into a datagram, which leaves at the end of the turn.
        answer_wait_ns: Histogram, "ns";
    }

    /// The thread `house`: the log and the clockwork of this file.
    House("house") {
        /// When it last looked (wall clock): the file is as fresh as that, and as the server's last breath.
        written_ns: Gauge, "ns";
        /// The same by the monotonic clock, which the ages of what is dated by it count from.
        written_local_ns: Gauge, "ns";
        /// How the server ended: [`Ended`]; 0: it runs, or was killed.
        ended: Gauge, "";
        /// Over the last full second: order numbers given here.
        ordered_per_s: Gauge, "per_s";
        /// ... requests stamped here.
        stamped_per_s: Gauge, "per_s";
        /// ... answers given here.
        answered_per_s: Gauge, "per_s";
        /// ... requests refused here.
        refused_per_s: Gauge, "per_s";
        /// ... datagrams received.
        received_per_s: Gauge, "per_s";
        /// ... datagrams sent.
        sent_per_s: Gauge, "per_s";
        /// ... system calls into the rings.
        enters_per_s: Gauge, "per_s";
        /// ... processor time of busy turns, all cores together, in thousandths of a second.
        busy_ms_per_s: Gauge, "ms_per_s";
        /// Distinct errors that the table had no room for.
        errors_forgotten: Counter, "";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<B: Block>() {
        let mut at = 0;
        for metric in B::METRICS {
            assert_eq!(metric.at, at, "{}.{} lies where the one before it ends", B::NAME, metric.name);
            at += metric.kind.words() * 8 * metric.elements.len().max(1);
            assert!(metric.unit.is_empty() || metric.name.ends_with(metric.unit), "{} lacks its unit", metric.name);
            let named = B::METRICS.iter().filter(|other| other.name == metric.name).count();
            assert_eq!(named, 1, "{} stands there once", metric.name);
        }
        assert!(at <= size_of::<B>() && size_of::<B>() - at < BLOCK_ALIGN, "{} is all metrics", B::NAME);
    }

    #[test]
    fn tables_list_every_word_of_their_blocks() {
        check::<Core>();
        check::<Io>();
        check::<Order>();
        check::<Ingress>();
        check::<House>();
    }

    #[test]
    fn states_and_ends_are_numbered_as_they_stand() {
        assert!((0..).zip(State::ALL).all(|(number, state)| state.number() == number));
        assert!((1..).zip(Ended::ALL).all(|(number, ended)| ended.number() == number));
    }
}
