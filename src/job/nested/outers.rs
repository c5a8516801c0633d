//! The outer rlocks under whose locks one command runs, as one: it may run only while all of them let it.

use std::os::fd::RawFd;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::select_all;

use super::outer::{OuterRun, Update};
use crate::lock::fence::Fence;
use crate::lock::schedule::Terms;
use crate::lock::token::Token;

/// A connection for each lock, at least one. Several may lead to the same rlock.
pub struct OuterRuns {
    runs: Vec<OuterRun>,
    /// The lock whose outer rlock has ended or given it up.
    ended: Option<usize>,
}

impl OuterRuns {
    /// The connections of one run, in the order of its locks.
    pub fn new(runs: Vec<OuterRun>) -> Self {
        Self { runs, ended: None }
    }

    /// Returns the token and the fence of each lock.
    pub fn grants(&self) -> impl Iterator<Item = (Token, Fence)> {
        self.runs.iter().map(|run| (run.token(), run.fence()))
    }

    /// The shortest lease length.
    pub fn ttl(&self) -> Duration {
        self.runs.iter().map(OuterRun::ttl).min().unwrap_or_default()
    }

    /// The earliest of all terms.
    pub fn terms(&self) -> Terms {
        earliest(self.runs.iter().map(OuterRun::terms))
    }

    /// The lock whose outer rlock has ended or given it up, else the one whose command must be dead first.
    pub fn weakest(&self) -> usize {
        let first = || (0..self.runs.len()).min_by_key(|lock| self.runs[*lock].terms().kill_at);
        self.ended.or_else(first).unwrap_or_default()
    }

    /// The connections, which the guard keeps open until the command is dead.
    pub fn descriptors(&self) -> Vec<RawFd> {
        self.runs.iter().map(OuterRun::descriptor).collect()
    }

    /// Returns the next update: of the terms of all, or the end of one. Cancel safe.
    pub async fn next(&mut self) -> Update {
        if self.ended.is_some() {
            return std::future::pending().await;
        }
        let (update, lock, _) = select_all(self.runs.iter_mut().map(|run| Box::pin(run.next()))).await;
        match update {
            Update::Terms(_) => Update::Terms(self.terms()),
            Update::End => {
                self.ended = Some(lock);
                Update::End
            }
        }
    }

    /// Whether one of them has ended, or given its lock up, as far as it has said so.
    pub fn has_ended(&mut self) -> bool {
        while let Some(update) = self.next().now_or_never() {
            if update == Update::End {
                return true;
            }
        }
        self.ended.is_some()
    }
}

/// Returns the earliest moment of each kind.
fn earliest(terms: impl IntoIterator<Item = Terms>) -> Terms {
    let earlier = |one: Terms, other: Terms| Terms {
        signal_at: one.signal_at.min(other.signal_at),
        kill_at: one.kill_at.min(other.kill_at),
        ends: one.ends.min(other.ends),
    };
    let never = crate::lock::instant::Instant::NEVER;
    terms.into_iter().fold(Terms { signal_at: never, kill_at: never, ends: never }, earlier)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::instant::Instant;

    #[test]
    fn the_earliest_moment_of_each_kind_counts() {
        let at = Instant::from_nanos;
        let terms = |signal_at, kill_at| Terms { signal_at: at(signal_at), kill_at: at(kill_at), ends: at(kill_at) };
        assert_eq!(earliest([terms(3, 9), terms(5, 6)]), terms(3, 6));
        assert_eq!(earliest([terms(3, 9)]), terms(3, 9));
    }
}
