//! `rlock release`: compare and delete.

use std::time::Duration;

use futures_util::future::join_all;

use super::inside::refuse_inside;
use super::nodes::{block_on, not_the_holder, open, same_list, tell_of_default_node, unanswered, warn_of_refusals};
use crate::cli::Sources;
use crate::cli::subcommands::ReleaseArgs;
use crate::clock;
use crate::exit::Outcome;
use crate::lock::quorum::Quorum;
use crate::node::{Fault, QueueAction, ReleaseReply};
use crate::redlock::observe::look;
use crate::settings::token::TokenSettings;

/// How long a release that waits for no reply has to be written.
const WRITING: Duration = Duration::from_millis(20);

/// Gives the lock back.
pub fn release(args: &ReleaseArgs, sources: &Sources) -> anyhow::Result<Outcome> {
    let settings = TokenSettings::new(&args.held, &args.output, sources)?;
    settings.reach.needs_server("release")?;
    tell_of_default_node(&settings.reach.place, settings.reach.node_is_default, &args.output, Some(&settings.key));
    block_on(give_back(&settings))
}

async fn give_back(settings: &TokenSettings) -> anyhow::Result<Outcome> {
    let TokenSettings { key, token, reach, report, .. } = settings;
    let nodes = open(&reach.place, reach.limit)?;
    refuse_inside(settings, &nodes).await?;
    // A look first: with another list of nodes, some of a lock's keys would be deleted and the rest kept.
    let looks = look(&nodes, key, reach.limit, |census| census.tells_whose(*token)).await;
    same_list(key, &nodes, &looks)?;
    if looks.census().is_held_by(*token).is_none() {
        // A node that hangs gives it back when it wakes. Another node timeout is not spent on its reply.
        let sent = nodes.iter().map(|node| node.release(key, *token, QueueAction::None));
        clock::until(clock::now() + WRITING, join_all(sent)).await;
        return Err(not_the_holder(key, &nodes, &looks, *token, reach.node_is_default).into());
    }
    // All are waited for: nobody renews this lock, and what is left of it at a slow node would stay for its whole TTL.
    let ends = clock::now() + reach.limit;
    let asked = nodes.iter().map(|node| clock::until(ends, node.release(key, *token, QueueAction::None)));
    let (mut ours, mut faults) = (0, Vec::new());
    for (node, freed) in join_all(asked).await.into_iter().enumerate() {
        match freed {
            Some(ReleaseReply::Released) => ours += 1,
            Some(ReleaseReply::NotOurs(_)) => {}
            Some(ReleaseReply::Failed(fault)) => faults.push((node, fault)),
            None => faults.push((node, Fault::timeout(reach.limit))),
        }
    }
    let needed = Quorum::of(nodes.len()).needed();
    if ours >= needed {
        warn_of_refusals(report, &nodes, &faults);
        report.step("released", "released");
        return Ok(Outcome::Done);
    }
    if ours + faults.len() >= needed {
        return Err(unanswered(key, &nodes, &faults, reach.node_is_default).into());
    }
    let looks = look(&nodes, key, reach.limit, |census| census.tells_whose(*token)).await;
    Err(not_the_holder(key, &nodes, &looks, *token, reach.node_is_default).into())
}
