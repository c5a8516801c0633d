//! Pauses between two polls, where the kernel has no event: the end of processes that are not our children.

use std::time::Duration;

/// The longest pause of an rlock.
pub const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// The pause before a second poll that confirms the first one.
pub(super) const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// Returns the next pause after `waited`: an eighth of it, so that the delay stays in proportion.
pub fn pause(waited: Duration, longest: Duration) -> Duration {
    (waited / 8).clamp(SHORTEST_PAUSE, longest)
}
