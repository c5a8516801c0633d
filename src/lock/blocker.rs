//! The party that keeps a node from granting: an occupant of the key, or the waiter whose turn it
//! is.

use std::fmt;
use std::time::Duration;

use super::occupant::{Occupant, OccupantKind};
use super::queue::Waiter;
use crate::text::escape;

/// The party that keeps a node from granting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Blocker {
    /// The key is set.
    Occupant(Occupant),
    /// The key is free, and kept for a waiter.
    Reserved(Reservation),
    /// A waiter that came later, and both have `--supersede`; `None` if the entry is not rlock's.
    Newer(Option<Box<Waiter>>),
}

/// A free key that is kept for the waiter whose turn it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reservation {
    /// The waiter; `None` if the queue's entry is not rlock's.
    pub waiter: Option<Waiter>,
    /// Time that the waiter has left to take it.
    pub left: Duration,
}

impl Blocker {
    /// Whether both are one party.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Occupant(own), Self::Occupant(other)) => own.is_same(other),
            (Self::Reserved(own), Self::Reserved(other)) => own.waiter == other.waiter,
            (Self::Newer(own), Self::Newer(other)) => own == other,
            _ => false,
        }
    }

    /// Returns the occupant of the key, if there is one.
    pub fn occupant(&self) -> Option<&Occupant> {
        if let Self::Occupant(occupant) = self {
            Some(occupant)
        } else {
            None
        }
    }

    /// Returns the time until the key or the turn ends by itself; `None` if it does not.
    pub fn left(&self) -> Option<Duration> {
        match self {
            Self::Occupant(occupant) => occupant.ttl,
            Self::Reserved(reservation) => Some(reservation.left),
            Self::Newer(_) => None,
        }
    }

    /// Whether it is a client that is not rlock, which wakes no waiter.
    pub fn is_foreign(&self) -> bool {
        self.occupant()
            .is_some_and(|occupant| matches!(occupant.who, OccupantKind::Foreign(_)))
    }

    /// Returns the party for people, without any time: the same text means the same party.
    pub fn named(&self) -> String {
        match self {
            Self::Occupant(occupant) => occupant.named(),
            _ => self.told(0),
        }
    }

    /// Returns the party for people at this unix time in ms.
    pub fn told(&self, now: u64) -> String {
        match self {
            Self::Occupant(occupant) => occupant.told(now),
            Self::Reserved(reservation) => reservation.to_string(),
            Self::Newer(Some(waiter)) => {
                let note = escape::note(waiter.note.as_deref());
                format!(
                    "superseded by {}, pid {}{note}",
                    waiter.person(),
                    waiter.pid
                )
            }
            Self::Newer(None) => "superseded by an entry that is not rlock's".to_owned(),
        }
    }

    /// Returns the same in fewer words.
    pub fn brief(&self, now: u64) -> String {
        self.occupant()
            .map_or_else(|| self.told(now), |occupant| occupant.brief(now))
    }
}

/// `free, but next in line is deploy@web1, pid 4711`.
impl fmt::Display for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.waiter {
            Some(waiter) => {
                write!(
                    f,
                    "free, but next in line is {}, pid {}",
                    waiter.person(),
                    waiter.pid
                )
            }
            None => f.write_str("free, but an entry that is not rlock's is next in its queue"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::token::Token;

    #[test]
    fn a_waiter_whose_name_has_no_end_does_not_fill_the_screen() {
        let waiter = format!("{} {} 7 8", Token::fresh(), "x".repeat(60_000))
            .parse()
            .ok();
        assert!(waiter.is_some());
        assert!(
            Reservation {
                waiter,
                left: Duration::ZERO
            }
            .to_string()
            .len()
                < 300
        );
    }
}
