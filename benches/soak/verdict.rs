//! What the witnesses' log says.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};

use crate::contender::Ending;

/// The log, judged.
pub(crate) struct Verdict {
    grants: usize,
    pub(crate) overlaps: usize,
    falling_fences: usize,
    longest_wait: f64,
    /// From the end of a command to the beginning of the next, in seconds.
    longest_idle: f64,
    endings: BTreeMap<Ending, usize>,
}

/// One command, as it wrote itself down.
struct Stay {
    fence: u64,
    begin: u64,
    /// Nothing, if it was killed.
    end: Option<u64>,
}

impl Verdict {
    pub(crate) fn read(log: &Path, endings: &[Ending]) -> Result<Self> {
        let text = std::fs::read_to_string(log).context("nobody was ever let in")?;
        let mut stays: BTreeMap<(u64, u64), Stay> = BTreeMap::new();
        let (mut overlaps, mut longest_wait) = (0, 0.0_f64);
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [what, fence, at, pid, started] = words[..] else { anyhow::bail!("a broken line: {line}") };
            let (fence, at, pid): (u64, u64, u64) = (fence.parse()?, at.parse()?, pid.parse()?);
            let wait = seconds(started.parse()?, at);
            match what {
                "begin" => {
                    stays.insert((fence, pid), Stay { fence, begin: at, end: None });
                    longest_wait = longest_wait.max(wait);
                }
                "end" => stays.get_mut(&(fence, pid)).context("an end without a beginning")?.end = Some(at),
                _ => overlaps += 1,
            }
        }
        let mut stays: Vec<Stay> = stays.into_values().collect();
        stays.sort_by_key(|stay| stay.begin);
        let pairs = || stays.iter().zip(stays.iter().skip(1));
        overlaps += pairs().filter(|(stay, next)| stay.end.is_some_and(|end| end > next.begin)).count();
        let falling_fences = pairs().filter(|(stay, next)| stay.fence >= next.fence).count();
        let longest_idle = pairs().filter_map(|(stay, next)| Some(seconds(stay.end?, next.begin))).fold(0.0, f64::max);
        let mut count = BTreeMap::new();
        for ending in endings {
            *count.entry(*ending).or_default() += 1;
        }
        Ok(Self { grants: stays.len(), overlaps, falling_fences, longest_wait, longest_idle, endings: count })
    }

    /// Whether it is as promised.
    pub(crate) fn is_fine(&self) -> bool {
        self.overlaps == 0 && self.falling_fences == 0 && self.grants > 0
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn seconds(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1e9
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { grants, overlaps, falling_fences, longest_wait, longest_idle, .. } = self;
        writeln!(f, "  {grants} grants, {overlaps} overlaps, {falling_fences} fences not above the last")?;
        writeln!(
            f,
            "  longest time from start to command {longest_wait:.1} s, without any command {longest_idle:.1} s"
        )?;
        let ended = |(ending, count): (&Ending, &usize)| match ending {
            0.. => format!("{ending}: {count}"),
            _ => format!("signal {}: {count}", -ending),
        };
        write!(f, "  exit codes: {}", self.endings.iter().map(ended).collect::<Vec<_>>().join(", "))
    }
}
