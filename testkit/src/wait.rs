//! Waiting for events: a condition is polled until it holds, with a limit that only a failure
//! reaches.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use nix::time::{ClockId, clock_gettime};

/// Limit of every wait. No wait of a test that passes takes this long, however busy the machine.
pub const LIMIT: Duration = Duration::from_secs(30);

/// Shortest and longest pause between two polls: short beside what is timed, long enough to leave the
/// processor to what is waited for.
const PAUSE: [Duration; 2] = [Duration::from_micros(200), Duration::from_millis(20)];

/// Returns the time since boot, suspended or not.
pub fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Into::into)
}

/// Polls `look` until it returns something; an error after [`LIMIT`] names `what`.
pub fn until<T>(what: &str, look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    until_within(LIMIT, what, look)
}

fn until_within<T>(
    limit: Duration,
    what: &str,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let begin = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        let waited = begin.elapsed();
        if waited > limit {
            bail!("never happened: {what}");
        }
        let [least, most] = PAUSE;
        std::thread::sleep((waited / 20).clamp(least, most));
    }
}

/// Polls `condition` until it holds; panics after [`LIMIT`] and names `what`.
#[track_caller]
pub fn eventually(what: &str, condition: impl FnMut() -> bool) {
    eventually_within(LIMIT, what, condition);
}

/// The same with a limit of its own.
#[track_caller]
pub fn eventually_within(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    if let Err(error) = until_within(limit, what, || Ok(condition().then_some(()))) {
        panic!("{error}");
    }
}
