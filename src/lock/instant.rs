//! A point on the boot-time clock (`CLOCK_BOOTTIME`), the only clock by which leases are measured.
//!
//! `std::time::Instant` stops while the machine is suspended (`CLOCK_MONOTONIC`,
//! `clock_gettime(2)`); a lease on a server does not. Hence a type of our own, so that the two
//! cannot be mixed up.

use std::ops::Add;
use std::time::Duration;

/// Nanoseconds since boot, suspended time included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Instant(u64);

impl Instant {
    /// A point that never comes: the end of a tenure that no time limits.
    pub const NEVER: Self = Self(u64::MAX);

    /// The point `nanos` nanoseconds after boot.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since boot.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This point, `span` earlier; [`Instant::NEVER`] stays never.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        if self == Self::NEVER {
            self
        } else {
            Self(self.0.saturating_sub(nanos(span)))
        }
    }

    /// Time from `earlier` to this point, zero if it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
