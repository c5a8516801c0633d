//! `rlock renew`: compare and extend, on a majority.

use std::time::Duration;

use super::failure::{not_the_holder, same_list, unanswered};
use super::inside::refuse_inside;
use super::nodes::{open, warn_of_default_node, warn_of_refusals};
use super::runtime::block_on;
use crate::cli::Sources;
use crate::cli::subcommands::RenewArgs;
use crate::clock;
use crate::exit::{Failure, Outcome};
use crate::lock::census::Census;
use crate::lock::fence::Fence;
use crate::lock::request::Renew;
use crate::lock::schedule::{Schedule, ScheduleOptions};
use crate::redlock::observe::{Observations, observe};
use crate::redlock::outside;
use crate::report::{Event, Problem};
use crate::settings::schedule;
use crate::settings::token::TokenSettings;

/// The options of `renew`.
struct RenewOptions {
    fence: Option<Fence>,
    ttl: Option<Duration>,
    node_timeout: Option<Duration>,
}

pub fn renew(args: &RenewArgs, sources: &Sources) -> anyhow::Result<Outcome> {
    let settings = TokenSettings::new(&args.held, &args.output, sources)?;
    settings.reach.place.needs_server("renew")?;
    let options = RenewOptions {
        fence: args.fence.map(|number| fence(&settings, number)).transpose()?,
        ttl: args.ttl,
        node_timeout: args.held.nodes.node_timeout,
    };
    // An invalid TTL is refused before any node is asked.
    options.ttl.map(|ttl| options.schedule(&settings, ttl)).transpose()?;
    warn_of_default_node(
        &settings.reach.place,
        settings.reach.node_is_default,
        &args.output,
        Some(&settings.report.keys),
    );
    block_on(extend(&settings, &options))
}

pub(super) fn fence(settings: &TokenSettings, number: u64) -> Result<Fence, Failure> {
    Fence::new(number).ok_or_else(|| Problem::InvalidFence { number }.about(&settings.key))
}

impl RenewOptions {
    fn schedule(&self, settings: &TokenSettings, ttl: Duration) -> Result<Schedule, Failure> {
        let options = ScheduleOptions { node_timeout: self.node_timeout, ..ScheduleOptions::new(ttl) };
        schedule(options).map_err(|failure| Failure::about(&settings.key, Outcome::Usage, failure))
    }
}

async fn extend(settings: &TokenSettings, options: &RenewOptions) -> anyhow::Result<Outcome> {
    let TokenSettings { key, token, reach, report, .. } = settings;
    let nodes = open(&reach.place, reach.limit)?;
    refuse_inside(settings, &nodes).await?;
    let looks = observe(&nodes, key, reach.limit, |census| census.tells_whose(*token)).await;
    same_list(key, &nodes, &looks, false)?;
    if looks.census().is_held_by(*token) != Some(true) {
        return Err(not_the_holder(key, &nodes, &looks, *token, reach.node_is_default).into());
    }
    let schedule = options.schedule(settings, ttl(settings, &looks, options.ttl)?)?;
    let fence = known_fence(settings, &looks, options.fence)?;
    let request = Renew { key: key.clone(), token: *token, fence, term: schedule.term() };
    let (count, end) = outside::renew(&nodes, &request, schedule.node_timeout()).await;
    if let Some(end) = end {
        warn_of_refusals(report, &count.faults);
        report.say(&Event::Renewed { left: end.since(clock::now()) });
        return Ok(Outcome::Done);
    }
    if count.is_majority(nodes.quorum()).is_none() {
        return Err(unanswered(key, &nodes, &count.faults, reach.node_is_default).into());
    }
    // It was the caller's a moment ago.
    let looks = observe(&nodes, key, reach.limit, |_| false).await;
    Err(not_the_holder(key, &nodes, &looks, *token, reach.node_is_default).into())
}

/// Returns the TTL that was asked for, else the one that the lock was taken with.
///
/// The restart guard of other clients relies on the one in the lock's value (docs/design.md §6). So with several nodes no
/// renewal may make it longer.
fn ttl(settings: &TokenSettings, looks: &Observations, asked: Option<Duration>) -> Result<Duration, Failure> {
    let taken = looks.census().leading().and_then(|(occupant, _)| occupant.lease_length());
    match (asked, taken) {
        (Some(asked), Some(taken)) if looks.of_nodes.len() > 1 && asked > taken => {
            Err(Problem::TtlTooLong { taken }.about(&settings.key))
        }
        (Some(ttl), _) | (None, Some(ttl)) => Ok(ttl),
        (None, None) => Err(Problem::TtlUnknown.about(&settings.key)),
    }
}

/// Returns the fence to carry. One above all that the nodes know is a typing error, and would stay with them.
fn known_fence(settings: &TokenSettings, looks: &Observations, given: Option<Fence>) -> Result<Fence, Failure> {
    let seen = looks.of_nodes.iter().flatten().map(|observation| observation.fence).collect::<Option<Vec<_>>>();
    let highest = seen.and_then(|all| all.into_iter().max());
    match (given, highest) {
        (Some(given), Some(highest)) if given > highest => {
            Err(Problem::FenceTooHigh { given, highest }.about(&settings.key))
        }
        (Some(given), _) => Ok(given),
        (None, _) => Ok(fence_of(&looks.census(), settings)),
    }
}

/// Returns the fence that the nodes know; if none does, the least one, which lowers no counter.
fn fence_of(census: &Census, settings: &TokenSettings) -> Fence {
    census.fence(settings.token).unwrap_or(Fence::FIRST)
}
