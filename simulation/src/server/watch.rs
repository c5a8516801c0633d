//! The state of a sentinel: the service that it watches, and who it takes for its primary.

use super::WallMicros;

/// Host and port of a server.
pub type Address = (String, u16);

/// The service that a sentinel watches.
#[derive(Clone, Debug)]
pub struct Watch {
    /// Its name.
    pub service: String,
    /// The primary that it names.
    pub named: Address,
    /// The primary whose state it shows. The sentinel that leads a failover names the new primary
    /// before it shows it.
    pub shown: Address,
    /// Number of the failover that made `named` the primary.
    pub epoch: u64,
    /// Since when the sentinel has seen `shown` as a primary.
    pub since: WallMicros,
    /// Time after which it takes a silent server for dead, in ms.
    pub down_after: u64,
    /// Number of other sentinels that it knows.
    pub others: usize,
}
