//! `rlock run`: takes the lock, runs the command under it, gives it back.

use std::io;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::time::Duration;

use futures_util::FutureExt;
use nix::sys::signal::Signal;
use tokio::runtime;

use super::wait::{self, Waited};
use crate::cli::{RunArgs, Sources};
use crate::clock::{self, Alarm};
use crate::exit::{Failure, Outcome};
use crate::job::found::Found;
use crate::job::group;
use crate::job::policy::{Action, Event, Measure, Policy};
use crate::job::signals::Signals;
use crate::job::spawn::Leader;
use crate::lock::duration;
use crate::lock::lease::{Loss, Struck};
use crate::node::Node;
use crate::node::local::LocalNode;
use crate::node::redis::RedisNode;
use crate::redlock::holding::{Change, Holding};
use crate::redlock::{Nodes, Released};
use crate::report::Reporter;
use crate::settings::{LockSettings, Place, RunSettings};

/// How often a group that was killed is looked at until it is gone. There is no event for the end of other people's
/// children.
const GROUP_LOOKS: Duration = Duration::from_millis(2);

/// How long a killed command may take to be gone before it is said that rlock is waiting for it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs the command under the lock.
pub fn run(args: RunArgs, sources: &Sources) -> anyhow::Result<Outcome> {
    let settings = RunSettings::new(args, sources)?;
    let found = Found::take()?;
    let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
    let result = runtime.block_on(run_async(&settings, &found));
    // A name look-up that hangs must not keep us.
    runtime.shutdown_background();
    result
}

async fn run_async(settings: &RunSettings, found: &Found) -> anyhow::Result<Outcome> {
    let mut signals = Signals::catch(found)?;
    let nodes = open(&settings.lock)?;
    let holding = match wait::for_lock(&nodes, settings, &mut signals).await? {
        Waited::Won(holding) => *holding,
        Waited::Over(outcome) => return Ok(outcome),
    };
    match start(settings, found, &holding) {
        Ok(leader) => supervise(settings, holding, leader, &mut signals).await,
        Err(error) => {
            let freed = holding.release().await;
            report_release(&settings.lock.report, &freed);
            Err(cannot_start(settings, &error).into())
        }
    }
}

fn open(settings: &LockSettings) -> Result<Nodes, Failure> {
    let node: Box<dyn Node> = match &settings.place {
        Place::Server(access) => Box::new(RedisNode::new((**access).clone(), settings.schedule.node_timeout())),
        Place::Local(dir) => {
            Box::new(LocalNode::open(dir.as_deref()).map_err(|why| Failure::new(Outcome::Config, why))?)
        }
    };
    Ok(Rc::new([node]))
}

fn start(settings: &RunSettings, found: &Found, holding: &Holding) -> io::Result<Leader> {
    let mut environment = settings.environment.clone();
    environment.push(("RLOCK_TOKEN", holding.token().to_string().into()));
    environment.push(("RLOCK_FENCE", holding.fence().to_string().into()));
    Leader::start(&settings.argv, &environment, found)
}

fn cannot_start(settings: &RunSettings, error: &io::Error) -> Failure {
    let command = crate::escape::text(&settings.argv[0].to_string_lossy());
    let key = &settings.lock.key;
    if error.kind() == io::ErrorKind::NotFound {
        return Failure::new(Outcome::NotFound, format!("{key}: {command}: not found; the lock is released"));
    }
    let hint = if error.raw_os_error() == Some(libc::ENOEXEC) { " (does the script begin with #!?)" } else { "" };
    Failure::new(Outcome::CannotExecute, format!("{key}: {command}: {error}{hint}; the lock is released"))
}

/// Stays beside the command until it has ended, and after a bug of ours still sees to it that it is dead before the
/// lock is given back.
async fn supervise(
    settings: &RunSettings,
    mut holding: Holding,
    leader: Leader,
    signals: &mut Signals,
) -> anyhow::Result<Outcome> {
    let lock = &settings.lock;
    let mut policy = Policy::new(lock.schedule, settings.on_lost, settings.first_signal, holding.deadline());
    let watched = AssertUnwindSafe(watch(lock, &mut policy, &mut holding, &leader, signals)).catch_unwind().await;
    let result =
        watched.unwrap_or_else(|_| Err(Failure::new(Outcome::Bug, "the command was stopped after a bug").into()));
    if let Err(error) = result {
        group::send(leader.group(), Signal::SIGKILL);
        while !group::is_gone(leader.group()) {
            std::thread::sleep(GROUP_LOOKS);
        }
        holding.release().await;
        return Err(error);
    }
    let freed = holding.release().await;
    match freed {
        // The loss has been told already.
        _ if !policy.was_kept() => {}
        Released::NotOurs(how) => {
            let how = if how == Struck::Absent { "was gone" } else { "was somebody else's" };
            let text = format_args!(
                "lost the lock unnoticed: it {how} when the command had ended; another may have run beside it"
            );
            lock.report.problem("lost", text);
        }
        _ => report_release(&lock.report, &freed),
    }
    Ok(policy.outcome(!matches!(freed, Released::NotOurs(_))))
}

/// The loop: what happens goes to the policy, and what the policy says is done.
async fn watch(
    lock: &LockSettings,
    policy: &mut Policy,
    holding: &mut Holding,
    leader: &Leader,
    signals: &mut Signals,
) -> anyhow::Result<()> {
    let report = &lock.report;
    let mut alarm = Alarm::new()?;
    let mut loss = Lost::default();
    let mut killed_at = None;
    report.step("running", format_args!("running, pid {}", leader.group()));
    loop {
        let now = clock::now();
        let (wake_at, looking) = match (policy.wake_at(), policy.waits_for_group()) {
            (at, true) => (at.min(now + GROUP_LOOKS), true),
            (at, false) => (at, false),
        };
        let event = tokio::select! {
            biased;
            () = alarm.reached(wake_at) => {
                if looking && group::is_gone(leader.group()) { Event::GroupGone } else { Event::Tick }
            }
            change = holding.next() => match change {
                Change::Extended(until) => {
                    report.step("renewed", format_args!("renewed for {}", duration::show_rounded(until.since(clock::now()))));
                    loss.trouble = None;
                    Event::Extended(until)
                }
                Change::Trouble(node, fault) => {
                    report.step("trouble", format_args!("{node}: {fault}; trying again"));
                    loss.trouble = Some(format!("{node}: {fault}"));
                    continue;
                }
                Change::Lost(node, how) => {
                    loss.struck = Some((node, how));
                    Event::Lost(how)
                }
                Change::Shielded(until) => Event::Shielded(until),
                Change::Unshielded => Event::Unshielded,
            },
            signal = signals.next() => match (signal, leader.ending()) {
                (Signal::SIGCHLD, Some(ending)) => Event::Ended(ending),
                (Signal::SIGCHLD, None) => continue,
                (signal, _) => {
                    report.step("signal", format_args!("{signal} passed on to the command"));
                    Event::Caught(signal)
                }
            },
        };
        let now = clock::now();
        for action in policy.on(event, now) {
            match action {
                Action::Send(signal) => {
                    group::send(leader.group(), signal);
                    if signal == Signal::SIGKILL {
                        killed_at = Some(now);
                    }
                }
                Action::SendAndContinue(signal) => {
                    group::send(leader.group(), signal);
                    group::send(leader.group(), Signal::SIGCONT);
                }
                Action::SayLost(measure) => report.problem("lost", loss.told(measure)),
                Action::Finish => return Ok(()),
            }
        }
        if killed_at.is_some_and(|at| now >= at + PATIENCE) {
            killed_at = None;
            report.problem(
                "unkillable",
                format_args!(
                    "process group {} was killed and is still there; the lock is kept until it is gone",
                    leader.group()
                ),
            );
        }
    }
}

/// What is known of a loss, for the message.
#[derive(Default)]
struct Lost {
    struck: Option<(String, Loss)>,
    trouble: Option<String>,
}

impl Lost {
    fn told(&self, measure: Measure) -> String {
        let why = match (&self.struck, &self.trouble) {
            (Some((node, Loss::TakenOver)), _) => format!("{node}: somebody else has the key"),
            (Some((node, Loss::Absent)), _) => {
                format!("{node}: the key is gone (deleted, or the server came back without it)")
            }
            (None, Some(trouble)) => format!("it could not be renewed in time: {trouble}"),
            (None, None) => "it could not be renewed in time: rlock itself was held up".to_owned(),
        };
        let done = match measure {
            Measure::Signalled => "the command is being stopped",
            Measure::Killed => "the command was killed",
            Measure::Ignored => "the command goes on (--on-lost warn) and may not be alone",
        };
        format!("lost the lock: {why}; {done}")
    }
}

fn report_release(report: &Reporter, freed: &Released) {
    match freed {
        Released::Ours => report.step("released", "released"),
        Released::NotOurs(_) => report.step("released", "there was nothing of ours to release"),
        Released::Unconfirmed(faults) => {
            for (node, fault) in faults {
                report.note(
                    "unreleased",
                    format_args!("{node}: release not confirmed ({fault}); the lock ends with its lease at the latest"),
                );
            }
        }
    }
}
