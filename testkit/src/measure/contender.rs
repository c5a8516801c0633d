//! Command lines whose wall time is measured, and the times that they took.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::program::clean;

/// A command line that takes part.
pub struct Contender {
    name: &'static str,
    argv: Vec<String>,
}

impl Contender {
    /// Makes a contender of `argv`, which has at least one word.
    pub fn new(name: &'static str, argv: Vec<String>) -> Self {
        Self { name, argv }
    }

    /// Makes a contender of `command` and more words, with the environment that all contenders
    /// have.
    pub fn running(name: &'static str, command: &Command, words: &[&str]) -> Self {
        let own = std::iter::once(command.get_program()).chain(command.get_args());
        let words = own.chain(words.iter().map(OsStr::new));
        Self::new(
            name,
            words
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
        )
    }

    /// Returns its name in the table.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Runs it once, and returns the time from spawn to exit; an error if it fails.
    pub fn run(&self) -> Result<Duration> {
        let mut command = clean(&self.argv[0]);
        command
            .args(&self.argv[1..])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let begin = Instant::now();
        let status = command.spawn().and_then(|mut child| child.wait());
        let time = begin.elapsed();
        let status = status.with_context(|| self.name)?;
        ensure!(
            status.success(),
            "{}: {status}; try it by hand: {}",
            self.name,
            self.argv.join(" ")
        );
        Ok(time)
    }
}

/// The times of one contender, in order of size.
pub struct Times {
    /// Its name in the table.
    pub name: &'static str,
    sorted: Vec<Duration>,
}

impl Times {
    /// Sorts `times`, of which there is at least one.
    pub fn new(name: &'static str, mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self {
            name,
            sorted: times,
        }
    }

    /// Returns the time that `percent` of all runs do not exceed (nearest rank).
    pub fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.sorted.len() * percent).div_ceil(100);
        self.sorted[rank.saturating_sub(1)]
    }

    /// Returns the number of times.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// Returns the time that half of all runs do not exceed.
    pub fn median(&self) -> Duration {
        self.percentile(50)
    }
}

/// Runs each contender once a round, after some rounds to warm up, so that a machine that gets
/// slower slows all of them. Before each run `prepare` gets the number of the round and of the
/// contender.
pub fn measure(
    contenders: &[Contender],
    warm_up: usize,
    rounds: usize,
    mut prepare: impl FnMut(usize, usize) -> Result<()>,
) -> Result<Vec<Times>> {
    let mut times: Vec<Vec<Duration>> = vec![Vec::with_capacity(rounds); contenders.len()];
    for round in 0..warm_up + rounds {
        for (turn, (contender, times)) in contenders.iter().zip(&mut times).enumerate() {
            prepare(round, turn)?;
            let time = contender.run()?;
            if round >= warm_up {
                times.push(time);
            }
        }
    }
    Ok(contenders
        .iter()
        .zip(times)
        .map(|(contender, times)| Times::new(contender.name(), times))
        .collect())
}
