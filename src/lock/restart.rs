//! Nodes that restarted may have forgotten locks. They do not count until every lock that they
//! could have forgotten has expired.
//!
//! antirez' *delayed restarts* ("Distributed Locks with Redis", section "Performance, crash
//! recovery and fsync"), done by the client, so that the server needs no setup.

use std::fmt;
use std::time::Duration;

use crate::text::duration;

/// Shortest TTL that `auto` assumes of other hosts, which may use another one for the key.
const LEAST: Duration = Duration::from_secs(30);

/// `--restart-guard`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RestartGuard {
    /// On for several nodes, for the longest TTL known. Off for one node, where waiting would only
    /// delay the lock.
    Auto,
    /// Off: restarted nodes count at once.
    Off,
    /// On, for this long.
    For(Duration),
}

impl RestartGuard {
    /// M: least uptime of a node that may grant. `longest_ttl` is our own, or that of a holder met,
    /// if longer.
    pub fn span(self, nodes: usize, longest_ttl: Duration) -> Duration {
        match self {
            Self::Off => Duration::ZERO,
            Self::Auto if nodes < 2 => Duration::ZERO,
            Self::Auto => longest_ttl.max(LEAST),
            Self::For(span) => span,
        }
    }

    /// Whether a node that hides its uptime is refused: a user who named a duration relies on it.
    pub fn requires_uptime(self) -> bool {
        matches!(self, Self::For(span) if !span.is_zero())
    }
}

/// Returns the least uptime, in whole seconds as in INFO, with which a node counts under a guard of
/// `span`; 0 if any does.
///
/// One second more than the span: INFO subtracts two times that are both cut to seconds.
pub fn least_uptime(span: Duration) -> u64 {
    let whole = span
        .as_secs()
        .saturating_add(u64::from(span.subsec_nanos() > 0));
    if whole == 0 {
        0
    } else {
        whole.saturating_add(1)
    }
}

/// A node that does not count yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restarted {
    /// Time since it started.
    pub uptime: Duration,
    /// Time until it counts.
    pub left: Duration,
    /// Whether it became the primary then, and had started before.
    pub is_promoted: bool,
}

impl Restarted {
    /// A node that has been up for `uptime` seconds, under a guard of `span`.
    pub fn new(uptime: u64, span: Duration) -> Self {
        let left = least_uptime(span).saturating_sub(uptime);
        Self {
            uptime: Duration::from_secs(uptime),
            left: Duration::from_secs(left),
            is_promoted: false,
        }
    }
}

impl fmt::Display for Restarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [uptime, left] = [self.uptime, self.left].map(duration::show);
        let event = if self.is_promoted {
            "became the primary"
        } else {
            "restarted"
        };
        write!(
            f,
            "it {event} {uptime} ago and may have forgotten locks; it counts again in {left} (restart guard)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_waits_for_the_longest_lease_known_and_half_a_minute_at_least() {
        let seconds = Duration::from_secs;
        assert_eq!(RestartGuard::Auto.span(3, seconds(5)), seconds(30));
        assert_eq!(RestartGuard::Auto.span(3, seconds(90)), seconds(90));
        assert_eq!(RestartGuard::Auto.span(1, seconds(90)), Duration::ZERO);
        assert_eq!(
            RestartGuard::For(seconds(2)).span(1, seconds(90)),
            seconds(2)
        );
    }

    #[test]
    fn a_second_more_is_asked_for_since_uptimes_are_cut_to_seconds() {
        assert_eq!(least_uptime(Duration::from_secs(30)), 31);
        assert_eq!(least_uptime(Duration::from_millis(1500)), 3);
        assert_eq!(least_uptime(Duration::ZERO), 0);
        assert_eq!(least_uptime(Duration::MAX), u64::MAX);
    }
}
