//! Draws from a seed. Each process and each socket has a stream of its own, so that a story keeps
//! most of its course when shrinking takes another process out.

use std::time::Duration;

/// A stream of draws.
#[derive(Clone, Debug)]
pub struct Random(fastrand::Rng);

impl Random {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// The stream of one part of the world that `seed` makes.
    pub fn of(seed: u64, part: &str, number: u64) -> Self {
        // FNV-1a: any fixed mixing will do.
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let text = part.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, mix);
        Self::new(number.to_le_bytes().into_iter().fold(text, mix))
    }

    /// A number in [0, 1).
    pub fn share(&mut self) -> f64 {
        self.0.f64()
    }

    /// Whether an event of this probability happens.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.share() < probability
    }

    /// A whole number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0.u64(low..=high)
    }

    /// An index below `count`.
    pub fn below(&mut self, count: usize) -> usize {
        self.0.usize(..count)
    }

    /// A time from `low` to `high`, in whole microseconds.
    pub fn time(&mut self, low: Duration, high: Duration) -> Duration {
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.between(micros(low), micros(high).max(micros(low))))
    }

    /// One of `choices`, each as often as its weight says.
    pub fn weighted<T: Copy>(&mut self, choices: &[(u32, T)]) -> T {
        let total: u32 = choices.iter().map(|(weight, _)| weight).sum();
        let mut left = self.0.u32(..total);
        for (weight, choice) in choices {
            match left.checked_sub(*weight) {
                Some(rest) => left = rest,
                None => return *choice,
            }
        }
        choices[0].1
    }
}
