//! A PostgreSQL in memory, for simulations: bytes in, bytes out, with the clock passed in.
//!
//! 1. It reads the text of the shipped statements: [`syntax`] has their grammar, [`value`] what they
//!    compute with, and [`rows`] what they do to the table. [`connection`] speaks with one client.
//! 2. `server` has the sessions of one server, and `transaction` what they do: statements that wait
//!    for the lock of a row, and commits that take their time.
//! 3. [`cluster`] has the primary and its standby: who knows which commit, and who takes over.
//!
//! Not simulated: an advisory lock that a session takes twice, deadlocks that `lock_timeout` does not
//! end, and what a pooler does but to name another session.

pub mod cluster;
pub mod connection;
pub mod rows;
mod server;
pub mod syntax;
mod transaction;
mod trouble;
pub mod value;

pub use cluster::{Database, Nature, Step};
pub use transaction::greeted;
pub use trouble::{Takeover, Trouble, within};
