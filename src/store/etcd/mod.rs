//! Locks in etcd, in one line with `etcdctl lock` and clientv3's `Mutex` of the same name
//! (docs/etcd.md).
//!
//! 1. A place in the line becomes the lock: the first entry holds it, and etcd orders the entries.
//! 2. `lock` takes and renews one lock, `release` gives it back, and `line` has the tasks that listen
//!    for it. `newest` ends older waiters.
//! 3. `client` chooses the member that is asked, over one connection, a `link`.
//!
//! A cluster has a quorum of its own, so it is one node and stands alone.

pub(in crate::store) mod address;
pub mod client;
mod examine;
mod line;
mod link;
mod listing;
mod lock;
mod look;
mod names;
mod newest;
mod proof;
mod release;
pub mod rpc;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use self::address::prefix;
use self::client::{Client, dial};
use self::lock::Lock;
use self::names::{Names, OWN};
use super::{
    Answer, Claim, Fault, Feature, Hint, Keep, Lacking, Listing, Look, Node, Pages, Pending, Queue,
    Release, ReleaseReply, Renewal, Store, TakeAway, Vote, Wakes, ready,
};
use crate::lock::key::Key;
use crate::lock::lease::Revoked;
use crate::lock::messages::Observation;
use crate::lock::queue::Waiter;
use crate::lock::token::Token;
use crate::store::examine::{Examination, Plan, Rights, Role};
use crate::store::net::dial::HostDial;
use crate::store::net::quorum::{QuorumAccess, QuorumAddress};
use crate::store::net::task::{started, stopped};
use crate::store::redis::acl::Locks;
use crate::text::escape;

/// The features that etcd lacks.
pub const LACKING: Lacking = &[
    (
        Feature::Slots,
        "is not for etcd: it has no recipe for slots that other clients keep",
    ),
    (Feature::Copies, FOR_REDIS),
    (Feature::OtherForms, FOR_REDIS),
    (
        Feature::RestartGuard,
        "is for Redis: the members of an etcd cluster forget nothing",
    ),
];

const FOR_REDIS: &str = "is for Redis";

/// Returns the text that gives a role of etcd the rights of `role` to these locks, or to all if there
/// are none. Of a pattern, what stands before its first star counts.
pub fn rights(address: &QuorumAddress, role: Role, locks: Locks) -> Rights {
    let right = if role == Role::Monitor {
        "read"
    } else {
        "readwrite"
    };
    let prefix = prefix(address);
    let slash = if prefix.is_empty() { "" } else { "/" };
    let base = format!("{prefix}{slash}");
    let patterns = locks.patterns.iter().map(|pattern| {
        let text = pattern.split('*').next().unwrap_or_default();
        (format!("{base}{}{text}", locks.prefix), true)
    });
    let mut wanted: Vec<(String, bool)> = patterns.collect();
    for key in locks.keys {
        wanted.push((format!("{base}{}/", key.stored()), true));
        for own in OWN {
            wanted.push((format!("{own}{base}{}", key.stored()), false));
        }
    }
    if wanted.is_empty() {
        wanted = vec![(base.clone(), true)];
    }
    // Without a prefix all keys are meant, rlock's own too.
    if !base.is_empty() && (locks.keys.is_empty() || !locks.patterns.is_empty()) {
        wanted.extend(OWN.map(|own| (format!("{own}{base}"), true)));
    }
    let grant = |(key, is_prefix): &(String, bool)| {
        let span = if *is_prefix { " --prefix=true" } else { "" };
        let key = escape::text(key).replace('\'', "'\\''");
        format!("etcdctl role grant-permission rlock {right} '{key}'{span}")
    };
    let lines: Vec<String> = wanted.iter().map(grant).collect();
    Rights {
        line: lines.join(" && "),
        note: "replace rlock with the role of the user".to_owned(),
    }
}

/// Checks the name of a lock at `address`. Errors are for people.
pub fn check_key(address: &QuorumAddress, key: &Key) -> Result<(), &'static str> {
    if Names::new(prefix(address), key).are_own() {
        return Err("begins with rlock:once: or rlock:newest:, which are keys beside the locks");
    }
    Ok(())
}

/// Largest reply, in bytes.
const REPLY_LIMIT: usize = 2 << 20;

/// A cluster, to which all locks there share a connection.
pub struct EtcdStore {
    name: String,
    client: Client,
    prefix: String,
}

impl EtcdStore {
    /// A cluster that is connected to when it is first asked. `limit` bounds each exchange,
    /// connecting included.
    pub fn new(address: &QuorumAddress, access: QuorumAccess, limit: Duration) -> Self {
        let dial = dial(access.trust.as_ref());
        Self::over(address, access, dial, limit)
    }

    /// The same, over streams that `dial` opens.
    pub fn over(
        address: &QuorumAddress,
        access: QuorumAccess,
        dial: HostDial,
        limit: Duration,
    ) -> Self {
        Self {
            name: address.to_string(),
            client: Client::new(access, dial, limit, REPLY_LIMIT),
            prefix: prefix(address).to_owned(),
        }
    }
}

impl Store for EtcdStore {
    fn name(&self) -> &str {
        &self.name
    }

    fn open(&self, key: &Key) -> Box<dyn Node> {
        let names = Names::new(&self.prefix, key);
        Box::new(EtcdNode {
            name: self.name.clone(),
            lock: Lock::new(self.client.clone(), names),
        })
    }

    fn listing(&self) -> Option<&dyn Listing> {
        Some(self)
    }

    fn examine(&self, plan: &Plan) -> Pending<Result<Examination, Fault>> {
        let (client, plan, prefix) = (self.client.clone(), plan.clone(), self.prefix.clone());
        Box::pin(async move { examine::examination(&client, &prefix, &plan).await })
    }
}

impl Listing for EtcdStore {
    fn pages(&self, prefix: &str) -> Pages {
        listing::pages(self.client.clone(), &self.prefix, prefix)
    }
}

/// A lock in etcd.
struct EtcdNode {
    name: String,
    lock: Arc<Lock>,
}

impl Node for EtcdNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn acquire(&self, claim: &Claim) -> Pending<Answer> {
        let (lock, claim, written) = (
            Arc::clone(&self.lock),
            claim.clone(),
            self.lock.writes.begin(),
        );
        lock.enters(claim.token);
        started(async move { lock.acquire(claim, written).await }, |fault| {
            Vote::Failed(fault).into()
        })
    }

    fn keep(&self, keep: &Keep) -> Pending<Renewal> {
        let (lock, keep) = (Arc::clone(&self.lock), keep.clone());
        // What is gone is not set again: the members forget nothing, so it was taken away.
        started(async move { lock.keep(keep).await }, Renewal::Failed)
    }

    fn look(&self, look: Look) -> Pending<Result<Observation, Fault>> {
        let this = Arc::clone(&self.lock);
        started(async move { this.look(look).await }, Err)
    }

    fn take_away(&self, how: TakeAway) -> Pending<Result<Option<Revoked>, Fault>> {
        let lock = Arc::clone(&self.lock);
        started(async move { lock.take_away(how).await }, Err)
    }

    fn release(&self, release: &Release) -> Pending<ReleaseReply> {
        // The place and its token stay.
        if Lock::is_kept(release) {
            return ready(ReleaseReply::NotOurs(Revoked::Missing));
        }
        let (lock, release, written) = (
            Arc::clone(&self.lock),
            release.clone(),
            self.lock.writes.begin(),
        );
        if lock.gives_up(release.token) {
            let cut_off = async move { lock.cut_off(release.token, written).await };
            return started(cut_off, ReleaseReply::Failed);
        }
        let (answer, answered) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let answer = |reply| drop(answer.send(reply));
            lock.release(release, written, answer).await;
        });
        Box::pin(async move {
            answered
                .await
                .unwrap_or_else(|_| ReleaseReply::Failed(stopped()))
        })
    }

    fn next(&self) -> Pending<Hint> {
        self.lock.hints.next()
    }

    fn queue(&self) -> Option<&dyn Queue> {
        Some(self)
    }

    fn settled(&self, limit: Duration) -> Pending<bool> {
        self.lock.writes.written(limit)
    }
}

impl Queue for EtcdNode {
    fn leave(&self, _waiter: &Waiter) -> Pending<()> {
        let lock = Arc::clone(&self.lock);
        let waiting = lock.state().place.clone().filter(|place| !place.is_held);
        let Some(place) = waiting else {
            return ready(());
        };
        started(
            async move { drop(lock.withdraw(place.lease).await) },
            |_| (),
        )
    }

    fn becomes_the_lock(&self) -> bool {
        true
    }

    fn announce(&self, claim: &Claim) -> Pending<()> {
        let (lock, claim) = (Arc::clone(&self.lock), claim.clone());
        started(async move { lock.announce(&claim).await }, |_| ())
    }

    fn listen(&self, token: Token) {
        let place = self.lock.state().place.clone();
        if let Some(place) = place.filter(|place| place.token == token) {
            self.lock.listen(place);
        }
    }

    fn wakes(&self) -> Wakes {
        self.lock.wakes()
    }
}

impl Drop for EtcdNode {
    /// Gives up a place at which the client waits no more, and leaves a lock alone.
    fn drop(&mut self) {
        let place = {
            let mut state = self.lock.state();
            let tasks = [state.waiting.take(), state.listening.take()];
            tasks.into_iter().flatten().for_each(|task| task.abort());
            state.place.take().filter(|place| !place.is_held)
        };
        if let (Some(place), Ok(runtime)) = (place, tokio::runtime::Handle::try_current()) {
            let lock = Arc::clone(&self.lock);
            runtime.spawn(async move { drop(lock.withdraw(place.lease).await) });
        }
    }
}
