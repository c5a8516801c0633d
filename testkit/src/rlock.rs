//! The binary under test: its command line, its process, its end.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::processes::signal;
use crate::{Certificates, LIMIT, Nodes, Server, unignore_signals};

/// A command line in the making.
#[must_use]
pub struct Rlock {
    command: Command,
}

impl Rlock {
    /// Returns `PROGRAM WORDS…`, without the variables that rlock reads.
    pub fn of<I: IntoIterator<Item: AsRef<OsStr>>>(program: impl AsRef<OsStr>, words: I) -> Self {
        unignore_signals();
        let mut command = Command::new(program);
        command
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"RLOCK_") || name == "REDISCLI_AUTH" {
                command.env_remove(name);
            }
        }
        for name in [
            "CI",
            "GITHUB_ACTIONS",
            "GITLAB_CI",
            "BUILDKITE",
            "JENKINS_URL",
            "JOURNAL_STREAM",
            "NOTIFY_SOCKET",
        ] {
            command.env_remove(name);
        }
        // Files of the machine that the tests run on.
        command.env("RLOCK_CONFIG", "none");
        command.env("LOGNAME", "tester");
        Self { command }
    }

    /// Adds `server` as the node.
    pub fn on(self, server: &Server) -> Self {
        self.node(&server.url())
    }

    /// Adds `nodes`, which count at once though they have just been started.
    pub fn on_all(self, nodes: &Nodes) -> Self {
        self.node(&nodes.url()).args(["--restart-guard", "off"])
    }

    /// Adds nodes by their addresses.
    pub fn node(self, url: &str) -> Self {
        self.args(["--node", url])
    }

    /// Lets the issuer of `certificates` vouch for the nodes.
    pub fn trusting(self, certificates: &Certificates) -> Self {
        self.args([OsStr::new("--ca"), certificates.file("ca.pem").as_os_str()])
    }

    /// Shows the client's certificate of `certificates`.
    pub fn showing(self, certificates: &Certificates) -> Self {
        let (cert, key) = ["client.pem", "client.key"]
            .map(|name| certificates.file(name))
            .into();
        self.args([OsStr::new("--cert"), cert.as_os_str()])
            .args([OsStr::new("--cert-key"), key.as_os_str()])
    }

    /// Adds words.
    pub fn args<I: IntoIterator<Item: AsRef<OsStr>>>(mut self, words: I) -> Self {
        self.command.args(words);
        self
    }

    /// Sets a variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Sets stdin, which is empty otherwise.
    pub fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.command.stdin(stdin);
        self
    }

    /// Changes std's builder, for what this one lacks.
    pub fn with(mut self, change: impl FnOnce(&mut Command)) -> Self {
        change(&mut self.command);
        self
    }

    /// Runs `-- WORDS…` to its end.
    pub fn command<I: IntoIterator<Item: AsRef<OsStr>>>(self, words: I) -> Finished {
        self.args(["--"]).args(words).finish()
    }

    /// Runs `-- sh -c SCRIPT` to its end.
    pub fn sh(self, script: &str) -> Finished {
        self.command(["sh", "-c", script])
    }

    /// Runs it to its end.
    pub fn finish(self) -> Finished {
        self.spawn().finish()
    }

    /// Starts `-- sh -c SCRIPT` with a pipe as its stdin, and waits until it has printed the line
    /// `ready`.
    pub fn hold(mut self, script: &str) -> Running {
        self.command.stdin(Stdio::piped());
        let mut running = self.args(["--", "sh", "-c", script]).spawn();
        running.wait_for("ready");
        running
    }

    /// Starts it.
    pub fn spawn(mut self) -> Running {
        let begin = Instant::now();
        let mut child = self.command.spawn().expect("rlock");
        let stdin = child.stdin.take();
        let lines = lines_of(child.stdout.take().expect("its stdout"));
        // Where the test has given it another stderr, no line comes from there.
        let stderr = child.stderr.take().map_or_else(|| channel().1, lines_of);
        Running {
            child,
            stdin,
            lines,
            seen: Vec::new(),
            stderr,
            told: String::new(),
            begin,
        }
    }
}

/// Returns the lines of a pipe as they come.
pub(crate) fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (line, lines) = channel();
    std::thread::spawn(move || {
        for text in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
            let _ = line.send(String::from_utf8_lossy(&text).into_owned());
        }
    });
    lines
}

/// An rlock that runs; it is killed on drop.
pub struct Running {
    child: Child,
    /// Its stdin, if that is a pipe. Dropping it ends the commands that read it.
    pub stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    seen: Vec<String>,
    stderr: Receiver<String>,
    told: String,
    begin: Instant,
}

impl Running {
    /// Returns rlock's own pid.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Waits for the next line of stdout that begins with `word`, and returns the rest of it.
    pub fn wait_for(&mut self, word: &str) -> String {
        let begin = Instant::now();
        loop {
            let left = LIMIT.saturating_sub(begin.elapsed());
            let Ok(line) = self.lines.recv_timeout(left) else {
                let ended = self.child.try_wait();
                let _ = self.child.kill();
                let told = self.all_told();
                panic!("no line {word:?}; rlock: {ended:?}; stderr: {told:?}");
            };
            self.seen.push(line.clone());
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Waits for a line on stderr with `words` in it.
    pub fn wait_until_told(&mut self, words: &str) {
        let begin = Instant::now();
        loop {
            let left = LIMIT.saturating_sub(begin.elapsed());
            let Ok(line) = self.stderr.recv_timeout(left) else {
                panic!("not told {words:?}, but: {:?}", self.told)
            };
            self.told.push_str(&line);
            self.told.push('\n');
            if line.contains(words) {
                return;
            }
        }
    }

    /// Returns all of stderr, up to its end.
    fn all_told(&mut self) -> String {
        while let Ok(line) = self.stderr.recv_timeout(LIMIT) {
            self.told.push_str(&line);
            self.told.push('\n');
        }
        std::mem::take(&mut self.told)
    }

    /// Waits for all of these lines, in any order.
    pub fn wait_for_all(&mut self, lines: &[&str]) {
        let mut missing = lines.to_vec();
        while !missing.is_empty() {
            let line = self.wait_for("");
            missing.retain(|wanted| *wanted != line);
        }
    }

    /// Waits for lines that begin with these words, in any order.
    pub fn wait_for_all_of(&mut self, words: &[&str]) {
        let mut missing = words.to_vec();
        while !missing.is_empty() {
            let line = self.wait_for("");
            missing.retain(|word| !line.starts_with(word));
        }
    }

    /// Waits for a pid that the command prints after `word`.
    pub fn wait_for_pid(&mut self, word: &str) -> i32 {
        self.wait_for(word).parse().expect("a pid")
    }

    /// Returns the pids that the command has printed after these words.
    pub fn seen_pids(&self, words: &[&str]) -> Vec<i32> {
        let after = |word: &&str| {
            self.seen
                .iter()
                .find_map(|line| line.strip_prefix(*word)?.trim().parse().ok())
        };
        words
            .iter()
            .map(|word| after(word).expect("a pid"))
            .collect()
    }

    /// Sends `which` to rlock.
    pub fn signal(&self, which: Signal) {
        signal(self.pid(), which);
    }

    /// Whether rlock has not ended yet.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("rlock's state").is_none()
    }

    /// Waits for the end of rlock and of all processes that have its output open.
    pub fn finish(self) -> Finished {
        self.finish_within(LIMIT)
    }

    /// The same. `limit` is the longest wait for the end of rlock.
    pub fn finish_within(mut self, limit: Duration) -> Finished {
        drop(self.stdin.take());
        let status = self.ended(limit);
        let took = self.begin.elapsed();
        while let Ok(line) = self.lines.recv_timeout(LIMIT) {
            self.seen.push(line);
        }
        let stderr = self.all_told();
        Finished {
            status,
            took,
            stdout: std::mem::take(&mut self.seen),
            stderr,
        }
    }

    fn ended(&mut self, limit: Duration) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("rlock's state") {
                return status;
            }
            if begin.elapsed() > limit {
                let _ = self.child.kill();
                let told = self.all_told();
                panic!("rlock did not end; stdout {:?}, stderr {told:?}", self.seen);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An rlock that has ended.
pub struct Finished {
    status: ExitStatus,
    /// From its start to its end.
    pub took: Duration,
    /// The lines of its stdout.
    pub stdout: Vec<String>,
    /// All of its stderr.
    pub stderr: String,
}

impl Finished {
    /// Checks that it exited with `code`.
    #[track_caller]
    pub fn code(self, code: i32) -> Self {
        assert_eq!(
            self.status.code(),
            Some(code),
            "{:?}, stdout {:?}, stderr {}",
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }

    /// Whether it exited with `code`.
    pub fn exited_with(&self, code: i32) -> bool {
        self.status.code() == Some(code)
    }

    /// Checks that it printed these lines.
    #[track_caller]
    pub fn printed(self, lines: &[&str]) -> Self {
        assert_eq!(self.stdout, lines, "stderr {}", self.stderr);
        self
    }

    /// Checks that it wrote nothing to stderr.
    #[track_caller]
    pub fn silent(self) -> Self {
        assert_eq!(self.stderr, "");
        self
    }

    /// Checks that it wrote one line to stderr, with all these words in it.
    #[track_caller]
    pub fn said(self, words: &[&str]) -> Self {
        assert_eq!(
            self.stderr.lines().count(),
            1,
            "one line was expected: {:?}",
            self.stderr
        );
        assert!(self.stderr.starts_with("rlock: "), "{:?}", self.stderr);
        self.mentions(words)
    }

    /// Checks that all these words are in its stderr.
    #[track_caller]
    pub fn mentions(self, words: &[&str]) -> Self {
        for word in words {
            assert!(
                self.stderr.contains(word),
                "{word:?} is missing in {:?}",
                self.stderr
            );
        }
        self
    }

    /// Checks that `words` are not in its stderr.
    #[track_caller]
    pub fn never_said(self, words: &str) -> Self {
        assert!(!self.stderr.contains(words), "{:?}", self.stderr);
        self
    }

    /// Checks that it took no longer than `limit`.
    #[track_caller]
    pub fn within(self, limit: Duration) -> Self {
        assert!(
            self.took <= limit,
            "took {:?}, stderr {}",
            self.took,
            self.stderr
        );
        self
    }
}
