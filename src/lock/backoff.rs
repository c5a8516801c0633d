//! How long to pause: a waiter before its next attempt, a holder before it repeats a renewal that
//! failed. Pauses are random, so that clients which collided do not collide again in step.
//!
//! All numbers of waiting stand here. `lock::waiting` chooses a waiter's pause among them, and
//! `lock.lua` is sent with those that a server needs. Each `random` is in [0, 1).

use std::time::Duration;

use super::blocker::Blocker;

// Behind a holder or a turn.

/// Shortest pause of a waiter that no node wakes, and of the first one behind a client that is not
/// rlock, which wakes none.
const SHORTEST_POLL: Duration = Duration::from_millis(100);

/// Range of the random part of that pause.
const POLL_RANGE: Duration = Duration::from_millis(150);

/// Longest pause at first of a waiter that no node wakes.
pub const FIRST_POLL: Duration = SHORTEST_POLL.saturating_add(POLL_RANGE);

/// Part of the time waited that such a waiter pauses for, at most, behind a lease.
const PART_OF_WAIT: u32 = 10;

/// Longest pause of such a waiter. With half to the whole of it, a thousand waiters ask some 130
/// times a second in all.
pub const LONGEST_POLL: Duration = BACKSTOP;

/// Longest pause of the first 50 waiters, whatever they were told. A wake-up may be lost with its
/// node, or go to a stopped host. A simulation lets a free lock wait for twice this time.
pub const BACKSTOP: Duration = Duration::from_secs(10);

/// The same for each waiter ahead, which is longer than [`BACKSTOP`] from rank 51 on. The further
/// behind, the seldomer: 500 waiters look some 15 times a second in all.
const BACKSTOP_PER_RANK: Duration = Duration::from_millis(200);

/// Longest pause of any waiter.
const LONGEST: Duration = Duration::from_secs(60);

/// Added to a pause for each waiter ahead, so that earlier waiters look first.
const PER_RANK: Duration = Duration::from_millis(100);

// After an attempt that failed.

/// Shortest pause after votes were split: an exchange with a server nearby.
const SHORTEST_SPLIT: Duration = Duration::from_millis(5);

/// Range of the random part of that pause, doubled for each further split.
const SPLIT_RANGE: Duration = Duration::from_millis(40);

/// Longest such range.
const LONGEST_SPLIT_RANGE: Duration = Duration::from_millis(320);

/// Ties in a row after which a waiter gives its place up: its own ticket may be what splits the
/// votes.
pub(super) const TIES: u32 = 3;

/// Longest pause of a waiter while no majority of the nodes votes. It notices that they are back
/// this much later at most.
const AWAY: Duration = Duration::from_secs(2);

/// Time for which nodes that have never answered are tried, without `--wait`.
pub const UNREACHABLE: Duration = Duration::from_secs(10);

/// Time for which an outer rlock that cannot be reached may hold the lock. One that is releasing it
/// cannot be reached either.
pub(super) const OUTER_REFUSALS: Duration = Duration::from_secs(2);

/// Time before the end of the patience at which a last attempt begins: a key that was deleted by
/// hand woke no waiter.
pub(super) const LAST_ATTEMPT: Duration = Duration::from_millis(50);

// After a wake-up.

/// Pause after the first offer, in which other nodes may offer too: a release reaches them one
/// after another.
pub(super) const MORE_OFFERS: Duration = Duration::from_millis(10);

/// Time that a waiter has to take its turn at a server. Then a standby tries, and the waiter is
/// passed over: it has stalled. `lock.lua` is sent with it.
pub const TURN: Duration = Duration::from_millis(500);

/// The same behind a waiter that has stalled: the lock has been free for long.
pub const LATE_TURN: Duration = Duration::from_millis(200);

/// The same in a directory, where a standby hears of nothing: the waiters look by themselves.
pub const GATE_TURN: Duration = Duration::from_secs(1);

/// False wake-ups in a row that are followed at once. A few are normal: a release reaches the nodes
/// one after another.
pub(super) const FALSE_WAKE_LIMIT: u32 = 5;

/// Pause after one more false wake-up, doubled for each further one, so that a faulty node cannot
/// make the waiter spin.
pub(super) const FALSE_WAKE_PAUSE: Duration = Duration::from_millis(20);

/// Returns the pause before a failed exchange is tried again: half to the whole of `range`.
pub fn retry(range: Duration, random: f64) -> Duration {
    range.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
}

/// Returns `pause`, doubled for each of `failures` in a row, up to `most`.
pub fn doubled(pause: Duration, failures: u32, most: Duration) -> Duration {
    pause.saturating_mul(1 << failures.min(16)).min(most)
}

/// Returns the pause after votes were split: up to a tenth of a second, twice that after each
/// further split.
///
/// It is random over its whole range, or waiters that tied would tie again (Raft's election
/// timeouts, Ongaro and Ousterhout 2014, section 5.2).
pub fn split(splits: u32, random: f64) -> Duration {
    SHORTEST_SPLIT + doubled(SPLIT_RANGE, splits, LONGEST_SPLIT_RANGE).mul_f64(random)
}

/// Returns the pause between two looks at a held lock: 100 to 250 ms, but not past the end of the
/// holder's TTL.
fn poll(holder_ttl: Option<Duration>, random: f64) -> Duration {
    let pause = SHORTEST_POLL + POLL_RANGE.mul_f64(random.clamp(0.0, 1.0));
    holder_ttl.map_or(pause, |ttl| pause.min(over(ttl)))
}

/// Returns the same for a waiter that is not known to be the first, and has waited for `waited`.
/// Behind a lease, which a server keeps, it grows with that, because no waiter knows how many others
/// ask that server.
fn poll_among_many(holder_ttl: Option<Duration>, waited: Duration, random: f64) -> Duration {
    let pause = poll(holder_ttl, random);
    match holder_ttl {
        Some(_) => pause.max(retry((waited / PART_OF_WAIT).min(LONGEST_POLL), random)),
        None => pause,
    }
}

/// Returns the pause of a waiter of rank `rank`, which has waited for `waited`, while `blocker` has
/// the lock or its turn and no node wakes it. `subscribed`: a majority of the nodes will wake it when
/// the lock is free.
pub fn recheck(
    blocker: &Blocker,
    rank: Option<u32>,
    subscribed: bool,
    waited: Duration,
    random: f64,
) -> Duration {
    // A foreign client knows no queue and wakes no waiter.
    if rank == Some(0) && (!subscribed || blocker.is_foreign()) {
        return poll(blocker.left(), random);
    }
    let Some(rank) = rank.filter(|_| subscribed) else {
        return poll_among_many(blocker.left(), waited, random);
    };
    let backstop = BACKSTOP
        .max(BACKSTOP_PER_RANK.saturating_mul(rank))
        .min(LONGEST);
    let ends = blocker.left().map_or(LONGEST, over);
    ends.saturating_add(by_rank(Some(rank))).min(backstop)
}

/// Returns the additional pause of a waiter of rank `rank`, compared with the first.
pub fn by_rank(rank: Option<u32>) -> Duration {
    PER_RANK.saturating_mul(rank.unwrap_or(0)).min(LONGEST)
}

/// Returns when a key with the TTL `ttl` is certainly gone: the server told whole milliseconds,
/// rounded down.
pub fn over(ttl: Duration) -> Duration {
    ttl.saturating_add(Duration::from_millis(1))
}

/// Number of attempts in a row to which no majority of the nodes gave a vote.
#[derive(Clone, Default, Debug)]
pub struct Absence {
    attempts: u32,
    /// Number of nodes that voted in the last attempt.
    voted: usize,
    /// Time from the last attempt until nodes that restarted make a majority again.
    counts_in: Option<Duration>,
}

impl Absence {
    /// Counts an attempt in which `voted` nodes gave a vote; `needed` make a majority. One more
    /// than before is a node that came back: others may follow. `counts_in`: time until a majority
    /// counts, if that is known.
    pub fn note(&mut self, voted: usize, needed: usize, counts_in: Option<Duration>) {
        let is_back = voted >= needed || voted > self.voted;
        self.attempts = if is_back {
            0
        } else {
            self.attempts.saturating_add(1)
        };
        self.voted = voted;
        self.counts_in = counts_in;
    }

    /// Returns the pause before the next attempt: as after any failed exchange, and twice as long
    /// after each further one. If it is known when a majority counts, it ends then.
    pub fn pause(&self, range: Duration, random: f64) -> Duration {
        if let Some(counts_in) = self.counts_in {
            return counts_in + retry(range, random);
        }
        retry(
            doubled(range, self.attempts.saturating_sub(1), AWAY.max(range)),
            random,
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::Rng as _;
    use proptest::test_runner::{RngAlgorithm, TestRng};

    use super::*;
    use crate::lock::details::Details;
    use crate::lock::occupant::{Occupant, OccupantKind};
    use crate::lock::token::Token;

    const fn seconds(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[test]
    fn pauses_double_up_to_their_limit() {
        let (pause, most) = (Duration::from_millis(100), seconds(10));
        assert_eq!(doubled(pause, 0, most), pause);
        assert_eq!(doubled(pause, 3, most), Duration::from_millis(800));
        assert_eq!(doubled(pause, u32::MAX, most), most);
        assert!(split(0, 0.0) < split(0, 0.99) && split(9, 0.99) < Duration::from_millis(330));
    }

    #[test]
    fn a_waiter_backs_off_from_nodes_that_are_away_until_one_is_back() {
        let range = Duration::from_millis(100);
        let longest = |absence: &Absence| absence.pause(range, 1.0);
        let mut absence = Absence::default();
        let pauses: Vec<u128> = std::iter::repeat_with(|| {
            absence.note(0, 2, None);
            longest(&absence).as_millis()
        })
        .take(7)
        .collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 2000, 2000]);
        assert_eq!(absence.pause(range, 0.0), seconds(1));
        absence.note(1, 2, None);
        assert_eq!(longest(&absence), range, "one is back");
        absence.note(1, 2, None);
        absence.note(1, 2, None);
        assert_eq!(longest(&absence), range * 2, "no other is");
        absence.note(2, 2, None);
        assert_eq!(longest(&absence), range);
        absence.note(2, 2, None);
        assert_eq!(
            longest(&absence),
            range,
            "a majority that votes is not away"
        );
        (0..u32::MAX)
            .step_by(1 << 28)
            .for_each(|_| absence.note(0, 2, None));
        assert!(longest(&absence) <= AWAY);
    }

    #[test]
    fn a_waiter_looks_when_the_ttl_is_up_and_every_quarter_second_at_most() {
        assert_eq!(
            poll(Some(Duration::from_millis(30)), 0.9),
            Duration::from_millis(31)
        );
        assert_eq!(poll(None, 0.0), Duration::from_millis(100));
        assert_eq!(poll(Some(seconds(9)), 1.0), Duration::from_millis(250));
    }

    /// Returns how often `number` waiters look in each second behind `holder`, if all come within
    /// the first one, no server wakes them, and the lock stays held.
    fn looks_of(number: u32, holder: &Blocker) -> Vec<f64> {
        let mut random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let mut random = || f64::from(random.next_u32()) / 2_f64.powi(32);
        let mut looks = vec![0.0; 310];
        for _ in 0..number {
            let begin = Duration::from_secs_f64(random());
            let mut now = begin;
            while let Some(second) = looks.get_mut(usize::try_from(now.as_secs()).unwrap()) {
                *second += 1.0;
                now += recheck(holder, None, true, now.saturating_sub(begin), random());
            }
        }
        looks
    }

    /// The curve of docs/sql.md, and its bound. A waiter of a server does not know how many others
    /// there are.
    #[test]
    fn waiters_that_poll_look_as_often_as_the_table_says() {
        let holder = |ttl| {
            let who = OccupantKind::Holder(Token::fresh(), Details::default());
            Blocker::Occupant(Occupant::new(who, ttl))
        };
        for ttl in [1, 30, 3600] {
            let looks = looks_of(1000, &holder(Some(seconds(ttl))));
            for (second, told) in [
                (1, 5700.0),
                (10, 1400.0),
                (30, 460.0),
                (60, 230.0),
                (300, 135.0),
            ] {
                let near = &looks[second - 1..=second + 1];
                let mean = if second == 1 {
                    looks[1]
                } else {
                    near.iter().sum::<f64>() / 3.0
                };
                assert!((mean / told - 1.0).abs() < 0.1, "{second} s: {mean} looks");
            }
            assert!(looks.iter().all(|looks| *looks < 6200.0), "{looks:?}");
            // Of ten seconds each: single ones differ by chance.
            let mut late = looks[80..].chunks(10);
            assert!(
                late.all(|ten| ten.iter().sum::<f64>() <= 2000.0),
                "{looks:?}"
            );
        }
        let (early, late) = (seconds(2), seconds(1000));
        let leased = holder(Some(seconds(300)));
        assert!(recheck(&leased, None, true, early, 0.99) <= FIRST_POLL);
        assert!(recheck(&leased, Some(1), false, early, 0.99) <= FIRST_POLL);
        assert!(recheck(&leased, Some(1), false, late, 0.0) >= seconds(5));
        // It knows that it is the only one.
        assert!(recheck(&leased, Some(0), false, late, 0.99) <= FIRST_POLL);
        // A holder without a lease is a process, whose end no server tells of.
        assert!(recheck(&holder(None), None, true, late, 0.99) <= FIRST_POLL);
    }

    #[test]
    fn no_waiter_polls_behind_a_holder_that_will_wake_it() {
        let holder = |ttl| {
            let who = OccupantKind::Holder(Token::fresh(), Details::default());
            Blocker::Occupant(Occupant::new(who, Some(ttl)))
        };
        assert_eq!(
            recheck(&holder(seconds(7)), Some(0), true, Duration::ZERO, 0.5),
            Duration::from_millis(7001)
        );
        assert_eq!(
            recheck(&holder(seconds(7)), Some(3), true, Duration::ZERO, 0.5),
            Duration::from_millis(7301)
        );
        assert_eq!(
            recheck(&holder(seconds(300)), Some(3), true, Duration::ZERO, 0.5),
            seconds(10)
        );
        assert_eq!(
            recheck(&holder(seconds(300)), Some(100), true, Duration::ZERO, 0.5),
            seconds(20)
        );
        let holder = holder(seconds(300));
        assert_eq!(
            recheck(&holder, Some(900), true, Duration::ZERO, 0.5),
            seconds(60)
        );
        assert!(
            recheck(&holder, Some(0), false, Duration::ZERO, 0.5) <= Duration::from_millis(250)
        );
        assert!(recheck(&holder, None, true, Duration::ZERO, 0.5) <= Duration::from_millis(250));
    }

    #[test]
    fn only_the_first_waiter_polls_behind_a_foreign_holder() {
        let foreign = Blocker::Occupant(Occupant::new(OccupantKind::Foreign("x".to_owned()), None));
        assert!(
            recheck(&foreign, Some(0), true, Duration::ZERO, 0.99) <= Duration::from_millis(250)
        );
        assert_eq!(
            recheck(&foreign, Some(1), true, Duration::ZERO, 0.5),
            seconds(10)
        );
    }
}
