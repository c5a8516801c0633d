//! `--metrics-dir`: gauges of each lock's last runs, in files for the textfile collector of
//! Prometheus' `node_exporter`.
//!
//! 1. `rlock-KEY.prom` describes the last run that started its command.
//! 2. `rlock-KEY@RESULT.prom` has the time at which a run last ended so. A failure does not erase
//!    the last success.
//! 3. No file is read back. Each is written beside and renamed, because the collector reads at any
//!    time.
//! 4. A file system can hang, so a thread writes. The end of rlock waits for it, but not for long.

use std::fmt::{Display, Write as _};
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::unistd::geteuid;
use uuid::Uuid;

use crate::exit::Outcome;
use crate::job::signals::spawn_thread;
use crate::lock::key::{Key, Keys};
use crate::text::{escape, file_stem};

const HELD: Gauge = Gauge::new(
    "rlock_held",
    "Whether the last run of this host still holds the lock.",
);
const LAST_START: Gauge = Gauge::new(
    "rlock_last_start_timestamp_seconds",
    "Unix time at which the command was last started.",
);
const LAST_WAIT: Gauge = Gauge::new(
    "rlock_last_wait_seconds",
    "Time from the last run's start to its command's.",
);
const LAST_HELD: Gauge = Gauge::new(
    "rlock_last_held_seconds",
    "Time from the last command's start to the release.",
);
const LAST_CODE: Gauge = Gauge::new(
    "rlock_last_exit_code",
    "Exit code of the last run that started its command.",
);
const LAST_END: Gauge = Gauge::new(
    "rlock_last_end_timestamp_seconds",
    "Unix time at which a run last ended with this result.",
);

/// Longest wait for the writes at the end of a run.
const LAST: Duration = Duration::from_secs(1);

/// Size of the writer's stack.
const STACK: usize = 256 * 1024;

/// Mode of the files: the collector is another user.
const READABLE: u32 = 0o644;

/// The state of one run.
#[derive(Clone, Copy, Debug)]
pub struct RunState {
    /// Unix time at which the run began.
    pub begun: Duration,
    /// Unix time at which the command was started; `None`: it was not.
    pub started: Option<Duration>,
    pub end: Option<RunEnd>,
}

/// The end of one run.
#[derive(Clone, Copy, Debug)]
pub struct RunEnd {
    /// Unix time.
    pub at: Duration,
    /// Value of the label `result`.
    pub result: &'static str,
    pub code: u8,
}

impl RunEnd {
    /// A run that ended with rlock's own death just now. The code is a shell's for that.
    pub fn killed() -> Self {
        Self {
            at: unix_time(),
            result: "killed",
            code: 128 + 9,
        }
    }

    /// A run that ended just now.
    pub fn new(outcome: Outcome) -> Self {
        Self {
            at: unix_time(),
            result: result_of(outcome),
            code: outcome.code(),
        }
    }
}

fn result_of(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Exited(0) => "ok",
        Outcome::Exited(_)
        | Outcome::Killed(_)
        | Outcome::Interrupted(_)
        | Outcome::CannotExecute
        | Outcome::NotFound => "failed",
        // Not run because of another run, which holds the lock, came later or has done the work.
        Outcome::Busy(_) | Outcome::Superseded | Outcome::Done => "busy",
        Outcome::Lost => "lost",
        Outcome::TimeIsUp => "timeout",
        Outcome::Unreachable => "unreachable",
        Outcome::Refused => "refused",
        Outcome::No
        | Outcome::Usage
        | Outcome::Bug
        | Outcome::System
        | Outcome::Output
        | Outcome::Config
        | Outcome::Signalled(_) => "error",
    }
}

fn unix_time() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Writes the files of the lock `key` in `directory`.
pub fn write(directory: &Path, key: &Key, state: &RunState) -> io::Result<()> {
    let name = file_stem(key.stored());
    let of_key = labels(&[("key", key.stored())]);
    if let Some(started) = state.started {
        let mut text = String::new();
        let mut add = |gauge: Gauge, value: f64| gauge.write(&mut text, [(of_key.clone(), value)]);
        add(HELD, f64::from(u8::from(state.end.is_none())));
        add(LAST_START, started.as_secs_f64());
        add(LAST_WAIT, started.saturating_sub(state.begun).as_secs_f64());
        if let Some(end) = state.end {
            add(LAST_HELD, end.at.saturating_sub(started).as_secs_f64());
            add(LAST_CODE, end.code.into());
        }
        replace(directory, &format!("rlock-{name}.prom"), &text)?;
    }
    if let Some(RunEnd { at, result, .. }) = state.end {
        let mut text = String::new();
        LAST_END.write(
            &mut text,
            [(
                labels(&[("key", key.stored()), ("result", result)]),
                at.as_secs_f64(),
            )],
        );
        // No key's name has an @ of its own.
        replace(directory, &format!("rlock-{name}@{result}.prom"), &text)?;
    }
    Ok(())
}

/// Replaces the file `name` by one with this text. Another user's file stays.
fn replace(directory: &Path, name: &str, text: &str) -> io::Result<()> {
    let file = directory.join(name);
    if fs::symlink_metadata(&file).is_ok_and(|old| old.uid() != geteuid().as_raw()) {
        return Err(io::Error::other(format!("{name} is another user's")));
    }
    // The collector reads only names that end in .prom.
    let beside = directory.join(format!(
        ".{name}.{}",
        &Uuid::new_v4().simple().to_string()[..8]
    ));
    let mut new = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(READABLE)
        .open(&beside)?;
    let written = new
        .write_all(text.as_bytes())
        // Whatever the umask is.
        .and_then(|()| new.set_permissions(Permissions::from_mode(READABLE)))
        .and_then(|()| fs::rename(&beside, &file));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

/// The metrics of a run under way.
pub struct Metrics {
    state: RunState,
    writer: io::Result<Writer>,
}

/// The thread that writes. It ends when the sender is dropped.
struct Writer {
    states: Sender<RunState>,
    /// Gets the first error, or none, once all is written.
    result: Receiver<io::Result<()>>,
}

impl Metrics {
    /// Metrics in `directory`, of a run of these locks that begins now.
    pub fn new(directory: &Path, keys: &Keys) -> Self {
        let state = RunState {
            begun: unix_time(),
            started: None,
            end: None,
        };
        let writer = Writer::start(directory.to_owned(), keys.clone());
        Self { state, writer }
    }

    /// Writes that the command was started.
    pub fn started(&mut self) {
        self.state.started = Some(unix_time());
        self.write();
    }

    /// Writes the end of the run. Returns the first error of a write, now or earlier.
    pub fn ended(mut self, outcome: Outcome) -> io::Result<()> {
        self.state.end = Some(RunEnd::new(outcome));
        self.write();
        self.writer.and_then(Writer::finish)
    }

    fn write(&self) {
        if let Ok(writer) = &self.writer {
            let _ = writer.states.send(self.state);
        }
    }
}

impl Writer {
    fn start(directory: PathBuf, keys: Keys) -> io::Result<Self> {
        let (states, to_write) = channel();
        let (done, result) = channel();
        spawn_thread("rlock-metrics", STACK, move || {
            let write = |state: RunState| {
                keys.iter()
                    .try_for_each(|key| write(&directory, key, &state))
            };
            let written = to_write
                .into_iter()
                .map(write)
                .fold(Ok(()), io::Result::and);
            let _ = done.send(written);
        })?;
        Ok(Self { states, result })
    }

    /// Waits for all writes, and returns the first error.
    fn finish(self) -> io::Result<()> {
        drop(self.states);
        self.result
            .recv_timeout(LAST)
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// A gauge in the text format of Prometheus and `OpenMetrics`, with one sample for each set of labels.
#[derive(Clone, Copy, Debug)]
pub struct Gauge {
    name: &'static str,
    help: &'static str,
}

impl Gauge {
    pub const fn new(name: &'static str, help: &'static str) -> Self {
        Self { name, help }
    }

    /// Adds the head and `samples`, each with its labels, to `text`. A gauge without samples is
    /// left out.
    pub fn write(
        self,
        text: &mut String,
        samples: impl IntoIterator<Item = (String, impl Display)>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        let Self { name, help } = self;
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    }
}

/// Returns `{name="value",…}`.
pub fn labels(pairs: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = pairs
        .iter()
        .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
        .collect();
    format!("{{{}}}", pairs.join(","))
}

/// Escapes a label for its reader, who may be at a terminal, and then for the format. Its own
/// backslashes are doubled, so that no two names become one label.
fn escaped(value: &str) -> String {
    escape::text(&value.replace('\\', "\\\\"))
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const RAN: RunState = RunState {
        begun: Duration::from_secs(10),
        started: Some(Duration::from_secs(12)),
        end: None,
    };

    fn key(name: &str) -> Key {
        Key::new("", name).unwrap()
    }

    fn ended(result: &'static str, code: u8) -> RunState {
        RunState {
            end: Some(RunEnd {
                at: Duration::from_millis(14_500),
                result,
                code,
            }),
            ..RAN
        }
    }

    #[test]
    fn the_files_of_a_run_tell_its_start_and_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str| {
            let text = fs::read_to_string(folder.path().join(name)).unwrap();
            text.lines()
                .filter(|line| !line.starts_with('#'))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        let start = [
            "rlock_last_start_timestamp_seconds{key=\"job\"} 12",
            "rlock_last_wait_seconds{key=\"job\"} 2",
        ];
        write(folder.path(), &key("job"), &RAN).unwrap();
        assert_eq!(
            read("rlock-job.prom"),
            ["rlock_held{key=\"job\"} 1", start[0], start[1]]
        );
        write(folder.path(), &key("job"), &ended("ok", 0)).unwrap();
        write(folder.path(), &key("job"), &ended("failed", 3)).unwrap();
        let end = [
            "rlock_last_held_seconds{key=\"job\"} 2.5",
            "rlock_last_exit_code{key=\"job\"} 3",
        ];
        assert_eq!(
            read("rlock-job.prom"),
            [
                "rlock_held{key=\"job\"} 0",
                start[0],
                start[1],
                end[0],
                end[1]
            ]
        );
        for result in ["ok", "failed"] {
            let line =
                format!("rlock_last_end_timestamp_seconds{{key=\"job\",result=\"{result}\"}} 14.5");
            assert_eq!(read(&format!("rlock-job@{result}.prom")), [line]);
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_run_that_started_no_command_leaves_the_file_of_one_that_did() {
        let folder = tempfile::tempdir().unwrap();
        write(
            folder.path(),
            &key("job"),
            &RunState {
                started: None,
                ..ended("busy", 75)
            },
        )
        .unwrap();
        let names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["rlock-job@busy.prom"]);
    }

    #[test]
    fn a_name_stays_in_the_directory_and_a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (outside, inside) = (folder.path().join("outside"), folder.path().join("metrics"));
        fs::write(&outside, "kept").unwrap();
        fs::create_dir(&inside).unwrap();
        let file = inside.join("rlock-%2E.%2Fx.prom");
        std::os::unix::fs::symlink(&outside, &file).unwrap();
        write(&inside, &key("../x"), &RAN).unwrap();
        let written = fs::symlink_metadata(&file).unwrap();
        assert!(written.is_file() && written.permissions().mode() & 0o777 == READABLE);
        assert_eq!(fs::read_to_string(&outside).unwrap(), "kept");
    }

    #[test]
    fn a_directory_that_is_missing_or_none_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(write(&folder.path().join("missing"), &key("job"), &RAN).is_err());
        fs::write(folder.path().join("file"), "").unwrap();
        assert!(write(&folder.path().join("file"), &key("job"), &RAN).is_err());
    }

    #[test]
    fn a_writer_that_hangs_holds_up_the_end_for_a_second_at_most() {
        let (states, _to_write) = channel();
        let (_done, result) = channel();
        let begun = clock::now();
        assert_eq!(
            Writer { states, result }.finish().unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        assert!(clock::now().since(begun) < LAST * 5);
    }

    #[test]
    fn the_longest_key_has_files_too() {
        let folder = tempfile::tempdir().unwrap();
        write(
            folder.path(),
            &key(&"x".repeat(1000)),
            &ended("unreachable", 69),
        )
        .unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    const GAUGE: Gauge = Gauge::new("held", "Whether it is held.");

    #[test]
    fn a_gauge_has_its_head_once_and_none_without_samples() {
        let mut text = String::new();
        GAUGE.write(
            &mut text,
            [
                (labels(&[("key", "a")]), 1),
                (labels(&[("key", "b"), ("node", "c")]), 0),
            ],
        );
        GAUGE.write(&mut text, Vec::<(String, u8)>::new());
        let expected = "# HELP held Whether it is held.\n# TYPE held gauge\nheld{key=\"a\"} 1\nheld{key=\"b\",node=\"c\"} 0\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_label_cannot_end_before_its_end() {
        assert_eq!(
            labels(&[("key", "a\"} 1\nb\\")]),
            r#"{key="a\"} 1\\nb\\\\"}"#
        );
    }

    #[test]
    fn a_label_acts_on_no_terminal_and_is_no_other_names() {
        let hostile = labels(&[("key", "\x1b]0;x\x07\u{9b}\u{202e}")]);
        assert!(!hostile.contains(['\x1b', '\x07', '\u{9b}', '\u{202e}']));
        assert_ne!(labels(&[("key", "\x1b")]), labels(&[("key", r"\x1b")]));
    }
}
