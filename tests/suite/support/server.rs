//! A redis-server of the test's own.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::{Certificates, Port, eventually, signal, skipped};

/// The option, of Redis 7 on, without which a server that loads a small file answers nobody meanwhile.
pub(crate) const LOADS_SLOWLY: &str = "loading-process-events-interval-bytes";

/// A server that is gone when the test is.
pub(crate) struct Server {
    dir: TempDir,
    process: Child,
    /// Its own while it is down, too.
    port: Option<Port>,
    extra: Vec<String>,
    /// Variables for the server.
    environment: Vec<(&'static str, String)>,
}

impl Server {
    /// A server on a unix socket, without persistence.
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// The same, with more options.
    pub(crate) fn with(options: &[&str]) -> Self {
        Self::launch(new_dir(), vec![], owned(options))
    }

    /// A server that also listens on a TCP port of its own.
    pub(crate) fn tcp(options: &[&str]) -> Self {
        Self::on_first_free(Port::choices(), |port| owned(&[&["--port", &port.to_string()], options].concat()))
    }

    /// A server that listens with TLS on the port returned, as `certificates` has it; none if it was built without.
    pub(crate) fn tls(certificates: &Certificates) -> Option<(Self, u16)> {
        if !Self::start().knows("tls-port") {
            return None;
        }
        let server = Self::on_first_free(Port::choices(), |port| certificates.options(port));
        let port = server.port();
        Some((server, port))
    }

    /// A server on the first of `ports` that no other program has taken, with the options for that port.
    pub(crate) fn on_first_free(
        ports: impl IntoIterator<Item = io::Result<Port>>,
        options: impl Fn(u16) -> Vec<String>,
    ) -> Self {
        for port in ports {
            let port = port.expect("a port");
            let (dir, extra) = (new_dir(), options(port.number()));
            match begin(&dir, &extra, &[], is_ready) {
                Ok(process) => return Self { dir, process, port: Some(port), extra, environment: vec![] },
                Err(told) => assert!(told.contains("Address already in use"), "a server did not start:\n{told}"),
            }
        }
        panic!("every port that was tried is taken");
    }

    /// A server whose clock is `seconds` ahead.
    pub(crate) fn ahead(seconds: i64) -> Self {
        let dir = new_dir();
        let [shim, offset] = ["clock.so", "offset"].map(|name| dir.path().join(name));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/clock.c");
        let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&shim).arg(source).status();
        assert!(built.expect("cc").success());
        std::fs::write(&offset, seconds.to_ne_bytes()).expect("the offset");
        let [shim, offset] = [shim, offset].map(|path| path.display().to_string());
        Self::launch(dir, vec![("LD_PRELOAD", shim), ("CLOCK_OFFSET", offset)], vec![])
    }

    fn launch(dir: TempDir, environment: Vec<(&'static str, String)>, extra: Vec<String>) -> Self {
        let process = started(begin(&dir, &extra, &environment, is_ready));
        Self { dir, process, port: None, extra, environment }
    }

    /// Sets the clock of a server that was started with [`Server::ahead`] to so many seconds ahead of the machine's.
    pub(crate) fn set_clock(&self, seconds: i64) {
        // Written in place: the server has the file mapped.
        let mut file = OpenOptions::new().write(true).open(self.dir.path().join("offset")).expect("the offset");
        file.write_all(&seconds.to_ne_bytes()).expect("the offset");
    }

    /// Whether it has this option. If not, that is said: the caller leaves out what needs it.
    pub(crate) fn knows(&self, option: &str) -> bool {
        let known = !self.cli(&["CONFIG", "GET", option]).is_empty();
        if !known {
            skipped(&format!("this server has no {option}"));
        }
        known
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("redis.sock")
    }

    /// The node's address over the unix socket.
    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// The port of [`Server::tcp`] or [`Server::tls`].
    pub(crate) fn port(&self) -> u16 {
        self.port.as_ref().expect("a server with a port").number()
    }

    /// The node's address over TCP.
    pub(crate) fn tcp_url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// What redis-cli prints for `command`, without the last line break.
    pub(crate) fn cli(&self, command: &[&str]) -> String {
        let output = Command::new("redis-cli").arg("-s").arg(self.socket()).args(command).output().expect("redis-cli");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// The token of the lock at the key `job`; empty where there is none. The details beside it change when a node is healed.
    pub(crate) fn token(&self) -> String {
        self.cli(&["GET", "job"]).split(' ').next().unwrap_or_default().to_owned()
    }

    /// All that clients of the server ask for while `run` runs, scripts' own calls left out.
    pub(crate) fn monitored(&self, run: impl FnOnce()) -> Vec<String> {
        let mut monitor = Command::new("redis-cli")
            .arg("-s")
            .arg(self.socket())
            .arg("MONITOR")
            .stdout(Stdio::piped())
            .spawn()
            .expect("redis-cli");
        let mut lines = BufReader::new(monitor.stdout.take().expect("its output")).lines().map_while(Result::ok);
        assert_eq!(lines.next().as_deref(), Some("OK"));
        run();
        self.cli(&["ECHO", "the end of it"]);
        let seen =
            lines.take_while(|line| !line.contains("the end of it")).filter(|line| !line.contains(" lua]")).collect();
        let _ = monitor.kill();
        let _ = monitor.wait();
        seen
    }

    fn pid(&self) -> i32 {
        self.process.id().cast_signed()
    }

    /// SIGSTOP: connections are still accepted by the kernel, and nothing answers.
    pub(crate) fn freeze(&self) {
        signal(self.pid(), Signal::SIGSTOP);
    }

    /// SIGCONT.
    pub(crate) fn thaw(&self) {
        signal(self.pid(), Signal::SIGCONT);
    }

    /// SIGKILL: what was not persisted is gone.
    pub(crate) fn crash(&mut self) {
        self.process.kill().expect("a server to kill");
        self.process.wait().expect("its end");
    }

    /// Starts it again after [`Server::crash`].
    pub(crate) fn come_back(&mut self) {
        self.process = started(begin(&self.dir, &self.extra, &self.environment, is_ready));
    }

    /// Starts it again, and leaves it while it is still reading what it had saved: 20 ms for each key. It must know
    /// [`LOADS_SLOWLY`].
    pub(crate) fn come_back_loading(&mut self) {
        let slowly = ["--key-load-delay", "20000", &format!("--{LOADS_SLOWLY}"), "1024"];
        let options: Vec<String> = self.extra.iter().cloned().chain(slowly.map(str::to_owned)).collect();
        let is_loading = |line: &str| line.contains("Loading RDB");
        self.process = started(begin(&self.dir, &options, &self.environment, is_loading));
        eventually("it answers", || self.cli(&["PING"]).starts_with("LOADING"));
    }

    /// How many scripts it was asked to run so far: every request of rlock's is one.
    pub(crate) fn asked(&self) -> u64 {
        self.calls("eval")
    }

    /// Waits until it was asked for `count` scripts more.
    pub(crate) fn wait_until_asked(&self, count: u64) {
        let before = self.asked();
        eventually("it is asked again", || self.asked() >= before + count);
    }

    /// How often a command ran so far, in scripts and outside.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        let stats = self.cli(&["INFO", "commandstats"]);
        let calls = stats
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_")?.strip_prefix(command)?.strip_prefix(":calls="));
        calls.and_then(|calls| calls.split(',').next()).map_or(0, |calls| calls.parse().expect("a number"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The socket is the last of the listeners that the server names, whatever its version's words.
fn is_ready(line: &str) -> bool {
    line.contains("eady to accept connections") && (line.contains("redis.sock") || line.contains("unix"))
}

fn new_dir() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

fn started(server: Result<Child, String>) -> Child {
    server.unwrap_or_else(|told| panic!("a server did not start:\n{told}"))
}

/// Starts a server, and waits until it is up by its log. If it ends before that, returns what it logged.
fn begin(
    dir: &TempDir,
    extra: &[String],
    environment: &[(&str, String)],
    is_up: impl Fn(&str) -> bool,
) -> Result<Child, String> {
    super::unignore_signals();
    let binary = std::env::var("RLOCK_TEST_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    let mut process = Command::new(&binary)
        .args(["--port", "0", "--unixsocket", "redis.sock", "--unixsocketperm", "700"])
        .args(["--dir", ".", "--save", "", "--daemonize", "no"])
        .args(extra)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{binary}: {error}; install Debian's redis-server"));
    let mut log = BufReader::new(process.stdout.take().expect("its log"));
    let mut told = String::new();
    loop {
        let mut line = String::new();
        if log.read_line(&mut line).expect("its log") == 0 {
            process.wait().expect("its end");
            return Err(told);
        }
        if is_up(&line) {
            break;
        }
        told.push_str(&line);
    }
    // The log goes on being read, or the server would stand still once the pipe is full.
    std::thread::spawn(move || log.lines().map_while(Result::ok).for_each(drop));
    Ok(process)
}
