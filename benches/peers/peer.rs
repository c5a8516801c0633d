//! The peers: the programs that take part, and how each runs a command under a lock.

use std::fs::DirEntry;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use testkit::measure::locker::{KEY, Locker, OnEtcd, RlockRun};
use testkit::program::{clean, first_line};
use testkit::{Server, processes};

use crate::RLOCK;

/// Directory where `tests/interop/install` puts the libraries.
const INSTALLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop/.installed");

/// Directory of the wrappers.
pub(crate) const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers");

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Peer {
    Floor,
    Rlock,
    Shell,
    RedisPy,
    NodeRedlock,
    Etcdctl,
    EtcdctlInMemory,
    Flock,
    Chpst,
    RlockLocal,
}

/// Peers whose lock is on a server.
pub(crate) const ON_SERVERS: [Peer; 7] = [
    Peer::Floor,
    Peer::Rlock,
    Peer::Shell,
    Peer::RedisPy,
    Peer::NodeRedlock,
    Peer::Etcdctl,
    Peer::EtcdctlInMemory,
];

/// Peers whose lock is in this machine's kernel.
pub(crate) const ON_THIS_MACHINE: [Peer; 3] = [Peer::Flock, Peer::Chpst, Peer::RlockLocal];

/// The servers, files and programs that the peers need.
pub(crate) struct World {
    pub(crate) dir: PathBuf,
    /// Directory of this machine's locks.
    pub(crate) locks: PathBuf,
    pub(crate) witness: PathBuf,
    pub(crate) floor: PathBuf,
    pub(crate) servers: Vec<Server>,
    pub(crate) absent: Vec<Peer>,
}

impl World {
    /// Returns those of `all` that are installed.
    pub(crate) fn present(&self, all: &[Peer]) -> impl Iterator<Item = Peer> {
        all.iter()
            .copied()
            .filter(|peer| !self.absent.contains(peer))
    }

    /// Returns those of `all` that are installed and can wait, ready to run a command.
    pub(crate) fn waiting(&self, all: &[Peer]) -> Result<Vec<Box<dyn Locker>>> {
        self.present(all)
            .filter(|peer| *peer != Peer::Floor)
            .map(|peer| peer.locker(self))
            .collect()
    }
}

impl Peer {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor.c",
            Self::Rlock => "rlock run",
            Self::Shell => "sh and redis-cli",
            Self::RedisPy => "redis-py Lock",
            Self::NodeRedlock => "node-redlock",
            Self::Etcdctl => "etcdctl lock",
            Self::EtcdctlInMemory => "etcdctl lock, in /dev/shm",
            Self::Flock => "flock",
            Self::Chpst => "chpst -l",
            Self::RlockLocal => "rlock run, local",
        }
    }

    /// Returns how it waits, whether it renews, what becomes of a command whose lock is lost, and
    /// whether it has a fence.
    pub(crate) fn does(self) -> [&'static str; 4] {
        match self {
            Self::Floor => ["does not", "no", "goes on", "no"],
            Self::Rlock => [
                "queue, told by the release",
                "every 10 s",
                "killed before the lease ends",
                "`RLOCK_FENCE`",
            ],
            Self::Shell => ["asks every 0.1 s", "no: lease of 10 min", "goes on", "no"],
            Self::RedisPy => [
                "asks every 0.1 s (its default)",
                "no: no lease (its default)",
                "goes on",
                "no",
            ],
            Self::NodeRedlock => [
                "asks every 0.1 to 0.3 s (its default), without its limit of 10 tries",
                "0.5 s before the end (its default)",
                "gets TERM after the lease",
                "no",
            ],
            Self::Etcdctl | Self::EtcdctlInMemory => [
                "queue, told by the release",
                "yes",
                "goes on",
                "`ETCD_LOCK_REV`",
            ],
            Self::Flock | Self::Chpst => ["in the kernel", "needs none", "–", "no"],
            Self::RlockLocal => [
                "told by the kernel",
                "looks after its file",
                "killed",
                "`RLOCK_FENCE`",
            ],
        }
    }

    /// Returns its version, and that of all it needs beside rlock and redis-server; an error if it
    /// is not installed.
    pub(crate) fn version(self) -> Result<String> {
        match self {
            Self::Floor => first_line("cc", &["--version"]),
            Self::Rlock | Self::RlockLocal => first_line(RLOCK, &["--version"]),
            Self::Shell => Ok(format!(
                "{}, sh: {}",
                first_line("redis-cli", &["--version"])?,
                package("dash")
            )),
            Self::RedisPy => {
                let versions = "import platform, redis; \
                                print(f'redis-py {redis.__version__}, Python {platform.python_version()}')";
                first_line(&python(), &["-c", versions])
                    .context("tests/interop/install python gets it")
            }
            Self::NodeRedlock => {
                let of = |name: &str| {
                    format!(
                        "{name} ${{require('{INSTALLED}/node/node_modules/{name}/package.json').version}}"
                    )
                };
                let versions = format!(
                    "`node-{}, {}, node ${{process.version}}`",
                    of("redlock"),
                    of("ioredis")
                );
                first_line("node", &["-p", &versions]).context("tests/interop/install node gets it")
            }
            Self::Etcdctl | Self::EtcdctlInMemory => Ok(format!(
                "{}, {}",
                first_line("etcd", &["--version"])?,
                first_line("etcdctl", &["version"])?
            )),
            Self::Flock => first_line("flock", &["--version"]),
            // chpst cannot print its version.
            Self::Chpst => first_line("chpst", &["echo", "chpst"])
                .map(|name| format!("{name}: {}", package("runit"))),
        }
    }

    /// Makes it ready to run a command, on one server if it needs any.
    pub(crate) fn locker(self, world: &World) -> Result<Box<dyn Locker>> {
        let one = &world.servers[..1];
        let file = world
            .locks
            .join(format!("{}.lock", self.name()))
            .to_string_lossy()
            .into_owned();
        let (argv, line) = match self {
            Self::Rlock => return Ok(Box::new(RlockRun::on(RLOCK, one)?)),
            Self::Etcdctl => return Ok(Box::new(OnEtcd::on_disk(&world.dir)?)),
            Self::EtcdctlInMemory => return Ok(Box::new(OnEtcd::in_memory()?)),
            Self::Floor => (self.on(world, one, KEY), Line::None),
            Self::Shell => (self.on(world, one, KEY), Line::Sleeps),
            Self::RedisPy | Self::NodeRedlock => {
                (self.on(world, one, KEY), Line::Asks(one[0].connect()))
            }
            Self::Flock => (
                vec!["flock".to_owned(), file.clone()],
                Line::Blocks(file.into()),
            ),
            Self::Chpst => (
                ["chpst", "-l", &file].map(str::to_owned).to_vec(),
                Line::Blocks(file.into()),
            ),
            Self::RlockLocal => {
                let node = format!("local:{}", world.locks.join("local").display());
                let argv = [RLOCK, "run", "--key", KEY, "--node", &node, "--"]
                    .map(str::to_owned)
                    .to_vec();
                (argv, Line::Polls)
            }
        };
        Ok(Box::new(Program {
            name: self.name(),
            argv,
            line,
        }))
    }

    /// Returns the words before a command that it runs under `key` on `servers`.
    pub(crate) fn on(self, world: &World, servers: &[Server], key: &str) -> Vec<String> {
        let urls = servers
            .iter()
            .map(Server::tcp_url)
            .collect::<Vec<_>>()
            .join(",");
        let wrapper = |name: &str| format!("{HERE}/{name}");
        match self {
            Self::Floor => {
                let ports = servers
                    .iter()
                    .map(|server| server.port().to_string())
                    .collect::<Vec<_>>()
                    .join(",");
                vec![
                    world.floor.to_string_lossy().into_owned(),
                    "127.0.0.1".to_owned(),
                    ports,
                    key.to_owned(),
                ]
            }
            Self::Shell => vec![wrapper("shell.sh"), urls, key.to_owned()],
            Self::RedisPy => vec![python(), wrapper("redis_py.py"), urls, key.to_owned()],
            Self::NodeRedlock => vec![
                "node".to_owned(),
                wrapper("node_redlock.mjs"),
                urls,
                key.to_owned(),
            ],
            _ => [
                RLOCK,
                "run",
                "--key",
                key,
                "--restart-guard",
                "off",
                "--node",
                &urls,
                "--",
            ]
            .map(str::to_owned)
            .to_vec(),
        }
    }

    /// Returns a run of its interpreter with its libraries and nothing else, if it has one.
    pub(crate) fn idle(self) -> Option<(&'static str, Vec<String>)> {
        let require = format!(
            "require('{INSTALLED}/node/node_modules/ioredis'); require('{INSTALLED}/node/node_modules/redlock')"
        );
        match self {
            Self::RedisPy => Some((
                "of it Python and redis-py",
                vec![python(), "-c".to_owned(), "import redis".to_owned()],
            )),
            Self::NodeRedlock => Some((
                "of it node and its libraries",
                vec!["node".to_owned(), "-e".to_owned(), require],
            )),
            _ => None,
        }
    }
}

/// A peer that is a program, and how to see that it waits.
struct Program {
    name: &'static str,
    argv: Vec<String>,
    line: Line,
}

enum Line {
    /// It does not wait.
    None,
    /// It has sent a request to this server.
    Asks(redis::Connection),
    /// It runs sleep(1).
    Sleeps,
    /// It is blocked in the kernel for this file.
    Blocks(PathBuf),
    /// It sleeps for the first time since it has a descriptor for epoll(7).
    Polls,
}

impl Locker for Program {
    fn name(&self) -> &'static str {
        self.name
    }

    fn command(&self) -> Command {
        let mut command = clean(&self.argv[0]);
        command.args(&self.argv[1..]);
        command
    }

    fn is_enqueued(&mut self, number: usize, pid: i32) -> Result<bool> {
        let lines =
            |text: &str, has: &dyn Fn(&str) -> bool| text.lines().filter(|line| has(line)).count();
        Ok(match &mut self.line {
            Line::None => false,
            Line::Asks(server) => {
                let clients: String = redis::cmd("CLIENT").arg("LIST").query(server)?;
                let asked = |line: &str| {
                    ["set", "eval", "evalsha"]
                        .iter()
                        .any(|name| line.contains(&format!(" cmd={name} ")))
                };
                // The holder has sent a request too.
                lines(&clients, &asked) > number
            }
            Line::Sleeps => processes::child_named(pid, "sleep").is_some(),
            Line::Blocks(file) => {
                let inode = format!(":{} ", std::fs::metadata(file)?.ino());
                lines(&std::fs::read_to_string("/proc/locks")?, &|line| {
                    line.contains("->") && line.contains(&inode)
                }) >= number
            }
            Line::Polls => {
                let mut open = std::fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
                let polls = |fd: DirEntry| {
                    std::fs::read_link(fd.path())
                        .is_ok_and(|open| open.as_os_str() == "anon_inode:[eventpoll]")
                };
                processes::state(pid) == Some('S') && open.any(polls)
            }
        })
    }
}

fn python() -> String {
    format!("{INSTALLED}/python/bin/python")
}

/// Returns a Debian package's name and version.
fn package(name: &str) -> String {
    first_line("dpkg-query", &["-W", "-f", "${Package} ${Version}", name])
        .unwrap_or_else(|_| "of unknown version".to_owned())
}
