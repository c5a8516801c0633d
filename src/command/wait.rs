//! Waiting for the lock: attempt after attempt until it is ours, the time is up, or a signal comes.

use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;

use crate::clock::{self, Alarm};
use crate::exit::{Failure, Outcome};
use crate::job::seen::Caught;
use crate::job::signals::Signals;
use crate::lock::backoff;
use crate::lock::details::Details;
use crate::lock::duration;
use crate::lock::fence;
use crate::lock::instant::Instant;
use crate::lock::occupant::{Occupant, Who};
use crate::lock::token::Token;
use crate::node::{Claim, Fault, FaultKind};
use crate::redlock::Nodes;
use crate::redlock::attempt::{Attempt, Tally};
use crate::redlock::holding::Holding;
use crate::settings::{LockSettings, RunSettings, file_name};

/// How long nodes that have never answered are tried.
const UNREACHABLE: Duration = Duration::from_secs(10);

/// How the waiting ended.
pub(super) enum Waited {
    /// The lock is ours.
    Won(Box<Holding>),
    /// It is not, and all has been said.
    Over(Outcome),
}

/// What the last attempt found, for the message when the time is up.
enum Last {
    Busy(Box<Occupant>),
    /// Nobody has it for certain; so many attempts in a row have ended like this.
    Split(Box<Occupant>, Vec<(String, Fault)>, u32),
    /// Too few of the nodes, so many in number, gave a vote.
    Unreachable(Vec<(String, Fault)>, usize),
}

/// Waits for the lock as `--wait` says.
pub(super) async fn for_lock(nodes: &Nodes, settings: &RunSettings, signals: &mut Signals) -> anyhow::Result<Waited> {
    let lock = &settings.lock;
    let begin = clock::now();
    let gives_up = lock.wait.map_or(Instant::NEVER, |wait| begin + wait);
    let mut alarm = Alarm::new()?;
    let mut answered = false;
    let mut told = Told::default();
    let mut last = None;
    let mut silent = Vec::new();
    let mut splits = 0;
    let mut longest_ttl = lock.schedule.ttl();
    loop {
        let inquiry = inquiry(lock, nodes.len(), longest_ttl);
        let mut attempt = Attempt::start(nodes, claim(settings, nodes.len(), inquiry), lock.restart_guard, &silent)?;
        // The first attempt may take its full time, so that --no-wait works over a slow line too.
        let at_least = begin + lock.schedule.node_timeout();
        let (tally, complete) = tokio::select! {
            biased;
            caught = terminating(signals) => {
                attempt.give_up().await;
                return Ok(Waited::Over(ended_by(caught)));
            }
            tally = attempt.tally() => (tally, true),
            () = alarm.reached(gives_up.max(at_least)) => (attempt.found_so_far(), false),
        };
        if let Some((node, why)) = attempt.unguarded() {
            told.unguarded(node, why, lock);
        }
        splits = if matches!(tally, Tally::Split(..)) { splits + 1 } else { 0 };
        let found = match tally {
            Tally::Won(fence) => {
                lock.report.step("acquired", format_args!("acquired, fence {fence}, after {}", since(begin)));
                return Ok(Waited::Won(Box::new(attempt.hold(fence))));
            }
            Tally::Unfit(node, fault) => {
                attempt.give_up().await;
                return Err(unfit(lock, &node, &fault).into());
            }
            Tally::Busy(occupant) => Last::Busy(occupant),
            Tally::Split(occupant, faults) => Last::Split(occupant, faults, splits),
            Tally::Unreachable { faults, answered: there } => {
                answered |= there;
                Last::Unreachable(faults, nodes.len())
            }
        };
        answered |= !matches!(found, Last::Unreachable(..));
        silent = attempt.silent();
        longest_ttl = longest_ttl.max(attempt.longest_ttl());
        attempt.give_up().await;
        // An attempt that was cut short says less than the one before it.
        let last = if complete { last.insert(found) } else { last.get_or_insert(found) };
        let now = clock::now();
        let patience = if answered { gives_up } else { gives_up.min(begin + UNREACHABLE) };
        // Of those who tie without waiting, one should win.
        let patience = if matches!(last, Last::Split(..)) { patience.max(at_least) } else { patience };
        if now >= patience {
            return last.give_up(lock);
        }
        told.tell(last, answered, lock);
        tokio::select! {
            biased;
            caught = terminating(signals) => return Ok(Waited::Over(ended_by(caught))),
            () = alarm.reached(patience.min(now + last.pause(lock))) => {}
        }
    }
}

/// Whether the nodes are asked what they are, and how long they must have been up: one node has nobody to differ from.
fn inquiry(lock: &LockSettings, nodes: usize, longest_ttl: Duration) -> Option<Duration> {
    let span = lock.restart_guard.span(nodes, longest_ttl);
    (nodes > 1 || !span.is_zero()).then_some(span)
}

fn unfit(lock: &LockSettings, node: &str, fault: &Fault) -> Failure {
    let outcome = if fault.kind == FaultKind::Refused { Outcome::Refused } else { Outcome::Config };
    Failure::new(outcome, format!("{}: {node}: {fault}", lock.key))
}

/// The next signal that ends a wait: all that would be passed on to a command.
async fn terminating(signals: &mut Signals) -> Caught {
    loop {
        let caught = signals.next().await;
        if caught.signal != Signal::SIGCHLD {
            return caught;
        }
    }
}

/// Interrupted at the terminal, rlock dies as the rest of the job does; by anybody else's signal it exits in order.
pub(super) fn ended_by(caught: Caught) -> Outcome {
    let number = caught.signal as i32;
    if caught.from_terminal { Outcome::Interrupted(number) } else { Outcome::Signalled(number) }
}

fn since(begin: Instant) -> String {
    duration::show_rounded(clock::now().since(begin))
}

/// What this attempt asks for: a token of its own, and who we are.
fn claim(settings: &RunSettings, nodes: usize, inquiry: Option<Duration>) -> Claim {
    let lock = &settings.lock;
    let now = SystemTime::now();
    let token = Token::fresh();
    let details = Details {
        host: nix::unistd::gethostname().map_or_else(|_| "?".to_owned(), |name| name.to_string_lossy().into_owned()),
        pid: std::process::id(),
        user: user(),
        since: clock::unix_millis(now),
        cmd: file_name(&settings.argv[0]),
        note: lock.note.clone(),
        ttl: u64::try_from(lock.schedule.ttl().as_millis()).unwrap_or(u64::MAX),
        n: nodes,
        v: 0,
    };
    Claim {
        key: lock.key.clone(),
        token,
        value: details.fitted().value(token),
        fence_hint: fence::hint(now),
        schedule: lock.schedule,
        inquiry,
    }
}

/// The user's name as the environment has it, else the number. Not getpwuid(3): a directory service that hangs must not
/// keep a job from running.
fn user() -> String {
    ["LOGNAME", "USER"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
        .unwrap_or_else(|| format!("uid {}", nix::unistd::Uid::effective()))
}

impl Last {
    fn give_up(&self, lock: &LockSettings) -> anyhow::Result<Waited> {
        match self {
            Self::Busy(_) | Self::Split(..) if lock.report.quiet => Ok(Waited::Over(Outcome::Busy(lock.busy_code))),
            Self::Busy(_) | Self::Split(..) => {
                Err(Failure::new(Outcome::Busy(lock.busy_code), format!("{}: busy: {}", lock.key, self.described()))
                    .into())
            }
            Self::Unreachable(..) => {
                let hint = if lock.node_is_default {
                    "; name a server with --node or RLOCK_NODE, or use --node local for a lock on this machine alone"
                } else {
                    ""
                };
                Err(Failure::new(Outcome::Unreachable, format!("{}: {}{hint}", lock.key, self.described())).into())
            }
        }
    }

    fn described(&self) -> String {
        let listed = |faults: &[(String, Fault)]| {
            faults.iter().map(|(node, fault)| format!("{node}: {fault}")).collect::<Vec<_>>().join("; ")
        };
        match self {
            Self::Busy(occupant) => occupant.to_string(),
            Self::Split(occupant, faults, _) if faults.is_empty() => format!("too few votes are free: {occupant}"),
            Self::Split(occupant, faults, _) => format!("too few votes are free: {occupant}; {}", listed(faults)),
            Self::Unreachable(faults, 1) => listed(faults),
            Self::Unreachable(faults, nodes) => format!("no majority of the {nodes} nodes: {}", listed(faults)),
        }
    }

    fn pause(&self, lock: &LockSettings) -> Duration {
        match self {
            Self::Busy(occupant) => backoff::poll(occupant.ttl, fastrand::f64()),
            Self::Split(_, _, splits) => backoff::split(*splits, fastrand::f64()),
            Self::Unreachable(..) => backoff::retry(lock.schedule.retry(), fastrand::f64()),
        }
    }
}

/// What has been said of the wait, so that it is said once.
#[derive(Default)]
struct Told {
    holder: Option<Who>,
    unreachable: bool,
    forever: bool,
    unguarded: bool,
}

impl Told {
    fn tell(&mut self, last: &Last, answered: bool, lock: &LockSettings) {
        match last {
            Last::Busy(occupant) => {
                if self.holder.as_ref() != Some(&occupant.who) {
                    lock.report.step("waiting", format_args!("waiting: {}", last.described()));
                    self.holder = Some(occupant.who.clone());
                }
                // Nobody reading cron's mail would otherwise learn why the job never ran again.
                if occupant.ttl.is_none()
                    && matches!(occupant.who, Who::Foreign(_))
                    && !std::mem::replace(&mut self.forever, true)
                {
                    lock.report.note("waiting", format_args!("waiting: {}", last.described()));
                }
            }
            Last::Split(..) => lock.report.step("waiting", format_args!("waiting: {}", last.described())),
            Last::Unreachable(..) => {
                if std::mem::replace(&mut self.unreachable, true) {
                    return;
                }
                let text = format_args!("{}; trying again", last.described());
                // With a majority there the wait has no end of its own, so whoever waits is told.
                if answered { lock.report.note("waiting", text) } else { lock.report.step("unreachable", text) }
            }
        }
    }

    fn unguarded(&mut self, node: &str, why: &str, lock: &LockSettings) {
        if !std::mem::replace(&mut self.unguarded, true) {
            let text = format_args!("{node}: INFO is refused, so a restart of it cannot be seen: {why}");
            lock.report.note("unguarded", text);
        }
    }
}
