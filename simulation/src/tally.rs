//! Sums over many worlds.

use std::fmt;
use std::time::Duration;

use rlock::exit::Outcome;

use crate::world::Report;

/// Sums over the worlds of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Number of worlds.
    pub worlds: u64,
    /// Locks given.
    pub grants: u64,
    /// Locks lost.
    pub lost: u64,
    /// Runs that found that another had succeeded.
    pub skipped: u64,
    /// Locks that stayed when their runs were over.
    pub parked: u64,
    /// Keys set again.
    pub healed: u64,
    /// Clients that another one superseded.
    pub superseded: u64,
    /// Servers that took over from others.
    pub switches: u64,
    /// Slots that were moved.
    pub moves: u64,
    /// Writes of servers that had been replaced.
    pub stale: u64,
    /// Locks given beside a holder whose lease a database had lost.
    pub lapses: u64,
    /// Faults that hit.
    pub faults: u64,
    /// Requests executed.
    pub requests: u64,
    /// Simulated time.
    pub took: Duration,
    /// Longest time without a holder while a client waited and no fault was on.
    pub idle: Duration,
    /// Worlds with a violation.
    pub violations: u64,
}

impl Tally {
    /// Adds one world.
    pub fn add(&mut self, report: &Report) {
        self.merge(&Self {
            worlds: 1,
            grants: report.counts.grants,
            lost: report.counts.lost,
            skipped: report.counts.skipped,
            parked: report.counts.parked,
            healed: report.counts.healed,
            superseded: report
                .exits
                .get(&Outcome::Superseded.code())
                .copied()
                .unwrap_or_default(),
            switches: report.switches,
            moves: report.moves,
            stale: report.stale,
            lapses: report.counts.lapses,
            faults: report.faults,
            requests: report.requests,
            took: report.took,
            idle: report.counts.idle,
            violations: u64::from(report.violation.is_some()),
        });
    }

    /// Adds other sums.
    pub fn merge(&mut self, other: &Self) {
        self.worlds += other.worlds;
        self.grants += other.grants;
        self.lost += other.lost;
        self.skipped += other.skipped;
        self.parked += other.parked;
        self.healed += other.healed;
        self.superseded += other.superseded;
        self.switches += other.switches;
        self.moves += other.moves;
        self.stale += other.stale;
        self.lapses += other.lapses;
        self.faults += other.faults;
        self.requests += other.requests;
        self.took += other.took;
        self.idle = self.idle.max(other.idle);
        self.violations += other.violations;
    }

    /// The heads of the columns that [`fmt::Display`] writes.
    pub const HEADS: &'static str = "  worlds    grants    faults      lost    healed  requests/grant  longest idle  simulated  violations";
}

#[allow(clippy::cast_precision_loss, reason = "shown with one decimal")]
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            worlds,
            grants,
            faults,
            lost,
            healed,
            violations,
            ..
        } = self;
        let each = self.requests as f64 / (*grants).max(1) as f64;
        let (idle, hours) = (self.idle.as_secs_f64(), self.took.as_secs_f64() / 3600.0);
        write!(
            f,
            "{worlds:8}  {grants:8}  {faults:8}  {lost:8}  {healed:8}  {each:14.1}  {idle:10.2} s  {hours:7.1} h  {violations:10}"
        )
    }
}
