//! The ledger against recorded cases: entries in their order, and the answers that follow. The file was computed by a
//! plain reference outside the product.
#![cfg(test)]

use ordain::protocol::ledger::{Entry, Ledger, Limits, Lookup, Outcome, Participants};
use ordain::protocol::{OrderNo, Principal, RequestNo, SessionId, Timestamp, TxId};
use serde_json::{Value, json};

fn tx(hex: &str) -> TxId {
    let mut bytes = [0; 16];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap();
    }
    TxId::new(bytes)
}

/// The record as an answer of that depth would tell it.
fn answer(ledger: &Ledger, order: OrderNo, depth: usize) -> Value {
    let record = ledger.record(order).unwrap();
    let parts: Vec<Value> = record
        .parts()
        .map(|part| {
            let history: Vec<Value> =
                ledger.history(part, depth).map(|(order, tx)| json!([order.get(), tx.to_string()])).collect();
            json!({"id": part.id.get(), "seq": part.seq.get(), "hist": history})
        })
        .collect();
    json!({"order": record.order().get(), "parts": parts})
}

#[test]
fn recorded_cases_come_out_right() {
    let file: Value = serde_json::from_str(include_str!("cases/ledger.json")).unwrap();
    let mut steps = 0;
    for case in file["cases"].as_array().unwrap() {
        let mut ledger = Ledger::new(Limits { retain_entries: 1000, retain_parts: 3000, ..Limits::laptop() });
        for (number, step) in (0_u64..).zip(case["steps"].as_array().unwrap()) {
            let (asked, wanted) = (&step["entry"], &step["response"]);
            let ids: Vec<[u8; 4]> = asked["participants"]
                .as_array()
                .unwrap()
                .iter()
                .map(|id| u32::try_from(id.as_u64().unwrap()).unwrap().to_le_bytes())
                .collect();
            let client = asked["session"].as_u64().unwrap();
            let entry = Entry {
                ts: Timestamp::new(1_000_000 + number),
                principal: Principal::new(77),
                session: SessionId { created: Timestamp::new(900_000), nonce: client },
                request: RequestNo::new(asked["req"].as_u64().unwrap()),
                tx: tx(asked["tx"].as_str().unwrap()),
                participants: Participants::parse(ids.as_flattened()).unwrap(),
            };
            let depth = usize::try_from(asked["history"].as_u64().unwrap()).unwrap();
            let outcome = ledger.deliver(&entry);
            let got = match outcome {
                Outcome::Numbered(order) | Outcome::Repeated(order) => answer(&ledger, order, depth),
                Outcome::Refused(refusal) => json!({"refused": refusal.name()}),
            };
            assert_eq!(&got, wanted, "case {}, step {number}", case["name"]);

            // Whoever is asked again finds the same, without ordering it again.
            let known = match outcome {
                Outcome::Numbered(order) | Outcome::Repeated(order) => Lookup::Answered(order),
                Outcome::Refused(refusal) => Lookup::Refused(refusal),
            };
            let Entry { principal, session, request, tx, participants, .. } = entry;
            assert_eq!(ledger.lookup(principal, session, request, tx, participants), known);
            steps += 1;
        }
    }
    assert!(steps > 300, "only {steps} steps: is the file whole?");
}
