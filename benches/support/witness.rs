//! What `witness.c` has seen: when each command ran, and what is wrong with that.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::program::compile;

/// Builds the witness in `dir`. Static, since the dynamic loader's time would come before its first look at the clock.
pub(crate) fn build(dir: &Path) -> Result<PathBuf> {
    compile("witness", &["-static"], dir)
}

/// One run of the command, its times since boot.
pub(crate) struct Stay {
    pub(crate) label: usize,
    pub(crate) fence: u64,
    pub(crate) begin: Duration,
    pub(crate) end: Duration,
}

/// All that ran, in the order in which they began.
pub(crate) struct Log(Vec<Stay>);

impl Log {
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
        let stay = |line: &str| {
            let words: Vec<u64> = line.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
            let [label, fence, begin, end] = words[..] else { return None };
            let (begin, end) = (Duration::from_nanos(begin), Duration::from_nanos(end));
            Some(Stay { label: usize::try_from(label).ok()?, fence, begin, end })
        };
        let stays: Option<Vec<Stay>> = text.lines().map(stay).collect();
        let mut stays = stays.with_context(|| format!("{}: not a witness's log", file.display()))?;
        stays.sort_by_key(|stay| stay.begin);
        Ok(Self(stays))
    }

    pub(crate) fn stays(&self) -> &[Stay] {
        &self.0
    }

    /// From the end of each to the begin of the next, for those that do not overlap.
    pub(crate) fn hand_overs(&self) -> impl Iterator<Item = Duration> {
        self.pairs().filter_map(|(one, next)| next.begin.checked_sub(one.end))
    }

    /// How many began before one that had begun earlier had ended.
    pub(crate) fn overlaps(&self) -> usize {
        let mut latest = Duration::ZERO;
        let mut count = 0;
        for stay in &self.0 {
            count += usize::from(stay.begin < latest);
            latest = latest.max(stay.end);
        }
        count
    }

    /// How many have a fence that is not above that of the one before.
    pub(crate) fn fences_out_of_order(&self) -> usize {
        self.pairs().filter(|(one, next)| next.fence <= one.fence).count()
    }

    /// Hand-overs per second: from the first one's end to the last one's begin.
    #[expect(clippy::cast_precision_loss, reason = "nothing here is near 2^52")]
    pub(crate) fn rate(&self) -> Option<f64> {
        let (first, last) = (self.0.first()?, self.0.last()?);
        let span = last.begin.checked_sub(first.end)?;
        Some((self.0.len() - 1) as f64 / span.as_secs_f64())
    }

    fn pairs(&self) -> impl Iterator<Item = (&Stay, &Stay)> {
        self.0.iter().zip(self.0.iter().skip(1))
    }
}
