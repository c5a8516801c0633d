//! Words of a wait: events that it is told, with the result of an attempt, and actions that it asks
//! for. A report is one of these, and is made once.

use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use crate::lock::ballot::{Blocked, Reason, Tally};
use crate::lock::blocker::Blocker;
use crate::lock::fault::{Faults, NodeFault};
use crate::lock::fence::Fence;
use crate::lock::occupant::Occupant;
use crate::lock::queue::{Ticket, Wake};
use crate::lock::token::Token;

/// An event of the wait.
#[derive(Clone, PartialEq, Debug)]
pub enum WaitEvent {
    /// [`Waiting::wake_at`] has come, or may have.
    Tick,
    /// A node sent this word.
    Woken(usize, Wake),
    /// The connection to a node broke, or its server is another one now.
    Changed,
    /// The attempt is over, or was counted early on [`WaitAction::CountNow`].
    Tried(Box<Tried>),
    /// The attempt is undone. `subscribed`: number of nodes that will wake this waiter.
    Undone { subscribed: usize },
    /// The outer rlock that was asked does not let us run under its lock.
    NotJoined(Unjoined),
    /// The caller ends the wait.
    Interrupted,
}

/// Why an outer rlock was not joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unjoined {
    /// It does not answer.
    Silent,
    /// It cannot be reached, or is releasing the lock.
    Refused,
}

/// An action to take. Several are taken in their order.
#[derive(Clone, PartialEq, Debug)]
pub enum WaitAction {
    /// Start an attempt with this place in the queue. `guarded`: uptime that each node must
    /// have; `None`: do not ask.
    Try {
        ticket: Option<Ticket>,
        guarded: Option<Duration>,
    },
    /// Count the votes that the attempt has by now, and report [`WaitEvent::Tried`].
    CountNow,
    /// Undo the attempt, and report [`WaitEvent::Undone`].
    Undo(QueueEntry),
    /// Leave the queue of every node.
    Leave,
    /// Ask the outer rlock of this token, which holds the lock, to let us run under it.
    Join(Token, Box<Occupant>),
    /// End the waiters with `--supersede` that came before this place, which the attempt that has
    /// won would have had.
    Announce(Ticket),
    /// Report this.
    Say(Notice),
    /// Take the lock that the attempt has won. The wait is over.
    Hold(Fence),
    /// The wait is over, without the lock.
    GiveUp(Reason),
}

/// The fate of the place in the queue when an attempt is undone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueEntry {
    /// It is kept.
    Kept,
    /// It is given up.
    Left,
}

/// An attempt that is over.
#[derive(Clone, PartialEq, Debug)]
pub struct Tried {
    pub tally: Tally,
    /// Whether it was not cut short.
    pub is_complete: bool,
    /// Whether a majority named the party that has the lock.
    pub by_majority: bool,
    /// Number of nodes that gave a vote, for us or not.
    pub voted: usize,
    /// Time until a majority counts, if only nodes under their restart guard are missing for it.
    pub counts_in: Option<Duration>,
    /// Whether a node has granted, and so no other client got it.
    pub has_taken_any: bool,
    /// Unix time in µs that the nodes told, for the ticket.
    pub entered: Option<u64>,
    /// Number of waiters ahead.
    pub rank: Option<u32>,
    /// The longest TTL known: our own, or that of a holder met.
    pub longest_ttl: Duration,
    /// The nodes that refuse us.
    pub refusals: Faults,
    /// A node that denies INFO and is used all the same, and why.
    pub unguarded: Option<(String, String)>,
    /// A node that denies the queue's commands, and why.
    pub no_queue: Option<(String, String)>,
    /// A node that denies the subscription to wake-ups.
    pub no_wakeups: Option<String>,
}

impl Tried {
    /// Whether it ends the wait.
    pub(super) fn is_final(&self) -> bool {
        !matches!(self.tally, Err(Reason::Blocked(_)))
    }
}

/// A report of a wait.
#[derive(Clone, PartialEq, Debug)]
pub enum Notice {
    /// The wait goes on. `ahead`: number of waiters in front.
    Waiting {
        blocked: Blocked,
        ahead: Option<u32>,
    },
    /// A foreign value without a TTL blocks the lock, so the wait has no end of its own.
    WaitingForever(Blocked),
    /// No majority votes, and the nodes are asked again.
    TryingAgain(Blocked),
    /// A majority had answered, and does no more; `--wait` alone ends this.
    MajorityGone(Blocked),
    /// The outer rlock that holds the lock does not answer.
    OuterSilent(Box<Occupant>),
    /// A node refuses rlock; a majority of the others answers.
    Refused(NodeFault),
    /// A node denies INFO, so its restarts are invisible.
    Unguarded { node: String, why: String },
    /// A node denies the queue's commands.
    NoQueue { node: String, why: String },
    /// A node denies the subscription to wake-ups.
    NoWakeups { node: String },
}

/// The reports made so far.
#[derive(Clone, Default, Debug)]
pub(super) struct Notices {
    /// The party that was last reported to block the wait.
    blocker: Option<Blocker>,
    once: Vec<Discriminant<Notice>>,
    refused: Vec<usize>,
}

impl Notices {
    /// Returns the nodes whose refusal has been reported.
    pub(super) fn refused(&self) -> &[usize] {
        &self.refused
    }

    /// Returns the notices of a wait for another lock, which another party may block.
    pub(super) fn again(&self) -> Self {
        Self {
            blocker: None,
            ..self.clone()
        }
    }

    /// Returns `notice`, unless one of its kind was returned before.
    pub(super) fn once(&mut self, notice: Notice) -> Option<Notice> {
        let kind = discriminant(&notice);
        let is_new = !self.once.contains(&kind);
        is_new.then(|| {
            self.once.push(kind);
            notice
        })
    }

    /// Returns what an attempt tells of single nodes.
    pub(super) fn of_attempt(&mut self, tried: &Tried) -> Vec<Notice> {
        let mut said = vec![];
        if let Some((node, why)) = tried.unguarded.clone() {
            said.extend(self.once(Notice::Unguarded { node, why }));
        }
        // Any other end of the wait names the nodes that gave no vote. `of_split` reports them if
        // the wait goes on.
        if matches!(tried.tally, Ok(_) | Err(Reason::Blocked(Blocked::Busy(_)))) {
            said.extend(self.of_refusals(tried));
        }
        if !tried.is_final() {
            if let Some((node, why)) = tried.no_queue.clone() {
                said.extend(self.once(Notice::NoQueue { node, why }));
            } else if let Some(node) = tried.no_wakeups.clone() {
                said.extend(self.once(Notice::NoWakeups { node }));
            }
        }
        said
    }

    /// Returns what a split vote tells of single nodes, if the wait goes on.
    pub(super) fn of_split(&mut self, tried: &Tried) -> Vec<Notice> {
        if matches!(tried.tally, Err(Reason::Blocked(Blocked::Split(..)))) {
            self.of_refusals(tried)
        } else {
            vec![]
        }
    }

    fn of_refusals(&mut self, tried: &Tried) -> Vec<Notice> {
        let new: Vec<NodeFault> = tried
            .refusals
            .iter()
            .filter(|refusal| !self.refused.contains(&refusal.node))
            .cloned()
            .collect();
        self.refused.extend(new.iter().map(|refusal| refusal.node));
        new.into_iter().map(Notice::Refused).collect()
    }

    /// Returns what is new of a wait that is `blocked`, after `splits` split votes in a row.
    /// `had_majority`: the wait has no end of its own though no majority votes.
    pub(super) fn of_wait(
        &mut self,
        blocked: &Blocked,
        splits: u32,
        ahead: Option<u32>,
        had_majority: bool,
    ) -> Vec<Notice> {
        let mut said = vec![];
        match blocked {
            Blocked::Busy(party) => {
                if !self
                    .blocker
                    .as_ref()
                    .is_some_and(|before| before.is_same(party))
                {
                    said.push(Notice::Waiting {
                        blocked: blocked.clone(),
                        ahead,
                    });
                    self.blocker = Some((**party).clone());
                }
                // A reader of cron's mail would otherwise not learn why the job never runs again.
                if party.left().is_none() && party.is_foreign() {
                    said.extend(self.once(Notice::WaitingForever(blocked.clone())));
                }
            }
            Blocked::Split(..) if splits == 1 => {
                said.push(Notice::Waiting {
                    blocked: blocked.clone(),
                    ahead: None,
                });
            }
            Blocked::Split(..) if splits > 1 => {}
            _ if had_majority => said.extend(self.once(Notice::MajorityGone(blocked.clone()))),
            _ => said.push(Notice::TryingAgain(blocked.clone())),
        }
        said
    }
}
