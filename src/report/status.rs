//! One line for a person at a terminal while something takes long: drawn over and over, and gone at the end.

use std::cell::Cell;
use std::io::{self, IsTerminal};
use std::time::Duration;

use nix::unistd::{getpgrp, tcgetpgrp};

use super::stderr;
use crate::clock;
use crate::lock::instant::Instant;
use crate::text::escape::cut;

/// The line.
#[derive(Debug)]
pub struct StatusLine {
    wanted: bool,
    every: Duration,
    drawn: Cell<bool>,
    due: Cell<Instant>,
}

impl StatusLine {
    /// What takes less than this is not worth a line.
    const PATIENCE: Duration = Duration::from_secs(1);

    /// A line that is drawn no sooner than `every` after the last time. None is unless it is `wanted` and stderr is a
    /// terminal.
    pub fn new(wanted: bool, every: Duration) -> Self {
        let wanted = wanted && io::stderr().is_terminal();
        let due = if wanted { clock::now() + Self::PATIENCE } else { Instant::NEVER };
        Self { wanted, every, drawn: Cell::new(false), due: Cell::new(due) }
    }

    /// When it is to be drawn next.
    pub fn due(&self) -> Instant {
        self.due.get()
    }

    /// Draws `text`, if it is time to. Not from the background, where somebody else has the terminal, and not behind
    /// lines that wait for a terminal that stands still.
    pub fn draw(&self, text: impl FnOnce() -> String) {
        let now = clock::now();
        if now < self.due.get() {
            return;
        }
        self.due.set(now + self.every);
        if self.wanted && is_in_the_foreground() {
            let columns = terminal_size::terminal_size_of(io::stderr()).map_or(80, |(width, _)| width.0.into());
            let cut = cut(&text(), usize::saturating_sub(columns, 1));
            if stderr::at_once(format!("\r{cut}\x1b[K")) {
                self.drawn.set(true);
            }
        }
    }

    /// Erases it. Not from the background: what stands in the line where the cursor is, is somebody else's by then.
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
