//! Pauses: random, so that those who collided do not collide again in step.

use std::time::Duration;

/// A pause before a failed exchange is tried again: half to the whole of `range`. `random` is in [0, 1).
pub fn retry(range: Duration, random: f64) -> Duration {
    range.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
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
    fn a_waiter_looks_when_the_ttl_is_up_and_every_quarter_second_at_most() {
        assert_eq!(poll(Some(Duration::from_millis(30)), 0.9), Duration::from_millis(31));
        assert_eq!(poll(None, 0.0), Duration::from_millis(100));
        assert_eq!(poll(Some(Duration::from_secs(9)), 1.0), Duration::from_millis(250));
    }
}
