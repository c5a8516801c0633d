//! Text that users type or read, with no rule of locks in it: durations, patterns, similar names, tables, escaping, terminals.

pub mod duration;
pub mod escape;
pub mod glob;
pub mod similar;
pub mod table;
pub mod terminal;
