//! ZooKeeper servers that are started for a test, hurt by it, and killed with it; and other clients
//! of their locks.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::processes::{self, signal};
use crate::program::{clean, source};
use crate::wait::LIMIT;
use crate::{Certificates, Port, eventually_within, skipped, unignore_signals};

/// Parts of a server (Debian's libzookeeper-java and libslf4j-java).
const JARS: [&str; 2] = [
    "/usr/share/java/zookeeper.jar",
    "/usr/share/java/slf4j-simple.jar",
];

/// Parts of a server with TLS (Debian's libnetty-java).
const NETTY: [&str; 8] = [
    "/usr/share/java/netty-buffer.jar",
    "/usr/share/java/netty-codec.jar",
    "/usr/share/java/netty-common.jar",
    "/usr/share/java/netty-handler.jar",
    "/usr/share/java/netty-resolver.jar",
    "/usr/share/java/netty-transport.jar",
    "/usr/share/java/netty-transport-native-epoll.jar",
    "/usr/share/java/netty-transport-native-unix-common.jar",
];

/// Parts of a client of Curator.
const CURATOR: [&str; 6] = [
    "/usr/share/java/curator-recipes.jar",
    "/usr/share/java/curator-framework.jar",
    "/usr/share/java/curator-client.jar",
    "/usr/share/java/zookeeper.jar",
    "/usr/share/java/guava.jar",
    "/usr/share/java/slf4j-simple.jar",
];

/// Longest time of a start. On a busy machine an ensemble needs some 20 s to elect a leader.
const START: Duration = Duration::from_secs(90);

/// Python that has Debian's python3-kazoo.
const PYTHON: &str = "/usr/bin/python3";

/// Whether ZooKeeper is installed. If not, says so.
pub fn has_zookeeper() -> bool {
    let is_there = JARS.iter().all(|jar| Path::new(jar).exists())
        && clean("java")
            .arg("-version")
            .stderr(Stdio::null())
            .status()
            .is_ok();
    if !is_there {
        skipped(
            "Debian's libzookeeper-java, libslf4j-java and default-jre-headless are not installed",
        );
    }
    is_there
}

/// Whether a server can have TLS. If not, says so.
pub fn has_zookeeper_with_tls() -> bool {
    let is_there = NETTY.iter().all(|jar| Path::new(jar).exists());
    if !is_there {
        skipped("Debian's libnetty-java is not installed");
    }
    is_there && has_zookeeper()
}

/// A server in a directory of its own; both are gone when it is dropped.
pub struct ZooKeeper {
    dir: TempDir,
    process: Child,
    port: Port,
    /// Its port for clients with TLS.
    secure: Option<Port>,
    /// Its ports for the other members, which no other server may be given.
    for_members: Vec<Port>,
}

impl ZooKeeper {
    /// Starts a server alone, with these lines in its configuration. Its ticks are 0.1 s long.
    pub fn start(options: &[&str]) -> Self {
        let port = Port::reserve().expect("a port");
        Self::with(port, options, None)
    }

    /// Starts a server alone that has a port for clients with TLS too. They must have a certificate of
    /// the same issuer.
    pub fn start_secure(certificates: &Certificates) -> Self {
        let port = || Port::reserve().expect("a port");
        let secure = port();
        let text = |name: &str| std::fs::read_to_string(certificates.file(name)).expect("a file");
        let store = certificates.file("store.pem");
        std::fs::write(&store, text("server.key") + &text("server.pem")).expect("a file");
        let lines = [
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory".to_owned(),
            format!("secureClientPort={}", secure.number()),
            "secureClientPortAddress=127.0.0.1".to_owned(),
            "ssl.keyStore.type=PEM".to_owned(),
            format!("ssl.keyStore.location={}", store.display()),
            "ssl.trustStore.type=PEM".to_owned(),
            format!(
                "ssl.trustStore.location={}",
                certificates.file("ca.pem").display()
            ),
        ];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let mut server = Self::with(port(), &lines, None);
        // It listens here after it has answered there.
        let address = (Ipv4Addr::LOCALHOST, secure.number());
        eventually_within(START, "ZooKeeper listens with TLS", || {
            TcpStream::connect(address).is_ok()
        });
        server.secure = Some(secure);
        server
    }

    /// Starts an ensemble. Member `n` finds the leader's port for followers of member `m` at
    /// `reached(n, m, port)`.
    pub fn ensemble(
        count: usize,
        options: &[&str],
        reached: impl Fn(usize, usize, u16) -> u16,
    ) -> Vec<Self> {
        Self::ensemble_of(&vec![None; count], options, reached)
    }

    /// Starts an ensemble whose members have their data in these directories.
    pub fn ensemble_on(data: &[PathBuf], options: &[&str]) -> Vec<Self> {
        let data: Vec<_> = data.iter().cloned().map(Some).collect();
        Self::ensemble_of(&data, options, |_, _, port| port)
    }

    fn ensemble_of(
        data: &[Option<PathBuf>],
        options: &[&str],
        reached: impl Fn(usize, usize, u16) -> u16,
    ) -> Vec<Self> {
        let count = data.len();
        let ports = |_| [(); 3].map(|()| Port::reserve().expect("a port"));
        let all: Vec<[Port; 3]> = (0..count).map(ports).collect();
        let numbers: Vec<[u16; 3]> = all
            .iter()
            .map(|ports| ports.each_ref().map(Port::number))
            .collect();
        let mut members = Vec::new();
        for (own, [client, followers, election]) in all.into_iter().enumerate() {
            let mut lines: Vec<String> = options.iter().map(ToString::to_string).collect();
            for (other, [_, followers, election]) in numbers.iter().enumerate() {
                let followers = if own == other {
                    *followers
                } else {
                    reached(own, other, *followers)
                };
                lines.push(format!(
                    "server.{}=127.0.0.1:{followers}:{election}",
                    other + 1
                ));
            }
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let data = data[own].as_deref();
            let mut member = Self::begin(client, &lines, Some(own + 1), data);
            member.for_members = vec![followers, election];
            members.push(member);
        }
        for member in &members {
            member.until_ready();
        }
        members
    }

    fn with(port: Port, options: &[&str], id: Option<usize>) -> Self {
        let server = Self::begin(port, options, id, None);
        server.until_ready();
        server
    }

    fn begin(port: Port, options: &[&str], id: Option<usize>, data: Option<&Path>) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let data = data.unwrap_or(dir.path());
        std::fs::create_dir_all(data).expect("a directory");
        let mut text = format!(
            "clientPort={}\nclientPortAddress=127.0.0.1\ndataDir={}\nmaxClientCnxns=0\n",
            port.number(),
            data.display()
        );
        if !options.iter().any(|line| line.starts_with("tickTime=")) {
            text.push_str("tickTime=100\nminSessionTimeout=200\nmaxSessionTimeout=1000000\n");
        }
        for line in options {
            writeln!(text, "{line}").expect("a text");
        }
        std::fs::write(dir.path().join("zoo.cfg"), text).expect("zoo.cfg");
        if let Some(id) = id {
            std::fs::write(data.join("myid"), id.to_string()).expect("myid");
        }
        let process = launch(&dir);
        Self {
            dir,
            process,
            port,
            secure: None,
            for_members: Vec::new(),
        }
    }

    fn until_ready(&self) {
        eventually_within(START, "ZooKeeper answers", || {
            self.told("srvr").contains("Mode:")
        });
    }

    /// Returns its answer to one of the four letter words.
    pub fn told(&self, word: &str) -> String {
        let mut told = String::new();
        // What is told before an error counts, and nothing is an answer too.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port())).and_then(|mut stream| {
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            stream.write_all(word.as_bytes())?;
            stream.read_to_string(&mut told)
        });
        told
    }

    /// Returns its process.
    pub fn pid(&self) -> i32 {
        self.process.id().cast_signed()
    }

    /// Returns a figure of `mntr`, which the configuration must allow.
    pub fn figure(&self, name: &str) -> anyhow::Result<u64> {
        let told = self.told("mntr");
        let figure = told.lines().find_map(|line| line.strip_prefix(name));
        Ok(figure
            .with_context(|| format!("mntr has no {name}"))?
            .trim()
            .parse()?)
    }

    /// Whether it leads its ensemble.
    pub fn leads(&self) -> bool {
        self.told("srvr").contains("Mode: leader")
    }

    /// Returns its port for clients.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns the node's address.
    pub fn url(&self) -> String {
        format!("zookeeper://127.0.0.1:{}", self.port())
    }

    /// Returns the node's address with TLS.
    pub fn secure_url(&self) -> String {
        let port = self.secure.as_ref().expect("a port for TLS");
        format!("zookeepers://127.0.0.1:{}", port.number())
    }

    /// Stops the server (SIGSTOP).
    pub fn freeze(&self) {
        processes::freeze(self.process.id().cast_signed());
    }

    /// Continues the server (SIGCONT).
    pub fn thaw(&self) {
        signal(self.process.id().cast_signed(), Signal::SIGCONT);
    }

    /// Kills the server (SIGKILL).
    pub fn crash(&mut self) {
        self.process.kill().expect("a server to kill");
        self.process.wait().expect("its end");
    }

    /// Deletes what the server has saved.
    pub fn forget(&mut self) {
        std::fs::remove_dir_all(self.dir.path().join("version-2")).expect("its data");
    }

    /// Starts the server again after [`ZooKeeper::crash`].
    pub fn come_back(&mut self) {
        self.process = launch(&self.dir);
        self.until_ready();
    }
}

fn launch(dir: &TempDir) -> Child {
    unignore_signals();
    let log = std::fs::File::create(dir.path().join("log")).expect("a log");
    clean("java")
        .args(["-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
        .args(["-Xshare:auto", "-Dzookeeper.admin.enableServer=false"])
        .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        .args(["-cp", &[&JARS[..], &NETTY].concat().join(":")])
        .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
        .arg(dir.path().join("zoo.cfg"))
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("java")
}

impl Drop for ZooKeeper {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns a Python that has kazoo; `None` if it is not installed, which is printed.
pub fn kazoo() -> Option<Command> {
    let is_there = clean(PYTHON)
        .args(["-c", "import kazoo"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !is_there {
        skipped("Debian's python3-kazoo is not installed");
    }
    is_there.then(|| clean(PYTHON))
}

/// Returns a Java that has Curator, for a file of source; `None` if it is not installed, which is
/// printed.
pub fn curator() -> Option<Command> {
    let is_there = CURATOR.iter().all(|jar| Path::new(jar).exists())
        && clean("javac")
            .arg("-version")
            .stdout(Stdio::null())
            .status()
            .is_ok();
    if !is_there {
        skipped("Debian's libcurator-recipes-java, libguava-java and a JDK are not installed");
    }
    is_there.then(|| {
        let mut java = clean("java");
        java.args(["-cp", &CURATOR.join(":")]);
        java
    })
}

/// A client of kazoo or Curator, with a session of its own.
pub struct Peer {
    process: Child,
    commands: ChildStdin,
    lines: Receiver<String>,
    /// The lines that were read and are not what was waited for.
    read: Vec<String>,
}

impl Peer {
    /// Starts a client of kazoo for these hosts, whose session has this timeout; `None` if kazoo is
    /// not installed.
    pub fn kazoo(hosts: &str, timeout: Duration) -> Option<Self> {
        let mut program = kazoo()?;
        program.arg(source("kazoo_client.py"));
        Some(Self::start(program, hosts, timeout))
    }

    /// The same of Curator.
    pub fn curator(hosts: &str, timeout: Duration) -> Option<Self> {
        let mut program = curator()?;
        program.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]);
        program.arg(source("Curator.java"));
        Some(Self::start(program, hosts, timeout))
    }

    fn start(mut program: Command, hosts: &str, timeout: Duration) -> Self {
        let mut process = program
            .args([hosts, &timeout.as_secs_f64().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a client");
        let output = BufReader::new(process.stdout.take().expect("its output"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let commands = process.stdin.take().expect("its input");
        let mut peer = Self {
            process,
            commands,
            lines,
            read: Vec::new(),
        };
        peer.until(START, "ready");
        peer
    }

    /// Gives a command, and returns its answer.
    #[track_caller]
    pub fn ask(&mut self, command: &str) -> String {
        writeln!(self.commands, "{command}").expect("its input");
        self.until(LIMIT, "answer")
    }

    /// Waits until the lock that a command calls `name` is held.
    #[track_caller]
    pub fn holds(&mut self, name: &str) {
        self.until(LIMIT, &format!("held {name}"));
    }

    /// Whether that lock is held.
    pub fn has(&mut self, name: &str) -> bool {
        self.read.extend(self.lines.try_iter());
        self.read.contains(&format!("held {name}"))
    }

    #[track_caller]
    fn until(&mut self, limit: Duration, beginning: &str) -> String {
        let end = Instant::now() + limit;
        loop {
            let found = self
                .read
                .iter()
                .position(|line| line.starts_with(beginning));
            if let Some(at) = found {
                let line = self.read.remove(at);
                return line[beginning.len()..].trim().to_owned();
            }
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    assert!(!line.starts_with("failed"), "{line}");
                    self.read.push(line);
                }
                Err(error) => panic!("no {beginning}: {error}"),
            }
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
