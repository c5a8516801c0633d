//! Entries of systemd-journald, in its native protocol (systemd, "Native Journal Protocol"): fields in one datagram.

use std::io;
use std::os::unix::net::UnixDatagram;

use serde_json::{Map, Value};
use uuid::Uuid;

use super::Level;

/// The journal's socket.
const SOCKET: &str = "/run/systemd/journal/socket";

/// Namespace of the ids of messages: the same event has the same id in every release.
const MESSAGES: Uuid = Uuid::from_u128(0x6f1f_5a3c_0d5e_4b5b_9a77_2b8e_5f2c_91d4);

/// Data of events that have fields of their own, and the names of these.
const FIELDS: [(&str, &str); 3] = [("fence", "RLOCK_FENCE"), ("node", "RLOCK_NODE"), ("code", "RLOCK_CODE")];

/// Returns the entry of an event. `data`: its data in JSON.
pub(super) fn entry(level: Level, event: &str, key: Option<&str>, message: &str, data: &Map<String, Value>) -> Vec<u8> {
    let priority = match level {
        Level::Info => "6",
        Level::Warning => "4",
        Level::Error => "3",
    };
    let id = Uuid::new_v5(&MESSAGES, event.as_bytes()).simple().to_string();
    let mut entry = Vec::new();
    let fields = [
        ("MESSAGE", message),
        ("PRIORITY", priority),
        ("SYSLOG_IDENTIFIER", "rlock"),
        ("MESSAGE_ID", &id),
        ("RLOCK_EVENT", event),
    ];
    for (name, value) in fields.into_iter().chain(key.map(|key| ("RLOCK_KEY", key))) {
        add(&mut entry, name, value);
    }
    for (field, name) in FIELDS {
        match data.get(field) {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) => add(&mut entry, name, text),
            Some(value) => add(&mut entry, name, &value.to_string()),
        }
    }
    entry
}

/// Adds a field. Only a value without a line break can follow `=`; any other has its length before it.
fn add(entry: &mut Vec<u8>, name: &str, value: &str) {
    entry.extend(name.as_bytes());
    if value.contains('\n') {
        entry.push(b'\n');
        entry.extend(u64::try_from(value.len()).unwrap_or(u64::MAX).to_le_bytes());
    } else {
        entry.push(b'=');
    }
    entry.extend(value.as_bytes());
    entry.push(b'\n');
}

/// Sends an entry.
pub(super) fn send(entry: &[u8]) -> io::Result<()> {
    UnixDatagram::unbound()?.send_to(entry, SOCKET).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_the_events_fields() {
        let data = serde_json::json!({ "fence": 7, "node": "redis://h", "left_ms": 9, "code": null });
        let entry = entry(Level::Warning, "refused", Some("a\nb"), "a: why", data.as_object().unwrap());
        let entry = String::from_utf8(entry).unwrap();
        let (fixed, rest) = entry.split_once("RLOCK_KEY").unwrap();
        let lines: Vec<&str> = fixed.lines().collect();
        assert_eq!(lines[..3], ["MESSAGE=a: why", "PRIORITY=4", "SYSLOG_IDENTIFIER=rlock"]);
        assert_eq!(lines[3..], ["MESSAGE_ID=b8bec26c67c35e4e8aaf7abf2225bae6", "RLOCK_EVENT=refused"]);
        assert_eq!(rest, "\n\u{3}\0\0\0\0\0\0\0a\nb\nRLOCK_FENCE=7\nRLOCK_NODE=redis://h\n");
    }
}
