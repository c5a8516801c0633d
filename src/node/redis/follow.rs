//! Follows a request that a member of a cluster sends away (`place::redirect`), until another one serves it.
//!
//! A request that was sent away changed nothing. Sending it on sets no key a second time. So that the order of one lock's requests
//! stays, three rules hold:
//! 1. A release cancels a SET that is on its way and was not yet written again. One that was written is unanswered on its new
//!    connection, and the release goes behind it there.
//! 2. No SET is sent while another SET or a release of its lock is on its way.
//! 3. A SET goes behind what is unanswered on its new connection, as any does (`pool`).

use std::sync::Arc;

use redis::{Cmd, Value};
use tokio::sync::watch;

use super::pool::{Link, Pool, Route};
use super::requests::{Progress, given_up};
use super::state::{Effect, LockId};
use crate::clock;
use crate::lock::instant::Instant;
use crate::node::Fault;
use crate::node::place::redirect::{self, Redirect, Step, Trail};
use crate::node::place::{Cluster, Site, Slot, Source};

/// Part of the limit of an exchange for which a request pauses.
const PAUSES: u32 = 10;

/// Sends one request on.
pub(super) struct Follower {
    pub(super) pool: Arc<Pool>,
    pub(super) cluster: Arc<Cluster>,
    pub(super) progress: Arc<watch::Sender<Progress>>,
    pub(super) lock: LockId,
    pub(super) slot: Slot,
    /// The number of the request among those of its lock.
    pub(super) number: usize,
    /// The forms of the request that have fewer keys.
    pub(super) fewer: Vec<Cmd>,
    /// The channel on which the caller waits.
    pub(super) channel: Option<String>,
}

/// A request that is on its way, counted until it is served.
struct Away<'a>(&'a watch::Sender<Progress>);

impl<'a> Away<'a> {
    fn new(progress: &'a watch::Sender<Progress>) -> Self {
        progress.send_modify(|progress| progress.away += 1);
        Self(progress)
    }
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|progress| progress.away -= 1);
    }
}

impl Follower {
    /// Returns the reply that counts, and the connection on which it came. The request was about to be sent on `link` at `sent`,
    /// and was answered by `result` there.
    pub(super) async fn follow(
        self,
        link: Link,
        command: Arc<Cmd>,
        effect: Effect,
        sent: Instant,
        result: Result<Value, Fault>,
    ) -> (Link, Source, Result<Value, Fault>) {
        let limit = self.pool.limit();
        let (link, owner, result) = match redirect(&result) {
            None => (link, None, result),
            // Ends before the limit, so that the caller hears the cause, not just that time is over.
            // Boxed: it is rare and its state large, and would be part of every request of a cluster.
            Some(_) => Box::pin(self.onwards(link, &command, effect, sent + limit / 4 * 3, result)).await,
        };
        let is_detour = owner.is_some();
        let site = owner.unwrap_or_else(|| Arc::clone(&link.site));
        let is_late = clock::now() >= sent + limit;
        (link, Source { site, slot: Some(self.slot), is_late, is_detour }, result)
    }

    /// Returns the connection to the server that served the request, the primary in whose place it did, and its reply.
    async fn onwards(
        &self,
        mut link: Link,
        whole: &Cmd,
        effect: Effect,
        ends: Instant,
        mut result: Result<Value, Fault>,
    ) -> (Link, Option<Arc<Site>>, Result<Value, Fault>) {
        let _away = (effect != Effect::None).then(|| Away::new(&self.progress));
        let mut trail = Trail::new(1 + self.fewer.len());
        // The primary that said ASK, while its word leads the request.
        let mut owner: Option<Arc<Site>> = None;
        loop {
            let (Some(redirect), Err(fault)) = (redirect(&result), &result) else {
                return (link, owner, result);
            };
            let step = trail.next(redirect.from(link.site.location()));
            let asked = matches!(step, Step::Detour(_)).then(|| Arc::clone(&link.site));
            let next = match step {
                Step::Stop => None,
                step => clock::until(ends, self.next(step, &link, effect)).await,
            };
            link = match next.unwrap_or_else(|| Err(redirect::lost(fault))) {
                Ok(link) => link,
                Err(why) => return (link, None, Err(why)),
            };
            owner = asked;
            // Between this and the first poll of the exchange, no release can be accepted.
            if matches!(effect, Effect::Sets(_)) && self.progress.borrow().cancelled > self.number {
                return (link, None, Err(given_up()));
            }
            let command = trail.form().checked_sub(1).map_or(whole, |place| &self.fewer[place]);
            result = match owner {
                Some(_) => link.send_asking(command, effect).await,
                None => link.send(command, effect).await,
            };
        }
    }

    /// Returns the connection that the request takes next.
    async fn next(&self, step: Step, link: &Link, effect: Effect) -> Result<Link, Fault> {
        let next = match step {
            Step::Detour(there) => self.pool.detour(self.cluster.member(&there, &link.site).await?).await?,
            Step::Fewer | Step::Stop => self.primary().await?,
            Step::Pause => {
                self.pause().await;
                self.primary().await?
            }
            Step::Leave => {
                if self.cluster.leave(self.slot, &link.site).await.is_err() {
                    // The others have not heard of it yet.
                    self.pause().await;
                }
                self.primary().await?
            }
        };
        if matches!(effect, Effect::Sets(_)) {
            self.pool.settled(&next, self.lock).await?;
        }
        Ok(next)
    }

    async fn primary(&self) -> Result<Link, Fault> {
        self.pool.connection(Route::Newest, self.channel.as_deref(), Some(self.slot)).await
    }

    async fn pause(&self) {
        clock::until(clock::now() + self.pool.limit() / PAUSES, std::future::pending::<()>()).await;
    }
}

/// Returns what a member says that did not serve the request.
fn redirect(result: &Result<Value, Fault>) -> Option<Redirect> {
    result.as_ref().err().and_then(Redirect::of)
}
