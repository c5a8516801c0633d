//! A pseudoterminal with a session of its own, and the test as the user who types.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{PtyMaster, grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
use nix::unistd::{Pid, mkfifo, setsid};
use tempfile::TempDir;

use crate::processes::stat;
use crate::{LIMIT, Server, eventually, unignore_signals};

const PROMPT: &str = "=prompt=> ";

/// A session on a pseudoterminal. Its terminal does not echo, so that input cannot be mistaken for
/// output. The binary under test is in its `PATH`, and its node is a `local` one in the session's
/// directory unless a server was given.
pub struct Session {
    leader: Child,
    /// None after a hangup.
    terminal: Option<PtyMaster>,
    /// All output so far.
    printed: String,
    /// Length of the output that the test has looked at.
    looked_at: usize,
    dir: TempDir,
    /// Kept open, so that a line stays in the fifo until it is read.
    go: File,
}

impl Session {
    /// Starts an interactive bash, and waits for its prompt.
    pub fn bash(rlock: &str) -> Self {
        Self::bash_with_node(rlock, None)
    }

    /// Starts an interactive bash, where rlock's node is `server`, and waits for its prompt.
    pub fn bash_on(rlock: &str, server: &Server) -> Self {
        Self::bash_with_node(rlock, Some(&server.url()))
    }

    fn bash_with_node(rlock: &str, node: Option<&str>) -> Self {
        let mut session = Self::start(
            rlock,
            &["bash", "--norc", "--noprofile", "--noediting", "-i"],
            node,
        );
        session.prompt();
        session
    }

    /// Starts `words` as the session's leader, without a shell above it, as `ssh -t` does.
    pub fn of(rlock: &str, words: &[&str]) -> Self {
        Self::start(rlock, words, None)
    }

    /// Starts `words` as the session's leader, where rlock's node is `server`.
    pub fn of_on(rlock: &str, words: &[&str], server: &Server) -> Self {
        Self::start(rlock, words, Some(&server.url()))
    }

    fn start(rlock: &str, words: &[&str], node: Option<&str>) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let terminal =
            posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).expect("a terminal");
        grantpt(&terminal)
            .and_then(|()| unlockpt(&terminal))
            .expect("its other side");
        let name = ptsname_r(&terminal).expect("its name");
        let side = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOCTTY)
            .open(name)
            .expect("its other side");
        let mut how = tcgetattr(&side).expect("its settings");
        how.local_flags.remove(LocalFlags::ECHO);
        tcsetattr(&side, SetArg::TCSANOW, &how).expect("its settings");

        // Opened for reading too, which on Linux opens a fifo without waiting (fifo(7)).
        mkfifo(&dir.path().join("go"), Mode::S_IRWXU).expect("a fifo");
        let go = OpenOptions::new()
            .read(true)
            .write(true)
            .open(dir.path().join("go"))
            .expect("the fifo");

        let local = format!("local:{}", dir.path().display());
        let leader = command(rlock, words, &side, dir.path())
            .env("RLOCK_NODE", node.unwrap_or(&local))
            .spawn()
            .expect("the leader");
        let mut session = Self {
            leader,
            terminal: Some(terminal),
            printed: String::new(),
            looked_at: 0,
            dir,
            go,
        };
        session.resize(24, 80);
        session
    }

    /// Returns the session's leader.
    pub fn leader(&self) -> i32 {
        self.leader.id().cast_signed()
    }

    /// Returns the shell's directory, for files that a test and its commands share.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a line into the fifo `go`, for commands that wait without touching the terminal.
    pub fn go(&mut self) {
        self.go.write_all(b"go\n").expect("a fifo");
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) {
        self.terminal()
            .write_all(keys.as_bytes())
            .expect("a terminal to type at");
    }

    /// Types a line.
    pub fn line(&mut self, text: &str) {
        self.press(&format!("{text}\n"));
    }

    /// Waits for `text`, and returns what was printed before it since the last look.
    #[track_caller]
    pub fn sees(&mut self, text: &str) -> String {
        let begin = Instant::now();
        loop {
            if let Some(at) = self.printed[self.looked_at..].find(text) {
                let before = self.printed[self.looked_at..][..at].to_owned();
                self.looked_at += at + text.len();
                return before;
            }
            let over = begin.elapsed() > LIMIT || !self.reads();
            assert!(!over, "never saw {text:?}; {}", self.described());
        }
    }

    /// Waits for the shell's prompt, and returns what was printed before it since the last look.
    #[track_caller]
    pub fn prompt(&mut self) -> String {
        self.sees(PROMPT)
    }

    /// Types a line at the prompt, waits for the next prompt, and returns what was printed between
    /// them.
    #[track_caller]
    pub fn answer(&mut self, line: &str) -> String {
        self.line(line);
        self.prompt().replace('\r', "")
    }

    /// Waits for a number that is printed after `word` and ends its line.
    #[track_caller]
    pub fn number(&mut self, word: &str) -> i32 {
        self.sees(word);
        let text = self.sees("\r\n");
        text.trim()
            .parse()
            .unwrap_or_else(|_| panic!("{text:?} is no number"))
    }

    /// Returns `$?`.
    #[track_caller]
    pub fn code(&mut self) -> i32 {
        self.answer("echo $?").trim().parse().expect("a number")
    }

    /// Returns all output that the test has looked at.
    pub fn seen(&self) -> &str {
        &self.printed[..self.looked_at]
    }

    /// Hangs up, as a terminal's window does when it is closed.
    pub fn hang_up(&mut self) {
        self.terminal = None;
    }

    fn terminal(&self) -> &PtyMaster {
        self.terminal
            .as_ref()
            .expect("a terminal that has not hung up")
    }

    /// Whether output is stopped, as after Ctrl-S.
    pub fn is_stopped(&self) -> bool {
        let name = ptsname_r(self.terminal()).expect("its name");
        let side = OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_NOCTTY)
            .open(name)
            .expect("its other side");
        poll(
            &mut [PollFd::new(side.as_fd(), PollFlags::POLLOUT)],
            PollTimeout::ZERO,
        ) == Ok(0)
    }

    /// Returns the process group in the foreground.
    pub fn foreground(&self) -> i32 {
        // nix's tcgetpgrp(3) has no value for the absence of a group, which the master's side can
        // see.
        let mut group = 0;
        // SAFETY: TIOCGPGRP writes one pid_t to an address that lives through the call.
        let done =
            unsafe { libc::ioctl(self.terminal().as_raw_fd(), libc::TIOCGPGRP, &raw mut group) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        group
    }

    /// Sets the terminal's size.
    pub fn resize(&mut self, rows: u16, columns: u16) {
        let size = libc::winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        // SAFETY: TIOCSWINSZ reads one winsize from an address that lives through the call.
        let done = unsafe {
            libc::ioctl(
                self.terminal().as_raw_fd(),
                libc::TIOCSWINSZ,
                &raw const size,
            )
        };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }

    /// Waits for the end of the leader, and returns its exit code.
    #[track_caller]
    pub fn ends(&mut self) -> Option<i32> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.leader.try_wait().expect("its state") {
                return status.code();
            }
            assert!(
                begin.elapsed() < LIMIT,
                "it does not end; {}",
                self.described()
            );
            std::thread::yield_now();
        }
    }

    /// Waits for output. False if the terminal has closed or nothing came within [`LIMIT`].
    fn reads(&mut self) -> bool {
        let timeout = PollTimeout::try_from(LIMIT).expect("a time");
        let mut fds = [PollFd::new(self.terminal().as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, timeout) == Ok(0) {
            return false;
        }
        let mut bytes = [0; 4096];
        match self.terminal().read(&mut bytes) {
            Ok(count) => {
                self.printed
                    .push_str(&String::from_utf8_lossy(&bytes[..count]));
                count > 0
            }
            // EIO: no process has the other side open.
            Err(error) => error.kind() == ErrorKind::Interrupted,
        }
    }

    fn described(&self) -> String {
        let processes: Vec<String> = self
            .processes()
            .into_iter()
            .map(|pid| {
                let words =
                    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                format!(
                    "{pid} {} {}",
                    stat(pid)[..3].join(" "),
                    words.replace('\0', " ")
                )
            })
            .collect();
        format!(
            "seen {:?}, then {:?}; the terminal is {}'s; processes:\n{}",
            self.seen(),
            &self.printed[self.looked_at..],
            self.foreground(),
            processes.join("\n")
        )
    }

    /// Returns the living processes of the session.
    fn processes(&self) -> Vec<i32> {
        let session = self.leader().to_string();
        let all = std::fs::read_dir("/proc").expect("/proc").flatten();
        all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid| matches!(&stat(*pid)[..], [state, _, _, of, ..] if *of == session && state != "Z"))
            .collect()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Until the leader is reaped, its number is not reused for another session. A guard is in a
        // session of its own, and ends with its rlock.
        let kill_all = || {
            let left = self.processes();
            for pid in &left {
                let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
            }
            left.is_empty()
        };
        if std::thread::panicking() {
            while !kill_all() {}
        } else {
            eventually("the session's processes are gone", kill_all);
        }
        let _ = self.leader.wait();
    }
}

fn command(rlock: &str, words: &[&str], side: &File, dir: &Path) -> Command {
    let stdio = || Stdio::from(side.try_clone().expect("a descriptor"));
    let binaries = Path::new(rlock).parent().into_iter().map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(binaries.chain(std::env::split_paths(&path))).expect("a path");
    let inherited = std::env::vars_os()
        .filter(|(name, _)| name == OsStr::new("HOME") || name == OsStr::new("TMPDIR"));
    unignore_signals();
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .current_dir(dir)
        .env_clear()
        .envs(inherited)
        .envs([
            ("PS1", PROMPT),
            ("PS2", ""),
            ("LC_ALL", "C"),
            ("TERM", "xterm"),
            ("HISTFILE", ""),
            ("LOGNAME", "tester"),
            ("RLOCK_CONFIG", "none"),
        ])
        .env("PATH", path)
        .stdin(stdio())
        .stdout(stdio())
        .stderr(stdio());
    // SAFETY: two system calls between fork and exec, without an allocation.
    unsafe {
        command.pre_exec(|| {
            setsid()?;
            // The new session has no terminal yet; its stdin becomes it.
            if libc::ioctl(0, libc::TIOCSCTTY, 0) == -1 {
                Err(std::io::Error::last_os_error())
            } else {
                Ok(())
            }
        })
    };
    command
}
