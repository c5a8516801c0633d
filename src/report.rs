//! Every line that rlock prints on stderr.
//!
//! `run` is silent when all goes well: cron mails everything that is printed. A thread of its own writes each line whole.
//! A reader that has stopped reading stops neither the renewals, nor a wait, nor the end of rlock.

mod event;
mod problem;
mod status;
mod status_text;
mod stderr;

use std::fmt::Display;
use std::io::{self, BufRead, IsTerminal};
use std::time::SystemTime;

use clap::ValueEnum;
use serde_json::{Map, Value};

pub use event::{AtNode, Event};
pub use problem::Problem;
pub use status::StatusLine;
pub use status_text::{BreakStatus, ScanStatus, WaitStatus};
pub use stderr::{finish, settle};

use crate::clock;
use crate::exit::{self, Failure, Outcome};
use crate::lock::key::Key;
use crate::lock::keys::Keys;
use crate::text::escape;

/// `--log`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum Log {
    /// Lines for people: `rlock: …`
    Text,
    /// One JSON object a line: ts (unix ms), level, event, key, message
    Json,
}

/// Weight of an event, which decides whether it is printed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// A step: printed with `-v` or `--log json`.
    Info,
    /// No failure yet, but a reader should know: printed without `-q`.
    Warning,
    /// The lock or the command failed: always printed.
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

/// Prints the events of one lock, or of several that are held together.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// The locks.
    pub keys: Keys,
    /// `--log`.
    pub log: Log,
    /// `-q`.
    pub quiet: bool,
    /// `-v`.
    pub verbose: bool,
}

impl Reporter {
    /// Prints `event`, if its level calls for it.
    pub fn say(&self, event: &Event) {
        let is_said = match event.level() {
            Level::Info => self.verbose || (self.log == Log::Json && !self.quiet),
            Level::Warning => !self.quiet,
            Level::Error => true,
        };
        if is_said {
            print(self.log, event, Some(&self.keys));
        }
    }

    /// Returns the reporter of one of the locks.
    #[must_use]
    pub fn of(&self, key: &Key) -> Self {
        Self { keys: key.into(), ..self.clone() }
    }

    /// Whether a status line may be drawn: `-q` silences it, and with `-v` or JSON other lines would tear it.
    pub fn allows_status_line(&self) -> bool {
        !self.quiet && !self.verbose && self.log == Log::Text
    }
}

/// Prints `event`, about `keys` if it concerns certain locks.
pub fn print(log: Log, event: &Event, keys: Option<&Keys>) {
    stderr::line(line(log, event, keys), log);
}

/// Shows `what` and asks the user at the terminal; `None` without a terminal.
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

/// Prints the last line of a run that failed. Its event is named by the outcome, and its field `code` is the exit code.
pub fn failure(log: Log, error: &anyhow::Error) {
    let outcome = exit::outcome_of(error);
    let event = match outcome {
        Outcome::Usage => "usage",
        Outcome::Unreachable => "unreachable",
        Outcome::Busy(_) => "busy",
        Outcome::Refused => "refused",
        Outcome::Config => "config",
        Outcome::CannotExecute | Outcome::NotFound => "exec",
        _ => "failed",
    };
    let failure = error.downcast_ref::<Failure>();
    let mut fields = failure.map_or_else(Map::new, |failure| failure.fields.clone());
    fields.insert("code".to_owned(), outcome.code().into());
    let keys = failure.and_then(|failure| failure.keys.as_ref());
    stderr::last_line(render(log, Level::Error, event, keys, &format!("{error:#}"), fields));
}

/// Makes a panic one line that asks for a report, in the form of `--log`.
pub fn install_panic_hook(log: Log) {
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map(|at| format!("{}:{}", at.file(), at.line())).unwrap_or_default();
        stderr::last_line(line(log, &Event::Bug { place: &place }, None));
    }));
}

/// The line of `event`, about `keys` if it concerns certain locks.
fn line(log: Log, event: &Event, keys: Option<&Keys>) -> String {
    let message = keys.map_or_else(|| event.to_string(), |keys| format!("{keys}: {event}"));
    let fields = if log == Log::Json { event.fields() } else { Map::new() };
    render(log, event.level(), event.name(), keys, &message, fields)
}

fn render(
    log: Log,
    level: Level,
    event: &str,
    keys: Option<&Keys>,
    message: &str,
    mut fields: Map<String, Value>,
) -> String {
    if log == Log::Text {
        return format!("rlock: {message}\n");
    }
    fields.insert("ts".to_owned(), clock::unix_millis(SystemTime::now()).into());
    fields.insert("level".to_owned(), level.name().into());
    fields.insert("event".to_owned(), event.into());
    fields.insert("message".to_owned(), message.into());
    fields.extend(keys.map(|keys| ("key".to_owned(), keys.typed().into())));
    format!("{}\n", escape::json(&Value::Object(fields).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_json_keeps_the_key_and_holds_nothing_that_a_terminal_acts_on() {
        let typed = "branch\u{9b}31m\u{202e}\x7f";
        let key = Key::new("", typed).unwrap();
        let line = line(Log::Json, &Event::Running { pid: 7 }, Some(&Keys::from(&key)));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap()["key"], typed);
        let bare = line.strip_suffix('\n').unwrap();
        assert_eq!(escape::text(bare), bare);
    }
}
