//! `rlock release`: compare and delete.

use futures_util::future::join_all;

use super::nodes::{block_on, not_the_holder, open, unanswered};
use crate::cli::Sources;
use crate::cli::operator::ReleaseArgs;
use crate::clock;
use crate::exit::Outcome;
use crate::lock::quorum::Quorum;
use crate::node::{Fault, Freed, Queued};
use crate::redlock::look::look;
use crate::settings::held::HeldSettings;

/// Gives the lock back.
pub fn release(args: &ReleaseArgs, sources: &Sources) -> anyhow::Result<Outcome> {
    let settings = HeldSettings::new(&args.held, &args.output, sources)?;
    settings.reach.needs_server("release")?;
    block_on(give_back(&settings))
}

async fn give_back(settings: &HeldSettings) -> anyhow::Result<Outcome> {
    let HeldSettings { key, token, reach, report } = settings;
    let nodes = open(&reach.place, reach.limit)?;
    // All are waited for: nobody renews this lock, and what is left of it at a slow node would stay for its whole TTL.
    let ends = clock::now() + reach.limit;
    let asked = nodes.iter().map(|node| clock::until(ends, node.release(key, *token, Queued::No)));
    let (mut ours, mut faults) = (0, Vec::new());
    for (node, freed) in join_all(asked).await.into_iter().enumerate() {
        match freed {
            Some(Freed::Released) => ours += 1,
            Some(Freed::NotOurs(_)) => {}
            Some(Freed::Failed(fault)) => faults.push((node, fault)),
            None => faults.push((node, Fault::timeout(reach.limit))),
        }
    }
    let needed = Quorum::of(nodes.len()).needed();
    if ours >= needed {
        report.step("released", "released");
        return Ok(Outcome::Done);
    }
    if ours + faults.len() >= needed {
        return Err(unanswered(key, &nodes, &faults, reach.node_is_default).into());
    }
    let looks = look(&nodes, key, reach.limit, |census| census.foremost().is_some()).await;
    Err(not_the_holder(key, &nodes, &looks, *token, reach.node_is_default).into())
}
