//! Takes the locks for `run` and `acquire`: the client's side of [`hold::wait`], and the end of a
//! wait without the locks.

use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;

use uuid::Uuid;

use super::caller::Caller;
use super::cover::{Cover, report_change};
use super::joining;
use super::open_each;
use crate::clock::{self, Alarm};
use crate::exit::{Failure, Outcome};
use crate::hold::holding::Change;
use crate::hold::holdings;
use crate::hold::wait::{Claimant, Waited};
use crate::job::guard::Guard;
use crate::job::nested::outer::OuterRun;
use crate::job::policy::CaughtSignal;
use crate::job::signals::Signals;
use crate::lock::details::{Details, fits};
use crate::lock::fence;
use crate::lock::instant::Instant;
use crate::lock::lease::LeaseChange;
use crate::lock::messages::Claim;
use crate::lock::occupant::Occupant;
use crate::lock::queue::{Ticket, Waiter};
use crate::lock::token::Token;
use crate::lock::waiting::{Blocked, Notice, Reason, Unjoined, Waiting};
use crate::report::{Event, Manager, Progress, Status, failures};
use crate::settings::LockSettings;
use crate::text::duration;

/// Time that the nodes get to answer before the status line says that they have not.
const ANSWER: Duration = Duration::from_secs(1);

/// Time for which a wait without a status line tells nothing of nodes that do not answer.
const SILENT: Duration = Duration::from_secs(1);

/// Waits for the locks as `--wait` says. Returns the locks under which the command may run, or how
/// rlock ends: everything has been said then, and nothing of the wait is left on the nodes. If rlock
/// dies, `guard` releases what rlock had asked for; `acquire` has none.
pub(super) async fn take(
    lock: &LockSettings,
    guard: Option<&Guard>,
    signals: &mut Signals,
    alarm: &mut Alarm,
) -> anyhow::Result<Result<Cover, Outcome>> {
    if let Some(limit) = note_is_cut_to(lock) {
        lock.report.say(&Event::NoteCut { limit });
    }
    let nodes = open_each(lock)?;
    let covering = tokio::select! {
        biased;
        caught = await_interruption(signals) => return Ok(Err(end_by(caught))),
        covering = joining::find_covering(&nodes, lock) => covering?,
    };
    let mut client = Acquirer {
        lock,
        which: 0,
        covering,
        guard,
        caller: Caller::new(),
        since: clock::unix_millis(SystemTime::now()),
        // Before the status line, which is due a whole second later and shows whole seconds.
        begun: clock::now(),
        progress: Progress::new(&lock.report),
        manager: Manager::of_environment().filter(|_| lock.waiting.for_command),
        unheard: 0,
        has_told_of_nodes: false,
        asked: None,
    };
    let waiting = Waiting::new(lock.waiting.clone(), client.waiter(), client.begun);
    let changed = |which: usize, change: &Change| {
        let report = lock.report.of(&lock.keys[which]);
        if let Change::Lease(LeaseChange::Lost(_)) = change {
            report.say(&Event::LostWhileWaiting);
        }
        report_change(&report, change);
    };
    let cancelled = &mut async || await_interruption(signals).await;
    let taken = holdings::take(&nodes, waiting, &mut client, alarm, changed, cancelled).await?;
    Ok(match taken {
        Waited::Held(holdings) => {
            let now = clock::now();
            let after = now.since(client.begun);
            // A run renews it.
            let left = (!lock.waiting.for_command).then(|| holdings.deadline().since(now));
            for (key, (_, fence)) in lock.keys.iter().zip(holdings.grants()) {
                lock.report
                    .of(key)
                    .say(&Event::Acquired { fence, after, left });
            }
            client.progress.acquired(&lock.report, after);
            Ok(Cover::Own(holdings))
        }
        Waited::Joined(outer, holder) => {
            let holders = if client.covering.is_empty() {
                vec![*holder]
            } else {
                client.covering
            };
            for (key, occupant) in lock.keys.iter().zip(&holders) {
                lock.report.of(key).say(&Event::Nested { occupant });
            }
            Ok(Cover::Outer(outer, holders))
        }
        Waited::Cancelled(caught) => Err(end_by(caught)),
        Waited::GaveUp(Reason::Blocked(Blocked::Busy(_) | Blocked::Split(..)))
            if lock.report.quiet =>
        {
            Err(Outcome::Busy(lock.busy_code))
        }
        Waited::GaveUp(Reason::Superseded(_)) if lock.report.quiet => Err(Outcome::Superseded),
        Waited::GaveUp(reason) => {
            return Err(failure(lock, &reason).of(&lock.keys[client.which]).into());
        }
    })
}

/// Returns the bytes of `--note` that are stored, if it has more.
fn note_is_cut_to(lock: &LockSettings) -> Option<usize> {
    let details = Details {
        delay: duration::millis(lock.schedule().term().lock_delay()),
        ..Details::default()
    };
    let limit = details.longest_note();
    let is_cut = lock.note.as_deref().is_some_and(|note| !fits(note, limit));
    is_cut.then_some(limit)
}

/// Returns the next signal that ends a wait: any that would be passed on to a command. Cancel
/// safe.
pub(super) async fn await_interruption(signals: &mut Signals) -> CaughtSignal {
    loop {
        let caught = signals.next().await;
        if caught.signal != Signal::SIGCHLD {
            return caught;
        }
    }
}

/// Returns the outcome of a wait that a signal ended. Interrupted at the terminal, rlock dies as
/// the rest of the job does; by any other signal it exits in order.
pub(super) fn end_by(caught: CaughtSignal) -> Outcome {
    let number = caught.signal as i32;
    if caught.from_terminal {
        Outcome::Interrupted(number)
    } else {
        Outcome::Signalled(number)
    }
}

fn failure(lock: &LockSettings, reason: &Reason) -> Failure {
    match reason {
        Reason::Blocked(blocked @ (Blocked::Busy(_) | Blocked::Split(..))) => {
            failures::busy(blocked, lock.mode, lock.busy_code)
        }
        Reason::Blocked(blocked @ (Blocked::Unreachable(..) | Blocked::TooLate)) => {
            failures::unreachable(blocked)
        }
        Reason::Superseded(newer) => failures::superseded(newer),
        Reason::Refused(faults) => failures::no_majority(faults, lock.waiting.quorum),
        Reason::Unfit(node, fault) => failures::unfit(node, fault),
        Reason::OuterUnreachable(holder) => {
            let why = "this is part of its command, but that rlock cannot be reached from here (another host, container or user)";
            let remedy = "run the command without rlock run, and ask rlock check first";
            failures::forbidden_by(holder, format!("{}: {why}; {remedy}", holder.named()))
        }
    }
}

/// This rlock, as the wait needs it.
struct Acquirer<'a> {
    lock: &'a LockSettings,
    /// The number of the lock that is waited for.
    which: usize,
    /// The holders of several locks, if outer rlocks hold all of them.
    covering: Vec<Occupant>,
    guard: Option<&'a Guard>,
    caller: Caller,
    /// Begin of the wait, unix time in ms.
    since: u64,
    progress: Progress,
    /// The service manager that waits for the command.
    manager: Option<Manager>,
    /// Begin of the wait.
    begun: Instant,
    /// Number of attempts that no majority answered. A server that stalls once is no news.
    unheard: u32,
    /// Whether the user was told, in place of a status line, that no majority answers.
    has_told_of_nodes: bool,
    /// When the nodes were asked, until they have answered.
    asked: Option<Instant>,
}

impl Claimant for Acquirer<'_> {
    type Outer = OuterRun;

    fn turn_to(&mut self, lock: usize) {
        self.which = lock;
    }

    fn claim(
        &mut self,
        ticket: Option<Ticket>,
        guarded: Option<Duration>,
        kept: Option<Token>,
    ) -> Claim {
        let now = SystemTime::now();
        let token = kept.unwrap_or_else(Token::fresh);
        self.asked = Some(clock::now());
        if let Some(guard) = self.guard {
            // If rlock dies from here on, its guard releases the lock.
            guard.may_hold(self.which, token.as_uuid());
        }
        Claim {
            token,
            details: self.details(now).fitted(),
            fence_hint: fence::hint(now),
            term: self.lock.schedule().term(),
            guarded,
            ticket,
            index: self
                .lock
                .mode
                .number()
                .map_or(0, |slots| fastrand::u16(1..=slots)),
            is_exact: false,
            outer: self.lock.waiting.outer.tokens(),
        }
    }

    fn undone(&mut self) {
        if let Some(guard) = self.guard {
            guard.does_not_hold(self.which);
        }
    }

    fn waiter(&mut self) -> Waiter {
        let waiter = Waiter {
            id: Uuid::new_v4(),
            host: self.caller.host.clone(),
            pid: std::process::id(),
            since: self.since,
            mode: self.lock.mode,
            user: self.caller.user.clone(),
            note: self.lock.note.clone(),
        };
        waiter.fitted()
    }

    async fn join(
        &mut self,
        _: Token,
        holder: &Occupant,
    ) -> anyhow::Result<Result<Self::Outer, Unjoined>> {
        let key = &self.lock.keys[self.which];
        let holders = if self.covering.is_empty() {
            std::slice::from_ref(holder)
        } else {
            &self.covering
        };
        if self.which > 0 || holders.len() < self.lock.keys.len() {
            return Err(failures::partly_covered(holder).of(key).into());
        }
        Ok(joining::join(key, self.lock, holders).await?)
    }

    fn say(&mut self, notice: &Notice) {
        let report = self.lock.report.of(&self.lock.keys[self.which]);
        let event = Event::Wait(notice);
        report.say(&event);
        // Without a status line, cron's mail would tell nothing before the wait is given up.
        if let Notice::TryingAgain(_) = notice {
            self.unheard += 1;
            let is_long = self.unheard > 1 && clock::now() >= self.begun + SILENT;
            if is_long && !self.has_told_of_nodes && report.waits_in_silence() {
                self.has_told_of_nodes = true;
                report.show(&event);
            }
        }
    }

    fn redraw_at(&self) -> Instant {
        let due = self
            .manager
            .as_ref()
            .map_or(Instant::NEVER, Manager::due)
            .min(self.progress.due());
        self.asked.map_or(due, |asked| due.max(asked + ANSWER))
    }

    fn redraw(&mut self, waiting: &Waiting) {
        let now = clock::now();
        let pausing = waiting.pausing();
        if pausing.is_some() {
            self.asked = None;
        } else if now < self.redraw_at() {
            // An answer that comes soon is shown in place of the question.
            return;
        }
        let (blocked, ahead) =
            pausing.map_or((None, None), |(blocked, rank)| (Some(blocked), rank));
        let left = Some(waiting.patience())
            .filter(|end| *end != Instant::NEVER)
            .map(|end| end.since(now));
        let told = clock::unix_millis(SystemTime::now());
        let status = Status::Wait {
            waited: waiting.waited(now),
            ahead,
            blocked,
            left,
            now: told,
        };
        let report = self.lock.report.of(&self.lock.keys[self.which]);
        self.progress.show(&report, &status);
        if let Some(manager) = &self.manager {
            manager.waits(|| format!("{}: {}", report.keys, status.line()));
        }
    }

    fn random(&mut self) -> f64 {
        fastrand::f64()
    }
}

impl Acquirer<'_> {
    fn details(&self, now: SystemTime) -> Details {
        let kept = self.lock.waiting.for_command;
        Details {
            mode: self.lock.mode,
            host: self.caller.host.clone(),
            pid: kept.then(std::process::id),
            user: self.caller.user.clone(),
            since: clock::unix_millis(now),
            cmd: self.lock.name.clone(),
            note: self.lock.note.clone(),
            kept,
            ttl: duration::millis(self.lock.schedule().term().ttl()),
            delay: duration::millis(self.lock.schedule().term().lock_delay()),
            n: self.lock.waiting.quorum.total(),
            ..Details::default()
        }
    }
}
