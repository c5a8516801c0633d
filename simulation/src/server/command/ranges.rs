//! Ranges of sorted sets, by rank or by score.

use super::super::number;
use super::super::refusal::Refusal;
use super::super::reply::{Outcome, Reply};
use super::super::state::State;
use super::{integer_at, word};

/// A range that is asked for.
#[derive(Default)]
struct Query {
    by_score: bool,
    reversed: bool,
    with_scores: bool,
    /// Members to leave out, and the most to return; all if negative.
    limit: Option<(i64, i64)>,
}

/// A bound of a range of scores.
struct Bound {
    score: f64,
    is_open: bool,
}

impl Bound {
    fn read(text: &[u8]) -> Result<Self, Refusal> {
        let (number, is_open) = text
            .strip_prefix(b"(")
            .map_or((text, false), |rest| (rest, true));
        let score = number::float(number).ok_or(Refusal::new("ERR min or max is not a float"))?;
        Ok(Self { score, is_open })
    }

    fn is_below(&self, score: f64) -> bool {
        if self.is_open {
            self.score < score
        } else {
            self.score <= score
        }
    }

    fn is_above(&self, score: f64) -> bool {
        if self.is_open {
            self.score > score
        } else {
            self.score >= score
        }
    }
}

pub(super) fn zrange(state: &mut State, args: &[&[u8]]) -> Outcome {
    range(
        state,
        args,
        Query::default(),
        &["WITHSCORES", "LIMIT", "REV", "BYSCORE"],
    )
}

pub(super) fn zrevrange(state: &mut State, args: &[&[u8]]) -> Outcome {
    range(
        state,
        args,
        Query {
            reversed: true,
            ..Query::default()
        },
        &["WITHSCORES"],
    )
}

pub(super) fn zrangebyscore(state: &mut State, args: &[&[u8]]) -> Outcome {
    range(
        state,
        args,
        Query {
            by_score: true,
            ..Query::default()
        },
        &["WITHSCORES", "LIMIT"],
    )
}

fn range(state: &mut State, args: &[&[u8]], mut query: Query, options: &[&str]) -> Outcome {
    let mut index = 4;
    while index < args.len() {
        let option = word(args[index]);
        match option.as_str() {
            other if !options.contains(&other) && (options.len() == 1 || other != "LIMIT") => {
                return Err(Refusal::SYNTAX);
            }
            "WITHSCORES" => query.with_scores = true,
            "REV" => query.reversed = true,
            "BYSCORE" => query.by_score = true,
            _ if args.len() - index > 2 => {
                query.limit = Some((integer_at(args, index + 1)?, integer_at(args, index + 2)?));
                index += 2;
            }
            _ => return Err(Refusal::SYNTAX),
        }
        index += 1;
    }
    if query.limit.is_some_and(|(_, most)| most != -1) && !query.by_score {
        let why =
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
        return Err(Refusal::new(why));
    }
    let found = if query.by_score {
        let (low, high) = if query.reversed {
            (args[3], args[2])
        } else {
            (args[2], args[3])
        };
        let (low, high) = (Bound::read(low)?, Bound::read(high)?);
        let (skipped, most) = query.limit.unwrap_or((0, -1));
        let members = state
            .keyspace
            .sorted_set(args[1])?
            .map_or(&[][..], |set| set.members());
        let within = members
            .iter()
            .filter(|(score, _)| low.is_below(*score) && high.is_above(*score));
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        if query.reversed {
            within.rev().skip(skipped).take(most).cloned().collect()
        } else {
            within.skip(skipped).take(most).cloned().collect::<Vec<_>>()
        }
    } else {
        let (first, last) = (integer_at(args, 2)?, integer_at(args, 3)?);
        let members = state
            .keyspace
            .sorted_set(args[1])?
            .map_or(&[][..], |set| set.members());
        let (skipped, count) = ranks(first, last, members.len());
        if query.reversed {
            members
                .iter()
                .rev()
                .skip(skipped)
                .take(count)
                .cloned()
                .collect()
        } else {
            members.iter().skip(skipped).take(count).cloned().collect()
        }
    };
    let found = found.into_iter().map(|(score, member)| (member, score));
    Ok(if query.with_scores {
        Reply::Scored(found.collect())
    } else {
        Reply::Array(found.map(|(member, _)| Reply::Bulk(member)).collect())
    })
}

/// Returns the first rank of a range, and the number of ranks in it. Negative ranks count from the
/// end.
fn ranks(first: i64, last: i64, length: usize) -> (usize, usize) {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let absolute = |rank: i64| {
        if rank < 0 {
            length.saturating_add(rank)
        } else {
            rank
        }
    };
    let (first, last) = (absolute(first).max(0), absolute(last).min(length - 1));
    let count = last.saturating_sub(first).saturating_add(1).max(0);
    (
        usize::try_from(first).unwrap_or_default(),
        usize::try_from(count).unwrap_or_default(),
    )
}
