//! What came out of it, and the exit code for that: the only place with numbers.

use std::fmt;

/// How rlock ended. The codes are docs/design.md §8: sysexits(3) where it has one, flock(1) and timeout(1) where they do.
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
    /// The terminal interrupted rlock, or its command, with this signal: rlock dies of it too, so that a shell's loop
    /// stops.
    Interrupted(i32),
    /// `--max-run` was over.
    TimeIsUp,
    /// The command line is wrong.
    Usage,
    /// No majority of nodes could be reached.
    Unreachable,
    /// A bug in rlock.
    Bug,
    /// Somebody else holds the lock; the code is `--busy-code`'s.
    Busy(u8),
    /// Nodes refused us: password, ACL, certificate; the others are no majority.
    Refused,
    /// A node's URL, a file, or the set of nodes is wrong.
    Config,
    /// The lock was lost.
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

    /// The signal by which rlock is to end itself instead of exiting.
    pub fn reraised_signal(self) -> Option<i32> {
        if let Self::Interrupted(signal) = self { Some(signal) } else { None }
    }
}

/// The table of `--help`, the man page and `docs/reference/`, in the same words.
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
    ("75 (-E)", "busy: somebody else holds it (or waited too long)"),
    ("77", "nodes refused us: password, ACL, certificate, and the others are no majority"),
    ("78", "configuration: a node's URL, a file, nodes that cannot be used"),
    (
        "79",
        "the lock was lost and the command was stopped; or it was lost unnoticed and the command had just ended with 0 \
         (any other code of the command's own is passed on; with --on-lost warn always)",
    ),
    ("124", "--max-run was over"),
    ("126 / 127", "command cannot be executed / not found; the lock is released"),
    ("128+n", "rlock got signal n while it waited"),
];

/// An end that needs a word: one line for stderr, and the outcome.
#[derive(Debug)]
pub struct Failure {
    /// What came out of it.
    pub outcome: Outcome,
    /// What happened and what to do about it, on one line.
    pub message: String,
}

impl Failure {
    /// A failure with its line.
    pub fn new(outcome: Outcome, message: impl Into<String>) -> Self {
        Self { outcome, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// The outcome that an error carries; an error that carries none is a bug.
pub fn outcome_of(error: &anyhow::Error) -> Outcome {
    error.downcast_ref::<Failure>().map_or(Outcome::Bug, |failure| failure.outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            (Outcome::Busy(BUSY), 75),
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
