//! The size of a terminal.

use std::os::fd::AsFd;

/// Returns the number of columns; `None` if it is no terminal.
pub fn columns(of: impl AsFd) -> Option<usize> {
    terminal_size::terminal_size_of(of).map(|(width, _)| width.0.into())
}

/// Returns the number of rows; `None` if it is no terminal.
pub fn rows(of: impl AsFd) -> Option<usize> {
    terminal_size::terminal_size_of(of).map(|(_, height)| height.0.into())
}
