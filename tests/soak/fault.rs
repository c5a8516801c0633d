//! The faults that can be injected into servers, connections and rlocks.

use std::time::Duration;

/// A fault that was injected, by the clock of the witnesses.
pub(crate) struct Event {
    pub(crate) at: Duration,
    pub(crate) fault: Fault,
    /// The place that was hit. Of [`Fault::Revoke`] it is a token.
    pub(crate) target: String,
}

/// One fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    Restart,
    Forget,
    Flush,
    ClockJump,
    /// Mends a clock jump: keys that were set by the wrong clock would stay.
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
    /// A server is stopped, cut off or killed for a while. One of the two below follows.
    Away,
    LoseMeanwhile,
    LoseThereafter,
    /// These are of clusters and services with sentinels.
    MoveSlot,
    FailOver,
    StopPrimary,
    KillPrimary,
    SplitOff,
    StopSentinels,
    /// These are of members of a store with a quorum of its own.
    StopMember,
    KillMember,
    CutMemberOff,
    MoveLeader,
    /// The lock is taken from its holder without a warning. Its command may run until it has heard
    /// of that.
    Revoke,
    /// These are of databases.
    EndSessions,
    Promote,
}

/// Faults that cost no lock, on one node or several, except that of the rlock that is hit.
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

/// Faults of rlocks alone.
pub(crate) const OF_CLIENTS: &[Fault] = &[
    Fault::StopRlock,
    Fault::StopRlockLong,
    Fault::KillRlock,
    Fault::KillGuard,
    Fault::Break,
];

/// Faults of the lines of rlocks to servers that are addressed for each contender alone.
pub(crate) const OF_LINES: &[Fault] = &[Fault::Partition, Fault::LoseReplies];

/// Faults by which a server forgets a lock, or drops it early.
pub(crate) const FORGETFUL: &[Fault] = &[Fault::Forget, Fault::Flush, Fault::ClockJump];

/// Faults that hurt two of three servers: one is away, another loses the key. No other fault here
/// keeps the holder from noticing. Faults are repeated to be drawn more often: `Away` is seldom
/// possible, and needs a holder that was not killed.
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
    /// Returns its name in the report.
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
            Self::MoveSlot => "slot moved",
            Self::FailOver => "planned failover",
            Self::StopPrimary => "primary stopped",
            Self::KillPrimary => "primary killed",
            Self::SplitOff => "primary cut off from sentinels and replicas",
            Self::StopSentinels => "sentinels stopped",
            Self::StopMember => "member stopped",
            Self::KillMember => "member killed, back with its data",
            Self::CutMemberOff => "member cut off from the others",
            Self::MoveLeader => "leader moved",
            Self::Revoke => "lock taken away by hand",
            Self::EndSessions => "sessions ended",
            Self::Promote => "primary killed, standby promoted",
        }
    }
}
