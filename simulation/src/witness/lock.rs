//! The holders of one lock, as seen from outside.

use std::collections::BTreeMap;
use std::fmt;

use rlock::lock::instant::Instant;
use rlock::lock::token::Token;

use super::Violation;
use crate::kernel::ProcessId;

/// The way in which a client has a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// Alone.
    Exclusive,
    /// Beside others that share it.
    Shared,
    /// One of so many slots, this one.
    Slot {
        /// Number of slots.
        of: u32,
        /// Number of this slot, from 1.
        index: u32,
    },
}

impl Share {
    /// Whether no client may have the lock in one of these ways while another has it in the other.
    pub fn excludes(self, other: Self) -> bool {
        match (self, other) {
            (Self::Shared, Self::Shared) => false,
            (
                Self::Slot { of, index },
                Self::Slot {
                    of: others,
                    index: other,
                },
            ) => of != others || index == other,
            _ => true,
        }
    }
}

/// A client that has the lock.
#[derive(Clone, Debug)]
pub struct Hold {
    /// The way in which it has it.
    pub share: Share,
    /// Its proof.
    pub token: Token,
    /// Its fence.
    pub fence: u64,
    /// When it got the lock.
    pub since: Instant,
    /// `None`: until its command has ended. Else as long as its lease: `acquire` leaves no process.
    pub until: Option<Instant>,
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            share,
            token,
            fence,
            ..
        } = self;
        write!(f, "{share:?}, {token}, fence {fence}")
    }
}

/// One lock.
#[derive(Debug, Default)]
pub struct Lock {
    holds: BTreeMap<ProcessId, Hold>,
    /// The highest fence of each way to have it.
    fences: Vec<(Share, u64)>,
    /// When each process that has it no more gave it up.
    ends: BTreeMap<ProcessId, Instant>,
    /// Since when no client has had it.
    free_since: Option<Instant>,
}

impl Lock {
    /// Whether a client gets the lock beside another one, and a lease of theirs has lapsed.
    pub fn is_beside(&mut self, hold: &Hold, is_lapsed: &impl Fn(Token) -> bool) -> bool {
        self.expire(hold.since);
        let mut others = self.holds.values();
        others.any(|other| {
            other.share.excludes(hold.share) && (is_lapsed(other.token) || is_lapsed(hold.token))
        })
    }

    /// `process` has the lock. Returns the promise that this breaks, if it breaks one. `is_lapsed`:
    /// whether the lease of a token is one that a database has lost, as it may: its fence is lost too.
    pub fn granted(
        &mut self,
        process: ProcessId,
        hold: Hold,
        is_lapsed: &impl Fn(Token) -> bool,
    ) -> Option<Violation> {
        self.expire(hold.since);
        let other = self.holds.iter().find(|(_, other)| {
            other.share.excludes(hold.share) && !is_lapsed(other.token) && !is_lapsed(hold.token)
        });
        let overlap = other.map(|(other, its)| {
            Violation::Overlap(format!("{process} ({hold}) begins beside {other} ({its})"))
        });
        let fence = if is_lapsed(hold.token) {
            None
        } else {
            self.rises(process, &hold)
        };
        self.free_since = None;
        self.holds.insert(process, hold);
        overlap.or(fence)
    }

    /// Holders that exclude each other have fences that rise from one to the next.
    fn rises(&mut self, process: ProcessId, hold: &Hold) -> Option<Violation> {
        let before = self
            .fences
            .iter()
            .filter(|(share, _)| share.excludes(hold.share))
            .map(|(_, fence)| *fence)
            .max();
        let fence = before.filter(|before| hold.fence <= *before);
        match self
            .fences
            .iter_mut()
            .find(|(share, _)| *share == hold.share)
        {
            Some((_, highest)) => *highest = hold.fence.max(*highest),
            None => self.fences.push((hold.share, hold.fence)),
        }
        fence.map(|before| Violation::Fence(format!("{process} got {} after {before}", hold.fence)))
    }

    /// No fence above this one is known any more.
    pub fn knows_fences_up_to(&mut self, highest: u64) {
        for (_, fence) in &mut self.fences {
            *fence = highest.min(*fence);
        }
    }

    /// The lease of `token` lasts until then.
    pub fn extended(&mut self, token: Token, until: Instant) {
        for hold in self.holds.values_mut().filter(|hold| hold.token == token) {
            hold.until = hold.until.map(|before| before.max(until));
        }
    }

    /// `process` has the lock no more.
    pub fn ended(&mut self, process: ProcessId, now: Instant) {
        if self.holds.remove(&process).is_some() {
            self.ends.insert(process, now);
            if self.holds.is_empty() {
                self.free_since = Some(now);
            }
        }
    }

    /// The client of `token` has the lock no more.
    pub fn gave_back(&mut self, token: Token, now: Instant) {
        let of = |(process, hold): (&ProcessId, &Hold)| (hold.token == token).then_some(*process);
        if let Some(process) = self.holds.iter().find_map(of) {
            self.ended(process, now);
        }
    }

    /// It may have had a holder until now.
    pub fn may_have_been_held(&mut self, now: Instant) {
        self.free_since = self.free_since.map(|_| now);
    }

    /// The process whose command runs under the lock of `token`.
    pub fn process_of(&self, token: Token) -> Option<ProcessId> {
        let is_meant =
            |(_, hold): &(&ProcessId, &Hold)| hold.token == token && hold.until.is_none();
        self.holds
            .iter()
            .find(is_meant)
            .map(|(process, _)| *process)
    }

    /// The clients that have the lock.
    pub fn holders(&mut self, now: Instant) -> impl Iterator<Item = (ProcessId, &Hold)> {
        self.expire(now);
        self.holds.iter().map(|(process, hold)| (*process, hold))
    }

    /// When `process` gave it up, or its last command ended.
    pub fn end_of(&self, process: ProcessId) -> Option<Instant> {
        self.ends.get(&process).copied()
    }

    /// Since when the lock is free.
    pub fn free_since(&mut self, now: Instant) -> Option<Instant> {
        self.expire(now);
        self.free_since
    }

    fn expire(&mut self, now: Instant) {
        let over = |(process, hold): (&ProcessId, &Hold)| {
            Some((*process, hold.until.filter(|until| *until <= now)?))
        };
        let over: Vec<_> = self.holds.iter().filter_map(over).collect();
        for (process, until) in over {
            self.ended(process, until);
        }
    }
}
