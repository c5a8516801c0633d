//! The log of `witness.c`: when each command ran, and whether two ran at once.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::program::{compile, source};

/// Builds the witness in `dir`. It is static and has its own entry: no loader and no C library
/// starts before its first look at the clock.
pub fn build(dir: &Path) -> Result<PathBuf> {
    compile(&source("witness.c"), &["-static", "-Wl,-e,first"], dir)
}

/// One run of the command, its times since boot.
pub struct Stay {
    /// The label that the command was given.
    pub label: usize,
    /// Its `RLOCK_FENCE`, or 0.
    pub fence: u64,
    /// Its first look at the clock.
    pub begin: Duration,
    /// Its last look at the clock.
    pub end: Duration,
}

/// All runs, in the order in which they began.
pub struct Log(Vec<Stay>);

impl Log {
    /// Reads the log.
    pub fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
        let stay = |line: &str| {
            let words: Vec<u64> = line
                .split(' ')
                .map(str::parse)
                .collect::<Result<_, _>>()
                .ok()?;
            let [label, fence, begin, end] = words[..] else {
                return None;
            };
            let (begin, end) = (Duration::from_nanos(begin), Duration::from_nanos(end));
            Some(Stay {
                label: usize::try_from(label).ok()?,
                fence,
                begin,
                end,
            })
        };
        let stays: Option<Vec<Stay>> = text.lines().map(stay).collect();
        let mut stays =
            stays.with_context(|| format!("{}: not a witness's log", file.display()))?;
        stays.sort_by_key(|stay| stay.begin);
        Ok(Self(stays))
    }

    /// Returns the runs.
    pub fn stays(&self) -> &[Stay] {
        &self.0
    }

    /// Returns the times from the end of each run to the begin of the next, for those that do not
    /// overlap.
    pub fn hand_overs(&self) -> impl Iterator<Item = Duration> {
        self.pairs()
            .filter_map(|(one, next)| next.begin.checked_sub(one.end))
    }

    /// Returns the number of runs that began before an earlier one had ended.
    pub fn overlaps(&self) -> usize {
        let mut latest = Duration::ZERO;
        let mut count = 0;
        for stay in &self.0 {
            count += usize::from(stay.begin < latest);
            latest = latest.max(stay.end);
        }
        count
    }

    /// Returns the number of runs with a fence that is not above that of the run before.
    pub fn fences_out_of_order(&self) -> usize {
        self.pairs()
            .filter(|(one, next)| next.fence <= one.fence)
            .count()
    }

    /// Returns the hand-overs per second, from the first run's end to the last one's begin.
    #[expect(clippy::cast_precision_loss, reason = "nothing here is near 2^52")]
    pub fn rate(&self) -> Option<f64> {
        let (first, last) = (self.0.first()?, self.0.last()?);
        let span = last.begin.checked_sub(first.end)?;
        Some((self.0.len() - 1) as f64 / span.as_secs_f64())
    }

    fn pairs(&self) -> impl Iterator<Item = (&Stay, &Stay)> {
        self.0.iter().zip(self.0.iter().skip(1))
    }
}
