//! The rules of holding a lock: pure, no I/O.
//!
//! Nothing here reads a clock, a socket or the environment: every instant, every random number and
//! every reply is passed in, so each rule can be tested exhaustively. Nothing here knows tokio or
//! redis.

pub mod backoff;
pub mod ballot;
pub mod blocker;
pub mod census;
pub mod details;
pub mod fault;
pub mod fence;
pub mod instant;
pub mod key;
pub mod last;
pub mod lease;
pub mod messages;
pub mod mode;
pub mod occupant;
pub mod outer;
pub mod queue;
pub mod quorum;
pub mod remains;
pub mod restart;
pub mod schedule;
pub mod token;
pub mod waiting;
