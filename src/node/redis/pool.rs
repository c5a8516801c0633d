//! The connections of one node, and which of them a request takes. Locks on the same node share them.
//!
//! 1. [`Route::Newest`]: the newest connection, if it works, leads to the server that takes the requests now ([`Place`]), and
//!    has answered every request older than the node timeout. Else a new one. A waiter's request takes only a connection on which the server can wake it.
//! 2. A request that may set a key waits until its connection has no unanswered SET or release of the same lock. A server that
//!    hangs reads only part of its input buffer when it resumes (Redis 6.2: 16 KiB), and no more once it finds the client
//!    gone. A second SET, or a queue entry, could then run without the release behind it. SETs of several locks do not wait
//!    for each other, so that they take one round trip. Where such a server reads only some of them, it keeps keys for a TTL.
//! 3. [`Route::AfterPending`]: a release goes to every connection on which a SET of its lock is pending, and to the newest.
//!    It is not sent to the newest where a release of its lock is in flight already: by rule 2, a server that hangs would
//!    not read it.
//! 4. [`Route::Final`]: a release by which a waiter leaves the queue. It goes to every connection on which a SET or a release
//!    of its lock is pending, since a release may put the waiter back into the queue. The newest is sent it in any case.
//!
//! A release cancels each request of its lock that would set a key and is still unsent (`requests`). Connections without a
//! reply are kept for it, up to [`KEPT_CONNECTIONS`].

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::connection::{Connection, Hearing};
use super::listeners::{Listeners, Wakes};
use super::state::{LockId, Subscription};
use crate::clock;
use crate::lock::instant::Instant;
use crate::node::place::{Place, Site};
use crate::node::{Fault, FaultKind};

/// Connections without a reply that are kept for late replies. The oldest beyond that is closed: a node that accepts
/// connections and never answers would use up our descriptors.
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

impl Link {
    /// This link, opened for a waiter, at a server that does not speak RESP3 with this user.
    #[must_use]
    fn without_push(self) -> Self {
        Self { connection: self.connection.without_push(), ..self }
    }
}

impl Deref for Link {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

/// The connections of one node.
pub(super) struct Pool {
    place: Place,
    /// Bounds each exchange, connecting included.
    limit: Duration,
    /// The most that may be read between two requests.
    room: usize,
    /// Newest last.
    open: Mutex<Vec<Link>>,
    /// Held while a connection is opened, so that locks that need one at the same time share it.
    opening: tokio::sync::Mutex<()>,
    listeners: Listeners,
    locks: AtomicU64,
}

/// The connections that a release takes.
pub(super) struct ReleaseRoute {
    /// Those that need it beside the one of its route.
    pub(super) others: Vec<Link>,
    /// Whether the one of its route must still be opened though another works. The caller waits, and the one that works has no
    /// subscription: a queue entry that was made there would miss its wake-up.
    pub(super) is_for_the_queue: bool,
}

impl Pool {
    pub(super) fn new(place: Place, limit: Duration, room: usize) -> Self {
        Self {
            place,
            limit,
            room,
            open: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            listeners: Listeners::default(),
            locks: AtomicU64::default(),
        }
    }

    /// Where the server is.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// The limit for each exchange, connecting included.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// A number for another lock on this server.
    pub(super) fn new_lock(&self) -> LockId {
        LockId(self.locks.fetch_add(1, Ordering::Relaxed))
    }

    /// Passes wake-ups that come on `channel` on to `wakes`.
    pub(super) fn listen(&self, channel: &str, wakes: &Wakes) {
        self.listeners.add(channel, wakes);
    }

    /// The newest connection.
    pub(super) fn newest(&self) -> Option<Link> {
        self.open().last().cloned()
    }

    /// Whether the newest connection leads to the server that takes the requests.
    pub(super) fn is_reached(&self) -> bool {
        self.newest().is_some_and(|newest| self.serves(&newest, false))
    }

    /// All open connections.
    pub(super) fn all(&self) -> Vec<Link> {
        self.open().clone()
    }

    /// Whether the server will tell the waiter that listens on `channel`.
    pub(super) fn subscription(&self, channel: &str) -> Subscription {
        self.newest().map_or(Subscription::None, |newest| newest.subscription(channel))
    }

    /// The connections on which a release of `lock` must be written. `waits`: the caller goes on waiting.
    pub(super) fn for_release(&self, lock: LockId, route: Route, waits: bool) -> ReleaseRoute {
        let open = self.open();
        let takes_newest = open.last().is_some_and(|newest| self.serves(newest, waits));
        let is_for_the_queue = !takes_newest && waits && open.last().is_some_and(|newest| newest.works());
        let needs_it = |connection: &&Link| {
            connection.owes_a_release(lock)
                || connection.may_set(lock) && connection.serves(waits)
                || route == Route::Final && !connection.is_settled(lock)
        };
        let others = open.iter().rev().skip(usize::from(takes_newest)).filter(needs_it).cloned().collect();
        ReleaseRoute { others, is_for_the_queue }
    }

    /// Returns the connection that a request takes, which is opened if need be. `channel`: the caller waits, and listens there.
    pub(super) async fn connection(&self, route: Route, channel: Option<&str>) -> Result<Link, Fault> {
        let (ends, waits) = (clock::now() + self.limit, channel.is_some());
        let connection = if let Some(connection) = self.usable(route, waits) {
            connection
        } else {
            let Some(_turn) = clock::until(ends, self.opening.lock()).await else { return Err(self.too_slow()) };
            match self.usable(route, waits) {
                Some(connection) => connection,
                None => self.open_another(waits, ends).await?,
            }
        };
        if let Some(channel) = channel {
            connection.subscribe(channel).await;
        }
        Ok(connection)
    }

    /// Waits until `connection` takes another SET of `lock` (rule 2).
    pub(super) async fn settled(&self, connection: &Connection, lock: LockId) -> Result<(), Fault> {
        clock::until(clock::now() + self.limit, connection.settled(lock)).await.ok_or_else(|| self.too_slow())
    }

    /// Returns the newest connection, if a request of this route takes it or no other may be opened. No other may be opened in
    /// a full pool whose connections all owe a release, which must go behind its SET.
    fn usable(&self, route: Route, waits: bool) -> Option<Link> {
        let open = self.open();
        let newest = open.last()?;
        let fits = self.serves(newest, waits) && !(route == Route::Newest && newest.is_stalled(self.limit));
        let is_full = open.len() >= KEPT_CONNECTIONS && open.iter().all(|link| link.owes_any_release());
        (fits || is_full).then(|| newest.clone())
    }

    /// Whether `link` takes new requests, and if the caller `waits`, whether it was opened for a waiter.
    fn serves(&self, link: &Link, waits: bool) -> bool {
        link.serves(waits) && self.place.is_current(&link.site)
    }

    async fn open_another(&self, waits: bool, ends: Instant) -> Result<Link, Fault> {
        let hearing = waits.then(|| self.listeners.hearing());
        let link = match self.connect(hearing, ends).await {
            // An ACL without HELLO, or a server that does not know it: the waiter polls.
            Err(Fault { kind: FaultKind::Refused | FaultKind::Unfit, .. }) if waits => {
                self.connect(None, ends).await?.without_push()
            }
            link => link?,
        };
        let mut open = self.open();
        open.retain(|other| {
            let stays = !other.is_settled_for_all() || !waits && self.serves(other, waits);
            if !stays && !other.serves(waits) && other.works() {
                other.retire();
            }
            stays
        });
        if open.len() >= KEPT_CONNECTIONS
            && let Some(oldest) = open.iter().position(|other| !other.owes_any_release())
        {
            open.remove(oldest).connection.abandon();
        }
        open.push(link.clone());
        Ok(link)
    }

    async fn connect(&self, hearing: Option<Hearing>, ends: Instant) -> Result<Link, Fault> {
        // Boxed: opening is rare and its state large, and would be part of every future above it.
        let connecting = Box::pin(async {
            let site = self.place.find().await?;
            match site.connector.open(self.limit, self.room, hearing).await {
                Ok(connection) => Ok(Link { connection, site }),
                Err(fault) => Err(site.named(fault)),
            }
        });
        clock::until(ends, connecting).await.unwrap_or_else(|| Err(self.too_slow()))
    }

    /// The fault of a request that was not sent in time, and so changed nothing.
    fn too_slow(&self) -> Fault {
        Fault { kind: FaultKind::Unavailable, ..Fault::timeout(self.limit) }
    }

    fn open(&self) -> MutexGuard<'_, Vec<Link>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
