//! The events of a lock that are told on stderr, one row each: level, name, data, and the sentence.
//!
//! The last line of a run that fails is a [`crate::exit::Failure`]. Words inside the sentences come
//! from the values that they are about: an occupant, a blocker or a fault of `lock`.
//!
//! Text and JSON are two views of one event: the sentence is the text, and the `message` of the
//! JSON object. The names and data are an interface that scripts read: they may be added to, not
//! changed.

use std::io;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Map, Value, json};

use super::Level;
use super::status_text::{Status, ahead, at_node, fields_of, holder, now, occupied, told};
use crate::exit::Outcome;
use crate::job::policy::{ExitStatus, Reaction};
use crate::lock::backoff::{FIRST_POLL, LONGEST_POLL};
use crate::lock::fault::Fault;
use crate::lock::fence::Fence;
use crate::lock::last::Entry;
use crate::lock::lease::Revoked;
use crate::lock::occupant::Occupant;
use crate::lock::waiting::Notice;
use crate::text::duration::{millis, show_rounded, show_until};

/// A change of a lock, or of its command.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// `--note` exceeds the limit, in bytes.
    NoteCut { limit: usize },
    /// A step of a wait.
    Wait(&'a Notice),
    /// Something takes long.
    Progress { status: &'a Status<'a> },
    /// A wait that was shown in plain lines has ended with the lock.
    WaitOver { after: Duration },
    /// The processes that the command left behind are being ended (`--contain`).
    EndingLeftovers { count: usize },
    /// A node refuses rlock; a majority of the others answers.
    Refused { node: &'a str, fault: &'a Fault },
    /// The lock was taken. `left`: time for which it is held, if no process renews it.
    Acquired {
        fence: Fence,
        after: Duration,
        left: Option<Duration>,
    },
    /// The command runs under the lock of an outer rlock.
    Nested { occupant: &'a Occupant },
    /// The command was started.
    Running { pid: i32 },
    /// A signal was forwarded to the command.
    Forwarded { signal: Signal },
    /// The guard's word: rlock was killed, and then the command.
    RlockKilled,
    /// The guard was killed or stopped, and replaced.
    GuardReplaced,
    /// The lease was extended.
    Renewed { left: Duration },
    /// A renewal failed at one node and is repeated.
    RenewalFailed { node: &'a str, why: &'a str },
    /// No majority has renewed the lock for a time, and it is lost after another.
    RenewalsFail {
        since: Duration,
        left: Duration,
        why: &'a str,
    },
    /// A lock that was kept while another was waited for is lost. All are released, and the wait
    /// begins anew.
    LostWhileWaiting,
    /// The lock was lost, or can no longer be renewed in time.
    Lost { why: &'a str, reaction: Reaction },
    /// The release found that the lock had been lost.
    LostUnnoticed { how: Revoked },
    /// `--max-run` is over.
    TimeIsUp,
    /// The command has ended, and nested runs still need the lock.
    Lingering,
    /// A nested run outlives the time in which it had to end.
    NestedUnkillable,
    /// Killed processes are still there.
    Unkillable { group: i32 },
    /// The command has ended. `outer`: the lock is the outer rlock's, and stays held.
    Ended {
        outer: bool,
        status: Option<ExitStatus>,
        run: Duration,
    },
    /// rlock exits.
    Exit { outcome: Outcome },
    /// `--once`: the command is not run, because this run has succeeded.
    RunBefore { run: &'a Entry },
    /// `--once`: too few nodes have confirmed that they know of the success.
    SuccessUnknown,
    /// The command has ended, and the lock stays for this time.
    Parked { left: Duration },
    /// The lock was given back.
    Released,
    /// The release found no lock of this rlock.
    NothingToRelease,
    /// A node did not confirm the release.
    NotReleased { node: &'a str, why: &'a str },
    /// `check`: the lock is the caller's.
    Checked,
    /// `break --yes`: the holder whose lock is broken.
    Holder { occupant: &'a Occupant },
    /// `break`: a tombstone is in the lock's place.
    Tombstoned,
    /// `break`: the key was deleted.
    KeyDeleted,
    /// `break --yes`: the run whose success is forgotten.
    Success { run: &'a Entry },
    /// `break`: the record of a success was deleted.
    Forgotten,
    /// `break`: the holder has stopped its command and released the lock. `parked`: it stays for
    /// this time.
    HolderReleased {
        after: Duration,
        parked: Option<Duration>,
    },
    /// `--metrics-dir`: a file could not be written.
    MetricsUnwritten {
        directory: &'a str,
        why: &'a io::Error,
    },
    /// Lines found no room in the queue to stderr.
    Dropped { count: u64 },
    /// rlock panicked at `place`.
    Bug { place: &'a str },
}

/// An event as it is told.
pub(super) struct Told {
    pub(super) level: Level,
    /// The value of `event` in `--log json`.
    pub(super) name: &'static str,
    /// Its data in `--log json`, beside ts, level, key and message.
    pub(super) data: Map<String, Value>,
    pub(super) words: String,
}

fn info(name: &'static str, data: Value, words: impl Into<String>) -> Told {
    let data = if let Value::Object(data) = data {
        data
    } else {
        Map::new()
    };
    Told {
        level: Level::Info,
        name,
        data,
        words: words.into(),
    }
}

fn warning(name: &'static str, data: Value, words: impl Into<String>) -> Told {
    Told {
        level: Level::Warning,
        ..info(name, data, words)
    }
}

fn error(name: &'static str, data: Value, words: impl Into<String>) -> Told {
    Told {
        level: Level::Error,
        ..info(name, data, words)
    }
}

impl Event<'_> {
    #[expect(clippy::too_many_lines, reason = "one row for each event")]
    pub(super) fn told(&self) -> Told {
        const NONE: Value = Value::Null;
        match *self {
            Self::NoteCut { limit } => warning(
                "note",
                json!({ "limit": limit }),
                format!("--note is cut to the {limit} bytes that are stored"),
            ),
            Self::Wait(notice) => of_wait(notice),
            Self::Progress { status } => info("waiting", status.fields().into(), status.line()),
            Self::WaitOver { after } => info(
                "acquired",
                json!({ "wait_ms": millis(after) }),
                format!("acquired after {}", show_rounded(after)),
            ),
            Self::EndingLeftovers { count } => {
                let processes = if count == 1 {
                    "a process".to_owned()
                } else {
                    format!("{count} processes")
                };
                info(
                    "leftovers",
                    json!({ "count": count }),
                    format!("ending {processes} that the command left behind"),
                )
            }
            Self::Refused { node, fault } => refused(node, fault),
            Self::Acquired { fence, after, left } => {
                let held = left.map_or_else(String::new, |left| {
                    format!("; held for {}", show_until(left, now()))
                });
                let words = format!(
                    "acquired, fence {fence}, after {}{held}",
                    show_rounded(after)
                );
                let mut data = json!({ "fence": fence.get(), "wait_ms": millis(after) });
                if let Some(left) = left {
                    data["left_ms"] = millis(left).into();
                }
                info("acquired", data, words)
            }
            Self::Nested { occupant } => {
                let words = format!("running under the outer lock, {}", occupant.named());
                info("nested", holder(occupant).into(), words)
            }
            Self::Running { pid } => info(
                "running",
                json!({ "pid": pid }),
                format!("running, pid {pid}"),
            ),
            Self::Forwarded { signal } => {
                let words = format!("{signal} forwarded to the command");
                info("signal", json!({ "signal": signal.as_str() }), words)
            }
            Self::RlockKilled => error(
                "killed",
                NONE,
                "rlock was killed; the command was killed; the lock is being given back",
            ),
            Self::GuardReplaced => info(
                "guard",
                NONE,
                "the guard was killed or stopped; it was replaced",
            ),
            Self::Renewed { left } => info(
                "renewed",
                json!({ "left_ms": millis(left) }),
                format!("renewed for {}", show_until(left, now())),
            ),
            Self::RenewalFailed { node, why } => info(
                "trouble",
                at_node(node, why).into(),
                format!("{node}: {why}; trying again"),
            ),
            Self::RenewalsFail { since, left, why } => {
                let (span, left_of) = (show_rounded(since), show_rounded(left));
                warning(
                    "failing",
                    json!({ "reason": why, "since_ms": millis(since), "left_ms": millis(left) }),
                    format!(
                        "renewals have failed for {span}: {why}; it is lost in {left_of} unless one succeeds"
                    ),
                )
            }
            Self::LostWhileWaiting => {
                let words = "lost the lock while waiting for another; all are released, and the wait begins anew";
                warning("anew", NONE, words)
            }
            Self::Lost { why, reaction } => {
                let reaction = match reaction {
                    Reaction::Signalled => "the command is being stopped",
                    Reaction::Killed => "the command was killed",
                    Reaction::Ignored => {
                        "the command goes on (--on-lost warn) and may not be alone"
                    }
                };
                error(
                    "lost",
                    json!({ "reason": why }),
                    format!("lost the lock: {why}; {reaction}"),
                )
            }
            Self::LostUnnoticed { how } => {
                let how = match how {
                    Revoked::Missing => "was missing",
                    Revoked::TakenOver => "belonged to another client",
                };
                let then =
                    "when the command had ended; another command may have run at the same time";
                error(
                    "lost",
                    json!({ "reason": how }),
                    format!("lost the lock unnoticed: its key {how} {then}"),
                )
            }
            Self::TimeIsUp => error(
                "max-run",
                NONE,
                "--max-run is over; the command is being stopped",
            ),
            Self::Lingering => {
                let words = "the command has ended; keeping the lock until the nested rlock runs have ended";
                info("lingering", NONE, words)
            }
            Self::NestedUnkillable => {
                let why = "a nested rlock run must kill its command and has not ended";
                error(
                    "unkillable",
                    NONE,
                    format!("{why}; the lock is kept until it has"),
                )
            }
            Self::Unkillable { group } => {
                let why = format!("process group {group} was killed and is still there");
                error(
                    "unkillable",
                    json!({ "pid": group }),
                    format!("{why}; the lock is kept until it is gone"),
                )
            }
            Self::Ended { outer, status, run } => {
                let (code, signal) = status.map_or((None, None), ExitStatus::parts);
                let next = if outer {
                    "the outer rlock keeps the lock"
                } else {
                    "giving the lock back"
                };
                let data = json!({ "exit_code": code, "signal": signal, "run_ms": millis(run) });
                info("ended", data, format!("the command has ended; {next}"))
            }
            Self::Exit { outcome } => info(
                "exit",
                json!({ "code": outcome.code() }),
                format!("exit code {}", outcome.code()),
            ),
            Self::RunBefore { run } => {
                info("once", success(run), format!("not run: {}", run.success()))
            }
            Self::SuccessUnknown => {
                let words = "no majority of the nodes knows of the success: another run with --once may repeat it";
                warning("unconfirmed", NONE, words)
            }
            Self::Parked { left } => {
                let words = format!(
                    "parked: the lock stays for another {}",
                    show_until(left, now())
                );
                info("parked", json!({ "left_ms": millis(left) }), words)
            }
            Self::Released => info("released", NONE, "released"),
            Self::NothingToRelease => info(
                "released",
                NONE,
                "nothing to release: the lock had already ended",
            ),
            Self::NotReleased { node, why } => {
                let then = "the lock ends with its lease at the latest";
                let words = format!("{node}: release not confirmed ({why}); {then}");
                warning("unreleased", at_node(node, why).into(), words)
            }
            Self::Checked => info("checked", NONE, "the lock is the caller's"),
            Self::Holder { occupant } => {
                warning("holder", holder(occupant).into(), occupied(occupant))
            }
            Self::Tombstoned => info(
                "broken",
                NONE,
                "broken; the holder learns it at its next renewal at the latest",
            ),
            Self::KeyDeleted => warning("broken", NONE, "broken: the key was deleted"),
            Self::Success { run } => warning("once", success(run), run.success()),
            Self::Forgotten => warning(
                "broken",
                NONE,
                "broken: the next run with --once runs its command again",
            ),
            Self::HolderReleased { after, parked } => {
                let stays = parked.map_or_else(String::new, |left| {
                    format!(
                        "; it stays parked for another {} (--lock-delay)",
                        show_rounded(left)
                    )
                });
                let words = format!(
                    "broken: its holder released it after {}{stays}",
                    show_rounded(after)
                );
                warning(
                    "broken",
                    json!({ "wait_ms": millis(after), "left_ms": parked.map(millis) }),
                    words,
                )
            }
            Self::MetricsUnwritten { directory, why } => {
                let words = format!("--metrics-dir {directory}: {why}; metrics are missing");
                warning(
                    "metrics",
                    json!({ "path": directory, "reason": why.to_string() }),
                    words,
                )
            }
            Self::Dropped { count } => {
                let lines = if count == 1 { "line was" } else { "lines were" };
                let words = format!("{count} {lines} dropped: stderr was not read");
                warning("dropped", json!({ "count": count }), words)
            }
            Self::Bug { place } => {
                let words = format!(
                    "a bug in rlock {} at {place}: please report it",
                    crate::VERSION
                );
                error(
                    "bug",
                    json!({ "place": place, "code": Outcome::Bug.code() }),
                    words,
                )
            }
        }
    }
}

fn of_wait(notice: &Notice) -> Told {
    match notice {
        Notice::Waiting {
            blocked,
            ahead: rank,
        } => {
            let mut fields = fields_of(blocked);
            fields.extend(rank.map(|rank| ("ahead".to_owned(), rank.into())));
            info(
                "waiting",
                fields.into(),
                format!("waiting{}: {}", ahead(*rank), told(blocked)),
            )
        }
        Notice::WaitingForever(blocked) => warning(
            "waiting",
            fields_of(blocked).into(),
            format!("waiting: {}", told(blocked)),
        ),
        Notice::TryingAgain(blocked) | Notice::MajorityGone(blocked) => {
            let tell = if matches!(notice, Notice::MajorityGone(_)) {
                warning
            } else {
                info
            };
            tell(
                "unreachable",
                fields_of(blocked).into(),
                format!("{}; trying again", told(blocked)),
            )
        }
        Notice::OuterSilent(occupant) => {
            let words = format!(
                "waiting: the outer rlock does not answer: {}",
                occupant.named()
            );
            warning("silent", holder(occupant).into(), words)
        }
        Notice::Refused(refusal) => refused(&refusal.name, &refusal.fault),
        Notice::Unguarded { node, why } => {
            let words = format!(
                "{node}: it does not tell when it started, so a restart of it goes unseen: {why}"
            );
            warning("unguarded", at_node(node, why).into(), words)
        }
        Notice::NoQueue { node, why } => {
            let words = format!("{node}: cannot join the queue, waiting without a place: {why}");
            warning("unqueued", at_node(node, why).into(), words)
        }
        Notice::NoWakeups { node } => {
            let (first, last) = (show_rounded(FIRST_POLL), show_rounded(LONGEST_POLL));
            let words = format!(
                "{node}: SUBSCRIBE to rlock:wake:* is not allowed; polling every {first} to {last} instead"
            );
            warning(
                "unheard",
                json!({ "node": node, "poll_ms": millis(LONGEST_POLL) }),
                words,
            )
        }
    }
}

fn refused(node: &str, fault: &Fault) -> Told {
    warning(
        "refused",
        at_node(node, &fault.why).into(),
        format!("{node}: {}", fault.as_missing_vote()),
    )
}

/// The run that has succeeded, and when.
fn success(Entry { run, age, .. }: &Entry) -> Value {
    json!({ "user": run.user, "host": run.host, "cmd": run.cmd, "age_ms": millis(*age) })
}
