//! The options by which a run leaves something of its locks, as typed: `--hold-at-least`, `--lock-delay` and `--once`.

use std::time::Duration;

use super::{LockSettings, usage};
use crate::cli::RunArgs;
use crate::exit::Failure;
use crate::lock::mode::Mode;
use crate::lock::remains::RemainsOptions;
use crate::lock::schedule::LONGEST_TTL;
use crate::text::duration;

/// Returns the options of a run, not yet checked.
pub(super) fn given(args: &RunArgs) -> RemainsOptions {
    RemainsOptions {
        hold_at_least: args.hold_at_least.unwrap_or_default(),
        lock_delay: args.lock.lock_delay.unwrap_or_default(),
        once: args.once,
    }
}

/// Refuses times that no server can keep, and `--once` where more than one run may succeed at a time.
pub(super) fn check(options: RemainsOptions, lock: &LockSettings) -> Result<(), Failure> {
    let times = [
        ("--hold-at-least", options.hold_at_least),
        ("--lock-delay", options.lock_delay.saturating_add(lock.schedule.ttl())),
        ("--once", options.once.unwrap_or_default()),
    ];
    for (option, time) in times {
        if time > LONGEST_TTL {
            let with = if option == "--lock-delay" { " with --ttl" } else { "" };
            return Err(usage(format!("{option} is at most {}{with}", duration::days(LONGEST_TTL))));
        }
    }
    match options.once {
        Some(Duration::ZERO) => Err(usage("--once 0 would find no success: give a longer time")),
        Some(_) if lock.mode != Mode::Exclusive => {
            Err(usage("--once needs an exclusive lock: with --shared and --slots several runs may succeed at a time"))
        }
        Some(_) if lock.keys.len() > 1 => {
            Err(usage("--once takes one lock: of several, some may know of the success and others not"))
        }
        _ => Ok(()),
    }
}
