//! A run that takes several locks: one wait, which goes from lock to lock.

use super::phase::Phase;
use super::wakeups::Wakeups;
use super::{Waiter, Waiting};
use crate::lock::instant::Instant;

impl Waiting {
    /// Goes on with the next lock of the run, as `waiter`. `is_tried`: an attempt for it is under way; else one is due.
    pub fn go_on(&mut self, waiter: Waiter, is_tried: bool, now: Instant) {
        let before = self.reset(waiter, now);
        self.answered = true;
        self.number = before.number;
        if is_tried {
            self.phase = Phase::Trying;
            self.wakeups = Wakeups::until(self.options.quorum, Instant::NEVER);
        }
    }

    /// Begins again with the first lock of the run, as `waiter` and with a new number: a lock that was held is lost.
    pub fn begin_anew(&mut self, waiter: Waiter, now: Instant) {
        let before = self.reset(waiter, now);
        self.answered = before.answered;
    }

    /// Forgets what concerned one lock. Returns the wait as it was.
    fn reset(&mut self, waiter: Waiter, now: Instant) -> Self {
        let fresh = Self::new(self.options.clone(), waiter, self.begin);
        let before = std::mem::replace(self, fresh);
        self.wakeups = Wakeups::until(self.options.quorum, now);
        self.longest_ttl = before.longest_ttl;
        self.notices = before.notices.clone();
        self.notices.forget_blocker();
        before
    }
}
