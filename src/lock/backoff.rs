//! Pauses: random, so that those who collided do not collide again in step.

use std::time::Duration;

/// A pause before a failed exchange is tried again: half to the whole of `range`. `random` is in [0, 1).
pub fn retry(range: Duration, random: f64) -> Duration {
    range.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
}

/// `pause`, doubled for each of `failures` in a row, up to `most`.
pub fn doubled(pause: Duration, failures: u32, most: Duration) -> Duration {
    pause.saturating_mul(1 << failures.min(16)).min(most)
}

/// Longest pause of a waiter while no majority of the nodes votes: how late it notices that they are back.
const AWAY: Duration = Duration::from_secs(2);

/// Attempts in a row to which no majority of the nodes gave a vote.
#[derive(Default, Debug)]
pub struct Absence {
    attempts: u32,
    /// Number of nodes that gave one in the last.
    voted: usize,
}

impl Absence {
    /// An attempt is over in which `voted` nodes gave a vote; `needed` make a majority. One more than before is a node that
    /// came back: others may follow.
    pub fn note(&mut self, voted: usize, needed: usize) {
        let is_back = voted >= needed || voted > self.voted;
        self.attempts = if is_back { 0 } else { self.attempts.saturating_add(1) };
        self.voted = voted;
    }

    /// The pause before the next attempt: as after any failed exchange, and twice as long after each further one. `random` is
    /// in [0, 1).
    pub fn pause(&self, range: Duration, random: f64) -> Duration {
        retry(doubled(range, self.attempts.saturating_sub(1), AWAY.max(range)), random)
    }
}

/// A pause after votes were split: up to a tenth of a second, twice that after each further split. Random over its whole
/// range, or those who tied would tie again (Raft's election timeouts, Ongaro and Ousterhout 2014, section 5.2).
pub fn split(splits: u32, random: f64) -> Duration {
    Duration::from_millis(5) + doubled(Duration::from_millis(40), splits, Duration::from_millis(320)).mul_f64(random)
}

/// How long to look away from a lock that is held: 100 to 250 ms, but not past the end of the holder's TTL.
pub fn poll(holder_ttl: Option<Duration>, random: f64) -> Duration {
    let pause = Duration::from_millis(100) + Duration::from_millis(150).mul_f64(random.clamp(0.0, 1.0));
    // One millisecond more than the TTL that the server told: it counts in whole ones, rounded down.
    holder_ttl.map_or(pause, |ttl| pause.min(ttl + Duration::from_millis(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_limit() {
        let (pause, most) = (Duration::from_millis(100), Duration::from_secs(10));
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
            absence.note(0, 2);
            longest(&absence).as_millis()
        })
        .take(7)
        .collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 2000, 2000]);
        assert_eq!(absence.pause(range, 0.0), Duration::from_secs(1));
        absence.note(1, 2);
        assert_eq!(longest(&absence), range, "one is back");
        absence.note(1, 2);
        absence.note(1, 2);
        assert_eq!(longest(&absence), range * 2, "no other is");
        absence.note(2, 2);
        assert_eq!(longest(&absence), range);
        absence.note(2, 2);
        assert_eq!(longest(&absence), range, "a majority that votes is not away");
        (0..u32::MAX).step_by(1 << 28).for_each(|_| absence.note(0, 2));
        assert!(longest(&absence) <= AWAY);
    }

    #[test]
    fn a_waiter_looks_when_the_ttl_is_up_and_every_quarter_second_at_most() {
        assert_eq!(poll(Some(Duration::from_millis(30)), 0.9), Duration::from_millis(31));
        assert_eq!(poll(None, 0.0), Duration::from_millis(100));
        assert_eq!(poll(Some(Duration::from_secs(9)), 1.0), Duration::from_millis(250));
    }
}
