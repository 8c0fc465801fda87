//! Roles on cores as an operator maps them: every mapping orders, says what runs where, and ends in good order.
use std::process::Command;

use super::support::{Cluster, RawClient, Said, ordain};

fn orders_and_ends(map: &str) -> String {
    let mut cluster = Cluster::start_with(3, &[&format!("engine.map={map}"), "ledger.profile=laptop"]);
    // Several clients, so that with several sockets at the port each has some.
    for (session, name) in ["local", "tx-host-1", "tx-host-2", "tx-host-3"].into_iter().enumerate() {
        let mut client = RawClient::new(&cluster, name);
        client.open(cluster.client_address(1));
        for step in 1..=5 {
            let number = u64::try_from(session).unwrap() * 5 + step;
            let to = cluster.client_address(1 + u8::try_from(number % 3).unwrap());
            let said = client.order(to, step, number, &[1, 2], 4);
            assert!(matches!(&said, Said::Ordered { order, .. } if order.get() == number), "{map}: {said:?}");
        }
    }
    for id in 1..=3 {
        assert_eq!(cluster.terminate(id).code(), Some(0), "{map}: {}", cluster.log(id));
        assert!(cluster.log(id).contains("ended in good order"), "{map}: {}", cluster.log(id));
    }
    cluster.log(1)
}

/// The rows of the table for a role: core, processor and priority of each.
fn rows(log: &str, role: &str) -> Vec<[String; 3]> {
    let lines = log.lines().filter_map(|line| line.split_once("INFO ").map(|(_, text)| text.trim_start()));
    let rows = lines.filter(|line| line.starts_with(&format!("{role} ")) && !line.contains("ready"));
    rows.map(|row| {
        let mut words = row.split_whitespace().skip(1).map(str::to_owned);
        std::array::from_fn(|_| words.next().unwrap_or_default())
    })
    .collect()
}

#[test]
fn one_core_takes_all_roles() {
    let log = orders_and_ends("order+ingress@0");
    assert_eq!(rows(&log, "order"), [["order-1", "0", "normal"]], "{log}");
    assert_eq!(rows(&log, "ingress"), [["order-1", "0", "normal"]], "{log}");
    assert_eq!(rows(&log, "house").len(), 1, "{log}");
    assert!(log.contains("buffers 4096 + 4096 KiB") && log.contains("to order 1024"), "{log}");
}

#[test]
fn order_and_ingress_have_a_core_each() {
    let log = orders_and_ends("order@0 | ingress | house@0");
    assert_eq!(rows(&log, "order"), [["order-1", "0", "normal"]], "{log}");
    assert_eq!(rows(&log, "ingress"), [["ingress-1", "any", "normal"]], "{log}");
    assert_eq!(rows(&log, "house")[0][1], "0", "{log}");
}

#[test]
fn two_ingresses_share_one_core_with_order() {
    let log = orders_and_ends("order+ingress+ingress");
    assert_eq!(rows(&log, "ingress").len(), 2, "{log}");
}

#[test]
fn two_ingresses_have_a_core_each() {
    let log = orders_and_ends("ingress | order | ingress");
    let cores: Vec<_> = rows(&log, "ingress").into_iter().map(|[core, _, _]| core).collect();
    assert_eq!(cores, ["ingress-1", "ingress2-1"], "{log}");
}

/// Real-time priority where it is allowed, and said aloud where it is not.
#[test]
fn priority_asked_for_is_granted_or_its_refusal_explained() {
    let cluster = Cluster::start_with(1, &["engine.fifo=true", "engine.map=order+ingress@1000"]);
    let log = cluster.log(1);
    let row = rows(&log, "order");
    assert!(log.contains("fifo 1 ") || log.contains("CAP_SYS_NICE"), "{log}");
    assert_eq!(row[0][1], "any", "{log}");
    assert!(log.contains("not allowed on 1000"), "{log}");
}

#[test]
fn map_in_force_is_shown_and_an_impossible_one_refused() {
    let cluster = Cluster::prepare(1, &[]);
    let config = |command: &str, map: &str| {
        let mut ordain: Command = ordain();
        ordain.args(["config", command]).arg(cluster.config()).args(["--set", map]).output().unwrap()
    };
    let shown = config("show", "engine.map=ingress+order @ 1|ingress");
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(text.contains("order+ingress@1 | ingress"), "{text}");
    let refused = config("show", "engine.map=order|order");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(text.contains("engine.map") && text.contains("one order"), "{text}");
}
