//! `inspect --json`: the schema of docs/json.md, stable from 1.0 on. Fields may be added.

use serde_json::{Value, json};

use crate::lock::census::{Census, State};
use crate::lock::fence::Fence;
use crate::lock::key::Key;
use crate::lock::last::Entry;
use crate::lock::occupant::{Occupant, OccupantKind};
use crate::lock::queue::Waiter;
use crate::node::Primary;
use crate::redlock::Nodes;
use crate::redlock::observe::Observations;
use crate::text::duration::millis;
use crate::text::escape;

/// Returns an array with one object a key, on one line.
pub(super) fn of(rows: &[(Key, Observations)], nodes: &Nodes) -> String {
    // One after the other: a value takes ten times the memory of its text.
    let all: Vec<String> =
        rows.iter().map(|(key, observations)| escape::json(&object(key, observations, nodes).to_string())).collect();
    format!("[{}]\n", all.join(","))
}

fn object(key: &Key, observations: &Observations, nodes: &Nodes) -> Value {
    let census = observations.census();
    // The oldest of several.
    let holders = census.holders();
    let since = |occupant: &Occupant| occupant.holder().map(|(_, details)| details.since);
    let oldest = holders.iter().map(|(occupant, _)| *occupant).min_by_key(|occupant| since(occupant));
    let leading = oldest.or_else(|| census.holder());
    let who = leading.map(|occupant| &occupant.who);
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
        "foreign": matches!(who, Some(OccupantKind::Foreign(_))),
        "what": if let Some(OccupantKind::Foreign(what)) = who { Some(what) } else { None },
        "ttl_ms": leading.and_then(|occupant| census.ttl_of(occupant)).map(millis),
        "fence": leading.and_then(|occupant| fence(occupant, &census)),
        "votes": {
            "held": votes,
            "needed": census.quorum().needed(),
            "total": census.quorum().total(),
        },
        "nodes": (0..nodes.len()).map(|node| at_node(node, key, observations, &census, nodes)).collect::<Vec<_>>(),
        "last": last.map(run),
        "once": success.map(run),
        "waiters": census.queue().into_iter().map(|ticket| waiter(&ticket.waiter)).collect::<Vec<_>>(),
        "more_waiters": census.has_more_waiters(),
    })
}

fn fence(occupant: &Occupant, census: &Census) -> Option<u64> {
    occupant.holder().and_then(|(token, _)| census.fence(token)).map(Fence::get)
}

/// Returns one of the holders, with what is its own.
fn member(occupant: &Occupant, votes: usize, census: &Census) -> Option<Value> {
    let mut object = holder(&occupant.who)?;
    let slot = Some(occupant.seat.index).filter(|index| *index > 0);
    object["slot"] = json!(slot);
    object["fence"] = json!(fence(occupant, census));
    object["ttl_ms"] = json!(census.ttl_of(occupant).map(millis));
    object["votes"] = json!(votes);
    Some(object)
}

fn holder(who: &OccupantKind) -> Option<Value> {
    let OccupantKind::Holder(token, details) = who else { return None };
    Some(json!({
        "token": token.to_string(),
        "host": details.host,
        "pid": details.pid,
        "user": details.user,
        "cmd": details.cmd,
        "note": details.note,
        "since": details.since,
        "acquired": !details.kept && !details.parked,
        "parked": details.parked,
        "broken_by": details.broken.as_ref().map(|by| &by.name),
        "reason": details.broken.as_ref().map(|by| &by.reason),
    }))
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

fn at_node(node: usize, key: &Key, observations: &Observations, census: &Census, nodes: &Nodes) -> Value {
    let observation = observations.of_nodes[node].as_ref();
    let state = match (observation, census.agrees_with_leading(node)) {
        (None, _) => "unknown",
        (Some(_), None) => "free",
        (Some(_), Some(true)) => "held",
        (Some(_), Some(false)) => "other",
    };
    let ttl = observation.and_then(|observation| observation.occupant()).and_then(|occupant| occupant.ttl);
    let error = observations.faults.of(node).map(|fault| fault.why.as_str());
    let primary = nodes[node].primary(key);
    json!({
        "node": nodes[node].name(),
        "primary": primary.as_ref().map(Primary::address),
        "epoch": primary.and_then(|primary| primary.epoch),
        "state": state,
        "ttl_ms": ttl.map(millis),
        "error": error,
    })
}

fn waiter(waiter: &Waiter) -> Value {
    let Waiter { id, host, pid, since, note, .. } = waiter;
    json!({ "token": id.to_string(), "host": host, "pid": pid, "since": since, "user": waiter.user(), "note": note })
}
