//! The duty of a standby: it checks that the head of the queue takes its turn, and then watches the new holder's end.
//!
//! A holder that dies wakes no waiter. The waiters behind it know the end of an earlier holder only, and pause longer the
//! further back they stand. The standbys of a hand-over learn the new holder's end, and look then as the first waiter would.
//! With the next hand-over standbys are appointed anew, so the duty ends with the holder that is watched.

use super::Blocked;
use crate::lock::blocker::Blocker;

/// A waiter's duty as a standby.
#[derive(Clone, Default, Debug)]
pub(super) struct Standby {
    is_on_duty: bool,
    /// The holder that is watched.
    watched: Option<Blocker>,
}

impl Standby {
    /// Begins the duty of a new hand-over.
    pub(super) fn appoint(&mut self) {
        *self = Self { is_on_duty: true, watched: None };
    }

    /// Whether this waiter looks when the first one would.
    pub(super) fn is_on_duty(&self) -> bool {
        self.is_on_duty
    }

    /// Hears what blocks the wait. The duty ends once another holder has followed the one that is watched. Foreign clients are
    /// polled by the first waiter alone.
    pub(super) fn saw(&mut self, blocked: &Blocked) {
        let Blocked::Busy(party) = blocked else { return };
        if party.occupant().is_none() {
            return;
        }
        let is_another = self.watched.as_ref().is_some_and(|watched| !watched.is_same(party));
        if is_another || party.is_foreign() {
            *self = Self::default();
        } else if self.is_on_duty {
            self.watched = Some((**party).clone());
        }
    }
}
