//! What can be done to servers, connections and rlocks.

/// One thing that can be done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    Restart,
    Forget,
    Flush,
    ClockJump,
    /// What mends the one before: what was set by the wrong clock would stay.
    RightClock,
    StopServer,
    PauseWrites,
    SlowRequests,
    SlowReplies,
    KillConnections,
    Partition,
    LoseReplies,
    StopRlock,
    StopRlockLong,
    KillRlock,
    KillGuard,
    Break,
    /// A server is stopped, cut off or killed for a while. One of the two below comes of it.
    Away,
    LoseMeanwhile,
    LoseThereafter,
}

/// What no lock need be lost by, on one node or several, but by those that it is done to.
pub(crate) const HARMLESS: &[Fault] = &[
    Fault::StopServer,
    Fault::PauseWrites,
    Fault::SlowRequests,
    Fault::SlowReplies,
    Fault::KillConnections,
    Fault::Partition,
    Fault::LoseReplies,
    Fault::StopRlock,
    Fault::StopRlockLong,
    Fault::KillRlock,
    Fault::KillGuard,
    Fault::Break,
];

/// What makes a server forget a lock, or drop it early.
pub(crate) const FORGETFUL: &[Fault] = &[Fault::Forget, Fault::Flush, Fault::ClockJump];

/// A server away and a key lost on another: two of three. Nothing else here keeps a holder from noticing.
/// Repeated is what is to come more often: `Away` can seldom be done, and a holder that is killed is no use to it.
pub(crate) const DOUBLE: &[Fault] = &[
    Fault::Away,
    Fault::Away,
    Fault::Away,
    Fault::Away,
    Fault::Away,
    Fault::KillConnections,
    Fault::KillConnections,
    Fault::KillGuard,
    Fault::KillGuard,
    Fault::KillRlock,
];

impl Fault {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Restart => "server killed, back with its data",
            Self::Forget => "server killed, back empty",
            Self::Flush => "server emptied (FLUSHALL)",
            Self::ClockJump => "server's clock set",
            Self::RightClock => "server back empty, with the right clock",
            Self::StopServer => "server stopped",
            Self::PauseWrites => "writes paused",
            Self::SlowRequests => "requests to a server slow",
            Self::SlowReplies => "replies of a server slow",
            Self::KillConnections => "connections killed",
            Self::Partition => "client cut off",
            Self::LoseReplies => "replies lost",
            Self::StopRlock => "rlock stopped for a moment",
            Self::StopRlockLong => "rlock stopped past its lease",
            Self::KillRlock => "rlock killed",
            Self::KillGuard => "guard killed",
            Self::Break => "lock broken",
            Self::Away => "server away for a while",
            Self::LoseMeanwhile => "key lost, another server away",
            Self::LoseThereafter => "key lost, another server back",
        }
    }
}
