//! `rlock run`: acquires the locks, runs the command under them, gives the locks back.

use std::io;
use std::process::Command;
use std::rc::Rc;

use nix::sys::prctl;
use tokio::sync::watch;

mod heir;
mod supervise;

use super::acquisition;
use super::cover::{Cover, report_releases};
use crate::cli::RunArgs;
use crate::clock::Alarm;
use crate::command::block_on;
use crate::exit::{self, Failure, Outcome, is_shortage, told_of_system};
use crate::hold::ReleaseOutcome;
use crate::job::guard::Guard;
use crate::job::process_tree::{self, ProcessTree};
use crate::job::signals::Signals;
use crate::job::spawn::Inherited;
use crate::job::spawn::{self, Leader, TOO_LATE};
use crate::job::terminal::block_sigttou;
use crate::lock::remains::Remains;
use crate::lock::waiting::Blocked;
use crate::metrics::Metrics;
use crate::report::{self, Event, Log, failures};
use crate::secret::without_secrets;
use crate::settings::{LockSettings, RunSettings, Sources};
use crate::text::escape;
use supervise::{Job, Started};

/// Runs the command under the locks.
pub fn run(args: RunArgs, sources: &Sources, inherited: &Inherited) -> anyhow::Result<Outcome> {
    let settings = Rc::new(RunSettings::new(args.clone(), sources)?);
    process_tree::check_proc().map_err(|error| {
        let (outcome, why) = unusable_proc(&error);
        Failure::about(
            &settings.lock.keys,
            outcome,
            format!("{why}; nothing was run"),
        )
    })?;
    block_sigttou();
    prctl::set_name(process_tree::RLOCK)?;
    // Forked while rlock has one thread and no connection.
    let guard = Guard::start(heir::of(&settings, args, sources.clone()));
    let guard = guard.map_err(|error| {
        let why = format!(
            "cannot start the guard: {}; nothing was run",
            told_of_system(&error)
        );
        Failure::about(&settings.lock.keys, Outcome::System, why)
    })?;
    let report = &settings.lock.report;
    let mut metrics = settings
        .metrics
        .as_ref()
        .map(|directory| Metrics::new(directory, &settings.lock.keys));
    let ran = block_on(run_async(&settings, inherited, guard, &mut metrics));
    if let (Some(metrics), Some(directory)) = (metrics, &settings.metrics) {
        let outcome = ran
            .as_ref()
            .map_or_else(exit::outcome_of, |outcome| *outcome);
        if let Err(why) = metrics.ended(outcome) {
            let directory = escape::text(&directory.to_string_lossy());
            report.say(&Event::MetricsUnwritten {
                directory: &directory,
                why: &why,
            });
        }
    }
    let outcome = ran?;
    // The shell tells people the exit code.
    if report.log != Log::Text {
        report.say(&Event::Exit { outcome });
    }
    Ok(outcome)
}

fn unusable_proc(error: &io::Error) -> (Outcome, String) {
    if is_shortage(error) {
        return (
            Outcome::System,
            format!("cannot read /proc: {}", told_of_system(error)),
        );
    }
    let remedy = "mount a /proc of this namespace (unshare --mount-proc)";
    (
        Outcome::Config,
        format!("/proc: {error}, so rlock could not see a command end; {remedy}"),
    )
}

async fn run_async(
    settings: &RunSettings,
    inherited: &Inherited,
    mut guard: Guard,
    metrics: &mut Option<Metrics>,
) -> anyhow::Result<Outcome> {
    let mut signals = Signals::catch(inherited)?;
    signals.reap_all_but(&[guard.pid()]);
    // Made here for the supervision too: at the command's start there may be no descriptor left.
    let mut alarm = Alarm::new()?;
    let lock = &settings.lock;
    let cover = match acquisition::take(lock, Some(&guard), &mut signals, &mut alarm).await? {
        Ok(cover) => cover,
        Err(outcome) => return Ok(outcome),
    };
    let cover = match find_earlier(lock, cover).await? {
        Ok(cover) => cover,
        Err(outcome) => return Ok(outcome),
    };
    if cover.is_outer() {
        // The outer run's are the lock's.
        *metrics = None;
    }
    // A signal between the wait and the command's start still ends the wait.
    if let Some(caught) = signals.interruption() {
        cover.give_up(&lock.report).await;
        return Ok(acquisition::end_by(caught));
    }
    match start(settings, inherited, &cover, &mut signals, &mut guard) {
        Ok(started) => {
            if let Some(metrics) = metrics {
                metrics.started();
            }
            Job::new(started, guard, signals, alarm)
                .supervise(lock, cover)
                .await
        }
        Err(error) => {
            let end = match &cover {
                Cover::Own(holdings) if holdings.count() > 1 => "; the locks are released",
                Cover::Own(_) => "; the lock is released",
                Cover::Outer(..) => "",
            };
            cover.give_up(&lock.report).await;
            Err(cannot_start(settings, &error, end).into())
        }
    }
}

/// Looks for an earlier success under `--once`. Returns the locks if the command may run, else how
/// rlock ends, with the lock given back.
async fn find_earlier(lock: &LockSettings, cover: Cover) -> anyhow::Result<Result<Cover, Outcome>> {
    let Some(within) = lock.remains.once else {
        return Ok(Ok(cover));
    };
    let holdings = match &cover {
        Cover::Own(holdings) => holdings,
        // The outer rlock releases the lock, and knows of no success inside its command.
        Cover::Outer(_, holders) => {
            let why =
                "and this is part of its command, whose success alone counts: give --once outside";
            let why = format!("{}, {why}", holders[0].named());
            return Err(failures::forbidden_by(&holders[0], why)
                .of(&lock.keys)
                .into());
        }
    };
    match holdings.run_before(within).await {
        Ok(Ok(None)) => Ok(Ok(cover)),
        Ok(Ok(Some(run))) => {
            lock.report.say_to_user(&Event::RunBefore { run: &run });
            let remains = Remains {
                earlier: Some(run),
                once: Some(within),
                ..Remains::default()
            };
            let freed = cover.release(&remains, &watch::channel(false).1).await;
            report_releases(&lock.report, &freed);
            let is_unconfirmed = |freed| matches!(freed, &ReleaseOutcome::Unconfirmed(_));
            if freed.iter().any(is_unconfirmed) {
                lock.report.say(&Event::SuccessUnknown);
            }
            Ok(Err(Outcome::Done))
        }
        Ok(Err(faults)) => {
            cover.give_up(&lock.report).await;
            // Without a fault the nodes answer, and too few of them have the lock as ours any more.
            let blocked = if faults.is_empty() {
                Blocked::TooLate
            } else {
                Blocked::Unreachable(faults, lock.waiting.quorum)
            };
            Err(failures::unreachable(&blocked).of(&lock.keys).into())
        }
        Err(error) => {
            cover.give_up(&lock.report).await;
            Err(error.into())
        }
    }
}

fn start(
    settings: &RunSettings,
    inherited: &Inherited,
    cover: &Cover,
    signals: &mut Signals,
    guard: &mut Guard,
) -> io::Result<Started> {
    signals.catch_for_command()?;
    let mut command = Command::new(&settings.argv[0]);
    command
        .args(&settings.argv[1..])
        .envs(settings.environment.iter().cloned());
    let contain = settings.policy.contain;
    if contain {
        // rlock adopts orphans, so it finds them even if they changed group or session.
        prctl::set_child_subreaper(true)?;
    }
    let nested = cover.listen(&settings.policy, guard)?;
    let policy = cover.policy(settings.policy);
    let mark = cover.describe(&mut command, &settings.lock);
    let fences: Vec<_> = cover.grants().into_iter().map(|(_, fence)| fence).collect();
    guard.prepare(mark, contain, &fences, cover.descriptors())?;
    let before = contain.then(process_tree::own_children);
    // rlock's lines stand above the command's output, and are not erased below it.
    report::settle();
    let leader = Leader::start(&mut command, inherited, guard, policy.guard_kills_at())?;
    signals.reap_all_but(&[guard.pid(), leader.group()]);
    Ok((
        ProcessTree::new(leader.group(), before),
        leader,
        policy,
        nested,
    ))
}

/// Returns the failure of a command that `error` kept from starting. `lock` says whether the lock
/// was released.
fn cannot_start(settings: &RunSettings, error: &io::Error, lock: &str) -> Failure {
    let program = &settings.argv[0];
    let typed = program.to_string_lossy();
    let more = if typed.contains(char::is_whitespace) {
        " …"
    } else {
        ""
    };
    let command = escape::text(&without_secrets(&typed)) + more;
    let (outcome, why) = match error.raw_os_error() {
        Some(libc::ENOENT) if spawn::existing(program).is_some() => {
            let why = "it is there, but the interpreter that its first line names (#!), or its loader (ld.so), is not";
            (
                Outcome::NotFound,
                format!("{why}; a line that ends with a carriage return names none"),
            )
        }
        Some(libc::ENOENT) if typed.starts_with(['/', '.']) => {
            (Outcome::NotFound, "not found".to_owned())
        }
        Some(libc::ENOENT) => {
            let why = "not found; a line or a word for a shell (cd, A=1) goes behind -c";
            (Outcome::NotFound, why.to_owned())
        }
        Some(libc::ENOEXEC) => (
            Outcome::CannotExecute,
            format!("{error} (does the script begin with #!?)"),
        ),
        Some(TOO_LATE) => (
            Outcome::Lost,
            "the lease was over before it could be started".to_owned(),
        ),
        _ if is_shortage(error) => (Outcome::System, error.to_string()),
        _ => (Outcome::CannotExecute, error.to_string()),
    };
    Failure::about(
        &settings.lock.keys,
        outcome,
        format!("{command}: {why}{lock}"),
    )
}
