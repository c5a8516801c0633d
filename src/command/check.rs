//! `rlock check`: tells whether the caller still holds the lock (Chubby's `CheckSequencer`, Burrows 2006, section 2.4).

use std::time::Duration;

use super::common::{block_on, not_the_holder, same_list};
use super::nodes::{open, warn_of_refusals};
use crate::cli::Sources;
use crate::cli::subcommands::CheckArgs;
use crate::clock;
use crate::exit::{Failure, Outcome};
use crate::lock::census::Census;
use crate::lock::fence::Fence;
use crate::lock::schedule::DRIFT;
use crate::lock::token::Token;
use crate::redlock::Nodes;
use crate::redlock::observe::observe_token;
use crate::report::{Event, Problem};
use crate::settings::token::HeldLock;

/// The conditions to check.
struct Question {
    token: Token,
    fence: Option<Fence>,
    at_least: Duration,
}

pub fn check(args: &CheckArgs, sources: &Sources) -> anyhow::Result<Outcome> {
    let lock = HeldLock::new(&args.held, &args.output, sources)?;
    let HeldLock { reach, .. } = &lock;
    if sources.typed("fence") {
        reach.place.needs_server("--fence")?;
    }
    // On this machine alone all locks share one counter, and the fence in the environment came with the token.
    let fence = args.fence.filter(|_| reach.place.local().is_none());
    let question = Question { token: lock.token, fence, at_least: args.at_least.unwrap_or_default() };
    let answer = block_on(async { Ok(ask(&lock, &question, &open(&reach.place, reach.limit, reach.copies)?).await) })?;
    match answer {
        Err(failure) if failure.outcome == Outcome::No && args.output.quiet => Ok(Outcome::No),
        answer => Ok(answer?),
    }
}

async fn ask(lock: &HeldLock, question: &Question, nodes: &Nodes) -> Result<Outcome, Failure> {
    let HeldLock { key, token, report, reach, .. } = lock;
    let is_not_held = |census: &Census| census.is_held_by(*token) == Some(false) && census.tells_whose(*token);
    let certain = |census: &Census| question.is_answered_by(census) || is_not_held(census);
    let looks = observe_token(nodes, key, *token, reach.limit, certain).await;
    same_list(key, nodes, &looks, false)?;
    let census = looks.census();
    if question.is_answered_by(&census) {
        warn_of_refusals(report, &looks.faults);
        report.say(&Event::Checked);
        Ok(Outcome::Done)
    } else if census.is_held_by(*token) == Some(true) {
        Err(question.unmet(&census).about(key))
    } else {
        Err(not_the_holder(key, nodes, &looks, *token))
    }
}

impl Question {
    fn is_answered_by(&self, census: &Census) -> bool {
        census.is_held_by(self.token) == Some(true)
            && self.left(census) >= self.at_least
            && self.fence.is_none_or(|fence| census.has_fence(self.token, fence))
    }

    /// Returns the part of the lease that is certainly left.
    fn left(&self, census: &Census) -> Duration {
        census.valid_until(self.token, DRIFT).map_or(Duration::ZERO, |end| end.since(clock::now()))
    }

    /// Returns the condition that the caller's lock does not meet.
    fn unmet(&self, census: &Census) -> Problem<'static> {
        match self.fence.filter(|fence| !census.has_fence(self.token, *fence)) {
            Some(asked) => Problem::OtherFence { known: census.fence(self.token), asked },
            None => Problem::TooLittleLeft { left: self.left(census), asked: self.at_least },
        }
    }
}
