//! The sessions as a leader counts them. A server is named by its number.

use std::collections::BTreeMap;
use std::time::Duration;

use rlock::store::zookeeper::jute::error;

/// The session is attached at another server.
pub(super) const SESSION_MOVED: i32 = -118;

/// A session that a leader knows.
#[derive(Clone, Copy, Debug)]
struct Tracked {
    /// By the leader's clock.
    expires: Duration,
    /// The server at which it is attached, once that is known.
    owner: Option<usize>,
    is_closing: bool,
}

/// The sessions that a leader knows. Times are those of its clock.
#[derive(Clone, Debug)]
pub(super) struct Tracker {
    sessions: BTreeMap<i64, Tracked>,
    tick: Duration,
}

impl Tracker {
    /// Gives each session its whole timeout anew, in ms.
    pub(super) fn of(sessions: &BTreeMap<i64, i32>, tick: Duration, now: Duration) -> Self {
        let mut tracker = Self {
            sessions: BTreeMap::new(),
            tick,
        };
        for (session, timeout) in sessions {
            tracker.begin(*session, *timeout, None, now);
        }
        tracker
    }

    /// Knows a session that begins at `owner`.
    pub(super) fn begin(
        &mut self,
        session: i64,
        timeout: i32,
        owner: Option<usize>,
        now: Duration,
    ) {
        let tracked = Tracked {
            expires: self.expiry(timeout, now),
            owner,
            is_closing: false,
        };
        self.sessions.insert(session, tracked);
    }

    /// Lets a session last for its timeout from now on. Returns whether it can.
    pub(super) fn touch(&mut self, session: i64, timeout: i32, now: Duration) -> bool {
        let expires = self.expiry(timeout, now);
        let known = self.sessions.get_mut(&session);
        let Some(known) = known.filter(|known| !known.is_closing) else {
            return false;
        };
        known.expires = expires;
        true
    }

    /// Attaches a session to a server.
    pub(super) fn attach(&mut self, session: i64, owner: usize) {
        if let Some(known) = self.sessions.get_mut(&session) {
            known.owner = Some(owner);
        }
    }

    /// Whether a request of this session may come from this server, or the code of the error.
    pub(super) fn check(&mut self, session: i64, from: usize) -> Result<(), i32> {
        let known = self.sessions.get_mut(&session);
        let Some(known) = known.filter(|known| !known.is_closing) else {
            return Err(error::SESSION_EXPIRED);
        };
        if *known.owner.get_or_insert(from) == from {
            Ok(())
        } else {
            Err(SESSION_MOVED)
        }
    }

    /// Takes no more requests of a session.
    pub(super) fn close(&mut self, session: i64) {
        if let Some(known) = self.sessions.get_mut(&session) {
            known.is_closing = true;
        }
    }

    /// Forgets a session that is over.
    pub(super) fn forget(&mut self, session: i64) {
        self.sessions.remove(&session);
    }

    /// Returns the sessions that are over and not being ended yet.
    pub(super) fn over(&self, now: Duration) -> Vec<i64> {
        let is_over = |known: &Tracked| !known.is_closing && known.expires <= now;
        let over = self.sessions.iter().filter(|(_, known)| is_over(known));
        over.map(|(session, _)| *session).collect()
    }

    /// Sessions end at the next tick (`ExpiryQueue.java`, roundToNextInterval).
    fn expiry(&self, timeout: i32, now: Duration) -> Duration {
        let end = now + Duration::from_millis(u64::try_from(timeout).unwrap_or(0));
        let ticks = end.as_nanos() / self.tick.as_nanos() + 1;
        self.tick * u32::try_from(ticks).unwrap_or(u32::MAX)
    }
}
