//! The way to a server, whatever it speaks: its host, TCP, and TLS over it.

pub mod dial;
#[cfg(any(feature = "etcd", feature = "sql", feature = "zookeeper"))]
pub(in crate::store) mod hint_queue;
pub mod hosts;
mod last_words;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
pub mod quorum;
#[cfg(any(feature = "etcd", feature = "sql"))]
pub(in crate::store) mod task;
pub mod tls;
#[cfg(any(feature = "etcd", feature = "sql", feature = "zookeeper"))]
pub(in crate::store) mod unwritten;
