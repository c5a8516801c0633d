//! Those who wait: who they are, in which order they go, and when they look for themselves.
//!
//! The queue is kept on the nodes, each on its own. A waiter has one ticket for all of them, so that independent nodes
//! agree on who is next and votes are not split.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use uuid::Uuid;

use super::blocker::Blocker;

/// How long the first stays without looking, whatever it was told: what was told may be lost with a node, or to hosts that
/// have stopped.
const BACKSTOP: Duration = Duration::from_secs(10);

/// And nobody longer than this.
const LONGEST_LOOK: Duration = Duration::from_secs(60);

/// So much later looks each who is one further behind: the first has gone by then.
const BY_RANK: Duration = Duration::from_millis(200);

/// `--order`.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum, Debug)]
pub enum Order {
    /// Who has waited longest.
    Oldest,
    /// Who came last.
    Newest,
    /// Whoever: at random among those who wait.
    Any,
}

impl Order {
    /// The ticket of one who came at `entered`, unix time in µs. The smallest goes first, of equal ones the smaller id.
    pub fn ticket(self, entered: u64) -> i64 {
        let entered = i64::try_from(entered).unwrap_or(i64::MAX);
        match self {
            Self::Oldest => entered,
            Self::Newest => -entered,
            Self::Any => 0,
        }
    }
}

/// One who waits, as others see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiter {
    /// Its own number, which names its channel.
    pub id: Uuid,
    /// Host name.
    pub host: String,
    /// rlock's process id on that host.
    pub pid: u32,
    /// Since when, unix time in ms.
    pub since: u64,
}

impl Waiter {
    /// The channel on which it is told.
    pub fn channel(&self) -> String {
        format!("rlock:wake:{}", self.id)
    }
}

/// `ID HOST PID SINCE`, as it stands in the queue.
impl fmt::Display for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host: String =
            self.host.chars().map(|c| if c.is_whitespace() || c.is_control() { '_' } else { c }).take(128).collect();
        write!(f, "{} {host} {} {}", self.id, self.pid, self.since)
    }
}

impl FromStr for Waiter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split(' ').collect();
        let read = || {
            let [id, host, pid, since] = words[..] else { return None };
            let id = Uuid::try_parse(id).ok()?;
            Some(Self { id, host: host.to_owned(), pid: pid.parse().ok()?, since: since.parse().ok()? })
        };
        read().ok_or_else(|| "not a waiter of rlock".to_owned())
    }
}

/// A waiter and its place in the order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// Who.
    pub waiter: Waiter,
    /// [`Order::ticket`].
    pub number: i64,
}

/// What a node told of a waiter's place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueuePosition {
    /// So many are before it; `None` if it is not in the queue.
    pub rank: Option<u32>,
    /// The node's unix time in µs.
    pub now: u64,
    /// Why it cannot be in the queue.
    pub refused: Option<String>,
}

/// How long a waiter of rank `rank` may stay without looking, if `blocker` has the lock and nobody tells it anything.
/// `heard`: it will be told when the lock is free. `random` is in [0, 1).
pub fn recheck_in(blocker: &Blocker, rank: Option<u32>, heard: bool, random: f64) -> Duration {
    let Some(rank) = rank.filter(|_| heard) else { return super::backoff::poll(blocker.left(), random) };
    if rank == 0 && blocker.is_foreign() {
        // It knows no queue and tells nobody.
        return super::backoff::poll(blocker.left(), random);
    }
    // The further behind, the seldomer: 500 who wait look some 15 times a second in all.
    let backstop = BACKSTOP.max(BY_RANK.saturating_mul(rank)).min(LONGEST_LOOK);
    let ends = blocker.left().map_or(LONGEST_LOOK, |ttl| ttl + Duration::from_millis(1));
    ends.saturating_add(BY_RANK.saturating_mul(rank)).min(backstop)
}

/// How much longer than the first a waiter of rank `rank` may stay away from nodes that grant nobody anything.
pub fn later(rank: Option<u32>) -> Duration {
    BY_RANK.saturating_mul(rank.unwrap_or(0)).min(LONGEST_LOOK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::details::Details;
    use crate::lock::occupant::{Occupant, OccupantKind};
    use crate::lock::token::Token;
    use proptest::prelude::*;

    fn seconds(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[test]
    fn who_came_first_goes_first_unless_the_newest_does() {
        assert!(Order::Oldest.ticket(1) < Order::Oldest.ticket(2));
        assert!(Order::Newest.ticket(2) < Order::Newest.ticket(1));
        assert_eq!(Order::Any.ticket(2), Order::Any.ticket(1));
    }

    #[test]
    fn nobody_polls_behind_a_holder_that_will_tell() {
        let holder = |ttl| {
            let who = OccupantKind::Holder(Token::fresh(), Details::default());
            Blocker::Occupant(Occupant { who, ttl: Some(ttl) })
        };
        assert!(recheck_in(&holder(seconds(7)), Some(0), true, 0.5) > seconds(7));
        assert_eq!(recheck_in(&holder(seconds(7)), Some(3), true, 0.5), Duration::from_millis(7601));
        assert_eq!(recheck_in(&holder(seconds(300)), Some(3), true, 0.5), seconds(10));
        assert_eq!(recheck_in(&holder(seconds(300)), Some(100), true, 0.5), seconds(20));
        let holder = holder(seconds(300));
        assert_eq!(recheck_in(&holder, Some(900), true, 0.5), seconds(60));
        assert!(recheck_in(&holder, Some(0), false, 0.5) <= Duration::from_millis(250));
    }

    #[test]
    fn only_the_first_polls_behind_a_foreign_holder() {
        let foreign = Blocker::Occupant(Occupant { who: OccupantKind::Foreign("x".to_owned()), ttl: None });
        assert!(recheck_in(&foreign, Some(0), true, 0.99) <= Duration::from_millis(250));
        assert_eq!(recheck_in(&foreign, Some(1), true, 0.5), seconds(10));
    }

    proptest! {
        #[test]
        fn a_waiter_is_read_back_as_it_was_written(host in "\\PC{0,40}", pid: u32, since: u64) {
            let waiter = Waiter { id: Uuid::new_v4(), host, pid, since };
            let read: Waiter = waiter.to_string().parse().unwrap();
            prop_assert_eq!((read.id, read.pid, read.since), (waiter.id, pid, since));
        }

        #[test]
        fn no_member_of_a_queue_makes_it_panic(text in ".{0,80}") {
            let _ = text.parse::<Waiter>();
        }
    }
}
