//! The commands that make and check configurations and keys, run as users run them: texts and exit statuses.
#![cfg(test)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a run of the binary left.
struct Run {
    status: i32,
    out: String,
    err: String,
}

fn ordain(dir: &Path, args: &[&str]) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_ordain")).current_dir(dir).args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Run { status: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

/// Runs what must fail: nothing on stdout, `status`, and one line that has all of `parts`.
#[track_caller]
fn refused(dir: &Path, args: &[&str], status: i32, parts: &[&str]) {
    let run = ordain(dir, args);
    assert_eq!((run.status, run.out.as_str()), (status, ""), "{args:?}: {}", run.err);
    assert_eq!(run.err.lines().count(), 1, "{args:?}: not one line: {}", run.err);
    for part in parts {
        assert!(run.err.contains(part), "{args:?}: `{part}` is not in: {}", run.err);
    }
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// A fresh cluster in `d`.
fn cluster() -> tempfile::TempDir {
    let dir = scratch();
    assert_eq!(ordain(dir.path(), &["init", "d"]).status, 0);
    dir
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn init_writes_a_cluster_that_checks_out() {
    let dir = scratch();
    let run = ordain(dir.path(), &["init", "a/d", "--servers", "5", "--base-port", "7300"]);
    assert_eq!((run.status, run.out.as_str()), (0, "a/d/ordain.toml\na/d/cluster.key\n"), "{}", run.err);
    assert_eq!(mode(&dir.path().join("a/d/cluster.key")), 0o600);
    let check = ordain(dir.path(), &["config", "check", "a/d/ordain.toml"]);
    assert_eq!(
        (check.status, check.out.as_str()),
        (0, "a/d/ordain.toml: ok: 5 servers, auth keyed\n"),
        "{}",
        check.err
    );
    let text = fs::read_to_string(dir.path().join("a/d/ordain.toml")).unwrap();
    for port in 7300..7310 {
        assert!(text.contains(&format!("_port = {port}\n")), "{port}");
    }
}

#[test]
fn init_over_hosts_gives_each_the_same_ports() {
    let dir = scratch();
    assert_eq!(ordain(dir.path(), &["init", "d", "--hosts", "10.0.0.1,10.0.0.2,db-3"]).status, 0);
    let text = fs::read_to_string(dir.path().join("d/ordain.toml")).unwrap();
    assert_eq!(text.matches("peer_port = 7100\nclient_port = 7101\n").count(), 3);
    assert!(text.contains("host = \"db-3\"") && text.contains("# profile = \"standard\""));
}

#[test]
fn init_refuses_what_cannot_be() {
    let dir = cluster();
    refused(dir.path(), &["init", "d"], 2, &["d/ordain.toml: exists already and is not overwritten"]);
    fs::remove_file(dir.path().join("d/ordain.toml")).unwrap();
    let key = fs::read(dir.path().join("d/cluster.key")).unwrap();
    refused(dir.path(), &["init", "d"], 2, &["d/cluster.key: exists already"]);
    assert_eq!(fs::read(dir.path().join("d/cluster.key")).unwrap(), key);
    assert!(!dir.path().join("d/ordain.toml").exists());
    refused(dir.path(), &["init", "e", "--servers", "2"], 2, &["2 servers: allowed is 1, 3, 5 or 7"]);
    refused(dir.path(), &["init", "e", "--hosts", "a,b"], 2, &["2 servers"]);
    refused(dir.path(), &["init", "e", "--hosts", "a,,b"], 2, &["--hosts: ''"]);
    refused(dir.path(), &["init", "e", "--base-port", "65531"], 2, &["ports up to 65536; choose 1 to 65530"]);
    refused(dir.path(), &["init", "e", "--base-port", "70000"], 2, &["--base-port", "--help"]);
    refused(dir.path(), &["init", "e", "--servers", "3", "--hosts", "a"], 2, &["cannot be used with"]);
    refused(dir.path(), &["init"], 2, &["<DIR>", "`ordain init --help`"]);
    assert!(!dir.path().join("e").exists());
    fs::write(dir.path().join("file"), "").unwrap();
    refused(dir.path(), &["init", "file/d"], 2, &["file/d: "]);
}

#[test]
fn check_tells_every_fault_with_file_line_range_and_mend() {
    let dir = cluster();
    let file = dir.path().join("d/ordain.toml");
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace("# payload = 1472", "payload = 9000").replace("# beat = \"10ms\"", "beet = \"10ms\"");
    fs::write(&file, &text).unwrap();
    let line = |part: &str| text.lines().position(|line| line.contains(part)).unwrap() + 1;
    let run = ordain(dir.path(), &["config", "check", "d/ordain.toml"]);
    assert_eq!((run.status, run.out.as_str(), run.err.lines().count()), (2, "", 2), "{}", run.err);
    let payload = format!("d/ordain.toml:{}: wire.payload = 9000: allowed is 592 to 8972", line("payload = 9000"));
    let beat = format!(
        "d/ordain.toml:{}: unknown key `broadcast.beet`; the nearest known key is `broadcast.beat`",
        line("beet")
    );
    assert!(run.err.contains(&payload) && run.err.contains("the default is 1472"), "{}", run.err);
    assert!(run.err.contains(&beat), "{}", run.err);
    refused(
        dir.path(),
        &["config", "show", "d/ordain.toml"],
        2,
        &["(and 1 more: `ordain config check FILE` tells all)"],
    );
}

#[test]
fn check_refuses_files_that_are_no_configuration() {
    let dir = cluster();
    refused(
        dir.path(),
        &["config", "check", "none.toml"],
        2,
        &["none.toml: no such configuration", "`ordain init DIR`"],
    );
    refused(dir.path(), &["config", "check", "d"], 2, &["d: cannot be read"]);
    refused(dir.path(), &["config", "check", "d/cluster.key"], 2, &["d/cluster.key:1: not TOML"]);
    fs::write(dir.path().join("bytes"), [0xff, 0xfe, 0]).unwrap();
    refused(dir.path(), &["config", "check", "bytes"], 2, &["bytes: cannot be read"]);
    fs::write(dir.path().join("empty"), "").unwrap();
    refused(dir.path(), &["config", "check", "empty"], 2, &["0 servers: allowed is 1, 3, 5 or 7"]);
    fs::write(dir.path().join("long"), "# ".repeat(600_000)).unwrap();
    refused(dir.path(), &["config", "check", "long"], 2, &["longer than 1048576 bytes"]);
}

#[test]
fn check_looks_at_the_key() {
    let dir = cluster();
    let key = dir.path().join("d/cluster.key");
    let check = |status, parts: &[&str]| refused(dir.path(), &["config", "check", "d/ordain.toml"], status, parts);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    check(2, &["d/cluster.key: mode 0644 lets others", "`chmod 600 d/cluster.key`"]);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&key, "abc\n").unwrap();
    check(2, &["d/cluster.key: 3 characters where a key has 64"]);
    fs::write(&key, "abxy\n").unwrap();
    check(2, &["d/cluster.key: character 3 is not a hexadecimal digit"]);
    fs::write(&key, [0xff; 32]).unwrap();
    check(2, &["d/cluster.key: not a key file"]);
    fs::write(&key, "").unwrap();
    check(2, &["0 characters"]);
    fs::remove_file(&key).unwrap();
    check(2, &["d/cluster.key: no such key file", "`ordain keygen d/cluster.key`"]);
}

#[test]
fn auth_none_is_said_aloud() {
    let dir = cluster();
    let run = ordain(dir.path(), &["config", "check", "d/ordain.toml", "--set", "auth=none"]);
    assert_eq!((run.status, run.out.as_str()), (0, "d/ordain.toml: ok: 3 servers, auth none\n"));
    assert!(run.err.contains("warning") && run.err.contains("forge"), "{}", run.err);
    refused(
        dir.path(),
        &["config", "check", "d/ordain.toml", "--set", "auth=no"],
        2,
        &["--set: auth = \"no\": allowed is keyed or none"],
    );
}

#[test]
fn show_is_a_configuration_with_origins() {
    let dir = cluster();
    let run = ordain(
        dir.path(),
        &["config", "show", "d/ordain.toml", "--set", "broadcast.beat=5ms", "--set", "server.2.client_port=7200"],
    );
    assert_eq!((run.status, run.err.as_str()), (0, ""));
    let has = |key: &str, rest: &str| {
        let line = run.out.lines().find(|line| line.starts_with(key)).unwrap();
        assert!(line.ends_with(rest), "{line}");
    };
    has("broadcast.beat = \"5ms\"", "# time; --set");
    has("broadcast.omega = \"100us\"", "# time; default");
    has("ledger.retain_entries = 200000", "# entries; profile");
    assert!(run.out.contains("client_port = 7200\n"));
    fs::write(dir.path().join("d/shown.toml"), &run.out).unwrap();
    let check = ordain(dir.path(), &["config", "check", "d/shown.toml"]);
    assert_eq!(check.status, 0, "{}", check.err);
}

#[test]
fn show_json_is_one_object() {
    let dir = cluster();
    let run = ordain(dir.path(), &["config", "show", "d/ordain.toml", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(shown["settings"]["wire.payload"]["value"], "1472");
    assert_eq!(shown["settings"]["wire.payload"]["origin"], "default");
    assert_eq!(shown["servers"][2]["client_port"], 7105);
    assert_eq!(run.out.lines().count(), 1);
}

#[test]
fn keygen_makes_private_keys_and_overwrites_none() {
    let dir = scratch();
    assert_eq!(ordain(dir.path(), &["keygen", "k"]).status, 0);
    assert_eq!(mode(&dir.path().join("k")), 0o600);
    let key = fs::read_to_string(dir.path().join("k")).unwrap();
    assert!(key.len() == 65 && key.trim_end().bytes().all(|byte| byte.is_ascii_hexdigit()), "{}", key.len());
    assert_eq!(ordain(dir.path(), &["keygen", "k2"]).status, 0);
    assert_ne!(fs::read_to_string(dir.path().join("k2")).unwrap(), key);
    refused(dir.path(), &["keygen", "k"], 2, &["k: exists already and is not overwritten"]);
    refused(dir.path(), &["keygen", "none/k"], 2, &["none/k: "]);
}

#[test]
fn mistakes_on_the_command_line_are_one_line() {
    let dir = scratch();
    refused(dir.path(), &["inti", "d"], 2, &["unrecognized subcommand 'inti'", "'init'", "--help"]);
    refused(dir.path(), &["init", "d", "--serves", "3"], 2, &["'--serves'", "'--servers'"]);
    refused(dir.path(), &["config", "show"], 2, &["<FILE>", "`ordain config show --help`"]);
    refused(dir.path(), &["config", "check", "x", "--set"], 2, &["--set"]);
}

#[test]
fn help_and_version_are_results() {
    let dir = scratch();
    let version = ordain(dir.path(), &["--version"]);
    assert_eq!(version.status, 0);
    assert!(version.out.starts_with(concat!("ordain ", env!("CARGO_PKG_VERSION"), " (wire ")), "{}", version.out);
    for args in [
        &["--help"][..],
        &["init", "--help"],
        &["config", "--help"],
        &["config", "show", "--help"],
        &["keygen", "--help"],
    ] {
        let help = ordain(dir.path(), args);
        assert_eq!((help.status, help.err.as_str()), (0, ""), "{args:?}");
        assert!(help.out.contains("Example"), "{args:?}");
    }
    assert_eq!(ordain(dir.path(), &[]).status, 2);
}

#[test]
fn closed_pipe_is_no_error() {
    let dir = cluster();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ordain"));
    command.current_dir(dir.path()).args(["config", "show", "d/ordain.toml"]).stdout(writer).stderr(Stdio::piped());
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ordain"));
    command.current_dir(dir.path()).args(["config", "show", "d/ordain.toml"]).stdout(full).stderr(Stdio::piped());
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("stdout: "));
}

#[test]
fn principals_get_keys_of_their_own() {
    let dir = cluster();
    let derive = |name: &str, out: &str| {
        let run = ordain(dir.path(), &["keygen", "--client", name, "--config", "d/ordain.toml", out]);
        assert_eq!((run.status, run.out.as_str()), (0, ""), "{}", run.err);
        assert_eq!(mode(&dir.path().join(out)), 0o600);
        fs::read_to_string(dir.path().join(out)).unwrap()
    };
    let key = |text: &str| text.lines().find_map(|line| line.strip_prefix("key = ").map(str::to_owned)).unwrap();
    let (a, again, b) = (derive("a", "a.key"), derive("a", "a2.key"), derive("b", "b.key"));
    assert!(a.contains("name = a\n") && b.contains("name = b\n"));
    assert_eq!(key(&a), key(&again));
    assert_ne!(key(&a), key(&b));
    assert!(!fs::read_to_string(dir.path().join("d/cluster.key")).unwrap().contains(&key(&a)));
}

#[test]
fn principals_keys_need_a_good_name_and_a_cluster_key() {
    let dir = cluster();
    let config = ["--config", "d/ordain.toml", "out.key"];
    let refuse = |name: &str, parts: &[&str]| {
        refused(dir.path(), &[&["keygen", "--client", name][..], &config].concat(), 2, parts)
    };
    refuse("a b", &["position 1", "A-Z a-z 0-9 . _ -"]);
    refuse("", &["1 to 32 characters"]);
    refuse(&"x".repeat(33), &["1 to 32 characters, this has 33"]);
    refused(dir.path(), &["keygen", "--client", "a", "out.key"], 2, &["--config"]);
    refused(
        dir.path(),
        &["keygen", "--client", "a", "--config", "none.toml", "out.key"],
        2,
        &["none.toml: no such configuration"],
    );
    fs::remove_file(dir.path().join("d/cluster.key")).unwrap();
    refuse("a", &["d/cluster.key: no such key file"]);
    assert!(!dir.path().join("out.key").exists());
}
