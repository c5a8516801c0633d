//! Measurements of one run's locks, taken from the events that stderr tells, printed or not.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Event;
use crate::lock::instant::Instant;
use crate::lock::key::Key;
use crate::lock::keys::Keys;
use crate::lock::lease::Loss;

/// Why a lock was lost, as the value of a label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossReason {
    /// Its key was gone.
    Absent,
    /// It was broken.
    Broken,
    /// Another client had it.
    TakenOver,
    /// It could not be renewed in time.
    NotRenewed,
    /// The release found that it had been lost.
    Unnoticed,
}

impl LossReason {
    pub const ALL: [Self; 5] = [Self::Absent, Self::Broken, Self::TakenOver, Self::NotRenewed, Self::Unnoticed];

    pub fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Broken => "broken",
            Self::TakenOver => "taken-over",
            Self::NotRenewed => "not-renewed",
            Self::Unnoticed => "unnoticed",
        }
    }
}

/// Measurements of one lock in one run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Record {
    /// When the lock was taken, or an outer one was joined.
    pub acquired: Option<Instant>,
    /// Whether the lock is an outer rlock's.
    pub nested: bool,
    pub started: Option<Instant>,
    pub ended: Option<Instant>,
    pub renewal_failures: u64,
    pub lost: Option<LossReason>,
    /// The end of the lease, as far as it is known.
    pub until: Option<Instant>,
    /// Least time that the lease had left when it was renewed, or when the command ended.
    pub least_left: Option<Duration>,
}

impl Record {
    /// Takes the event into account.
    pub fn see(&mut self, event: &Event, now: Instant) {
        match event {
            Event::Acquired { .. } => self.acquired = Some(now),
            Event::Nested { .. } => (self.acquired, self.nested) = (Some(now), true),
            Event::Running { .. } => self.started = Some(now),
            Event::Renewed { left } => self.covered_until(now + *left, now),
            Event::RenewalFailed(_) => self.renewal_failures += 1,
            Event::Lost { how, .. } => {
                self.lost = Some(how.map_or(LossReason::NotRenewed, |how| match how {
                    Loss::Absent => LossReason::Absent,
                    Loss::Broken => LossReason::Broken,
                    Loss::TakenOver => LossReason::TakenOver,
                }));
                self.shrink(now);
            }
            Event::LostUnnoticed { .. } => self.lost = Some(LossReason::Unnoticed),
            Event::Ended { .. } => {
                self.ended = Some(now);
                self.shrink(now);
            }
            _ => {}
        }
    }

    /// The lease lasts until `until`, as is known since `now`.
    pub fn covered_until(&mut self, until: Instant, now: Instant) {
        self.shrink(now);
        // A local lock ends with its process.
        self.until = Some(until).filter(|until| *until != Instant::NEVER);
    }

    fn shrink(&mut self, now: Instant) {
        // After a loss there is nothing left to renew.
        if let Some(until) = self.until.take() {
            let left = until.since(now);
            self.least_left = Some(self.least_left.map_or(left, |least| least.min(left)));
        }
    }
}

/// The records of one run's locks, shared by its reporters.
#[derive(Clone, Debug)]
pub struct Recorder(Arc<Mutex<Vec<(Key, Record)>>>);

impl Recorder {
    pub fn new(keys: &Keys) -> Self {
        Self(Arc::new(Mutex::new(keys.iter().map(|key| (key.clone(), Record::default())).collect())))
    }

    /// Returns the records as they are now.
    pub fn records(&self) -> Vec<(Key, Record)> {
        self.locked().clone()
    }

    /// Changes the records of these locks.
    pub fn update(&self, keys: &Keys, mut change: impl FnMut(&mut Record)) {
        for (_, record) in self.locked().iter_mut().filter(|(key, _)| keys.iter().any(|known| known == key)) {
            change(record);
        }
    }

    /// The leases of the locks, in their order, last until `ends`.
    pub fn covered_until(&self, ends: impl IntoIterator<Item = Instant>, now: Instant) {
        for ((_, record), until) in self.locked().iter_mut().zip(ends) {
            record.covered_until(until, now);
        }
    }

    fn locked(&self) -> MutexGuard<'_, Vec<(Key, Record)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::policy::Reaction;
    use crate::report::AtNode;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(second: u32) -> Instant {
        Instant::from_nanos(0) + SECOND * second
    }

    #[test]
    fn the_least_time_left_is_that_before_the_latest_renewal() {
        let mut record = Record::default();
        record.covered_until(at(30), at(0));
        record.see(&Event::Renewed { left: SECOND * 30 }, at(10));
        assert_eq!(record.least_left, Some(SECOND * 20));
        record.see(&Event::RenewalFailed(AtNode { node: "n", why: "away" }), at(20));
        record.see(&Event::Renewed { left: SECOND * 30 }, at(37));
        record.see(&Event::Renewed { left: SECOND * 30 }, at(47));
        record.see(&Event::Ended { outer: false, status: None, run: Duration::ZERO }, at(50));
        assert_eq!((record.least_left, record.renewal_failures, record.ended), (Some(SECOND * 3), 1, Some(at(50))));
    }

    #[test]
    fn a_run_shorter_than_a_renewal_knows_what_its_lease_had_left() {
        let mut record = Record::default();
        record.covered_until(at(30), at(0));
        record.see(&Event::Ended { outer: false, status: None, run: Duration::ZERO }, at(4));
        assert_eq!(record.least_left, Some(SECOND * 26));
    }

    #[test]
    fn a_loss_has_its_reason() {
        for (how, reason) in [
            (None, LossReason::NotRenewed),
            (Some(Loss::Absent), LossReason::Absent),
            (Some(Loss::Broken), LossReason::Broken),
            (Some(Loss::TakenOver), LossReason::TakenOver),
        ] {
            let mut record = Record::default();
            record.covered_until(at(30), at(0));
            record.see(&Event::Lost { why: "", how, reaction: Reaction::Killed }, at(28));
            record.see(&Event::Ended { outer: false, status: None, run: Duration::ZERO }, at(29));
            assert_eq!((record.lost, record.least_left), (Some(reason), Some(SECOND * 2)));
        }
    }

    #[test]
    fn an_event_of_one_lock_leaves_the_others_alone() {
        let [a, b] = ["a", "b"].map(|name| Key::new("", name).unwrap());
        let recorder = Recorder::new(&Keys::new(vec![a.clone(), b.clone()]).unwrap());
        recorder.update(&Keys::from(&b), |record| record.renewal_failures += 1);
        let failures: Vec<u64> = recorder.records().iter().map(|(_, record)| record.renewal_failures).collect();
        assert_eq!(failures, [0, 1]);
    }
}
