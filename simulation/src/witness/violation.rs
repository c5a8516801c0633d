//! The promises that a world can break.

use std::fmt;

/// A broken promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Violation {
    /// Two holders at once.
    Overlap(String),
    /// A fence that is not above the one before.
    Fence(String),
    /// A run with `--once` that repeats a success.
    Repeated(String),
    /// A waiter that came later was served first.
    Order(String),
    /// The lock is free, a majority is there, and no waiter takes it.
    Idle(String),
    /// A holder has the lock at a bare majority though nothing has gone wrong.
    Bare(String),
    /// A key without an expiry, or one that is left when all is over.
    LeftKey(String),
    /// A process that does not end.
    Stuck(String),
    /// A waiter with `--supersede` that runs after a newer one came, or is ended by none.
    Superseded(String),
    /// Sockets or tasks that a process leaks.
    Leak(String),
    /// An exit code that the faults do not explain.
    Exit(String),
    /// More requests than the contract allows.
    Requests(String),
    /// A request that grants a lock later than its deadline.
    Late(String),
    /// A panic.
    Panic(String),
}

impl Violation {
    /// Returns the name of its kind: a shorter story must break the same promise.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Overlap(_) => "overlap",
            Self::Fence(_) => "fence",
            Self::Repeated(_) => "repeated",
            Self::Order(_) => "order",
            Self::Idle(_) => "idle",
            Self::Bare(_) => "bare majority",
            Self::LeftKey(_) => "left key",
            Self::Stuck(_) => "stuck",
            Self::Superseded(_) => "superseded",
            Self::Leak(_) => "leak",
            Self::Exit(_) => "exit code",
            Self::Requests(_) => "requests",
            Self::Late(_) => "late",
            Self::Panic(_) => "panic",
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Overlap(why)
        | Self::Fence(why)
        | Self::Repeated(why)
        | Self::Order(why)
        | Self::Idle(why)
        | Self::Bare(why)
        | Self::LeftKey(why)
        | Self::Stuck(why)
        | Self::Superseded(why)
        | Self::Leak(why)
        | Self::Exit(why)
        | Self::Requests(why)
        | Self::Late(why)
        | Self::Panic(why)) = self;
        write!(f, "{}: {why}", self.kind())
    }
}
