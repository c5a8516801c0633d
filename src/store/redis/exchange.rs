//! One request, from the connection that it was given to the reply that counts. It may take several
//! calls:
//!
//! 1. A server that does not have `lock.lua`, or lets us call no script by its digest, has executed
//!    nothing. The request is sent once more, with the script. A renewal takes a short script of
//!    its own in its place.
//! 2. A release carries what deletes the lock in the same write, whether or not the server has
//!    `lock.lua`: it counts once written.
//! 3. A member of a cluster that does not serve the slot has executed nothing either. After `MOVED`
//!    the request goes where a new map says. While the slot is being moved, only a renewal and a
//!    release are served, by scripts of the lock's own keys.
//!
//! A request is never sent again once it was executed. So that the order of one lock's requests
//! stays:
//! 1. A release cancels a SET that was not executed and not yet written again. One that was written
//!    is unanswered on its connection, and the release goes behind it there.
//! 2. No SET is sent while another SET or a release of its lock is on its way to another member.
//! 3. A SET goes behind what is unanswered on its new connection, as any does (`pool`).

use std::sync::Arc;

use redis::Value;
use tokio::sync::watch;

use super::call::Call;
use super::error::{Unscripted, unscripted};
use super::pool::{Link, Pool, Route};
use super::reply;
use super::requests::{RequestProgress, given_up};
use super::state::{Effect, LockId};
use super::stranger;
use crate::clock;
use crate::lock::instant::Instant;
use crate::store::Fault;
use crate::store::redis::locator::redirect::{self, Redirect};
use crate::store::redis::locator::{Cluster, HashSlot, Site, Source};

/// Number of times that a request is sent away before it is given up.
const MOST_HOPS: usize = 5;

/// Part of the limit of an exchange for which a request pauses.
const PAUSES: u32 = 10;

/// One request.
pub(super) struct Exchange {
    pub(super) pool: Arc<Pool>,
    pub(super) progress: Arc<watch::Sender<RequestProgress>>,
    pub(super) lock: LockId,
    /// The number of the request among those of its lock.
    pub(super) number: usize,
    pub(super) call: Arc<Call>,
    pub(super) effect: Effect,
    /// The channel on which the caller waits.
    pub(super) channel: Option<String>,
}

/// A request that rlock must not leave to the kernel: it is on its way to another member, or counts
/// once it is answered.
struct Away<'a>(&'a watch::Sender<RequestProgress>);

impl<'a> Away<'a> {
    fn new(progress: &'a watch::Sender<RequestProgress>) -> Self {
        progress.send_modify(|progress| progress.away += 1);
        Self(progress)
    }
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|progress| progress.away -= 1);
    }
}

impl Exchange {
    /// Returns the reply that counts, and the connection on which it came. The request is about to
    /// be sent on `link` at `sent`.
    pub(super) async fn run(
        &self,
        link: Link,
        sent: Instant,
    ) -> (Link, Source, Result<Value, Fault>) {
        // What parks a lock brings along nothing that does without the script.
        let _counts_when_answered = self.must_be_answered().then(|| Away::new(&self.progress));
        let result = self.ask(&link).await;
        let (Some(slot), Some(cluster)) = (self.call.slot, self.pool.locator.cluster()) else {
            let source = Source {
                site: Arc::clone(&link.site),
                slot: None,
                is_late: false,
                is_detour: false,
            };
            return (link, source, result.map_err(stranger::redirecting));
        };
        let limit = self.pool.limit;
        let (link, owner, result) = match redirect(&result) {
            None => (link, None, result),
            // Ends before the limit, so that the caller hears the cause, not just that time is
            // over. Boxed: it is rare and its state large, and would be part of every request of a
            // cluster.
            Some(_) => {
                Box::pin(self.onwards(link, cluster, slot, sent + limit / 4 * 3, result)).await
            }
        };
        let is_detour = owner.is_some();
        let site = owner.unwrap_or_else(|| Arc::clone(&link.site));
        let is_late = clock::now() >= sent + limit;
        (
            link,
            Source {
                site,
                slot: Some(slot),
                is_late,
                is_detour,
            },
            result,
        )
    }

    /// Whether the request frees the lock, and what it leaves there needs `lock.lua`.
    fn must_be_answered(&self) -> bool {
        matches!(self.effect, Effect::Frees(_)) && self.call.least.is_none()
    }

    /// Sends the request on one connection, once more where the server had not executed it for want
    /// of the script.
    async fn ask(&self, link: &Link) -> Result<Value, Fault> {
        let Call { command, least, .. } = &*self.call;
        if self.pool.needs_whole_scripts() {
            return link.send(&self.call.whole(), self.effect).await;
        }
        let (result, freed) = match least {
            Some(least) if matches!(self.effect, Effect::Frees(_)) => {
                let [result, freed] = link.send_both(command, &least.command, self.effect).await;
                (result, Some(freed))
            }
            _ => (link.send(command, self.effect).await, None),
        };
        let Some(cause) = unscripted(&result) else {
            // Some of its keys may be at another member of a cluster, or the server refuses
            // something else.
            return if result.is_err() {
                freed.filter(has_freed).unwrap_or(result)
            } else {
                result
            };
        };
        if cause == Unscripted::Denied {
            self.pool.send_whole_scripts();
        } else if let Some(least) = least.as_ref().filter(|least| least.suffices) {
            return link.send(&least.command, self.effect).await;
        }
        // Between this and the first poll of the exchange, no release can be accepted.
        if self.is_cancelled() {
            return Err(given_up());
        }
        let whole = link.send(&self.call.whole(), self.effect).await;
        freed.filter(has_freed).unwrap_or(whole)
    }

    /// Whether a release was accepted since, and the request would set the lock's key.
    fn is_cancelled(&self) -> bool {
        matches!(self.effect, Effect::Sets(_)) && self.progress.borrow().cancelled > self.number
    }

    /// Follows the words of members that do not serve the request. Returns the connection to the
    /// server that served it, the primary in whose place it did, and its reply.
    async fn onwards(
        &self,
        mut link: Link,
        cluster: &Cluster,
        slot: HashSlot,
        ends: Instant,
        mut result: Result<Value, Fault>,
    ) -> (Link, Option<Arc<Site>>, Result<Value, Fault>) {
        let _away = (self.effect != Effect::None).then(|| Away::new(&self.progress));
        for _ in 0..MOST_HOPS {
            let (Some(word), Err(fault)) = (redirect(&result), &result) else {
                return (link, None, result);
            };
            if word != Redirect::Moved {
                let fault = redirect::lost(fault);
                let served = clock::until(ends, self.in_part(&link, cluster, word)).await;
                return match served.flatten() {
                    Some((there, Ok(value))) => {
                        let owner =
                            (!Arc::ptr_eq(&there.site, &link.site)).then(|| Arc::clone(&link.site));
                        (there, owner, Ok(value))
                    }
                    Some((there, Err(why))) if Redirect::of(&why).is_none() => {
                        (there, None, Err(why))
                    }
                    _ => (link, None, Err(fault)),
                };
            }
            let next = async {
                if cluster.leave(slot, &link.site).await.is_err() {
                    // The others have not heard of it yet.
                    clock::until(
                        clock::now() + self.pool.limit / PAUSES,
                        std::future::pending::<()>(),
                    )
                    .await;
                }
                let next = self
                    .pool
                    .connection(Route::Newest, self.channel.as_deref(), Some(slot))
                    .await?;
                if matches!(self.effect, Effect::Sets(_)) {
                    self.pool.settled(&next, self.lock).await?;
                }
                Ok(next)
            };
            link = match clock::until(ends, next)
                .await
                .unwrap_or_else(|| Err(redirect::lost(fault)))
            {
                Ok(link) => link,
                Err(why) => return (link, None, Err(why)),
            };
            if self.is_cancelled() {
                return (link, None, Err(given_up()));
            }
            result = self.ask(&link).await;
        }
        let lost = result.map_err(|fault| {
            if Redirect::of(&fault).is_some() {
                redirect::lost(&fault)
            } else {
                fault
            }
        });
        (link, None, lost)
    }

    /// Sends the least form of the request to the primary at `link`, which has only some of the
    /// lock's keys, then to the member to which these go. Returns the connection on which it was
    /// answered; nothing if the request has no such form.
    async fn in_part(
        &self,
        link: &Link,
        cluster: &Cluster,
        word: Redirect,
    ) -> Option<(Link, Result<Value, Fault>)> {
        let least = &self.call.least.as_ref()?.command;
        let mut word = word;
        if word == Redirect::TryAgain {
            let result = link.send(least, self.effect).await;
            match redirect(&result) {
                Some(ask @ Redirect::Ask(_)) => word = ask,
                _ => return Some((link.clone(), result)),
            }
        }
        let Redirect::Ask(Some(there)) = word.from(link.site.location()) else {
            return None;
        };
        let there = match cluster.member(&there, &link.site).await {
            Ok(site) => self.pool.detour(site).await,
            Err(fault) => Err(fault),
        };
        Some(match there {
            Ok(there) => {
                let result = there.send_asking(least, self.effect).await;
                (there, result)
            }
            Err(fault) => (link.clone(), Err(fault)),
        })
    }
}

/// Whether the reply says that the lock was the token's and is gone.
fn has_freed(reply: &Result<Value, Fault>) -> bool {
    reply
        .as_ref()
        .is_ok_and(|value| matches!(reply::standing(value, "released"), Ok(None)))
}

/// Returns what a member says that did not serve the request.
fn redirect(result: &Result<Value, Fault>) -> Option<Redirect> {
    result.as_ref().err().and_then(Redirect::of)
}
