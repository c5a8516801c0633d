//! An outer rlock that holds the lock: to wait for it would be to wait for oneself.

use super::{Blocked, Notice, Reason, Unjoined, WaitAction, Waiting};
use crate::lock::backoff::{self, OUTER_REFUSALS};
use crate::lock::blocker::Blocker;
use crate::lock::instant::Instant;
use crate::lock::occupant::Occupant;
use crate::lock::token::Token;

impl Waiting {
    pub(super) fn not_joined(
        &mut self,
        token: Token,
        occupant: Box<Occupant>,
        why: Unjoined,
        now: Instant,
        random: f64,
    ) -> Vec<WaitAction> {
        let mut actions = vec![];
        match why {
            Unjoined::Silent => {
                self.outer_refused = None;
                actions.extend(
                    self.notices
                        .once(Notice::OuterSilent(occupant.clone()))
                        .map(WaitAction::Say),
                );
            }
            Unjoined::Refused => {
                let since = self
                    .outer_refused
                    .filter(|(refused, _)| *refused == token)
                    .map_or(now, |(_, since)| since);
                if now.since(since) >= OUTER_REFUSALS {
                    return self.give_up(Reason::OuterUnreachable(occupant));
                }
                self.outer_refused = Some((token, since));
            }
        }
        self.answered = true;
        self.blocked = Some(Blocked::Busy(Box::new(Blocker::Occupant(*occupant))));
        self.rank = None;
        self.pause_for(backoff::retry(self.retry(), random), now);
        actions
    }

    /// Returns the token of `occupant`, if it is an outer rlock that cannot release before we end.
    pub fn outer(&self, occupant: &Occupant) -> Option<Token> {
        let (token, details) = occupant.holder()?;
        // A parked lock ends by itself: its run is over.
        let waits_for_itself = !details.parked && (self.options.for_command || details.kept);
        (waits_for_itself && self.options.outer.claim(token)).then_some(token)
    }
}
