//! The command: starting it, passing signals on, and seeing to it that it never outlives the lock.
//!
//! [`policy`] decides and is pure; the other files do as they are told.

pub mod event;
pub mod exec;
pub mod group;
pub mod guard;
pub mod handback;
pub mod inherited;
pub mod nested;
pub mod policy;
mod processes;
pub mod scheduling;
pub mod signals;
pub mod spawn;
pub mod terminal;
mod watchdog;
