//! A ZooKeeper ensemble in memory, for simulations: bytes in, bytes out, with the clock passed in.
//!
//! 1. [`tree`] is what the servers agree on, [`replica`] the copy of one server with its watches, and
//!    [`frames`] the protocol.
//! 2. [`ensemble`] stands for Zab: which server leads, what it may commit, and what the others know
//!    of it. `sessions` is what a leader counts, and `requests` serves the clients.
//!
//! A leader that was replaced, and a follower that has lost its leader, go on answering pings and
//! reads, and such a leader attaches sessions too.
//!
//! Not simulated: users, access lists, observers, local sessions, servers that are added, and limits
//! of connections.

pub mod ensemble;
pub mod frames;
pub mod replica;
mod requests;
mod server;
mod sessions;
pub mod tree;
mod trouble;

pub use ensemble::{Ensemble, Step};
pub use trouble::Trouble;
