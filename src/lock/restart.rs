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
    /// M: time for which a node that may grant has forgotten no lock. `longest_ttl` is our own, or that of a holder met,
    /// if longer.
    pub fn span(self, nodes: usize, longest_ttl: Duration) -> Duration {
        match self {
            Self::Off => Duration::ZERO,
            Self::Auto if nodes < 2 => Duration::ZERO,
            Self::Auto => longest_ttl.max(LEAST),
            Self::For(span) => span,
        }
    }

    /// Whether a node that does not tell when it restarted is refused: a user who named a duration relies on it.
    pub fn is_strict(self) -> bool {
        matches!(self, Self::For(span) if !span.is_zero())
    }
}

/// A node that does not count yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restarted {
    /// The event at which it may have forgotten locks: `restarted`.
    pub event: &'static str,
    /// Time since then.
    pub remembers: Duration,
    /// Time until it counts.
    pub left: Duration,
}

impl Restarted {
    /// A node that may have forgotten locks at `event`, `remembers` ago, under a guard of `span`.
    pub fn new(event: &'static str, remembers: Duration, span: Duration) -> Self {
        Self {
            event,
            remembers,
            left: span.saturating_sub(remembers),
        }
    }
}

impl fmt::Display for Restarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [ago, left] = [self.remembers, self.left].map(duration::show_rounded);
        write!(
            f,
            "it {} {ago} ago and may have forgotten locks; it counts again in {left} (restart guard)",
            self.event
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
}
