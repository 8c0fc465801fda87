//! Who can speak as whom: every tag that is not the sender's own is refused, before anything is parsed.
#![cfg(test)]

use ordain::protocol::{Incarnation, Instance, Principal, ServerId, SessionId, Timestamp};
use ordain::wire::auth::{ClusterKey, KEY_CACHE_SLOTS, KeyCache, NameError, PeerKey, PrincipalKey, principal_id, tag};
use ordain::wire::client::Open;
use ordain::wire::{
    BodyWriter, ClientEnvelope, DropReason, ENVELOPE_LEN, OVERHEAD, Opened, PAYLOAD_MAX, PeerEnvelope, VERSION,
    open_client, open_peer, open_server, seal_client, seal_peer, seal_server,
};

const BODY: &[u8] = b"not parsed here";

fn cluster() -> ClusterKey {
    ClusterKey::from_bytes(std::array::from_fn(|at| u8::try_from(at).unwrap()))
}

fn peer_envelope() -> PeerEnvelope {
    PeerEnvelope {
        from: ServerId::from_place(1).unwrap(),
        instance: Instance::new(5),
        inc: Incarnation::new(6),
        sent: Timestamp::new(7),
        eps_ns: 8,
    }
}

fn client_envelope(principal: Principal) -> ClientEnvelope {
    let session = SessionId { created: Timestamp::new(9), nonce: 10 };
    ClientEnvelope { instance: Instance::new(5), principal, session }
}

fn datagram(seal: impl FnOnce(&mut [u8]) -> usize) -> Vec<u8> {
    let mut buf = vec![0; OVERHEAD + BODY.len()];
    buf[ENVELOPE_LEN..ENVELOPE_LEN + BODY.len()].copy_from_slice(BODY);
    assert_eq!(seal(&mut buf), buf.len());
    buf
}

fn peer_datagram() -> Vec<u8> {
    datagram(|buf| seal_peer(buf, &peer_envelope(), BODY.len(), &cluster().peer()))
}

fn from_client(principal: Principal, key: &PrincipalKey) -> Vec<u8> {
    datagram(|buf| seal_client(buf, &client_envelope(principal), BODY.len(), key))
}

fn from_server(principal: Principal, key: &PrincipalKey) -> Vec<u8> {
    datagram(|buf| seal_server(buf, &client_envelope(principal), BODY.len(), key))
}

/// The same datagram with another byte 3, and nothing else.
fn of_kind(datagram: &[u8], kind: u8) -> Vec<u8> {
    let mut changed = datagram.to_vec();
    changed[3] = kind;
    changed
}

#[test]
fn what_was_sealed_opens() {
    let principal = principal_id("alpha").unwrap();
    let key = PrincipalKey::derive(&cluster(), principal);
    let mut keys = KeyCache::new(&cluster());
    assert_eq!(open_peer(&peer_datagram(), &cluster().peer()), Ok((peer_envelope(), BODY)));
    let wanted = Ok(Opened::Body(client_envelope(principal), BODY));
    assert_eq!(open_client(&from_client(principal, &key), &mut keys), wanted);
    assert_eq!(open_server(&from_server(principal, &key), principal, &key), wanted);
}

#[test]
fn every_flipped_bit_is_refused() {
    let principal = principal_id("alpha").unwrap();
    let key = cluster().principal(principal);
    let mut keys = KeyCache::new(&cluster());
    let (peer, client, server) = (peer_datagram(), from_client(principal, &key), from_server(principal, &key));
    for bit in 0..8 * peer.len() {
        let flip = |datagram: &[u8]| {
            let mut flipped = datagram.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            flipped
        };
        assert!(open_peer(&flip(&peer), &cluster().peer()).is_err(), "peer, bit {bit}");
        assert!(open_client(&flip(&client), &mut keys).is_err(), "client, bit {bit}");
        assert!(open_server(&flip(&server), principal, &key).is_err(), "server, bit {bit}");
    }
    assert!(!keys.holds(principal), "no key is kept for a tag that did not verify");
}

#[test]
fn every_other_length_is_refused() {
    let datagram = peer_datagram();
    for end in 0..datagram.len() {
        let wanted = if end < OVERHEAD { DropReason::TooShort } else { DropReason::Tag };
        assert_eq!(open_peer(&datagram[..end], &cluster().peer()), Err(wanted));
    }
    let mut longer = datagram.clone();
    longer.push(0);
    assert_eq!(open_peer(&longer, &cluster().peer()), Err(DropReason::Tag));
    longer.resize(PAYLOAD_MAX + 1, 0);
    assert_eq!(open_peer(&longer, &cluster().peer()), Err(DropReason::TooLong));
}

#[test]
fn principal_is_no_other_principal() {
    let (alpha, beta) = (principal_id("alpha").unwrap(), principal_id("beta").unwrap());
    let key = cluster().principal(alpha);
    let mut keys = KeyCache::new(&cluster());
    assert_eq!(open_client(&from_client(beta, &key), &mut keys), Err(DropReason::Tag));
    let server = from_server(beta, &cluster().principal(beta));
    assert_eq!(open_server(&server, alpha, &key), Err(DropReason::Principal));
    assert_eq!(open_server(&from_server(alpha, &cluster().principal(beta)), alpha, &key), Err(DropReason::Tag));
}

#[test]
fn client_is_no_server() {
    let alpha = principal_id("alpha").unwrap();
    let key = cluster().principal(alpha);
    let as_peer = PeerKey::from_bytes(*key.expose());
    let forged = datagram(|buf| seal_peer(buf, &peer_envelope(), BODY.len(), &as_peer));
    assert_eq!(open_peer(&forged, &cluster().peer()), Err(DropReason::Tag));
    let relabelled = of_kind(&from_client(alpha, &key), 1);
    assert_eq!(open_peer(&relabelled, &cluster().peer()), Err(DropReason::Tag));
}

#[test]
fn reflection_is_refused_in_both_directions() {
    let alpha = principal_id("alpha").unwrap();
    let key = cluster().principal(alpha);
    let mut keys = KeyCache::new(&cluster());
    let (client, server) = (from_client(alpha, &key), from_server(alpha, &key));
    assert_eq!(open_server(&client, alpha, &key), Err(DropReason::Kind));
    assert_eq!(open_client(&server, &mut keys), Err(DropReason::Kind));
    assert_eq!(open_server(&of_kind(&client, 3), alpha, &key), Err(DropReason::Tag));
    assert_eq!(open_client(&of_kind(&server, 2), &mut keys), Err(DropReason::Tag));
    assert_eq!(open_client(&peer_datagram(), &mut keys), Err(DropReason::Kind));
}

#[test]
fn other_cluster_is_refused() {
    let other = ClusterKey::from_bytes([1; 32]);
    let alpha = principal_id("alpha").unwrap();
    assert_eq!(open_peer(&peer_datagram(), &other.peer()), Err(DropReason::Tag));
    let client = from_client(alpha, &cluster().principal(alpha));
    assert_eq!(open_client(&client, &mut KeyCache::new(&other)), Err(DropReason::Tag));
}

#[test]
fn cheap_reasons_come_before_the_tag() {
    let change = |at: usize, byte: u8| {
        let mut changed = peer_datagram();
        changed[at] = byte;
        open_peer(&changed, &cluster().peer()).map(|_| ())
    };
    assert_eq!(change(0, 0), Err(DropReason::Magic));
    assert_eq!(change(2, VERSION + 1), Err(DropReason::Version));
    assert_eq!(change(3, 9), Err(DropReason::Kind));
    assert_eq!(change(4, 7), Err(DropReason::Place));
}

/// Seals as a sender of another version would.
fn of_version(mut datagram: Vec<u8>, version: u8, key: &PrincipalKey) -> Vec<u8> {
    datagram[2] = version;
    let end = datagram.len() - 16;
    let tag = tag(key, &datagram[..end]);
    datagram[end..].copy_from_slice(&tag);
    datagram
}

#[test]
fn other_version_is_told_only_under_a_valid_tag() {
    let alpha = principal_id("alpha").unwrap();
    let key = cluster().principal(alpha);
    let mut keys = KeyCache::new(&cluster());
    let other = Ok(Opened::OtherVersion(client_envelope(alpha), 9));
    let client = of_version(from_client(alpha, &key), 9, &key);
    assert_eq!(open_client(&client, &mut keys), other);
    let server = of_version(from_server(alpha, &key), 9, &key);
    assert_eq!(open_server(&server, alpha, &key), other);
    let mut forged = client;
    forged[2] = 8;
    assert_eq!(open_client(&forged, &mut keys), Err(DropReason::Tag));
}

#[test]
fn garbage_evicts_no_key() {
    let alpha = principal_id("alpha").unwrap();
    let key = cluster().principal(alpha);
    let mut keys = KeyCache::new(&cluster());
    assert!(open_client(&from_client(alpha, &key), &mut keys).is_ok());
    assert!(keys.holds(alpha));
    let slots = u64::try_from(KEY_CACHE_SLOTS).unwrap();
    let rival = Principal::new(alpha.get().wrapping_add(slots));
    assert_eq!(open_client(&from_client(rival, &key), &mut keys), Err(DropReason::Tag));
    assert!(keys.holds(alpha), "a forged rival of the same slot changes nothing");
    assert!(open_client(&from_client(rival, &cluster().principal(rival)), &mut keys).is_ok());
    assert!(keys.holds(rival) && !keys.holds(alpha));
    assert!(open_client(&from_client(alpha, &key), &mut keys).is_ok(), "who was evicted is derived again");
}

#[test]
fn names_are_checked() {
    assert!(principal_id("A.b_c-9").is_ok());
    assert!(principal_id(&"x".repeat(32)).is_ok());
    assert_eq!(principal_id(""), Err(NameError::Length { got: 0 }));
    assert_eq!(principal_id(&"x".repeat(33)), Err(NameError::Length { got: 33 }));
    assert_eq!(principal_id("a b"), Err(NameError::Character { at: 1, byte: b' ' }));
    assert_ne!(principal_id("alpha"), principal_id("alphb"));
}

/// Written down once, so that clients in other languages can check their own.
#[test]
fn keys_and_tags_are_golden() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let alpha = principal_id("alpha").unwrap();
    assert_eq!(alpha.to_string(), "fc4c7e05f5a64712");
    assert_eq!(hex(cluster().peer().expose()), "3b77aac73897b4a697b8475e65a499e7235f2e9ff872acdda5517599986df3eb");
    assert_eq!(
        hex(cluster().principal(alpha).expose()),
        "99c6e671e28200b19fb881f76053003a3768025f91d706c239e488b3881cf235"
    );
    assert_eq!(hex(&tag(&cluster().peer(), b"")), "72bb240038c3f0478ac873f0715c27cf");
    // The reference implementation's first two vectors: key 00..0f, input none and 00.
    let reference = PeerKey::from_bytes(std::array::from_fn(|at| u8::try_from(at).unwrap()));
    assert_eq!(hex(&tag(&reference, &[])), "a3817f04ba25a8e66df67214c7550293");
    assert_eq!(hex(&tag(&reference, &[0])), "da87c1d86b99af44347659119b22fc45");
}

/// The example in the documentation of `wire::client`.
#[test]
fn first_datagram_is_as_documented() {
    let alpha = principal_id("alpha").unwrap();
    let mut buf = [0; 74];
    let mut body = BodyWriter::new(&mut buf[ENVELOPE_LEN..58]);
    Open { nonce: 1, name: "alpha" }.put(&mut body).unwrap();
    let body_len = body.len();
    let envelope = ClientEnvelope { instance: Instance::NONE, principal: alpha, session: SessionId::default() };
    assert_eq!(seal_client(&mut buf, &envelope, body_len, &cluster().principal(alpha)), 74);
    let documented: String = include_str!("../src/wire/client.rs")
        .lines()
        .skip_while(|line| !line.contains("magic, version 1, kind 2"))
        .take_while(|line| !line.contains("```"))
        .map(|line| line[4..].split("  ").next().unwrap().replace(' ', ""))
        .collect();
    let sealed: String = buf.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(documented, sealed);
}

#[test]
fn keys_do_not_print_themselves() {
    let text = format!("{:?} {:?} {:?}", cluster(), cluster().peer(), KeyCache::new(&cluster()));
    assert_eq!(text, "ClusterKey(..) PeerKey(..) KeyCache { held: 0, .. }");
    assert_eq!(format!("{:?}", cluster().principal(Principal::new(1))), "PrincipalKey(..)");
}

#[test]
fn reasons_have_stable_indices() {
    for (index, reason) in DropReason::ALL.into_iter().enumerate() {
        assert_eq!(reason.index(), index);
    }
    assert_eq!(DropReason::Tag.index(), 7);
    assert_eq!(DropReason::Malformed.name(), "malformed");
}
