//! `rlock renew`: compare and extend, on a majority.

use std::time::Duration;

use super::common::{block_on, not_the_holder, refuse_inside, same_list, unanswered};
use super::nodes::{open, warn_of_refusals};
use crate::cli::Sources;
use crate::cli::subcommands::RenewArgs;
use crate::clock;
use crate::exit::{Failure, Outcome};
use crate::lock::census::Census;
use crate::lock::fence::Fence;
use crate::lock::key::Key;
use crate::lock::mode::Mode;
use crate::lock::occupant::Occupant;
use crate::lock::request::Renew;
use crate::lock::schedule::{LONGEST_TTL, Schedule, ScheduleOptions};
use crate::lock::token::Token;
use crate::redlock::Nodes;
use crate::redlock::observe::{Observations, observe_token};
use crate::redlock::outside;
use crate::report::{Event, Problem};
use crate::settings::token::HeldLock;
use crate::settings::{copies, schedule};

/// The options of `renew`.
struct RenewOptions {
    fence: Option<Fence>,
    ttl: Option<Duration>,
    node_timeout: Option<Duration>,
}

pub fn renew(args: &RenewArgs, sources: &Sources) -> anyhow::Result<Outcome> {
    let mut lock = HeldLock::new(&args.held, &args.output, sources)?;
    lock.reach.place.needs_server("renew")?;
    lock.reach.copies = copies::of(args.copies, &lock.reach.place)?;
    let node_timeout = copies::node_timeout(args.held.nodes.node_timeout, args.copies);
    lock.reach.limit = node_timeout.unwrap_or(lock.reach.limit);
    let options = RenewOptions { fence: args.fence, ttl: args.ttl, node_timeout };
    // An invalid TTL is refused before any node is asked.
    options.ttl.map(|ttl| options.schedule(&lock.key, ttl)).transpose()?;
    block_on(async {
        Ok(extend(&lock, &options, &open(&lock.reach.place, lock.reach.limit, lock.reach.copies)?).await?)
    })
}

impl RenewOptions {
    fn schedule(&self, key: &Key, ttl: Duration) -> Result<Schedule, Failure> {
        let options = ScheduleOptions { node_timeout: self.node_timeout, ..ScheduleOptions::new(ttl) };
        schedule(options).map_err(|failure| Failure::about(key, Outcome::Usage, failure))
    }
}

async fn extend(lock: &HeldLock, options: &RenewOptions, nodes: &Nodes) -> Result<Outcome, Failure> {
    let HeldLock { key, token, report, reach, .. } = lock;
    refuse_inside(lock, nodes).await?;
    let looks = observe_token(nodes, key, *token, reach.limit, |census| census.tells_whose(*token)).await;
    same_list(key, nodes, &looks, false)?;
    if looks.census().is_held_by(*token) != Some(true) {
        return Err(not_the_holder(key, nodes, &looks, *token));
    }
    let delay = looks.census().entry(*token).and_then(Occupant::holder).map_or(0, |(_, details)| details.delay);
    let lock_delay = Duration::from_millis(delay).min(LONGEST_TTL);
    let schedule =
        options.schedule(key, ttl(lock, &looks, options.ttl, lock_delay)?)?.outlasted(lock_delay, Duration::ZERO);
    let fence = known_fence(lock, options.fence, &looks)?;
    let entry = looks.census().entry(*token);
    let index = entry.map(|entry| entry.seat.index);
    let mode = entry.and_then(Occupant::holder).map_or(Mode::Exclusive, |(_, details)| details.mode);
    let term = schedule.term();
    let request = Renew { key: key.clone(), token: *token, fence, term, index, mode, raises_counter: false };
    let (count, end) = outside::renew(nodes, &request, schedule.node_timeout()).await;
    if let Some(end) = end {
        warn_of_refusals(report, &count.faults);
        report.say(&Event::Renewed { left: end.since(clock::now()) });
        return Ok(Outcome::Done);
    }
    if count.is_majority(nodes.quorum()).is_none() {
        return Err(unanswered(key, nodes, &count.faults));
    }
    // It was the caller's a moment ago.
    let looks = observe_token(nodes, key, *token, reach.limit, |_| false).await;
    Err(not_the_holder(key, nodes, &looks, *token))
}

/// Returns the TTL that was asked for, else the one that the lock was taken with, without its `--lock-delay`.
///
/// The restart guard of other clients relies on the one in the lock's value (docs/design.md §6). So with several nodes no
/// renewal may make it longer.
fn ttl(
    lock: &HeldLock,
    looks: &Observations,
    asked: Option<Duration>,
    lock_delay: Duration,
) -> Result<Duration, Failure> {
    let taken = looks.census().entry(lock.token).and_then(Occupant::lease_length);
    let taken = taken.map(|taken| taken.saturating_sub(lock_delay));
    match (asked, taken) {
        (Some(asked), Some(taken)) if looks.of_nodes.len() > 1 && asked > taken => {
            Err(Problem::TtlTooLong { taken }.about(&lock.key))
        }
        (Some(ttl), _) | (None, Some(ttl)) => Ok(ttl),
        (None, None) => Err(Problem::TtlUnknown.about(&lock.key)),
    }
}

/// Returns the fence to carry. One above all that the nodes know is a typing error, and would stay with them.
fn known_fence(lock: &HeldLock, given: Option<Fence>, looks: &Observations) -> Result<Fence, Failure> {
    let seen = looks.of_nodes.iter().flatten().map(|observation| observation.fence).collect::<Option<Vec<_>>>();
    let highest = seen.and_then(|all| all.into_iter().max());
    match (given, highest) {
        (Some(given), Some(highest)) if given > highest => {
            Err(Problem::FenceTooHigh { given, highest }.about(&lock.key))
        }
        (Some(given), _) => Ok(given),
        (None, _) => Ok(fence_of(&looks.census(), lock.token)),
    }
}

/// Returns the fence that the nodes know; if none does, the least one, which lowers no counter.
fn fence_of(census: &Census, token: Token) -> Fence {
    census.fence(token).unwrap_or(Fence::FIRST)
}
