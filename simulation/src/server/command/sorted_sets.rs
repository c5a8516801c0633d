//! Commands for sorted sets. Their ranges are in `ranges`.

use super::super::keyspace::Value;
use super::super::number;
use super::super::refusal::Refusal;
use super::super::reply::{Outcome, Reply};
use super::super::state::State;
use super::word;

/// Options of ZADD.
#[derive(Clone, Copy, Default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "ZADD takes them in any combination"
)]
struct Rules {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
    counts_changes: bool,
    increments: bool,
}

impl Rules {
    /// Reads the options; returns the number of words that they take.
    fn read(args: &[&[u8]]) -> (Self, usize) {
        let mut rules = Self::default();
        for (count, option) in args.iter().enumerate() {
            match word(option).as_str() {
                "NX" => rules.nx = true,
                "XX" => rules.xx = true,
                "GT" => rules.gt = true,
                "LT" => rules.lt = true,
                "CH" => rules.counts_changes = true,
                "INCR" => rules.increments = true,
                _ => return (rules, count),
            }
        }
        (rules, args.len())
    }

    fn check(self, pairs: usize) -> Result<(), Refusal> {
        if self.nx && self.xx {
            return Err(Refusal::new(
                "ERR XX and NX options at the same time are not compatible",
            ));
        }
        if self.nx && (self.gt || self.lt) || self.gt && self.lt {
            return Err(Refusal::new(
                "ERR GT, LT, and/or NX options at the same time are not compatible",
            ));
        }
        if self.increments && pairs > 1 {
            return Err(Refusal::new(
                "ERR INCR option supports a single increment-element pair",
            ));
        }
        Ok(())
    }

    /// Returns the score that a member gets; none if it stays as it is.
    fn score(self, current: Option<f64>, given: f64) -> Result<Option<f64>, Refusal> {
        let Some(current) = current else {
            return Ok(Some(given).filter(|_| !self.xx));
        };
        let wanted = if self.increments {
            current + given
        } else {
            given
        };
        if wanted.is_nan() {
            return Err(Refusal::new("ERR resulting score is not a number (NaN)"));
        }
        let is_barred = self.nx || self.gt && wanted <= current || self.lt && wanted >= current;
        Ok(Some(wanted).filter(|_| !is_barred))
    }
}

pub(super) fn zadd(state: &mut State, args: &[&[u8]]) -> Outcome {
    let (rules, options) = Rules::read(&args[2..]);
    let pairs = &args[2 + options..];
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(Refusal::SYNTAX);
    }
    rules.check(pairs.len() / 2)?;
    let pairs: Option<Vec<_>> = pairs
        .chunks_exact(2)
        .map(|pair| number::float(pair[0]).map(|score| (score, pair[1])))
        .collect();
    let pairs = pairs.ok_or(Refusal::NOT_A_FLOAT)?;
    let nothing = if rules.increments {
        Reply::Null
    } else {
        Reply::Integer(0)
    };
    if state.keyspace.sorted_set(args[1])?.is_none() {
        if rules.xx {
            return Ok(nothing);
        }
        state.keyspace.create(
            args[1],
            Value::SortedSet(super::super::sorted_set::SortedSet::default()),
        );
    }
    let Some(set) = state.keyspace.sorted_set(args[1])? else {
        return Ok(nothing);
    };
    let (mut added, mut changed, mut last) = (0, 0, None);
    for (given, member) in pairs {
        let current = set.score(member);
        last = rules.score(current, given)?;
        let Some(score) = last else { continue };
        added += usize::from(current.is_none());
        changed += usize::from(current.is_some_and(|current| current.total_cmp(&score).is_ne()));
        if current != Some(score) {
            set.set(member, score);
        }
    }
    Ok(match last {
        _ if !rules.increments => {
            Reply::count(added + if rules.counts_changes { changed } else { 0 })
        }
        Some(score) => Reply::Double(score),
        None => Reply::Null,
    })
}

pub(super) fn zrem(state: &mut State, args: &[&[u8]]) -> Outcome {
    let Some(set) = state.keyspace.sorted_set(args[1])? else {
        return Ok(Reply::Integer(0));
    };
    let removed = args[2..].iter().filter(|member| set.remove(member)).count();
    if set.is_empty() {
        state.keyspace.remove(args[1]);
    }
    Ok(Reply::count(removed))
}

pub(super) fn zrank(state: &mut State, args: &[&[u8]]) -> Outcome {
    let set = state.keyspace.sorted_set(args[1])?;
    Ok(set
        .and_then(|set| set.rank(args[2]))
        .map_or(Reply::Null, Reply::count))
}

pub(super) fn zscore(state: &mut State, args: &[&[u8]]) -> Outcome {
    let set = state.keyspace.sorted_set(args[1])?;
    Ok(set
        .and_then(|set| set.score(args[2]))
        .map_or(Reply::Null, Reply::Double))
}

pub(super) fn zcard(state: &mut State, args: &[&[u8]]) -> Outcome {
    Ok(Reply::count(
        state
            .keyspace
            .sorted_set(args[1])?
            .map_or(0, |set| set.len()),
    ))
}
