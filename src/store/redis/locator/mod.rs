//! Finds a node's server. A [`Locator`] resolves the node's address to a [`Site`], which labels
//! each connection to it.
//!
//! 1. [`Locator::find`] returns the server that takes the requests from now on.
//! 2. [`Locator::confirm`] says whether a server that has answered was still the node's. A grant or
//!    a renewal counts only then.
//! 3. [`Locator::moved`] returns when another server has taken over.
//! 4. In a cluster the server depends on the key, by its [`HashSlot`]. Every other locator has no
//!    slots.
//!
//! Where a server is known only here and in `redis`: a layer above sees one node. No request is
//! repeated here.

mod answers;
mod cluster;
mod naming;
pub mod redirect;
mod sentinel;
mod site;
mod slots;
pub mod way;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::task::JoinSet;

use super::connect::Connector;
use super::{Fault, Pending};
use crate::lock::key::Key;
pub use cluster::Cluster;
pub use naming::{Location, Naming};
pub use sentinel::Sentinels;
pub use site::{Primary, Site, Source};
pub use slots::HashSlot;
pub use way::Way;

/// Returns what opens connections to a server whose address is found out.
type ServerAt = Box<dyn Fn(&Location) -> Connector + Send + Sync>;

/// Finds the server of a node.
#[derive(Clone)]
pub enum Locator {
    /// At the node's address, always.
    Fixed(Arc<Site>),
    /// Where sentinels say.
    Sentinel(Arc<Sentinels>),
    /// Where the members of a cluster say.
    Cluster(Arc<Cluster>),
}

/// Facts about a server that may be replaced, beside its address.
pub enum Survey {
    /// The answers of the sentinels of its service.
    Sentinels {
        /// Number of sentinels that are listed.
        listed: usize,
        /// The answers of those that name a primary.
        namings: Vec<Naming>,
    },
    /// It is a member of a cluster.
    Cluster {
        /// Time after which the other members take it for dead, if it may be asked for.
        node_timeout: Option<Duration>,
    },
}

/// Does `work` in a task of its own. A caller that is polled no more, though it is not dropped,
/// then keeps nothing locked that others wait for. Ends the work if it is dropped.
pub(in crate::store) async fn apart<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> T {
    let mut task = JoinSet::new();
    task.spawn(work);
    match task.join_next().await {
        Some(Ok(done)) => done,
        // A panic ends rlock, and a runtime that shuts down polls nothing any more.
        Some(Err(_)) | None => std::future::pending().await,
    }
}

/// Whether a server that has answered was still the node's when it did.
#[derive(Debug)]
pub enum Confirmation {
    /// It was.
    Present,
    /// It was not: another one has taken over.
    Replaced(Fault),
    /// That could not be found out.
    Unknown(Fault),
}

impl Locator {
    /// The server that `connector` leads to.
    pub fn fixed(connector: Connector) -> Self {
        Self::Fixed(Arc::new(Site::new(connector, None)))
    }

    /// Returns the slot of a lock; `None` where there are no slots.
    pub fn slot(&self, key: &Key) -> Option<HashSlot> {
        match self {
            Self::Fixed(_) | Self::Sentinel(_) => None,
            Self::Cluster(_) => Some(HashSlot::of(key)),
        }
    }

    /// Returns the server that takes the requests from now on. The caller limits the time.
    pub async fn find(&self, slot: Option<HashSlot>) -> Result<Arc<Site>, Fault> {
        match self {
            Self::Fixed(site) => Ok(Arc::clone(site)),
            Self::Sentinel(sentinels) => Box::pin(sentinels.find()).await,
            Self::Cluster(cluster) => Box::pin(cluster.find(slot.unwrap_or_default())).await,
        }
    }

    /// Returns the servers that have the locks of this node between them. The caller limits the
    /// time.
    pub async fn all(&self) -> Result<Vec<Arc<Site>>, Fault> {
        match self {
            Self::Cluster(cluster) => Box::pin(cluster.primaries()).await,
            Self::Fixed(_) | Self::Sentinel(_) => Ok(vec![self.find(None).await?]),
        }
    }

    /// Whether `site` takes the requests, as far as is known without a question.
    pub fn is_current(&self, site: &Arc<Site>, slot: Option<HashSlot>) -> bool {
        match self {
            Self::Fixed(fixed) => Arc::ptr_eq(fixed, site),
            Self::Sentinel(sentinels) => sentinels.current.is(site),
            Self::Cluster(cluster) => cluster.is_current(site, slot.unwrap_or_default()),
        }
    }

    /// Says whether the server of `source`, which has answered by now, was still the node's.
    pub async fn confirm(&self, source: &Source) -> Confirmation {
        match (self, &source.site.primary) {
            (Self::Sentinel(sentinels), Some(primary)) => {
                Box::pin(sentinels.confirm(&source.site, primary)).await
            }
            (Self::Cluster(cluster), Some(primary)) => {
                Box::pin(cluster.confirm(source, primary)).await
            }
            _ => Confirmation::Present,
        }
    }

    /// Returns when another server is found, or announced, after this call.
    pub fn moved(&self, slot: Option<HashSlot>) -> Pending<()> {
        match (self, slot) {
            (Self::Sentinel(sentinels), _) => sentinels.current.moved(),
            (Self::Cluster(cluster), Some(slot)) => cluster.moved(slot),
            (Self::Fixed(_), _) | (Self::Cluster(_), None) => Box::pin(std::future::pending()),
        }
    }

    /// Whether a server may take over whose data lack the last writes of another.
    pub fn has_failovers(&self) -> bool {
        matches!(self, Self::Sentinel(_) | Self::Cluster(_))
    }

    /// Returns the cluster, if the server is one of a cluster.
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        match self {
            Self::Fixed(_) | Self::Sentinel(_) => None,
            Self::Cluster(cluster) => Some(cluster),
        }
    }

    /// Returns the primary that was found last for a lock in `slot`; `None` where there is no failover.
    pub fn primary(&self, slot: Option<HashSlot>) -> Option<Primary> {
        match self {
            Self::Fixed(_) => None,
            Self::Sentinel(sentinels) => sentinels.current.site()?.primary.clone(),
            Self::Cluster(cluster) => cluster.site_of(slot?)?.primary.clone(),
        }
    }

    /// Returns what the sentinels say; `None` where there are none.
    pub async fn survey(&self) -> Option<Survey> {
        match self {
            Self::Fixed(_) | Self::Cluster(_) => None,
            Self::Sentinel(sentinels) => Some(sentinels.survey().await),
        }
    }
}

/// One kind of question to other servers, and the answer to the last one, which callers share. Questions are numbered, because two
/// instants may be equal.
struct Questions<T>(Arc<Numbered<T>>);

struct Numbered<T> {
    /// Number of questions so far.
    asked: AtomicU64,
    /// The number of the last question, and its answer.
    last: Mutex<Option<(u64, T)>>,
}

impl<T> Default for Questions<T> {
    fn default() -> Self {
        Self(Arc::new(Numbered {
            asked: AtomicU64::default(),
            last: Mutex::default(),
        }))
    }
}

impl<T> Questions<T> {
    /// Returns the number of questions so far.
    fn asked(&self) -> u64 {
        self.0.asked.load(Ordering::Relaxed)
    }

    /// Keeps other questions back. The caller must be polled until it drops this.
    async fn turn(&self) -> MutexGuard<'_, Option<(u64, T)>> {
        self.0.last.lock().await
    }
}

impl<T: Clone + Send + 'static> Questions<T> {
    /// Returns the answer to a question that is sent after this call. Callers that come at the same
    /// time share one, if it `fits` them.
    async fn answer(
        &self,
        fits: impl Fn(&T) -> bool + Send + 'static,
        ask: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let (questions, before) = (Arc::clone(&self.0), self.asked());
        apart(async move {
            let mut last = questions.last.lock().await;
            if let Some((_, answer)) = last
                .as_ref()
                .filter(|(number, answer)| *number > before && fits(answer))
            {
                return answer.clone();
            }
            let number = questions.asked.fetch_add(1, Ordering::Relaxed) + 1;
            let answer = ask.await;
            *last = Some((number, answer.clone()));
            answer
        })
        .await
    }
}

#[cfg(test)]
mod tests;
