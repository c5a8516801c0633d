//! The fence: a number that strictly increases from holder to holder.
//!
//! It is Kleppmann's fencing token ("How to do distributed locking", 2016). Storage that remembers
//! the highest fence it has seen can refuse a holder that was paused past its lease. No lock
//! service can.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// A fence, below 2⁶³ as the numbers of every store are. A store may end earlier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fence(u64);

impl Fence {
    /// One above the largest fence.
    pub const LIMIT: u64 = 1 << 63;

    /// The least fence.
    pub const FIRST: Self = Self(1);

    /// Returns the fence, or `None` for zero and for numbers that no counter reaches.
    pub fn new(number: u64) -> Option<Self> {
        (1..Self::LIMIT).contains(&number).then_some(Self(number))
    }

    /// Returns the number that the command sees as `RLOCK_FENCE`.
    pub fn get(self) -> u64 {
        self.0
    }

    /// Returns the next fence, by the rule of the acquire script (docs/redis.md, The fence): above
    /// every earlier one, and not below the hint.
    pub fn after(previous: u64, hint: u64) -> Option<Self> {
        Self::new(previous.checked_add(1)?.max(hint))
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Returns the unix time in microseconds: a lost counter starts again there, above all numbers that
/// it gave out before.
pub fn hint(now: SystemTime) -> u64 {
    now.duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|span| u64::try_from(span.as_micros()).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_fence_is_above_the_last_and_not_below_the_hint(previous in 0u64..Fence::LIMIT, hint in 0u64..Fence::LIMIT) {
            let fence = Fence::after(previous, hint);
            prop_assert!(fence.is_none_or(|fence| fence.get() > previous && fence.get() >= hint));
            prop_assert_eq!(fence.is_none(), previous + 1 == Fence::LIMIT);
        }
    }

    #[test]
    fn a_counter_at_the_limit_is_refused_not_wrapped() {
        assert_eq!(Fence::after(u64::MAX, 0), None);
        assert_eq!(Fence::after(Fence::LIMIT - 1, 0), None);
        assert_eq!(Fence::after(0, 0), Fence::new(1));
    }
}
