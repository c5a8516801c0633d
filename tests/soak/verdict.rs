//! The verdict: overlaps and fences that fell, by the witnesses' log.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::witness;

/// The log, judged.
pub(crate) struct Verdict {
    pub(crate) grants: usize,
    pub(crate) overlaps: Vec<Overlap>,
    /// Begins of commands with a fence not above the last.
    pub(crate) falls: Vec<Duration>,
    /// From the start of an rlock to the beginning of its command.
    pub(crate) longest_wait: Duration,
    /// From the end of a command to the beginning of the next.
    pub(crate) longest_idle: Duration,
}

/// A time for which a command ran beside others that began later.
pub(crate) struct Overlap {
    pub(crate) at: Duration,
    pub(crate) length: Duration,
}

/// One command, by its own lines in the log.
struct Stay {
    fence: u64,
    begin: Duration,
    /// Its end, or its last tick if it was killed.
    end: Duration,
    /// Whether another command held the flock(2) when it began.
    beside: bool,
}

impl Verdict {
    /// Reads what the witnesses wrote in `dir`.
    pub(crate) fn read(dir: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(dir.join("log")).context("no command ever ran")?;
        let mut stays: BTreeMap<(u64, u32), Stay> = BTreeMap::new();
        let mut longest_wait = Duration::ZERO;
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [what, fence, at, pid, started] = words[..] else { bail!("a broken line: {line}") };
            let (fence, pid) = (fence.parse()?, pid.parse()?);
            let [at, started] = [at.parse()?, started.parse()?].map(Duration::from_nanos);
            if what == "end" {
                stays.get_mut(&(fence, pid)).context("an end without a beginning")?.end = at;
                continue;
            }
            let end = witness::last_tick(dir, fence, pid).map_or(at, Duration::from_nanos);
            stays.insert((fence, pid), Stay { fence, begin: at, end, beside: what == "beside" });
            longest_wait = longest_wait.max(at.saturating_sub(started));
        }
        let mut stays: Vec<Stay> = stays.into_values().collect();
        stays.sort_by_key(|stay| stay.begin);
        let pairs = || stays.iter().zip(stays.iter().skip(1));
        let falls = pairs().filter(|(stay, next)| stay.fence >= next.fence).map(|(_, next)| next.begin).collect();
        let idle = pairs().map(|(stay, next)| next.begin.saturating_sub(stay.end)).max();
        let longest_idle = idle.unwrap_or_default();
        Ok(Self { grants: stays.len(), overlaps: overlaps(&stays), falls, longest_wait, longest_idle })
    }
}

/// Returns one overlap for each command beside which others began, however many.
fn overlaps(stays: &[Stay]) -> Vec<Overlap> {
    let mut found: Vec<Overlap> = Vec::new();
    // The command that runs longest so far, and the one that did so at the last overlap.
    let (mut last, mut loser) = (None, None);
    for (number, stay) in stays.iter().enumerate() {
        let latest = last.map_or(Duration::ZERO, |last: usize| stays[last].end);
        if stay.beside || stay.begin < latest {
            let until = latest.min(stay.end);
            match found.last_mut().filter(|_| loser == last) {
                Some(overlap) => overlap.length = overlap.length.max(until.saturating_sub(overlap.at)),
                None => found.push(Overlap { at: stay.begin, length: until.saturating_sub(stay.begin) }),
            }
            loser = last;
        }
        if stay.end > latest {
            last = Some(number);
        }
    }
    found
}
