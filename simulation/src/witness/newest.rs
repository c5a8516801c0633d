//! The clients with `--supersede`, as seen from outside: of those that wait, only the last that
//! came goes on.

use std::collections::{BTreeMap, BTreeSet};

use rlock::lock::instant::Instant;

use super::Violation;
use crate::kernel::ProcessId;

/// A client with `--supersede`.
#[derive(Clone, Debug)]
struct Came {
    /// Its number among them; `None` until it asks with one.
    number: Option<u64>,
    /// When it last asked.
    asked: Instant,
    /// The nodes that have heard of it.
    heard: BTreeSet<usize>,
    /// Since when a majority has: each majority that an older one may get has a node that knows
    /// better.
    stands: Option<Instant>,
}

/// The clients with `--supersede` of one lock.
#[derive(Debug, Default)]
pub struct Newest {
    came: BTreeMap<ProcessId, Came>,
    /// When a client last got the lock at once. Its number is not known.
    got_at_once: Option<Instant>,
}

impl Newest {
    /// `process` asks with this number.
    pub fn asks(&mut self, process: ProcessId, number: Option<u64>, now: Instant) {
        let came = self.came.entry(process).or_insert(Came {
            number,
            asked: now,
            heard: BTreeSet::new(),
            stands: None,
        });
        (came.number, came.asked) = (number.or(came.number), now);
    }

    /// `node` takes the client with this number for the newest one. `needed`: the number of nodes
    /// that are a majority.
    pub fn is_known(&mut self, number: u64, node: usize, needed: usize, now: Instant) {
        for came in self
            .came
            .values_mut()
            .filter(|came| came.number == Some(number))
        {
            came.heard.insert(node);
            if came.heard.len() >= needed {
                came.stands.get_or_insert(now);
            }
        }
    }

    /// `process` has the lock: no client that came later stood in line when it asked.
    pub fn granted(&mut self, process: ProcessId, now: Instant) -> Option<Violation> {
        let (number, asked) = self
            .came
            .get(&process)
            .map(|came| (came.number, came.asked))?;
        let Some(number) = number else {
            self.got_at_once = Some(now);
            return None;
        };
        let is_newer = |(_, other): &(&ProcessId, &Came)| {
            other.number.is_some_and(|other| other > number)
                && other.stands.is_some_and(|since| since < asked)
        };
        let (other, _) = self.came.iter().find(is_newer)?;
        Some(Violation::Superseded(format!(
            "{process} runs, though {other} came later"
        )))
    }

    /// `process` was superseded: another one came later.
    pub fn superseded(&mut self, process: ProcessId) -> Option<Violation> {
        let number = self.came.get(&process)?.number;
        let is_newer = |(id, other): (&ProcessId, &Came)| *id != process && other.number >= number;
        let is_known = self.got_at_once.is_some() || self.came.iter().any(is_newer);
        (!is_known).then(|| {
            Violation::Superseded(format!("{process} was superseded, though none came later"))
        })
    }
}
