//! The queue of one lock: its waiters, their order, and the words that nodes send them.
//!
//! Each node keeps its own queue. A waiter has one ticket for all of them, so that independent
//! nodes agree on who is next and votes are not split.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use super::details::cut;
use super::mode::Mode;
use crate::text::escape;

/// A waiter, as other clients see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiter {
    /// Its id, which names its channel.
    pub id: Uuid,
    /// Host name.
    pub host: String,
    /// Process id of rlock on that host.
    pub pid: u32,
    /// Begin of the wait, unix time in ms.
    pub since: u64,
    /// Kind of lock that it waits for.
    pub mode: Mode,
    /// User name; empty if the waiter does not say so.
    pub user: String,
    /// `--note`. The entry of a lock with members has none.
    pub note: Option<String>,
}

/// Most bytes of the user's name, and of the note, once encoded.
pub const LONGEST_TEXT: usize = 64;

#[cfg(test)]
impl Waiter {
    /// Returns the waiter of this number, for an exclusive lock.
    pub(crate) fn example(number: u8) -> Self {
        Self {
            id: Uuid::from_u128(u128::from(number)),
            host: "h".to_owned(),
            pid: 1,
            since: 1,
            mode: Mode::Exclusive,
            user: String::new(),
            note: None,
        }
    }
}

impl Waiter {
    /// Returns this waiter with texts that the queue's member can hold.
    #[must_use]
    pub fn fitted(self) -> Self {
        let is_blank = |c: char| c.is_whitespace() || c.is_control();
        let word = |text: String| {
            text.chars()
                .map(|c| if is_blank(c) { '_' } else { c })
                .collect::<String>()
        };
        // Lua takes the bytes of ASCII alone for spaces and line breaks.
        let line = |text: String| {
            text.chars()
                .map(|c| if is_blank(c) { ' ' } else { c })
                .collect::<String>()
        };
        // The requests for a lock with members have no room for it (docs/redis.md, What is stored).
        let note = self.note.filter(|_| !self.mode.has_members());
        Self {
            host: word(self.host).chars().take(128).collect(),
            user: cut(word(self.user), LONGEST_TEXT),
            note: note
                .map(|note| cut(line(note).trim().to_owned(), LONGEST_TEXT))
                .filter(|note| !note.is_empty()),
            ..self
        }
    }

    /// Returns the user's name, if the waiter says it.
    pub fn user(&self) -> Option<&str> {
        Some(self.user.as_str()).filter(|user| !user.is_empty())
    }

    /// Returns the waiter for people: `deploy@web1`.
    pub fn person(&self) -> String {
        match self.user() {
            None => escape::short(&self.host),
            Some(user) => escape::short(&format!("{user}@{}", self.host)),
        }
    }
}

/// `ID HOST PID SINCE KIND USER NOTE`: the queue's member. It ends where the rest is not known, and
/// an exclusive kind may be missing then.
impl fmt::Display for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            id,
            host,
            pid,
            since,
            mode,
            user,
            note,
        } = self.clone().fitted();
        write!(f, "{id} {host} {pid} {since}")?;
        if user.is_empty() {
            return if mode == Mode::Exclusive {
                Ok(())
            } else {
                write!(f, " {mode}")
            };
        }
        write!(f, " {mode} {user}")?;
        note.map_or(Ok(()), |note| write!(f, " {note}"))
    }
}

impl FromStr for Waiter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.splitn(7, ' ');
        let mut read = || {
            let id = Uuid::try_parse(words.next()?).ok()?;
            let host = words.next()?.to_owned();
            let (pid, since) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let mode = words.next().map_or(Ok(Mode::Exclusive), str::parse).ok()?;
            let user = words.next().unwrap_or_default().to_owned();
            Some(Self {
                id,
                host,
                pid,
                since,
                mode,
                user,
                note: words.next().map(str::to_owned),
            })
        };
        read().ok_or_else(|| "not a waiter of rlock".to_owned())
    }
}

/// A waiter and its place in the order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// The waiter.
    pub waiter: Waiter,
    /// When it came, unix time in µs. The smallest number goes first; of equal ones, the smaller
    /// id.
    pub number: u64,
    /// With `--supersede`: when the waiter came, unix time in µs. It ends the waiters with this
    /// option that came before.
    pub supersedes: Option<u64>,
}

impl Ticket {
    /// `CAME WAITER`: the text by which a node tells which of two waiters with `--supersede` came
    /// later. Empty without.
    pub fn newest(&self) -> String {
        self.supersedes
            .map_or_else(String::new, |came| format!("{came:016} {}", self.waiter))
    }
}

/// A waiter's place in the queue of one node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueuePosition {
    /// Number of waiters ahead; `None` if it is not in the queue.
    pub rank: Option<u32>,
    /// The node's unix time in µs.
    pub now: u64,
    /// Why it cannot be in the queue.
    pub refused: Option<String>,
}

/// A word that a node sends to a waiter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// The lock is free, and it is this waiter's turn; or the waiter was passed over and must enter
    /// the queue again.
    YourTurn,
    /// The lock is free, and it is the turn of another waiter, which should take it within a
    /// second.
    StandBy,
    /// The lock is free, and it is no particular waiter's turn.
    Recheck,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn entries_of_releases_without_users_and_notes_are_read() {
        let id = "6c0f4a5e-9d0f-4c5b-8e86-1f0c7a4f3c2d";
        let read = |rest: &str| format!("{id} web1 {rest}").parse::<Waiter>();
        let old = read("7 8").unwrap();
        assert_eq!(
            (old.mode, old.user.as_str(), old.note),
            (Mode::Exclusive, "", None)
        );
        assert_eq!(read("7 8 k3").unwrap().mode, Mode::Slots(3));
        let new = read("7 8 x deploy nightly, see wiki").unwrap();
        assert_eq!(
            (new.person().as_str(), new.note.as_deref()),
            ("deploy@web1", Some("nightly, see wiki"))
        );
        for text in ["", "7", "x 8", "7 8 q", "7 8 q deploy"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_texts_of_a_waiter_are_cut_between_two_characters() {
        let text = |letter: &str| letter.repeat(60);
        let long: Waiter = format!("{} h 1 2 x {} {}", Uuid::nil(), text("ü"), text("漢"))
            .parse()
            .unwrap();
        let fitted = long.fitted();
        assert!(
            fitted.user.len() <= LONGEST_TEXT && fitted.user.ends_with("ü…"),
            "{}",
            fitted.user
        );
        assert!(
            fitted
                .note
                .is_some_and(|note| note.len() <= LONGEST_TEXT && note.ends_with("漢…"))
        );
    }

    proptest! {
        #[test]
        fn a_waiter_is_read_back_as_it_was_written(host in "\\PC{1,40}", user in ".{0,70}", note in proptest::option::of(".{0,90}"), pid: u32, since: u64) {
            for mode in [Mode::Exclusive, Mode::Shared, Mode::Slots(7)] {
                let (host, user, note) = (host.clone(), user.clone(), note.clone());
                let waiter = Waiter { id: Uuid::new_v4(), host, pid, since, mode, user, note }.fitted();
                let text = waiter.to_string();
                prop_assert!(!text.chars().any(char::is_control), "{}", text);
                // Without a user there is no room for a note.
                let note = waiter.note.clone().filter(|_| !waiter.user.is_empty());
                prop_assert_eq!(text.parse(), Ok(Waiter { note, ..waiter }));
            }
        }

        #[test]
        fn no_member_of_a_queue_makes_it_panic(text in ".{0,80}") {
            let _ = text.parse::<Waiter>();
        }
    }
}
