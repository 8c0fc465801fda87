//! `ordain order`: have one transaction ordered, and print its place.
//!
//! **Not here**: the client ([`crate::client::blocking`]).

use std::process::ExitCode;

use super::target::{Target, number, span};
use super::{Error, Status, out};
use crate::client::blocking::{Client, OrderError, Place};
use crate::client::machine::SubmitError;
use crate::client::seed;
use crate::client::trace::{Line, parse_hex};
use crate::engine::clock;
use crate::protocol::{NodeId, PARTICIPANTS_MAX, Span, TxId};

const EXAMPLES: &str = "Examples:
  ordain order --config d/ordain.toml --participants 1,2,3
  ordain order --config d/ordain.toml --participants 7 --history 16 --json
  ordain order --config d/ordain.toml --participants 7 --tx 000102030405060708090a0b0c0d0e0f

Ask again with the same --tx as often as needed: a transaction gets one place. Exit status: 0 ordered; 1 refused; \
69 no answer in time.";

/// What `ordain order` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    target: Target,
    /// The transaction's id; a random one if not given
    #[arg(long, value_name = "HEX32", value_parser = tx_id)]
    tx: Option<TxId>,
    /// Who takes part: ids from 0 to 4294967295, up to 64 of them
    #[arg(long, value_name = "ID,...", value_delimiter = ',', required = true, value_parser = participant)]
    participants: Vec<u32>,
    /// How many earlier transactions to tell each participant
    #[arg(long, value_name = "DEPTH", default_value_t = 4, value_parser = |text: &str| number(text, 0..=16_u8))]
    history: u8,
    /// How long to try
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = span)]
    timeout: Span,
    /// Print one trace line
    #[arg(long)]
    json: bool,
}

fn tx_id(text: &str) -> Result<TxId, String> {
    parse_hex(text).map(TxId::new).ok_or_else(|| "a transaction id has 32 hexadecimal digits".to_owned())
}

fn participant(text: &str) -> Result<u32, String> {
    number(text, 0..=u32::MAX)
}

/// The participants, if a transaction can have them.
fn participants(ids: &[u32]) -> Result<Vec<NodeId>, Error> {
    if ids.len() > PARTICIPANTS_MAX {
        let count = ids.len();
        return Err(Error::usage(format!("--participants: {count} ids; a transaction has {PARTICIPANTS_MAX} at most")));
    }
    let twice = (1..ids.len()).find(|at| ids[..*at].contains(&ids[*at]));
    if let Some(at) = twice {
        return Err(Error::usage(format!("--participants: {} is named twice; name each once", ids[at])));
    }
    Ok(ids.iter().copied().map(NodeId::new).collect())
}

/// Orders.
///
/// # Errors
/// Wrong usage, no answer in time (exit 69), or a refusal (exit 1).
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let ids = participants(&args.participants)?;
    let cluster = args.target.cluster()?;
    let tx = args.tx.unwrap_or_else(|| TxId::new(((u128::from(seed()) << 64) | u128::from(seed())).to_be_bytes()));
    let mut client = Client::connect_sessions(cluster, args.timeout, 1)?;
    client.submit(tx, &ids, args.history).map_err(OrderError::Invalid)?;
    let mut ended = None;
    let mut line = Line::default();
    while ended.is_none() {
        client.poll(Span::millis(100), &mut |now, done| {
            done.describe(&mut line, now);
            ended = Some(OrderError::or_place(done));
        })?;
    }
    // The clock is read again for nothing but the time to the answer; the line has it too.
    let took = Span::new(line.done_ns.saturating_sub(line.sent_ns));
    debug_assert!(line.done_ns <= clock::monotonic().get(), "done before now");
    match ended {
        Some(end) if args.json => {
            let mut text = Vec::new();
            line.write_to(&mut text);
            out::text(String::from_utf8_lossy(&text))?;
            end?;
        }
        Some(end) => out::text(text(tx, &end?, took))?,
        None => {}
    }
    Ok(Status::Done.into())
}

/// No answer in time is no quorum; a refusal is a no; the rest is usage.
impl From<OrderError> for Error {
    fn from(error: OrderError) -> Self {
        let status = match &error {
            OrderError::Unanswered | OrderError::Unreachable | OrderError::NoQuorum => Status::Unreachable,
            OrderError::NoSession(_) | OrderError::NotMember => Status::Unreachable,
            OrderError::Invalid(SubmitError::Full | SubmitError::NoSession) => Status::Unreachable,
            OrderError::Invalid(_) | OrderError::Name(_) | OrderError::Version { .. } => Status::Usage,
            OrderError::Io(source) => return Self::io("socket", source),
            _ => Status::No,
        };
        Self::new(status, error)
    }
}

fn text(tx: TxId, place: &Place, took: Span) -> String {
    let provisional = if place.provisional { ", provisional" } else { "" };
    let mut text = format!(
        "transaction {tx}\nnumber      {}{provisional}\ntimestamp   {}\ninstance    {}\ntook        {} us\n",
        place.order,
        place.ts,
        place.instance,
        took.get() / 1_000
    );
    for part in &place.parts {
        text += &format!("participant {:>10}  sequence {:>10}  after", part.id, part.seq);
        if part.history.is_empty() {
            text += if part.seq.get() == 1 { " nothing" } else { " (no history asked)" };
        }
        for (order, tx) in &part.history {
            text += &format!(" {order}:{tx}");
        }
        text.push('\n');
    }
    text
}
