//! A scene: a run with its witness, a waiter behind it, and a fault.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use testkit::processes::{alive, children, guard_of, next_guard, try_signal};
use testkit::program::clean;
use testkit::{Server, now, until};

use crate::RLOCK;
use crate::witness::WORD;

/// Key of the lock.
pub(crate) const KEY: &str = "faults";

/// Settings of a scene.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) ttl: &'static str,
    pub(crate) options: &'static [&'static str],
    /// Whether the node is a local one.
    pub(crate) local: bool,
    /// The second process of the command.
    pub(crate) company: Company,
    /// Whether a second rlock waits for the lock.
    pub(crate) next: bool,
}

/// A second process of the command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Company {
    None,
    /// In the command's group.
    Child,
    /// In a session of its own.
    Straggler,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ttl: "5s",
            options: &[],
            local: false,
            company: Company::Child,
            next: true,
        }
    }
}

/// Outcome of a scene.
pub(crate) struct Outcome {
    /// Time from the fault to the end of the last process of the command.
    pub(crate) gone: Duration,
    /// Whether the next holder ran while the first still did.
    pub(crate) overlapped: bool,
}

/// The processes of a scene.
pub(crate) struct Scene<'a> {
    pub(crate) rlock: i32,
    pub(crate) guard: i32,
    pub(crate) command: i32,
    pub(crate) server: &'a Server,
    processes: Vec<i32>,
}

/// Plays one scene.
pub(crate) fn play(
    server: &Server,
    dir: &Path,
    settings: Settings,
    inject: fn(&Scene) -> Result<()>,
) -> Result<Outcome> {
    let dir = tempfile::tempdir_in(dir)?;
    let node = if settings.local {
        format!("local:{}", dir.path().display())
    } else {
        server.tcp_url()
    };
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    let (role, wanted) = match settings.company {
        Company::None => ("alone", 1),
        Company::Child => ("child", 2),
        Company::Straggler => ("straggler", 2),
    };
    let mut holder = start(&node, settings, &first, role)?;
    let processes = wait_for_ticks(&first, wanted)?;
    let mut next = if settings.next {
        Some(start(
            &node,
            Settings {
                options: &[],
                ..settings
            },
            &second,
            "once",
        )?)
    } else {
        None
    };
    let rlock = i32::try_from(holder.id())?;
    let command = *children(rlock)
        .iter()
        .find(|pid| processes.contains(pid))
        .context("the command")?;
    let guard = guard_of(rlock);
    let scene = Scene {
        rlock,
        guard,
        command,
        server,
        processes,
    };
    inject(&scene)?;
    let begin = Instant::now();
    scene.wait_for_the_end()?;
    let gone = begin.elapsed();
    let overlapped = match &mut next {
        Some(next) => {
            next.wait()?;
            first_tick(&second)? < last_tick(&first)?
        }
        None => false,
    };
    let _ = try_signal(rlock, Signal::SIGKILL);
    holder.wait()?;
    server.thaw();
    scene.write_key(&["DEL", KEY])?;
    Ok(Outcome { gone, overlapped })
}

fn start(node: &str, settings: Settings, file: &Path, role: &str) -> Result<Child> {
    let mut command: Command = clean(RLOCK);
    command
        .args(["run", "--key", KEY, "--node", node, "--ttl", settings.ttl])
        .args(settings.options)
        .arg("--");
    command
        .arg(std::env::current_exe()?)
        .args([WORD])
        .arg(file)
        .arg(role);
    Ok(command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?)
}

impl Scene<'_> {
    /// Sends a command that changes the key, past rlock.
    pub(crate) fn write_key(&self, words: &[&str]) -> Result<()> {
        redis::cmd(words[0])
            .arg(&words[1..])
            .exec(&mut self.server.connect())?;
        Ok(())
    }

    /// Waits until rlock has replaced its guard.
    pub(crate) fn wait_for_another_guard(&self) -> Result<()> {
        next_guard(self.rlock, self.guard).map(drop)
    }

    /// Stops all processes for `time`. The command continues first, as in the worst thaw.
    pub(crate) fn freeze_past_the_lease(&self, time: Duration) -> Result<()> {
        let all: Vec<i32> = self
            .processes
            .iter()
            .copied()
            .chain([self.rlock, self.guard])
            .collect();
        all.iter()
            .rev()
            .try_for_each(|pid| try_signal(*pid, Signal::SIGSTOP))?;
        std::thread::sleep(time);
        // A process that continues first may have ended others already.
        for pid in all {
            let _ = try_signal(pid, Signal::SIGCONT);
        }
        Ok(())
    }

    fn wait_for_the_end(&self) -> Result<()> {
        until("the command ends", || {
            Ok((!self.processes.iter().any(|pid| alive(*pid))).then_some(()))
        })
    }
}

/// Waits until `wanted` processes have ticked, and returns them.
fn wait_for_ticks(file: &PathBuf, wanted: usize) -> Result<Vec<i32>> {
    until("the witness ticks", || {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let mut pids: Vec<i32> = text
            .lines()
            .filter_map(|line| line.split(' ').nth(1)?.parse().ok())
            .collect();
        pids.sort_unstable();
        pids.dedup();
        Ok((pids.len() >= wanted).then_some(pids))
    })
}

fn ticks(file: &Path) -> Result<Vec<u128>> {
    let text = std::fs::read_to_string(file)?;
    Ok(text
        .lines()
        .filter_map(|line| line.split(' ').next()?.parse().ok())
        .collect())
}

fn first_tick(file: &Path) -> Result<u128> {
    ticks(file)?
        .into_iter()
        .min()
        .with_context(|| format!("a tick before {:?}", now()))
}

fn last_tick(file: &Path) -> Result<u128> {
    ticks(file)?.into_iter().max().context("a tick")
}
