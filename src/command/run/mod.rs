//! `rlock run`: acquires the locks, runs the command under them, gives the locks back.

use std::io;
use std::process::Command;
use std::rc::Rc;

use nix::sys::prctl;
use uuid::Uuid;

mod cover;
mod heir;
pub(super) mod joining;
mod once;
mod supervise;

use super::acquisition::Purpose;
use super::acquisition::{self, Acquired};
use super::common::{block_on, open_each, warn_of_note};
use crate::cli::RunArgs;
use crate::clock::Alarm;
use crate::exit::{self, Failure, Outcome, is_shortage, told_of_system};
use crate::job::guard::Guard;
use crate::job::inherited::Inherited;
use crate::job::process_tree::{self, ProcessTree};
use crate::job::signals::Signals;
use crate::job::spawn::{self, Leader, TOO_LATE};
use crate::job::terminal::block_sigttou;
use crate::lock::key::list;
use crate::lock::outer;
use crate::metrics::Metrics;
use crate::report::{self, Event, Log, failures};
use crate::secret::without_secrets;
use crate::settings::{RunSettings, Sources};
use crate::text::{duration, escape};
use cover::Cover;
pub(super) use cover::report_change;
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
    warn_of_note(&settings.lock);
    let report = &settings.lock.report;
    let mut metrics = settings
        .metrics
        .as_ref()
        .map(|directory| Metrics::new(directory, &settings.lock.keys));
    let ran = block_on(run_async(&settings, inherited, guard, &mut metrics));
    if let Some(metrics) = metrics {
        let outcome = ran
            .as_ref()
            .map_or_else(exit::outcome_of, |outcome| *outcome);
        metrics.ended(outcome, report);
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
    let nodes = open_each(&settings.lock)?;
    // Made here for the supervision too: at the command's start there may be no descriptor left.
    let mut alarm = Alarm::new()?;
    let purpose = Purpose::Command(&settings.name, &guard);
    let waited =
        acquisition::take(&nodes, &settings.lock, purpose, &mut signals, &mut alarm).await?;
    let cover = match waited {
        Acquired::Won(holdings) => Cover::Own(holdings),
        // The outer rlock releases the lock, and knows of no success inside its command.
        Acquired::Nested(_, holders) if settings.remains.once.is_some() => {
            let why =
                "and this is part of its command, whose success alone counts: give --once outside";
            let failure =
                failures::forbidden_by(&holders[0], format!("{}, {why}", holders[0].named()));
            return Err(failure.of(&settings.lock.keys).into());
        }
        Acquired::Nested(outer, holders) => {
            // The outer run's are the lock's.
            *metrics = None;
            Cover::Outer(outer, holders)
        }
        Acquired::Over(outcome) => return Ok(outcome),
    };
    let cover = match once::unless_done(settings, &nodes[0], cover).await? {
        Ok(cover) => cover,
        Err(outcome) => return Ok(outcome),
    };
    // A signal between the wait and the command's start still ends the wait.
    if let Some(caught) = signals.interruption() {
        cover.give_up(&settings.lock.report).await;
        return Ok(acquisition::ended_by(caught));
    }
    match start(settings, inherited, &cover, &mut signals, &mut guard) {
        Ok(started) => {
            if let Some(metrics) = metrics {
                metrics.started();
            }
            Job::new(started, guard, signals, alarm)
                .supervise(&settings.lock, settings.remains, cover)
                .await
        }
        Err(error) => {
            let end = match &cover {
                Cover::Own(holdings) if holdings.count() > 1 => "; the locks are released",
                Cover::Own(_) => "; the lock is released",
                Cover::Outer(..) => "",
            };
            cover.give_up(&settings.lock.report).await;
            Err(cannot_start(settings, &error, end).into())
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
    set_lock_variables(&mut command, settings, cover);
    let mark = set_mark(&mut command, cover);
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

/// Sets the variables that describe the locks.
fn set_lock_variables(command: &mut Command, settings: &RunSettings, cover: &Cover) {
    let grants = cover.grants();
    let held = grants
        .iter()
        .fold(settings.lock.outer.clone(), |held, (token, fence)| {
            held.with(*token, *fence)
        });
    command.env("RLOCK_TOKEN", list(grants.iter().map(|(token, _)| token)));
    command.env("RLOCK_FENCE", list(grants.iter().map(|(_, fence)| fence)));
    command.env(outer::VARIABLE, held.to_string());
    let slots = cover.slots(settings.lock.mode);
    if slots.is_empty() {
        // It would be that of another lock.
        command.env_remove("RLOCK_SLOT");
    } else {
        command.env("RLOCK_SLOT", list(slots));
    }
    if let Cover::Outer(outer, _) = cover {
        command.env("RLOCK_TTL", duration::show(outer.ttl()));
    }
}

/// Sets and returns the mark by which the guard finds the command's processes: one of the tokens.
/// For a nested run no token can be the mark: the outer command's processes have it too.
fn set_mark(command: &mut Command, cover: &Cover) -> Uuid {
    if let Cover::Own(holdings) = cover
        && let Some((token, _)) = holdings.grants().next()
    {
        return token.as_uuid();
    }
    let mark = Uuid::new_v4();
    command.env(process_tree::NESTED_MARK, mark.hyphenated().to_string());
    mark
}
