//! The line of a lock's waiters: a lock of the database's own on a number that follows from the
//! table and the name. It decides nothing: it tells who is to ask for the row first.
//!
//! 1. A waiter asks for it in a session of its own, and the database keeps the order. When the waiter
//!    has it, the waiter is the first.
//! 2. A run that has got the row without a wait takes it too, so that those behind it wait for it.
//! 3. It ends with its session, however a client ends. That of a client which is cut off ends after
//!    its TTL.
//! 4. Behind a pooler a session is no client's own, so that there is no line, and waiters ask for the
//!    row again and again.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::lock::Lock;
use super::session::{Reply, Session};
use crate::clock;
use crate::lock::backoff;
use crate::lock::instant::Instant;
use crate::store::{Hint, Wake};

/// Time after which a waiter tries again to stand in the line, if the server gave it no second
/// session or that broke. It is doubled for each further failure: each costs the server a connection.
const CLOSED: Duration = Duration::from_secs(1);

/// Longest such time.
const LONGEST_CLOSED: Duration = Duration::from_secs(60);

/// Limits of the time after which a client that is cut off has no place any more: its TTL.
const GONE: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(3600)];

/// This client's place.
#[derive(Default)]
pub(super) struct Line {
    /// Ends the task that waits, and its session.
    waiting: Option<tokio::task::AbortHandle>,
    /// The session that is the first.
    first: Option<Arc<Session>>,
    /// Until when there is no line; `None`: there is one.
    closed: Option<Instant>,
    /// Number of times in a row that this client could not stand in it.
    failures: u32,
}

impl Line {
    /// Returns the number of waiters ahead, at least; `None` without a line.
    pub(super) fn rank(&self) -> Option<u32> {
        if self.is_closed() {
            None
        } else if self.is_first() {
            Some(0)
        } else {
            Some(1)
        }
    }

    fn is_closed(&self) -> bool {
        self.closed.is_some_and(|until| clock::now() < until)
    }

    fn is_first(&self) -> bool {
        self.first
            .as_ref()
            .is_some_and(|session| session.is_connected())
    }

    /// Whether the client looks at the row before it asks for it: where it stands behind others, and
    /// where it polls.
    pub(super) fn looks_first(&self) -> bool {
        self.waiting.is_some() || self.is_closed()
    }

    /// Whether the client is told when it is the first.
    pub(super) fn wakes(&self) -> bool {
        self.waiting.is_some() && !self.is_closed()
    }
}

impl Lock {
    /// Begins to wait in the line, unless this client does or has waited already. `session`: that in
    /// which the row was asked for.
    pub(super) fn enter_line(self: &Arc<Self>, session: &Session, ttl: Duration) {
        let mut state = self.state();
        let line = &mut state.line;
        if !session.is_direct {
            line.closed = Some(Instant::NEVER);
        }
        if line.is_closed() || line.waiting.is_some() || line.is_first() {
            return;
        }
        let lock = Arc::downgrade(self);
        let pool = Arc::clone(&self.pool);
        let (number, gone) = (self.line_number(), gone(ttl));
        let task = tokio::spawn(async move {
            let first = async {
                let session = pool.own_session().await?;
                let stands = pool.table.dialect.stand_in_line(number, gone);
                let reply = session.ask(&stands).await?;
                Ok::<_, crate::store::Fault>(is_first(&reply).then_some(session))
            };
            let first = first.await.ok().flatten();
            let place = first.as_ref().map(Arc::downgrade);
            let Some(lock) = lock.upgrade() else { return };
            lock.has_waited(first);
            drop(lock);
            if let Some(place) = place {
                keep_awake(place, gone / 3).await;
            }
        });
        line.waiting = Some(task.abort_handle());
    }

    /// Notes the session that is the first now; `None`: this client cannot stand in the line.
    fn has_waited(&self, first: Option<Arc<Session>>) {
        let mut state = self.state();
        let line = &mut state.line;
        line.waiting = None;
        let word = if first.is_some() {
            line.failures = 0;
            Wake::YourTurn
        } else {
            let closed = backoff::doubled(CLOSED, line.failures, LONGEST_CLOSED);
            line.closed = Some(clock::now() + closed);
            line.failures = line.failures.saturating_add(1);
            // The waiter asks again and again until the server has a session to spare.
            Wake::Recheck
        };
        line.first = first;
        drop(state);
        self.hints.tell(Hint::Woken(word));
    }

    /// Takes the first place behind a grant, in the session of the grant, if the line is empty.
    pub(super) fn head_line(self: &Arc<Self>, session: Arc<Session>, ttl: Duration) {
        if !session.is_direct || self.state().line.is_first() {
            return;
        }
        let (lock, number) = (Arc::clone(self), self.line_number());
        tokio::spawn(async move {
            let dialect = lock.pool.table.dialect;
            let reply = session.ask(&dialect.stand_first(number, gone(ttl))).await;
            if !reply.is_ok_and(|reply| is_first(&reply)) {
                return;
            }
            if lock.state().holds {
                lock.state().line.first = Some(session);
            } else {
                // It was given back meanwhile.
                drop(session.ask(&dialect.leave_line(number)).await);
            }
        });
    }

    /// Leaves the line.
    pub(super) fn leave_line(&self) {
        let line = std::mem::take(&mut self.state().line);
        if let Some(waiting) = line.waiting {
            waiting.abort();
        }
        let number = self.line_number();
        if let (Some(session), Ok(runtime)) = (line.first, tokio::runtime::Handle::try_current()) {
            let leaves = self.pool.table.dialect.leave_line(number);
            runtime.spawn(async move { drop(session.ask(&leaves).await) });
        }
    }

    /// Returns the number that is locked.
    fn line_number(&self) -> i64 {
        // A server may have one line of the number for all its databases.
        let (database, table) = (self.pool.database(), self.pool.table.table_name());
        let text = format!("{database}\n{table}\n{}", self.key);
        let digest = sha1_smol::Sha1::from(text).digest().bytes();
        let first: [u8; 8] = std::array::from_fn(|index| digest[index]);
        i64::from_be_bytes(first)
    }
}

/// Returns the time after which a client with this TTL that is cut off has no place any more.
fn gone(ttl: Duration) -> Duration {
    let [least, most] = GONE;
    ttl.clamp(least, most)
}

/// Asks the session of a place again and again, until that is given up. Otherwise the server would take
/// it for that of a client that is cut off.
async fn keep_awake(session: Weak<Session>, pause: Duration) {
    loop {
        let next = clock::now() + pause;
        let _ = clock::until(next, std::future::pending::<()>()).await;
        let Some(session) = session.upgrade() else {
            return;
        };
        if session.ask("SELECT 1").await.is_err() {
            return;
        }
    }
}

/// Whether the answer to a request for a place says that it is the first.
fn is_first(reply: &Reply) -> bool {
    let row = reply
        .statements
        .last()
        .and_then(|statement| statement.rows.first());
    let cell = row.and_then(|row| row.first()?.as_deref());
    // A function without a value, or one that tells whether it has.
    matches!(cell, Some("" | "t" | "1"))
}
