//! The witness: it sees who runs under which lock, and says what is broken. It shares no rule with
//! rlock.

mod lock;
mod newest;
mod violation;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rlock::lock::instant::Instant;
use rlock::lock::token::Token;

pub use lock::{Hold, Lock, Share};
pub use newest::Newest;
pub use violation::Violation;

use crate::kernel::ProcessId;

/// Time after which a waiter is in the queue of every node, where nothing is slow.
const ENTERING: Duration = Duration::from_millis(200);

/// A client that wants a lock.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    /// The lock's number.
    pub lock: usize,
    /// Since when, or since it was last continued.
    pub since: Instant,
    /// When its `--wait` is over: it gives up, even in the middle of an attempt.
    pub until: Option<Instant>,
    /// Its ticket, and when it first asked with it.
    pub ticket: Option<(u64, Instant)>,
}

/// Counters of one world.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Locks given.
    pub grants: u64,
    /// Locks lost: the command was stopped.
    pub lost: u64,
    /// Runs that found that another had succeeded.
    pub skipped: u64,
    /// Locks that stayed when their runs were over.
    pub parked: u64,
    /// Keys that were set again.
    pub healed: u64,
    /// Locks given beside a holder whose lease a database had lost.
    pub lapses: u64,
    /// Longest time without a holder while a client waited and no fault was on.
    pub idle: Duration,
}

/// A command whose lock was deleted on an operator's order.
#[derive(Debug)]
struct Doomed {
    token: Token,
    since: Instant,
    /// Time by which it must be dead.
    by: Instant,
}

/// Watches all locks of a world.
#[derive(Debug, Default)]
pub struct Witness {
    locks: Vec<Lock>,
    /// Number of nodes that are a majority.
    needed: usize,
    /// The tokens whose locks `rlock break` took away, which a client may still take for its own
    /// until then.
    taken_away: BTreeMap<String, Instant>,
    /// The tokens that an operator's tombstone may have reached.
    broken: BTreeSet<String>,
    /// The tokens that an operator deletes, perhaps at a minority only, and late.
    deleted: BTreeSet<String>,
    /// The clients that want a lock.
    pub waiting: BTreeMap<ProcessId, Waiter>,
    /// The processes whose locks were deleted.
    doomed: BTreeMap<ProcessId, Doomed>,
    /// The processes of which it is not known whether their locks were deleted.
    spared: BTreeSet<ProcessId>,
    /// When a server last came back with older data.
    forgot: Option<Instant>,
    /// Leases that a database has lost or ends early, and until when their holders believe in them.
    lapsed: BTreeMap<String, Instant>,
    /// The clients with `--supersede`.
    pub newest: Newest,
    /// The locks under which a run has succeeded, and until when no other may be repeated.
    successes: BTreeMap<usize, Instant>,
    /// The locks that are parked: their tokens, and until when they are.
    parked: Vec<(usize, Token, Instant)>,
    /// Whether waiters must be served in the order of their tickets.
    pub keeps_order: bool,
    /// The first violation.
    pub violation: Option<Violation>,
    /// Counters of one world.
    pub counts: Counts,
}

impl Witness {
    /// The witness of so many locks, on nodes of which a majority is `needed`.
    pub fn new(locks: usize, needed: usize, keeps_order: bool) -> Self {
        Self {
            locks: (0..locks).map(|_| Lock::default()).collect(),
            needed,
            keeps_order,
            ..Self::default()
        }
    }

    /// Notes a violation, unless there was one before.
    pub fn violated(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
    }

    /// `process` asks for `lock`, with this ticket. `wait`: the time that it may wait.
    pub fn asks(
        &mut self,
        process: ProcessId,
        lock: usize,
        ticket: Option<u64>,
        wait: Option<Duration>,
        now: Instant,
    ) {
        let fresh = Waiter {
            lock,
            since: now,
            until: wait.map(|wait| now + wait),
            ticket: None,
        };
        let waiter = self.waiting.entry(process).or_insert(fresh);
        if ticket.is_none() && waiter.ticket.is_none() && waiter.since == now {
            // All locks of a run are asked for at once; the first is the one that it waits for.
            return;
        }
        if waiter.lock != lock {
            *waiter = Waiter {
                until: waiter.until,
                ..fresh
            };
        }
        if waiter.ticket.map(|(number, _)| number) != ticket {
            waiter.ticket = ticket.map(|number| (number, now));
        }
    }

    /// `process` runs again after it was stopped: it could take no lock before.
    pub fn resumes(&mut self, process: ProcessId, now: Instant) {
        if let Some(waiter) = self.waiting.get_mut(&process) {
            waiter.since = now;
        }
    }

    /// Whether `process` waits with a ticket.
    pub fn is_queued(&self, process: ProcessId) -> bool {
        self.waiting
            .get(&process)
            .is_some_and(|waiter| waiter.ticket.is_some())
    }

    /// Judges that no waiter was passed over: none that was in the queue for a moment, with a
    /// smaller ticket than `process` or before one without.
    fn judge_order(&mut self, process: ProcessId, lock: usize, now: Instant) {
        let Some(Waiter { ticket, .. }) = self
            .waiting
            .get(&process)
            .filter(|waiter| waiter.lock == lock)
        else {
            return;
        };
        let number = ticket.map_or(u64::MAX, |(number, _)| number);
        let is_passed_over = |(_, other): &(&ProcessId, &Waiter)| {
            let is_before = |(theirs, entered): (u64, Instant)| {
                theirs < number && now.since(entered) > ENTERING
            };
            let gives_up = other.until.is_some_and(|until| until <= now);
            other.lock == lock && !gives_up && other.ticket.is_some_and(is_before)
        };
        if let Some((other, _)) = self.waiting.iter().find(is_passed_over) {
            let why = format!("{process} was served before {other}");
            self.violated(Violation::Order(why));
        }
    }

    /// `process` has `lock`: it starts its command, or prints its token.
    pub fn granted(&mut self, process: ProcessId, lock: usize, hold: Hold) {
        if self.keeps_order {
            self.judge_order(process, lock, hold.since);
        }
        self.waiting.remove(&process);
        if let Some(violation) = self.newest.granted(process, hold.since) {
            self.violated(violation);
        }
        let taken_away = self.taken_away.get(&hold.token.to_string());
        if taken_away.is_some_and(|until| hold.since < *until) {
            // Or it has entered the line again.
            self.spared.extend(hold.until.is_none().then_some(process));
            return;
        }
        self.counts.grants += 1;
        let is_parked = |(of, token, until): &&(usize, Token, Instant)| {
            *of == lock && *token != hold.token && hold.since < *until
        };
        if let Some((_, token, _)) = self.parked.iter().find(is_parked) {
            let why = format!("{process} begins while the lock of {token} is parked");
            self.violated(Violation::Overlap(why));
        }
        let (lapsed, since) = (&self.lapsed, hold.since);
        let is_lapsed = |token: Token| {
            let until = lapsed.get(&token.to_string());
            until.is_some_and(|until| since < *until)
        };
        let is_excused = self.locks[lock].is_beside(&hold, &is_lapsed);
        self.counts.lapses += u64::from(is_excused);
        if let Some(violation) = self.locks[lock].granted(process, hold, &is_lapsed) {
            self.violated(violation);
        }
    }

    /// `node` takes the client with this number for the newest one that has `--supersede`.
    pub fn is_newest_at(&mut self, node: usize, number: u64, now: Instant) {
        self.newest.is_known(number, node, self.needed, now);
    }

    /// `process` has the lock, and gives it back without running its command.
    pub fn skips(&mut self, process: ProcessId) {
        self.waiting.remove(&process);
    }

    /// `process` runs its command, unless a run has succeeded under `lock`.
    pub fn runs_once(&mut self, process: ProcessId, lock: usize, now: Instant) {
        if self.successes.get(&lock).is_some_and(|until| now < *until) {
            self.violated(Violation::Repeated(format!(
                "{process} runs again what has succeeded"
            )));
        }
    }

    /// A run has succeeded under `lock`, and a majority of the nodes knows of it until then.
    pub fn succeeded(&mut self, lock: usize, until: Instant) {
        self.successes.insert(lock, until);
    }

    /// An operator breaks the lock of `token`: what stays of it is only what a loss leaves.
    pub fn breaks(&mut self, token: Token) {
        self.broken.insert(token.to_string());
    }

    /// The lock of `token`, whose run is over, stays until then, unless it is deleted. `for_loss`:
    /// because it was lost.
    pub fn parks(&mut self, lock: usize, token: Token, until: Instant, for_loss: bool) {
        let text = token.to_string();
        if !self.deleted.contains(&text) && (for_loss || !self.broken.contains(&text)) {
            self.counts.parked += 1;
            self.parked.push((lock, token, until));
        }
    }

    /// Returns when the last process of `process` that ran under `lock` ended.
    pub fn last_end(&self, lock: usize, process: ProcessId) -> Option<Instant> {
        self.locks[lock].end_of(process)
    }

    /// The lease of the lock of `token` is longer now.
    pub fn extended(&mut self, token: Token, until: Instant) {
        self.locks
            .iter_mut()
            .for_each(|lock| lock.extended(token, until));
    }

    /// The command of `process` cannot run any more.
    pub fn ended(&mut self, process: ProcessId, now: Instant) {
        self.doomed.remove(&process);
        let was_spared = self.spared.remove(&process);
        for lock in &mut self.locks {
            lock.ended(process, now);
            if was_spared {
                lock.may_have_been_held(now);
            }
        }
    }

    /// The lock of `token` is deleted on an operator's order: it is free, though its command may
    /// run until `by`.
    pub fn takes_away(&mut self, token: Token, by: Instant, now: Instant) {
        self.taken_away.insert(token.to_string(), by);
        self.deleted.insert(token.to_string());
        self.parked.retain(|(_, parked, _)| *parked != token);
        let of_token = self
            .locks
            .iter_mut()
            .find_map(|lock| lock.process_of(token));
        self.doomed.extend(of_token.map(|process| {
            (
                process,
                Doomed {
                    token,
                    since: now,
                    by,
                },
            )
        }));
        self.gave_back(token, now);
    }

    /// No majority deleted the lock of `token`: its command may live on.
    pub fn spares(&mut self, token: Token) {
        self.taken_away.remove(&token.to_string());
        let of_token =
            |(process, doomed): (&ProcessId, &Doomed)| (doomed.token == token).then_some(*process);
        self.spared.extend(self.doomed.iter().filter_map(of_token));
        self.doomed.retain(|_, doomed| doomed.token != token);
    }

    /// A database has lost the lease of a token, or ends it early. Its holder may believe in it until
    /// then.
    pub fn lapses(&mut self, token: &str, until: Instant) {
        let known = self.lapsed.entry(token.to_owned()).or_insert(until);
        *known = until.max(*known);
    }

    /// A database knows no higher fence of any lock any more.
    pub fn knows_fences_up_to(&mut self, highest: u64) {
        self.locks
            .iter_mut()
            .for_each(|lock| lock.knows_fences_up_to(highest));
    }

    /// A database keeps the lease of a token until then.
    pub fn keeps(&mut self, token: &str, until: Instant) {
        self.lapsed
            .retain(|lapsed, end| lapsed != token || *end > until);
    }

    /// A server came back with older data. It knows nothing of what was deleted since.
    pub fn forgets(&mut self, now: Instant) {
        self.forgot = Some(now);
    }

    /// Judges that the commands whose locks were deleted are dead in time, unless a server may have
    /// forgotten the deletion.
    pub fn judge_doomed(&mut self, now: Instant) {
        let forgot = self.forgot;
        self.doomed
            .retain(|_, doomed| forgot.is_none_or(|at| at < doomed.since));
        if let Some((process, _)) = self.doomed.iter().find(|(_, doomed)| doomed.by < now) {
            let why = format!("the command of {process} lives on, whose lock was deleted");
            self.violated(Violation::Overlap(why));
        }
    }

    /// The lock of `token` is given back.
    pub fn gave_back(&mut self, token: Token, now: Instant) {
        self.locks
            .iter_mut()
            .for_each(|lock| lock.gave_back(token, now));
    }

    /// The processes that have `lock`, and since when a command of theirs runs; `None` if they left
    /// no process.
    pub fn holders(&mut self, lock: usize, now: Instant) -> Vec<(ProcessId, Option<Instant>)> {
        let holders = self.locks[lock].holders(now);
        holders
            .map(|(process, hold)| (process, hold.until.is_none().then_some(hold.since)))
            .collect()
    }

    /// The tokens and shares of commands that have run under `lock` for as long as that.
    pub fn held_for(&mut self, lock: usize, span: Duration, now: Instant) -> Vec<(Token, Share)> {
        let holders = self.locks[lock].holders(now);
        holders
            .filter(|(_, hold)| hold.until.is_none() && now.since(hold.since) >= span)
            .map(|(_, hold)| (hold.token, hold.share))
            .collect()
    }

    /// A process that has a lock.
    pub fn any_holder(&mut self, now: Instant) -> Option<ProcessId> {
        self.locks
            .iter_mut()
            .find_map(|lock| lock.holders(now).next().map(|(process, _)| process))
    }

    /// Since when `lock` is free.
    pub fn free_since(&mut self, lock: usize, now: Instant) -> Option<Instant> {
        let free = self.locks[lock].free_since(now);
        free.filter(|_| self.spared.is_empty())
    }
}
