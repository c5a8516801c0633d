//! The replies of a node, as `redlock` and the rules read them.

use super::blocker::Reservation;
use super::fault::Fault;
use super::fence::Fence;
use super::identity::Identity;
use super::instant::Instant;
use super::lease::Revoked;
use super::occupant::Occupant;
use super::queue::{QueuePosition, Waiter};

/// A node's answer to a request for the lock, and its identity.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Whether the key is ours now.
    pub vote: Vote,
    /// The server that gave it.
    pub server: ServerInfo,
    /// The waiter's place in the queue.
    pub place: Option<QueuePosition>,
}

impl From<Vote> for Answer {
    fn from(vote: Vote) -> Self {
        Self { vote, server: ServerInfo::None, place: None }
    }
}

/// A node's word on its own server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerInfo {
    /// None: it was not asked, or gave no answer at all.
    None,
    /// Its identity.
    Told(Identity),
    /// The ACL denies it to us; in the server's words.
    Forbidden(String),
}

/// A node's vote. *Unknown is not no*: after a failure the key may be set.
#[derive(Clone, Debug)]
pub enum Vote {
    /// The key is ours.
    Granted {
        /// The end of the grant, certainly.
        until: Instant,
        /// The node's fence for this grant.
        fence: Fence,
        /// The index of the slot; 0 without slots.
        index: u16,
    },
    /// The key is another client's.
    Held(Box<Occupant>),
    /// The key is free, but it is another waiter's turn.
    Reserved(Box<Reservation>),
    /// This waiter has come later, and both have `--supersede`; `None` if the entry is not rlock's. Nothing was granted.
    Superseded(Option<Box<Waiter>>),
    /// The key is free, but the node has restarted and may have forgotten its holder. Nothing was changed.
    Restarted,
    /// The node failed, and says or implies what may have happened to the key.
    Failed(Fault),
}

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
    /// There is a tombstone in the key's place: the end of it, if the request extended it, and who broke the lock.
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
