//! The line of a lock's waiters: a lock of the database's own on a number that follows from the
//! table and the name. It decides nothing: it tells who is to ask for the row first.
//!
//! 1. A waiter asks for it in a session of its own, and the database keeps the order. When the waiter
//!    has it, the waiter is the first.
//! 2. A run that has got the row without a wait takes it too, so that those behind it wait for it.
//! 3. It ends with its session, however a client ends. Behind a pooler a session is no client's own,
//!    so that there is no line, and waiters ask for the row again and again.

use std::sync::Arc;
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

    /// Whether the client is told when it is the first.
    pub(super) fn wakes(&self) -> bool {
        self.waiting.is_some() && !self.is_closed()
    }
}

impl Lock {
    /// Begins to wait in the line, unless this client does or has waited already. `session`: that in
    /// which the row was asked for.
    pub(super) fn enter_line(self: &Arc<Self>, session: &Session) {
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
        let number = self.line_number();
        let task = tokio::spawn(async move {
            let first = async {
                let session = pool.own_session().await?;
                let reply = session
                    .ask(&pool.table.dialect.stand_in_line(number))
                    .await?;
                Ok::<_, crate::store::Fault>(is_first(&reply).then_some(session))
            };
            let first = first.await.ok().flatten();
            let Some(lock) = lock.upgrade() else { return };
            let mut state = lock.state();
            state.line.waiting = None;
            let word = if first.is_some() {
                Wake::YourTurn
            } else {
                // The waiter asks again and again until the server has a session to spare.
                Wake::Recheck
            };
            let line = &mut state.line;
            if first.is_some() {
                line.failures = 0;
            } else {
                let closed = backoff::doubled(CLOSED, line.failures, LONGEST_CLOSED);
                line.closed = Some(clock::now() + closed);
                line.failures = line.failures.saturating_add(1);
            }
            line.first = first;
            drop(state);
            lock.hints.tell(Hint::Woken(word));
        });
        line.waiting = Some(task.abort_handle());
    }

    /// Takes the first place behind a grant, in the session of the grant, if the line is empty.
    pub(super) fn head_line(self: &Arc<Self>, session: Arc<Session>) {
        if !session.is_direct || self.state().line.is_first() {
            return;
        }
        let (lock, number) = (Arc::clone(self), self.line_number());
        tokio::spawn(async move {
            let dialect = lock.pool.table.dialect;
            let reply = session.ask(&dialect.stand_first(number)).await;
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

/// Whether the answer to a request for a place says that it is the first.
fn is_first(reply: &Reply) -> bool {
    let row = reply.0.last().and_then(|statement| statement.rows.first());
    let cell = row.and_then(|row| row.first()?.as_deref());
    // A function without a value, or one that tells whether it has.
    matches!(cell, Some("" | "t" | "1"))
}
