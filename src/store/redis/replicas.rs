//! Replicas that must have a write before it counts: WAIT, or with `--fsync` WAITAOF.
//!
//! 1. It is sent on the connection on which the script's reply came: the server waits for what that
//!    client has written.
//! 2. It is never sent before that reply. What stands behind a WAIT that blocks is lost if rlock
//!    goes: it could be the release.
//! 3. While it blocks, other requests take another connection (`pool`).

use std::time::Duration;

use redis::{Cmd, Value};

use super::connection::Connection;
use super::state::Effect;
use crate::clock;
use crate::lock::instant::Instant;
use crate::store::{Fault, FaultKind};
use crate::text::duration::millis;

/// Copies of a write without which it does not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copies {
    /// Number of replicas that must have it.
    pub replicas: u16,
    /// Whether the server and these replicas must have it in their append-only files.
    pub fsync: bool,
}

/// Returns what is lacking of `copies` of the last write on `link`; `None` if it is nothing. The
/// exchange ends at `ends`.
pub(super) async fn lacking(copies: Copies, link: &Connection, ends: Instant) -> Option<Fault> {
    let rest = ends.since(clock::now());
    // The answer then comes in time to say what is lacking.
    let said = link
        .send(&command(copies, rest / 4 * 3), Effect::Waits)
        .await;
    judged(copies, said)
}

fn command(copies: Copies, time: Duration) -> Cmd {
    let mut command = redis::cmd(if copies.fsync { "WAITAOF" } else { "WAIT" });
    if copies.fsync {
        command.arg(1);
    }
    // 0 would be without end.
    command.arg(copies.replicas).arg(millis(time).max(1));
    command
}

/// Returns the fault that a reply shows. The key may be set, so it is of kind unknown, or one that
/// no time mends.
fn judged(copies: Copies, said: Result<Value, Fault>) -> Option<Fault> {
    let needed = i64::from(copies.replicas);
    let unknown = |why: String| Some(Fault::new(FaultKind::Unknown, why));
    match said {
        Ok(Value::Int(have)) if !copies.fsync => too_few(have, needed, "the write"),
        Ok(Value::Array(counts)) if copies.fsync => match counts.as_slice() {
            [Value::Int(0), Value::Int(_)] => {
                unknown("it has not written the lock to disk in time (--fsync)".to_owned())
            }
            [Value::Int(_), Value::Int(have)] => too_few(*have, needed, "the write on disk"),
            _ => unknown("unexpected reply to WAITAOF".to_owned()),
        },
        Ok(_) => unknown(format!(
            "unexpected reply to {}",
            if copies.fsync { "WAITAOF" } else { "WAIT" }
        )),
        Err(fault) if fault.kind == FaultKind::Refused => Some(fault),
        Err(fault) if fault.kind == FaultKind::Unfit => Some(unfit(copies, fault)),
        Err(fault) => Some(Fault {
            kind: FaultKind::Unknown,
            ..fault
        }),
    }
}

fn too_few(have: i64, needed: i64, what: &str) -> Option<Fault> {
    let why = || format!("only {have} of {needed} replicas have {what} (--wait-replicas)");
    (have < needed).then(|| Fault::new(FaultKind::Unknown, why()).with_remedy("see its replicas"))
}

fn unfit(copies: Copies, fault: Fault) -> Fault {
    if fault.why.contains("appendonly is disabled") {
        let what = "--fsync needs an append-only file there";
        Fault::unfit(what, "CONFIG SET appendonly yes")
    } else if !fault.why.to_ascii_lowercase().contains("unknown command") {
        fault
    } else if copies.fsync {
        let what = "it does not know WAITAOF, which --fsync needs";
        Fault::unfit(what, "take Redis 7.2 or later")
    } else {
        let what = "it does not know WAIT, which --wait-replicas needs";
        Fault::unfit(what, "name the server itself")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Copies = Copies {
        replicas: 2,
        fsync: false,
    };
    const ON_DISK: Copies = Copies {
        replicas: 2,
        fsync: true,
    };

    fn words(command: &Cmd) -> String {
        let words = command.args_iter().map(|arg| match arg {
            redis::Arg::Simple(word) => String::from_utf8_lossy(word).into_owned(),
            _ => "?".to_owned(),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_server_never_waits_without_end() {
        assert_eq!(
            words(&command(PLAIN, Duration::from_millis(700))),
            "WAIT 2 700"
        );
        assert_eq!(words(&command(PLAIN, Duration::from_micros(3))), "WAIT 2 1");
        assert_eq!(words(&command(ON_DISK, Duration::ZERO)), "WAITAOF 1 2 1");
    }

    #[test]
    fn a_write_counts_once_enough_replicas_have_it() {
        let kind = |copies, said| judged(copies, Ok(said)).map(|fault| fault.kind);
        for (have, lacks) in [(0, true), (1, true), (2, false), (3, false)] {
            let lacks = lacks.then_some(FaultKind::Unknown);
            assert_eq!(kind(PLAIN, Value::Int(have)), lacks, "{have}");
            let on_disk = |local| Value::Array(vec![Value::Int(local), Value::Int(have)]);
            assert_eq!(kind(ON_DISK, on_disk(1)), lacks, "{have}");
            assert_eq!(
                kind(ON_DISK, on_disk(0)),
                Some(FaultKind::Unknown),
                "{have}"
            );
        }
        for said in [Value::Okay, Value::Nil, Value::Array(vec![])] {
            assert_eq!(kind(PLAIN, said.clone()), Some(FaultKind::Unknown));
            assert_eq!(kind(ON_DISK, said), Some(FaultKind::Unknown));
        }
        assert_eq!(kind(ON_DISK, Value::Int(2)), Some(FaultKind::Unknown));
    }

    #[test]
    fn what_a_server_cannot_do_is_unfit_and_a_demotion_is_unknown() {
        use FaultKind::{Refused, Unavailable, Unfit, Unknown};
        for (copies, kind, why, wanted, words) in [
            (
                ON_DISK,
                Unfit,
                "ERR unknown command 'WAITAOF', with args",
                Unfit,
                "Redis 7.2",
            ),
            (
                PLAIN,
                Unfit,
                "ERR unknown command `WAIT`",
                Unfit,
                "does not know WAIT,",
            ),
            (
                ON_DISK,
                Unfit,
                "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
                Unfit,
                "--fsync",
            ),
            (
                PLAIN,
                Refused,
                "NOPERM this user has no permissions to run the 'wait' command",
                Refused,
                "NOPERM",
            ),
            (
                PLAIN,
                Unavailable,
                "UNBLOCKED force unblock",
                Unknown,
                "UNBLOCKED",
            ),
            (PLAIN, Unknown, "broken pipe", Unknown, "broken pipe"),
        ] {
            let fault = judged(copies, Err(Fault::new(kind, why))).unwrap();
            assert!(
                fault.kind == wanted && fault.why.contains(words),
                "{why}: {fault:?}"
            );
        }
    }
}
