//! The binary under test.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::{LIMIT, Nodes, Server, signal};

/// `rlock run --key KEY`, to be completed.
pub(crate) fn rlock(key: &str) -> Rlock {
    rlock_words(["run", "--key", key])
}

/// `rlock WORDS…`
pub(crate) fn rlock_words<I: IntoIterator<Item: AsRef<OsStr>>>(words: I) -> Rlock {
    copy_of_rlock(env!("CARGO_BIN_EXE_rlock").as_ref(), words)
}

/// The same of another copy of the binary.
pub(super) fn copy_of_rlock<I: IntoIterator<Item: AsRef<OsStr>>>(program: &OsStr, words: I) -> Rlock {
    super::unignore_signals();
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"RLOCK_") || name == "REDISCLI_AUTH" {
            command.env_remove(name);
        }
    }
    command.env("LOGNAME", "tester");
    Rlock { command }
}

/// A command line in the making.
pub(crate) struct Rlock {
    command: Command,
}

impl Rlock {
    /// The node is `server`.
    pub(crate) fn on(self, server: &Server) -> Self {
        self.node(&server.url())
    }

    /// The nodes are `nodes`, which count at once though they have just been started.
    pub(crate) fn on_all(self, nodes: &Nodes) -> Self {
        self.node(&nodes.url()).args(["--restart-guard", "off"])
    }

    pub(crate) fn node(self, url: &str) -> Self {
        self.args(["--node", url])
    }

    pub(crate) fn args<I: IntoIterator<Item: AsRef<OsStr>>>(mut self, words: I) -> Self {
        self.command.args(words);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.command.stdin(stdin);
        self
    }

    /// The process as std's builder, for what this one lacks.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Command)) -> Self {
        change(&mut self.command);
        self
    }

    /// Runs `-- WORDS…` to its end.
    pub(crate) fn command<I: IntoIterator<Item: AsRef<OsStr>>>(self, words: I) -> Finished {
        self.args(["--"]).args(words).finish()
    }

    /// Runs `-- sh -c SCRIPT` to its end.
    pub(crate) fn sh(self, script: &str) -> Finished {
        self.command(["sh", "-c", script])
    }

    /// Runs it to its end.
    pub(crate) fn finish(self) -> Finished {
        self.spawn().finish()
    }

    /// Starts `-- sh -c SCRIPT` with a pipe as its stdin, and waits until it has printed the line `ready`.
    pub(crate) fn hold(mut self, script: &str) -> Running {
        self.command.stdin(Stdio::piped());
        let mut running = self.args(["--", "sh", "-c", script]).spawn();
        running.wait_for("ready");
        running
    }

    /// Starts it.
    pub(crate) fn spawn(mut self) -> Running {
        let begin = Instant::now();
        let mut child = self.command.spawn().expect("rlock");
        let stdin = child.stdin.take();
        let lines = lines_of(child.stdout.take().expect("its stdout"));
        // Where the test has given it another stderr, no line comes from there.
        let stderr = child.stderr.take().map_or_else(|| channel().1, lines_of);
        Running { child, stdin, lines, seen: Vec::new(), stderr, told: String::new(), begin }
    }
}

/// The lines of a pipe as they come.
pub(super) fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (line, lines) = channel();
    std::thread::spawn(move || {
        for text in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
            let _ = line.send(String::from_utf8_lossy(&text).into_owned());
        }
    });
    lines
}

/// An rlock that runs; killed if the test ends first.
pub(crate) struct Running {
    child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    seen: Vec<String>,
    stderr: Receiver<String>,
    told: String,
    begin: Instant,
}

impl Running {
    /// rlock's own pid.
    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// The next line that begins with `word`, less that word.
    pub(crate) fn wait_for(&mut self, word: &str) -> String {
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
    pub(crate) fn wait_until_told(&mut self, words: &str) {
        let begin = Instant::now();
        loop {
            let left = LIMIT.saturating_sub(begin.elapsed());
            let Ok(line) = self.stderr.recv_timeout(left) else { panic!("not told {words:?}, but: {:?}", self.told) };
            self.told.push_str(&line);
            self.told.push('\n');
            if line.contains(words) {
                return;
            }
        }
    }

    /// All of stderr, up to its end.
    fn all_told(&mut self) -> String {
        while let Ok(line) = self.stderr.recv_timeout(LIMIT) {
            self.told.push_str(&line);
            self.told.push('\n');
        }
        std::mem::take(&mut self.told)
    }

    /// Waits for all of these lines, in whatever order.
    pub(crate) fn wait_for_all(&mut self, lines: &[&str]) {
        let mut missing = lines.to_vec();
        while !missing.is_empty() {
            let line = self.wait_for("");
            missing.retain(|wanted| *wanted != line);
        }
    }

    /// Waits for lines that begin with these words, in whatever order.
    pub(crate) fn wait_for_all_of(&mut self, words: &[&str]) {
        let mut missing = words.to_vec();
        while !missing.is_empty() {
            let line = self.wait_for("");
            missing.retain(|word| !line.starts_with(word));
        }
    }

    /// A pid that the command prints after `word`.
    pub(crate) fn wait_for_pid(&mut self, word: &str) -> i32 {
        self.wait_for(word).parse().expect("a pid")
    }

    /// The pids that it has printed after these words.
    pub(crate) fn seen_pids(&self, words: &[&str]) -> Vec<i32> {
        let after = |word: &&str| self.seen.iter().find_map(|line| line.strip_prefix(*word)?.trim().parse().ok());
        words.iter().map(|word| after(word).expect("a pid")).collect()
    }

    pub(crate) fn signal(&self, which: Signal) {
        signal(self.pid(), which);
    }

    /// Whether rlock has not ended yet.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("rlock's state").is_none()
    }

    /// Waits for the end of rlock, and of all that have its output open.
    pub(crate) fn finish(mut self) -> Finished {
        drop(self.stdin.take());
        let status = self.ended();
        let took = self.begin.elapsed();
        while let Ok(line) = self.lines.recv_timeout(LIMIT) {
            self.seen.push(line);
        }
        let stderr = self.all_told();
        Finished { status, took, stdout: std::mem::take(&mut self.seen), stderr }
    }

    fn ended(&mut self) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("rlock's state") {
                return status;
            }
            if begin.elapsed() > LIMIT {
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

/// How it ended.
pub(crate) struct Finished {
    status: ExitStatus,
    pub(crate) took: Duration,
    pub(crate) stdout: Vec<String>,
    pub(crate) stderr: String,
}

impl Finished {
    /// It exited with `code`.
    #[track_caller]
    pub(crate) fn code(self, code: i32) -> Self {
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

    /// Whether it exited with `code`, where either would do.
    pub(crate) fn exited_with(&self, code: i32) -> bool {
        self.status.code() == Some(code)
    }

    /// It printed these lines.
    #[track_caller]
    pub(crate) fn printed(self, lines: &[&str]) -> Self {
        assert_eq!(self.stdout, lines, "stderr {}", self.stderr);
        self
    }

    /// It said nothing on stderr.
    #[track_caller]
    pub(crate) fn silent(self) -> Self {
        assert_eq!(self.stderr, "");
        self
    }

    /// It said one line, with all these words in it.
    #[track_caller]
    pub(crate) fn said(self, words: &[&str]) -> Self {
        assert_eq!(self.stderr.lines().count(), 1, "one line was expected: {:?}", self.stderr);
        assert!(self.stderr.starts_with("rlock: "), "{:?}", self.stderr);
        self.mentions(words)
    }

    /// All these words are in what it said.
    #[track_caller]
    pub(crate) fn mentions(self, words: &[&str]) -> Self {
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is missing in {:?}", self.stderr);
        }
        self
    }

    #[track_caller]
    pub(crate) fn never_said(self, words: &str) -> Self {
        assert!(!self.stderr.contains(words), "{:?}", self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn within(self, limit: Duration) -> Self {
        assert!(self.took <= limit, "took {:?}, stderr {}", self.took, self.stderr);
        self
    }
}
