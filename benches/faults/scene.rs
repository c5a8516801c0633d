//! One run with its witness, one that waits behind it, and something that goes wrong.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::program::{RLOCK, clean};
use crate::support::server::Server;
use crate::support::{now, until};
use crate::witness::WORD;

/// What is particular about a scene.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) ttl: &'static str,
    pub(crate) options: &'static [&'static str],
    /// On the local node.
    pub(crate) local: bool,
    /// What the command starts.
    pub(crate) company: Company,
    /// Somebody waits for the lock.
    pub(crate) next: bool,
}

/// A second process of the command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Company {
    None,
    /// In its group.
    Child,
    /// In a session of its own.
    Straggler,
}

impl Default for Settings {
    fn default() -> Self {
        Self { ttl: "5s", options: &[], local: false, company: Company::Child, next: true }
    }
}

/// What came of it.
pub(crate) struct Outcome {
    /// From the fault to the last process's end.
    pub(crate) gone: Duration,
    /// The next holder ran while the first still did.
    pub(crate) overlapped: bool,
}

/// Who is there.
pub(crate) struct Scene {
    pub(crate) rlock: i32,
    pub(crate) guard: i32,
    pub(crate) command: i32,
    pub(crate) server: i32,
    port: u16,
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
    let node = if settings.local { format!("local:{}", dir.path().display()) } else { server.url() };
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    let (role, wanted) = match settings.company {
        Company::None => ("alone", 1),
        Company::Child => ("child", 2),
        Company::Straggler => ("straggler", 2),
    };
    let mut holder = start(&node, settings, &first, role)?;
    let processes = wait_for_ticks(&first, wanted)?;
    let mut next =
        if settings.next { Some(start(&node, Settings { options: &[], ..settings }, &second, "once")?) } else { None };
    let rlock = i32::try_from(holder.id())?;
    let command = *children(rlock).iter().find(|pid| processes.contains(pid)).context("the command")?;
    let guard = another_guard(rlock, 0)?;
    let scene = Scene { rlock, guard, command, server: server.pid(), port: server.port(), processes };
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
    let _ = kill(Pid::from_raw(rlock), Signal::SIGKILL);
    holder.wait()?;
    signal(scene.server, Signal::SIGCONT)?;
    let _ = scene.redis("DEL");
    Ok(Outcome { gone, overlapped })
}

fn start(node: &str, settings: Settings, file: &Path, role: &str) -> Result<Child> {
    let mut command: Command = clean(RLOCK);
    command.args(["run", "--key", "faults", "--node", node, "--ttl", settings.ttl]).args(settings.options).arg("--");
    command.arg(std::env::current_exe()?).args([WORD]).arg(file).arg(role);
    Ok(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
}

/// Sends `which` to `pid`.
pub(crate) fn signal(pid: i32, which: Signal) -> Result<()> {
    Ok(kill(Pid::from_raw(pid), which)?)
}

impl Scene {
    /// `DEL` the key, or `SET` it to somebody else's value for a moment.
    pub(crate) fn redis(&self, what: &str) -> Result<()> {
        let words: &[&str] = match what {
            "SET" => &["SET", "faults", "somebody else", "PX", "300"],
            _ => &["DEL", "faults"],
        };
        clean("redis-cli").args(["-p", &self.port.to_string()]).args(words).stdout(Stdio::null()).status()?;
        Ok(())
    }

    pub(crate) fn wait_for_another_guard(&self) -> Result<()> {
        another_guard(self.rlock, self.guard).map(drop)
    }

    /// The command goes on first, as an unlucky thaw would have it.
    pub(crate) fn freeze_past_the_lease(&self, time: Duration) -> Result<()> {
        let all: Vec<i32> = self.processes.iter().copied().chain([self.rlock, self.guard]).collect();
        all.iter().rev().try_for_each(|pid| signal(*pid, Signal::SIGSTOP))?;
        std::thread::sleep(time);
        // Those who wake first may have ended others before their turn comes.
        for pid in all {
            let _ = signal(pid, Signal::SIGCONT);
        }
        Ok(())
    }

    fn wait_for_the_end(&self) -> Result<()> {
        until("the command's end", || Ok((!self.processes.iter().any(|pid| alive(*pid))).then_some(())))
    }
}

fn children(pid: i32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn another_guard(rlock: i32, old: i32) -> Result<i32> {
    let is_guard = |pid: &i32| {
        *pid != old
            && std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "rlock-guard")
    };
    until("a guard", || Ok(children(rlock).into_iter().find(is_guard)))
}

fn alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
}

/// The processes that have ticked, once there are so many.
fn wait_for_ticks(file: &PathBuf, wanted: usize) -> Result<Vec<i32>> {
    until("the witness", || {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let mut pids: Vec<i32> = text.lines().filter_map(|line| line.split(' ').nth(1)?.parse().ok()).collect();
        pids.sort_unstable();
        pids.dedup();
        Ok((pids.len() >= wanted).then_some(pids))
    })
}

fn ticks(file: &Path) -> Result<Vec<u128>> {
    let text = std::fs::read_to_string(file)?;
    Ok(text.lines().filter_map(|line| line.split(' ').next()?.parse().ok()).collect())
}

fn first_tick(file: &Path) -> Result<u128> {
    ticks(file)?.into_iter().min().with_context(|| format!("a tick before {:?}", now()))
}

fn last_tick(file: &Path) -> Result<u128> {
    ticks(file)?.into_iter().max().context("a tick")
}
