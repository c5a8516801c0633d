//! `inspect --json`: the schema of docs/json.md, stable from 1.0 on. Fields may be added.

use serde_json::{Value, json};

use crate::lock::census::{Census, State};
use crate::lock::key::Key;
use crate::lock::occupant::OccupantKind;
use crate::lock::queue::Waiter;
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
    let who = census.holder().map(|occupant| &occupant.who);
    let fence = if let Some(OccupantKind::Holder(token, _)) = who { census.fence(*token) } else { None };
    json!({
        "key": key.typed(),
        "state": match census.state() {
            State::Held => "held",
            State::Free => "free",
            State::Unknown => "unknown",
        },
        "mode": "exclusive",
        "holder": who.and_then(holder),
        "holders": who.and_then(holder).into_iter().collect::<Vec<_>>(),
        "foreign": matches!(who, Some(OccupantKind::Foreign(_))),
        "what": if let Some(OccupantKind::Foreign(what)) = who { Some(what) } else { None },
        "ttl_ms": who.and_then(|_| census.ttl()).map(millis),
        "fence": fence.map(crate::lock::fence::Fence::get),
        "votes": {
            "held": census.leading().map_or(0, |(_, votes)| votes),
            "needed": census.quorum().needed(),
            "total": census.quorum().total(),
        },
        "nodes": (0..nodes.len()).map(|node| at_node(node, observations, &census, nodes)).collect::<Vec<_>>(),
        "waiters": census.queue().into_iter().map(|ticket| waiter(&ticket.waiter)).collect::<Vec<_>>(),
        "more_waiters": census.has_more_waiters(),
    })
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
        "acquired": !details.kept,
        "broken_by": details.broken,
    }))
}

fn at_node(node: usize, observations: &Observations, census: &Census, nodes: &Nodes) -> Value {
    let observation = observations.of_nodes[node].as_ref();
    let state = match (observation, census.agrees_with_leading(node)) {
        (None, _) => "unknown",
        (Some(_), None) => "free",
        (Some(_), Some(true)) => "held",
        (Some(_), Some(false)) => "other",
    };
    let ttl = observation.and_then(|observation| observation.occupant()).and_then(|occupant| occupant.ttl);
    let error = observations.faults.of(node).map(|fault| fault.why.as_str());
    json!({ "node": nodes[node].name(), "state": state, "ttl_ms": ttl.map(millis), "error": error })
}

fn waiter(waiter: &Waiter) -> Value {
    json!({ "token": waiter.id.to_string(), "host": waiter.host, "pid": waiter.pid, "since": waiter.since })
}
