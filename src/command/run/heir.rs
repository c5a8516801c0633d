//! The work of a guard whose rlock has gone: it says so, gives the locks back, and writes the
//! metrics of the end.
//!
//! 1. The command is dead by then. Until that the guard allocates nothing for any of this.
//! 2. It keeps no descriptor that a caller of rlock waits on: stderr is closed before the first
//!    node is asked.
//! 3. Files of passwords and certificates are read again, for they may have changed since rlock was
//!    started.
//! 4. A release is repeated until a majority has answered it, for as long as the lease may last,
//!    and for [`LONGEST`] at most.
//! 5. Its new connection may overtake a request of the dead rlock. So it is sent once more, a node
//!    timeout later.

use std::io;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use uuid::Uuid;

use crate::cli::RunArgs;
use crate::clock::{self, Alarm};
use crate::command::caller::Caller;
use crate::command::{block_on, open_each};
use crate::hold::{Nodes, outside};
use crate::job::guard::{Heir, Left};
use crate::lock::fence::Fence;
use crate::lock::instant::Instant;
use crate::lock::last::{Note, Run};
use crate::lock::token::Token;
use crate::metrics::{self, RunEnd, RunState};
use crate::report::{self, Event};
use crate::settings::{LockSettings, RunSettings, Sources};
use crate::store::Feature;
use crate::text::duration::millis;

/// Longest time for which a release is repeated.
const LONGEST: Duration = Duration::from_secs(30);

/// Returns the heir of the run with these settings, which follow from `args`.
pub(super) fn of(settings: &Rc<RunSettings>, args: RunArgs, sources: Sources) -> Heir {
    let settings = Rc::clone(settings);
    let begun = SystemTime::now();
    Rc::new(move |left| {
        if left.killed_since.is_some() {
            report::say_at_once(
                settings.lock.report.log,
                &Event::RlockKilled,
                &settings.lock.report.keys,
            );
        }
        // SAFETY: the guard has no other use for it.
        unsafe { libc::close(libc::STDERR_FILENO) };
        let run = left
            .killed_since
            .map(|since| describe_killed(&settings, since));
        if gives_back(&settings.lock) && left.locks.iter().any(Option::is_some) {
            let fresh = RunSettings::new(args.clone(), &sources);
            give_back(
                fresh.as_ref().map_or(&settings.lock, |fresh| &fresh.lock),
                &left.locks,
                run.as_ref(),
            );
        }
        write_metrics(&settings, begun, &left);
    })
}

/// Whether a guard gives these locks back. One on this machine ends with the guard, which has its
/// descriptor. With --lock-delay the lock outlasts a killed rlock.
pub(super) fn gives_back(lock: &LockSettings) -> bool {
    lock.store.has(Feature::Parking) && lock.schedule().term().lock_delay().is_zero()
}

/// Returns the run whose command the guard has killed, and which ran since then.
fn describe_killed(settings: &RunSettings, since: Instant) -> Run {
    let Caller { host, user } = Caller::new();
    let end = clock::unix_millis(SystemTime::now());
    let start = end.saturating_sub(millis(clock::now().since(since)));
    Run {
        host,
        user,
        cmd: settings.lock.name.clone(),
        start,
        end,
        ..Run::default()
    }
}

fn give_back(lock: &LockSettings, locks: &[Option<(Uuid, Option<Fence>)>], run: Option<&Run>) {
    let work = || {
        let _ = block_on(async {
            let ends = clock::now() + lock.schedule().ttl().min(LONGEST);
            let nodes = open_each(lock)?;
            let held = nodes.iter().zip(locks);
            let held = held.filter_map(|(nodes, held)| Some((nodes, (*held)?)));
            join_all(held.map(|(nodes, (token, fence))| {
                let token = Token::of_uuid(token);
                let note = run
                    .cloned()
                    .zip(fence)
                    .map(|(run, fence)| Note::of(run, fence, token));
                release_until(lock, nodes, token, note, ends)
            }))
            .await;
            Ok(())
        });
    };
    // A guard that replaced another was forked within rlock's runtime, and to tokio its first
    // thread still runs that.
    if tokio::runtime::Handle::try_current().is_err() {
        return work();
    }
    std::thread::scope(|scope| {
        let _ = std::thread::Builder::new()
            .spawn_scoped(scope, work)
            .map(std::thread::ScopedJoinHandle::join);
    });
}

async fn release_until(
    lock: &LockSettings,
    nodes: &Nodes,
    token: Token,
    note: Option<Note>,
    ends: Instant,
) -> io::Result<()> {
    let (limit, mut alarm) = (lock.schedule().node_timeout(), Alarm::new()?);
    while outside::release(nodes, token, note.clone(), limit)
        .await
        .is_majority(nodes.quorum())
        .is_none()
    {
        let next = clock::now() + lock.schedule().retry();
        if next >= ends {
            return Ok(());
        }
        alarm.reached(next).await;
    }
    alarm.reached(clock::now() + limit).await;
    outside::release(nodes, token, note, limit).await;
    Ok(())
}

/// Writes the metrics of a run whose command the guard has killed.
fn write_metrics(settings: &RunSettings, begun: SystemTime, left: &Left) {
    let (Some(directory), Some(since)) = (&settings.metrics, left.killed_since) else {
        return;
    };
    let end = RunEnd::killed();
    let begun = begun
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let started = end.at.saturating_sub(clock::now().since(since));
    for key in settings.lock.keys.iter() {
        let _ = metrics::write(
            directory,
            key,
            &RunState {
                begun,
                started: Some(started),
                end: Some(end),
            },
        );
    }
}
