//! The clients with `--supersede`, as seen from outside: of those that wait, only the last that came goes on.

use std::collections::BTreeMap;

use rlock::lock::instant::Instant;

use super::Violation;
use crate::kernel::ProcessId;

/// A client with `--supersede`.
#[derive(Clone, Copy, Debug)]
struct Came {
    /// Its number among them; `None` until it asks with one.
    number: Option<u64>,
    /// When it last asked.
    asked: Instant,
    /// Since when all nodes have heard of it: an attempt with its number is over.
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
        let came = self.came.entry(process).or_insert(Came { number, asked: now, stands: None });
        (came.number, came.asked) = (number.or(came.number), now);
    }

    /// An attempt of `process` is over.
    pub fn stands(&mut self, process: ProcessId, now: Instant) {
        if let Some(came) = self.came.get_mut(&process).filter(|came| came.number.is_some()) {
            came.stands.get_or_insert(now);
        }
    }

    /// `process` has the lock: no client that came later stood in line when it asked.
    pub fn granted(&mut self, process: ProcessId, now: Instant) -> Option<Violation> {
        let &Came { number, asked, .. } = self.came.get(&process)?;
        let Some(number) = number else {
            self.got_at_once = Some(now);
            return None;
        };
        let is_newer = |(_, other): &(&ProcessId, &Came)| {
            other.number.is_some_and(|other| other > number) && other.stands.is_some_and(|since| since < asked)
        };
        let (other, _) = self.came.iter().find(is_newer)?;
        Some(Violation::Superseded(format!("{process} runs, though {other} came later")))
    }

    /// `process` was superseded: another one came later.
    pub fn superseded(&mut self, process: ProcessId) -> Option<Violation> {
        let &Came { number, .. } = self.came.get(&process)?;
        let is_newer = |(id, other): (&ProcessId, &Came)| *id != process && other.number >= number;
        let is_known = self.got_at_once.is_some() || self.came.iter().any(is_newer);
        (!is_known).then(|| Violation::Superseded(format!("{process} was superseded, though none came later")))
    }
}
