//! An etcd cluster in memory, for simulations: bytes in, bytes out, with the clock passed in.
//!
//! 1. [`store`] is what the members agree on, and [`connection`] speaks gRPC with one client.
//! 2. [`cluster`] stands for raft: which member leads, what it may commit, and what the others know
//!    of it. `requests` and `leases` serve the clients. A member that has been replaced, or whose disk
//!    stands still, goes on answering keepalives, as one of a version before 3.4.31 and 3.5.13 does.
//!
//! Not simulated: compaction, users, alarms, members that are added, and the error of those versions
//! by which a leader that was replaced ends leases that live.

pub mod cluster;
pub mod connection;
mod leases;
mod member;
mod requests;
pub mod store;
mod trouble;

pub use cluster::{EtcdCluster, Step};
pub use trouble::Trouble;
