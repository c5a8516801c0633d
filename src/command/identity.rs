//! This client as others see it: in the lock's details, in the queue, and in a tombstone.

use std::time::SystemTime;

use uuid::Uuid;

use crate::clock;
use crate::lock::mode::Mode;
use crate::lock::queue::Waiter;

/// Returns this machine's name.
pub(super) fn host() -> String {
    nix::unistd::gethostname().map_or_else(|_| "?".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Returns the user's name as the environment has it, else the number. Not getpwuid(3): a directory service that hangs must
/// not keep a job from running.
pub(super) fn user() -> String {
    ["LOGNAME", "USER"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
        .unwrap_or_else(|| format!("uid {}", nix::unistd::Uid::effective()))
}

/// Returns an entry for the queue of a lock of this kind that no other client has.
pub(super) fn waiter(mode: Mode) -> Waiter {
    let since = clock::unix_millis(SystemTime::now());
    Waiter { id: Uuid::new_v4(), host: host(), pid: std::process::id(), since, mode }
}
