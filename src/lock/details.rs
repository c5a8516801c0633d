//! The holder's description of itself, stored beside the token, with the kind of lock
//! (docs/redis.md, What is stored).

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::mode::Mode;
use super::token::Token;
use crate::text::{duration, escape};

/// The format written here.
const FORMAT: u32 = 1;

/// The largest value ever stored, in bytes.
pub const LARGEST_VALUE: usize = 1024;

/// The first word of a tombstone.
pub const BROKEN: &str = "broken ";

/// The first word of a parked lock: its command has ended, and the lock stays.
pub const PARKED: &str = "parked ";

/// The longest `break --reason`, in bytes once encoded. So are the other lengths.
pub const LONGEST_REASON: usize = 200;

/// The longest `--note`. It is shorter in a value with one of the rooms below.
const LONGEST_NOTE: usize = 512;

/// The longest host name.
const LONGEST_HOST: usize = 96;

/// The longest user name.
const LONGEST_USER: usize = 64;

/// The longest name of a command.
const LONGEST_CMD: usize = 128;

/// The longest name of the user that broke a lock, with the host.
const LONGEST_BREAKER: usize = 96;

/// Room in a tombstone for its first word and for the user that broke the lock.
const ROOM_OF_BREAKER: usize = LONGEST_BREAKER + 40;

/// Room in a tombstone for the reason.
const ROOM_OF_REASON: usize = LONGEST_REASON + 16;

/// Room for a delay, which few values have.
const ROOM_OF_DELAY: usize = 32;

// A note is left beside everything else, and can be cut.
const _: () =
    assert!(LONGEST_NOTE >= ROOM_OF_BREAKER + ROOM_OF_REASON + ROOM_OF_DELAY + ELLIPSIS.len());

/// The holder, as others see it. Every field of a value that another client wrote may be missing or
/// wrong.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct Details {
    /// Kind of the lock.
    pub mode: Mode,
    /// Host name.
    pub host: String,
    /// rlock's process id on that host; `None` if no process keeps the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// User name.
    pub user: String,
    /// Unix time of the attempt that took the lock, in milliseconds.
    pub since: u64,
    /// Name of the command: `--name`, or the file name of its program or script. Never its
    /// arguments: they may hold secrets.
    pub cmd: String,
    /// `--note`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Whether a process keeps the lock, which must be stopped before the lock passes on. `acquire`
    /// leaves none behind.
    pub kept: bool,
    /// In a tombstone: the user and host that broke the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<Breaker>,
    /// The holder's fence, where the key was set again: the node's own counter may be above it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// Expiry that the nodes are told, in milliseconds.
    pub ttl: u64,
    /// Part of it that outlasts the holder's lease (`--lock-delay`).
    #[serde(skip_serializing_if = "is_zero")]
    pub delay: u64,
    /// Number of nodes that the holder uses.
    pub n: usize,
    /// Format of this value.
    pub v: u32,
    /// Whether the lock is parked. The first word of its value says so.
    #[serde(skip)]
    pub parked: bool,
    /// Whether the lock has the form of another client's. The type of its key says so.
    #[serde(skip)]
    pub has_other_form: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The user that broke a lock.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
#[serde(default)]
pub struct Breaker {
    /// User and host.
    pub name: String,
    /// `break --reason`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl From<&str> for Breaker {
    fn from(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            reason: None,
        }
    }
}

impl Breaker {
    /// Returns the same, with texts cut.
    pub(super) fn fitted(self) -> Self {
        Self {
            name: cut(self.name, LONGEST_BREAKER),
            reason: self.reason.map(|reason| cut(reason, LONGEST_REASON)),
        }
    }
}

/// `ci@web1 broke the lock: TEXT`.
impl fmt::Display for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} broke the lock", escape::text(&self.name))?;
        self.reason
            .as_ref()
            .map_or(Ok(()), |reason| write!(f, ": {}", escape::text(reason)))
    }
}

/// The meaning of fields that a value lacks.
impl Default for Details {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            host: String::new(),
            pid: None,
            user: String::new(),
            since: 0,
            cmd: String::new(),
            note: None,
            // The cautious answer: a lock that is kept is never deleted without its holder.
            kept: true,
            broken: None,
            fence: None,
            ttl: 0,
            delay: 0,
            n: 0,
            v: 0,
            parked: false,
            has_other_form: false,
        }
    }
}

impl Details {
    /// Returns the length to which a note is cut beside what else these details have.
    pub fn longest_note(&self) -> usize {
        let has_reason = self.broken.as_ref().is_some_and(|by| by.reason.is_some());
        let rooms = [
            (self.broken.is_some(), ROOM_OF_BREAKER),
            (has_reason, ROOM_OF_REASON),
            (self.delay > 0, ROOM_OF_DELAY),
        ];
        let rooms = rooms.iter().filter(|(is_taken, _)| *is_taken);
        LONGEST_NOTE - rooms.map(|(_, room)| room).sum::<usize>()
    }

    /// Returns these details, each text cut so that the whole value stays within [`LARGEST_VALUE`].
    /// The largest value has 1,020 bytes: a new field takes its room from the note.
    #[must_use]
    pub fn fitted(self) -> Self {
        let longest_note = self.longest_note();
        Self {
            host: cut(self.host, LONGEST_HOST),
            user: cut(self.user, LONGEST_USER),
            cmd: cut(self.cmd, LONGEST_CMD),
            note: self.note.map(|note| cut(note, longest_note)),
            broken: self.broken.map(Breaker::fitted),
            v: FORMAT,
            ..self
        }
    }

    /// Returns the value stored at the key: `TOKEN SP DETAILS`.
    pub fn value(&self, token: Token) -> String {
        format!("{token} {}", self.json())
    }

    /// Returns the value of a lock that was broken: `broken TOKEN SP DETAILS`. The details stay the
    /// holder's, since other clients still go by its TTL and its number of nodes.
    pub fn tombstone(&self, token: Token, by: Breaker) -> String {
        let details = Self {
            broken: Some(by),
            ..self.clone()
        };
        format!("{BROKEN}{}", details.fitted().value(token))
    }

    /// Returns the value of a lock that stays for `span` when its command has ended:
    /// `parked TOKEN SP DETAILS`. The first word keeps requests of the holder that run late from
    /// taking it for their own.
    pub fn parked(&self, token: Token, span: Duration) -> String {
        let ttl = self.ttl.max(duration::millis(span));
        let details = Self {
            pid: None,
            kept: false,
            ttl,
            ..self.clone()
        };
        format!("{PARKED}{}", details.fitted().value(token))
    }

    /// Returns the holder for people: `deploy@web1, pid 4711, running backup.sh (note)`.
    pub fn person(&self) -> String {
        let [user, host, cmd] = [&self.user, &self.host, &self.cmd].map(|text| escape::text(text));
        let by = match self.pid.filter(|_| self.kept) {
            Some(pid) => format!("{user}@{host}, pid {pid}, running {cmd}"),
            None if self.kept => format!("{user}@{host}, running {cmd}"),
            None if self.parked => format!("{user}@{host}, which ran {cmd}"),
            None => format!("{user}@{host}, taken with acquire"),
        };
        by + &escape::note(self.note.as_deref())
    }

    /// Returns the same in fewer words: `deploy@web1, backup.sh (note)`.
    pub fn brief(&self) -> String {
        let [user, host, cmd] = [&self.user, &self.host, &self.cmd].map(|text| escape::text(text));
        format!("{user}@{host}, {cmd}{}", escape::note(self.note.as_deref()))
    }

    /// Returns what programs are told of the holder.
    pub fn fields(&self) -> Map<String, Value> {
        let fields = [
            ("host", json!(self.host)),
            ("user", json!(self.user)),
            ("pid", json!(self.pid)),
            ("cmd", json!(self.cmd)),
            ("note", json!(self.note)),
            ("since", json!(self.since)),
        ];
        fields
            .map(|(name, value)| (name.to_owned(), value))
            .into_iter()
            .collect()
    }

    /// Returns compact JSON.
    fn json(&self) -> String {
        // Strings and numbers only: writing them cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Stands in the place of the part that is cut off.
pub(super) const ELLIPSIS: &str = "…";

/// Number of bytes that the character takes inside JSON.
fn encoded_length(c: char) -> usize {
    serde_json::to_string(&c).map_or(0, |json| json.len() - 2)
}

/// Number of bytes at the beginning of `text` that take at most `most` bytes inside JSON.
fn beginning(text: &str, most: usize) -> usize {
    let mut left = most;
    let fits = |c: &char| {
        let rest = left.checked_sub(encoded_length(*c));
        left = rest.unwrap_or_default();
        rest.is_some()
    };
    text.chars().take_while(fits).map(char::len_utf8).sum()
}

/// Whether `text` takes at most `most` bytes inside JSON.
pub fn fits(text: &str, most: usize) -> bool {
    beginning(text, most) == text.len()
}

/// `text`, shortened so that it takes at most `most` bytes inside JSON.
pub(super) fn cut(text: String, most: usize) -> String {
    if fits(&text, most) {
        return text;
    }
    let end = beginning(&text, most - ELLIPSIS.len());
    format!("{}{ELLIPSIS}", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_too_long_ends_between_two_characters_with_an_ellipsis() {
        assert_eq!(cut("größe".to_owned(), 7), "größe");
        assert_eq!(cut("größer".to_owned(), 7), "grö…");
        assert_eq!(cut("\"\n\"".to_owned(), 5), "\"…");
        assert_eq!(cut("\u{1}x".to_owned(), 6), "…");
    }

    #[test]
    fn the_stored_form_is_the_same_in_every_release() {
        let run = Details {
            host: "web1".to_owned(),
            pid: Some(7),
            since: 5,
            n: 3,
            ttl: 9,
            ..Details::default()
        };
        let token = Token::fresh();
        let stored = r#"{"mode":"x","host":"web1","pid":7,"user":"","since":5,"cmd":"","kept":true,"ttl":9,"n":3,"v":1}"#;
        assert_eq!(
            run.clone().fitted().value(token),
            format!("{token} {stored}")
        );
        let stored = r#"{"mode":"x","host":"web1","user":"","since":5,"cmd":"","kept":false,"ttl":9,"n":3,"v":1}"#;
        let left = Details {
            pid: None,
            kept: false,
            ..run
        };
        assert_eq!(left.fitted().value(token), format!("{token} {stored}"));
    }

    #[test]
    fn a_value_that_does_not_say_so_is_taken_for_one_that_a_process_keeps() {
        let read = |text: &str| serde_json::from_str::<Details>(text).ok();
        assert_eq!(read("{}"), Some(Details::default()));
        assert!(Details::default().kept);
        assert_eq!(
            read(r#"{"mode":"q"}"#),
            None,
            "a kind that is unknown is no exclusive one"
        );
    }

    #[test]
    fn a_new_field_takes_its_room_from_the_note() {
        let long = || "x".repeat(LARGEST_VALUE);
        let details = Details {
            mode: Mode::Slots(1000),
            host: long(),
            pid: Some(u32::MAX),
            user: long(),
            since: u64::MAX,
            cmd: long(),
            note: Some(long()),
            kept: false,
            fence: Some(u64::MAX),
            ttl: u64::MAX,
            n: 99,
            ..Details::default()
        };
        assert_eq!(details.fitted().value(Token::fresh()).len(), 1020);
    }

    proptest! {
        #[test]
        fn a_text_fits_as_it_is_encoded(text in any::<String>(), most in 3usize..99) {
            let encoded = |text: &str| serde_json::to_string(text).unwrap().len() - 2;
            prop_assert_eq!(fits(&text, most), encoded(&text) <= most);
            prop_assert!(encoded(&cut(text, most)) <= most);
        }

        #[test]
        fn a_value_never_exceeds_its_limit(host in ".{0,300}", user in ".{0,300}", cmd in ".{0,300}", note in ".{0,600}", name in ".{0,200}", why in ".{0,300}") {
            let details = Details { mode: Mode::Slots(1000), host, user, cmd, note: Some(note), pid: Some(u32::MAX), kept: false, since: u64::MAX, fence: Some(u64::MAX), ttl: u64::MAX, delay: u64::MAX, n: 99, ..Details::default() };
            let by = Breaker { name, reason: Some(why) };
            prop_assert!(details.tombstone(Token::fresh(), by).len() <= LARGEST_VALUE);
            prop_assert!(details.parked(Token::fresh(), Duration::MAX).len() <= LARGEST_VALUE);
            prop_assert!(details.fitted().value(Token::fresh()).len() <= LARGEST_VALUE);
        }
    }
}
