//! A redis-server that is hurt in every way.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::line::{self, Delay};
use crate::support::program::{clean, compile};
use crate::{network, tool};

/// The first server's port. The namespace is the soak's own, and the kernel gives connections ports from 32768 on.
const PORT: u16 = 7001;

/// Time for a start, with data to be read.
const PATIENCE: Duration = Duration::from_secs(10);

const SHIM: &str = "clock";

/// How many ms what is said takes on a slow line, each time anew. The node timeout of the contenders is 150 ms.
const SLOW: std::ops::RangeInclusive<u64> = 50..=400;

/// Killed when dropped.
pub(crate) struct Server {
    process: Child,
    number: u16,
    dir: PathBuf,
    /// Whether what it has written survives a SIGKILL.
    keeps: bool,
    line: Line,
}

/// The other way to a server, by which some know it.
struct Line {
    port: u16,
    /// There, and back.
    slow: [Arc<AtomicBool>; 2],
}

/// A direction on the line.
#[derive(Clone, Copy)]
pub(crate) enum Direction {
    There,
    Back,
}

impl Server {
    /// Starts it. `keeps`: with an append-only file, which a SIGKILL does not hurt.
    pub(crate) fn start(dir: &Path, number: u16, keeps: bool) -> Result<Self> {
        let dir = dir.join(format!("server{number}"));
        std::fs::create_dir_all(&dir)?;
        std::fs::write(dir.join("offset"), 0_i64.to_ne_bytes())?;
        let line = Line::open(PORT + number)?;
        let mut server = Self { process: launch(&dir, number, keeps)?, number, dir, keeps, line };
        server.comes_up()?;
        Ok(server)
    }

    /// By which the contender `number` knows it: an address of its own, so that it can be cut off alone, and for every other
    /// the line, so that a slow server is not slow to all.
    pub(crate) fn url_for(&self, contender: usize) -> String {
        let port = if contender.is_multiple_of(2) { self.line.port } else { self.port() };
        format!("redis://{}:{port}", network::address(contender))
    }

    /// By which whoever is nobody of these knows it.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// Where it listens itself.
    pub(crate) fn port(&self) -> u16 {
        PORT + self.number
    }

    fn comes_up(&mut self) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if self.cli(&["PING"]).is_ok_and(|told| told == "PONG") {
                return Ok(());
            }
            if let Some(status) = self.process.try_wait()? {
                bail!("redis-server {}: {status}", self.number);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("redis-server {} does not answer", self.number)
    }

    /// What redis-cli prints.
    pub(crate) fn cli(&self, words: &[&str]) -> Result<String> {
        let port = self.port().to_string();
        tool::run("redis-cli", &[&["-e", "-h", "127.0.0.1", "-p", &port], words].concat())
    }

    pub(crate) fn signal(&self, which: Signal) -> Result<()> {
        kill(Pid::from_raw(self.process.id().cast_signed()), which).context("a server")
    }

    /// SIGKILL and another start, with the data that it keeps and the right time.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.crash()?;
        self.come_back()
    }

    /// SIGKILL.
    pub(crate) fn crash(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait().map(drop).context("a server")
    }

    /// Another start.
    pub(crate) fn come_back(&mut self) -> Result<()> {
        self.set_clock(0)?;
        self.process = launch(&self.dir, self.number, self.keeps)?;
        self.comes_up()
    }

    /// Its clock is off by so many seconds from now on.
    pub(crate) fn set_clock(&self, seconds: i64) -> Result<()> {
        // In its place: the server has the file mapped.
        let file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(self.dir.join("offset"))?;
        std::os::unix::fs::FileExt::write_all_at(&file, &seconds.to_ne_bytes(), 0).context("a clock")
    }

    /// Whether its line is slow from now on.
    pub(crate) fn set_slow(&self, direction: Direction, slow: bool) {
        self.line.slow[direction as usize].store(slow, Ordering::Relaxed);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Line {
    fn open(server: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let port = listener.local_addr()?.port();
        let slow: [Arc<AtomicBool>; 2] = Default::default();
        let delay = |slow: &Arc<AtomicBool>| {
            let slow = Arc::clone(slow);
            let delay =
                move || Duration::from_millis(if slow.load(Ordering::Relaxed) { fastrand::u64(SLOW) } else { 0 });
            Box::new(delay) as Delay
        };
        let ways = slow.clone();
        line::open(listener, server, move || ways.each_ref().map(delay))?;
        Ok(Self { port, slow })
    }
}

fn launch(dir: &Path, number: u16, keeps: bool) -> Result<Child> {
    clean("redis-server")
        .args(["--port", &(PORT + number).to_string(), "--bind", "0.0.0.0", "--protected-mode", "no", "--save", ""])
        .args(["--appendonly", if keeps { "yes" } else { "no" }, "--appendfsync", "no", "--dir", "."])
        .env("LD_PRELOAD", dir.with_file_name(SHIM))
        .env("CLOCK_OFFSET", dir.join("offset"))
        .current_dir(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("redis-server is needed")
}

/// Compiles the shim that sets a server's clock.
pub(crate) fn compile_shim(dir: &Path) -> Result<()> {
    compile(SHIM, &["-shared", "-fPIC"], dir).map(drop)
}
