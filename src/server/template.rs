//! The commented `ordain.toml` that `ordain init` writes: every setting with its help, range and default.
//!
//! **Why generated.** It follows the table of settings, so it can show neither a key that is not known nor an old
//! default; a test reads it back.
//! **Not here**: writing it to a directory (`cli::init`).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::settings::{SECTIONS, SETTINGS, Setting};
use super::value::{literal, quoted};

/// Ports a server uses: one for servers, one for clients.
pub const PORTS: u16 = 2;

/// A server to be written: its host and its two ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Address or name.
    pub host: String,
    /// For servers.
    pub peer_port: u16,
    /// For clients.
    pub client_port: u16,
}

/// Servers on these hosts, the ports of each host contiguous from `base_port`; `None` if there are no such ports.
#[must_use]
pub fn entries(hosts: &[String], base_port: u16) -> Option<Vec<Entry>> {
    let mut used: BTreeMap<&str, u16> = BTreeMap::new();
    let mut entries = Vec::with_capacity(hosts.len());
    for host in hosts {
        let used = used.entry(host).or_insert(0);
        let peer_port = base_port.checked_add(*used).filter(|port| *port > 0)?;
        entries.push(Entry { host: host.clone(), peer_port, client_port: peer_port.checked_add(1)? });
        *used += PORTS;
    }
    Some(entries)
}

/// The file's text. `set` are keys with a value other than the default.
#[must_use]
pub fn render(entries: &[Entry], set: &[(&str, &str)]) -> String {
    let mut out = String::from(
        "# Ordain: the configuration of one cluster. Copy this file and the key, the same, to every host of it.\n\
         # Lines that begin with `#` show defaults; take the `#` away to change one. Durations: 50us, 10ms, 60s; sizes: 1472,\n\
         # 16MiB. `ordain config check FILE` explains what is wrong; `ordain config show FILE` prints what is in force.\n",
    );
    for (name, help) in SECTIONS {
        out.push('\n');
        if name.is_empty() {
            comment(&mut out, help);
        } else {
            section(&mut out, name, help);
        }
        for setting in SETTINGS.iter().filter(|setting| setting.section == *name) {
            let value = set.iter().find(|(key, _)| *key == setting.key).map(|(_, value)| *value);
            write_setting(&mut out, setting, value);
        }
        if name.is_empty() {
            servers(&mut out, entries);
        }
    }
    out
}

fn section(out: &mut String, name: &str, help: &[&str]) {
    let help: String = help.concat();
    line(out, format_args!("[{name}] #{help}"));
}

fn comment(out: &mut String, help: &[&str]) {
    help.iter().for_each(|text| line(out, format_args!("#{text}")));
}

fn write_setting(out: &mut String, setting: &Setting, value: Option<&str>) {
    comment(out, setting.help);
    let laptop = setting.laptop.map(|laptop| format!("; {laptop} in the laptop profile")).unwrap_or_default();
    line(out, format_args!("# ({}{laptop})", setting.kind.allowed()));
    match value {
        Some(value) => line(out, format_args!("{} = {}", setting.name, literal(value))),
        None => line(out, format_args!("# {} = {}", setting.name, literal(setting.default))),
    }
}

fn servers(out: &mut String, entries: &[Entry]) {
    out.push_str("\n# The servers: ids 1 to n, n = 1, 3, 5 or 7; f = (n-1)/2 of them may be down at a time.\n");
    out.push_str("# Both ports are UDP: peer_port must be open to the other servers, client_port to clients.\n");
    for (index, Entry { host, peer_port, client_port }) in entries.iter().enumerate() {
        let (id, host) = (index + 1, quoted(host));
        line(
            out,
            format_args!(
                "[[server]]\nid = {id}\nhost = {host}\npeer_port = {peer_port}\nclient_port = {client_port}\n"
            ),
        );
    }
    out.pop();
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::config::{Config, Origin};
    use std::path::Path;

    fn hosts(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn written_file_reads_back_as_all_defaults() {
        let text = render(&entries(&hosts(&["a", "b", "a"]), 7100).unwrap(), &[]);
        let config = Config::parse(Path::new("d/ordain.toml"), &text, &[]).unwrap();
        assert!(config.rows().all(|row| row.origin == Origin::Default));
        let ports: Vec<_> = config.servers().iter().map(|s| (&*s.host, s.peer_port, s.client_port)).collect();
        assert_eq!(ports, [("a", 7100, 7101), ("b", 7100, 7101), ("a", 7102, 7103)]);
    }

    #[test]
    fn every_comment_of_a_default_is_itself_valid() {
        let text = render(&entries(&hosts(&["a"]), 7100).unwrap(), &[]);
        let is_setting = |line: &str| SETTINGS.iter().any(|s| line.starts_with(&format!("# {} = ", s.name)));
        let bare: String = text
            .lines()
            .map(|line| if is_setting(line) { &line[2..] } else { line })
            .map(|line| format!("{line}\n"))
            .collect();
        let config = Config::parse(Path::new("ordain.toml"), &bare, &[]).unwrap();
        assert!(config.rows().all(|row| matches!(row.origin, Origin::File(_))));
    }

    #[test]
    fn set_values_stand_uncommented() {
        let text = render(&entries(&hosts(&["a"]), 7100).unwrap(), &[("ledger.profile", "laptop")]);
        let config = Config::parse(Path::new("ordain.toml"), &text, &[]).unwrap();
        assert_eq!(config.settings().ledger.retain_entries, 200_000);
    }

    #[test]
    fn ports_past_the_last_are_none() {
        assert_eq!(entries(&hosts(&["a", "a", "a"]), 65_531), None);
        assert_eq!(entries(&hosts(&["a"]), 0), None);
        assert!(entries(&hosts(&["a", "a", "a"]), 65_530).is_some());
    }
}
