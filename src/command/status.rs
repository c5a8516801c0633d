//! The one line that a person at a terminal sees while rlock waits: redrawn in place, and gone when the wait is over.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use nix::unistd::{getpgrp, tcgetpgrp};

use crate::clock;
use crate::lock::instant::Instant;
use crate::report::{Log, Reporter};

/// How long a wait is not worth a word, and how often the line is drawn then.
const SECOND: Duration = Duration::from_secs(1);

/// The line.
pub(super) struct Status {
    wanted: bool,
    drawn: bool,
    next: Instant,
}

impl Status {
    /// A line for a wait that begins at `begin`. None is ever drawn for `-q`, `-v` and `--log json`, or where stderr is no
    /// terminal.
    pub(super) fn new(report: &Reporter, begin: Instant) -> Self {
        let wanted = !report.quiet && !report.verbose && report.log == Log::Text && io::stderr().is_terminal();
        Self { wanted, drawn: false, next: if wanted { begin + SECOND } else { Instant::NEVER } }
    }

    /// When it is to be drawn next.
    pub(super) fn due(&self) -> Instant {
        self.next
    }

    /// Draws it if it is due. Not from the background, where somebody else has the terminal.
    pub(super) fn draw(&mut self, text: impl FnOnce() -> String) {
        let now = clock::now();
        if now < self.next {
            return;
        }
        self.next = now + SECOND;
        if self.wanted && is_in_the_foreground() {
            self.drawn = true;
            let cut: String = text().chars().take(width().saturating_sub(1)).collect();
            write(&format!("\r{cut}\x1b[K"));
        }
    }

    /// Erases it. Not from the background: what stands in the line where the cursor is, is somebody else's by then.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) && is_in_the_foreground() {
            write("\r\x1b[K");
        }
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        self.clear();
    }
}

fn is_in_the_foreground() -> bool {
    tcgetpgrp(io::stderr()).is_ok_and(|group| group == getpgrp())
}

fn write(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Columns of the terminal; 80 if it does not say.
fn width() -> usize {
    terminal_size::terminal_size_of(io::stderr()).map_or(80, |(width, _)| width.0.into())
}
