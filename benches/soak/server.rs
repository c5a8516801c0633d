//! A redis-server that is hurt in every way.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The first server's port; the namespace is the soak's own.
const PORT: u16 = 7001;

/// Time for a start, with data to be read.
const PATIENCE: Duration = Duration::from_secs(10);

const SHIM: &str = "clock.so";

/// Killed when dropped.
pub(crate) struct Server {
    process: Child,
    number: usize,
    dir: PathBuf,
    /// Whether what it has written survives a SIGKILL.
    keeps: bool,
}

/// The port of server `number`.
pub(crate) fn port(number: usize) -> u16 {
    PORT + u16::try_from(number).unwrap_or(0)
}

impl Server {
    /// Starts it. `keeps`: with an append-only file, which a SIGKILL does not hurt.
    pub(crate) fn start(dir: &Path, number: usize, keeps: bool) -> Result<Self> {
        let dir = dir.join(format!("server{number}"));
        std::fs::create_dir_all(&dir)?;
        std::fs::write(dir.join("offset"), 0_i64.to_ne_bytes())?;
        let mut server = Self { process: launch(&dir, number, keeps)?, number, dir, keeps };
        server.comes_up()?;
        Ok(server)
    }

    fn comes_up(&mut self) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if self.cli(&["PING"])? == "PONG" {
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
        let output = Command::new("redis-cli")
            .args(["-h", "127.0.0.1", "-p", &port(self.number).to_string()])
            .args(words)
            .stderr(Stdio::null())
            .output()
            .context("redis-cli is needed")?;
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    pub(crate) fn signal(&self, which: Signal) -> Result<()> {
        kill(Pid::from_raw(self.process.id().cast_signed()), which).context("a server")
    }

    /// SIGKILL and another start, with the data that it keeps and the right time.
    pub(crate) fn restart(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
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
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn launch(dir: &Path, number: usize, keeps: bool) -> Result<Child> {
    Command::new("redis-server")
        .args(["--port", &port(number).to_string(), "--bind", "0.0.0.0", "--protected-mode", "no", "--save", ""])
        .args(["--appendonly", if keeps { "yes" } else { "no" }, "--appendfsync", "no", "--dir", "."])
        .env("LD_PRELOAD", dir.with_file_name(SHIM))
        .env("RLOCK_SOAK_CLOCK", dir.join("offset"))
        .current_dir(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("redis-server is needed")
}

/// Compiles the shim that sets a server's clock.
pub(crate) fn compile_shim(dir: &Path) -> Result<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/soak/clock.c");
    let status = Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(dir.join(SHIM)).arg(source).status();
    if !status.context("cc is needed")?.success() {
        bail!("cc cannot compile the clock");
    }
    Ok(())
}
