//! The wake-ups since the last attempt began, and the time of the next attempt. `redlock::wait` receives them.

use std::time::Duration;

use crate::lock::instant::Instant;
use crate::lock::queue::Wake;
use crate::lock::quorum::Quorum;

/// Pause after the first offer, in which other nodes may offer too: a release reaches them one after another.
const MORE_OFFERS: Duration = Duration::from_millis(10);

/// Time that the first waiter has to take its turn before a standby tries: `STALLED` of `queue.lua`.
const STANDBY: Duration = Duration::from_millis(500);

/// The wake-ups since the last attempt began.
#[derive(Clone, Debug)]
pub(super) struct Wakeups {
    quorum: Quorum,
    /// The nodes that have offered the lock.
    offered: Vec<bool>,
    due: Instant,
}

impl Wakeups {
    /// No wake-up yet; the next attempt is due at `due`.
    pub(super) fn until(quorum: Quorum, due: Instant) -> Self {
        Self { quorum, offered: vec![false; quorum.total()], due }
    }

    /// Returns when the next attempt is due.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Makes the next attempt due at `at`, unless it is due earlier.
    pub(super) fn sooner(&mut self, at: Instant) {
        self.due = self.due.min(at);
    }

    /// Whether a node has offered the lock.
    pub(super) fn is_offered(&self) -> bool {
        self.offered.contains(&true)
    }

    /// Records that node `node` sent `wake`. `pause`: shortest pause after an offer.
    pub(super) fn woken(&mut self, node: usize, wake: Wake, now: Instant, pause: Duration) {
        match wake {
            Wake::StandBy => self.sooner(now + STANDBY),
            Wake::Recheck => self.sooner(now),
            Wake::YourTurn => {
                self.offered[node] = true;
                let is_enough = self.offered.iter().filter(|offered| **offered).count() >= self.quorum.needed();
                self.sooner(now + if is_enough { pause } else { pause.max(MORE_OFFERS) });
            }
        }
    }
}
