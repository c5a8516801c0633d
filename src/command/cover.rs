//! The locks that cover the command: our own, or those of the outer rlock in whose command we are
//! nested.

use std::io;
use std::os::fd::RawFd;
use std::process::Command;

use tokio::sync::watch;
use uuid::Uuid;

use crate::clock;
use crate::hold::ReleaseOutcome;
use crate::hold::holding::Change;
use crate::hold::holdings::{Changed, Holdings};
use crate::job::guard::Guard;
use crate::job::nested::outer::OuterRun;
use crate::job::nested::runs::NestedRuns;
use crate::job::policy::{JobEvent, Policy, PolicyOptions};
use crate::job::process_tree;
use crate::lock::fence::Fence;
use crate::lock::key::list;
use crate::lock::lease::{LeaseChange, Loss};
use crate::lock::mode::Mode;
use crate::lock::occupant::Occupant;
use crate::lock::outer::{self, OuterLocks};
use crate::lock::remains::Remains;
use crate::lock::token::Token;
use crate::report::{Event, Reporter};
use crate::settings::LockSettings;
use crate::text::duration;

/// The locks that exclude other clients while the command runs.
pub(super) enum Cover {
    /// Our own locks, which we renew and give back.
    Own(Holdings),
    /// The locks of an outer rlock, which renews them and gives them back, and that rlock as the
    /// nodes described it for each.
    Outer(OuterRun, Vec<Occupant>),
}

impl Cover {
    /// The token and the fence of each lock.
    pub(super) fn grants(&self) -> Vec<(Token, Fence)> {
        match self {
            Self::Own(holdings) => holdings.grants().collect(),
            Self::Outer(outer, _) => outer.grants().to_vec(),
        }
    }

    /// The descriptors that the guard keeps open until the command is dead.
    pub(super) fn descriptors(&self) -> Vec<RawFd> {
        match self {
            Self::Own(holdings) => holdings.descriptors(),
            Self::Outer(outer, _) => outer.descriptors(),
        }
    }

    /// Sets the variables that describe the locks. Returns the mark by which the guard finds the
    /// command's processes.
    pub(super) fn describe(&self, command: &mut Command, lock: &LockSettings) -> Uuid {
        let grants = self.grants();
        let held = grants
            .iter()
            .fold(lock.waiting.outer.clone(), |held, (token, fence)| {
                held.with(*token, *fence)
            });
        command.env("RLOCK_TOKEN", list(grants.iter().map(|(token, _)| token)));
        command.env("RLOCK_FENCE", list(grants.iter().map(|(_, fence)| fence)));
        command.env(outer::VARIABLE, held.to_string());
        let slots = self.slots(lock.mode);
        if slots.is_empty() {
            // It would be that of another lock.
            command.env_remove("RLOCK_SLOT");
        } else {
            command.env("RLOCK_SLOT", list(slots));
        }
        match self {
            Self::Own(_) => grants[0].0.as_uuid(),
            // No token can be the mark: the outer command's processes have it too.
            Self::Outer(outer, _) => {
                command.env("RLOCK_TTL", duration::show(outer.ttl()));
                let mark = Uuid::new_v4();
                command.env(process_tree::NESTED_MARK, mark.hyphenated().to_string());
                mark
            }
        }
    }

    /// Returns the number of the command's slot of each lock, if they are of a kind with slots.
    /// Under an exclusive lock there is one.
    fn slots(&self, mode: Mode) -> Vec<u16> {
        match self {
            Self::Own(holdings) => holdings.slots().flatten().collect(),
            Self::Outer(_, holders) if mode.number().is_some() => holders
                .iter()
                .map(|holder| holder.seat.index.max(1))
                .collect(),
            Self::Outer(..) => Vec::new(),
        }
    }

    /// Returns the policy for a command that starts now.
    pub(super) fn policy(&self, options: PolicyOptions) -> Policy {
        match self {
            Self::Own(holdings) => Policy::new(options, holdings.deadline(), clock::now()),
            Self::Outer(outer, _) => Policy::nested(options, outer.terms(), clock::now()),
        }
    }

    /// Listens for runs that are nested in the command. Under an outer lock they connect to the
    /// outer rlock instead.
    pub(super) fn listen(
        &self,
        options: &PolicyOptions,
        guard: &Guard,
    ) -> io::Result<Option<NestedRuns>> {
        match self {
            Self::Own(holdings) => {
                let held = holdings
                    .grants()
                    .fold(OuterLocks::default(), |held, (token, fence)| {
                        held.with(token, fence)
                    });
                NestedRuns::listen(held, options.schedule.ttl(), guard.end_for_nested()?).map(Some)
            }
            Self::Outer(..) => Ok(None),
        }
    }

    /// Reports the next change. Returns the policy's event for it, and the lock that is lost.
    /// Cancel safe.
    pub(super) async fn next(&mut self, report: &Reporter) -> (Option<JobEvent>, Option<usize>) {
        let holdings = match self {
            Self::Own(holdings) => holdings,
            // Without new terms the outer rlock has ended, and another client may have the lock by
            // now.
            Self::Outer(outer, _) => {
                let terms = outer.next().await;
                let lost = JobEvent::Lease(LeaseChange::Lost(Loss::TakenOver));
                return (Some(terms.map_or(lost, JobEvent::TermsReceived)), None);
            }
        };
        let Changed {
            lock,
            change,
            of_all,
        } = holdings.next().await;
        report_change(&report.of(&report.keys[lock]), &change);
        let is_lost = matches!(of_all, Some(LeaseChange::Lost(_)));
        (of_all.map(JobEvent::Lease), is_lost.then_some(lock))
    }

    /// Returns which lock is being lost, and why, for a message.
    pub(super) fn loss_cause(&self, loss: Option<Loss>) -> (usize, String) {
        match self {
            Self::Own(holdings) => {
                let lock = holdings.weakest();
                let faults = holdings
                    .faults(lock)
                    .map(|(node, fault)| format!("{node}: {fault}"));
                let faults = faults.collect::<Vec<_>>().join("; ");
                let why = match loss {
                    Some(_) => faults,
                    None if faults.is_empty() => {
                        "it could not be renewed in time: rlock itself was stopped or overloaded"
                            .to_owned()
                    }
                    None => format!("it could not be renewed in time: {faults}"),
                };
                (lock, why)
            }
            Self::Outer(_, holders) => {
                let who = holders[0].named();
                let why = if loss.is_some() {
                    format!("the outer rlock ended or lost it ({who})")
                } else {
                    format!(
                        "the outer rlock is stopping its command, or was stopped itself ({who})"
                    )
                };
                (0, why)
            }
        }
    }

    /// Whether the locks are those of an outer rlock.
    pub(super) fn is_outer(&self) -> bool {
        matches!(self, Self::Outer(..))
    }

    /// Gives our own locks back, leaving `remains`; returns the outcome for each. The command is
    /// dead, or has ended by itself. Nothing is repeated once rlock is `hurried`.
    pub(super) async fn release(
        self,
        remains: &Remains,
        hurried: &watch::Receiver<bool>,
    ) -> Vec<ReleaseOutcome> {
        match self {
            Self::Own(holdings) => holdings.release_unless(remains, hurried).await,
            Self::Outer(..) => vec![],
        }
    }

    /// Gives our own locks back and reports the outcome. The command was never started.
    pub(super) async fn give_up(self, report: &Reporter) {
        if let Self::Own(holdings) = self {
            report_releases(report, &holdings.release(&Remains::default()).await);
        }
    }
}

/// Reports the outcomes of the releases of all locks of `report`.
pub(super) fn report_releases(report: &Reporter, freed: &[ReleaseOutcome]) {
    for (key, freed) in report.keys.iter().zip(freed) {
        report_release(&report.of(key), freed);
    }
}

/// Reports the outcome of a release.
pub(super) fn report_release(report: &Reporter, freed: &ReleaseOutcome) {
    match freed {
        ReleaseOutcome::Ours => report.say(&Event::Released),
        ReleaseOutcome::NotOurs(_) => report.say(&Event::NothingToRelease),
        ReleaseOutcome::Unconfirmed(faults) => {
            for there in faults.iter() {
                report.say(&Event::NotReleased {
                    node: &there.name,
                    why: &there.fault.why,
                });
            }
        }
    }
}

/// Reports what has become of one lock's lease, unless it is lost.
pub(super) fn report_change(report: &Reporter, change: &Change) {
    match change {
        Change::Lease(LeaseChange::Extended(until)) => report.say(&Event::Renewed {
            left: until.since(clock::now()),
        }),
        Change::Trouble(node, fault) => report.say(&Event::RenewalFailed {
            node,
            why: &fault.why,
        }),
        Change::Refused(node, fault) => report.say(&Event::Refused { node, fault }),
        Change::Failing { since, left, why } => report.say(&Event::RenewalsFail {
            since: *since,
            left: *left,
            why,
        }),
        Change::Lease(
            LeaseChange::Lost(_) | LeaseChange::Shielded(_) | LeaseChange::Unshielded,
        ) => {}
    }
}
