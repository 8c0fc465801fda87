//! The bytes of every message and envelope, written by hand from the tables in the documentation: a change here is a
//! change of the wire, and so of its version.
#![cfg(test)]

mod wire_samples;

use std::collections::HashMap;

use ordain::protocol::{Instance, OrderNo, Principal, RequestNo, ServerId, SessionId, Timestamp};
use ordain::wire::answer::{AnswerKind, AnswerView, Assembly, put_answer};
use ordain::wire::auth::{ClusterKey, principal_id};
use ordain::wire::builder::FrameBuilder;
use ordain::wire::client::{Fault, ToClient, ToServer, parse_to_client, parse_to_server, put_session};
use ordain::wire::frame::{EntryView, FRAME_HEAD_LEN, FrameView};
use ordain::wire::peer::{self, PeerMessage, SettingsMismatch, Terms};
use ordain::wire::records::{RecordSource, RecordsView, RecordsWriter};
use ordain::wire::{
    BodyWriter, ClientEnvelope, ENVELOPE_LEN, PAYLOAD_DEFAULT, PAYLOAD_MIN, PeerEnvelope, body_max, seal_client,
    seal_peer, seal_server,
};
use wire_samples::{
    Sample, answer_head, config, each_peer_message, entry, few, frame, header, ids, request, server, session, stream,
    terms, to_client, to_server,
};

/// Bytes from hexadecimal digits; spaces and line ends are for people.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

const TX: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const SESSION: &str = "9190000000000000 a1a0000000000000";
const CONFIG: &str = "03000000 03 03 0000 6160000000000000
    7100000000000000 0000000000000000 7300000000000000
    00 00 00000000 0000000000000000 2900000000000000
    02 01 01000000 0900000000000000 2a00000000000000
    02 00 03000000 4d00000000000000 0000000000000000";
const TERMS: &str = "03 02 02 00 4000000000000000 40420f0000000000";
/// k = 1, g = 2.
const STREAM: &str = "01 000000 02000000";

fn golden_peer() -> HashMap<&'static str, String> {
    let sketch: String = (1000_u32..1032).map(|point| format!("{:08x}", point.swap_bytes())).collect();
    let lens = "2900000000000000 2a00000000000000";
    HashMap::from([
        (
            "HDR",
            "01 00 7800  01 99 04 01 03 03 0102 07000000 05000000 1716151413121110 6300000000000000 2120000000000000
             d204000000000000 3736353433323130 4140000000000000 90d00300 a0860100
             0b00000000000000 6300000000000000 2100000000000000
             5100000000000000 0000000000000000 5300000000000000"
                .to_owned(),
        ),
        (
            "FRAME",
            format!(
                "02 00 9400  02 00 0200 06000000 1100000000000000 e803000000000000
                 00000000 8180000000000000 {SESSION} 2900000000000000 {TX} 02 000000 01000000 02000000
                 03000000 8180000000000000 {SESSION} 2900000000000000 {TX} 01 000000 02010000"
            ),
        ),
        ("PULL", format!("03 00 1800 {STREAM} 0a00000000000000 4900000000000000")),
        ("GONE", format!("04 00 1000 {STREAM} 0a00000000000000")),
        ("ASK", format!("05 00 0800 {STREAM}")),
        ("OWN", format!("06 00 1800 {STREAM} 0a00000000000000 1400000000000000")),
        ("CONFIG_REQ", "07 00 0500 03000000 01".to_owned()),
        ("CONFIG_REQ none", "07 00 0500 00000000 00".to_owned()),
        ("CONFIG", format!("08 00 6a00 {CONFIG}")),
        ("HELLO", format!("09 00 1c00 c100000000000000 {TERMS}")),
        ("PLEDGE", format!("0a 00 2400 c100000000000000 c200000000000000 {TERMS}")),
        ("EXISTS", "0b 00 1400 c300000000000000 c100000000000000 03000000".to_owned()),
        ("SETTINGS_MISMATCH", "0c 00 1100 4000000000000000 2000000000000000 01".to_owned()),
        ("CHALLENGE", "0d 00 0800 c400000000000000".to_owned()),
        ("JOIN", format!("0e 00 2c00 c100000000000000 c400000000000000 f401000000000000 {TERMS}")),
        ("PREPARE", "0f 00 0900 03000000 05000000 03".to_owned()),
        ("REPORT none", format!("10 00 2800 03000000 05000000 02 02 0000 00000000 5800000000000000 {lens}")),
        ("REPORT", format!("10 00 9200 03000000 05000000 02 02 0000 04000000 5800000000000000 {lens} {CONFIG}")),
        ("ACCEPT", format!("11 00 7200 03000000 05000000 {CONFIG}")),
        ("ACCEPTED", "12 00 1000 03000000 05000000 d100000000000000".to_owned()),
        ("VALUE_REQ", "13 00 0c00 03000000 d100000000000000".to_owned()),
        ("VALUE", format!("14 00 7200 03000000 05000000 {CONFIG}")),
        ("REFUSE", "15 00 0c00 03000000 05000000 04000000".to_owned()),
        ("SNAP_REQ", "16 00 1400 d200000000000000 0004000000000000 00100000".to_owned()),
        ("SNAP", "17 00 1b00 d200000000000000 0004000000000000 0304000000000000 616263".to_owned()),
        ("SKETCH", format!("18 00 8800 02 000000 2c010000 {sketch}")),
    ])
}

fn golden_to_server() -> HashMap<&'static str, String> {
    HashMap::from([
        ("OPEN", "41 00 1200 e100000000000000 09 74782d686f73742e37".to_owned()),
        ("SESSION", format!("40 00 1000 {SESSION}")),
        ("REQUEST", format!("42 00 2400 2900000000000000 {TX} 04 01 02 00 07000000 02010000")),
        ("QUERY tx", format!("43 00 1800 09000000 01 00 6400 {TX}")),
        ("QUERY participant", "43 00 1800 09000000 02 00 6400 02010000 00000000 3200000000000000".to_owned()),
        ("QUERY order", "43 00 1800 09000000 03 00 6400 d007000000000000 0000000000000000".to_owned()),
        ("FOLLOW", "44 00 1000 09000000 00010000 d007000000000000".to_owned()),
        ("CLOSE", "45 00 0000".to_owned()),
    ])
}

fn golden_to_client() -> HashMap<&'static str, String> {
    let step = |order: &str, tx: &str| format!("{order}000000000000 {}", tx.repeat(16));
    let (newest, older) = (step("8813", "00"), step("4813", "01"));
    let head = "2900000000000000 d007000000000000 4140000000000000 6160000000000000";
    HashMap::from([
        ("OPENED", format!("61 00 2200 e100000000000000 {SESSION} 4000 c005 00020000 02 03")),
        ("SESSION", format!("40 00 1000 {SESSION}")),
        (
            "ANSWER",
            format!(
                "62 00 6e00 {head} 01 02 00 02
                 64000000 3200000000000000 02 {newest} {older}
                 65000000 3300000000000000 00"
            ),
        ),
        ("CONFIRMED", "63 00 0800 2900000000000000".to_owned()),
        ("CORRECTED", format!("64 00 3100 {head} 00 02 01 01 65000000 3300000000000000 00")),
        ("REFUSED", "65 00 0f00 2900000000000000 dc050000 0a 01 03".to_owned()),
        ("CREDIT", "66 00 0c00 00020000 4140000000000000".to_owned()),
        (
            "RECORDS",
            format!(
                "67 00 5400 09000000 03 00 0100 d007000000000000 d107000000000000
                 d007000000000000 4140000000000000 {TX} 02 00 02 00
                 64000000 3200000000000000 65000000 3300000000000000"
            ),
        ),
        ("DRAINING", "68 00 0000".to_owned()),
    ])
}

#[test]
fn every_peer_message_has_its_bytes_and_comes_back() {
    let golden = golden_peer();
    let mut seen = 0;
    each_peer_message(|name, message| {
        let mut buf = [0xee; 1400];
        let mut body = BodyWriter::new(&mut buf);
        message.put(&mut body).unwrap();
        assert_eq!(body.bytes(), hex(&golden[name]), "{name}");
        let back: Vec<_> = peer::messages(body.bytes()).map(Result::unwrap).collect();
        assert_eq!(back, [message], "{name}");
        seen += 1;
    });
    assert_eq!(seen, golden.len());
}

#[test]
fn every_client_message_has_its_bytes() {
    let (golden, samples) = (golden_to_server(), to_server());
    assert_eq!(golden.len(), samples.len());
    for (name, bytes) in samples {
        assert_eq!(bytes, hex(&golden[name]), "{name}");
        parse_to_server(&bytes, SessionId::default()).unwrap().for_each(drop);
    }
    let (golden, samples) = (golden_to_client(), to_client());
    assert_eq!(golden.len(), samples.len());
    for (name, bytes) in samples {
        assert_eq!(bytes, hex(&golden[name]), "{name}");
        parse_to_client(&bytes, SessionId::default()).unwrap().for_each(drop);
    }
}

#[test]
fn envelopes_have_their_bytes_and_the_tag_comes_last() {
    let key = ClusterKey::from_bytes([7; 32]);
    let mut buf = [0xee; ENVELOPE_LEN + 3 + 16];
    buf[ENVELOPE_LEN..ENVELOPE_LEN + 3].copy_from_slice(b"abc");
    let envelope = PeerEnvelope {
        from: server(2),
        instance: Instance::new(0x6061),
        inc: ordain::protocol::Incarnation::new(0x71),
        sent: Timestamp::new(0x4041),
        eps_ns: 500,
    };
    assert_eq!(seal_peer(&mut buf, &envelope, 3, &key.peer()), buf.len());
    let head = "4f44 01 01 02 000000 6160000000000000 7100000000000000 4140000000000000 f4010000 00000000 616263";
    assert_eq!(buf[..ENVELOPE_LEN + 3], hex(head));

    let principal = Principal::new(0x8081);
    let envelope = ClientEnvelope { instance: Instance::new(0x6061), principal, session: session(0x9091, 0xa0a1) };
    let rest = format!("00000000 6160000000000000 8180000000000000 {SESSION} 616263");
    assert_eq!(seal_client(&mut buf, &envelope, 3, &key.principal(principal)), buf.len());
    assert_eq!(buf[..ENVELOPE_LEN + 3], hex(&format!("4f44 01 02 {rest}")));
    assert_eq!(seal_server(&mut buf, &envelope, 3, &key.principal(principal)), buf.len());
    assert_eq!(buf[..ENVELOPE_LEN + 3], hex(&format!("4f44 01 03 {rest}")));
}

#[test]
fn messages_share_a_datagram_and_sessions_are_followed() {
    let (first, second) = (session(1, 2), session(3, 4));
    let mut buf = [0; 1400];
    let mut body = BodyWriter::new(&mut buf);
    let mut in_force = first;
    let wanted = [first, first, second, first];
    for wanted in wanted {
        put_session(&mut body, &mut in_force, wanted).unwrap();
        request(&ids(&[7])).put(&mut body).unwrap();
    }
    let got: Vec<_> = parse_to_server(body.bytes(), first).unwrap().collect();
    assert_eq!(got.iter().map(|(session, _)| *session).collect::<Vec<_>>(), wanted);
    assert!(got.iter().all(|(_, message)| *message == ToServer::Request(request(&ids(&[7])))));
    assert_eq!(body.len(), 4 * (4 + 32) + 2 * 20, "a switch only where the session changes");
}

#[test]
fn message_that_does_not_fit_is_not_begun() {
    let mut buf = [0; 60];
    let mut body = BodyWriter::new(&mut buf);
    request(&ids(&[7])).put(&mut body).unwrap();
    assert_eq!(body.room(), 60 - 36 - 4);
    let full = request(&ids(&[7])).put(&mut body).unwrap_err();
    assert_eq!((full.need, full.room), (36, 24));
    assert_eq!(body.len(), 36);
    assert!(peer::Ask { stream: stream(0, 0) }.put(&mut body).is_ok(), "a smaller one still fits");
}

#[test]
fn frame_is_walked_by_offsets() {
    let bytes = frame();
    let view = FrameView::parse(&bytes).unwrap();
    assert_eq!((view.stream(), view.number().get(), view.count()), (stream(2, 6), 17, 2));
    assert_eq!((view.first_ts().get(), view.last_ts().get()), (1000, 1003));
    let (first, at) = EntryView::at(&bytes, FRAME_HEAD_LEN).unwrap();
    let (second, end) = EntryView::at(&bytes, at).unwrap();
    assert_eq!(first, entry(1000, &ids(&[1, 2])));
    assert_eq!(second, entry(1003, &ids(&[258])));
    assert_eq!(end, bytes.len());
    assert!(EntryView::at(&bytes, end).is_none());
    assert!(EntryView::at(&bytes, end + 1).is_none());
    assert_eq!(view.entries().collect::<Vec<_>>(), [first, second]);
}

#[test]
fn frame_ends_where_its_buffer_or_its_span_does() {
    let start = |room| {
        let mut builder = FrameBuilder::new(room);
        builder.start(stream(0, 0), ordain::protocol::FrameNo::new(1));
        builder
    };
    let most: Vec<u32> = (0..64).collect();
    let mut builder = start(24 + 312 + 59);
    builder.push(&entry(10, &ids(&most))).unwrap();
    assert!(builder.push(&entry(11, &ids(&[1]))).is_err());
    assert_eq!(builder.finish().bytes().len(), 24 + 312);
    assert!(builder.is_empty());
    let mut builder = start(600);
    builder.push(&entry(10, &ids(&[1]))).unwrap();
    assert!(builder.push(&entry(10 + (1 << 32), &ids(&[1]))).is_err());
    builder.push(&entry(9 + (1 << 32), &ids(&[1]))).unwrap();
    assert_eq!(builder.finish().last_ts().get(), 9 + (1 << 32));
}

/// Sends an answer in datagrams with `room` bytes of body; checks that the parts come back whole and in order.
fn send_in_pieces(sample: &Sample, room: usize) -> usize {
    let mut assembly: Option<Assembly> = None;
    let (mut pieces, mut next) = (0, 0);
    let mut parts = Vec::new();
    while usize::from(next) < sample.depths.len() {
        let mut buf = vec![0; room];
        let mut body = BodyWriter::new(&mut buf);
        next = put_answer(&mut body, AnswerKind::Answer, &answer_head(), sample, next).unwrap();
        pieces += 1;
        for (_, message) in parse_to_client(body.bytes(), SessionId::default()).unwrap() {
            let ToClient::Answer(view) = message else { panic!("{message:?}") };
            assert_eq!(view.head(), answer_head());
            for part in view.parts() {
                parts.push((part.id.get(), part.seq.get(), part.history.iter().collect::<Vec<_>>()));
            }
            match &mut assembly {
                None => assembly = Some(Assembly::new(&view)),
                Some(assembly) => {
                    assert_eq!(assembly.take(&view).unwrap(), view.bits());
                    assert_eq!(assembly.take(&view).unwrap(), 0, "a piece twice brings nothing");
                }
            }
            assert_eq!(assembly.unwrap().is_whole(), usize::from(next) == sample.depths.len());
        }
    }
    for (index, (id, seq, history)) in parts.iter().enumerate() {
        let index = u8::try_from(index).unwrap();
        let depth = sample.depths[usize::from(index)];
        assert_eq!((*id, *seq), (100 + u32::from(index), 50 + u64::from(index)));
        let wanted: Vec<_> =
            (0..depth).map(|back| ordain::wire::answer::AnswerSource::step(sample, index, back)).collect();
        assert_eq!(*history, wanted);
    }
    assert_eq!(parts.len(), sample.depths.len());
    pieces
}

#[test]
fn answers_too_big_for_a_datagram_are_sent_in_parts() {
    assert_eq!(send_in_pieces(&Sample { depths: vec![16; 64] }, body_max(PAYLOAD_DEFAULT)), 22);
    assert_eq!(send_in_pieces(&Sample { depths: vec![16; 64] }, body_max(PAYLOAD_MIN)), 64);
    assert_eq!(send_in_pieces(&Sample { depths: vec![0; 64] }, body_max(PAYLOAD_DEFAULT)), 1);
    assert_eq!(send_in_pieces(&Sample { depths: (0..64).map(|at| at % 17).collect() }, body_max(PAYLOAD_DEFAULT)), 10);
    let mut small = [0; 40];
    let put = put_answer(
        &mut BodyWriter::new(&mut small),
        AnswerKind::Answer,
        &answer_head(),
        &Sample { depths: vec![0] },
        0,
    );
    assert!(put.is_err());
}

#[test]
fn parts_of_two_answers_are_not_mixed() {
    let sample = Sample { depths: vec![0; 4] };
    let piece = |first, order| {
        let mut buf = vec![0; 70];
        let head = ordain::wire::answer::AnswerHead { order: OrderNo::new(order), ..answer_head() };
        let mut body = BodyWriter::new(&mut buf);
        let _ = put_answer(&mut body, AnswerKind::Answer, &head, &sample, first).unwrap();
        body.bytes()[4..].to_vec()
    };
    let (one, other, next) = (piece(0, 2000), piece(2, 2001), piece(2, 2000));
    let view = |bytes| AnswerView::parse(AnswerKind::Answer, bytes).unwrap();
    let mut assembly = Assembly::new(&view(&one));
    let differ = assembly.take(&view(&other)).unwrap_err();
    assert_eq!((differ.held.order.get(), differ.got.order.get()), (2000, 2001));
    assembly.take(&view(&next)).unwrap();
    assert_eq!(assembly.total(), 4);
}

#[test]
fn records_are_paged_and_split() {
    let wide = Sample { depths: vec![0; 64] };
    let mut buf = [0; 576 - 56 - 4];
    let mut page = RecordsWriter::new(&mut buf, 9);
    let next = page.push(&wide, 0).unwrap();
    assert_eq!(next, 38);
    assert!(page.push(&wide, next).is_err());
    let len = page.finish(&ordain::wire::records::Page { more: true, ..Default::default() });
    let view = RecordsView::parse(&buf[..len]).unwrap();
    assert_eq!((view.id(), view.count(), view.page().more), (9, 1, true));
    let record = view.records().next().unwrap();
    assert_eq!((record.total, record.first, record.parts().len()), (64, 0, 38));
    assert_eq!(record.parts().last(), Some(RecordSource::part(&wide, 37)));
}

/// A REQUEST with a changed byte or length must name the fault and the request.
fn fault(change: impl FnOnce(&mut Vec<u8>)) -> (u64, Fault) {
    let mut buf = [0; 1000];
    let mut body = BodyWriter::new(&mut buf);
    request(&ids(&[7, 258])).put(&mut body).unwrap();
    let mut payload = body.bytes()[4..].to_vec();
    change(&mut payload);
    let mut body = BodyWriter::new(&mut buf);
    body.put_payload(0x42, 0, &payload).unwrap();
    let messages: Vec<_> = parse_to_server(body.bytes(), SessionId::default()).unwrap().collect();
    match messages[..] {
        [(_, ToServer::Fault(fault))] => (fault.request.get(), fault.fault),
        _ => panic!("{messages:?}"),
    }
}

#[test]
fn request_with_invalid_content_names_its_fault() {
    assert_eq!(fault(|p| p[26] = 0), (41, Fault::NoParticipants));
    assert_eq!(fault(|p| p[26] = 65), (41, Fault::TooManyParticipants));
    assert_eq!(
        fault(|p| {
            p[26] = 65;
            p.extend((0..63_u32).flat_map(|id| (1000 + id).to_le_bytes()));
        }),
        (41, Fault::TooManyParticipants)
    );
    assert_eq!(fault(|p| p[32..36].copy_from_slice(&[7, 0, 0, 0])), (41, Fault::DuplicateParticipant));
    assert_eq!(fault(|p| p[24] = 17), (41, Fault::DepthTooLarge));
    assert_eq!(fault(|p| p[..8].fill(0)), (0, Fault::RequestZero));
    assert_eq!(fault(|p| p.truncate(35)), (41, Fault::BadLength));
    assert_eq!(fault(|p| p.push(0)), (41, Fault::BadLength));
    assert_eq!(fault(|p| p.truncate(8)), (41, Fault::BadLength));
    assert_eq!(fault(|p| p.truncate(7)), (0, Fault::BadLength));
    assert_eq!(fault(|p| p[25] = 2), (41, Fault::BadFlags));
    assert_eq!(fault(|p| p[27] = 1), (41, Fault::BadFlags));
    for fault in Fault::ALL {
        assert_eq!(Fault::from_code(fault.code()), Some(fault));
    }
}

#[test]
fn setting_that_differs_is_named() {
    let mine = terms();
    assert_eq!(mine.mismatch(&mine), None);
    let theirs = Terms { settings: few(&[64, 5]), ..mine };
    let wanted = SettingsMismatch { mine: 1_000_000, yours: 5, index: 1 };
    assert_eq!(mine.mismatch(&theirs), Some(wanted));
    let theirs = Terms { settings: few(&[64]), ..mine };
    assert_eq!(mine.mismatch(&theirs).map(|at| at.index), Some(1));
    let theirs = Terms { servers: 5, ..mine };
    assert_eq!(mine.mismatch(&theirs).map(|at| at.index), Some(SettingsMismatch::SERVERS));
    let theirs = Terms { vacant: 0, ..mine };
    assert_eq!(mine.mismatch(&theirs).map(|at| at.index), Some(SettingsMismatch::VACANT));
}

#[test]
fn header_without_own_stream_and_acks_comes_back() {
    let bare = ordain::wire::header::Header { own: None, acks: few(&[]), ..header() };
    let mut buf = [0; 400];
    let mut body = BodyWriter::new(&mut buf);
    bare.put(&mut body).unwrap();
    assert_eq!(body.len(), 4 + 72 + 24);
    assert_eq!(peer::messages(body.bytes()).next(), Some(Ok(PeerMessage::Header(bare))));
    assert_eq!(bare.own_stream(), None);
    assert_eq!(header().own_stream(), Some(stream(1, 5)));
}

#[test]
fn value_is_named_by_its_digest() {
    let digest = config().digest();
    assert_eq!(config().digest(), digest);
    assert_ne!(
        ordain::wire::config::ConfigBody { epoch: ordain::protocol::Epoch::new(4), ..config() }.digest(),
        digest
    );
    assert_eq!(config().view_in(&mut [0; ordain::wire::config::CONFIG_LEN_MAX]).body(), config());
}

#[test]
fn places_and_numbers_are_what_the_samples_say() {
    assert_eq!(server(2), ServerId::from_place(2).unwrap());
    assert_eq!(request(&[]).request, RequestNo::new(41));
    assert!(principal_id("tx-host.7").is_ok());
}
