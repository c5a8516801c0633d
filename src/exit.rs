//! How rlock ends, and the exit code for it: the only place with numbers.

use std::fmt;
use std::io;

use nix::errno::Errno;
use serde_json::{Map, Value};

use crate::lock::fault::FaultKind;
use crate::lock::key::Keys;

/// How rlock ends. The codes are those of sysexits(3) where it has one, and of flock(1) and
/// timeout(1) where they do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All is well (the subcommands that run no command).
    Done,
    /// The answer is no (the subcommands that ask something).
    No,
    /// The command ran and exited with this code.
    Exited(u8),
    /// The command ran and was ended by this signal.
    Killed(i32),
    /// The terminal interrupted rlock, or its command, with this signal. rlock re-raises it, so
    /// that a shell's loop stops.
    Interrupted(i32),
    /// `--max-run` is over.
    TimeIsUp,
    /// The command line is wrong.
    Usage,
    /// No majority of nodes could be reached.
    Unreachable,
    /// A bug in rlock.
    Bug,
    /// The system refused rlock something, such as a descriptor or memory.
    System,
    /// Output could not be written.
    Output,
    /// Another client holds the lock; the code is `--busy-code`.
    Busy(u8),
    /// A waiter came later, and both have `--supersede`.
    Superseded,
    /// Nodes refused rlock (password, ACL, certificate), and the others are no majority.
    Refused,
    /// A node's URL, a file, or the set of nodes is wrong.
    Config,
    /// The lock was lost. `job::policy` decides that while the command runs. Without a command the run
    /// decides it, and after the command's end the nodes' answers to the release do.
    Lost,
    /// The command cannot be executed.
    CannotExecute,
    /// The command was not found.
    NotFound,
    /// rlock got this signal while it waited.
    Signalled(i32),
}

/// The default of `--busy-code`.
pub const BUSY: u8 = 75;

impl Outcome {
    /// The exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::No => 1,
            Self::Exited(code) | Self::Busy(code) => code,
            Self::Usage => 64,
            Self::Unreachable => 69,
            Self::Bug => 70,
            Self::System => 71,
            Self::Output => 74,
            Self::Superseded => 76,
            Self::Refused => 77,
            Self::Config => 78,
            Self::Lost => 79,
            Self::TimeIsUp => 124,
            Self::CannotExecute => 126,
            Self::NotFound => 127,
            Self::Killed(signal) | Self::Interrupted(signal) | Self::Signalled(signal) => {
                u8::try_from(128 + signal).unwrap_or(u8::MAX)
            }
        }
    }

    /// Returns the signal that rlock re-raises instead of exiting.
    pub fn reraised_signal(self) -> Option<i32> {
        if let Self::Interrupted(signal) = self {
            Some(signal)
        } else {
            None
        }
    }
}

/// The outcome of nodes whose faults leave no majority, or of a set of nodes that cannot hold a lock.
impl From<FaultKind> for Outcome {
    fn from(kind: FaultKind) -> Self {
        match kind {
            FaultKind::Refused => Self::Refused,
            FaultKind::Unfit => Self::Config,
            FaultKind::Short => Self::System,
            FaultKind::Unavailable | FaultKind::Unknown => Self::Unreachable,
        }
    }
}

/// The exit codes, in the words of `--help`, the man page and `docs/reference/`.
pub const TABLE: &[(&str, &str)] = &[
    ("the command's", "it ran; 128+n if signal n ended it"),
    (
        "1",
        "the answer is no: not the holder's token, or too little left (renew, release, check), free (inspect), not broken \
         (break); or there is a warning (doctor)",
    ),
    ("64", "usage"),
    ("69", "no majority of nodes could be reached"),
    ("70", "a bug in rlock"),
    (
        "71",
        "the system refused rlock something: file descriptors, memory, processes",
    ),
    ("74", "output could not be written"),
    (
        "75 (-E)",
        "busy: another client holds it, and --wait is over",
    ),
    (
        "76",
        "superseded: another run with --supersede came later, while this one waited",
    ),
    (
        "77",
        "refused: password, ACL, certificate; the other nodes are no majority",
    ),
    (
        "78",
        "configuration: a node's URL, a file, nodes that cannot be used",
    ),
    (
        "79",
        "the lock was lost: the command was stopped, or had just ended with 0. Any other code of its own is passed on, \
         with --on-lost warn each",
    ),
    ("124", "--max-run is over"),
    (
        "126 / 127",
        "command cannot be executed / not found; the lock is released",
    ),
    ("128+n", "rlock got signal n while it waited"),
];

/// An end with a line for stderr.
#[derive(Debug)]
pub struct Failure {
    pub outcome: Outcome,
    /// The failure, its place and its remedy, on one line.
    pub message: String,
    /// The locks that it is about.
    pub keys: Option<Keys>,
    /// Its data in `--log json`, beside the key and the exit code.
    pub fields: Map<String, Value>,
}

impl Failure {
    pub fn new(outcome: Outcome, message: impl Into<String>) -> Self {
        Self {
            outcome,
            message: message.into(),
            keys: None,
            fields: Map::new(),
        }
    }

    /// The failure of work on one lock or several: `key: why`.
    pub fn about(keys: impl Into<Keys>, outcome: Outcome, why: impl Into<String>) -> Self {
        Self::new(outcome, why).of(keys)
    }

    /// The same as one of work on these locks.
    #[must_use]
    pub fn of(self, keys: impl Into<Keys>) -> Self {
        let keys = keys.into();
        Self {
            message: format!("{keys}: {}", self.message),
            keys: Some(keys),
            ..self
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Returns the outcome that an error carries. Without one, an error of a system call is the
/// system's, and any other is a bug.
pub fn outcome_of(error: &anyhow::Error) -> Outcome {
    match error.downcast_ref::<Failure>() {
        Some(failure) => failure.outcome,
        None if error_of_system(error).is_some() => Outcome::System,
        None => Outcome::Bug,
    }
}

/// Returns the error of a system call that `error` passes on, if it says nothing else.
pub fn error_of_system(error: &anyhow::Error) -> Option<io::Error> {
    let code = |cause: &(dyn std::error::Error + 'static)| {
        let code = cause
            .downcast_ref::<io::Error>()
            .and_then(io::Error::raw_os_error);
        code.or_else(|| cause.downcast_ref::<Errno>().map(|errno| *errno as i32))
    };
    let code = if error.is::<Failure>() {
        None
    } else {
        error.chain().find_map(code)
    };
    code.map(io::Error::from_raw_os_error)
}

/// Errors of a system that lacks something: the same call may succeed later, or with higher limits.
const SHORTAGES: [i32; 5] = [
    libc::EMFILE,
    libc::ENFILE,
    libc::ENOMEM,
    libc::EAGAIN,
    libc::ENOBUFS,
];

/// Whether the system lacks what `error` is about.
pub fn is_shortage(error: &io::Error) -> bool {
    error
        .raw_os_error()
        .is_some_and(|code| SHORTAGES.contains(&code))
}

/// Tells an error of a system call, and the remedy if the system lacks something.
pub fn told_of_system(error: &io::Error) -> String {
    let remedy = "; raise the limits of descriptors, processes and memory (ulimit -a)";
    format!("{error}{}", if is_shortage(error) { remedy } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_system_call_is_no_bug() {
        for error in [
            anyhow::Error::from(io::Error::from_raw_os_error(libc::EMFILE)),
            Errno::ENOMEM.into(),
        ] {
            assert_eq!(outcome_of(&error), Outcome::System);
            assert_eq!(outcome_of(&error.context("the guard")), Outcome::System);
        }
        assert_eq!(
            outcome_of(&io::Error::other("a surprise").into()),
            Outcome::Bug
        );
        let failure = Failure::new(
            Outcome::Config,
            io::Error::from_raw_os_error(libc::EMFILE).to_string(),
        );
        assert_eq!(outcome_of(&failure.into()), Outcome::Config);
    }

    #[test]
    fn every_outcome_has_the_code_of_the_design() {
        let codes = [
            (Outcome::Done, 0),
            (Outcome::No, 1),
            (Outcome::Exited(7), 7),
            (Outcome::Killed(15), 143),
            (Outcome::Usage, 64),
            (Outcome::Unreachable, 69),
            (Outcome::Bug, 70),
            (Outcome::System, 71),
            (Outcome::Output, 74),
            (Outcome::Busy(BUSY), 75),
            (Outcome::Superseded, 76),
            (Outcome::Refused, 77),
            (Outcome::Config, 78),
            (Outcome::Lost, 79),
            (Outcome::TimeIsUp, 124),
            (Outcome::Interrupted(2), 130),
            (Outcome::CannotExecute, 126),
            (Outcome::NotFound, 127),
            (Outcome::Signalled(2), 130),
        ];
        for (outcome, code) in codes {
            assert_eq!(outcome.code(), code, "{outcome:?}");
        }
    }
}
