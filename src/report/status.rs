//! One line for a user at a terminal while something takes long: redrawn, and erased at the end.

use std::cell::Cell;
use std::io::{self, IsTerminal};
use std::time::Duration;

use nix::unistd::{getpgrp, tcgetpgrp};

use super::stderr;
use crate::clock;
use crate::lock::instant::Instant;
use crate::text::escape::cut;
use crate::text::terminal;

#[derive(Debug)]
pub struct StatusLine {
    wanted: bool,
    every: Duration,
    drawn: Cell<bool>,
    due: Cell<Instant>,
}

impl StatusLine {
    /// Time before the line is drawn first.
    const PATIENCE: Duration = Duration::from_secs(1);

    /// A line that is redrawn every `every` at most, if it is `wanted` and stderr is a terminal.
    pub fn new(wanted: bool, every: Duration) -> Self {
        let wanted = wanted && io::stderr().is_terminal();
        let due = if wanted { clock::now() + Self::PATIENCE } else { Instant::NEVER };
        Self { wanted, every, drawn: Cell::new(false), due: Cell::new(due) }
    }

    /// Time of the next drawing.
    pub fn due(&self) -> Instant {
        self.due.get()
    }

    /// Draws `text` when it is due. Not from the background, where another job has the terminal, and not behind queued
    /// lines for a terminal that is not read.
    pub fn draw(&self, text: impl FnOnce() -> String) {
        let now = clock::now();
        if now < self.due.get() {
            return;
        }
        self.due.set(now + self.every);
        if self.wanted && is_in_the_foreground() {
            let columns = terminal::columns(io::stderr()).unwrap_or(80);
            let cut = cut(&text(), usize::saturating_sub(columns, 1));
            if stderr::at_once(format!("\r{cut}\x1b[K")) {
                self.drawn.set(true);
            }
        }
    }

    /// Erases the line. Not from the background, where the cursor's line belongs to another job.
    pub fn clear(&self) {
        if self.drawn.take() && is_in_the_foreground() {
            stderr::last_line("\r\x1b[K".to_owned());
        }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        self.clear();
    }
}

fn is_in_the_foreground() -> bool {
    tcgetpgrp(io::stderr()).is_ok_and(|group| group == getpgrp())
}
