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
    Unreachable(Vec<(String, Fault)>),
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
    let mut silence = false;
    loop {
        let mut attempt = Attempt::start(nodes, claim(settings, nodes.len()), silence)?;
        // The first attempt may take its full time, so that --no-wait works over a slow line too.
        let cut = gives_up.max(begin + lock.schedule.node_timeout());
        let (tally, complete) = tokio::select! {
            biased;
            caught = terminating(signals) => {
                attempt.give_up().await;
                return Ok(Waited::Over(ended_by(caught)));
            }
            tally = attempt.tally() => (tally, true),
            () = alarm.reached(cut) => (attempt.found_so_far(), false),
        };
        let found = match tally {
            Tally::Won(fence) => {
                lock.report.step("acquired", format_args!("acquired, fence {fence}, after {}", since(begin)));
                return Ok(Waited::Won(Box::new(attempt.hold(fence))));
            }
            Tally::Busy(occupant) => {
                answered = true;
                Last::Busy(occupant)
            }
            Tally::Unreachable(faults) => Last::Unreachable(faults),
        };
        silence = attempt.met_silence();
        attempt.give_up().await;
        found.refuse_if_final(lock)?;
        // An attempt that was cut short says less than the one before it.
        let last = if complete { last.insert(found) } else { last.get_or_insert(found) };
        let now = clock::now();
        let patience = if answered { gives_up } else { gives_up.min(begin + UNREACHABLE) };
        if now >= patience {
            return last.give_up(lock);
        }
        told.tell(last, lock);
        tokio::select! {
            biased;
            caught = terminating(signals) => return Ok(Waited::Over(ended_by(caught))),
            () = alarm.reached(patience.min(now + last.pause(lock))) => {}
        }
    }
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
fn claim(settings: &RunSettings, nodes: usize) -> Claim {
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
    /// Some faults are answers: no time would mend them.
    fn refuse_if_final(&self, lock: &LockSettings) -> Result<(), Failure> {
        let Self::Unreachable(faults) = self else { return Ok(()) };
        for (node, fault) in faults {
            let outcome = match fault.kind {
                FaultKind::Refused => Outcome::Refused,
                FaultKind::Unfit => Outcome::Config,
                FaultKind::Unavailable | FaultKind::Unknown => continue,
            };
            return Err(Failure::new(outcome, format!("{}: {node}: {fault}", lock.key)));
        }
        Ok(())
    }

    fn give_up(&self, lock: &LockSettings) -> anyhow::Result<Waited> {
        match self {
            Self::Busy(_) if lock.report.quiet => Ok(Waited::Over(Outcome::Busy(lock.busy_code))),
            Self::Busy(occupant) => {
                Err(Failure::new(Outcome::Busy(lock.busy_code), format!("{}: busy: {occupant}", lock.key)).into())
            }
            Self::Unreachable(_) => {
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
        match self {
            Self::Busy(occupant) => format!("waiting: {occupant}"),
            Self::Unreachable(faults) => {
                faults.iter().map(|(node, fault)| format!("{node}: {fault}")).collect::<Vec<_>>().join("; ")
            }
        }
    }

    fn pause(&self, lock: &LockSettings) -> Duration {
        match self {
            Self::Busy(occupant) => backoff::poll(occupant.ttl, fastrand::f64()),
            Self::Unreachable(_) => backoff::retry(lock.schedule.retry(), fastrand::f64()),
        }
    }
}

/// What has been said of the wait, so that it is said once.
#[derive(Default)]
struct Told {
    holder: Option<Who>,
    unreachable: bool,
    forever: bool,
}

impl Told {
    fn tell(&mut self, last: &Last, lock: &LockSettings) {
        match last {
            Last::Busy(occupant) => {
                if self.holder.as_ref() != Some(&occupant.who) {
                    lock.report.step("waiting", last.described());
                    self.holder = Some(occupant.who.clone());
                }
                // Nobody reading cron's mail would otherwise learn why the job never ran again.
                if occupant.ttl.is_none()
                    && matches!(occupant.who, Who::Foreign(_))
                    && !std::mem::replace(&mut self.forever, true)
                {
                    lock.report.note("waiting", last.described());
                }
            }
            Last::Unreachable(_) => {
                if !std::mem::replace(&mut self.unreachable, true) {
                    lock.report.step("unreachable", format_args!("{}; trying again", last.described()));
                }
            }
        }
    }
}
