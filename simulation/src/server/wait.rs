//! A client that waits until replicas have what the server has written.

use std::time::Duration;

use super::peers::Peer;

/// A client that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// The client.
    pub peer: Peer,
    /// Number of replicas that it waits for.
    pub replicas: usize,
    /// Time after which it is answered in any case.
    pub limit: Duration,
    /// Number of the server's writes until then, which the replicas must have.
    pub writes: u64,
}
