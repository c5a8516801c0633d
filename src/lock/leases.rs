//! Several leases as one: the locks of a run are held together, and its command may run only while all of them last.

use super::instant::Instant;
use super::lease::Loss;

/// One lock's part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// Its lease, or the tombstone in its place, lasts until then.
    Until(Instant),
    /// It is lost, and no shield is known yet.
    Lost,
    /// It is lost, and a shield lasts until then.
    Shielded(Instant),
}

/// The leases of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Leases {
    parts: Vec<Part>,
    /// The lock that was lost first.
    lost: Option<usize>,
}

impl Leases {
    /// Adds a lease that lasts until `end`.
    pub fn push(&mut self, end: Instant) {
        self.parts.push(Part::Until(end));
    }

    /// Records that the lease of `lock` lasts until `end`. Returns D of all: the smallest.
    pub fn extended(&mut self, lock: usize, end: Instant) -> Instant {
        self.parts[lock] = Part::Until(end);
        self.deadline()
    }

    /// Records that `lock` is lost. A tombstone lasts as long as the lease would have.
    pub fn lost(&mut self, lock: usize, loss: Loss) {
        self.lost = self.lost.or(Some(lock));
        if loss != Loss::Broken {
            self.parts[lock] = Part::Lost;
        }
    }

    /// Records that a shield of `lock` lasts until `end`. Returns the end of all, if each lost lock has a shield.
    pub fn shielded(&mut self, lock: usize, end: Instant) -> Option<Instant> {
        self.parts[lock] = Part::Shielded(end);
        (!self.parts.contains(&Part::Lost)).then(|| self.deadline())
    }

    /// Returns the smallest end of a lease or shield. A lost lock without a shield has none: its loss bounds the command's time.
    pub fn deadline(&self) -> Instant {
        self.ends().map(|(_, end)| end).min().unwrap_or(Instant::NEVER)
    }

    /// Returns the lock that was lost first, else the one whose lease ends first.
    pub fn weakest(&self) -> usize {
        self.lost.or_else(|| self.ends().min_by_key(|(_, end)| *end).map(|(lock, _)| lock)).unwrap_or_default()
    }

    fn ends(&self) -> impl Iterator<Item = (usize, Instant)> {
        self.parts.iter().enumerate().filter_map(|(lock, part)| match part {
            Part::Until(end) | Part::Shielded(end) => Some((lock, *end)),
            Part::Lost => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn leases(ends: &[u64]) -> Leases {
        let mut leases = Leases::default();
        for end in ends {
            leases.push(at(*end));
        }
        leases
    }

    #[test]
    fn the_lease_that_ends_first_is_the_end_of_all() {
        let mut leases = leases(&[30, 20, 25]);
        assert_eq!((leases.deadline(), leases.weakest()), (at(20), 1));
        assert_eq!(leases.extended(1, at(40)), at(25));
        assert_eq!(leases.extended(0, at(50)), at(25), "a renewal of one does not extend the others");
        assert_eq!(leases.weakest(), 2);
        assert_eq!(leases.extended(2, at(10)), at(10), "a node that was lost shortens it");
    }

    #[test]
    fn a_shield_counts_once_every_lost_lock_has_one() {
        let mut leases = leases(&[30, 20, 25]);
        leases.lost(1, Loss::Absent);
        assert_eq!((leases.deadline(), leases.weakest()), (at(25), 1));
        leases.lost(2, Loss::Absent);
        assert_eq!(leases.shielded(1, at(40)), None);
        assert_eq!(leases.extended(0, at(60)), at(40), "the shield goes on counting");
        assert_eq!(leases.shielded(2, at(50)), Some(at(40)));
        assert_eq!(leases.shielded(1, at(70)), Some(at(50)));
    }

    #[test]
    fn a_broken_lock_lasts_as_long_as_its_tombstone() {
        let mut leases = leases(&[30, 20]);
        leases.lost(0, Loss::Broken);
        assert_eq!((leases.deadline(), leases.weakest()), (at(20), 0), "the broken one, not the one that ends first");
        assert_eq!(leases.extended(1, at(25)), at(25));
    }
}
