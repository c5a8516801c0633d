//! Nodes that restarted have perhaps forgotten locks, and grant nothing new until all they could have forgotten is over.
//!
//! antirez' *delayed restarts* ("Distributed Locks with Redis", section "Performance, crash recovery and fsync"), done by
//! the client, so that nothing need be set up on the server.

use std::time::Duration;

use crate::text::duration;

/// The least that `auto` assumes others' leases to last, since a host may use another TTL for the key.
const LEAST: Duration = Duration::from_secs(30);

/// `--restart-guard`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RestartGuard {
    /// On for several nodes, for as long as the longest lease that is known; off for one, which has no majority to ask.
    Auto,
    /// Off: restarted nodes count at once.
    Off,
    /// On, for so long.
    For(Duration),
}

impl RestartGuard {
    /// M: how long a node must have been up to grant. `longest_ttl` is our own, or that of a holder met, if longer.
    pub fn span(self, nodes: usize, longest_ttl: Duration) -> Duration {
        match self {
            Self::Off => Duration::ZERO,
            Self::Auto if nodes < 2 => Duration::ZERO,
            Self::Auto => longest_ttl.max(LEAST),
            Self::For(span) => span,
        }
    }

    /// Whether a node that keeps its uptime to itself is refused: who named a duration relies on it.
    pub fn requires_uptime(self) -> bool {
        matches!(self, Self::For(span) if !span.is_zero())
    }
}

/// The least uptime, in whole seconds as INFO tells it, with which a node counts under a guard of `span`; 0 if any does.
///
/// One more than the span: INFO subtracts two times that are both cut to seconds.
pub fn least_uptime(span: Duration) -> u64 {
    let whole = span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0));
    if whole == 0 { 0 } else { whole.saturating_add(1) }
}

/// For a node that does not count yet: since when it is up, and when it will count.
pub fn describe(uptime: u64, span: Duration) -> String {
    let show = |seconds| duration::show(Duration::from_secs(seconds));
    let left = least_uptime(span).saturating_sub(uptime);
    format!(
        "it restarted {} ago and has perhaps forgotten locks; it counts again in {} (--restart-guard)",
        show(uptime),
        show(left)
    )
}

/// Reads `auto`, `off` or a duration with its unit.
pub fn parse(text: &str) -> Result<RestartGuard, String> {
    match text {
        "auto" => Ok(RestartGuard::Auto),
        "off" => Ok(RestartGuard::Off),
        _ => duration::parse(text).map(RestartGuard::For).map_err(|why| format!("auto, off or a duration: {why}")),
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
        assert_eq!(RestartGuard::For(seconds(2)).span(1, seconds(90)), seconds(2));
    }

    #[test]
    fn a_second_more_is_asked_for_since_uptimes_are_cut_to_seconds() {
        assert_eq!(least_uptime(Duration::from_secs(30)), 31);
        assert_eq!(least_uptime(Duration::from_millis(1500)), 3);
        assert_eq!(least_uptime(Duration::ZERO), 0);
        assert_eq!(least_uptime(Duration::MAX), u64::MAX);
    }
}
