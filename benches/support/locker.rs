//! Programs that hold a lock around a command and wait for it in a line.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use rlock::lock::key::Key;

use super::port::Port;
use super::program::{RLOCK, clean, first_line};
use super::server::Server;
use super::until;

/// The lock.
pub(crate) const KEY: &str = "queue";

pub(crate) trait Locker {
    fn name(&self) -> &'static str;

    /// All but the command that it is to run.
    fn command(&self) -> Command;

    /// Whether the last one started stands in line: it is the `number`th of those who wait, and has this pid.
    fn stands(&mut self, number: usize, pid: u32) -> Result<bool>;
}

/// `rlock run` on some nodes.
pub(crate) struct Rlock {
    urls: String,
    connections: Vec<redis::Connection>,
    queue: String,
}

impl Rlock {
    pub(crate) fn on(servers: &[Server]) -> Result<Self> {
        let urls: Vec<String> = servers.iter().map(Server::url).collect();
        let queue = Key::new("", KEY).map_err(anyhow::Error::msg)?.derived("queue");
        let connections = servers.iter().map(Server::connect).collect::<Result<_>>()?;
        Ok(Self { urls: urls.join(","), connections, queue })
    }
}

impl Locker for Rlock {
    fn name(&self) -> &'static str {
        "rlock run"
    }

    fn command(&self) -> Command {
        let mut command = clean(RLOCK);
        command.args(["run", "--key", KEY, "--restart-guard", "off", "--node", &self.urls, "--"]);
        command
    }

    fn stands(&mut self, number: usize, _: u32) -> Result<bool> {
        let cards = self.connections.iter_mut().map(|node| redis::cmd("ZCARD").arg(&self.queue).query::<usize>(node));
        let cards: Vec<usize> = cards.collect::<Result<_, _>>()?;
        Ok(cards.into_iter().min().context("no node")? >= number)
    }
}

/// `etcdctl lock` on an etcd of our own, which does not outlive us.
pub(crate) struct Etcdctl {
    name: &'static str,
    etcd: Child,
    /// For clients, and for other members.
    ports: [Port; 2],
    _data: tempfile::TempDir,
}

/// Whether there is something to compare with.
pub(crate) fn etcd_is_there() -> bool {
    first_line("etcd", "--version").is_ok() && first_line("etcdctl", "version").is_ok()
}

impl Etcdctl {
    /// One member, its data on disk as it comes, each change behind an fsync.
    pub(crate) fn on_disk() -> Result<Self> {
        Self::start("etcdctl lock", Path::new(env!("CARGO_TARGET_TMPDIR")))
    }

    /// One member, its data in memory, so that fsync costs nothing.
    pub(crate) fn in_memory() -> Result<Self> {
        Self::start("etcdctl lock, in /dev/shm", Path::new("/dev/shm"))
    }

    fn start(name: &'static str, dir: &Path) -> Result<Self> {
        for (client, peer) in Port::choices().zip(Port::choices()) {
            let mut etcd = Self::launch(name, dir, [client?, peer?])?;
            if until("etcd", || etcd.is_up())? {
                return Ok(etcd);
            }
        }
        bail!("etcd did not start, on whatever ports")
    }

    fn launch(name: &'static str, dir: &Path, ports: [Port; 2]) -> Result<Self> {
        let data = tempfile::tempdir_in(dir)?;
        let [endpoint, peer] = ports.each_ref().map(url);
        let mut etcd = clean("etcd");
        etcd.arg("--data-dir").arg(data.path()).args(["--listen-client-urls", &endpoint]);
        etcd.args(["--advertise-client-urls", &endpoint, "--listen-peer-urls", &peer]);
        etcd.args(["--initial-advertise-peer-urls", &peer, "--initial-cluster", &format!("default={peer}")]);
        let etcd = etcd.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Self { name, etcd, ports, _data: data })
    }

    /// Whether it serves, once that is known. `false`: it ended, most likely because a port was taken.
    fn is_up(&mut self) -> Result<Option<bool>> {
        if self.etcd.try_wait()?.is_some() {
            return Ok(Some(false));
        }
        // Another etcd on the port has members of its own.
        let members = self.etcdctl().args(["member", "list"]).stderr(Stdio::null()).output()?;
        let is_ours = String::from_utf8_lossy(&members.stdout).contains(&url(&self.ports[1]));
        Ok((members.status.success() && is_ours).then_some(true))
    }

    fn etcdctl(&self) -> Command {
        let mut command = clean("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &url(&self.ports[0])]);
        command
    }

    /// A key each for the holder and for all who wait.
    fn keys(&self) -> Result<usize> {
        let output = self.etcdctl().args(["get", "--prefix", KEY, "--keys-only"]).stderr(Stdio::null()).output()?;
        ensure!(output.status.success(), "etcdctl get: {}", output.status);
        Ok(String::from_utf8_lossy(&output.stdout).lines().filter(|line| !line.is_empty()).count())
    }
}

impl Locker for Etcdctl {
    fn name(&self) -> &'static str {
        self.name
    }

    fn command(&self) -> Command {
        let mut command = self.etcdctl();
        command.args(["lock", KEY]);
        command
    }

    fn stands(&mut self, number: usize, _: u32) -> Result<bool> {
        Ok(self.keys()? > number)
    }
}

impl Drop for Etcdctl {
    fn drop(&mut self) {
        // One that has ended by itself is no trouble.
        let _ = self.etcd.kill();
        let _ = self.etcd.wait();
    }
}

fn url(port: &Port) -> String {
    format!("http://127.0.0.1:{}", port.number())
}
