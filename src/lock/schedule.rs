//! When a holder renews, when it signals its command and when it kills it: docs/design.md §3 as
//! arithmetic.

use std::time::Duration;

use super::instant::Instant;
use super::remains::RemainsOptions;

/// Default clock-rate error allowed for, as a fraction of the TTL.
pub const DRIFT: f64 = 0.01;

/// Added to the drift allowance, as antirez' Redlock does: Redis expires keys with 1 ms precision.
const DRIFT_FLOOR: Duration = Duration::from_millis(2);

/// Longest TTL accepted. Redis keeps times as unix milliseconds; a TTL beyond a year is a mistake.
pub const LONGEST_TTL: Duration = Duration::from_secs(366 * 24 * 3600);

/// Longest time between two renewals. Cleaners of temporary directories delete a `local` lock's
/// file that was not touched for some days.
const RENEW_AT_LEAST_EVERY: Duration = Duration::from_secs(24 * 3600);

/// Time after which a guard that is due still kills in time. On a busy host one without priority
/// was seen to wake 156 ms late.
const LATE_GUARD: Duration = Duration::from_millis(200);

/// Longest time that is kept for the kill.
const LONGEST_MARGIN: Duration = Duration::from_millis(500);

/// The chosen parts of a schedule. A part that is `None` follows from the TTL.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleOptions {
    /// Length of a lease, drift included.
    pub ttl: Duration,
    /// Clock-rate error allowed for, as a fraction of the TTL.
    pub drift: f64,
    /// Limit for one exchange with one node.
    pub node_timeout: Option<Duration>,
    /// Time between the first signal and SIGKILL.
    pub kill_after: Option<Duration>,
}

impl ScheduleOptions {
    /// The defaults for a TTL of `ttl`.
    pub fn new(ttl: Duration) -> Self {
        Self {
            ttl,
            drift: DRIFT,
            node_timeout: None,
            kill_after: None,
        }
    }
}

/// Returns the part of `ttl` that two clocks whose rates differ by `rate` may disagree about,
/// rounded up.
pub fn drift(ttl: Duration, rate: f64) -> Duration {
    millis_up(ttl.mul_f64(rate)) + DRIFT_FLOOR
}

/// When a command must be signalled and killed unless its lease is extended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Last moment for the first signal.
    pub signal_at: Instant,
    /// Last moment for SIGKILL.
    pub kill_at: Instant,
    /// End of the lease.
    pub ends: Instant,
}

/// A TTL, and how much of it counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Term {
    ttl: Duration,
    lock_delay: Duration,
    hold_at_least: Duration,
    drift: Duration,
}

impl Term {
    /// Returns the expiry that the node is told.
    pub fn ttl(self) -> Duration {
        self.ttl + self.lock_delay
    }

    /// Returns the part of the expiry that does not count: the lock stays for so long after its
    /// holder's lease.
    pub fn lock_delay(self) -> Duration {
        self.lock_delay
    }

    /// Returns the longest time for which the lock may stay when its run has ended.
    pub fn hold_at_least(self) -> Duration {
        self.hold_at_least
    }

    /// Time between two renewals that succeed.
    pub fn renew_every(self) -> Duration {
        (self.ttl / 3).min(RENEW_AT_LEAST_EVERY)
    }

    /// Returns the end of a grant whose request was about to be sent at `sent`.
    pub fn end(self, sent: Instant) -> Instant {
        (sent + self.ttl).before(self.drift)
    }

    /// Returns when a grant that ends at `end` is to be renewed.
    pub fn renew_at(self, end: Instant) -> Instant {
        end.before(self.ttl.saturating_sub(self.drift + self.renew_every()))
    }

    /// Whether a grant that ends at `end` is so young at `now` that it is not to be renewed yet. So a
    /// waiter may become the holder with it.
    pub fn is_young(self, end: Instant, now: Instant) -> bool {
        now < self.renew_at(end)
    }
}

/// A schedule that fits into its TTL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Schedule {
    ttl: Duration,
    drift: Duration,
    node_timeout: Duration,
    retry: Duration,
    kill_after: Duration,
    margin: Duration,
    remains: RemainsOptions,
}

impl Schedule {
    /// Derives the schedule and checks that a renewal that fails once still leaves time to kill the
    /// command.
    pub fn new(wishes: ScheduleOptions) -> Result<Self, ScheduleError> {
        if wishes.ttl > LONGEST_TTL {
            return Err(ScheduleError::TooLong);
        }
        let schedule = Self::derive(wishes);
        if schedule.fits() {
            return Ok(schedule);
        }
        Err(ScheduleError::TooShort {
            schedule: Box::new(schedule),
            shortest: shortest(wishes, Self::fits),
        })
    }

    fn derive(wishes: ScheduleOptions) -> Self {
        let ttl = wishes.ttl;
        let share = |part: u32| ttl / part;
        let schedule = Self {
            ttl,
            drift: drift(ttl, wishes.drift),
            node_timeout: wishes.node_timeout.unwrap_or_else(|| {
                share(20).clamp(Duration::from_millis(50), Duration::from_secs(1))
            }),
            retry: share(50).clamp(Duration::from_millis(10), Duration::from_millis(250)),
            kill_after: wishes
                .kill_after
                .unwrap_or_else(|| share(6).min(Duration::from_secs(5))),
            margin: Duration::ZERO,
            remains: RemainsOptions::default(),
        };
        let left = ttl.saturating_sub(schedule.needed());
        let margin = share(20).max(LATE_GUARD.min(left / 2)).min(LONGEST_MARGIN);
        Self { margin, ..schedule }
    }

    /// Returns this schedule for a run that leaves `remains`. Nodes keep the lock for its delay
    /// longer than its lease.
    #[must_use]
    pub fn outlasted(self, remains: RemainsOptions) -> Self {
        Self { remains, ..self }
    }

    /// Longest time for which a node must remember anything of ours after it was last told:
    /// `--restart-guard auto` covers it.
    pub fn remembered(&self) -> Duration {
        self.term().ttl().max(self.remains.longest())
    }

    fn fits(&self) -> bool {
        self.ttl >= self.needed()
    }

    /// Shortest TTL for this schedule: drift, a third of the TTL, two failing exchanges and the
    /// kill margin. The grace takes the rest.
    pub fn needed(&self) -> Duration {
        [
            self.drift,
            self.ttl / 3,
            self.node_timeout.saturating_mul(2),
            self.retry * 2,
            self.margin,
        ]
        .into_iter()
        .fold(Duration::ZERO, Duration::saturating_add)
    }

    /// Longest time for which no node answers and the command does not notice, though a renewal was
    /// just due.
    pub fn survives(&self) -> Duration {
        [
            self.drift,
            self.renew_every(),
            self.node_timeout,
            self.retry,
            self.margin,
            self.grace(),
        ]
        .into_iter()
        .fold(self.ttl, Duration::saturating_sub)
    }

    /// Length of a lease, drift included.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Part of the TTL that clocks may disagree about.
    pub fn drift(&self) -> Duration {
        self.drift
    }

    /// K: time kept free between SIGKILL and the end of the lease.
    pub fn margin(&self) -> Duration {
        self.margin
    }

    /// Limit for one whole exchange with one node, connecting included.
    pub fn node_timeout(&self) -> Duration {
        self.node_timeout
    }

    /// b: upper bound of the random pause before a failed exchange is repeated.
    pub fn retry(&self) -> Duration {
        self.retry
    }

    /// Time between two renewals that succeed.
    pub fn renew_every(&self) -> Duration {
        self.term().renew_every()
    }

    /// Time between the first signal and SIGKILL while the lease is renewed: `--kill-after` as
    /// given.
    pub fn kill_after(&self) -> Duration {
        self.kill_after
    }

    /// G: the same when the lock is being lost: `--kill-after`, cut to what fits into the TTL.
    pub fn grace(&self) -> Duration {
        self.kill_after.min(self.ttl.saturating_sub(self.needed()))
    }

    /// Key losses reported within this window count as simultaneous: two exchanges, and less than
    /// the time between two renewals.
    pub fn round(&self) -> Duration {
        ((self.node_timeout + self.retry) * 2).min(self.renew_every() / 2)
    }

    /// Returns the TTL and how much of it counts, for a request.
    pub fn term(&self) -> Term {
        Term {
            ttl: self.ttl,
            lock_delay: self.remains.lock_delay,
            hold_at_least: self.remains.hold_at_least,
            drift: self.drift,
        }
    }

    /// Time to renew a lease that lasts until `deadline`: a third of the TTL after its request was
    /// sent.
    pub fn renew_at(&self, deadline: Instant) -> Instant {
        self.term().renew_at(deadline)
    }

    /// Deadlines of the command under a lease that ends at `deadline`.
    pub fn terms(&self, deadline: Instant) -> Terms {
        Terms {
            signal_at: self.signal_at(deadline),
            kill_at: self.kill_at(deadline),
            ends: deadline,
        }
    }

    /// Last moment for the first signal, so that SIGKILL still comes in time for a lease that ends
    /// at `deadline`.
    pub fn signal_at(&self, deadline: Instant) -> Instant {
        deadline.before(self.margin + self.grace())
    }

    /// Last moment for SIGKILL under a lease that ends at `deadline`.
    pub fn kill_at(&self, deadline: Instant) -> Instant {
        deadline.before(self.margin)
    }
}

/// Why a schedule is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ScheduleError {
    /// The parts of the schedule add up to more than the TTL.
    TooShort {
        /// The schedule that does not fit.
        schedule: Box<Schedule>,
        /// Shortest TTL that fits the other choices, if there is one.
        shortest: Option<Duration>,
    },
    /// Longer than [`LONGEST_TTL`].
    TooLong,
}

/// Returns the shortest TTL with which a command does not notice that no node answers for `outage`.
pub fn shortest_surviving(wishes: ScheduleOptions, outage: Duration) -> Option<Duration> {
    shortest(wishes, |schedule| {
        schedule.fits() && schedule.survives() >= outage
    })
}

/// Binary search over whole milliseconds: the slack grows with the TTL, since all parts that grow
/// are fixed shares.
fn shortest(wishes: ScheduleOptions, will_do: impl Fn(&Schedule) -> bool) -> Option<Duration> {
    let fits = |ms: u64| {
        will_do(&Schedule::derive(ScheduleOptions {
            ttl: Duration::from_millis(ms),
            ..wishes
        }))
    };
    let (mut low, mut high) = (1, u64::try_from(LONGEST_TTL.as_millis()).ok()?);
    if !fits(high) {
        return None;
    }
    while low < high {
        let middle = u64::midpoint(low, high);
        if fits(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(Duration::from_millis(high))
}

/// Rounds up to whole milliseconds.
pub fn millis_up(span: Duration) -> Duration {
    let whole = Duration::from_secs(span.as_secs())
        + Duration::from_millis(u64::from(span.subsec_millis()));
    if whole == span {
        span
    } else {
        whole.saturating_add(Duration::from_millis(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wishes(ttl_ms: u64) -> ScheduleOptions {
        ScheduleOptions {
            ttl: Duration::from_millis(ttl_ms),
            drift: 0.01,
            node_timeout: None,
            kill_after: None,
        }
    }

    #[test]
    fn thirty_seconds_is_the_schedule_of_the_design() {
        let s = Schedule::new(wishes(30_000)).unwrap();
        assert_eq!(s.renew_every(), Duration::from_secs(10));
        assert_eq!(s.node_timeout(), Duration::from_secs(1));
        assert_eq!(s.retry(), Duration::from_millis(250));
        let d = s.term().end(Instant::from_nanos(0));
        assert_eq!(d, Instant::from_nanos(29_698_000_000));
        assert_eq!(s.renew_at(d), Instant::from_nanos(10_000_000_000));
        assert_eq!(d.since(s.kill_at(d)), Duration::from_millis(500));
        assert_eq!(d.since(s.signal_at(d)), Duration::from_millis(5_500));
    }

    #[test]
    fn a_guard_may_be_late_where_the_ttl_leaves_time_for_it() {
        let margin = |ttl, node_timeout| {
            Schedule::new(ScheduleOptions {
                node_timeout,
                ..wishes(ttl)
            })
            .map(|s| s.margin().as_millis())
            .unwrap()
        };
        assert_eq!(
            [500, 1000, 4000, 5000, 60_000].map(|ttl| margin(ttl, None)),
            [103, 200, 200, 250, 500]
        );
        // Long exchanges leave it a twentieth of the TTL.
        assert_eq!(margin(1000, Some(Duration::from_millis(280))), 50);
    }

    #[test]
    fn a_longer_ttl_survives_a_longer_outage() {
        // 30 s less drift 302 ms, a third, an exchange of 1.25 s, the margin of 500 ms and the
        // grace of 5 s.
        assert_eq!(
            Schedule::new(wishes(30_000)).unwrap().survives(),
            Duration::from_millis(12_948)
        );
        for seconds in [1, 13, 32, 600] {
            let outage = Duration::from_secs(seconds);
            let ttl = shortest_surviving(wishes(0), outage).unwrap();
            let survives = |ttl| {
                Schedule::new(ScheduleOptions { ttl, ..wishes(0) })
                    .is_ok_and(|s| s.survives() >= outage)
            };
            assert!(
                survives(ttl) && !survives(ttl.saturating_sub(Duration::from_millis(1))),
                "{ttl:?}"
            );
        }
    }

    #[test]
    fn a_lease_however_long_is_renewed_every_day() {
        for days in [4, 30, 366] {
            let s = Schedule::new(wishes(days * 24 * 3_600_000)).unwrap();
            assert_eq!(s.renew_every(), Duration::from_secs(24 * 3600));
            let d = s.term().end(Instant::from_nanos(0));
            assert_eq!(
                s.renew_at(d),
                Instant::from_nanos(24 * 3600 * 1_000_000_000)
            );
        }
    }

    #[test]
    fn a_lock_delay_lengthens_the_expiry_and_no_tenure() {
        let (plain, seconds) = (Schedule::new(wishes(30_000)).unwrap(), Duration::from_secs);
        let outlasted = |lock_delay, hold_at_least| {
            plain.outlasted(RemainsOptions {
                lock_delay: seconds(lock_delay),
                hold_at_least: seconds(hold_at_least),
                once: None,
            })
        };
        let delayed = outlasted(15, 20);
        assert_eq!(
            (plain.term().ttl(), delayed.term().ttl()),
            (seconds(30), seconds(45))
        );
        let sent = Instant::from_nanos(7);
        assert_eq!(delayed.term().end(sent), plain.term().end(sent));
        assert_eq!(
            [plain, delayed, outlasted(15, 60)].map(|s| s.remembered()),
            [30, 45, 60].map(seconds)
        );
    }

    #[test]
    fn a_short_ttl_is_refused_with_the_shortest_that_would_do() {
        let Err(ScheduleError::TooShort {
            shortest: Some(shortest),
            ..
        }) = Schedule::new(wishes(200))
        else {
            panic!("200 ms must not fit");
        };
        assert!(
            Schedule::new(ScheduleOptions {
                ttl: shortest,
                ..wishes(0)
            })
            .is_ok()
        );
        assert!(
            Schedule::new(ScheduleOptions {
                ttl: shortest.saturating_sub(Duration::from_millis(1)),
                ..wishes(0)
            })
            .is_err()
        );
    }

    #[test]
    fn a_drift_of_one_half_leaves_room_for_nothing_and_names_no_ttl() {
        let greedy = ScheduleOptions {
            drift: 0.9,
            ..wishes(30_000)
        };
        assert!(matches!(
            Schedule::new(greedy),
            Err(ScheduleError::TooShort { shortest: None, .. })
        ));
    }

    #[test]
    fn a_grace_is_as_given_while_the_lease_is_renewed_and_cut_to_the_ttl_when_the_lock_is_lost() {
        let given = |kill_after| {
            Schedule::new(ScheduleOptions {
                kill_after,
                ..wishes(30_000)
            })
            .unwrap()
        };
        let seconds = Duration::from_secs;
        assert_eq!(
            (given(None).kill_after(), given(None).grace()),
            (seconds(5), seconds(5))
        );
        assert_eq!(
            (
                given(Some(seconds(2))).kill_after(),
                given(Some(seconds(2))).grace()
            ),
            (seconds(2), seconds(2))
        );
        // 30 s less drift 302 ms, a third, two exchanges of 1.25 s, and the margin of 500 ms.
        let (long, fits) = (given(Some(seconds(120))), Duration::from_millis(16_698));
        assert_eq!((long.kill_after(), long.grace()), (seconds(120), fits));
        let d = long.term().end(Instant::from_nanos(0));
        assert_eq!(
            long.signal_at(d),
            Instant::from_nanos(12_500_000_000),
            "after a renewal that failed twice"
        );
        assert_eq!(d.since(long.kill_at(d)), Duration::from_millis(500));
    }

    #[test]
    fn a_kill_after_that_does_not_fit_makes_no_ttl_too_short() {
        let shortest = (1..1000)
            .find(|ms| Schedule::new(wishes(*ms)).is_ok())
            .unwrap();
        for kill_after in [Duration::ZERO, Duration::from_secs(3600), Duration::MAX] {
            let given = |ms| {
                Schedule::new(ScheduleOptions {
                    kill_after: Some(kill_after),
                    ..wishes(ms)
                })
            };
            assert!(
                given(shortest).is_ok() && given(shortest - 1).is_err(),
                "{kill_after:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn signal_kill_and_deadline_come_in_that_order_after_two_failed_renewals(
            ttl in 1u64..100_000_000, kill_ms in proptest::option::of(0u64..200_000), sent in 0u64..1 << 50,
        ) {
            let sent = Instant::from_nanos(sent);
            let w = ScheduleOptions { kill_after: kill_ms.map(Duration::from_millis), ..wishes(ttl) };
            if let Ok(s) = Schedule::new(w) {
                let d = s.term().end(sent);
                prop_assert!(d < sent + s.ttl());
                prop_assert!(s.signal_at(d) <= s.kill_at(d) && s.kill_at(d) <= d);
                prop_assert!(sent + s.renew_every() + (s.node_timeout() + s.retry()) * 2 <= s.signal_at(d));
            }
        }
    }
}
