//! The story of a world: one line for each thing that a reader of a failure must know. Kept only
//! when it is asked for.

use std::time::Duration;

use rlock::lock::instant::Instant;

use crate::kernel::BEGIN;

/// Lines with their times.
#[derive(Debug, Default)]
pub struct Story {
    lines: Option<Vec<(Duration, String)>>,
}

impl Story {
    /// A story that keeps its lines.
    pub fn kept() -> Self {
        Self {
            lines: Some(Vec::new()),
        }
    }

    /// Adds a line.
    pub fn tell(&mut self, now: Instant, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push((now.since(BEGIN), line()));
        }
    }

    /// Returns the lines, with the seconds since the begin.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.lines
            .iter()
            .flatten()
            .map(|(at, line)| format!("{:10.6}  {line}", at.as_secs_f64()))
    }
}
