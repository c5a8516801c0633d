//! Commands for keys of every type.

use std::borrow::Cow;

use super::super::refusal::Refusal;
use super::super::reply::{Outcome, Reply};
use super::super::state::State;
use super::{integer_at, word};

pub(super) fn kind(state: &mut State, args: &[&[u8]]) -> Outcome {
    let kind = state
        .keyspace
        .entry(args[1])
        .map_or("none", |entry| entry.value.kind());
    Ok(Reply::Status(Cow::Borrowed(kind.as_bytes())))
}

pub(super) fn exists(state: &mut State, args: &[&[u8]]) -> Outcome {
    Ok(Reply::count(
        args[1..]
            .iter()
            .filter(|key| state.keyspace.entry(key).is_some())
            .count(),
    ))
}

pub(super) fn del(state: &mut State, args: &[&[u8]]) -> Outcome {
    Ok(Reply::count(
        args[1..]
            .iter()
            .filter(|key| state.keyspace.remove(key))
            .count(),
    ))
}

pub(super) fn pttl(state: &mut State, args: &[&[u8]]) -> Outcome {
    let now = state.keyspace.now;
    Ok(Reply::Integer(match state.keyspace.entry(args[1]) {
        None => -2,
        Some(entry) => entry.expires.map_or(-1, |expires| expires - now),
    }))
}

pub(super) fn pexpire(state: &mut State, args: &[&[u8]]) -> Outcome {
    expire(state, args, state.keyspace.now, "pexpire")
}

pub(super) fn pexpireat(state: &mut State, args: &[&[u8]]) -> Outcome {
    expire(state, args, 0, "pexpireat")
}

fn expire(state: &mut State, args: &[&[u8]], base: i64, command: &str) -> Outcome {
    let [mut nx, mut xx, mut gt, mut lt] = [false; 4];
    for option in &args[3..] {
        match word(option).as_str() {
            "NX" => nx = true,
            "XX" => xx = true,
            "GT" => gt = true,
            "LT" => lt = true,
            _ => {
                return Err(Refusal::with(format!(
                    "ERR Unsupported option {}",
                    String::from_utf8_lossy(option)
                )));
            }
        }
    }
    if nx && (xx || gt || lt) {
        return Err(Refusal::new(
            "ERR NX and XX, GT or LT options at the same time are not compatible",
        ));
    }
    if gt && lt {
        return Err(Refusal::new(
            "ERR GT and LT options at the same time are not compatible",
        ));
    }
    let expires = integer_at(args, 2)?
        .checked_add(base)
        .ok_or_else(|| Refusal::with(format!("ERR invalid expire time in '{command}' command")))?;
    let now = state.keyspace.now;
    let Some(entry) = state.keyspace.entry(args[1]) else {
        return Ok(Reply::Integer(0));
    };
    let is_met = match entry.expires {
        None => !xx && !gt,
        Some(current) => !(nx || gt && expires <= current || lt && expires >= current),
    };
    if is_met {
        if expires <= now {
            state.keyspace.remove(args[1]);
        } else {
            entry.expires = Some(expires);
        }
    }
    Ok(Reply::flag(is_met))
}
