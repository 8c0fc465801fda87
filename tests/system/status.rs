//! `ordain status`: servers as their stats files show them, running, stopped, killed, started anew.
use std::path::PathBuf;
use std::process::Output;

use serde_json::Value;

use super::support::{Cluster, RawClient, ordain, wait_for};

/// The fields that scripts rely on.
const FIELDS: &[&str] = &[
    "id",
    "instance",
    "epoch",
    "state",
    "n_ordered",
    "streams",
    "peers",
    "d_ns",
    "d_parts",
    "eps_ns",
    "clock",
    "rates",
    "refused",
    "queues",
    "kernel_drops",
    "epoch_changes",
    "over_d",
    "provisional",
    "corrected",
    "safe_to_stop",
];

fn file(cluster: &Cluster, id: u8) -> PathBuf {
    cluster.config().with_file_name(format!("state-{id}/server-{id}.stats"))
}

fn status(arguments: &[&str]) -> Output {
    ordain().arg("status").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// One object a line.
fn objects(output: &Output) -> Vec<Value> {
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of(cluster: &Cluster, id: u8) -> Value {
    let output = status(&[file(cluster, id).to_str().unwrap(), "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let [object] = &objects(&output)[..] else { panic!("{}", text(&output.stdout)) };
    object.clone()
}

fn all(cluster: &Cluster) -> Vec<Value> {
    let output = status(&["--json", "--config", cluster.config().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    objects(&output)
}

fn order_ten(cluster: &Cluster) -> RawClient {
    let mut client = RawClient::new(cluster, "local");
    client.open(cluster.client_address(1));
    (1..=10).for_each(|number| drop(client.order(cluster.client_address(1), number, number, &[5, 6], 1)));
    client
}

#[test]
fn status_shows_running_servers_with_every_field() {
    let cluster = Cluster::start(3);
    let mut client = order_ten(&cluster);
    // One request that is refused: participant 5 twice.
    drop(client.order(cluster.client_address(1), 11, 11, &[5, 5], 1));
    let servers = wait_for("all servers to have delivered", || {
        let servers = all(&cluster);
        servers.iter().all(|server| server["n_ordered"] == 10).then_some(servers)
    });
    assert_eq!(servers.len(), 3);
    for (id, server) in (1..).zip(&servers) {
        for field in FIELDS {
            assert!(server.get(field).is_some(), "server {id} lacks {field}");
        }
        assert_eq!((&server["id"], &server["servers"]), (&Value::from(id), &Value::from(3)));
        assert_eq!((&server["state"], &server["running"]), (&Value::from("member"), &Value::from(true)));
        assert_eq!(server["instance"], client.instance.to_string());
        assert_eq!((&server["epoch"], &server["safe_to_stop"]), (&Value::from(0), &Value::from(false)));
        assert_eq!(server["pid"].as_u64().unwrap(), u64::from(cluster.pid(id)));
        for absent in ["d_ns", "d_parts", "eps_ns", "epoch_changes", "over_d", "provisional", "corrected"] {
            assert_eq!(server[absent], Value::Null, "{absent} is nothing this version has");
        }
        let peers = server["peers"].as_array().unwrap();
        let ids: Vec<u64> = peers.iter().map(|peer| peer["id"].as_u64().unwrap()).collect();
        assert_eq!(ids, (1..=3).filter(|other| *other != u64::from(id)).collect::<Vec<_>>());
        for peer in peers {
            assert!(peer["heard"].as_f64().unwrap() < 1e4, "{peer}");
            assert!(peer["delay_us"]["p50"].as_f64().unwrap() <= peer["delay_us"]["p9999"].as_f64().unwrap(), "{peer}");
            assert_eq!((&peer["loss"], &peer["one_way_fault"]), (&Value::Null, &Value::Null));
        }
        assert_eq!(server["streams"].as_array().unwrap().len(), 3);
        assert!(server["streams"][0]["frames"].as_u64().unwrap() >= 10, "{}", server["streams"]);
        let queue = &server["queues"][0];
        assert!(queue["name"] == "under_way" && queue["depth"] == 0 && queue["capacity"].as_u64().unwrap() > 0);
        assert!(server["syscalls"]["enters"].as_u64().unwrap() > 0 && server["kernel_drops"] == 0);
        assert!(server["engine"].as_str().unwrap().contains("uring"), "{server}");
        let of_loop = |name: &str| server["loop"][0][name].as_u64().unwrap();
        assert!(of_loop("busy") > 0 && of_loop("turns") == of_loop("busy") + of_loop("idle"), "{}", server["loop"]);
    }
    let first = &servers[0];
    let order = &first["stages_us"]["order"];
    assert_eq!(order["count"], 10, "the latency of every own entry, once: {order}");
    assert!(order["p50"].as_f64().unwrap() > 0.0 && order["p50"].as_f64() <= order["max"].as_f64());
    assert_eq!((&servers[1]["stages_us"]["order"], &first["refused"]["malformed"]), (&Value::Null, &Value::from(1)));
    assert_eq!(first["metrics"]["order"]["stamped"], 10);
    // Live: two pages of three servers.
    let live = ordain().args(["top", "--pages", "2", "--every", "60ms", "--config"]).arg(cluster.config()).output();
    let live = text(&live.unwrap().stdout);
    assert_eq!(live.matches(" of 3: running; member").count(), 6, "{live}");
    // For people.
    let page = text(&status(&["--config", cluster.config().to_str().unwrap()]).stdout);
    for words in ["server 1 of 3: running; member", "server 3 of 3: running; member", "ordered 10", "malformed 1"] {
        assert!(page.contains(words), "no `{words}` in:\n{page}");
    }
}

/// A server's end shows: killed, or in good order; and its figures stay.
#[test]
fn status_shows_killed_and_stopped_servers_with_their_last_figures() {
    let mut cluster = Cluster::start(3);
    drop(order_ten(&cluster));
    wait_for("server 3 to have delivered", || (of(&cluster, 3)["n_ordered"] == 10).then_some(()));
    let pid = u64::from(cluster.pid(3));
    cluster.kill(3);
    let dead = of(&cluster, 3);
    assert_eq!(
        (&dead["running"], &dead["ended"], &dead["state"]),
        (&Value::from(false), &Value::Null, &Value::from("member"))
    );
    assert_eq!(
        (&dead["n_ordered"], &dead["pid"], &dead["safe_to_stop"]),
        (&Value::from(10), &Value::from(pid), &Value::Null)
    );
    assert!(dead["written_ago_ms"].as_f64().unwrap() >= 0.0);
    assert_eq!(of(&cluster, 1)["running"], true);
    // Nothing is waited for, so both end in good order.
    assert_eq!(cluster.terminate(1).code(), Some(0), "{}", cluster.log(1));
    let ended = of(&cluster, 1);
    assert_eq!((&ended["running"], &ended["ended"]), (&Value::from(false), &Value::from("drained")));
    let page = text(&status(&["--config", cluster.config().to_str().unwrap()]).stdout);
    for words in ["server 1 of 3: ended in good order", "server 2 of 3: running", "server 3 of 3: dead: killed"] {
        assert!(page.contains(words), "no `{words}` in:\n{page}");
    }
    // The one that is left hears too few.
    wait_for("server 2 to say so", || (of(&cluster, 2)["state"] == "no_quorum").then_some(()));
}

/// A server started anew has a new file; it and the others keep why it is refused, once however often it is said.
#[test]
fn a_restart_replaces_the_file_and_its_refusal_is_a_distinct_error() {
    let mut cluster = Cluster::start(3);
    drop(order_ten(&cluster));
    let before = of(&cluster, 3);
    cluster.kill(3);
    cluster.spawn(3, &[]);
    cluster.wait_log(3, "refused: instance");
    let after = wait_for("the refusal in the file", || {
        let after = of(&cluster, 3);
        (after["state"] == "lost" && !after["errors"].as_array().unwrap().is_empty()).then_some(after)
    });
    assert_ne!(before["pid"], after["pid"]);
    assert_eq!((&after["n_ordered"], &after["safe_to_stop"]), (&Value::from(0), &Value::from(true)));
    let key_of = |server: &Value, key: &str| {
        server["errors"].as_array().unwrap().iter().filter(|error| error["key"] == key).cloned().collect::<Vec<_>>()
    };
    let [own] = &key_of(&after, "not_named")[..] else { panic!("{}", after["errors"]) };
    assert!(own["text"].as_str().unwrap().contains("remembers nothing"), "{own}");
    let seen = wait_for("two refusals at server 1", || {
        let server = of(&cluster, 1);
        let [error] = &key_of(&server, "peer_started_anew.3")[..] else { return None };
        (error["count"].as_u64().unwrap() >= 2).then_some(error.clone())
    });
    assert!(seen["first_unix_ms"].as_u64() <= seen["last_unix_ms"].as_u64(), "{seen}");
}

#[test]
fn what_cannot_be_read_is_told_and_the_rest_is_shown() {
    let cluster = Cluster::start(1);
    let good = file(&cluster, 1);
    let (cut, foreign) = (good.with_file_name("cut"), good.with_file_name("foreign"));
    std::fs::write(&cut, &std::fs::read(&good).unwrap()[..5_000]).unwrap();
    std::fs::write(&foreign, "not this").unwrap();
    let path = |path: &PathBuf| path.to_str().unwrap().to_owned();
    let output = status(&["--json", &path(&cut), &path(&good), &path(&foreign), "/no/such/file"]);
    assert_eq!((output.status.code(), objects(&output).len()), (Some(2), 1));
    let err = text(&output.stderr);
    let lines: Vec<&str> = err.lines().collect();
    assert_eq!(lines.len(), 3, "{err}");
    assert!(lines[0].contains("cut: truncated: 5000 bytes of "), "{err}");
    assert!(lines[1].contains("foreign: not a stats file"), "{err}");
    assert!(lines[2].contains("/no/such/file: no such file"), "{err}");
    // Nothing to look at, and nothing said.
    let none = Cluster::prepare(3, &[]);
    let output = status(&["--config", none.config().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("state-1/server-1.stats"), "{}", text(&output.stderr));
    assert_eq!(status(&[]).status.code(), Some(2));
    assert_eq!(status(&["--config", "x", "y"]).status.code(), Some(2));
    let version = text(&ordain().arg("--version").output().unwrap().stdout);
    assert!(version.contains("stats file 1"), "{version}");
}

/// A state directory that cannot be had is named, with the setting that mends it.
#[test]
fn a_server_that_cannot_keep_its_file_says_so() {
    let cluster = Cluster::prepare(1, &[]);
    let config = cluster.config();
    let output =
        ordain().args(["serve", "--id", "1", "--set", "state_dir=/proc/none"]).arg("--config").arg(&config).output();
    let output = output.unwrap();
    let err = text(&output.stderr);
    assert!(matches!(output.status.code(), Some(2 | 77)), "{err}");
    assert!(err.contains("/proc/none") && err.contains("state_dir") && !err.contains("panicked"), "{err}");
}
