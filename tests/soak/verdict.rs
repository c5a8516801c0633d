//! The verdict: overlaps and fences that fell, by the witnesses' log.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::share::{Held, Share};
use crate::witness;

/// The log, judged.
#[derive(Default)]
pub(crate) struct Verdict {
    /// Number of commands that ran, of each client.
    pub(crate) grants: BTreeMap<String, usize>,
    pub(crate) overlaps: Vec<Overlap>,
    /// Begins of commands with a fence not above that of an earlier command that they exclude.
    pub(crate) falls: Vec<Duration>,
    /// From the start of an rlock to the beginning of its command.
    pub(crate) longest_wait: Duration,
    /// Time for which no command had a lock.
    pub(crate) longest_idle: Duration,
}

/// A time for which a command ran beside others that began later and that it excludes.
pub(crate) struct Overlap {
    pub(crate) at: Duration,
    pub(crate) length: Duration,
    /// Token of the command beside which others began.
    pub(crate) loser: String,
}

/// One command, by its own lines in the log.
struct Run {
    locks: Vec<Held>,
    begin: Duration,
    /// Its end, or its last tick if it was killed.
    end: Duration,
    /// Whether flock(2) told it of another command that should not run.
    beside: bool,
    token: String,
}

/// The time for which one command had one lock.
struct Stay {
    fence: Option<u64>,
    share: Share,
    begin: Duration,
    end: Duration,
    beside: bool,
    token: String,
}

impl Verdict {
    /// Reads what the witnesses wrote in `dir`.
    pub(crate) fn read(dir: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(dir.join("log")).context("no command ever ran")?;
        let mut runs: BTreeMap<(u32, &str), Run> = BTreeMap::new();
        let mut verdict = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [what, locks, at, pid, started, client, token] = words[..] else {
                bail!("a broken line: {line}")
            };
            let [at, started] = [at.parse()?, started.parse()?].map(Duration::from_nanos);
            let run = (pid.parse()?, locks);
            if what == "end" {
                runs.get_mut(&run)
                    .context("an end without a beginning")?
                    .end = at;
                continue;
            }
            let end = witness::last_tick(dir, run.0, locks).map_or(at, Duration::from_nanos);
            let locks = locks.split(',').map(str::parse).collect::<Result<_>>()?;
            runs.insert(
                run,
                Run {
                    locks,
                    begin: at,
                    end,
                    beside: what == "beside",
                    token: token.to_owned(),
                },
            );
            *verdict.grants.entry(client.to_owned()).or_default() += 1;
            verdict.longest_wait = verdict.longest_wait.max(at.saturating_sub(started));
        }
        let mut stays: BTreeMap<String, Vec<Stay>> = BTreeMap::new();
        for Run {
            locks,
            begin,
            end,
            beside,
            token,
        } in runs.into_values()
        {
            for Held { key, fence, share } in locks {
                stays.entry(key).or_default().push(Stay {
                    fence,
                    share,
                    begin,
                    end,
                    beside,
                    token: token.clone(),
                });
            }
        }
        for stays in stays.values_mut() {
            stays.sort_by_key(|stay| stay.begin);
            verdict.judge(stays);
        }
        Ok(verdict)
    }

    /// Judges the stays of one lock, in the order in which they began.
    fn judge(&mut self, stays: &[Stay]) {
        // The highest fence of each share so far.
        let mut highest: BTreeMap<Share, u64> = BTreeMap::new();
        let mut free_since: Option<Duration> = None;
        for stay in stays {
            let excluded = highest
                .iter()
                .filter(|(share, _)| share.excludes(stay.share))
                .map(|(_, fence)| *fence);
            if let Some(own) = stay.fence {
                if excluded.max().is_some_and(|fence| fence >= own) {
                    self.falls.push(stay.begin);
                }
                let fence = highest.entry(stay.share).or_default();
                *fence = own.max(*fence);
            }
            let idle = free_since.map_or(Duration::ZERO, |since| stay.begin.saturating_sub(since));
            self.longest_idle = self.longest_idle.max(idle);
            free_since = free_since.max(Some(stay.end));
        }
        self.overlaps.extend(overlaps(stays));
    }
}

/// Returns one overlap for each command beside which others began, however many.
fn overlaps(stays: &[Stay]) -> impl Iterator<Item = Overlap> {
    // By the number of the command beside which others began; their own, where only flock(2) saw
    // it.
    let mut found: BTreeMap<usize, Overlap> = BTreeMap::new();
    let mut running: Vec<usize> = Vec::new();
    for (number, stay) in stays.iter().enumerate() {
        running.retain(|other| stays[*other].end > stay.begin);
        let excluded = running
            .iter()
            .copied()
            .filter(|other| stays[*other].share.excludes(stay.share));
        let longest = excluded.max_by_key(|other| stays[*other].end);
        if longest.is_some() || stay.beside {
            let loser = longest.unwrap_or(number);
            let until = longest.map_or(stay.begin, |loser| stays[loser].end.min(stay.end));
            let overlap = found.entry(loser).or_insert(Overlap {
                at: stay.begin,
                length: Duration::ZERO,
                loser: stays[loser].token.clone(),
            });
            overlap.length = overlap.length.max(until.saturating_sub(overlap.at));
        }
        running.push(number);
    }
    found.into_values()
}
