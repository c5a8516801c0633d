//! Text that people type or read, with no rule of locks in it: durations, patterns, and what is unfit for a terminal.

pub mod duration;
pub mod escape;
pub mod glob;
pub mod table;
