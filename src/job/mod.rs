//! The command: starting it, forwarding signals to it, and killing it before the lock can pass on.
//!
//! [`policy`] decides and is pure; the other files act.

pub mod exec;
pub mod facts;
pub mod guard;
pub mod inherited;
pub mod names;
pub mod nested;
pub mod policy;
pub mod polling;
pub mod process_tree;
mod signal_sets;
pub mod signals;
pub mod spawn;
pub mod terminal;
mod wait;
