//! The report on a part of the soak, with the complaints about it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::contender::Ending;
use crate::fault::{Event, Fault};
use crate::verdict::{Overlap, Verdict};
use crate::{Nodes, Overlaps, Plan, TTL};
use testkit::measure::table::{aligned, millis};

/// Longest time without a fault.
const LONGEST_GAP: Duration = Duration::from_secs(15);

/// Most seconds per loss of a key beside a server that is away, or was.
const SECONDS_A_LOSS: u64 = 30;

/// Ends of an rlock that are allowed: 0, no majority, busy until the end of its wait, lost, killed
/// by the soak.
const ENDINGS: &[Ending] = &[0, 69, 75, 79, -9];

/// Ends of a break that are allowed: broken, released meanwhile, a foreign client's by then, no
/// majority.
const BREAKS: &[Ending] = &[0, 1, 64, 69];

/// Time from the stop of a leader in which it goes on, and ends leases late.
const LEADER_STOPPED: Duration = Duration::from_secs(8);

/// Most seconds per command of a foreign client.
const SECONDS_A_FOREIGN: u64 = 20;

/// The findings of a part.
pub(crate) struct Report<'a> {
    pub(crate) plan: &'a Plan,
    /// Begin of the faults.
    pub(crate) begin: Duration,
    pub(crate) length: Duration,
    pub(crate) events: &'a [Event],
    pub(crate) verdict: Verdict,
    /// Name of the foreign clients.
    pub(crate) foreign: Option<&'static str>,
    pub(crate) rlocks: Vec<Ending>,
    pub(crate) breaks: Vec<Ending>,
    pub(crate) keys: Vec<String>,
    pub(crate) processes: Vec<String>,
}

/// Effects of one kind of fault, up to the next fault.
#[derive(Default)]
struct Row {
    times: usize,
    overlaps: usize,
    longest: Duration,
    falls: usize,
}

impl Report<'_> {
    /// Returns what is wrong.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut complain = |wrong: bool, what: String| {
            if wrong {
                found.push(what);
            }
        };
        let overlaps = &self.verdict.overlaps;
        match self.plan.overlaps {
            Overlaps::None => {
                let unexcused = overlaps.iter().filter(|overlap| {
                    let is_excused = self.was_taken_away(overlap) || self.was_ended_late(overlap);
                    !is_excused || overlap.length > TTL
                });
                let count = unexcused.count();
                complain(count > 0, format!("{count} overlaps"));
            }
            Overlaps::WithinALease => {
                complain(
                    self.longest() > TTL,
                    "a command ran on beside another for longer than a lease".to_owned(),
                );
            }
            Overlaps::Some => complain(
                overlaps.is_empty(),
                "the planted bug was not seen".to_owned(),
            ),
        }
        // A server that has lost its fence counter goes by its clock, which is set back here.
        let falls = if matches!(self.plan.overlaps, Overlaps::None) {
            self.verdict.falls.len()
        } else {
            0
        };
        complain(falls > 0, format!("{falls} fences not above the last"));
        for (program, endings, usual) in [
            ("rlock", &self.rlocks, ENDINGS),
            ("rlock break", &self.breaks, BREAKS),
        ] {
            let odd = counted(endings.iter().filter(|ending| !usual.contains(ending)));
            complain(!odd.is_empty(), format!("{program} ended oddly: {odd}"));
        }
        complain(
            !self.keys.is_empty(),
            format!("keys left: {}", self.keys.join(" ")),
        );
        complain(
            !self.processes.is_empty(),
            format!("processes left: {}", self.processes.join(" ")),
        );
        if let Some(name) = self.foreign {
            let times = self.verdict.grants.get(name).copied().unwrap_or_default();
            let enough = self.length.as_secs() / SECONDS_A_FOREIGN;
            complain(
                (times as u64) < enough,
                format!("{name} had the lock only {times} times"),
            );
        }
        let gap = self.longest_gap();
        complain(
            gap > LONGEST_GAP,
            format!("no fault was injected for {} s", gap.as_secs()),
        );
        let enough = self.length.as_secs() / self.plan.seconds_a_fault;
        let times = self.events.len();
        complain(
            (times as u64) < enough,
            format!("only {times} faults in {} s", self.length.as_secs()),
        );
        if self.plan.faults().any(|fault| fault == Fault::Away) {
            let is_loss = |fault| matches!(fault, Fault::LoseMeanwhile | Fault::LoseThereafter);
            let times = self
                .events
                .iter()
                .filter(|event| is_loss(event.fault))
                .count();
            let enough = self.length.as_secs() / SECONDS_A_LOSS;
            complain(
                (times as u64) < enough,
                format!("only {times} keys lost in {} s", self.length.as_secs()),
            );
        }
        found
    }

    /// Whether the lock was taken from the command beside which others ran, without a warning.
    fn was_taken_away(&self, overlap: &Overlap) -> bool {
        let mut taken = self
            .events
            .iter()
            .filter(|event| event.fault == Fault::Revoke);
        taken.any(|event| event.target == overlap.loser)
    }

    /// Whether a leader of etcd was stopped shortly before. When it goes on, it may end leases that live
    /// (etcd issue 15247, before 3.4.31), and an rlock that is stopped or cut off then does not hear of
    /// it.
    fn was_ended_late(&self, overlap: &Overlap) -> bool {
        let since = overlap.at.saturating_sub(LEADER_STOPPED);
        self.events.iter().any(|event| {
            event.fault == Fault::StopMember
                && event.target.ends_with("the leader")
                && (since..=overlap.at).contains(&event.at)
        }) && matches!(self.plan.nodes, Nodes::Etcd)
    }

    fn longest(&self) -> Duration {
        self.verdict
            .overlaps
            .iter()
            .map(|overlap| overlap.length)
            .max()
            .unwrap_or_default()
    }

    /// Returns the longest time between two faults, or between one of them and the begin or the
    /// end.
    fn longest_gap(&self) -> Duration {
        let at = self.events.iter().map(|event| event.at);
        let ends = std::iter::once(self.begin + self.length);
        let mut last = self.begin;
        at.chain(ends)
            .map(|at| at.saturating_sub(std::mem::replace(&mut last, at)))
            .max()
            .unwrap_or_default()
    }

    /// Returns a row for each kind of fault. Each overlap and each fence that fell counts for the
    /// last fault before it.
    fn rows(&self) -> BTreeMap<Fault, Row> {
        let mut rows: BTreeMap<Fault, Row> = BTreeMap::new();
        for event in self.events {
            rows.entry(event.fault).or_default().times += 1;
        }
        let cause = |at: Duration| {
            self.events
                .iter()
                .rev()
                .find(|event| event.at <= at)
                .map(|event| event.fault)
        };
        for overlap in &self.verdict.overlaps {
            if let Some(fault) = cause(overlap.at) {
                let row = rows.entry(fault).or_default();
                row.overlaps += 1;
                row.longest = row.longest.max(overlap.length);
            }
        }
        for fault in self.verdict.falls.iter().filter_map(|at| cause(*at)) {
            rows.entry(fault).or_default().falls += 1;
        }
        rows
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { plan, verdict, .. } = self;
        let title = format!(
            "{}: {}, {} s of faults",
            plan.name,
            plan.title,
            self.length.as_secs()
        );
        writeln!(f, "{title}\n")?;
        let head = ["fault", "times", "overlaps", "longest", "fences fell"].map(str::to_owned);
        let cells = |(fault, row): (Fault, Row)| {
            let longest = if row.overlaps == 0 {
                "-".to_owned()
            } else {
                millis(row.longest)
            };
            let counts = [row.times, row.overlaps, row.falls].map(|count| count.to_string());
            let [times, overlaps, falls] = counts;
            [fault.name().to_owned(), times, overlaps, longest, falls]
        };
        let table: Vec<[String; 5]> = std::iter::once(head)
            .chain(self.rows().into_iter().map(cells))
            .collect();
        writeln!(f, "{}", aligned(&table))?;
        let [gap, wait, idle] = [
            self.longest_gap(),
            verdict.longest_wait,
            verdict.longest_idle,
        ]
        .map(|span| span.as_secs_f64());
        writeln!(
            f,
            "faults: {}, the longest time without one {gap:.1} s",
            self.events.len()
        )?;
        let grants = verdict
            .grants
            .iter()
            .map(|(client, times)| format!("{client} {times}"));
        writeln!(
            f,
            "grants: {}; overlaps: {}, the longest {}; fences not above the last: {}",
            grants.collect::<Vec<_>>().join(", "),
            verdict.overlaps.len(),
            millis(self.longest()),
            verdict.falls.len()
        )?;
        writeln!(
            f,
            "longest time from start to command {wait:.1} s, without any command {idle:.1} s"
        )?;
        writeln!(f, "exit codes: {}", counted(&self.rlocks))?;
        if !self.breaks.is_empty() {
            writeln!(f, "exit codes of rlock break: {}", counted(&self.breaks))?;
        }
        writeln!(
            f,
            "keys left: {}; processes left: {}",
            self.keys.len(),
            self.processes.len()
        )?;
        let complaints = self.complaints();
        if complaints.is_empty() {
            write!(f, "as it should be")
        } else {
            write!(f, "WRONG: {}", complaints.join("; "))
        }
    }
}

/// Counts the ends of each kind.
fn counted<'a>(endings: impl IntoIterator<Item = &'a Ending>) -> String {
    let mut counts: BTreeMap<Ending, usize> = BTreeMap::new();
    for ending in endings {
        *counts.entry(*ending).or_default() += 1;
    }
    let shown = |(ending, count): (Ending, usize)| match ending {
        0.. => format!("{ending}: {count}"),
        _ => format!("signal {}: {count}", -ending),
    };
    counts.into_iter().map(shown).collect::<Vec<_>>().join(", ")
}
