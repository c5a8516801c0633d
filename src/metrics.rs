//! `--metrics-dir`: metrics of a run, written when its command was started and when it has ended.
//!
//! A thread of its own writes them, because a file system can hang. The thread that renews hands it the numbers and goes on.
//! The end of rlock waits for the last write, but not for long.

mod directory;
mod series;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::unistd::getpid;

use crate::background;
use crate::clock;
use crate::exit::Outcome;
use crate::lock::instant::Instant;
use crate::lock::key::Key;
use crate::report::{Event, Record, Recorder, Reporter};
use crate::text::escape;
use series::End;

/// Longest wait for the writes at the end of a run.
const LAST: Duration = Duration::from_secs(1);

/// Size of the writer's stack.
const STACK: usize = 256 * 1024;

/// The metrics of one run.
pub struct Metrics {
    directory: PathBuf,
    recorder: Recorder,
    begun: Instant,
    /// Starts with the first write; the error that kept it from starting.
    writer: Option<io::Result<Writer>>,
}

/// The thread that writes. It ends when the sender is dropped.
struct Writer {
    writes: Sender<Write>,
    results: Receiver<io::Result<()>>,
}

/// A change of the files of all locks of the run.
struct Write {
    directory: PathBuf,
    records: Vec<(Key, Record)>,
    /// Unix time.
    at: Duration,
    /// `None`: the command was started.
    end: Option<RunEnd>,
}

/// The end of a run.
struct RunEnd {
    outcome: Outcome,
    begun: Instant,
    now: Instant,
}

impl Metrics {
    /// Metrics in `directory`, of a run that begins now.
    pub fn new(directory: &Path, recorder: Recorder) -> Self {
        Self { directory: directory.to_owned(), recorder, begun: clock::now(), writer: None }
    }

    /// Writes that the command was started.
    pub fn started(&mut self) {
        self.write(None);
    }

    /// Writes the end of the run. If a write fails, now or earlier, one warning tells it.
    pub fn ended(mut self, outcome: Outcome, report: &Reporter) {
        self.write(Some(RunEnd { outcome, begun: self.begun, now: clock::now() }));
        if let Err(error) = self.writer.take().map_or(Ok(()), |writer| writer?.finish()) {
            let directory = escape::text(&self.directory.to_string_lossy());
            report.say(&Event::MetricsUnwritten { directory: &directory, why: &error });
        }
    }

    fn write(&mut self, end: Option<RunEnd>) {
        if let Ok(writer) = self.writer.get_or_insert_with(Writer::start) {
            let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let records = self.recorder.records();
            let _ = writer.writes.send(Write { directory: self.directory.clone(), records, at, end });
        }
    }
}

impl Writer {
    fn start() -> io::Result<Self> {
        let (writes, to_do) = channel::<Write>();
        let (done, results) = channel();
        background::spawn("rlock-metrics", STACK, move || {
            for write in to_do {
                let _ = done.send(write.carry_out());
            }
        })?;
        Ok(Self { writes, results })
    }

    /// Waits for all writes, and returns the first error.
    fn finish(self) -> io::Result<()> {
        drop(self.writes);
        let begun = clock::now();
        let mut all = Ok(());
        loop {
            match self.results.recv_timeout(LAST.saturating_sub(clock::now().since(begun))) {
                Ok(result) => all = all.and(result),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return all,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
    }
}

impl Write {
    fn carry_out(self) -> io::Result<()> {
        let us = directory::holder(getpid().as_raw());
        for (key, record) in &self.records {
            directory::change(&self.directory, key, |series| match &self.end {
                None => series.started(self.at, us.filter(|_| !record.nested)),
                Some(end) => series.ended(&End::new(end.outcome, self.at, *record, end.begun, end.now), us),
            })?;
        }
        Ok(())
    }
}
