//! `--progress`: how a user learns what takes longer than a second, and when.
//!
//! On a terminal one line is redrawn. Elsewhere plain lines follow each other, and [`Pace`] decides
//! when the next is due.

use std::cell::{Cell, RefCell};
use std::io::{self, IsTerminal};
use std::time::Duration;

use clap::ValueEnum;

use super::status_text::Status;
use super::{Event, Log, Reporter, stderr};
use crate::clock;
use crate::lock::instant::Instant;
use crate::text;
use crate::text::escape::cut;

/// Time before anything is shown, between two drawings, and between two plain lines about a change.
const PATIENCE: Duration = Duration::from_secs(1);

/// Time between two plain lines where nothing changes.
const REPEATED: Duration = Duration::from_secs(60);

/// Variables that CI systems set.
const CI: [&str; 5] = [
    "CI",
    "GITHUB_ACTIONS",
    "GITLAB_CI",
    "BUILDKITE",
    "JENKINS_URL",
];

/// `--progress`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum ProgressMode {
    /// The line on a terminal, plain lines in CI, else nothing
    Auto,
    /// One line, redrawn each second; plain lines where stderr is no terminal
    Line,
    /// A line after a second, at each change, and each minute
    Plain,
    /// Nothing
    None,
}

/// The form that progress takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProgressForm {
    Line,
    Plain,
    None,
}

/// Properties of stderr and of the environment that decide between the forms.
#[derive(Clone, Copy, Debug)]
struct Surroundings {
    is_terminal: bool,
    /// `TERM=dumb`: the terminal cannot redraw.
    is_dumb: bool,
    is_ci: bool,
}

impl Surroundings {
    fn here() -> Self {
        let is_set = |name: &&str| {
            std::env::var(name).is_ok_and(|value| !matches!(value.as_str(), "" | "0" | "false"))
        };
        Self {
            is_terminal: io::stderr().is_terminal(),
            is_dumb: std::env::var_os("TERM").is_some_and(|term| term == "dumb"),
            is_ci: CI.iter().any(is_set),
        }
    }
}

impl ProgressMode {
    /// Returns the form for this process's stderr.
    pub fn form(self, log: Log, is_quiet: bool) -> ProgressForm {
        if is_quiet || self == Self::None {
            ProgressForm::None
        } else {
            self.form_at(log, Surroundings::here())
        }
    }

    fn form_at(self, log: Log, place: Surroundings) -> ProgressForm {
        let can_redraw = place.is_terminal && !place.is_dumb && log == Log::Text;
        match self {
            Self::Line | Self::Auto if can_redraw => ProgressForm::Line,
            Self::Line | Self::Plain => ProgressForm::Plain,
            // In the other forms of lines, each step has one.
            Self::Auto if log == Log::Text && (place.is_terminal || place.is_ci) => {
                ProgressForm::Plain
            }
            Self::Auto | Self::None => ProgressForm::None,
        }
    }
}

/// One line for a user at a terminal while something takes long: redrawn, and erased at the end.
#[derive(Debug)]
pub struct StatusLine {
    due: Cell<Instant>,
}

impl StatusLine {
    /// A line that is redrawn each second, if it is `wanted`.
    pub fn new(wanted: bool) -> Self {
        let due = if wanted {
            clock::now() + PATIENCE
        } else {
            Instant::NEVER
        };
        Self {
            due: Cell::new(due),
        }
    }

    /// Time of the next drawing.
    pub fn due(&self) -> Instant {
        self.due.get()
    }

    /// Draws `text` when it is due, cut to the terminal's width. Not from the background, where
    /// another job has the terminal.
    pub fn draw(&self, text: impl FnOnce() -> String) {
        let now = clock::now();
        if now < self.due.get() {
            return;
        }
        self.due.set(now + PATIENCE);
        if stderr::is_in_the_foreground() {
            let columns = text::columns(io::stderr()).unwrap_or(80);
            stderr::draw(&cut(&text(), usize::saturating_sub(columns, 1)));
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        stderr::erase();
    }
}

/// When plain lines are due: after a second, a second after a change, and each minute.
#[derive(Debug)]
struct Pace {
    /// Time of the last line, or of the begin.
    last: Instant,
    /// Whether the first line was told, by us or by an event.
    has_begun: bool,
    /// A new one is worth a line.
    subject: String,
    is_changed: bool,
}

impl Pace {
    /// `is_told`: events tell the first subject and each other.
    fn new(now: Instant, is_told: bool) -> Self {
        Self {
            last: now,
            has_begun: is_told,
            subject: String::new(),
            is_changed: false,
        }
    }

    fn due(&self) -> Instant {
        self.last
            + if self.has_begun && !self.is_changed {
                REPEATED
            } else {
                PATIENCE
            }
    }

    /// Whether a line about `subject` is due `now`.
    fn is_due(&mut self, now: Instant, subject: String) -> bool {
        self.is_changed |= self.subject != subject;
        self.subject = subject;
        let is_due = now >= self.due();
        if is_due {
            (self.last, self.has_begun, self.is_changed) = (now, true, false);
        }
        is_due
    }
}

/// Shows what takes long.
#[derive(Debug)]
pub struct Progress {
    form: ProgressForm,
    line: StatusLine,
    pace: RefCell<Pace>,
}

impl Progress {
    /// Begins now.
    pub fn new(report: &Reporter) -> Self {
        let form = report.progress.form(report.log, report.quiet);
        let pace = RefCell::new(Pace::new(clock::now(), report.tells_steps()));
        Self {
            form,
            line: StatusLine::new(form == ProgressForm::Line),
            pace,
        }
    }

    /// Returns when [`Progress::show`] is due next.
    pub fn due(&self) -> Instant {
        match self.form {
            ProgressForm::Line => self.line.due(),
            ProgressForm::Plain => self.pace.borrow().due(),
            ProgressForm::None => Instant::NEVER,
        }
    }

    /// Shows `status`, if that is due.
    pub fn show(&self, report: &Reporter, status: &Status) {
        match self.form {
            ProgressForm::Line => self
                .line
                .draw(|| format!("rlock: {}: {}", report.keys, status.line())),
            ProgressForm::Plain => {
                // With -v or JSON, events tell what changes.
                let subject = if report.tells_steps() {
                    String::new()
                } else {
                    status.subject()
                };
                if self.pace.borrow_mut().is_due(clock::now(), subject) {
                    report.show(&Event::Progress { status });
                }
            }
            ProgressForm::None => {}
        }
    }

    /// Tells that a wait of `after` has ended with the lock, if it was shown in plain lines and no
    /// event tells it.
    pub fn acquired(&self, report: &Reporter, after: Duration) {
        if self.form == ProgressForm::Plain && self.pace.borrow().has_begun && !report.tells_steps()
        {
            report.show(&Event::WaitOver { after });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_follows_from_the_option_and_from_stderr() {
        let place = |is_terminal, is_dumb, is_ci| Surroundings {
            is_terminal,
            is_dumb,
            is_ci,
        };
        let (terminal, dumb, ci, cron) = (
            place(true, false, false),
            place(true, true, false),
            place(false, false, true),
            place(false, false, false),
        );
        for (mode, at, form) in [
            (ProgressMode::Auto, terminal, ProgressForm::Line),
            (
                ProgressMode::Auto,
                place(true, false, true),
                ProgressForm::Line,
            ),
            (ProgressMode::Auto, dumb, ProgressForm::Plain),
            (ProgressMode::Auto, ci, ProgressForm::Plain),
            (
                ProgressMode::Auto,
                place(false, true, true),
                ProgressForm::Plain,
            ),
            (ProgressMode::Auto, cron, ProgressForm::None),
            (ProgressMode::Line, terminal, ProgressForm::Line),
            (ProgressMode::Line, dumb, ProgressForm::Plain),
            (ProgressMode::Line, cron, ProgressForm::Plain),
            (ProgressMode::Plain, terminal, ProgressForm::Plain),
            (ProgressMode::Plain, cron, ProgressForm::Plain),
            (ProgressMode::None, terminal, ProgressForm::None),
        ] {
            assert_eq!(mode.form_at(Log::Text, at), form, "{mode:?} {at:?}");
        }
        for at in [terminal, ci, cron] {
            assert_eq!(
                ProgressMode::Auto.form_at(Log::Json, at),
                ProgressForm::None
            );
            assert_eq!(
                ProgressMode::Line.form_at(Log::Json, at),
                ProgressForm::Plain
            );
        }
        assert_eq!(
            ProgressMode::Plain.form(Log::Text, true),
            ProgressForm::None
        );
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn plain_lines_come_after_a_second_at_each_change_and_each_minute() {
        let mut pace = Pace::new(at(10), false);
        let mut is_due = |second: u64, subject: &str| pace.is_due(at(second), subject.to_owned());
        assert!(!is_due(10, "a") && is_due(11, "a") && !is_due(60, "a") && is_due(71, "a"));
        assert!(is_due(72, "b") && !is_due(72, "c"), "one line a second");
        assert_eq!(pace.due(), at(73));
        assert!(pace.is_due(at(73), "c".to_owned()));
        assert_eq!(pace.due(), at(133));
        assert_eq!(Pace::new(at(10), true).due(), at(70));
    }
}
