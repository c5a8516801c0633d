//! Programs that hold a lock around a command, and the queues in which they wait for it.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use anyhow::{Context, Result, bail, ensure};
use rlock::lock::key::Key;
use rlock::store::redis::names::{Derived, Names};

use super::machine::IN_MEMORY;
use crate::program::{clean, first_line};
use crate::{Database, Port, Server, ZooKeeper, until};

/// Key of the lock.
pub const KEY: &str = "queue";

/// A program that takes part.
pub trait Locker {
    /// Returns its name in the table.
    fn name(&self) -> &'static str;

    /// Returns its command line up to the command that it is to run.
    fn command(&self) -> Command;

    /// The same for the first process of a batch, which holds the lock while the others come.
    fn holder(&self) -> Command {
        self.command()
    }

    /// Whether the process that was started last is enqueued: it is the `number`th waiter, and has
    /// this pid.
    fn is_enqueued(&mut self, number: usize, pid: i32) -> Result<bool>;
}

/// `rlock run` on some nodes.
pub struct RlockRun {
    name: &'static str,
    program: String,
    /// Options that say which kind of lock the waiters take. The holder has it alone.
    kind: Vec<String>,
    urls: String,
    connections: Vec<redis::Connection>,
    queue: String,
}

impl RlockRun {
    /// Makes one of the binary `program`, with its lock on `servers`.
    pub fn on(program: &str, servers: &[Server]) -> Result<Self> {
        let urls: Vec<String> = servers.iter().map(Server::tcp_url).collect();
        Self::with(program, urls.join(","), servers.iter())
    }

    /// The same with its lock at the node `url`, whose server is `primary`.
    pub fn at(program: &str, url: String, primary: &Server) -> Result<Self> {
        Self::with(program, url, std::iter::once(primary))
    }

    fn with<'a>(
        program: &str,
        urls: String,
        servers: impl Iterator<Item = &'a Server>,
    ) -> Result<Self> {
        let key = Key::new("", KEY).map_err(anyhow::Error::msg)?;
        let queue = Names::of(&key).derived(Derived::Queue);
        let connections = servers.map(Server::connect).collect();
        Ok(Self {
            name: "rlock run",
            program: program.to_owned(),
            kind: Vec::new(),
            urls,
            connections,
            queue,
        })
    }

    /// Has the waiters take the kind of lock that these options name.
    pub fn taking(mut self, kind: &[&str]) -> Self {
        self.kind = kind.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Has it another name in the table.
    pub fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    fn of_kind(&self, kind: &[String]) -> Command {
        let mut command = clean(&self.program);
        command
            .args([
                "run",
                "--key",
                KEY,
                "--restart-guard",
                "off",
                "--node",
                &self.urls,
            ])
            .args(kind)
            .arg("--");
        command
    }
}

impl Locker for RlockRun {
    fn name(&self) -> &'static str {
        self.name
    }

    fn command(&self) -> Command {
        self.of_kind(&self.kind)
    }

    fn holder(&self) -> Command {
        self.of_kind(&[])
    }

    fn is_enqueued(&mut self, number: usize, _: i32) -> Result<bool> {
        let cards = self
            .connections
            .iter_mut()
            .map(|node| redis::cmd("ZCARD").arg(&self.queue).query::<usize>(node));
        let cards: Vec<usize> = cards.collect::<Result<_, _>>()?;
        Ok(cards.into_iter().min().context("no node")? >= number)
    }
}

/// A program whose lock is in an etcd.
pub struct OnEtcd {
    name: &'static str,
    etcd: Rc<OneEtcd>,
    /// The rlock that takes it, in place of `etcdctl lock`.
    rlock: Option<String>,
}

/// An etcd of one member, which is killed on drop.
struct OneEtcd {
    etcd: Child,
    /// The port for clients, and that for other members.
    ports: [Port; 2],
    _data: tempfile::TempDir,
}

/// Whether etcd and etcdctl are installed.
pub fn etcd_is_there() -> bool {
    first_line("etcd", &["--version"]).is_ok() && first_line("etcdctl", &["version"]).is_ok()
}

impl OnEtcd {
    /// Returns `etcdctl lock` on a member with its data in `dir`, on disk: each change waits for an
    /// fsync.
    pub fn on_disk(dir: &Path) -> Result<Self> {
        Self::start("etcdctl lock", dir)
    }

    /// The same with its data in memory, where an fsync costs nothing.
    pub fn in_memory() -> Result<Self> {
        Self::start("etcdctl lock, in /dev/shm", Path::new(IN_MEMORY))
    }

    /// Returns `rlock run` of the binary `program` on the same member.
    pub fn rlock(&self, program: &str) -> Self {
        Self {
            name: "rlock run",
            etcd: Rc::clone(&self.etcd),
            rlock: Some(program.to_owned()),
        }
    }

    /// Returns the process of the member.
    pub fn pid(&self) -> i32 {
        self.etcd.etcd.id().cast_signed()
    }

    /// Returns the number of messages that clients have sent to the member.
    pub fn requests(&self) -> Result<u64> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.etcd.ports[0].number()))?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
        let mut told = String::new();
        stream.read_to_string(&mut told)?;
        let messages = told
            .lines()
            .filter(|line| line.starts_with("grpc_server_msg_received_total{"));
        let counts = messages.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
        Ok(counts.sum())
    }

    fn start(name: &'static str, dir: &Path) -> Result<Self> {
        let (etcd, rlock) = (Rc::new(OneEtcd::start(dir)?), None);
        Ok(Self { name, etcd, rlock })
    }
}

impl OneEtcd {
    fn start(dir: &Path) -> Result<Self> {
        for (client, peer) in Port::choices().zip(Port::choices()) {
            let mut etcd = Self::launch(dir, [client?, peer?])?;
            if until("etcd serves", || etcd.is_up())? {
                return Ok(etcd);
            }
        }
        bail!("etcd did not start on any port")
    }

    fn launch(dir: &Path, ports: [Port; 2]) -> Result<Self> {
        let data = tempfile::tempdir_in(dir)?;
        let [endpoint, peer] = ports.each_ref().map(url);
        let mut etcd = clean("etcd");
        etcd.arg("--data-dir")
            .arg(data.path())
            .args(["--listen-client-urls", &endpoint]);
        etcd.args([
            "--advertise-client-urls",
            &endpoint,
            "--listen-peer-urls",
            &peer,
        ]);
        etcd.args([
            "--initial-advertise-peer-urls",
            &peer,
            "--initial-cluster",
            &format!("default={peer}"),
        ]);
        let etcd = etcd.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Self {
            etcd,
            ports,
            _data: data,
        })
    }

    /// Whether it serves, once that is known. False if it ended, most likely because a port was
    /// taken.
    fn is_up(&mut self) -> Result<Option<bool>> {
        if self.etcd.try_wait()?.is_some() {
            return Ok(Some(false));
        }
        // Another etcd on the port has members of its own.
        let members = self
            .etcdctl()
            .args(["member", "list"])
            .stderr(Stdio::null())
            .output()?;
        let is_ours = String::from_utf8_lossy(&members.stdout).contains(&url(&self.ports[1]));
        Ok((members.status.success() && is_ours).then_some(true))
    }

    fn etcdctl(&self) -> Command {
        let mut command = clean("etcdctl");
        command
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &url(&self.ports[0])]);
        command
    }

    /// Returns the number of keys: one for the holder, and one for each waiter.
    fn keys(&self) -> Result<usize> {
        let output = self
            .etcdctl()
            .args(["get", "--prefix", KEY, "--keys-only"])
            .stderr(Stdio::null())
            .output()?;
        ensure!(output.status.success(), "etcdctl get: {}", output.status);
        Ok(String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter(|line| !line.is_empty())
            .count())
    }
}

impl Locker for OnEtcd {
    fn name(&self) -> &'static str {
        self.name
    }

    fn command(&self) -> Command {
        if let Some(rlock) = &self.rlock {
            return plain_run(rlock, &url(&self.etcd.ports[0]).replace("http", "etcd"));
        }
        let mut command = self.etcd.etcdctl();
        command.args(["lock", KEY]);
        command
    }

    fn is_enqueued(&mut self, number: usize, _: i32) -> Result<bool> {
        Ok(self.etcd.keys()? > number)
    }
}

impl Drop for OneEtcd {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.etcd.kill();
        let _ = self.etcd.wait();
    }
}

/// `rlock run` on a ZooKeeper.
pub struct OnZooKeeper {
    program: String,
    server: Rc<ZooKeeper>,
}

impl OnZooKeeper {
    /// Nodes that an rlock makes for its place in the line.
    const NODES: usize = 3;

    /// Makes one of the binary `program`. The server must answer `mntr`.
    pub fn rlock(program: &str, server: &Rc<ZooKeeper>) -> Self {
        Self {
            program: program.to_owned(),
            server: Rc::clone(server),
        }
    }
}

impl Locker for OnZooKeeper {
    fn name(&self) -> &'static str {
        "rlock run"
    }

    fn command(&self) -> Command {
        plain_run(&self.program, &self.server.url())
    }

    fn is_enqueued(&mut self, number: usize, _: i32) -> Result<bool> {
        let count = self.server.figure("zk_ephemerals_count")?;
        Ok(count >= Self::NODES as u64 * (number as u64 + 1))
    }
}

/// `rlock run` in a database, in the line of its waiters.
pub struct OnDatabase<D> {
    program: String,
    server: Rc<D>,
}

impl<D> OnDatabase<D> {
    /// Makes one of the binary `program`.
    pub fn rlock(program: &str, server: &Rc<D>) -> Self {
        Self {
            program: program.to_owned(),
            server: Rc::clone(server),
        }
    }
}

impl<D: Database> Locker for OnDatabase<D> {
    fn name(&self) -> &'static str {
        "rlock run"
    }

    fn command(&self) -> Command {
        plain_run(&self.program, &self.server.url())
    }

    fn is_enqueued(&mut self, number: usize, _: i32) -> Result<bool> {
        // Beside a thousand sessions that come, the server may not let another one in for a while.
        let waiters = self.server.tried("rlock", D::WAITERS);
        Ok(waiters.is_ok_and(|told| told == number.to_string()))
    }
}

/// Returns `rlock run` at a node, up to the command.
fn plain_run(program: &str, node: &str) -> Command {
    let mut command = clean(program);
    command.args(["run", "--key", KEY, "--node", node, "--"]);
    command
}

fn url(port: &Port) -> String {
    format!("http://127.0.0.1:{}", port.number())
}
