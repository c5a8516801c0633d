//! What is stored beside the token: who holds the lock. DESIGN.md §4.

use serde::{Deserialize, Serialize};

use super::token::Token;

/// The format written here.
const FORMAT: u32 = 1;

/// The largest value ever stored, in bytes.
pub const LARGEST_VALUE: usize = 1024;

/// What a tombstone begins with.
pub const BROKEN: &str = "broken ";

/// The longest `--note`, in bytes once encoded.
pub const LONGEST_NOTE: usize = 512;

/// The holder, as others see it. Every field of a value that somebody else wrote may be missing or wrong.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
#[serde(default)]
pub struct Details {
    /// Host name.
    pub host: String,
    /// rlock's process id on that host.
    pub pid: u32,
    /// User name.
    pub user: String,
    /// Unix time of the attempt that took the lock, in milliseconds.
    pub since: u64,
    /// File name of the command, `sh` for `-c`. Never its arguments: they may hold secrets.
    pub cmd: String,
    /// `--note`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Whether `acquire` took it: then no process keeps it, and none has to be stopped before it passes on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub acquired: bool,
    /// In a tombstone: who broke the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
    /// Lease length in milliseconds.
    pub ttl: u64,
    /// Number of nodes that the holder uses.
    pub n: usize,
    /// Format of this value.
    pub v: u32,
}

impl Details {
    /// These details, each text cut so that the whole value stays within [`LARGEST_VALUE`].
    #[must_use]
    pub fn fitted(self) -> Self {
        Self {
            host: cut(self.host, 128),
            user: cut(self.user, 64),
            cmd: cut(self.cmd, 128),
            // A tombstone is longer by who made it, and by the word.
            note: self
                .note
                .map(|note| cut(note, if self.broken.is_some() { LONGEST_NOTE - 128 } else { LONGEST_NOTE })),
            broken: self.broken.map(|by| cut(by, 96)),
            v: FORMAT,
            ..self
        }
    }

    /// The value stored at the key: `TOKEN SP DETAILS`.
    pub fn value(&self, token: Token) -> String {
        format!("{token} {}", self.json())
    }

    /// The value that stands in its place once it is broken: `broken TOKEN SP DETAILS`. The details stay the holder's:
    /// others still go by its TTL and its number of nodes.
    pub fn tombstone(&self, token: Token, by: String) -> String {
        let details = Self { broken: Some(by), ..self.clone() };
        format!("{BROKEN}{}", details.fitted().value(token))
    }

    /// Compact JSON.
    fn json(&self) -> String {
        // Strings and numbers only: there is nothing that could fail to be written.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Bytes that `text` takes inside JSON.
pub fn encoded_length(text: &str) -> usize {
    serde_json::to_string(text).map_or(0, |json| json.len() - 2)
}

fn cut(mut text: String, most: usize) -> String {
    while encoded_length(&text) > most {
        text.pop();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_value_never_exceeds_its_limit(host in ".{0,300}", user in ".{0,300}", cmd in ".{0,300}", note in ".{0,600}", by in ".{0,200}") {
            let details = Details { host, user, cmd, note: Some(note), pid: u32::MAX, acquired: true, since: u64::MAX, ttl: u64::MAX, n: 99, broken: None, v: 0 };
            prop_assert!(details.tombstone(Token::fresh(), by).len() <= LARGEST_VALUE);
            prop_assert!(details.fitted().value(Token::fresh()).len() <= LARGEST_VALUE);
        }
    }
}
