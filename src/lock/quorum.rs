//! The number of nodes that must agree.

/// A majority of `total` nodes: ⌊N/2⌋ + 1, even N included.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Quorum {
    total: usize,
}

impl Quorum {
    /// Returns the majority of `total` nodes; `total` is at least one.
    pub fn of(total: usize) -> Self {
        Self {
            total: total.max(1),
        }
    }

    /// Returns N, the number of nodes.
    pub fn total(self) -> usize {
        self.total
    }

    /// Returns q, the number of nodes that must have granted.
    pub fn needed(self) -> usize {
        self.total / 2 + 1
    }

    /// Returns N − q, the number of votes that may be missing.
    pub fn tolerated(self) -> usize {
        self.total - self.needed()
    }

    /// Returns the q-th largest of `values`: what a majority reaches. `None` if there are fewer
    /// than q.
    pub fn reached_by<T: Ord>(self, values: impl IntoIterator<Item = T>) -> Option<T> {
        let mut values: Vec<T> = values.into_iter().collect();
        values.sort_unstable_by(|a, b| b.cmp(a));
        values.into_iter().nth(self.needed() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_majorities_always_share_a_node() {
        for total in 1..10 {
            let q = Quorum::of(total);
            assert!(2 * q.needed() > total && q.needed() <= total);
            assert_eq!(q.needed() + q.tolerated(), total);
        }
    }
}
