//! The remains of a run: what is left when its locks are given back. A run is recorded, and its
//! lock may stay for a time.

use std::time::Duration;

use super::instant::Instant;
use super::last::{Entry, Run};

/// The options of `run` by which it leaves something.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemainsOptions {
    /// `--hold-at-least`; zero: not given.
    pub hold_at_least: Duration,
    /// `--lock-delay`; zero: not given.
    pub lock_delay: Duration,
    /// `--once`.
    pub once: Option<Duration>,
}

/// The end of a command that was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// It exited with 0, under a lock that was kept.
    Succeeded,
    /// It ended in another way, under a lock that was kept.
    Failed,
    /// Its lock was lost or broken, or rlock failed and killed it.
    LockLost,
    /// Another client has the lock.
    TakenOver,
}

/// The remains at a node that has the lock as ours.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Remains {
    /// The lock itself.
    pub parked: Option<Parking>,
    /// The run whose command has ended.
    pub run: Option<Run>,
    /// The success of an earlier run, which kept this one from running. It is copied to the nodes
    /// that lack it.
    pub earlier: Option<Box<Entry>>,
    /// `--once`, if either is a success.
    pub once: Option<Duration>,
}

/// The time of a parked lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parking {
    /// Time for which it stays, from the release on.
    pub left: Duration,
    /// The time in all, which others must allow for after a node's restart.
    pub span: Duration,
    /// Whether a tombstone is parked too. Otherwise a lock that an operator broke is deleted.
    pub parks_tombstone: bool,
}

impl RemainsOptions {
    /// Longest time for which a node must remember any of it.
    pub fn longest(self) -> Duration {
        self.hold_at_least
            .max(self.lock_delay)
            .max(self.once.unwrap_or_default())
    }

    /// Returns what is left of the locks of a command that was started at `started` and has ended,
    /// `now`.
    ///
    /// 1. A lock that was kept stays until `--hold-at-least` is over, whatever the command's exit
    ///    code.
    /// 2. A lock that was lost stays for `--lock-delay`: what the command had asked others to do
    ///    may still go on.
    /// 3. A lock that another client has is not touched.
    /// 4. Only a success counts for `--once`.
    pub fn after(self, ending: Ending, started: Instant, now: Instant) -> Remains {
        let parking = |left: Duration, span, parks_tombstone| {
            let left = Duration::from_millis(
                u64::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX),
            );
            (!left.is_zero()).then_some(Parking {
                left,
                span,
                parks_tombstone,
            })
        };
        let held = parking(
            (started + self.hold_at_least).since(now),
            self.hold_at_least,
            false,
        );
        match ending {
            Ending::Succeeded => Remains {
                parked: held,
                once: self.once,
                ..Remains::default()
            },
            Ending::Failed => Remains {
                parked: held,
                ..Remains::default()
            },
            Ending::LockLost => Remains {
                parked: parking(self.lock_delay, self.lock_delay, true),
                ..Remains::default()
            },
            Ending::TakenOver => Remains::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: RemainsOptions = RemainsOptions {
        hold_at_least: Duration::from_secs(60),
        lock_delay: Duration::from_secs(15),
        once: Some(Duration::from_secs(3600)),
    };

    fn after(ending: Ending, lasted_ms: u64) -> Remains {
        let started = Instant::from_nanos(1_000);
        OPTIONS.after(ending, started, started + Duration::from_millis(lasted_ms))
    }

    fn parked(left_ms: u64, span: u64, parks_tombstone: bool) -> Parking {
        let (left, span) = (Duration::from_millis(left_ms), Duration::from_secs(span));
        Parking {
            left,
            span,
            parks_tombstone,
        }
    }

    #[test]
    fn a_lock_that_was_kept_stays_for_the_rest_of_its_time_whatever_the_code() {
        for ending in [Ending::Succeeded, Ending::Failed] {
            assert_eq!(
                after(ending, 50).parked,
                Some(parked(59_950, 60, false)),
                "{ending:?}"
            );
            assert_eq!(
                [60_000, 90_000].map(|lasted| after(ending, lasted).parked),
                [None; 2],
                "{ending:?}"
            );
        }
        let started = Instant::from_nanos(0);
        let left = OPTIONS
            .after(Ending::Failed, started, Instant::from_nanos(59_999_999_999))
            .parked;
        assert_eq!(left, Some(parked(1, 60, false)), "rounded up");
    }

    #[test]
    fn a_lock_that_was_lost_stays_for_the_delay_and_one_that_passed_on_is_left_alone() {
        let parked = Some(parked(15_000, 15, true));
        assert_eq!(
            after(Ending::LockLost, 50),
            Remains {
                parked,
                ..Remains::default()
            }
        );
        assert_eq!(after(Ending::TakenOver, 50), Remains::default());
    }

    #[test]
    fn only_a_success_counts() {
        assert_eq!(after(Ending::Succeeded, 90_000).once, OPTIONS.once);
        for ending in [Ending::Failed, Ending::LockLost, Ending::TakenOver] {
            assert_eq!(after(ending, 90_000).once, None, "{ending:?}");
        }
    }

    #[test]
    fn without_options_nothing_is_left() {
        let at = Instant::from_nanos(5);
        for ending in [
            Ending::Succeeded,
            Ending::Failed,
            Ending::LockLost,
            Ending::TakenOver,
        ] {
            assert_eq!(
                RemainsOptions::default().after(ending, at, at),
                Remains::default()
            );
        }
        assert_eq!(
            (RemainsOptions::default().longest(), OPTIONS.longest()),
            (Duration::ZERO, Duration::from_secs(3600))
        );
    }
}
