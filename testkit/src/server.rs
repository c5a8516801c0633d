//! A redis-server that is started for a test, hurt by it, and killed with it.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::processes::{self, signal};
use crate::program::{clean, compile, source};
use crate::{Certificates, Port, cli, eventually, skipped, unignore_signals};

/// The option, since Redis 7, without which a server answers no request while it loads a small
/// file.
pub const LOADS_SLOWLY: &str = "loading-process-events-interval-bytes";

/// Name of the file, in the server's directory, that holds the offset of its clock.
const OFFSET: &str = "offset";

/// A server in a directory of its own; both are gone when it is dropped.
pub struct Server {
    dir: TempDir,
    process: Child,
    /// Reserved until the drop, so that a server that is down gets its own port again.
    port: Option<Port>,
    options: Vec<String>,
    /// Variables for the server.
    environment: Vec<(&'static str, String)>,
}

impl Server {
    /// Starts a server on a unix socket, without persistence.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server on a unix socket, with more options.
    pub fn with(options: &[&str]) -> Self {
        Self::launch(new_dir(), vec![], None, owned(options)).unwrap_or_else(|log| refuse(&log))
    }

    /// Starts a server that also listens on a TCP port of its own.
    pub fn tcp(options: &[&str]) -> Self {
        Self::on_first_free(Port::choices(), |port| with_port(port, options))
    }

    /// Starts a server that listens with TLS on [`Server::port`], as `certificates` has it; none if
    /// it was built without TLS.
    pub fn tls(certificates: &Certificates) -> Option<Self> {
        Self::start()
            .knows("tls-port")
            .then(|| Self::on_first_free(Port::choices(), |port| certificates.options(port)))
    }

    /// Starts a server whose clock is `seconds` ahead of the machine's.
    pub fn ahead(seconds: i64) -> Self {
        let (dir, environment) = shifted_clock(seconds);
        Self::launch(dir, environment, None, vec![]).unwrap_or_else(|log| refuse(&log))
    }

    /// Starts a server that also listens on a TCP port of its own, and whose clock can be set.
    pub fn tcp_with_clock(options: &[&str]) -> Self {
        Self::on_first(
            Port::choices(),
            || shifted_clock(0),
            |port| with_port(port, options),
        )
    }

    /// Starts a server on the first of `ports` that no other program has taken, with the options
    /// for that port.
    pub fn on_first_free(
        ports: impl IntoIterator<Item = io::Result<Port>>,
        options: impl Fn(u16) -> Vec<String>,
    ) -> Self {
        Self::on_first(ports, || (new_dir(), vec![]), options)
    }

    fn on_first(
        ports: impl IntoIterator<Item = io::Result<Port>>,
        place: impl Fn() -> (TempDir, Vec<(&'static str, String)>),
        options: impl Fn(u16) -> Vec<String>,
    ) -> Self {
        for port in ports {
            let port = port.expect("a port");
            let ((dir, environment), options) = (place(), options(port.number()));
            match Self::launch(dir, environment, Some(port), options) {
                Ok(server) => return server,
                Err(log) if log.contains("Address already in use") => {}
                Err(log) => refuse(&log),
            }
        }
        panic!("every port that was tried is taken");
    }

    /// Returns the log if the server ended before it was ready.
    fn launch(
        dir: TempDir,
        environment: Vec<(&'static str, String)>,
        port: Option<Port>,
        options: Vec<String>,
    ) -> Result<Self, String> {
        let process = begin(&dir, &options, &environment, is_ready)?;
        Ok(Self {
            dir,
            process,
            port,
            options,
            environment,
        })
    }

    /// Sets the clock of a server that was started with one of its own to `seconds` ahead of the
    /// machine's.
    pub fn set_clock(&self, seconds: i64) {
        write_offset(self.dir.path(), seconds);
    }

    /// Whether the server has this option. If not, says so: the caller leaves out what needs it.
    pub fn knows(&self, option: &str) -> bool {
        let known = !self.cli(&["CONFIG", "GET", option]).is_empty();
        if !known {
            skipped(&format!("this server has no {option}"));
        }
        known
    }

    /// Returns the path of its unix socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("redis.sock")
    }

    /// Returns the node's address over the unix socket.
    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// Returns the port of a server that was started with one.
    pub fn port(&self) -> u16 {
        self.port.as_ref().expect("a server with a port").number()
    }

    /// Returns the node's address over TCP.
    pub fn tcp_url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// Opens a connection over the unix socket.
    pub fn connect(&self) -> redis::Connection {
        let client = redis::Client::open(self.url()).expect("an address");
        client.get_connection().expect("a server that answers")
    }

    /// Returns what redis-cli prints for `command`, without the last line break.
    pub fn cli(&self, command: &[&str]) -> String {
        self.cli_as(&[], command)
    }

    /// The same after a login with `login`: a password, or a user and a password.
    pub fn cli_as(&self, login: &[&str], command: &[&str]) -> String {
        cli::at_socket(&self.socket(), login, command)
    }

    /// Returns the token of the lock at the key `job`, empty where there is none. The details
    /// beside the token change when a node is healed.
    pub fn token(&self) -> String {
        self.cli(&["GET", "job"])
            .split(' ')
            .next()
            .unwrap_or_default()
            .to_owned()
    }

    /// All that clients of the server ask for while `run` runs, scripts' own calls left out.
    pub fn monitored(&self, run: impl FnOnce()) -> Vec<String> {
        let mut monitor = Command::new("redis-cli")
            .arg("-s")
            .arg(self.socket())
            .arg("MONITOR")
            .stdout(Stdio::piped())
            .spawn()
            .expect("redis-cli");
        let mut lines = BufReader::new(monitor.stdout.take().expect("its output"))
            .lines()
            .map_while(Result::ok);
        assert_eq!(lines.next().as_deref(), Some("OK"));
        run();
        self.cli(&["ECHO", "the end of it"]);
        let seen = lines
            .take_while(|line| !line.contains("the end of it"))
            .filter(|line| !line.contains(" lua]"))
            .collect();
        let _ = monitor.kill();
        let _ = monitor.wait();
        seen
    }

    /// Returns its process.
    pub fn pid(&self) -> i32 {
        self.process.id().cast_signed()
    }

    /// Stops the server (SIGSTOP): the kernel still accepts connections, and no request is
    /// answered.
    pub fn freeze(&self) {
        processes::freeze(self.pid());
    }

    /// Continues the server (SIGCONT).
    pub fn thaw(&self) {
        signal(self.pid(), Signal::SIGCONT);
    }

    /// Continues the server, and waits until it has caught up with what it was sent meanwhile.
    pub fn wake(&self) {
        self.thaw();
        redis::cmd("PING")
            .exec(&mut self.connect())
            .expect("a server that answers");
    }

    /// Kills the server (SIGKILL): what was not persisted is gone.
    pub fn crash(&mut self) {
        self.process.kill().expect("a server to kill");
        self.process.wait().expect("its end");
    }

    /// Starts the server again after [`Server::crash`].
    pub fn come_back(&mut self) {
        self.process = begin(&self.dir, &self.options, &self.environment, is_ready)
            .unwrap_or_else(|log| refuse(&log));
    }

    /// Starts the server again, and returns while it still loads what it had saved: 20 ms for each
    /// key. It must know [`LOADS_SLOWLY`].
    pub fn come_back_loading(&mut self) {
        let slowly = [
            "--key-load-delay",
            "20000",
            &format!("--{LOADS_SLOWLY}"),
            "1024",
        ];
        let options: Vec<String> = self
            .options
            .iter()
            .cloned()
            .chain(slowly.map(str::to_owned))
            .collect();
        let is_loading = |line: &str| line.contains("Loading RDB");
        self.process = begin(&self.dir, &options, &self.environment, is_loading)
            .unwrap_or_else(|log| refuse(&log));
        eventually("it answers", || self.cli(&["PING"]).starts_with("LOADING"));
    }

    /// Returns the number of scripts that clients have asked for so far: every request of rlock's
    /// is one.
    pub fn asked(&self) -> u64 {
        self.calls("evalsha")
    }

    /// Number of bytes that clients have sent so far.
    pub fn received(&self) -> u64 {
        let told = self.cli(&["INFO", "stats"]);
        let bytes = told
            .lines()
            .find_map(|line| line.trim_end().strip_prefix("total_net_input_bytes:"));
        bytes.map_or(0, |bytes| bytes.parse().expect("a number"))
    }

    /// Waits until clients have asked for `count` scripts more.
    pub fn wait_until_asked(&self, count: u64) {
        let before = self.asked();
        eventually("it is asked again", || self.asked() >= before + count);
    }

    /// Returns the number of calls of `command` so far, in scripts and outside.
    pub fn calls(&self, command: &str) -> u64 {
        let stats = self.cli(&["INFO", "commandstats"]);
        let calls = stats.lines().find_map(|line| {
            line.strip_prefix("cmdstat_")?
                .strip_prefix(command)?
                .strip_prefix(":calls=")
        });
        calls
            .and_then(|calls| calls.split(',').next())
            .map_or(0, |calls| calls.parse().expect("a number"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Whether a line of the log says that the server is ready. The unix socket is the last listener
/// that it names, in the words of every version.
fn is_ready(line: &str) -> bool {
    line.contains("eady to accept connections")
        && (line.contains("redis.sock") || line.contains("unix"))
}

fn new_dir() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

fn with_port(port: u16, options: &[&str]) -> Vec<String> {
    owned(&[&["--port", &port.to_string()], options].concat())
}

/// Returns a directory with the clock shim, its offset at `seconds`, and the variables that preload
/// it.
pub(crate) fn shifted_clock(seconds: i64) -> (TempDir, Vec<(&'static str, String)>) {
    let dir = new_dir();
    let shim =
        compile(&source("clock.c"), &["-shared", "-fPIC"], dir.path()).expect("the clock shim");
    let offset = dir.path().join(OFFSET);
    std::fs::write(&offset, seconds.to_ne_bytes()).expect("the offset");
    let [shim, offset] = [shim, offset].map(|path| path.display().to_string());
    (dir, vec![("LD_PRELOAD", shim), ("CLOCK_OFFSET", offset)])
}

/// Sets the clock of [`shifted_clock`], in place: the server has the file mapped.
pub(crate) fn write_offset(dir: &Path, seconds: i64) {
    let mut file = OpenOptions::new()
        .write(true)
        .open(dir.join(OFFSET))
        .expect("the offset");
    file.write_all(&seconds.to_ne_bytes()).expect("the offset");
}

fn refuse(log: &str) -> ! {
    panic!("a server did not start:\n{log}")
}

/// Starts a server, and waits until its log says that it is up. If it ends before that, returns the
/// log.
fn begin(
    dir: &TempDir,
    options: &[String],
    environment: &[(&str, String)],
    is_up: impl Fn(&str) -> bool,
) -> Result<Child, String> {
    unignore_signals();
    let binary = std::env::var("TEST_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    let mut process = clean(&binary)
        .args([
            "--port",
            "0",
            "--unixsocket",
            "redis.sock",
            "--unixsocketperm",
            "700",
        ])
        .args(["--dir", ".", "--save", "", "--daemonize", "no"])
        .args(options)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{binary}: {error}; install Debian's redis-server"));
    let mut log = BufReader::new(process.stdout.take().expect("its log"));
    let mut read = String::new();
    loop {
        let mut line = String::new();
        if log.read_line(&mut line).expect("its log") == 0 {
            process.wait().expect("its end");
            return Err(read);
        }
        if is_up(&line) {
            break;
        }
        read.push_str(&line);
    }
    // The log goes on being read: a server blocks once the pipe is full.
    std::thread::spawn(move || log.lines().map_while(Result::ok).for_each(drop));
    Ok(process)
}
