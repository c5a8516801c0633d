//! The lock that covers the command: our own, or that of the outer rlock in whose command we are nested.

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
use crate::report::{AtNode, Event as Report, Reporter};

/// The lock that excludes other clients while the command runs.
pub(super) enum Cover {
    /// Our own lock, which we renew and give back.
    Own(Box<Holding>),
    /// The lock of an outer rlock, which renews it and gives it back, and that rlock's description for messages.
    Outer(OuterRun, String),
}

/// A change of the cover.
pub(super) enum CoverChange {
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

    /// The descriptors that the guard keeps open until the command is dead.
    pub(super) fn descriptors(&self) -> Vec<RawFd> {
        match self {
            Self::Own(holding) => holding.descriptor().into_iter().collect(),
            Self::Outer(outer, _) => vec![outer.descriptor()],
        }
    }

    /// Returns the policy for a command that starts now.
    pub(super) fn policy(&self, options: PolicyOptions) -> Policy {
        match self {
            Self::Own(holding) => Policy::new(options, holding.deadline(), clock::now()),
            Self::Outer(outer, _) => Policy::nested(options, outer.terms(), clock::now()),
        }
    }

    /// Listens for runs that are nested in the command. Under an outer lock they connect to the outer rlock instead.
    pub(super) fn listen(&self, options: &PolicyOptions) -> io::Result<Option<NestedRuns>> {
        match self {
            Self::Own(holding) => {
                NestedRuns::listen([(holding.token(), holding.fence())], options.schedule.ttl()).map(Some)
            }
            Self::Outer(..) => Ok(None),
        }
    }

    /// Returns the next change. Cancel safe.
    pub(super) async fn next(&mut self) -> CoverChange {
        match self {
            Self::Own(holding) => CoverChange::Own(holding.next().await),
            Self::Outer(outer, _) => CoverChange::Outer(outer.next().await),
        }
    }

    /// Returns why the lock is being lost, for a message.
    pub(super) fn loss_cause(&self, loss: Option<Loss>) -> String {
        match self {
            Self::Own(holding) => {
                let faults = holding.faults().map(|(node, fault)| format!("{node}: {fault}"));
                let faults = faults.collect::<Vec<_>>().join("; ");
                match loss {
                    Some(_) => faults,
                    None if faults.is_empty() => {
                        "it could not be renewed in time: rlock itself was stopped or overloaded".to_owned()
                    }
                    None => format!("it could not be renewed in time: {faults}"),
                }
            }
            Self::Outer(_, who) if loss.is_some() => format!("the outer rlock ended or lost it ({who})"),
            Self::Outer(_, who) => format!("the outer rlock is stopping its command, or was stopped itself ({who})"),
        }
    }

    /// Gives the lock back if it is our own. The command is dead, or has ended by itself.
    pub(super) async fn release(self, report: &Reporter) -> ReleaseOutcome {
        match self {
            Self::Own(holding) => {
                report.say(&Report::Ended { outer: false });
                holding.release().await
            }
            Self::Outer(..) => {
                report.say(&Report::Ended { outer: true });
                ReleaseOutcome::Ours
            }
        }
    }

    /// Gives the lock back and reports the outcome. The command was never started.
    pub(super) async fn give_up(self, report: &Reporter) {
        if let Self::Own(holding) = self {
            report_release(report, &holding.release().await);
        }
    }
}

impl CoverChange {
    /// Reports the change and returns the policy's event for it.
    pub(super) fn report(self, report: &Reporter) -> Option<Event> {
        match self {
            Self::Own(Change::Extended(until)) => {
                report.say(&Report::Renewed { left: until.since(clock::now()) });
                Some(Event::Extended(until))
            }
            Self::Own(Change::Trouble(node, fault)) => {
                report.say(&Report::RenewalFailed(AtNode { node: &node, why: &fault.why }));
                None
            }
            Self::Own(Change::Refused(node, fault)) => {
                report.say(&Report::Refused { node: &node, fault: &fault });
                None
            }
            Self::Own(Change::Lost(how)) => Some(Event::Lost(how)),
            Self::Own(Change::Shielded(until)) => Some(Event::Shielded(until)),
            Self::Own(Change::Unshielded) => Some(Event::Unshielded),
            Self::Outer(Update::Terms(terms)) => Some(Event::TermsReceived(terms)),
            // Another client may have the lock by now.
            Self::Outer(Update::End) => Some(Event::Lost(Loss::TakenOver)),
        }
    }
}
