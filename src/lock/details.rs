//! What is stored beside the token: who holds the lock. DESIGN.md §4.

use serde::{Deserialize, Serialize};

use super::token::Token;

/// The format written here.
const FORMAT: u32 = 1;

/// The largest value ever stored, in bytes.
pub const LARGEST_VALUE: usize = 1024;

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
            note: self.note.map(|note| cut(note, LONGEST_NOTE)),
            v: FORMAT,
            ..self
        }
    }

    /// The value stored at the key: `TOKEN SP DETAILS`.
    pub fn value(&self, token: Token) -> String {
        format!("{token} {}", self.json())
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
        fn a_value_never_exceeds_its_limit(host in ".{0,300}", user in ".{0,300}", cmd in ".{0,300}", note in ".{0,600}") {
            let details = Details { host, user, cmd, note: Some(note), pid: u32::MAX, since: u64::MAX, ttl: u64::MAX, n: 99, v: 0 };
            prop_assert!(details.fitted().value(Token::fresh()).len() <= LARGEST_VALUE);
        }
    }
}
