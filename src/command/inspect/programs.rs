//! Locks for programs: JSON, by the schema of docs/json.md, which is stable from 1.0 on, and
//! gauges. Fields may be added.

use serde_json::{Value, json};

use crate::hold::observe::Observations;
use crate::lock::census::{Census, State};
use crate::lock::fault::{Denied, Faults};
use crate::lock::fence::Fence;
use crate::lock::key::Key;
use crate::lock::last::Entry;
use crate::lock::occupant::{Occupant, OccupantKind};
use crate::lock::queue::Waiter;
use crate::metrics::{Gauge, labels};
use crate::store::Store;
use crate::text::duration::millis;
use crate::text::escape;

const HELD: Gauge = Gauge::new("rlock_lock_held", "Whether a client holds the lock.");
const HELD_SECONDS: Gauge = Gauge::new(
    "rlock_lock_held_seconds",
    "Time for which the lock has been held, by the oldest of its holders.",
);
const WAITERS: Gauge = Gauge::new("rlock_lock_waiters", "Number of waiters of the lock.");
const OLDEST_WAITER: Gauge = Gauge::new(
    "rlock_lock_oldest_waiter_seconds",
    "Time for which the oldest waiter of the lock has waited.",
);
const UNREADABLE: Gauge = Gauge::new(
    "rlock_locks_unreadable",
    "Number of locks that this user may not read.",
);
const NODE_UP: Gauge = Gauge::new(
    "rlock_node_up",
    "Whether the node answered rlock without a fault.",
);

/// Last line of the format.
const END: &str = "# EOF\n";

/// Returns the name of each lock that is held, on a line of its own. One that would be another
/// lock's when it is typed again is left out.
pub(super) fn names(locks: &[(Key, Observations)]) -> String {
    let held = locks
        .iter()
        .filter(|(_, observations)| observations.census().state() == State::Held);
    held.map(|(key, _)| key.typed())
        .filter(|name| escape::text(name) == *name)
        .map(|name| name.to_owned() + "\n")
        .collect()
}

/// Returns an array with one object a key, on one line.
pub(super) fn json<'a>(
    rows: impl Iterator<Item = &'a (Key, Observations)>,
    stores: &[Box<dyn Store>],
) -> String {
    // One after the other: a value takes ten times the memory of its text.
    let all: Vec<String> = rows
        .map(|(key, observations)| escape::json(&object(key, observations, stores).to_string()))
        .collect();
    format!("[{}]\n", all.join(","))
}

fn object(key: &Key, observations: &Observations, stores: &[Box<dyn Store>]) -> Value {
    let census = observations.census();
    // The oldest of several.
    let holders = census.holders();
    let since = |occupant: &Occupant| occupant.holder().map(|(_, details)| details.since);
    let oldest = holders
        .iter()
        .map(|(occupant, _)| *occupant)
        .min_by_key(|occupant| since(occupant));
    let leading = oldest.or_else(|| census.holder());
    let what = match leading.map(|occupant| &occupant.who) {
        Some(OccupantKind::Foreign(what) | OccupantKind::InLine(what)) => Some(what),
        _ => None,
    };
    let mode = leading.and_then(Occupant::mode).unwrap_or_default();
    let votes = leading.or_else(|| census.leading().map(|(occupant, _)| occupant));
    let votes = votes.map_or(0, |occupant| census.votes_of(occupant));
    let [last, success] = census.last();
    json!({
        "key": key.typed(),
        "state": match census.state() {
            State::Held => "held",
            State::Free => "free",
            State::Unknown => "unknown",
        },
        "mode": mode.name(),
        "slots": mode.number(),
        "holder": leading.and_then(|occupant| member(occupant, votes, &census)),
        "holders": holders.iter().filter_map(|(occupant, votes)| member(occupant, *votes, &census)).collect::<Vec<_>>(),
        "more_holders": census.unlisted(),
        "foreign": what.is_some(),
        "what": what,
        "ttl_ms": leading.and_then(|occupant| census.ttl_of(occupant)).map(millis),
        "fence": leading.and_then(|occupant| fence(occupant, &census)),
        "votes": {
            "held": votes,
            "needed": census.quorum().needed(),
            "total": census.quorum().total(),
        },
        "nodes": (0..stores.len()).map(|node| at_node(node, observations, &census, stores)).collect::<Vec<_>>(),
        "last": last.map(run),
        "once": success.map(run),
        "waiters": census.queue().into_iter().map(|ticket| waiter(&ticket.waiter)).collect::<Vec<_>>(),
        "more_waiters": census.has_more_waiters(),
    })
}

fn fence(occupant: &Occupant, census: &Census) -> Option<u64> {
    occupant
        .holder()
        .and_then(|(token, _)| census.fence(token))
        .map(Fence::get)
}

/// Returns one of the holders, with what is its own.
fn member(occupant: &Occupant, votes: usize, census: &Census) -> Option<Value> {
    let (token, details) = occupant.holder()?;
    let mut told = json!({
        "token": token.to_string(),
        "acquired": !details.kept && !details.parked,
        "parked": details.parked,
        "broken_by": details.broken.as_ref().map(|by| &by.name),
        "reason": details.broken.as_ref().map(|by| &by.reason),
        "slot": Some(occupant.seat.index).filter(|index| *index > 0),
        "fence": fence(occupant, census),
        "ttl_ms": census.ttl_of(occupant).map(millis),
        "votes": votes,
    });
    told.as_object_mut()?.extend(details.fields());
    Some(told)
}

fn run(entry: &Entry) -> Value {
    let run = &entry.run;
    json!({
        "token": entry.token.to_string(),
        "fence": entry.fence.get(),
        "age_ms": millis(entry.age),
        "host": run.host,
        "user": run.user,
        "cmd": run.cmd,
        "start": run.start,
        "end": run.end,
        "exit": run.exit,
        "signal": run.signal,
        "broken_by": run.broken.as_ref().map(|by| &by.name),
        "reason": run.broken.as_ref().map(|by| &by.reason),
    })
}

fn at_node(
    node: usize,
    observations: &Observations,
    census: &Census,
    stores: &[Box<dyn Store>],
) -> Value {
    let observation = observations.of_nodes[node].as_ref();
    let state = match (observation, census.agrees_with_leading(node)) {
        (None, _) => "unknown",
        (Some(_), None) => "free",
        (Some(_), Some(true)) => "held",
        (Some(_), Some(false)) => "other",
    };
    let ttl = observation
        .and_then(|observation| observation.occupant())
        .and_then(|occupant| occupant.ttl);
    let error = observations.faults.of(node).map(|fault| fault.why.as_str());
    let server = observations.servers[node].as_ref();
    json!({
        "node": stores[node].name(),
        "primary": server.map(|server| &server.address),
        "epoch": server.and_then(|server| server.epoch),
        "state": state,
        "ttl_ms": ttl.map(millis),
        "error": error,
    })
}

fn waiter(waiter: &Waiter) -> Value {
    let Waiter {
        id,
        host,
        pid,
        since,
        note,
        ..
    } = waiter;
    json!({ "token": id.to_string(), "host": host, "pid": pid, "since": since, "user": waiter.user(), "note": note })
}

/// Returns the gauges at `now` (unix time in ms). A lock of which too few nodes tell has none. The
/// nodes always have theirs.
pub(super) fn openmetrics(
    locks: &[(Key, Observations)],
    unreadable: usize,
    stores: &[Box<dyn Store>],
    unread: &Faults,
    now: u64,
) -> String {
    let mut text = String::new();
    let known: Vec<_> = locks
        .iter()
        .map(|(key, observations)| (labels(&[("key", key.stored())]), observations.census()))
        .filter(|(_, census)| census.state() != State::Unknown)
        .collect();
    let seconds = |since: u64| now.saturating_sub(since) / 1000;
    HELD.write(
        &mut text,
        known
            .iter()
            .map(|(labels, census)| (labels.clone(), u8::from(census.state() == State::Held))),
    );
    let held = known
        .iter()
        .filter(|(_, census)| census.state() == State::Held)
        .filter_map(|(labels, census)| {
            let since = census
                .holders()
                .iter()
                .filter_map(|(occupant, _)| Some(occupant.holder()?.1.since))
                .min()?;
            Some((labels.clone(), seconds(since)))
        });
    HELD_SECONDS.write(&mut text, held);
    WAITERS.write(
        &mut text,
        known
            .iter()
            .map(|(labels, census)| (labels.clone(), census.queue().len())),
    );
    let oldest = known.iter().map(|(labels, census)| {
        let since = census
            .queue()
            .iter()
            .map(|ticket| ticket.waiter.since)
            .min();
        (labels.clone(), since.map_or(0, seconds))
    });
    OLDEST_WAITER.write(&mut text, oldest);
    let unreadable = Some((String::new(), unreadable)).filter(|(_, count)| *count > 0);
    UNREADABLE.write(&mut text, unreadable);
    let fails = |node: usize| {
        let mut faults = locks
            .iter()
            .map(|(_, observations)| &observations.faults)
            .chain([unread]);
        faults.any(|faults| {
            faults
                .of(node)
                .is_some_and(|fault| fault.denied != Some(Denied::Key))
        })
    };
    let up = stores
        .iter()
        .enumerate()
        .map(|(node, there)| (labels(&[("node", there.name())]), u8::from(!fails(node))));
    NODE_UP.write(&mut text, up);
    text + END
}
