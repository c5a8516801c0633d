//! The connections of one node, and which of them a request takes. Locks on the same node share
//! them.
//!
//! 1. [`Route::Newest`]: the newest connection, if it works, leads to the server that takes the
//!    requests now ([`Locator`]), and has answered every request older than the node timeout. Else
//!    a new one. A waiter's request takes only a connection on which the server can wake it.
//! 2. A request that may set a key waits until its connection has no unanswered SET or release of
//!    the same lock. A server that hangs reads only part of its input buffer when it resumes (Redis
//!    6.2: 16 KiB), and no more once it finds the client gone. A second SET, or a queue entry,
//!    could then run without the release behind it. SETs of several locks do not wait for each
//!    other, so that they take one round trip. Where such a server reads only some of them, it
//!    keeps keys for a TTL.
//! 3. [`Route::AfterPending`]: a release goes to every connection on which a SET of its lock is
//!    pending, and to the newest. It is not sent to the newest where a release of its lock is in
//!    flight already: by rule 2, a server that hangs would not read it.
//! 4. [`Route::Final`]: a release by which a waiter leaves the queue. It goes to every connection
//!    on which a SET or a release of its lock is pending, since a release may put the waiter back
//!    into the queue. The newest is sent it in any case.
//!
//! In a cluster these rules are about the connections to the primary of the lock's slot. Those to
//! other members are kept beside them.
//!
//! A release cancels each request of its lock that would set a key and is still unsent
//! (`requests`). Connections without a reply are kept for it, up to [`KEPT_CONNECTIONS`].

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::connection::{Connection, Hearing};
use super::listeners::{Listeners, Words};
use super::state::{LockId, Subscription};
use super::stranger;
use crate::clock;
use crate::lock::instant::Instant;
use crate::store::redis::locator::{HashSlot, Locator, Site};
use crate::store::{Fault, FaultKind};

/// Connections without a reply that are kept for late replies. The oldest beyond that is closed: a
/// node that accepts connections and never answers would use up our descriptors.
const KEPT_CONNECTIONS: usize = 4;

/// Which connection a request takes; see the rules of this module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Route {
    Newest,
    AfterPending,
    Final,
}

/// A connection, labelled by the server that it leads to.
#[derive(Clone)]
pub(super) struct Link {
    connection: Connection,
    pub(super) site: Arc<Site>,
}

impl Deref for Link {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

/// A connection that is being opened. A server to which that fails, or takes too long, may have
/// been replaced.
struct Opening<'a> {
    site: &'a Site,
    is_open: bool,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if !self.is_open {
            self.site.suspect();
        }
    }
}

/// A connection that could not be opened.
struct Failed {
    at: Instant,
    /// Whether it was for a waiter.
    waits: bool,
    slot: Option<HashSlot>,
    fault: Fault,
}

impl Failed {
    /// Whether a request that has waited since `began` waited for this connection.
    fn is_for(&self, began: Instant, waits: bool, slot: Option<HashSlot>) -> bool {
        self.at > began && (self.waits, self.slot) == (waits, slot)
    }
}

/// The connections of one node.
pub(super) struct Pool {
    /// Where the server is.
    pub(super) locator: Locator,
    /// Bounds each exchange, connecting included.
    pub(super) limit: Duration,
    /// The most that may be read between two requests.
    room: usize,
    /// Newest last.
    open: Mutex<Vec<Link>>,
    /// Held while a connection is opened, so that requests that need one at the same time share it,
    /// or its failure.
    opening: tokio::sync::Mutex<Option<Failed>>,
    listeners: Listeners,
    locks: AtomicU64,
    /// Whether the server lets this user call no script by its digest.
    needs_whole_scripts: AtomicBool,
}

/// The connections that a release takes.
pub(super) struct ReleaseRoute {
    /// Those that need it beside the one of its route.
    pub(super) others: Vec<Link>,
    /// Whether the one of its route must still be opened though another works. The caller waits,
    /// and the one that works has no subscription: a queue entry that was made there would miss its
    /// wake-up.
    pub(super) is_for_the_queue: bool,
}

impl Pool {
    pub(super) fn new(locator: Locator, limit: Duration, room: usize) -> Self {
        Self {
            locator,
            limit,
            room,
            open: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            listeners: Listeners::default(),
            locks: AtomicU64::default(),
            needs_whole_scripts: AtomicBool::default(),
        }
    }

    /// A number for another lock on this server.
    pub(super) fn new_lock(&self) -> LockId {
        LockId(self.locks.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether scripts are sent whole, as the server lets this user call none by its digest.
    pub(super) fn needs_whole_scripts(&self) -> bool {
        self.needs_whole_scripts.load(Ordering::Relaxed)
    }

    /// Remembers that.
    pub(super) fn send_whole_scripts(&self) {
        self.needs_whole_scripts.store(true, Ordering::Relaxed);
    }

    /// Passes wake-ups that come on `channel` on to `words`.
    pub(super) fn listen(&self, channel: &str, words: &Words) {
        self.listeners.add(channel, words);
    }

    /// The same, and subscribes to `channel` on the newest connection, if that was opened for a
    /// waiter.
    pub(super) async fn also_listen(&self, channel: &str, words: &Words, slot: Option<HashSlot>) {
        self.listen(channel, words);
        if let Some(newest) = self.newest(slot) {
            newest.subscribe(channel).await;
        }
    }

    /// The newest connection.
    pub(super) fn newest(&self, slot: Option<HashSlot>) -> Option<Link> {
        let open = self.open();
        self.newest_of(&open, slot).map(|place| open[place].clone())
    }

    /// Whether the newest connection leads to the server that takes the requests.
    pub(super) fn is_reached(&self, slot: Option<HashSlot>) -> bool {
        self.newest(slot)
            .is_some_and(|newest| self.serves(&newest, false, slot))
    }

    /// All open connections.
    pub(super) fn all(&self) -> Vec<Link> {
        self.open().clone()
    }

    /// Whether the server will tell the waiter that listens on `channel`.
    pub(super) fn subscription(&self, channel: &str, slot: Option<HashSlot>) -> Subscription {
        self.newest(slot)
            .map_or(Subscription::None, |newest| newest.subscription(channel))
    }

    /// The connections on which a release of `lock` must be written. `waits`: the caller goes on
    /// waiting.
    pub(super) fn for_release(
        &self,
        lock: LockId,
        route: Route,
        waits: bool,
        slot: Option<HashSlot>,
    ) -> ReleaseRoute {
        let open = self.open();
        let newest = self.newest_of(&open, slot);
        let taken = newest.filter(|place| self.serves(&open[*place], waits, slot));
        let is_for_the_queue =
            taken.is_none() && waits && newest.is_some_and(|place| open[place].state().works());
        let needs_it = |link: &Link| {
            let state = link.state();
            state.owes_a_release(lock)
                || state.may_set(lock) && state.serves(waits)
                || route == Route::Final && !state.is_settled(lock)
        };
        let others = open
            .iter()
            .enumerate()
            .rev()
            .filter(|(place, link)| Some(*place) != taken && needs_it(link));
        ReleaseRoute {
            others: others.map(|(_, link)| link.clone()).collect(),
            is_for_the_queue,
        }
    }

    /// Returns the connection that a request takes, which is opened if need be. `channel`: the
    /// caller waits, and listens there.
    pub(super) async fn connection(
        &self,
        route: Route,
        channel: Option<&str>,
        slot: Option<HashSlot>,
    ) -> Result<Link, Fault> {
        let (began, waits) = (clock::now(), channel.is_some());
        let connection = if let Some(connection) = self.usable(route, waits, slot) {
            connection
        } else {
            let ends = began + self.limit;
            let Some(mut last) = clock::until(ends, self.opening.lock()).await else {
                return Err(self.too_slow());
            };
            if let Some(connection) = self.usable(route, waits, slot) {
                connection
            } else {
                if let Some(failed) = last
                    .as_ref()
                    .filter(|failed| failed.is_for(began, waits, slot))
                {
                    return Err(failed.fault.clone());
                }
                let opened = self.open_another(waits, ends, slot).await;
                let failed = |fault: &Fault| Failed {
                    at: clock::now(),
                    waits,
                    slot,
                    fault: fault.clone(),
                };
                *last = opened.as_ref().err().map(failed);
                opened?
            }
        };
        if let Some(channel) = channel {
            connection.subscribe(channel).await;
        }
        Ok(connection)
    }

    /// Returns a connection to `site`, a member of a cluster, which is opened if need be.
    pub(super) async fn detour(&self, site: Arc<Site>) -> Result<Link, Fault> {
        let ends = clock::now() + self.limit;
        let Some(_turn) = clock::until(ends, self.opening.lock()).await else {
            return Err(self.too_slow());
        };
        let fits =
            |link: &&Link| Arc::ptr_eq(&link.site, &site) && link.state().is_of_use(self.limit);
        let known = self.open().iter().rev().find(fits).cloned();
        if let Some(link) = known {
            return Ok(link);
        }
        let link = clock::until(ends, Box::pin(self.link(site, None)))
            .await
            .unwrap_or_else(|| Err(self.too_slow()))?;
        self.open().push(link.clone());
        Ok(link)
    }

    /// Waits until `connection` takes another SET of `lock` (rule 2).
    pub(super) async fn settled(&self, connection: &Connection, lock: LockId) -> Result<(), Fault> {
        clock::until(clock::now() + self.limit, connection.settled(lock))
            .await
            .ok_or_else(|| self.too_slow())
    }

    /// Returns the newest connection, if a request of this route takes it or no other may be
    /// opened. No other may be opened in a full pool whose connections all owe a release, which
    /// must go behind its SET.
    fn usable(&self, route: Route, waits: bool, slot: Option<HashSlot>) -> Option<Link> {
        let open = self.open();
        let newest = &open[self.newest_of(&open, slot)?];
        let is_silent = newest.state().is_stalled(self.limit);
        if is_silent || !newest.state().works() {
            newest.site.suspect();
        }
        let fits = self.serves(newest, waits, slot) && !(route == Route::Newest && is_silent);
        let of_server = || open.iter().filter(|link| self.is_beside(link, newest));
        let is_full = of_server().count() >= KEPT_CONNECTIONS
            && of_server().all(|link| link.state().owes_any_release());
        (fits || is_full).then(|| newest.clone())
    }

    /// Returns the place of the newest connection; in a cluster, of that to the primary of `slot`.
    fn newest_of(&self, open: &[Link], slot: Option<HashSlot>) -> Option<usize> {
        match slot {
            None => open.len().checked_sub(1),
            Some(_) => open
                .iter()
                .rposition(|link| self.locator.is_current(&link.site, slot)),
        }
    }

    /// Whether both connections count towards the same limit.
    fn is_beside(&self, one: &Link, other: &Link) -> bool {
        self.locator.cluster().is_none() || Arc::ptr_eq(&one.site, &other.site)
    }

    /// Whether `link` takes new requests, and if the caller `waits`, whether it was opened for a
    /// waiter.
    fn serves(&self, link: &Link, waits: bool, slot: Option<HashSlot>) -> bool {
        link.state().serves(waits) && self.locator.is_current(&link.site, slot)
    }

    async fn open_another(
        &self,
        waits: bool,
        ends: Instant,
        slot: Option<HashSlot>,
    ) -> Result<Link, Fault> {
        let is_mistaken = self
            .newest(slot)
            .is_some_and(|newest| newest.state().subscribed_only);
        let hearing = (waits && !is_mistaken).then(|| self.listeners.hearing());
        let (link, is_deaf) = match self.connect(hearing, ends, slot).await {
            // An ACL without HELLO, or a server that does not know it: the waiter polls.
            Err(fault)
                if waits
                    && matches!(fault.kind, FaultKind::Refused | FaultKind::Unfit)
                    && fault != stranger::tls() =>
            {
                (self.connect(None, ends, slot).await?, true)
            }
            // A server that took HELLO 3 and does not speak RESP3: the waiter polls.
            link => (link?, waits && is_mistaken),
        };
        if is_deaf {
            link.deny_push();
        }
        let mut open = self.open();
        let is_member = |site: &Site| {
            self.locator
                .cluster()
                .is_some_and(|cluster| cluster.is_member(site))
        };
        open.retain(|other| {
            let state = other.state();
            let leads_elsewhere =
                state.works() && !self.is_beside(other, &link) && is_member(&other.site);
            let is_current = self.locator.is_current(&other.site, slot);
            let stays = !state.is_settled_for_all()
                || leads_elsewhere
                || !waits && state.serves(waits) && is_current;
            let gives_way = !stays && !state.serves(waits) && state.works();
            drop(state);
            if gives_way {
                other.retire();
            }
            stays
        });
        if open
            .iter()
            .filter(|other| self.is_beside(other, &link))
            .count()
            >= KEPT_CONNECTIONS
            && let Some(oldest) = open
                .iter()
                .position(|other| self.is_beside(other, &link) && !other.state().owes_any_release())
        {
            open.remove(oldest).connection.abandon();
        }
        open.push(link.clone());
        Ok(link)
    }

    async fn connect(
        &self,
        hearing: Option<Hearing>,
        ends: Instant,
        slot: Option<HashSlot>,
    ) -> Result<Link, Fault> {
        // Boxed: opening is rare and its state large, and would be part of every future above it.
        let connecting =
            Box::pin(async { self.link(self.locator.find(slot).await?, hearing).await });
        clock::until(ends, connecting)
            .await
            .unwrap_or_else(|| Err(self.too_slow()))
    }

    async fn link(&self, site: Arc<Site>, hearing: Option<Hearing>) -> Result<Link, Fault> {
        let mut opening = Opening {
            site: &site,
            is_open: false,
        };
        let connection = site
            .connector
            .open(self.limit, self.room, hearing)
            .await
            .map_err(|fault| site.named(fault))?;
        opening.is_open = true;
        drop(opening);
        Ok(Link { connection, site })
    }

    /// The fault of a request that was not sent in time, and so changed nothing.
    fn too_slow(&self) -> Fault {
        Fault {
            kind: FaultKind::Unavailable,
            ..Fault::timeout(self.limit)
        }
    }

    fn open(&self) -> MutexGuard<'_, Vec<Link>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
