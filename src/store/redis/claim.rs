//! The request for a lock as a call of a script, and the one in its place for a server that has
//! just become the primary.

use std::time::Duration;

use redis::Cmd;

use super::call::{QUEUE_LIFE, fence_life, flag, in_queue, millis, on_lock};
use crate::lock::messages::Claim;
use crate::lock::queue::Ticket;
use crate::lock::token::Token;
use crate::store::redis::locator::Site;
use crate::store::redis::names::{Derived, Names};

/// Uptime in seconds that no server has. A request for it tells the lock's holder and keeps the
/// waiter's place, and is refused where the lock is free.
const NEVER: u64 = 1 << 52;

/// The request for a server that became the primary too short a time ago: its data may lack the
/// last writes of the old one.
pub(super) struct ForYoung {
    /// Time as the primary, in whole seconds, from which on a server is not too young.
    least_age: u64,
    pub(super) command: Cmd,
}

impl ForYoung {
    /// Whether the server of `site` is too young.
    pub(super) fn is_for(&self, site: &Site) -> bool {
        site.age().is_some_and(|age| age.as_secs() < self.least_age)
    }
}

/// Returns the least uptime, in whole seconds as in INFO, of a server that has been up for `span`; 0
/// for a span of zero. One second more than the span: INFO subtracts two times that are both cut to
/// seconds.
fn least_uptime(span: Duration) -> u64 {
    let whole = span
        .as_secs()
        .saturating_add(u64::from(span.subsec_nanos() > 0));
    if whole == 0 {
        0
    } else {
        whole.saturating_add(1)
    }
}

/// Returns the time that a server has certainly been up which tells this uptime, in seconds.
pub(super) fn proven(uptime: u64) -> Duration {
    Duration::from_secs(uptime.saturating_sub(1))
}

/// Returns the request.
pub(super) fn usual(names: &Names, claim: &Claim) -> Cmd {
    command(names, claim, claim.guarded.map(least_uptime))
}

/// Returns the request for a server that became the primary too short a time ago; `None` if none
/// can be too young.
pub(super) fn for_young(names: &Names, claim: &Claim) -> Option<ForYoung> {
    let least_age = claim.guarded.map(least_uptime).filter(|least| *least > 0)?;
    Some(ForYoung {
        least_age,
        command: command(names, claim, Some(NEVER)),
    })
}

fn command(names: &Names, claim: &Claim, least_uptime: Option<u64>) -> Cmd {
    let mode = claim.details.mode;
    let newest = claim
        .ticket
        .as_ref()
        .map(Ticket::newest)
        .filter(|newest| !newest.is_empty());
    let mut command = on_lock("take", names, newest.as_ref().map(|_| Derived::Newest));
    command
        .arg(claim.details.value(claim.token))
        .arg(millis(claim.term.ttl()));
    command.arg(claim.fence_hint).arg(fence_life(claim.term));
    command.arg(least_uptime.map_or_else(String::new, |uptime| uptime.to_string()));
    command.arg(in_queue(claim.ticket.as_ref().map(|ticket| &ticket.waiter)));
    command
        .arg(claim.ticket.as_ref().map_or(0, |ticket| ticket.number))
        .arg(millis(QUEUE_LIFE));
    command.arg(flag(claim.details.n == 1));
    command.arg(
        claim
            .outer
            .iter()
            .map(Token::to_string)
            .collect::<Vec<_>>()
            .join(" "),
    );
    command
        .arg(claim.token.to_string())
        .arg(mode.to_string())
        .arg(claim.details.n);
    command
        .arg(claim.index)
        .arg(flag(claim.is_exact))
        .arg(flag(claim.details.as_redisson))
        .arg(newest);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_more_is_asked_for_since_uptimes_are_cut_to_seconds() {
        assert_eq!(least_uptime(Duration::from_secs(30)), 31);
        assert_eq!(least_uptime(Duration::from_millis(1500)), 3);
        assert_eq!(least_uptime(Duration::ZERO), 0);
        assert_eq!(least_uptime(Duration::MAX), u64::MAX);
        for span in [0, 1, 999, 1000, 1500, 30_000].map(Duration::from_millis) {
            let least = least_uptime(span);
            assert!(proven(least) >= span && (least == 0 || proven(least - 1) < span));
        }
    }
}
