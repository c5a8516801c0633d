//! Text that users type or read, with no rule of locks in it: durations, patterns, similar names, file names, tables,
//! escaping, metrics, terminals.

pub mod duration;
pub mod escape;
pub mod exposition;
pub mod file_name;
pub mod similar;
pub mod table;
pub mod terminal;

/// Whether `text` is a pattern of the crate `glob` rather than a name.
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}
