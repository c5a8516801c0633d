//! Takes the lock for `run` and `acquire`: the client's side of [`redlock::wait`], and the end of a wait without the lock.

use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;

use super::identity::{host, user, waiter};
use super::purpose::Purpose;
use super::run::joining;
use crate::clock;
use crate::exit::{Failure, Outcome};
use crate::job::facts::CaughtSignal;
use crate::job::nested::outer::OuterRun;
use crate::job::signals::Signals;
use crate::lock::details::{Details, Mode};
use crate::lock::fence;
use crate::lock::instant::Instant;
use crate::lock::occupant::Occupant;
use crate::lock::queue::Ticket;
use crate::lock::request::Claim;
use crate::lock::token::Token;
use crate::lock::waiting::{Blocked, Notice, Options, Reason, Unjoined, Waiting};
use crate::redlock::Nodes;
use crate::redlock::holding::Holding;
use crate::redlock::wait::{Claimant, Waited, wait};
use crate::report::{Event, Level, Problem, StatusLine, WaitStatus};
use crate::settings::{LockSettings, file_name};
use crate::text::duration;

/// Least time between two updates of the status line.
const REDRAW: Duration = Duration::from_secs(1);

/// The end of a wait.
pub(super) enum Acquired {
    /// The lock is held.
    Won(Box<Holding>),
    /// An outer rlock holds it, and lets the command run under it. With the holder's name, for people.
    Nested(Box<OuterRun>, String),
    /// The lock is not held, and everything has been said.
    Over(Outcome),
}

/// Waits for the lock as `--wait` says. Except with the lock, nothing of the wait is left on the nodes.
pub(super) async fn take(
    nodes: &Nodes,
    lock: &LockSettings,
    purpose: Purpose<'_>,
    signals: &mut Signals,
) -> anyhow::Result<Acquired> {
    let options = Options {
        quorum: nodes.quorum(),
        wait: lock.wait,
        order: lock.order,
        schedule: lock.schedule,
        restart_guard: lock.restart_guard,
        outer: lock.outer.clone(),
        for_command: matches!(purpose, Purpose::Command(..)),
    };
    // Before the status line, which is due a whole second later and shows whole seconds.
    let waiting = Waiting::new(options, waiter(), clock::now());
    let status = StatusLine::new(lock.report.allows_status_line(), REDRAW);
    let mut client = Client { lock, purpose, nodes: nodes.len(), status };
    let waited = wait(nodes, waiting, &mut client, &mut async || terminating(signals).await).await?;
    Ok(match waited {
        Waited::Won(holding, after) => {
            lock.report.say(&Event::Acquired { fence: holding.fence(), after });
            Acquired::Won(holding)
        }
        Waited::Joined((outer, name)) => Acquired::Nested(Box::new(outer), name),
        Waited::Cancelled(caught) => Acquired::Over(ended_by(caught)),
        Waited::GaveUp(Reason::Blocked(Blocked::Busy(_) | Blocked::Split(..))) if lock.report.quiet => {
            Acquired::Over(Outcome::Busy(lock.busy_code))
        }
        Waited::GaveUp(reason) => return Err(failure(lock, nodes, &reason).into()),
    })
}

/// Returns the next signal that ends a wait: any that would be passed on to a command.
async fn terminating(signals: &mut Signals) -> CaughtSignal {
    loop {
        let caught = signals.next().await;
        if caught.signal != Signal::SIGCHLD {
            return caught;
        }
    }
}

/// Returns the outcome of a wait that a signal ended. Interrupted at the terminal, rlock dies as the rest of the job does; by any
/// other signal it exits in order.
pub(super) fn ended_by(caught: CaughtSignal) -> Outcome {
    let number = caught.signal as i32;
    if caught.from_terminal { Outcome::Interrupted(number) } else { Outcome::Signalled(number) }
}

fn failure(lock: &LockSettings, nodes: &Nodes, reason: &Reason) -> Failure {
    let problem = match reason {
        Reason::Blocked(blocked @ (Blocked::Busy(_) | Blocked::Split(..))) => {
            Problem::Busy { blocked, code: lock.busy_code }
        }
        Reason::Blocked(blocked @ (Blocked::Unreachable(..) | Blocked::TooLate)) => {
            Problem::Unreachable { blocked, node_is_default: lock.node_is_default }
        }
        Reason::Refused(faults) => Problem::NoMajority { faults, quorum: nodes.quorum(), node_is_default: false },
        Reason::Unfit(node, fault) => Problem::Unfit { node, fault },
        Reason::OuterUnreachable(holder) => Problem::OuterUnreachable { holder },
    };
    problem.about(&lock.key)
}

/// This rlock, as the wait needs it.
struct Client<'a> {
    lock: &'a LockSettings,
    purpose: Purpose<'a>,
    /// Number of nodes.
    nodes: usize,
    status: StatusLine,
}

impl Claimant for Client<'_> {
    type Outer = (OuterRun, String);

    fn claim(&mut self, ticket: Option<Ticket>, min_uptime: Option<Duration>) -> Claim {
        let now = SystemTime::now();
        let token = Token::fresh();
        if let Purpose::Command(_, guard) = self.purpose {
            // If rlock dies from here on, its guard releases the lock.
            guard.may_hold(0, token.as_uuid());
        }
        Claim {
            key: self.lock.key.clone(),
            token,
            details: self.details(now).fitted(),
            fence_hint: fence::hint(now),
            term: self.lock.schedule.term(),
            min_uptime,
            ticket,
        }
    }

    fn undone(&mut self) {
        if let Purpose::Command(_, guard) = self.purpose {
            guard.does_not_hold(0);
        }
    }

    async fn join(&mut self, token: Token, holder: &Occupant) -> anyhow::Result<Result<Self::Outer, Unjoined>> {
        let joined = joining::join(self.lock, self.purpose, holder, token).await?;
        Ok(joined.map(|outer| (outer, holder.named())))
    }

    fn say(&mut self, notice: &Notice) {
        let event = Event::from(notice);
        if event.level() != Level::Info {
            self.status.clear();
        }
        self.lock.report.say(&event);
    }

    fn redraw_at(&self) -> Instant {
        self.status.due()
    }

    fn redraw(&mut self, waiting: &Waiting) {
        if let Some((blocked, rank)) = waiting.pausing() {
            let (key, waited) = (&self.lock.key, waiting.waited(clock::now()));
            self.status.draw(|| WaitStatus { key, waited, ahead: rank, blocked }.to_string());
        }
    }

    fn random(&mut self) -> f64 {
        fastrand::f64()
    }
}

impl Client<'_> {
    fn details(&self, now: SystemTime) -> Details {
        let (cmd, kept) = match self.purpose {
            Purpose::Command(name, _) => (file_name(name), true),
            Purpose::Steps => ("acquire".to_owned(), false),
        };
        Details {
            mode: Mode::Exclusive,
            host: host(),
            pid: kept.then(std::process::id),
            user: user(),
            since: clock::unix_millis(now),
            cmd,
            note: self.lock.note.clone(),
            kept,
            broken: None,
            fence: None,
            ttl: duration::millis(self.lock.schedule.term().ttl()),
            n: self.nodes,
            v: 0,
        }
    }
}
