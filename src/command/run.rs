//! `rlock run`: takes the lock, runs the command under it, gives it back.

use std::io;

use nix::sys::prctl;

use super::nodes::{block_on, open};
use super::supervise::Job;
use super::wait::{self, Purpose, Waited};
use crate::cli::{RunArgs, Sources};
use crate::exit::{Failure, Outcome};
use crate::job::exec::Image;
use crate::job::found::Found;
use crate::job::group::{self, Contain, Family};
use crate::job::guard::Guard;
use crate::job::policy::Policy;
use crate::job::signals::Signals;
use crate::job::spawn::{Leader, TOO_LATE};
use crate::job::terminal::write_from_the_background;
use crate::lock::census::Census;
use crate::redlock::holding::Holding;
use crate::redlock::look::look;
use crate::redlock::{Nodes, Released};
use crate::report::Reporter;
use crate::settings::{LockSettings, RunSettings};

/// Runs the command under the lock. `guard` was started before there were threads, connections, and more memory than need
/// be copied.
pub fn run(args: RunArgs, sources: &Sources, found: &Found, guard: io::Result<Guard>) -> anyhow::Result<Outcome> {
    let settings = RunSettings::new(args, sources)?;
    group::can_look().map_err(|error| cannot_look(&error))?;
    let guard = guard.map_err(|error| cannot_guard(&settings, &error))?;
    write_from_the_background();
    prctl::set_name(group::NAME)?;
    block_on(run_async(&settings, found, guard))
}

async fn run_async(settings: &RunSettings, found: &Found, guard: Guard) -> anyhow::Result<Outcome> {
    let mut signals = Signals::catch(found)?;
    let nodes = open(&settings.lock.place, settings.lock.schedule.node_timeout())?;
    let outer = tokio::select! {
        biased;
        caught = wait::terminating(&mut signals) => return Ok(wait::ended_by(caught)),
        outer = outer_lock(&nodes, &settings.lock) => outer,
    };
    match outer {
        Outer::None => {}
        Outer::Kept => {
            guard.bury();
            return Err(become_the_command(settings, found).into());
        }
        Outer::Unkept => return Err(unkept(&settings.lock).into()),
    }
    let waited = wait::for_lock(&nodes, &settings.lock, Purpose::Command(&settings.argv[0]), &mut signals);
    // While the nodes are asked there is time for what else the command needs.
    let (waited, image) = tokio::join!(biased; waited, image(settings));
    let holding = match waited? {
        Waited::Won(holding) => *holding,
        Waited::Over(outcome) => return Ok(outcome),
    };
    // What came between the wait and the command's start still means: do not run it.
    if let Some(caught) = signals.ended() {
        report_release(&settings.lock.report, &holding.release().await);
        return Ok(wait::ended_by(caught));
    }
    match image.and_then(|image| start(image, settings, found, &holding, signals, guard)) {
        Ok(job) => job.supervise(&settings.lock, holding).await,
        Err(error) => {
            report_release(&settings.lock.report, &holding.release().await);
            Err(cannot_start(settings, &error, "; the lock is released").into())
        }
    }
}

/// The command, but for what only the lock can tell it.
async fn image(settings: &RunSettings) -> io::Result<Image> {
    tokio::task::yield_now().await;
    let mut image = Image::new(&settings.argv)?;
    settings.environment.iter().try_for_each(|(name, value)| image.set(name, value))?;
    Ok(image)
}

fn start(
    mut image: Image,
    settings: &RunSettings,
    found: &Found,
    holding: &Holding,
    signals: Signals,
    mut guard: Guard,
) -> io::Result<Job> {
    signals.catch_for_command()?;
    let contain = settings.policy.contain;
    if contain {
        // Processes whose parent ends become our children, and so are found however they changed group or session.
        prctl::set_child_subreaper(true)?;
    }
    let before = if contain { group::own_children() } else { Vec::new() };
    let policy = Policy::new(settings.policy, holding.deadline(), crate::clock::now());
    let token = holding.token();
    image.set("RLOCK_TOKEN", token.to_string().as_ref())?;
    image.set("RLOCK_FENCE", holding.fence().to_string().as_ref())?;
    guard.prepare(contain.then(|| token.as_uuid()), holding.descriptor())?;
    let leader = Leader::start(image, found, &guard, policy.guard_kills_at())?;
    let rlock = nix::unistd::getpid();
    let contain = if contain { Contain::Below { rlock, guard: guard.pid(), before } } else { Contain::No };
    Ok(Job::new(Family::new(leader.group(), contain), leader, guard, policy, signals))
}

/// The lock that the command we are part of runs under.
enum Outer {
    /// Not this one.
    None,
    /// This very one: we would wait for ourselves.
    Kept,
    /// This one, and no rlock keeps it.
    Unkept,
}

/// The token is checked with the nodes, so that variables that lie change nothing.
async fn outer_lock(nodes: &Nodes, lock: &LockSettings) -> Outer {
    let Some(token) = lock.outer else { return Outer::None };
    let certain = |census: &Census| census.is_held_by(token).is_some();
    let looks = look(nodes, &lock.key, lock.schedule.node_timeout(), certain).await;
    let census = looks.census();
    let holder = census.foremost().and_then(|(occupant, _)| occupant.holder());
    match (census.is_held_by(token), holder) {
        (Some(true), Some((_, details))) if details.acquired => Outer::Unkept,
        (Some(true), _) => Outer::Kept,
        _ => Outer::None,
    }
}

/// Under it the command would run on when it ends.
fn unkept(lock: &LockSettings) -> Failure {
    let why = "held by rlock acquire already, with the RLOCK_TOKEN of this environment: release it first, or ask rlock check and run the command without rlock run";
    Failure::new(Outcome::Usage, format!("{}: {why}", lock.key))
}

/// The outer rlock keeps the lock, and its command's processes from outliving it; there is nothing to do beside that, so
/// no rlock stays between the two. Returns if the command cannot be executed.
fn become_the_command(settings: &RunSettings, found: &Found) -> Failure {
    let key = &settings.lock.key;
    if settings.policy.max_run.is_some() || settings.policy.contain {
        let message = format!("{key}: the rlock that runs us holds it: give --max-run and --contain to that one");
        return Failure::new(Outcome::Usage, message);
    }
    settings.lock.report.step("nested", "the rlock that runs us holds it; running under its lock");
    let replaced = Image::new(&settings.argv).map(|image| image.replace_us(found));
    cannot_start(settings, &replaced.unwrap_or_else(|error| error), "")
}

fn cannot_look(error: &io::Error) -> Failure {
    let message =
        format!("cannot read /proc ({error}), and so could not see that a command has ended; nothing was run");
    Failure::new(Outcome::Config, message)
}

fn cannot_guard(settings: &RunSettings, error: &io::Error) -> Failure {
    let message = format!("{}: cannot start the guard: {error}; nothing was run", settings.lock.key);
    Failure::new(Outcome::CannotExecute, message)
}

/// `end` says what became of the lock.
fn cannot_start(settings: &RunSettings, error: &io::Error, end: &str) -> Failure {
    let command = crate::escape::text(&settings.argv[0].to_string_lossy());
    let key = &settings.lock.key;
    let (outcome, why) = match error.raw_os_error() {
        Some(libc::ENOENT) => (Outcome::NotFound, "not found".to_owned()),
        Some(libc::ENOEXEC) => (Outcome::CannotExecute, format!("{error} (does the script begin with #!?)")),
        Some(TOO_LATE) => (Outcome::Lost, "the lease was over before it could be started".to_owned()),
        _ => (Outcome::CannotExecute, error.to_string()),
    };
    Failure::new(outcome, format!("{key}: {command}: {why}{end}"))
}

/// Says what became of a release; silent if all is well.
pub(super) fn report_release(report: &Reporter, freed: &Released) {
    match freed {
        Released::Ours => report.step("released", "released"),
        Released::NotOurs(_) => report.step("released", "there was nothing of ours to release"),
        Released::Unconfirmed(faults) => {
            for (node, fault) in faults {
                let text =
                    format_args!("{node}: release not confirmed ({fault}); the lock ends with its lease at the latest");
                report.note("unreleased", text);
            }
        }
    }
}
