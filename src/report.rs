//! Every line that rlock prints on stderr.
//!
//! `run` is silent when all goes well: cron mails whatever is printed. A line is written whole, by a thread of its own:
//! a reader that has stopped reading stops neither the renewals, nor a wait, nor the end of rlock.

mod status;
mod stderr;

use std::fmt::Display;
use std::io::{self, BufRead, IsTerminal};
use std::time::SystemTime;

use clap::ValueEnum;
use serde_json::json;

pub use status::StatusLine;
pub use stderr::{finish, settle};

use crate::clock;
use crate::exit::{self, Outcome};
use crate::lock::key::Key;
use crate::text::escape;

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
        stderr::line(render(self.log, level, event, Some(&self.key), &message), self.log);
    }
}

/// A warning that is perhaps about no lock in particular.
pub fn warn(log: Log, event: &str, key: Option<&Key>, text: impl Display) {
    let about = key.map(|key| format!("{key}: ")).unwrap_or_default();
    stderr::line(render(log, Level::Warning, event, key, &format!("{about}{text}")), log);
}

/// Asks whoever is at the terminal, after saying `what` it is about; `None` if nobody is there.
pub fn ask(what: impl Display, question: &str) -> Option<bool> {
    let stdin = io::stdin();
    if !stdin.is_terminal() || !io::stderr().is_terminal() {
        return None;
    }
    stderr::last_line(format!("{what}\n{question} [y/N] "));
    finish();
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    Some(read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// The last line of a run that failed.
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
    stderr::last_line(render(log, Level::Error, event, None, &format!("{error:#}")));
}

/// Makes a panic one line that says whose fault it is.
pub fn install_panic_hook() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(|at| format!("{}:{}", at.file(), at.line())).unwrap_or_default();
        let message = format!("a bug in rlock {} at {place}: please report it", env!("CARGO_PKG_VERSION"));
        stderr::last_line(render(Log::Text, Level::Error, "bug", None, &message));
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
            format!("{}\n", escape::json(&line.to_string()))
        }
    }
}

/// The notice that stands in the place of lines that found no room.
fn dropped(count: u64, log: Log) -> String {
    let lines = if count == 1 { "line was" } else { "lines were" };
    render(log, Level::Warning, "dropped", None, &format!("{count} {lines} dropped: stderr was not read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_json_keeps_the_key_and_holds_nothing_that_a_terminal_acts_on() {
        let typed = "branch\u{9b}31m\u{202e}\x7f";
        let key = Key::new("", typed).unwrap();
        let line = render(Log::Json, Level::Info, "running", Some(&key), "running");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap()["key"], typed);
        let bare = line.strip_suffix('\n').unwrap();
        assert_eq!(escape::text(bare), bare);
    }
}
