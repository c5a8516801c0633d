//! Work on a lock from outside: `rlock break`, and the `rlock release` that a guard executes.

use std::time::Duration;

use rlock::clock;
use rlock::exit::Outcome;
use rlock::hold::observe::observe;
use rlock::hold::outside;
use rlock::lock::details::Details;
use rlock::lock::fence::Fence;
use rlock::lock::mode::Mode;
use rlock::lock::occupant::Occupant;
use rlock::lock::token::Token;
use rlock::store::{Look, TakeAway};

use super::{Client, pause};
use crate::kernel;

/// Interval at which `break` asks whether the holder has released the key.
const PAUSE: Duration = Duration::from_millis(100);

/// Breaks the lock that a majority of the nodes shows, as `command::break_lock` does. `answer`:
/// time until the question is answered; `now`: the key is deleted at once.
pub async fn break_lock(client: Client, answer: Duration, now: bool) -> Outcome {
    let nodes = &client.open()[0];
    let limit = client.settings.schedule.node_timeout();
    let looks = observe(nodes, limit, Look::default(), |_| false).await;
    let census = looks.census();
    if !census.is_answered() {
        return Outcome::Unreachable;
    }
    let Some((leading, _)) = census.leading() else {
        return Outcome::No;
    };
    let has_members = leading.mode().is_some_and(Mode::has_members);
    let all: Vec<&Occupant> = census
        .holders()
        .into_iter()
        .map(|(occupant, _)| occupant)
        .collect();
    let targets = if has_members && !all.is_empty() {
        all
    } else {
        vec![leading]
    };
    let holders: Vec<(Token, &Details)> =
        targets.into_iter().filter_map(Occupant::holder).collect();
    let highest = looks
        .of_nodes
        .iter()
        .flatten()
        .filter_map(|observation| observation.fence)
        .max();
    // A question is answered in its own time. By then the lock may be another client's.
    pause(answer).await;
    let (mut tokens, mut deleted) = (Vec::new(), 0);
    for (token, details) in holders {
        kernel::tell_of_current(|| format!("breaks the lock of {token}"));
        if details.kept && !now {
            let tombstone =
                details.tombstone(token, format!("user@host{}", client.host).as_str().into());
            kernel::with(|kernel| kernel.witness.breaks(token));
            let how = TakeAway::Tombstone(token, tombstone);
            if outside::take_away(nodes, limit, |_| Some(how.clone()))
                .await
                .done
                > 0
            {
                tokens.push(token);
            }
        } else {
            kernel::with(|kernel| {
                let now = kernel.now;
                kernel
                    .witness
                    .takes_away(token, now + client.settings.schedule.ttl(), now);
            });
            let how = TakeAway::Delete(token, highest.map_or(0, Fence::get), None);
            let count = outside::take_away(nodes, limit, |_| Some(how.clone())).await;
            // At a minority it is not deleted, and the shipped `break` says so.
            if count.is_majority(nodes.quorum()) != Some(true) {
                kernel::with(|kernel| kernel.witness.spares(token));
            }
            deleted += count.done;
        }
    }
    if tokens.is_empty() {
        return if deleted > 0 {
            Outcome::Done
        } else {
            Outcome::No
        };
    }
    let (begun, left) = (clock::now(), census.ttl().unwrap_or_default());
    while clock::now().since(begun) <= left + Duration::from_secs(1) {
        let looks = observe(nodes, limit, Look::default(), |_| false).await;
        let is_kept = tokens
            .iter()
            .any(|token| looks.census().is_anywhere(*token));
        if looks.census().is_answered() && !is_kept {
            return Outcome::Done;
        }
        pause(PAUSE).await;
    }
    Outcome::No
}

/// Releases the locks of a dead rlock.
pub async fn release(client: Client, tokens: Vec<Token>) -> Outcome {
    let limit = client.settings.schedule.node_timeout();
    for (token, nodes) in tokens.into_iter().zip(client.open()) {
        outside::release(&nodes, token, None, limit).await;
    }
    Outcome::Done
}
