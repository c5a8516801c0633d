//! One line for a user at a terminal while something takes long: redrawn, and erased at the end.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use super::progress::PATIENCE;
use super::stderr;
use crate::clock;
use crate::lock::instant::Instant;
use crate::text::escape::cut;
use crate::text::terminal;

/// The line of a terminal.
#[derive(Debug)]
pub struct StatusLine {
    every: Duration,
    due: Cell<Instant>,
}

impl StatusLine {
    /// A line that is redrawn every `every` at most, if it is `wanted`.
    pub fn new(wanted: bool, every: Duration) -> Self {
        let due = if wanted { clock::now() + PATIENCE } else { Instant::NEVER };
        Self { every, due: Cell::new(due) }
    }

    /// Time of the next drawing.
    pub fn due(&self) -> Instant {
        self.due.get()
    }

    /// Draws `text` when it is due, cut to the terminal's width. Not from the background, where another job has the terminal.
    pub fn draw(&self, text: impl FnOnce() -> String) {
        let now = clock::now();
        if now < self.due.get() {
            return;
        }
        self.due.set(now + self.every);
        if stderr::is_in_the_foreground() {
            let columns = terminal::columns(io::stderr()).unwrap_or(80);
            stderr::draw(&cut(&text(), usize::saturating_sub(columns, 1)));
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        stderr::erase();
    }
}
