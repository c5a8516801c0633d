//! `rlock release`: compare and delete.

use std::time::Duration;

use super::common::{block_on, not_the_holder, refuse_inside, same_list, unanswered};
use super::nodes::{open, warn_of_refusals};
use crate::cli::Sources;
use crate::cli::subcommands::ReleaseArgs;
use crate::exit::{Failure, Outcome};
use crate::redlock::Nodes;
use crate::redlock::observe::observe_token;
use crate::redlock::outside;
use crate::report::Event;
use crate::settings::token::HeldLock;

/// Time for a release that waits for no reply to be written.
const WRITING: Duration = Duration::from_millis(20);

pub fn release(args: &ReleaseArgs, sources: &Sources) -> anyhow::Result<Outcome> {
    let lock = HeldLock::new(&args.held, &args.output, sources)?;
    lock.reach.place.needs_server("release")?;
    block_on(async { Ok(give_back(&lock, &open(&lock.reach.place, lock.reach.limit, lock.reach.copies)?).await?) })
}

async fn give_back(lock: &HeldLock, nodes: &Nodes) -> Result<Outcome, Failure> {
    let HeldLock { key, token, report, reach, .. } = lock;
    refuse_inside(lock, nodes).await?;
    // Observed first: with another list of nodes, only some of the lock's keys would be deleted.
    let looks = observe_token(nodes, key, *token, reach.limit, |census| census.tells_whose(*token)).await;
    same_list(key, nodes, &looks, false)?;
    if looks.census().is_held_by(*token).is_none() {
        // A node that hangs executes it when it resumes. Another node timeout is not spent on its reply.
        outside::release(nodes, key, *token, WRITING).await;
        return Err(not_the_holder(key, nodes, &looks, *token));
    }
    let count = outside::release(nodes, key, *token, reach.limit).await;
    match count.is_majority(nodes.quorum()) {
        Some(true) => {
            warn_of_refusals(report, &count.faults);
            report.say(&Event::Released);
            return Ok(Outcome::Done);
        }
        None => return Err(unanswered(key, nodes, &count.faults)),
        Some(false) => {}
    }
    let looks = observe_token(nodes, key, *token, reach.limit, |census| census.tells_whose(*token)).await;
    Err(not_the_holder(key, nodes, &looks, *token))
}
