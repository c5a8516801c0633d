//! The way to a server, whatever it speaks: its host, TCP, and TLS over it.

pub mod dial;
pub mod hosts;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
pub mod quorum;
pub mod tls;
#[cfg(any(feature = "etcd", feature = "postgres", feature = "zookeeper"))]
pub(in crate::store) mod unwritten;
