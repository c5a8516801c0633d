//! The schedule of a lease as typed, and the words for one that does not fit.

use crate::exit::Failure;
use crate::lock::schedule::{LONGEST_TTL, Schedule, ScheduleError, ScheduleOptions, millis_up};
use crate::text::duration;

use super::usage;

/// Derives the schedule, or says which TTL would fit.
pub fn schedule(options: ScheduleOptions) -> Result<Schedule, Failure> {
    Schedule::new(options).map_err(|error| usage(worded(error)))
}

fn worded(error: ScheduleError) -> String {
    let ScheduleError::TooShort { schedule, shortest } = error else {
        return format!("--ttl is at most {}", duration::days(LONGEST_TTL));
    };
    let show = |span| duration::show(millis_up(span));
    let remedy = match shortest {
        Some(ttl) => format!("give --ttl {} or more", show(ttl)),
        None => "give a smaller --node-timeout or --drift".to_owned(),
    };
    format!(
        "--ttl {} is too short for its own schedule: a third to renew, drift {}, twice --node-timeout {} and pause {}, and margin {} make {}; {remedy}",
        show(schedule.ttl()),
        show(schedule.drift()),
        show(schedule.node_timeout()),
        show(schedule.retry()),
        show(schedule.margin()),
        show(schedule.needed()),
    )
}
