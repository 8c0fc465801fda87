//! One sample of every message, with fields that are all different, for the tests of `wire`.
//!
//! **Not here**: what the bytes must be (`wire_golden.rs`).

use ordain::protocol::{
    Epoch, FrameNo, Incarnation, Instance, NodeId, OrderNo, ParticipantSeq, Principal, Refusal, RequestNo, ServerId,
    SessionId, StreamId, Timestamp, TxId,
};
use ordain::wire::answer::{AnswerHead, AnswerKind, AnswerSource, PartHead, put_answer};
use ordain::wire::builder::FrameBuilder;
use ordain::wire::client::{
    self, Confirmed, Credit, Open, OpenedSession, Refused, RequestView, put_close, put_draining, put_session,
};
use ordain::wire::config::{CONFIG_LEN_MAX, ConfigBody, ConfigRow, RowState};
use ordain::wire::frame::{EntryView, FrameView};
use ordain::wire::header::{Header, HeaderFlags, OwnPart};
use ordain::wire::peer::{
    Accept, Accepted, Ask, Challenge, ConfigRequest, Exists, Gone, Hello, Join, Own, PeerMessage, Pledge, Prepare,
    Pull, Reason, Refuse, Report, SettingsMismatch, Sketch, Snap, SnapRequest, Terms, Value, ValueRequest,
};
use ordain::wire::records::{Follow, Lookup, Page, Query, RECORDS, RecordSource, RecordsWriter};
use ordain::wire::{BodyWriter, Few, PAYLOAD_DEFAULT, PAYLOAD_MAX, Participants, body_max};

pub(crate) fn server(place: usize) -> ServerId {
    ServerId::from_place(place).unwrap()
}

pub(crate) fn stream(place: usize, opened: u32) -> StreamId {
    StreamId { server: server(place), opened: Epoch::new(opened) }
}

pub(crate) fn session(created: u64, nonce: u64) -> SessionId {
    SessionId { created: Timestamp::new(created), nonce }
}

pub(crate) fn few<T: Copy + Default, const N: usize>(items: &[T]) -> Few<T, N> {
    Few::from_slice(items).unwrap()
}

pub(crate) fn header() -> Header {
    Header {
        from: server(1),
        inc: Incarnation::new(0x1011_1213_1415_1617),
        epoch: Epoch::new(7),
        own: Some(OwnPart { opened: Epoch::new(5), last: FrameNo::new(99), promise: Timestamp::new(0x2021) }),
        acks: few(&[FrameNo::new(11), FrameNo::new(99), FrameNo::new(33)]),
        ordered: OrderNo::new(1234),
        hash: 0x3031_3233_3435_3637,
        sent: Timestamp::new(0x4041),
        flags: HeaderFlags { member: true, fenced: false, want_open: false, draining: true, clock_ok: true },
        suspects: 4,
        ahead: 1,
        d_ns: 250_000,
        eta_ns: 100_000,
        load: 513,
        echo: few(&[Timestamp::new(0x51), Timestamp::new(0), Timestamp::new(0x53)]),
    }
}

pub(crate) fn config() -> ConfigBody {
    let row = |place, opened, state, ts0, base| ConfigRow {
        stream: stream(place, opened),
        state,
        ts0: Timestamp::new(ts0),
        base: FrameNo::new(base),
    };
    ConfigBody {
        epoch: Epoch::new(3),
        instance: Instance::new(0x6061),
        incs: few(&[Incarnation::new(0x71), Incarnation::new(0), Incarnation::new(0x73)]),
        rows: few(&[
            row(0, 0, RowState::Open, 0, 41),
            row(2, 1, RowState::Closed, 9, 42),
            row(2, 3, RowState::Open, 77, 0),
        ]),
    }
}

pub(crate) fn terms() -> Terms {
    Terms { servers: 3, vacant: 2, settings: few(&[64, 1_000_000]) }
}

/// Ids as they travel.
pub(crate) fn ids(ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.to_le_bytes()).collect()
}

pub(crate) fn entry(ts: u64, participants: &[u8]) -> EntryView<'_> {
    EntryView {
        ts: Timestamp::new(ts),
        principal: Principal::new(0x8081),
        session: session(0x9091, 0xa0a1),
        request: RequestNo::new(41),
        tx: TxId::new([0xbb; 16]),
        participants: Participants::new(participants),
    }
}

/// Two entries: at 1000 with participants 1 and 2, at 1003 with participant 258.
pub(crate) fn frame() -> Vec<u8> {
    let mut builder = FrameBuilder::new(400);
    builder.start(stream(2, 6), FrameNo::new(17));
    builder.push(&entry(1000, &ids(&[1, 2]))).unwrap();
    builder.push(&entry(1003, &ids(&[258]))).unwrap();
    builder.finish().bytes().to_vec()
}

/// Calls `with` with one of each peer message.
pub(crate) fn each_peer_message(mut with: impl FnMut(&str, PeerMessage<'_>)) {
    let mut buf = [0; CONFIG_LEN_MAX];
    let value = config().view_in(&mut buf);
    let frame = frame();
    let points = std::array::from_fn(|at| 1000 + u32::try_from(at).unwrap());
    let (stream, epoch, ballot) = (stream(1, 2), Epoch::new(3), 5);
    let inc = Incarnation::new(0xc1);
    let lens = few(&[FrameNo::new(41), FrameNo::new(42)]);
    let (max_ts, suspects) = (Timestamp::new(88), 2);
    let none = Report { epoch, ballot, suspects, max_ts, lens, accepted: None };
    with("HDR", PeerMessage::Header(header()));
    with("FRAME", PeerMessage::Frame(FrameView::parse(&frame).unwrap()));
    with("PULL", PeerMessage::Pull(Pull { stream, from: FrameNo::new(10), to: FrameNo::new(73) }));
    with("GONE", PeerMessage::Gone(Gone { stream, s: FrameNo::new(10) }));
    with("ASK", PeerMessage::Ask(Ask { stream }));
    with("OWN", PeerMessage::Own(Own { stream, last: FrameNo::new(10), promise: Timestamp::new(20) }));
    with("CONFIG_REQ", PeerMessage::ConfigRequest(ConfigRequest { have: Some(epoch) }));
    with("CONFIG_REQ none", PeerMessage::ConfigRequest(ConfigRequest { have: None }));
    with("CONFIG", PeerMessage::Config(value));
    with("HELLO", PeerMessage::Hello(Hello { inc, terms: terms() }));
    with("PLEDGE", PeerMessage::Pledge(Pledge { inc, to: Incarnation::new(0xc2), terms: terms() }));
    with("EXISTS", PeerMessage::Exists(Exists { instance: Instance::new(0xc3), standing: inc, epoch }));
    let index = 1;
    with("SETTINGS_MISMATCH", PeerMessage::SettingsMismatch(SettingsMismatch { mine: 64, yours: 32, index }));
    with("CHALLENGE", PeerMessage::Challenge(Challenge { nonce: 0xc4 }));
    with("JOIN", PeerMessage::Join(Join { inc, nonce: 0xc4, pos: 500, terms: terms() }));
    with("PREPARE", PeerMessage::Prepare(Prepare { epoch, ballot, reason: Reason::Drain }));
    with("REPORT none", PeerMessage::Report(none));
    with("REPORT", PeerMessage::Report(Report { accepted: Some((4, value)), ..none }));
    with("ACCEPT", PeerMessage::Accept(Accept { epoch, ballot, value }));
    with("ACCEPTED", PeerMessage::Accepted(Accepted { epoch, ballot, digest: 0xd1 }));
    with("VALUE_REQ", PeerMessage::ValueRequest(ValueRequest { epoch, digest: 0xd1 }));
    with("VALUE", PeerMessage::Value(Value { epoch, ballot, value }));
    with("REFUSE", PeerMessage::Refuse(Refuse { epoch, ballot, entered: Epoch::new(4) }));
    with("SNAP_REQ", PeerMessage::SnapRequest(SnapRequest { id: 0xd2, offset: 1024, credit: 4096 }));
    with("SNAP", PeerMessage::Snap(Snap { id: 0xd2, offset: 1024, total: 1027, bytes: b"abc" }));
    with("SKETCH", PeerMessage::Sketch(Sketch { link: server(2), samples: 300, points }));
}

/// An answer: participants `first id`.., each with a history of its own depth.
pub(crate) struct Sample {
    pub(crate) depths: Vec<u8>,
}

impl AnswerSource for Sample {
    fn total(&self) -> u8 {
        u8::try_from(self.depths.len()).unwrap()
    }
    fn part(&self, index: u8) -> PartHead {
        let depth = self.depths[usize::from(index)];
        PartHead { id: NodeId::new(100 + u32::from(index)), seq: ParticipantSeq::new(50 + u64::from(index)), depth }
    }
    fn step(&self, index: u8, back: u8) -> (OrderNo, TxId) {
        (OrderNo::new(5000 - 64 * u64::from(back) - u64::from(index)), TxId::new([index.wrapping_mul(16) + back; 16]))
    }
}

impl RecordSource for Sample {
    fn head(&self) -> (OrderNo, Timestamp, TxId) {
        (OrderNo::new(2000), Timestamp::new(0x4041), TxId::new([0xbb; 16]))
    }
    fn total(&self) -> u8 {
        AnswerSource::total(self)
    }
    fn part(&self, index: u8) -> (NodeId, ParticipantSeq) {
        let part = AnswerSource::part(self, index);
        (part.id, part.seq)
    }
}

pub(crate) fn answer_head() -> AnswerHead {
    AnswerHead {
        request: RequestNo::new(41),
        order: OrderNo::new(2000),
        ts: Timestamp::new(0x4041),
        instance: Instance::new(0x6061),
        provisional: true,
    }
}

pub(crate) fn request(participants: &[u8]) -> RequestView<'_> {
    RequestView {
        request: RequestNo::new(41),
        tx: TxId::new([0xbb; 16]),
        depth: 4,
        retry: true,
        participants: Participants::new(participants),
    }
}

fn message(name: &'static str, write: impl FnOnce(&mut BodyWriter<'_>)) -> (&'static str, Vec<u8>) {
    let mut buf = vec![0xee; body_max(PAYLOAD_MAX)];
    let mut body = BodyWriter::new(&mut buf);
    write(&mut body);
    (name, body.bytes().to_vec())
}

/// One of each message of a client, as bodies.
pub(crate) fn to_server() -> Vec<(&'static str, Vec<u8>)> {
    let query = |lookup| Query { id: 9, limit: 100, lookup };
    vec![
        message("OPEN", |body| Open { nonce: 0xe1, name: "tx-host.7" }.put(body).unwrap()),
        message("SESSION", |body| {
            put_session(body, &mut SessionId::default(), session(0x9091, 0xa0a1)).unwrap();
        }),
        message("REQUEST", |body| request(&ids(&[7, 258])).put(body).unwrap()),
        message("QUERY tx", |body| query(Lookup::Tx(TxId::new([0xbb; 16]))).put(body).unwrap()),
        message("QUERY participant", |body| {
            query(Lookup::Participant(NodeId::new(258), ParticipantSeq::new(50))).put(body).unwrap();
        }),
        message("QUERY order", |body| query(Lookup::Order(OrderNo::new(2000))).put(body).unwrap()),
        message("FOLLOW", |body| Follow { id: 9, credit: 256, from: OrderNo::new(2000) }.put(body).unwrap()),
        message("CLOSE", |body| put_close(body).unwrap()),
    ]
}

/// One of each message of a server, as bodies.
pub(crate) fn to_client() -> Vec<(&'static str, Vec<u8>)> {
    let opened = OpenedSession {
        nonce: 0xe1,
        session: session(0x9091, 0xa0a1),
        window: 64,
        payload_max: u16::try_from(PAYLOAD_DEFAULT).unwrap(),
        credit: 512,
        server: 2,
        servers: 3,
    };
    let refused = Refused {
        request: RequestNo::new(41),
        retry_after_us: 1500,
        reason: Refusal::Malformed,
        is_final: true,
        detail: client::Fault::DuplicateParticipant.code(),
    };
    let sample = Sample { depths: vec![2, 0] };
    vec![
        message("OPENED", |body| opened.put(body).unwrap()),
        message("SESSION", |body| {
            put_session(body, &mut SessionId::default(), session(0x9091, 0xa0a1)).unwrap();
        }),
        message("ANSWER", |body| {
            assert_eq!(put_answer(body, AnswerKind::Answer, &answer_head(), &sample, 0), Ok(2));
        }),
        message("CONFIRMED", |body| Confirmed { request: RequestNo::new(41) }.put(body).unwrap()),
        message("CORRECTED", |body| {
            let head = AnswerHead { provisional: false, ..answer_head() };
            assert_eq!(put_answer(body, AnswerKind::Corrected, &head, &sample, 1), Ok(2));
        }),
        message("REFUSED", |body| refused.put(body).unwrap()),
        message("CREDIT", |body| Credit { amount: 512, until: Timestamp::new(0x4041) }.put(body).unwrap()),
        message("RECORDS", |body| {
            let mut buf = [0xee; 200];
            let mut page = RecordsWriter::new(&mut buf, 9);
            assert_eq!(page.push(&sample, 0), Ok(2));
            let len = page.finish(&Page { more: true, gone_below: true, from: 2000, next: 2001 });
            body.put_payload(RECORDS, 0, &buf[..len]).unwrap();
        }),
        message("DRAINING", |body| put_draining(body).unwrap()),
    ]
}
