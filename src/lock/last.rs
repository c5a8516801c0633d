//! The record beside a lock: the last run whose command has ended, and the last success under
//! `--once` (docs/kinds.md, The record).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::details::{Breaker, Details, cut};
use super::fence::Fence;
use super::token::Token;
use crate::text::{duration, escape};

/// Time for which a run is remembered.
pub const RUN_LIFE: Duration = Duration::from_secs(24 * 3600);

/// Shortest time for which a success is remembered.
pub const SUCCESS_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// A run whose command has ended, as others see it. Every field of a record that another client
/// wrote may be missing or wrong.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug, Default)]
#[serde(default)]
pub struct Run {
    /// Host name.
    pub host: String,
    /// User name.
    pub user: String,
    /// Name of the command, as in [`Details`].
    pub cmd: String,
    /// Unix time of the command's start, in milliseconds; 0 if it is not known.
    pub start: u64,
    /// Unix time of its end.
    pub end: u64,
    /// Its exit code, if it exited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<u8>,
    /// Name of the signal that ended it. Without this and an exit code, rlock was killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// The user that broke the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<Breaker>,
}

/// A line of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The fence under which the run ran: the highest is the newest.
    pub fence: Fence,
    /// Its token.
    pub token: Token,
    /// Time since it was written, by the clock of the node that told it.
    pub age: Duration,
    /// The run.
    pub run: Run,
}

/// A record, as a node tells it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// The last run.
    pub run: Option<Entry>,
    /// The last success under `--once`.
    pub success: Option<Entry>,
}

/// An entry to be written, over one of a lower fence only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// The entry.
    pub entry: Entry,
    /// Whether it is the last run. A success that is copied to another node is not.
    pub is_run: bool,
    /// For how long it is remembered as a success, if it is one.
    pub success: Option<Duration>,
}

impl Note {
    /// Returns the entry of a run that has ended just now.
    pub fn of(run: Run, fence: Fence, token: Token) -> Self {
        Self {
            entry: Entry {
                fence,
                token,
                age: Duration::ZERO,
                run,
            },
            is_run: true,
            success: None,
        }
    }
}

impl Run {
    /// Returns this run as one of the holder with these details.
    #[must_use]
    pub fn of(self, holder: &Details) -> Self {
        let Details {
            host, user, cmd, ..
        } = holder.clone();
        Self {
            host,
            user,
            cmd,
            ..self
        }
    }

    /// Returns what is stored: compact JSON of less than 1 KiB.
    pub fn json(&self) -> String {
        let run = self.clone();
        let fitted = Self {
            host: cut(run.host, 96),
            user: cut(run.user, 64),
            cmd: cut(run.cmd, 128),
            broken: run.broken.map(Breaker::fitted),
            ..run
        };
        // Strings and numbers only: writing them cannot fail.
        serde_json::to_string(&fitted).unwrap_or_default()
    }
}

impl Entry {
    /// Reads a line: `FENCE TOKEN MS DETAILS`. `now`: the node's unix time in ms.
    pub fn read(line: &str, now: u64) -> Option<Self> {
        let [fence, token, at, run] = *line.splitn(4, ' ').collect::<Vec<_>>() else {
            return None;
        };
        let age = Duration::from_millis(now.saturating_sub(at.parse().ok()?));
        let fence = Fence::new(fence.parse().ok()?)?;
        Some(Self {
            fence,
            token: token.parse().ok()?,
            age,
            run: serde_json::from_str(run).ok()?,
        })
    }

    /// Returns the line that is stored, written at this unix time in ms.
    pub fn line(&self, now: u64) -> String {
        let fence = self.fence.get();
        format!("{fence:016} {} {now} {}", self.token, self.run.json())
    }

    /// Returns the run for people: `root@web1, backup.sh, 5h ago, ran 3m 2s, exit 0`.
    pub fn told(&self) -> String {
        let Run {
            host,
            user,
            cmd,
            start,
            end,
            exit,
            signal,
            broken,
        } = &self.run;
        let [user, host, cmd] = [user, host, cmd].map(|text| escape::text(text));
        let ago = format!("{} ago", duration::show_seconds(self.age));
        if let Some(Breaker { name, reason }) = broken {
            let why = reason
                .as_ref()
                .map_or_else(String::new, |why| format!(": {}", escape::text(why)));
            return format!(
                "{user}@{host}, {cmd}, broken by {}, {ago}{why}",
                escape::text(name)
            );
        }
        let ran = duration::show_measured(Duration::from_millis(end.saturating_sub(*start)));
        let how = match (exit, signal) {
            (Some(code), _) => format!("exit {code}"),
            (None, Some(signal)) => format!("killed by {}", escape::text(signal)),
            (None, None) => "killed with its rlock".to_owned(),
        };
        format!("{user}@{host}, {cmd}, {ago}, ran {ran}, {how}")
    }

    /// Returns the success for people.
    pub fn success(&self) -> String {
        let [user, host, cmd] =
            [&self.run.user, &self.run.host, &self.run.cmd].map(|text| escape::text(text));
        format!(
            "{user}@{host} ran {cmd} with success {} ago (--once)",
            duration::show_seconds(self.age)
        )
    }
}

impl Record {
    /// Reads a record at a node whose unix time is `now`, in ms. What no rlock wrote counts as
    /// nothing.
    pub fn read(text: &str, now: u64) -> Self {
        let (run, success) = text.split_once('\n').unwrap_or_default();
        Self {
            run: Entry::read(run, now),
            success: Entry::read(success, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(run: Run, age: u64) -> Entry {
        Entry {
            fence: Fence::FIRST,
            token: Token::fresh(),
            age: Duration::from_secs(age),
            run,
        }
    }

    fn backup() -> Run {
        let [host, user, cmd] = ["web1", "root", "backup.sh"].map(str::to_owned);
        Run {
            host,
            user,
            cmd,
            start: 1_000,
            end: 183_000,
            ..Run::default()
        }
    }

    #[test]
    fn a_record_is_read_as_lock_lua_writes_it() {
        let run = entry(
            Run {
                exit: Some(0),
                ..backup()
            },
            5,
        );
        let line = format!(
            "{:016} {} 95000 {}",
            run.fence.get(),
            run.token,
            run.run.json()
        );
        let read = |text: &str| Record::read(text, 100_000);
        assert_eq!(
            read(&format!("{line}\n")),
            Record {
                run: Some(run.clone()),
                success: None
            }
        );
        assert_eq!(
            read(&format!("\n{line}")),
            Record {
                run: None,
                success: Some(run.clone())
            }
        );
        assert_eq!(
            Record::read(&format!("{line}\n"), 5).run.map(|run| run.age),
            Some(Duration::ZERO),
            "a clock was set back"
        );
        for text in ["", "\n", &line, "x\ny", "1 2 3\n4 5 6"] {
            assert_eq!(read(text), Record::default(), "{text:?}");
        }
    }

    #[test]
    fn a_run_is_told_with_its_age_its_length_and_its_end() {
        let told = |run| entry(run, 5 * 3600).told();
        let ran = "root@web1, backup.sh, 5h ago, ran 3m 2s, ";
        assert_eq!(
            told(Run {
                exit: Some(0),
                ..backup()
            }),
            format!("{ran}exit 0")
        );
        assert_eq!(
            told(Run {
                signal: Some("SIGTERM".to_owned()),
                ..backup()
            }),
            format!("{ran}killed by SIGTERM")
        );
        assert_eq!(told(backup()), format!("{ran}killed with its rlock"));
        let broken = Run {
            broken: Some("root@ops".into()),
            exit: Some(143),
            ..backup()
        };
        assert_eq!(
            told(broken.clone()),
            "root@web1, backup.sh, broken by root@ops, 5h ago"
        );
        let by = Breaker {
            name: "root@ops".to_owned(),
            reason: Some("hung\u{1b}".to_owned()),
        };
        let why = Run {
            broken: Some(by),
            ..broken
        };
        assert_eq!(
            told(why),
            "root@web1, backup.sh, broken by root@ops, 5h ago: hung\\x1b"
        );
    }

    proptest! {
        #[test]
        fn an_entry_never_exceeds_its_limit(host in ".{0,300}", user in ".{0,300}", cmd in ".{0,300}", name in ".{0,300}", why in ".{0,300}") {
            let broken = Some(Breaker { name, reason: Some(why) });
            let run = Run { host, user, cmd, start: u64::MAX, end: u64::MAX, exit: Some(255), signal: Some("SIGVTALRM".to_owned()), broken };
            prop_assert!(run.json().len() + 16 + 36 + 20 + 3 < 1024);
            prop_assert!(!entry(run, 1).told().chars().any(char::is_control));
        }
    }
}
