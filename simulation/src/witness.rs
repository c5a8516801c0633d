//! The witness: it sees who runs under which lock, and says what is broken. It shares no rule with rlock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use rlock::lock::instant::Instant;
use rlock::lock::token::Token;

use crate::kernel::ProcessId;

/// Time after which a waiter is in the queue of every node, where nothing is slow.
const ENTERING: Duration = Duration::from_millis(200);

/// A broken promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Violation {
    /// Two holders at once.
    Overlap(String),
    /// A fence that is not above the one before.
    Fence(String),
    /// A waiter that came later was served first.
    Order(String),
    /// The lock is free, a majority is there, and no waiter takes it.
    Idle(String),
    /// A key without an expiry, or one that is left when all is over.
    LeftKey(String),
    /// A process that does not end.
    Stuck(String),
    /// Sockets or tasks that a process leaks.
    Leak(String),
    /// An exit code that the faults do not explain.
    Exit(String),
    /// More requests than the contract allows.
    Requests(String),
    /// A panic.
    Panic(String),
}

impl Violation {
    /// Returns the name of its kind: a shorter story must break the same promise.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Overlap(_) => "overlap",
            Self::Fence(_) => "fence",
            Self::Order(_) => "order",
            Self::Idle(_) => "idle",
            Self::LeftKey(_) => "left key",
            Self::Stuck(_) => "stuck",
            Self::Leak(_) => "leak",
            Self::Exit(_) => "exit code",
            Self::Requests(_) => "requests",
            Self::Panic(_) => "panic",
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Overlap(why)
        | Self::Fence(why)
        | Self::Order(why)
        | Self::Idle(why)
        | Self::LeftKey(why)
        | Self::Stuck(why)
        | Self::Leak(why)
        | Self::Exit(why)
        | Self::Requests(why)
        | Self::Panic(why)) = self;
        write!(f, "{}: {why}", self.kind())
    }
}

/// A client that has the lock.
#[derive(Clone, Debug)]
struct Hold {
    token: Token,
    fence: u64,
    since: Instant,
    /// `None`: until its command has ended. Else as long as its lease: `acquire` leaves no process.
    until: Option<Instant>,
}

/// A client that wants the lock.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    /// Since when.
    pub since: Instant,
    /// Its ticket, and when it first asked with it.
    pub ticket: Option<(i64, Instant)>,
}

/// Counters of one world.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Locks given.
    pub grants: u64,
    /// Locks lost: the command was stopped.
    pub lost: u64,
    /// Keys that were set again.
    pub healed: u64,
    /// Longest time without a holder while a client waited and no fault was on.
    pub idle: Duration,
}

/// Watches one lock.
#[derive(Debug, Default)]
pub struct Witness {
    holds: BTreeMap<ProcessId, Hold>,
    last_fence: u64,
    /// The tokens whose locks `rlock break` took away, which an `acquire` may still print.
    taken_away: BTreeSet<String>,
    /// Since when no client has had the lock.
    free_since: Option<Instant>,
    /// The clients that want the lock.
    pub waiting: BTreeMap<ProcessId, Waiter>,
    /// Whether waiters must be served in the order of their tickets.
    pub keeps_order: bool,
    /// The first violation.
    pub violation: Option<Violation>,
    /// Counters of one world.
    pub counts: Counts,
}

impl Witness {
    /// Notes a violation, unless there was one before.
    pub fn violated(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    /// `process` asks for the lock, with this ticket.
    pub fn asks(&mut self, process: ProcessId, ticket: Option<i64>, now: Instant) {
        let waiter = self.waiting.entry(process).or_insert(Waiter { since: now, ticket: None });
        if waiter.ticket.map(|(number, _)| number) != ticket {
            waiter.ticket = ticket.map(|number| (number, now));
        }
    }

    /// Judges that no waiter was passed over: none that was in the queue for a moment before `process` asked, with a smaller
    /// ticket or before one without.
    fn judge_order(&mut self, process: ProcessId, now: Instant) {
        let Some(Waiter { ticket, .. }) = self.waiting.get(&process) else { return };
        let number = ticket.map_or(i64::MAX, |(number, _)| number);
        let is_passed_over = |(_, other): &(&ProcessId, &Waiter)| {
            other.ticket.is_some_and(|(theirs, entered)| theirs < number && now.since(entered) > ENTERING)
        };
        if let Some((other, _)) = self.waiting.iter().find(is_passed_over) {
            let why = format!("{process} was served before {other}");
            self.violated(Violation::Order(why));
        }
    }

    /// `process` has the lock: it starts its command, or prints its token, which is good until `until`.
    pub fn granted(&mut self, process: ProcessId, token: Token, fence: u64, until: Option<Instant>, now: Instant) {
        if self.keeps_order {
            self.judge_order(process, now);
        }
        self.waiting.remove(&process);
        self.expire(now);
        if until.is_some() && self.taken_away.contains(&token.to_string()) {
            return;
        }
        self.counts.grants += 1;
        if let Some((other, hold)) = self.holds.iter().next() {
            let why = format!(
                "{process} ({token}, fence {fence}) begins beside {other} ({}, fence {})",
                hold.token, hold.fence
            );
            self.violated(Violation::Overlap(why));
        }
        if fence <= self.last_fence {
            let why = format!("{process} got {fence} after {}", self.last_fence);
            self.violated(Violation::Fence(why));
        }
        self.last_fence = self.last_fence.max(fence);
        self.free_since = None;
        self.holds.insert(process, Hold { token, fence, since: now, until });
    }

    /// The lease of the lock that `process` took is longer now.
    pub fn extended(&mut self, token: Token, until: Instant) {
        for hold in self.holds.values_mut().filter(|hold| hold.token == token) {
            hold.until = hold.until.map(|before| before.max(until));
        }
    }

    /// The command of `process` cannot run any more.
    pub fn ended(&mut self, process: ProcessId, now: Instant) {
        if self.holds.remove(&process).is_some() && self.holds.is_empty() {
            self.free_since = Some(now);
        }
    }

    /// The lock of `token`, which no process keeps, is deleted on an operator's order.
    pub fn takes_away(&mut self, token: Token, now: Instant) {
        self.taken_away.insert(token.to_string());
        self.gave_back(token, now);
    }

    /// The lock of `token` is given back.
    pub fn gave_back(&mut self, token: Token, now: Instant) {
        let of = |(process, hold): (&ProcessId, &Hold)| (hold.token == token).then_some(*process);
        if let Some(process) = self.holds.iter().find_map(of) {
            self.ended(process, now);
        }
    }

    /// The process that has the lock.
    pub fn holder(&mut self, now: Instant) -> Option<ProcessId> {
        self.expire(now);
        self.holds.keys().next().copied()
    }

    /// The process that runs a command under the lock, and since when.
    pub fn runs_since(&mut self, now: Instant) -> Option<(ProcessId, Instant)> {
        self.expire(now);
        self.holds.iter().find(|(_, hold)| hold.until.is_none()).map(|(process, hold)| (*process, hold.since))
    }

    /// Since when the lock is free.
    pub fn free_since(&mut self, now: Instant) -> Option<Instant> {
        self.expire(now);
        self.free_since
    }

    fn expire(&mut self, now: Instant) {
        let over: Vec<_> = self.holds.iter().filter(|(_, hold)| hold.until.is_some_and(|until| until <= now)).collect();
        let over: Vec<_> = over.into_iter().map(|(process, hold)| (*process, hold.until)).collect();
        for (process, until) in over {
            self.ended(process, until.unwrap_or(now));
        }
    }
}
