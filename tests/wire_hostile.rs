//! Bytes that no sender of ours writes, under a tag that would be valid: every truncation, flipped bits, garbage. Parsing
//! never panics, and what it accepts can be read to its end.
#![cfg(test)]

mod wire_samples;

use fastrand::Rng;
use ordain::protocol::{SERVERS_MAX, SessionId};
use ordain::wire::answer::AnswerView;
use ordain::wire::client::{ToClient, ToServer, parse_to_client, parse_to_server};
use ordain::wire::frame::{EntryView, FRAME_HEAD_LEN, FrameView};
use ordain::wire::peer::{self, PeerMessage};
use ordain::wire::{BodyWriter, WireError};
use wire_samples::{config, each_peer_message, frame, header, to_client, to_server};

/// A seeded generator that, if the test fails, says how to run it again.
struct Seeded {
    seed: u64,
    test: &'static str,
    rng: Rng,
}

impl Seeded {
    fn new(test: &'static str) -> Self {
        let seed = std::env::var("ORDAIN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_260_701);
        Self { seed, test, rng: Rng::with_seed(seed) }
    }
}

impl Drop for Seeded {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("reproduce: ORDAIN_SEED={} cargo test --test wire_hostile -- --exact {}", self.seed, self.test);
        }
    }
}

fn peer_bodies() -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    each_peer_message(|_, message| {
        let mut buf = [0; 1400];
        let mut body = BodyWriter::new(&mut buf);
        message.put(&mut body).unwrap();
        bodies.push(body.bytes().to_vec());
    });
    bodies
}

/// Reads all there is; accepted bytes are exactly what a sender would have written.
fn read_peer(body: &[u8]) -> Result<usize, WireError> {
    let mut buf = vec![0; body.len()];
    let mut again = BodyWriter::new(&mut buf);
    let mut messages = 0;
    for message in peer::messages(body) {
        let message = message?;
        messages += 1;
        if let PeerMessage::Frame(frame) = message {
            assert_eq!(frame.entries().count(), usize::from(frame.count()));
            assert!(frame.entries().is_sorted_by(|a, b| a.ts < b.ts));
            assert_eq!(frame.entries().last().map(|entry| entry.ts), Some(frame.last_ts()));
        }
        message.put(&mut again).unwrap();
    }
    assert_eq!(again.bytes(), body, "accepted what no sender writes");
    Ok(messages)
}

fn read_answer(view: &AnswerView<'_>) -> usize {
    assert_eq!(view.parts().count(), usize::from(view.count()));
    assert!(view.bits() != 0 && view.first() + view.count() <= view.total());
    view.parts().map(|part| part.history.iter().count()).sum()
}

fn read_to_client(body: &[u8]) -> Result<usize, WireError> {
    let messages = parse_to_client(body, SessionId::default())?;
    Ok(messages
        .map(|(_, message)| match message {
            ToClient::Answer(view) | ToClient::Corrected(view) => read_answer(&view),
            ToClient::Records(view) => {
                assert_eq!(view.records().count(), usize::from(view.count()));
                view.records().map(|record| record.parts().count()).sum()
            }
            _ => 1,
        })
        .sum())
}

fn read_to_server(body: &[u8]) -> Result<usize, WireError> {
    let messages = parse_to_server(body, SessionId::default())?;
    Ok(messages
        .map(|(_, message)| match message {
            ToServer::Request(request) => {
                assert!((1..=64).contains(&request.participants.len()) && request.depth <= 16);
                assert!(request.participants.repeated().is_none() && request.request.get() > 0);
                request.participants.iter().count()
            }
            ToServer::Open(open) => open.name.len(),
            _ => 1,
        })
        .sum())
}

/// Every kind of body with a reader that must stand anything.
type Read = fn(&[u8]) -> Result<usize, WireError>;
fn all() -> Vec<(Read, Vec<u8>)> {
    let peers = peer_bodies().into_iter().map(|body| (read_peer as Read, body));
    let clients = to_server().into_iter().map(|(_, body)| (read_to_server as Read, body));
    let servers = to_client().into_iter().map(|(_, body)| (read_to_client as Read, body));
    peers.chain(clients).chain(servers).collect()
}

#[test]
fn every_truncation_is_refused() {
    for (read, body) in all() {
        assert!(read(&body).is_ok());
        for end in 1..body.len() {
            assert!(read(&body[..end]).is_err(), "{end} of {body:02x?}");
        }
        assert_eq!(read(&[]), Ok(0));
    }
}

#[test]
fn payload_cut_or_grown_with_its_length_is_refused() {
    for (read, body) in all() {
        let payload = body.len() - 4;
        for length in (0..payload).chain([payload + 1]) {
            let mut cut = body.clone();
            cut.resize(4 + length, 0);
            cut[2..4].copy_from_slice(&u16::try_from(length).unwrap().to_le_bytes());
            let fault = matches!(cut[0], 0x42);
            let snap = cut[0] == 0x17 && length >= 24 && length < payload;
            assert_eq!(read(&cut).is_ok(), fault || snap, "{length} of {body:02x?}");
        }
    }
}

#[test]
fn every_single_bit_is_survived() {
    for (read, body) in all() {
        for bit in 0..8 * body.len() {
            let mut flipped = body.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let _ = read(&flipped);
        }
    }
}

#[test]
fn random_damage_is_survived() {
    let mut seeded = Seeded::new("random_damage_is_survived");
    let rng = &mut seeded.rng;
    let (bodies, mut accepted) = (all(), 0);
    for _ in 0..100_000 {
        let (read, body) = &bodies[rng.usize(..bodies.len())];
        let mut body = body.clone();
        if rng.u8(..4) == 0 {
            let (_, other) = &bodies[rng.usize(..bodies.len())];
            body.extend_from_slice(other);
        }
        for _ in 0..rng.usize(1..6) {
            let at = rng.usize(..body.len());
            match rng.u8(..4) {
                0 => body[at] ^= 1 << rng.u8(..8),
                1 => body[at] = rng.u8(..),
                2 => body[at] = [0, 1, 64, 65, 255][rng.usize(..5)],
                _ => body.truncate(at.max(1)),
            }
        }
        accepted += usize::from(read(&body).is_ok());
    }
    assert!(accepted > 10_000, "damage in plain numbers is accepted: {accepted}");
}

#[test]
fn garbage_is_survived() {
    let mut seeded = Seeded::new("garbage_is_survived");
    let rng = &mut seeded.rng;
    for _ in 0..50_000 {
        let kind = [rng.u8(1..25), rng.u8(0x40..0x46), rng.u8(0x60..0x69), rng.u8(..)][rng.usize(..4)];
        let length = rng.usize(..200);
        let mut body = vec![kind, 0];
        body.extend_from_slice(&u16::try_from(length).unwrap().to_le_bytes());
        body.extend((0..length).map(|_| if rng.bool() { 0 } else { rng.u8(..) }));
        for read in [read_peer, read_to_server, read_to_client] {
            let _ = read(&body);
        }
        let _ = FrameView::again(&body).map(|view| view.entries().count());
        let offset = rng.usize(..300);
        let _ = EntryView::at(&body, offset).map(|(entry, _)| entry.participants.iter().count());
    }
}

/// The payload of a valid message with one change, parsed as a peer's body.
fn changed(payload: &[u8], kind: u8, change: impl FnOnce(&mut Vec<u8>)) -> Result<usize, WireError> {
    let mut payload = payload.to_vec();
    change(&mut payload);
    let mut body = vec![kind, 0];
    body.extend_from_slice(&u16::try_from(payload.len()).unwrap().to_le_bytes());
    body.extend(payload);
    read_peer(&body)
}

#[test]
fn frame_rules_are_checked_and_the_error_says_what_clashes() {
    let bytes = frame();
    let (first, second) = (FRAME_HEAD_LEN, FRAME_HEAD_LEN + 64);
    let frame = |change: fn(&mut Vec<u8>)| changed(&bytes, 2, change);
    assert_eq!((first, second), (24, 88));
    assert_eq!(frame(|_| ()), Ok(1));
    let equal = Err(WireError::EntryOrder { index: 1, delta: 0, before: 0 });
    assert_eq!(frame(|p| p[88] = 0), equal);
    assert_eq!(frame(|p| p[24] = 2), Err(WireError::EntryOrder { index: 0, delta: 2, before: 0 }));
    assert_eq!(frame(|p| p[84] = 1), Err(WireError::ParticipantTwice { index: 0, id: 1 }));
    let count = Err(WireError::Range { kind: 2, field: "entries", value: 0, low: 1, high: 65535 });
    assert_eq!(frame(|p| p[2] = 0), count);
    assert_eq!(frame(|p| p[2] = 1), Err(WireError::Long { kind: 2, want: 88, got: 148 }));
    assert_eq!(frame(|p| p[2] = 3), Err(WireError::Short { kind: 2, need: 204, got: 148 }));
    for n in [0, 65] {
        let mut payload = bytes.clone();
        payload[76] = n;
        let wanted = WireError::Range { kind: 2, field: "participants", value: n.into(), low: 1, high: 64 };
        assert_eq!(FrameView::parse(&payload), Err(wanted));
    }
    assert!(frame(|p| p[8] = 0).is_err(), "frame number 0");
    assert!(frame(|p| p[52] = 0).is_err(), "request number 0");
    assert!(frame(|p| p[16..24].fill(0xff)).is_err(), "time beyond the end");
    assert!(frame(|p| p[0] = 7).is_err(), "a place that no server has");
}

#[test]
fn configuration_rules_are_checked() {
    let view_buf = &mut [0; ordain::wire::config::CONFIG_LEN_MAX];
    let bytes = config().view_in(view_buf).bytes().to_vec();
    let config = |change: fn(&mut Vec<u8>)| changed(&bytes, 8, change);
    assert_eq!(config(|_| ()), Ok(1));
    assert_eq!(config(|p| p[62 + 1] = 0), Err(WireError::Rows { first: 1, second: 2 }), "two open at a place");
    assert_eq!(config(|p| p[84 + 2] = 1), Err(WireError::Rows { first: 1, second: 2 }), "a stream twice");
    assert!(config(|p| p[40 + 2] = 4).is_err(), "g above e");
    assert!(config(|p| p[40] = 3).is_err(), "a place that is none of the n");
    assert!(config(|p| p[4] = 0).is_err() && config(|p| p[4] = 8).is_err());
    assert!(config(|p| p[5] = 7).is_err(), "more rows than two a place");
}

#[test]
fn lists_longer_than_servers_are_refused() {
    let mut buf = [0; 400];
    let mut body = BodyWriter::new(&mut buf);
    header().put(&mut body).unwrap();
    let payload = body.bytes()[4..].to_vec();
    let many = u8::try_from(SERVERS_MAX).unwrap() + 1;
    let grown = changed(&payload, 1, |p| {
        p[4] = many;
        p.resize(72 + 8 * usize::from(many) + 24, 0);
    });
    assert_eq!(grown, Err(WireError::Range { kind: 1, field: "acks", value: 8, low: 0, high: 7 }));
}

#[test]
fn unknown_messages_are_named() {
    assert_eq!(read_peer(&[99, 0, 0, 0]), Err(WireError::Unknown { kind: 99 }));
    assert_eq!(read_to_server(&[0x62, 0, 0, 0]), Err(WireError::Unknown { kind: 0x62 }), "a server's message");
    assert_eq!(read_to_client(&[0x42, 0, 0, 0]), Err(WireError::Unknown { kind: 0x42 }), "a client's message");
    assert_eq!(read_peer(&[5, 1, 0, 0]), Err(WireError::Aux { kind: 5, aux: 1 }));
    assert_eq!(read_peer(&[5, 0, 9]), Err(WireError::Head { left: 3 }));
    assert_eq!(read_peer(&[5, 0, 9, 0, 1]), Err(WireError::Overrun { kind: 5, length: 9, left: 1 }));
}
