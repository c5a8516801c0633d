//! Processes, seen from outside.

use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::LIMIT;

/// Whether `pid` can still run; a zombie cannot.
pub(crate) fn alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !matches!(stat.rsplit(") ").next().and_then(|rest| rest.chars().next()), Some('Z' | 'X')))
}

/// Sends `which` to `pid`.
pub(crate) fn signal(pid: i32, which: Signal) {
    kill(Pid::from_raw(pid), which).unwrap_or_else(|error| panic!("{which} to {pid}: {error}"));
}

/// Waits until `condition` holds, looking often; `what` is for the failure.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < LIMIT, "never happened: {what}");
        std::thread::yield_now();
    }
}
