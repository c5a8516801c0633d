//! Every line that rlock prints on stderr.
//!
//! `run` is silent when all goes well: cron mails everything that is printed. A thread of its own
//! writes each line whole. A reader that has stopped reading stops neither the renewals, nor a
//! wait, nor the end of rlock.

mod event;
pub mod failures;
mod notify;
mod progress;
mod status_text;
mod stderr;

use std::fmt::Display;
use std::io::{self, BufRead, IsTerminal};
use std::sync::OnceLock;
use std::time::SystemTime;

use clap::ValueEnum;
use nix::sys::stat::fstat;
use serde::Serialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

pub use event::Event;
use event::Told;
pub use notify::Manager;
pub use progress::{Progress, ProgressForm, ProgressMode, StatusLine};
pub use status_text::{Status, occupied};
pub use stderr::{finish, settle};

use crate::clock;
use crate::exit::{self, Failure, Outcome};
use crate::lock::key::{Key, Keys};
use crate::text::escape;

/// Weight of an event, which decides whether it is printed. Its number is syslog(3)'s, which
/// sd-daemon(3) reads before a line.
#[derive(Clone, Copy, Serialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// A step: printed with `-v` or `--log json`.
    Info = 6,
    /// No failure yet, but a reader should know: printed without `-q`.
    Warning = 4,
    /// The lock or the command failed: always printed.
    Error = 3,
}

/// Variable in which systemd names the stream that leads to the journal: `DEVICE:INODE`.
const STREAM: &str = "JOURNAL_STREAM";

/// `--log`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum LogMode {
    /// For the journal if systemd connected stderr with it, else text
    Auto,
    /// Lines for people: `rlock: …`
    Text,
    /// One JSON object a line: ts (unix ms), rlock, level, event, key, message
    Json,
    /// Text behind the level that systemd's journal reads: `<4>rlock: …`
    Journal,
}

/// Form of the lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Log {
    Text,
    Json,
    Journal,
}

impl LogMode {
    /// Returns the form for this process's stderr.
    pub fn form(self) -> Log {
        match self {
            Self::Json => Log::Json,
            Self::Journal => Log::Journal,
            Self::Auto if leads_to_journal() => Log::Journal,
            Self::Text | Self::Auto => Log::Text,
        }
    }
}

/// Whether stderr is still the stream to the journal. A shell above rlock may have redirected it.
fn leads_to_journal() -> bool {
    let Ok(stream) = std::env::var(STREAM) else {
        return false;
    };
    fstat(io::stderr()).is_ok_and(|file| names(&stream, file.st_dev, file.st_ino))
}

/// Whether `DEVICE:INODE` names this file.
fn names(stream: &str, device: u64, inode: u64) -> bool {
    let read = |number: &str| number.parse::<u64>().ok();
    stream
        .split_once(':')
        .is_some_and(|(of, at)| (read(of), read(at)) == (Some(device), Some(inode)))
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
    /// `--progress`.
    pub progress: ProgressMode,
}

impl Reporter {
    /// Prints `event`, if its level calls for it.
    pub fn say(&self, event: &Event) {
        let is_said = match event.told().level {
            Level::Info => self.tells_steps(),
            Level::Warning => !self.quiet,
            Level::Error => true,
        };
        if is_said {
            self.show(event);
        }
    }

    /// Prints a step also at a terminal, where its user would wonder why nothing was run.
    pub fn say_to_user(&self, event: &Event) {
        self.say(event);
        if !self.tells_steps() && !self.quiet && io::stderr().is_terminal() {
            self.show(event);
        }
    }

    /// Whether a wait is told by nothing, though the user has not asked for silence.
    pub fn waits_in_silence(&self) -> bool {
        let is_shown = self.progress.form(self.log, self.quiet) != ProgressForm::None;
        !self.quiet && !self.tells_steps() && self.progress == ProgressMode::Auto && !is_shown
    }

    /// Prints a step that explains why rlock takes long, also where `--progress` asks for that
    /// alone.
    pub fn progress(&self, event: &Event) {
        if self.tells_steps() || self.progress.form(self.log, self.quiet) != ProgressForm::None {
            self.show(event);
        }
    }

    /// Prints `event`, whatever its level.
    pub fn show(&self, event: &Event) {
        print(self.log, event, Some(&self.keys));
    }

    /// Whether each step is printed.
    pub fn tells_steps(&self) -> bool {
        self.verbose || (self.log == Log::Json && !self.quiet)
    }

    /// Returns the reporter of one of the locks.
    #[must_use]
    pub fn of(&self, key: &Key) -> Self {
        Self {
            keys: key.into(),
            ..self.clone()
        }
    }
}

/// The process in lines of JSON. A guard that speaks for its rlock has that one's.
#[derive(Serialize)]
struct Identity {
    host: String,
    pid: u32,
    /// A random word, since pids come again.
    run: String,
}

fn identity() -> &'static Identity {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    IDENTITY.get_or_init(|| Identity {
        host: nix::unistd::gethostname().map_or_else(
            |_| String::new(),
            |name| name.to_string_lossy().into_owned(),
        ),
        pid: std::process::id(),
        run: Uuid::new_v4().simple().to_string(),
    })
}

/// Prints `event`, about `keys` if it concerns certain locks.
pub fn print(log: Log, event: &Event, keys: Option<&Keys>) {
    stderr::line(line(log, event, keys), log);
}

/// Prints `event` in the guard of an rlock that has gone.
pub fn say_at_once(log: Log, event: &Event, keys: &Keys) {
    stderr::write_at_once(&line(log, event, Some(keys)));
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

/// Prints the last line of a run that failed. Its event is named by the outcome, and its field
/// `code` is the exit code.
pub fn failure(log: Log, error: &anyhow::Error) {
    let outcome = exit::outcome_of(error);
    let event = match outcome {
        Outcome::Usage => "usage",
        Outcome::Unreachable => "unreachable",
        Outcome::Busy(_) => "busy",
        Outcome::Refused => "refused",
        Outcome::Config => "config",
        Outcome::CannotExecute | Outcome::NotFound => "exec",
        Outcome::System => "system",
        Outcome::Output => "output",
        _ => "failed",
    };
    let failure = error.downcast_ref::<Failure>();
    let mut fields = failure.map_or_else(Map::new, |failure| failure.fields.clone());
    fields.insert("event".to_owned(), event.into());
    fields.insert("code".to_owned(), outcome.code().into());
    let keys = failure.and_then(|failure| failure.keys.as_ref());
    let message = exit::error_of_system(error).map_or_else(
        || format!("{error:#}"),
        |cause| exit::told_of_system(&cause),
    );
    stderr::last_line(render(log, Level::Error, keys, &message, fields));
}

/// Has a panic end this process, after one line that asks for a report in the form of `--log`. The
/// exit code is not that of a busy lock. If a command runs, the guard kills it and gives the lock
/// back, as when rlock is killed.
///
/// A process that was forked from this one has no output, and only ends.
pub fn end_at_panic(log: Log) {
    if log == Log::Json {
        // Before the guard is forked.
        identity();
    }
    let process = std::process::id();
    std::panic::set_hook(Box::new(move |panic| {
        if std::process::id() == process {
            let place = panic
                .location()
                .map(|at| format!("{}:{}", at.file(), at.line()))
                .unwrap_or_default();
            stderr::last_line(line(log, &Event::Bug { place: &place }, None));
            finish();
        }
        // SAFETY: ends the process at once. Nothing of what is in memory can be trusted any more.
        unsafe { libc::_exit(Outcome::Bug.code().into()) }
    }));
}

/// The line of `event`, about `keys` if it concerns certain locks.
fn line(log: Log, event: &Event, keys: Option<&Keys>) -> String {
    let Told {
        level,
        name,
        mut data,
        words,
    } = event.told();
    data.insert("event".to_owned(), name.into());
    render(
        log,
        level,
        keys,
        &keys.map_or_else(|| words.clone(), |keys| format!("{keys}: {words}")),
        data,
    )
}

fn render(
    log: Log,
    level: Level,
    keys: Option<&Keys>,
    message: &str,
    mut fields: Map<String, Value>,
) -> String {
    match log {
        Log::Text => format!("rlock: {message}\n"),
        Log::Journal => format!("<{}>rlock: {message}\n", level as u8),
        Log::Json => {
            fields.insert(
                "ts".to_owned(),
                clock::unix_millis(SystemTime::now()).into(),
            );
            fields.insert("rlock".to_owned(), json!(identity()));
            fields.insert("level".to_owned(), json!(level));
            fields.insert("message".to_owned(), message.into());
            fields.insert("key".to_owned(), keys.map(Keys::typed).into());
            format!("{}\n", escape::json(&Value::Object(fields).to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_json_keeps_the_key_and_holds_nothing_that_a_terminal_acts_on() {
        let typed = "branch\u{9b}31m\u{202e}\x7f";
        let key = Key::new("", typed).unwrap();
        let line = line(
            Log::Json,
            &Event::Running { pid: 7 },
            Some(&Keys::from(&key)),
        );
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&line).unwrap()["key"],
            typed
        );
        let bare = line.strip_suffix('\n').unwrap();
        assert_eq!(escape::text(bare), bare);
    }

    #[test]
    fn a_stream_is_named_by_its_device_and_inode() {
        assert!(names("8:1234", 8, 1234));
        for other in [
            "", "8", "8:", ":1234", "8:1235", "9:1234", "8:1234:0", "8:-1234", "x:y",
        ] {
            assert!(!names(other, 8, 1234), "{other}");
        }
    }
}
