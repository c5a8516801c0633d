//! A redis-server of our own, which does not outlive us.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::port::Port;
use super::program::clean;

const PATIENCE: Duration = Duration::from_secs(5);

/// Killed when dropped, and so on a panic too.
pub(crate) struct Server {
    process: Child,
    port: Port,
}

impl Server {
    /// Starts one on a port of its own of the loopback interface, with nothing stored on disk.
    pub(crate) fn start(dir: &Path) -> Result<Self> {
        for port in Port::choices() {
            let mut server = Self::launch(dir, port?)?;
            if server.comes_up()? {
                return Ok(server);
            }
        }
        bail!("redis-server did not start, on whatever port")
    }

    fn launch(dir: &Path, port: Port) -> Result<Self> {
        let process = clean("redis-server")
            .args(["--port", &port.number().to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(dir)
            .stdout(Stdio::null())
            .spawn()
            .context("redis-server is needed")?;
        Ok(Self { process, port })
    }

    /// Whether it answers. `false`: it ended, most likely because the port was taken.
    fn comes_up(&mut self) -> Result<bool> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if self.process.try_wait()?.is_some() {
                return Ok(false);
            }
            if self.answers() {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("redis-server on port {} does not answer", self.port())
    }

    /// Whether this server answers, and not another one on a port that was taken.
    fn answers(&self) -> bool {
        let ask = || {
            let mut connection = redis::Client::open(self.url())?.get_connection_with_timeout(PATIENCE)?;
            connection.set_read_timeout(Some(PATIENCE))?;
            redis::cmd("INFO").arg("server").query::<String>(&mut connection)
        };
        let pid = format!("process_id:{}", self.pid());
        ask().is_ok_and(|told| told.lines().any(|line| line == pid))
    }

    /// Its process.
    pub(crate) fn pid(&self) -> i32 {
        self.process.id().cast_signed()
    }

    /// Stops it as it stands: it takes connections, and answers nothing.
    pub(crate) fn hang(&self) -> Result<()> {
        Ok(kill(Pid::from_raw(self.pid()), Signal::SIGSTOP)?)
    }

    /// Lets it go on, until it has caught up with what it was sent meanwhile.
    pub(crate) fn wake(&self) -> Result<()> {
        kill(Pid::from_raw(self.pid()), Signal::SIGCONT)?;
        ensure!(self.answers(), "redis-server on port {} does not answer", self.port());
        Ok(())
    }

    /// To ask it what it has done so far.
    pub(crate) fn connect(&self) -> Result<redis::Connection> {
        Ok(redis::Client::open(self.url())?.get_connection()?)
    }

    /// The port it listens on.
    pub(crate) fn port(&self) -> u16 {
        self.port.number()
    }

    /// As `--node` takes it.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that has ended by itself is no trouble.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
