//! The lock that covers the command: our own, or that of an outer rlock in whose command we are nested.

use std::io;
use std::os::fd::RawFd;

use crate::clock;
use crate::command::released::report_release;
use crate::job::nested::outer::{OuterRun, Update};
use crate::job::nested::runs::NestedRuns;
use crate::job::policy::{Event, Policy, PolicyOptions};
use crate::lock::fence::Fence;
use crate::lock::lease::Loss;
use crate::lock::token::Token;
use crate::redlock::ReleaseOutcome;
use crate::redlock::holding::{Change, Holding};
use crate::report::Reporter;
use crate::text::duration;

/// What keeps others out while the command runs.
pub(super) enum Cover {
    /// A lock of our own, which we renew and give back.
    Own(Box<Holding>),
    /// The lock of an outer rlock, which does that. Who it is, for people.
    Outer(OuterRun, String),
}

/// What has become of it.
pub(super) enum News {
    Own(Change),
    Outer(Update),
}

impl Cover {
    pub(super) fn token(&self) -> Token {
        match self {
            Self::Own(holding) => holding.token(),
            Self::Outer(outer, _) => outer.token(),
        }
    }

    pub(super) fn fence(&self) -> Fence {
        match self {
            Self::Own(holding) => holding.fence(),
            Self::Outer(outer, _) => outer.fence(),
        }
    }

    /// What the guard keeps open until the command is dead.
    pub(super) fn descriptor(&self) -> Option<RawFd> {
        match self {
            Self::Own(holding) => holding.descriptor(),
            Self::Outer(outer, _) => Some(outer.descriptor()),
        }
    }

    /// The policy for a command that starts now.
    pub(super) fn policy(&self, wishes: PolicyOptions) -> Policy {
        match self {
            Self::Own(holding) => Policy::new(wishes, holding.deadline(), clock::now()),
            Self::Outer(outer, _) => Policy::nested(wishes, outer.terms(), clock::now()),
        }
    }

    /// Listens for runs that are nested in the command. Those of a nested one turn to the outer rlock.
    pub(super) fn listen(&self, wishes: &PolicyOptions) -> io::Result<Option<NestedRuns>> {
        match self {
            Self::Own(holding) => NestedRuns::listen(holding.token(), holding.fence(), wishes.schedule.ttl()).map(Some),
            Self::Outer(..) => Ok(None),
        }
    }

    /// The next news. May be dropped and called again.
    pub(super) async fn next(&mut self) -> News {
        match self {
            Self::Own(holding) => News::Own(holding.next().await),
            Self::Outer(outer, _) => News::Outer(outer.next().await),
        }
    }

    /// Why the lock is being lost, as far as its keeper knows.
    pub(super) fn trouble(&self, loss: Option<Loss>) -> String {
        match self {
            Self::Own(holding) => {
                let faults = holding.faults().map(|(node, fault)| format!("{node}: {fault}"));
                let faults = faults.collect::<Vec<_>>().join("; ");
                match loss {
                    Some(_) => faults,
                    None if faults.is_empty() => "it could not be renewed in time: rlock itself was held up".to_owned(),
                    None => format!("it could not be renewed in time: {faults}"),
                }
            }
            Self::Outer(_, who) if loss.is_some() => format!("the outer rlock ended or lost it ({who})"),
            Self::Outer(_, who) => format!("the outer rlock is stopping its command, or was held up ({who})"),
        }
    }

    /// The command is dead, or has ended by itself: gives the lock back if it is ours to give.
    pub(super) async fn release(self, report: &Reporter) -> ReleaseOutcome {
        match self {
            Self::Own(holding) => {
                report.step("ended", "the command has ended; giving the lock back");
                holding.release().await
            }
            Self::Outer(..) => {
                report.step("ended", "the command has ended; the outer rlock keeps the lock");
                ReleaseOutcome::Ours
            }
        }
    }

    /// The command was never started: gives the lock back and says what became of it.
    pub(super) async fn give_up(self, report: &Reporter) {
        if let Self::Own(holding) = self {
            report_release(report, &holding.release().await);
        }
    }
}

impl News {
    /// What it means for the policy, once it is reported.
    pub(super) fn event(self, report: &Reporter) -> Option<Event> {
        match self {
            Self::Own(Change::Extended(until)) => {
                let left = duration::show_rounded(until.since(clock::now()));
                report.step("renewed", format_args!("renewed for {left}"));
                Some(Event::Extended(until))
            }
            Self::Own(Change::Trouble(node, fault)) => {
                report.step("trouble", format_args!("{node}: {fault}; trying again"));
                None
            }
            Self::Own(Change::Refused(node, fault)) => {
                report.note("refused", format_args!("{node}: {}", fault.as_missing_vote()));
                None
            }
            Self::Own(Change::Lost(how)) => Some(Event::Lost(how)),
            Self::Own(Change::Shielded(until)) => Some(Event::Shielded(until)),
            Self::Own(Change::Unshielded) => Some(Event::Unshielded),
            Self::Outer(Update::Terms(terms)) => Some(Event::TermsReceived(terms)),
            // The lock may be another's by now.
            Self::Outer(Update::End) => Some(Event::Lost(Loss::TakenOver)),
        }
    }
}
