//! Every line that rlock prints on stderr.
//!
//! `run` is silent when all goes well: cron mails whatever is printed. A line is written whole and never waited for
//! while a lock is held: a reader that has stopped reading must not stop the renewals.

use std::cell::Cell;
use std::fmt::Display;
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::{Duration, SystemTime};

use clap::ValueEnum;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{getpgrp, tcgetpgrp};
use serde_json::json;

use crate::clock;
use crate::exit::{self, Outcome};
use crate::lock::instant::Instant;
use crate::lock::key::Key;

/// `--log`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum Log {
    /// Lines for people: `rlock: …`
    Text,
    /// One JSON object a line: ts (unix ms), level, event, key, message
    Json,
}

/// How much is said.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Level {
    Info,
    Warning,
    Error,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Says what happens to one lock.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// The lock.
    pub key: Key,
    /// `--log`.
    pub log: Log,
    /// `-q`.
    pub quiet: bool,
    /// `-v`.
    pub verbose: bool,
}

impl Reporter {
    /// A step, told with `-v` or `--log json` only.
    pub fn step(&self, event: &str, text: impl Display) {
        if self.verbose || (self.log == Log::Json && !self.quiet) {
            self.line(Level::Info, event, &text);
        }
    }

    /// Something that is not a failure yet but that somebody should know of; `-q` keeps it back.
    pub fn note(&self, event: &str, text: impl Display) {
        if !self.quiet {
            self.line(Level::Warning, event, &text);
        }
    }

    /// Whether a line that is redrawn has a place: with `-q` nobody wants it, and steps would get in its way.
    pub fn has_room_for_a_line(&self) -> bool {
        !self.quiet && !self.verbose && self.log == Log::Text
    }

    /// Something went wrong with the lock.
    pub fn problem(&self, event: &str, text: impl Display) {
        self.line(Level::Error, event, &text);
    }

    fn line(&self, level: Level, event: &str, text: &dyn Display) {
        let message = format!("{}: {text}", self.key);
        if can_take_a_line() {
            write(&render(self.log, level, event, Some(&self.key), &message));
        }
    }
}

/// Asks whoever is at the terminal, after saying `what` it is about; `None` if nobody is there.
pub fn ask(what: impl Display, question: &str) -> Option<bool> {
    let stdin = io::stdin();
    if !stdin.is_terminal() || !io::stderr().is_terminal() {
        return None;
    }
    write(&format!("{what}\n{question} [y/N] "));
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    Some(read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// One line for a person at a terminal while something takes long: drawn over and over, and gone at the end.
#[derive(Debug)]
pub struct Redrawn {
    wanted: bool,
    every: Duration,
    drawn: Cell<bool>,
    due: Cell<Instant>,
}

impl Redrawn {
    /// What takes less than this is not worth a line.
    const PATIENCE: Duration = Duration::from_secs(1);

    /// A line that is drawn no sooner than `every` after the last time. None is unless it is `wanted` and stderr is a
    /// terminal.
    pub fn new(wanted: bool, every: Duration) -> Self {
        let wanted = wanted && io::stderr().is_terminal();
        let due = if wanted { clock::now() + Self::PATIENCE } else { Instant::NEVER };
        Self { wanted, every, drawn: Cell::new(false), due: Cell::new(due) }
    }

    /// When it is to be drawn next.
    pub fn due(&self) -> Instant {
        self.due.get()
    }

    /// Draws `text`, if it is time to. Not from the background, where somebody else has the terminal.
    pub fn draw(&self, text: impl FnOnce() -> String) {
        let now = clock::now();
        if now < self.due.get() {
            return;
        }
        self.due.set(now + self.every);
        if self.wanted && is_in_the_foreground() && can_take_a_line() {
            self.drawn.set(true);
            let columns = terminal_size::terminal_size_of(io::stderr()).map_or(80, |(width, _)| width.0.into());
            let cut: String = text().chars().take(usize::saturating_sub(columns, 1)).collect();
            write(&format!("\r{cut}\x1b[K"));
        }
    }

    /// Erases it. Not from the background: what stands in the line where the cursor is, is somebody else's by then.
    pub fn clear(&self) {
        if self.drawn.take() && is_in_the_foreground() {
            write("\r\x1b[K");
        }
    }
}

impl Drop for Redrawn {
    fn drop(&mut self) {
        self.clear();
    }
}

fn is_in_the_foreground() -> bool {
    tcgetpgrp(io::stderr()).is_ok_and(|group| group == getpgrp())
}

/// The last line of a run that failed. Waits for its reader: nothing depends on rlock any more.
pub fn failure(log: Log, error: &anyhow::Error) {
    let event = match exit::outcome_of(error) {
        Outcome::Usage => "usage",
        Outcome::Unreachable => "unreachable",
        Outcome::Busy(_) => "busy",
        Outcome::Refused => "refused",
        Outcome::Config => "config",
        Outcome::CannotExecute | Outcome::NotFound => "exec",
        _ => "failed",
    };
    write(&render(log, Level::Error, event, None, &format!("{error:#}")));
}

/// Makes a panic one line that says whose fault it is.
pub fn announce_bugs() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(|at| format!("{}:{}", at.file(), at.line())).unwrap_or_default();
        let message = format!("a bug in rlock {} at {place}: please report it", env!("CARGO_PKG_VERSION"));
        write(&render(Log::Text, Level::Error, "bug", None, &message));
    }));
}

fn render(log: Log, level: Level, event: &str, key: Option<&Key>, message: &str) -> String {
    match log {
        Log::Text => format!("rlock: {message}\n"),
        Log::Json => {
            let ts = clock::unix_millis(SystemTime::now());
            let mut line = json!({ "ts": ts, "level": level.name(), "event": event, "message": message });
            if let Some(key) = key {
                line["key"] = key.typed().into();
            }
            format!("{line}\n")
        }
    }
}

/// One write, so that lines of several rlocks do not mix. An unwritable stderr changes nothing else.
fn write(line: &str) {
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Whether stderr takes a line without waiting: a pipe has `PIPE_BUF` free bytes, a terminal is not stopped by ^S.
fn can_take_a_line() -> bool {
    let stderr = io::stderr();
    let mut fds = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1..))
        && fds[0].revents().is_some_and(|events| events.contains(PollFlags::POLLOUT))
}
