//! Commands for strings.

use super::super::keyspace::{Entry, Value};
use super::super::number;
use super::super::refusal::Refusal;
use super::super::reply::{Outcome, Reply};
use super::super::state::State;
use super::{integer_at, word};

pub(super) fn get(state: &mut State, args: &[&[u8]]) -> Outcome {
    Ok(state
        .keyspace
        .string(args[1])?
        .map_or(Reply::Null, Reply::bulk))
}

pub(super) fn strlen(state: &mut State, args: &[&[u8]]) -> Outcome {
    Ok(Reply::count(
        state.keyspace.string(args[1])?.map_or(0, <[u8]>::len),
    ))
}

pub(super) fn getrange(state: &mut State, args: &[&[u8]]) -> Outcome {
    let (start, end) = (integer_at(args, 2)?, integer_at(args, 3)?);
    let text = state.keyspace.string(args[1])?.unwrap_or_default();
    if start < 0 && end < 0 && start > end {
        return Ok(Reply::bulk(*b""));
    }
    let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
    let absolute = |index: i64| {
        if index < 0 {
            (length + index).max(0)
        } else {
            index
        }
    };
    let (start, end) = (absolute(start), absolute(end).min(length - 1));
    let range = usize::try_from(start)
        .ok()
        .zip(usize::try_from(end).ok())
        .filter(|(start, end)| start <= end);
    Ok(Reply::bulk(
        range
            .and_then(|(start, end)| text.get(start..=end))
            .unwrap_or_default(),
    ))
}

/// When the key expires after a SET.
enum Expiry {
    None,
    Kept,
    /// A number of seconds or ms, as the option has it.
    Given {
        number: i64,
        unit: i64,
        is_absolute: bool,
    },
}

#[derive(Default, PartialEq)]
enum Condition {
    #[default]
    None,
    Absent,
    Present,
}

pub(super) fn set(state: &mut State, args: &[&[u8]]) -> Outcome {
    let (mut condition, mut expiry, mut returns_old) = (Condition::None, Expiry::None, false);
    let mut number: Option<&[u8]> = None;
    let mut options = args[3..].iter();
    while let Some(option) = options.next() {
        let option = word(option);
        let is_free = matches!(expiry, Expiry::None);
        match option.as_str() {
            "NX" if condition != Condition::Present => condition = Condition::Absent,
            "XX" if condition != Condition::Absent => condition = Condition::Present,
            "GET" => returns_old = true,
            "KEEPTTL" if !matches!(expiry, Expiry::Given { .. }) => expiry = Expiry::Kept,
            "EX" | "PX" | "EXAT" | "PXAT" if is_free && options.len() > 0 => {
                number = options.next().copied();
                let unit = if option.starts_with('E') { 1000 } else { 1 };
                expiry = Expiry::Given {
                    number: 0,
                    unit,
                    is_absolute: option.ends_with("AT"),
                };
            }
            _ => return Err(Refusal::SYNTAX),
        }
    }
    if let (Expiry::Given { number: parsed, .. }, Some(text)) = (&mut expiry, number) {
        *parsed = number::integer(text).ok_or(Refusal::NOT_AN_INTEGER)?;
    }
    let expires = match expiry {
        Expiry::None | Expiry::Kept => None,
        Expiry::Given {
            number,
            unit,
            is_absolute,
        } => {
            let base = if is_absolute { 0 } else { state.keyspace.now };
            let ms = number
                .checked_mul(unit)
                .filter(|_| number > 0)
                .and_then(|ms| ms.checked_add(base));
            Some(ms.ok_or(Refusal::new("ERR invalid expire time in 'set' command"))?)
        }
    };
    let old = if returns_old {
        state
            .keyspace
            .string(args[1])?
            .map_or(Reply::Null, Reply::bulk)
    } else {
        Reply::Null
    };
    let before = state.keyspace.entry(args[1]);
    let is_met = match condition {
        Condition::None => true,
        Condition::Absent => before.is_none(),
        Condition::Present => before.is_some(),
    };
    if is_met {
        let kept = before
            .and_then(|entry| entry.expires)
            .filter(|_| matches!(expiry, Expiry::Kept));
        let entry = Entry {
            value: Value::String(args[2].to_vec()),
            expires: expires.or(kept),
        };
        state.keyspace.entries.insert(args[1].to_vec(), entry);
    }
    Ok(if is_met && !returns_old {
        Reply::OK
    } else {
        old
    })
}
