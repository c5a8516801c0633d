//! Commands for hashes. The fields keep the order in which they came, as in Redis' small hashes.

use super::super::keyspace::Value;
use super::super::refusal::Refusal;
use super::super::reply::{Outcome, Reply};
use super::super::state::State;

type Fields = [(Vec<u8>, Vec<u8>)];

fn find(fields: &Fields, name: &[u8]) -> Option<usize> {
    fields.iter().position(|(field, _)| field == name)
}

fn value(fields: Option<&Fields>, name: &[u8]) -> Reply {
    let found = fields.and_then(|fields| find(fields, name).map(|at| fields[at].1.as_slice()));
    found.map_or(Reply::Null, Reply::bulk)
}

fn fields<'a>(state: &'a mut State, key: &[u8]) -> Result<Option<&'a Fields>, Refusal> {
    Ok(state.keyspace.hash(key)?.map(|fields| fields.as_slice()))
}

pub(super) fn hset(state: &mut State, args: &[&[u8]]) -> Outcome {
    if !args.len().is_multiple_of(2) {
        return Err(Refusal::wrong_arity("hset"));
    }
    if state.keyspace.hash(args[1])?.is_none() {
        state.keyspace.create(args[1], Value::Hash(Vec::new()));
    }
    let mut added = 0;
    if let Some(fields) = state.keyspace.hash(args[1])? {
        for pair in args[2..].chunks_exact(2) {
            if let Some(at) = find(fields, pair[0]) {
                fields[at].1 = pair[1].to_vec();
            } else {
                fields.push((pair[0].to_vec(), pair[1].to_vec()));
                added += 1;
            }
        }
    }
    Ok(Reply::count(added))
}

pub(super) fn hget(state: &mut State, args: &[&[u8]]) -> Outcome {
    Ok(value(fields(state, args[1])?, args[2]))
}

pub(super) fn hstrlen(state: &mut State, args: &[&[u8]]) -> Outcome {
    let fields = fields(state, args[1])?;
    Ok(Reply::count(
        fields
            .and_then(|fields| find(fields, args[2]).map(|at| fields[at].1.len()))
            .unwrap_or_default(),
    ))
}

pub(super) fn hmget(state: &mut State, args: &[&[u8]]) -> Outcome {
    let fields = fields(state, args[1])?;
    Ok(Reply::Array(
        args[2..].iter().map(|name| value(fields, name)).collect(),
    ))
}

pub(super) fn hdel(state: &mut State, args: &[&[u8]]) -> Outcome {
    let Some(fields) = state.keyspace.hash(args[1])? else {
        return Ok(Reply::Integer(0));
    };
    let before = fields.len();
    fields.retain(|(field, _)| !args[2..].contains(&field.as_slice()));
    let (removed, is_empty) = (before - fields.len(), fields.is_empty());
    if is_empty {
        state.keyspace.remove(args[1]);
    }
    Ok(Reply::count(removed))
}

pub(super) fn hlen(state: &mut State, args: &[&[u8]]) -> Outcome {
    Ok(Reply::count(fields(state, args[1])?.map_or(0, <[_]>::len)))
}

pub(super) fn hexists(state: &mut State, args: &[&[u8]]) -> Outcome {
    Ok(Reply::flag(
        fields(state, args[1])?.is_some_and(|fields| find(fields, args[2]).is_some()),
    ))
}

pub(super) fn hgetall(state: &mut State, args: &[&[u8]]) -> Outcome {
    let pair = |(field, value): &(Vec<u8>, Vec<u8>)| {
        (Reply::bulk(field.as_slice()), Reply::bulk(value.as_slice()))
    };
    Ok(Reply::Map(
        fields(state, args[1])?
            .unwrap_or_default()
            .iter()
            .map(pair)
            .collect(),
    ))
}
