//! The rules that the search can leave out, and the bounds of the search.

use super::state::NODES;

/// A rule that can be left out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// A fence that a majority does not know is confirmed there before it counts.
    Confirm,
    /// A lease that is over when the last grant arrives is no lease.
    Tenure,
    /// A node that restarted grants nothing for the length of the longest lease.
    RestartGuard,
    /// The command is dead when the lease is over.
    DeadByDeadline,
}

/// All rules, or all but one.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    without: Option<Rule>,
}

pub(super) const ALL: Rules = Rules { without: None };

impl Rules {
    pub(super) fn without(rule: Rule) -> Self {
        Self { without: Some(rule) }
    }

    pub(super) fn have(self, rule: Rule) -> bool {
        self.without != Some(rule)
    }
}

/// Bounds of the search.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) clients: usize,
    /// Length of the lease in seconds.
    pub(super) ttl: u64,
    /// Length of a history in seconds.
    pub(super) horizon: u64,
    /// Attempts of each client.
    pub(super) attempts: u8,
    /// Renewals and healings together, of each client.
    pub(super) upkeep: u8,
    /// Restarts of nodes.
    pub(super) restarts: u8,
    /// Fence counters of the nodes at the beginning.
    pub(super) counters: [u64; NODES],
    /// Most steps of a history.
    pub(super) depth: u32,
}

pub(super) const UNBOUNDED: u32 = u32::MAX;
