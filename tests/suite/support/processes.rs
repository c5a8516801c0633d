//! Processes, seen from outside.

use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::LIMIT;

/// Whether `pid` can still run; a zombie cannot.
pub(crate) fn alive(pid: i32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// The letter that proc(5) has for what `pid` is doing: T for stopped.
pub(crate) fn state(pid: i32) -> Option<char> {
    stat(pid).first().and_then(|field| field.chars().next())
}

/// The process that waits for `pid`.
pub(crate) fn parent(pid: i32) -> i32 {
    stat(pid).get(1).and_then(|field| field.parse().ok()).unwrap_or_else(|| panic!("{pid} is gone"))
}

/// `/proc/PID/stat` from the third field on: state, parent, group, session. Empty if there is no such process.
pub(crate) fn stat(pid: i32) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    text.rsplit_once(") ").map(|(_, rest)| rest.split(' ').map(str::to_owned).collect()).unwrap_or_default()
}

/// The processes whose parent is `pid`, zombies included.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().map(|word| word.parse().expect("a pid")).collect()
}

/// The guard of the rlock `pid`.
pub(crate) fn guard_of(rlock: i32) -> i32 {
    let name = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let mut found = None;
    eventually("there is a guard", || {
        found = children(rlock).into_iter().find(|pid| name(pid).trim() == "rlock-guard");
        found.is_some()
    });
    found.expect("a guard")
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
