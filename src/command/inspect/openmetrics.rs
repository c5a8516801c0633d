//! `inspect --format openmetrics`: locks and nodes as gauges, for a scraper or a textfile collector.

use crate::lock::census::State;
use crate::lock::fault::{Denied, Faults};
use crate::lock::key::Key;
use crate::redlock::Nodes;
use crate::redlock::observe::Observations;
use crate::text::exposition::{Gauge, labels};

const HELD: Gauge = Gauge::new("rlock_lock_held", "Whether a client holds the lock.");
const HELD_SECONDS: Gauge =
    Gauge::new("rlock_lock_held_seconds", "Time for which the lock has been held, by the oldest of its holders.");
const WAITERS: Gauge = Gauge::new("rlock_lock_waiters", "Number of waiters of the lock.");
const OLDEST_WAITER: Gauge =
    Gauge::new("rlock_lock_oldest_waiter_seconds", "Time for which the oldest waiter of the lock has waited.");
const NODE_UP: Gauge = Gauge::new("rlock_node_up", "Whether the node answered rlock without a fault.");

/// Last line of the format.
const END: &str = "# EOF\n";

/// Returns the gauges at `now` (unix time in ms). A lock of which too few nodes tell has none. The nodes always have theirs.
pub(super) fn of(locks: &[(Key, Observations)], nodes: &Nodes, unread: &Faults, now: u64) -> String {
    let mut text = String::new();
    let known: Vec<_> = locks
        .iter()
        .map(|(key, observations)| (labels(&[("key", key.stored())]), observations.census()))
        .filter(|(_, census)| census.state() != State::Unknown)
        .collect();
    let seconds = |since: u64| now.saturating_sub(since) / 1000;
    HELD.write(
        &mut text,
        known.iter().map(|(labels, census)| (labels.clone(), u8::from(census.state() == State::Held))),
    );
    let held = known.iter().filter(|(_, census)| census.state() == State::Held).filter_map(|(labels, census)| {
        let since = census.holders().iter().filter_map(|(occupant, _)| Some(occupant.holder()?.1.since)).min()?;
        Some((labels.clone(), seconds(since)))
    });
    HELD_SECONDS.write(&mut text, held);
    WAITERS.write(&mut text, known.iter().map(|(labels, census)| (labels.clone(), census.queue().len())));
    let oldest = known.iter().map(|(labels, census)| {
        let since = census.queue().iter().map(|ticket| ticket.waiter.since).min();
        (labels.clone(), since.map_or(0, seconds))
    });
    OLDEST_WAITER.write(&mut text, oldest);
    let fails = |node: usize| {
        let mut faults = locks.iter().map(|(_, observations)| &observations.faults).chain([unread]);
        faults.any(|faults| faults.of(node).is_some_and(|fault| fault.denied != Some(Denied::Key)))
    };
    let up = nodes.iter().enumerate().map(|(node, there)| (labels(&[("node", there.name())]), u8::from(!fails(node))));
    NODE_UP.write(&mut text, up);
    text + END
}
