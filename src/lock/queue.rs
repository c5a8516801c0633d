//! The queue of one lock: its waiters, their order, and the words that nodes send them.
//!
//! Each node keeps its own queue. A waiter has one ticket for all of them, so that independent nodes agree on who is next
//! and votes are not split.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use super::mode::Mode;

/// `--order`.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum, Debug)]
pub enum Order {
    /// The waiter that has waited longest.
    Oldest,
    /// The waiter that came last.
    Newest,
    /// A random waiter.
    Any,
}

impl Order {
    /// Returns the ticket number of a waiter that came at `entered`, unix time in µs. The smallest number goes first; of equal
    /// ones, the smaller id.
    pub fn ticket(self, entered: u64) -> i64 {
        let entered = i64::try_from(entered).unwrap_or(i64::MAX);
        match self {
            Self::Oldest => entered,
            Self::Newest => -entered,
            Self::Any => 0,
        }
    }
}

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
}

/// `ID HOST PID SINCE`, and the kind behind that unless it is exclusive: the queue's member.
impl fmt::Display for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host: String =
            self.host.chars().map(|c| if c.is_whitespace() || c.is_control() { '_' } else { c }).take(128).collect();
        write!(f, "{} {host} {} {}", self.id, self.pid, self.since)?;
        if self.mode == Mode::Exclusive { Ok(()) } else { write!(f, " {}", self.mode) }
    }
}

impl FromStr for Waiter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split(' ').collect();
        let read = || {
            let ([id, host, pid, since], kind) = words.split_first_chunk::<4>().map(|(all, kind)| (*all, kind))?;
            let mode = match kind {
                [] => Mode::Exclusive,
                [kind] => kind.parse().ok()?,
                _ => return None,
            };
            let id = Uuid::try_parse(id).ok()?;
            Some(Self { id, host: host.to_owned(), pid: pid.parse().ok()?, since: since.parse().ok()?, mode })
        };
        read().ok_or_else(|| "not a waiter of rlock".to_owned())
    }
}

/// A waiter and its place in the order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// The waiter.
    pub waiter: Waiter,
    /// Its number, see [`Order::ticket`].
    pub number: i64,
    /// With `--supersede`: when the waiter came, unix time in µs. It ends the waiters with this option that came before.
    pub supersedes: Option<u64>,
}

impl Ticket {
    /// `CAME WAITER`: the text by which a node tells which of two waiters with `--supersede` came later. Empty without.
    pub fn newest(&self) -> String {
        self.supersedes.map_or_else(String::new, |came| format!("{came:016} {}", self.waiter))
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
    /// The lock is free, and it is this waiter's turn; or the waiter was passed over and must enter the queue again.
    YourTurn,
    /// The lock is free, and it is the turn of another waiter, which should take it within a second.
    StandBy,
    /// The lock is free, and it is no particular waiter's turn.
    Recheck,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_waiter_goes_first_unless_the_order_is_newest() {
        assert!(Order::Oldest.ticket(1) < Order::Oldest.ticket(2));
        assert!(Order::Newest.ticket(2) < Order::Newest.ticket(1));
        assert_eq!(Order::Any.ticket(2), Order::Any.ticket(1));
    }

    proptest! {
        #[test]
        fn a_waiter_is_read_back_as_it_was_written(host in "\\PC{0,40}", pid: u32, since: u64) {
            for mode in [Mode::Exclusive, Mode::Shared, Mode::Slots(7)] {
                let waiter = Waiter { id: Uuid::new_v4(), host: host.clone(), pid, since, mode };
                let read: Waiter = waiter.to_string().parse().unwrap();
                prop_assert_eq!((read.id, read.pid, read.since, read.mode), (waiter.id, pid, since, mode));
            }
        }

        #[test]
        fn no_member_of_a_queue_makes_it_panic(text in ".{0,80}") {
            let _ = text.parse::<Waiter>();
        }
    }
}
