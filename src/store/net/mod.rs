//! The way to a server, whatever it speaks: TCP, and TLS over it.

pub mod dial;
pub mod tls;
