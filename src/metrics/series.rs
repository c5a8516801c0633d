//! The metrics of one lock: read from its file, changed by a run, and written again. Pure.
//!
//! Prometheus calls an absent counter unknown and a first one no increase, so each result and reason has its counter from
//! the first run on.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::exit::Outcome;
use crate::lock::instant::Instant;
use crate::report::{LossReason, Record};
use crate::text::exposition::{Family, labels};

const RUNS: Family = Family::counter("rlock_runs_total", "Runs that ended, by their result.");
const HELD: Family = Family::gauge("rlock_held", "Runs of this host that hold the lock.");
const LAST_START: Family =
    Family::gauge("rlock_last_start_timestamp_seconds", "Unix time at which the command was last started.");
const LAST_SUCCESS: Family = Family::gauge(
    "rlock_last_success_timestamp_seconds",
    "Unix time at which a command last ended with 0 under a lock that was kept.",
);
const LAST_CODE: Family = Family::gauge("rlock_last_exit_code", "Exit code of the last run.");
const LAST_WAIT: Family = Family::gauge("rlock_last_wait_seconds", "Time for which the last run waited for the lock.");
const LAST_RUN: Family = Family::gauge("rlock_last_run_seconds", "Time for which the last command ran.");
const WAIT: Family = Family::counter("rlock_wait_seconds_total", "Time for which runs waited for the lock.");
const RUN: Family = Family::counter("rlock_run_seconds_total", "Time for which commands ran.");
const RENEWAL_FAILURES: Family =
    Family::counter("rlock_renewal_failures_total", "Renewals that failed at a node and were repeated.");
const LOST: Family = Family::counter("rlock_lost_total", "Locks that were lost while the command ran, by the reason.");
const LEAST_LEFT: Family = Family::gauge(
    "rlock_min_lease_left_seconds",
    "Least time that the last run's lease had left when it was renewed or the command ended.",
);

const FAMILIES: [Family; 12] = [
    RUNS,
    HELD,
    LAST_START,
    LAST_SUCCESS,
    LAST_CODE,
    LAST_WAIT,
    LAST_RUN,
    WAIT,
    RUN,
    RENEWAL_FAILURES,
    LOST,
    LEAST_LEFT,
];

/// Begin of the line that names a holder: `# held by PID BEGUN`, a comment to other readers.
const HOLDER: &str = "# held by ";

/// The result of a run, as the value of a label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RunResult {
    /// The command ended with 0.
    Ok,
    /// The command ended with another code or by a signal, or could not be started.
    Failed,
    /// Not run because of another run, which holds the lock, came later or has done the work.
    Busy,
    /// The lock was lost.
    Lost,
    /// `--max-run` was over.
    Timeout,
    /// No majority of nodes answered.
    Unreachable,
    /// Nodes refused rlock.
    Refused,
    /// Any other end.
    Error,
}

impl RunResult {
    const ALL: [Self; 8] =
        [Self::Ok, Self::Failed, Self::Busy, Self::Lost, Self::Timeout, Self::Unreachable, Self::Refused, Self::Error];

    pub(super) fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Exited(0) => Self::Ok,
            Outcome::Exited(_)
            | Outcome::Killed(_)
            | Outcome::Interrupted(_)
            | Outcome::CannotExecute
            | Outcome::NotFound => Self::Failed,
            Outcome::Busy(_) | Outcome::Superseded | Outcome::Done => Self::Busy,
            Outcome::Lost => Self::Lost,
            Outcome::TimeIsUp => Self::Timeout,
            Outcome::Unreachable => Self::Unreachable,
            Outcome::Refused => Self::Refused,
            Outcome::No
            | Outcome::Usage
            | Outcome::Bug
            | Outcome::System
            | Outcome::Output
            | Outcome::Config
            | Outcome::Signalled(_) => Self::Error,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Busy => "busy",
            Self::Lost => "lost",
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
            Self::Refused => "refused",
            Self::Error => "error",
        }
    }
}

/// A process that holds the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Holder {
    pub(super) pid: i32,
    /// When it began, in the kernel's ticks since boot: pids are given away again.
    pub(super) begun: u64,
}

/// The end of a run, as one of its locks sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) outcome: Outcome,
    /// Unix time.
    pub(super) at: Duration,
    pub(super) waited: Duration,
    /// `None`: the command was not started.
    pub(super) ran: Option<Duration>,
    pub(super) record: Record,
}

impl End {
    /// The end, at `now`, of a run that began at `begun`.
    pub(super) fn new(outcome: Outcome, at: Duration, record: Record, begun: Instant, now: Instant) -> Self {
        let waited = record.acquired.unwrap_or(now).since(begun);
        let ran = record.started.map(|started| record.ended.unwrap_or(now).since(started));
        Self { outcome, at, waited, ran, record }
    }
}

/// The metrics of one lock.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Series {
    key: String,
    /// By name and labels.
    samples: BTreeMap<String, f64>,
    holders: Vec<Holder>,
}

impl Series {
    /// Returns the metrics of the lock `key` in `text`. Other lines are left out, so a damaged file begins anew.
    pub(super) fn read(key: &str, text: &str) -> Self {
        let mut series = Self { key: key.to_owned(), samples: BTreeMap::new(), holders: Vec::new() };
        let counters = RunResult::ALL.map(|result| (RUNS, Some(("result", result.name()))));
        let losses = LossReason::ALL.map(|reason| (LOST, Some(("reason", reason.name()))));
        let sums = [WAIT, RUN, RENEWAL_FAILURES].map(|family| (family, None));
        for (family, label) in counters.into_iter().chain(losses).chain(sums) {
            series.samples.insert(series.name(family, label), 0.0);
        }
        let gauges = [LAST_START, LAST_SUCCESS, LAST_CODE, LAST_WAIT, LAST_RUN, LEAST_LEFT];
        let known: Vec<String> = gauges.map(|family| series.name(family, None)).into();
        for line in text.lines() {
            if let Some(holder) = line.strip_prefix(HOLDER) {
                series.holders.extend(holder_in(holder));
            } else if let Some((name, value)) = line.rsplit_once(' ')
                && let Some(value) = value.parse().ok().filter(|value: &f64| value.is_finite())
                && (series.samples.contains_key(name) || known.iter().any(|gauge| gauge == name))
            {
                series.samples.insert(name.to_owned(), value);
            }
        }
        series
    }

    /// Forgets the holders that do not live any more: a killed rlock has not told its end.
    pub(super) fn keep_holders(&mut self, lives: impl Fn(&Holder) -> bool) {
        self.holders.retain(lives);
    }

    /// The command was started at `at` (unix time), by `holder` unless the lock is an outer rlock's.
    pub(super) fn started(&mut self, at: Duration, holder: Option<Holder>) {
        self.set(LAST_START, at.as_secs_f64());
        self.holders.extend(holder);
    }

    /// A run has ended, that of `holder` if it held the lock.
    pub(super) fn ended(&mut self, end: &End, holder: Option<Holder>) {
        self.holders.retain(|other| Some(*other) != holder);
        let result = RunResult::of(end.outcome);
        self.add(RUNS, Some(("result", result.name())), 1.0);
        if result == RunResult::Ok {
            self.set(LAST_SUCCESS, end.at.as_secs_f64());
        }
        self.set(LAST_CODE, end.outcome.code().into());
        self.set(LAST_WAIT, end.waited.as_secs_f64());
        self.add(WAIT, None, end.waited.as_secs_f64());
        if let Some(ran) = end.ran {
            self.set(LAST_RUN, ran.as_secs_f64());
            self.add(RUN, None, ran.as_secs_f64());
        }
        // Exact below 2^53.
        #[allow(clippy::cast_precision_loss)]
        self.add(RENEWAL_FAILURES, None, end.record.renewal_failures as f64);
        if let Some(reason) = end.record.lost {
            self.add(LOST, Some(("reason", reason.name())), 1.0);
        }
        if let Some(left) = end.record.least_left {
            self.set(LEAST_LEFT, left.as_secs_f64());
        }
    }

    /// Returns the file's text.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for family in FAMILIES {
            if family == HELD {
                family.write(&mut text, [(self.labels(None), self.holders.len())]);
                text.extend(self.holders.iter().map(|Holder { pid, begun }| format!("{HOLDER}{pid} {begun}\n")));
                continue;
            }
            let of_family = |(name, value): (&String, &f64)| {
                let labels = name.strip_prefix(family.name).filter(|rest| rest.starts_with('{'))?;
                Some((labels.to_owned(), *value))
            };
            family.write(&mut text, self.samples.iter().filter_map(of_family));
        }
        text
    }

    fn labels(&self, label: Option<(&str, &str)>) -> String {
        let pairs: Vec<(&str, &str)> = [("key", self.key.as_str())].into_iter().chain(label).collect();
        labels(&pairs)
    }

    fn name(&self, family: Family, label: Option<(&str, &str)>) -> String {
        format!("{}{}", family.name, self.labels(label))
    }

    fn set(&mut self, family: Family, value: f64) {
        self.samples.insert(self.name(family, None), value);
    }

    fn add(&mut self, family: Family, label: Option<(&str, &str)>, value: f64) {
        *self.samples.entry(self.name(family, label)).or_default() += value;
    }
}

fn holder_in(text: &str) -> Option<Holder> {
    let (pid, begun) = text.split_once(' ')?;
    Some(Holder { pid: pid.parse().ok()?, begun: begun.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const US: Holder = Holder { pid: 7, begun: 70 };

    fn end(outcome: Outcome) -> End {
        let record = Record { renewal_failures: 2, least_left: Some(Duration::from_secs(20)), ..Record::default() };
        let (at, ran) = (Duration::from_secs(1000), Some(Duration::from_millis(2500)));
        End { outcome, at, waited: Duration::from_secs(1), ran, record }
    }

    fn value(series: &Series, name: &str) -> Option<String> {
        series.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned))
    }

    #[test]
    fn counters_are_read_back_and_go_on() {
        let mut text = String::new();
        for round in 1..=3 {
            let mut series = Series::read("job", &text);
            series.started(Duration::from_secs(900), Some(US));
            assert_eq!(value(&series, "rlock_held{key=\"job\"}").as_deref(), Some("1"));
            series.ended(&end(Outcome::Exited(0)), Some(US));
            text = series.text();
            let expect = |name: &str, expected: String| assert_eq!(value(&series, name), Some(expected), "{name}");
            expect("rlock_runs_total{key=\"job\",result=\"ok\"}", round.to_string());
            expect("rlock_runs_total{key=\"job\",result=\"lost\"}", "0".to_owned());
            expect("rlock_renewal_failures_total{key=\"job\"}", (2 * round).to_string());
            expect("rlock_run_seconds_total{key=\"job\"}", (2.5 * f64::from(round)).to_string());
            expect("rlock_last_success_timestamp_seconds{key=\"job\"}", "1000".to_owned());
            expect("rlock_held{key=\"job\"}", "0".to_owned());
            expect("rlock_min_lease_left_seconds{key=\"job\"}", "20".to_owned());
        }
    }

    #[test]
    fn the_wait_ends_when_the_lock_was_taken_and_a_run_that_never_was_has_no_time() {
        let at = |second: u64| Instant::from_nanos(second * 1_000_000_000);
        let record = Record { acquired: Some(at(3)), started: Some(at(4)), ended: Some(at(9)), ..Record::default() };
        let ran = End::new(Outcome::Exited(0), Duration::ZERO, record, at(1), at(10));
        assert_eq!((ran.waited.as_secs(), ran.ran), (2, Some(Duration::from_secs(5))));
        let gave_up = End::new(Outcome::Busy(75), Duration::ZERO, Record::default(), at(1), at(10));
        assert_eq!((gave_up.waited.as_secs(), gave_up.ran), (9, None));
    }

    #[test]
    fn a_failure_is_no_success_and_a_busy_run_has_run_nothing() {
        let mut series = Series::read("job", "");
        series.ended(&end(Outcome::Exited(3)), None);
        series.ended(&End { ran: None, ..end(Outcome::Busy(0)) }, None);
        assert_eq!(value(&series, "rlock_last_success_timestamp_seconds{key=\"job\"}"), None);
        assert_eq!(value(&series, "rlock_runs_total{key=\"job\",result=\"busy\"}").as_deref(), Some("1"));
        assert_eq!(value(&series, "rlock_last_run_seconds{key=\"job\"}").as_deref(), Some("2.5"));
        assert_eq!(value(&series, "rlock_last_exit_code{key=\"job\"}").as_deref(), Some("0"));
    }

    #[test]
    fn a_holder_that_was_killed_is_not_counted_for_ever() {
        let mut series = Series::read("job", "");
        let killed = Holder { pid: 8, begun: 80 };
        series.started(Duration::ZERO, Some(killed));
        series.started(Duration::ZERO, Some(US));
        let mut series = Series::read("job", &series.text());
        assert_eq!(value(&series, "rlock_held{key=\"job\"}").as_deref(), Some("2"));
        series.keep_holders(|holder| *holder == US);
        assert_eq!(value(&series, "rlock_held{key=\"job\"}").as_deref(), Some("1"));
    }

    #[test]
    fn every_reason_of_a_loss_has_its_counter() {
        for reason in LossReason::ALL {
            let mut series = Series::read("job", "");
            let record = Record { lost: Some(reason), ..Record::default() };
            series.ended(&End { record, ..end(Outcome::Lost) }, None);
            let name = format!("rlock_lost_total{{key=\"job\",reason=\"{}\"}}", reason.name());
            assert_eq!(value(&series, &name).as_deref(), Some("1"));
        }
    }

    proptest! {
        #[test]
        fn a_damaged_file_begins_anew(text in "(.{0,40}\n){0,5}") {
            prop_assert_eq!(Series::read("job", &text).text(), Series::read("job", "").text());
        }

        #[test]
        fn the_text_is_read_back_whatever_the_key_is(key in ".{1,20}") {
            let mut series = Series::read(&key, "");
            series.started(Duration::from_millis(900), Some(US));
            series.ended(&end(Outcome::Lost), None);
            prop_assert_eq!(Series::read(&key, &series.text()), series);
        }
    }
}
