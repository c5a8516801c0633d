//! A node's replies to requests that are not about taking the lock.

use crate::lock::fault::Fault;
use crate::lock::instant::Instant;
use crate::lock::lease::Revoked;

/// A node's fence counter, as the node told it; `None` if it did not.
pub type Counter = Option<u64>;

/// A node's answer to a renewal or a healing.
#[derive(Clone, Debug)]
pub enum Renewal {
    /// The key was ours all along and is until then. Counts even if it comes late.
    Renewed(Instant, Counter),
    /// The key was gone and is ours again until then. Counts only if it comes while the lease stands. With the counter as it
    /// was before.
    Healed(Instant, Counter),
    /// The lock was broken, by whom. Its place is kept, until then if it was extended.
    Broken(Option<Instant>, String),
    /// The key is not ours any more. The counter is told where there is no key.
    Lost(Revoked, Counter),
    /// No answer that counts.
    Failed(Fault),
}

/// A node's answer to a release.
#[derive(Clone, Debug)]
pub enum ReleaseReply {
    /// The key was ours and is gone.
    Released,
    /// The key was not ours any more, so nothing was changed.
    NotOurs(Revoked),
    /// No answer that counts; the key expires by itself.
    Failed(Fault),
}
