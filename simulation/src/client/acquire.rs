//! `rlock acquire`, and the `renew` and `release` of the steps that follow it. Each is a process of
//! its own in life; here they share one, which opens its connections anew each time.

use std::time::Duration;

use rlock::clock::Alarm;
use rlock::exit::Outcome;
use rlock::hold::holdings::take;
use rlock::hold::outside;
use rlock::hold::wait::Waited;
use rlock::lock::fence::Fence;
use rlock::lock::token::Token;
use rlock::store::Keep;

use super::claimant::Waiter;
use super::{Client, gave_up, pause, share, tell};
use crate::witness::Hold;
use crate::{command, kernel};

/// Use of a lock of `acquire`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Steps {
    /// Time between two steps.
    pub pause: Duration,
    /// Number of renewals.
    pub renewals: u32,
    /// Whether the lock is released at the end, or left to its TTL.
    pub releases: bool,
}

/// Takes the lock, uses it, and gives it back.
pub async fn acquire(client: Client, steps: Steps) -> Outcome {
    let schedule = client.settings.schedule;
    let mut claimant = Waiter {
        client: &client,
        lock: 0,
        for_command: false,
    };
    let nodes = client.open();
    let Ok(mut alarm) = Alarm::new() else {
        return Outcome::Bug;
    };
    let (waiting, cancelled) = (client.waiting(false), &mut async || command::caught().await);
    let holdings = match take(&nodes, waiting, &mut claimant, &mut alarm, tell, cancelled).await {
        Ok(Waited::Held(holdings)) => holdings,
        Ok(Waited::Cancelled(_)) => return Outcome::Signalled(libc::SIGTERM),
        Ok(Waited::GaveUp(reason)) => return gave_up(&reason),
        // Nothing can be joined here.
        Ok(Waited::Joined(..)) | Err(_) => return Outcome::Bug,
    };
    holdings.leave_queues().await;
    let grants: Vec<(usize, Token, Fence)> = client
        .locks
        .iter()
        .zip(holdings.grants())
        .map(|(lock, (token, fence))| (*lock, token, fence))
        .collect();
    let slots: Vec<Option<u16>> = holdings.slots().collect();
    kernel::with(|kernel| {
        let (process, now) = (kernel.current, kernel.now);
        for (((lock, token, fence), slot), until) in
            grants.iter().copied().zip(&slots).zip(holdings.deadlines())
        {
            let (share, left) = (share(client.mode, *slot), until.since(now));
            kernel.tell(|| {
                format!(
                    "{process}: acquired lock {lock} ({share:?}) with fence {fence}, for {left:?}"
                )
            });
            if until > now {
                let fence = fence.get();
                kernel.witness.granted(
                    process,
                    lock,
                    Hold {
                        share,
                        token,
                        fence,
                        since: now,
                        until: Some(until),
                    },
                );
            }
        }
    });
    drop((holdings, nodes));
    for _ in 0..steps.renewals {
        pause(steps.pause).await;
        for (((_, token, fence), slot), nodes) in
            grants.iter().copied().zip(&slots).zip(client.open())
        {
            let index = slot.unwrap_or_default();
            let (term, mode) = (schedule.term(), client.mode);
            let keep = Keep {
                token,
                fence,
                term,
                index,
                mode,
                raises_counter: false,
                heal: None,
            };
            let healing = Some(client.details(false));
            let (count, end) =
                outside::renew(&nodes, &keep, healing, schedule.node_timeout()).await;
            if let (Some(true), Some(end)) = (count.is_majority(nodes.quorum()), end) {
                kernel::with(|kernel| kernel.witness.extended(token, end));
            }
        }
    }
    if steps.releases {
        pause(steps.pause).await;
        for ((_, token, _), nodes) in grants.iter().copied().zip(client.open()) {
            kernel::with(|kernel| {
                let now = kernel.now;
                kernel.witness.gave_back(token, now);
            });
            outside::release(&nodes, token, None, schedule.node_timeout()).await;
        }
    }
    Outcome::Done
}
