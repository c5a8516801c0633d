//! A sorted set: members in the order of their scores, equal scores in the order of the members'
//! bytes.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Members with their scores.
#[derive(Clone, Default, Debug)]
pub struct SortedSet {
    scores: BTreeMap<Vec<u8>, f64>,
    order: Vec<(f64, Vec<u8>)>,
}

impl SortedSet {
    /// Number of members.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether no member is left.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Returns the score of `member`.
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).copied()
    }

    /// Returns the rank of `member`, from 0.
    pub fn rank(&self, member: &[u8]) -> Option<usize> {
        self.place(self.score(member)?, member).ok()
    }

    /// Returns the scores and members in order.
    pub fn members(&self) -> &[(f64, Vec<u8>)] {
        &self.order
    }

    /// Adds `member`, or moves it to another score.
    pub(super) fn set(&mut self, member: &[u8], score: f64) {
        self.remove(member);
        let at = self.place(score, member).unwrap_or_else(|at| at);
        self.order.insert(at, (score, member.to_vec()));
        self.scores.insert(member.to_vec(), score);
    }

    /// Removes `member`; returns whether it was there.
    pub(super) fn remove(&mut self, member: &[u8]) -> bool {
        let Some(rank) = self.rank(member) else {
            return false;
        };
        self.order.remove(rank);
        self.scores.remove(member);
        true
    }

    fn place(&self, score: f64, member: &[u8]) -> Result<usize, usize> {
        self.order.binary_search_by(|(other, name)| {
            other
                .partial_cmp(&score)
                .unwrap_or(Ordering::Equal)
                .then_with(|| name.as_slice().cmp(member))
        })
    }
}
