//! Text that users type or read, with no rule of locks in it: durations, patterns, similar names, file names, tables,
//! escaping, metrics, terminals.

pub mod duration;
pub mod escape;
pub mod exposition;
pub mod file_name;
pub mod glob;
pub mod similar;
pub mod table;
pub mod terminal;
