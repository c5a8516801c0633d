//! The command: starting it, forwarding signals to it, and killing it before the lock can pass on.
//!
//! [`policy`] decides and is pure; the other files act.

pub mod guard;
pub mod nested;
pub mod policy;
pub mod process_tree;
pub mod signals;
pub mod spawn;
pub mod terminal;
