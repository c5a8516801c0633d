//! A terminal of the test's own, and somebody who types.

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

use super::processes::stat;
use super::{LIMIT, Server, eventually};

const PROMPT: &str = "=prompt=> ";

/// A session on a pseudoterminal. Its terminal does not echo, so that what is typed is not taken for what is printed.
/// `rlock` is found by that name, and its lock is a `local` one of this session's unless it was told otherwise.
pub(crate) struct Session {
    leader: Child,
    /// None once it has hung up.
    terminal: Option<PtyMaster>,
    /// What was printed, and how much of it has been looked at.
    printed: String,
    looked_at: usize,
    dir: TempDir,
    /// Kept open, so that what is written to it stays until it is read.
    go: File,
}

impl Session {
    /// An interactive bash that has said it is ready.
    pub(crate) fn bash() -> Self {
        Self::bash_with_node(None)
    }

    /// The same, where rlock's node is `server`.
    pub(crate) fn bash_on(server: &Server) -> Self {
        Self::bash_with_node(Some(&server.url()))
    }

    fn bash_with_node(node: Option<&str>) -> Self {
        let mut session = Self::start(&["bash", "--norc", "--noprofile", "--noediting", "-i"], node);
        session.prompt();
        session
    }

    /// `words` as the session's leader, without a shell above it, as `ssh -t` starts them.
    pub(crate) fn of(words: &[&str]) -> Self {
        Self::start(words, None)
    }

    /// The same, where rlock's node is `server`.
    pub(crate) fn of_on(words: &[&str], server: &Server) -> Self {
        Self::start(words, Some(&server.url()))
    }

    fn start(words: &[&str], node: Option<&str>) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let terminal = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).expect("a terminal");
        grantpt(&terminal).and_then(|()| unlockpt(&terminal)).expect("its other side");
        let name = ptsname_r(&terminal).expect("its name");
        let side =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOCTTY).open(name).expect("its other side");
        let mut how = tcgetattr(&side).expect("its settings");
        how.local_flags.remove(LocalFlags::ECHO);
        tcsetattr(&side, SetArg::TCSANOW, &how).expect("its settings");

        // Opened for reading too, which on Linux opens a fifo without waiting (fifo(7)).
        mkfifo(&dir.path().join("go"), Mode::S_IRWXU).expect("a fifo");
        let go = OpenOptions::new().read(true).write(true).open(dir.path().join("go")).expect("the fifo");

        let local = format!("local:{}", dir.path().display());
        let leader = command(words, &side, dir.path()).env("RLOCK_NODE", node.unwrap_or(&local)).spawn().expect("bash");
        let mut session = Self { leader, terminal: Some(terminal), printed: String::new(), looked_at: 0, dir, go };
        session.resize(24, 80);
        session
    }

    /// The session's leader.
    pub(crate) fn leader(&self) -> i32 {
        self.leader.id().cast_signed()
    }

    /// Where the session's shell is, for files by which a test and its commands tell each other things.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a line into the fifo `go`, for which a command waits that must not touch the terminal.
    pub(crate) fn go(&mut self) {
        self.go.write_all(b"go\n").expect("a fifo");
    }

    /// Presses keys.
    pub(crate) fn press(&mut self, keys: &str) {
        self.terminal().write_all(keys.as_bytes()).expect("a terminal to type at");
    }

    /// Types a line.
    pub(crate) fn line(&mut self, text: &str) {
        self.press(&format!("{text}\n"));
    }

    /// Waits for `text`; what was printed up to it since the last look.
    #[track_caller]
    pub(crate) fn sees(&mut self, text: &str) -> String {
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

    /// Waits for the shell's prompt; what was printed up to it since the last look.
    #[track_caller]
    pub(crate) fn prompt(&mut self) -> String {
        self.sees(PROMPT)
    }

    /// Types a line at the prompt and waits for the next; what was printed between them.
    #[track_caller]
    pub(crate) fn answer(&mut self, line: &str) -> String {
        self.line(line);
        self.prompt().replace('\r', "")
    }

    /// A number that is printed after `word`, to the end of the line.
    #[track_caller]
    pub(crate) fn number(&mut self, word: &str) -> i32 {
        self.sees(word);
        let text = self.sees("\r\n");
        text.trim().parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
    }

    /// `$?`
    #[track_caller]
    pub(crate) fn code(&mut self) -> i32 {
        self.answer("echo $?").trim().parse().expect("a number")
    }

    /// All that was printed so far and looked at.
    pub(crate) fn seen(&self) -> &str {
        &self.printed[..self.looked_at]
    }

    /// Closes the terminal's window.
    pub(crate) fn hang_up(&mut self) {
        self.terminal = None;
    }

    fn terminal(&self) -> &PtyMaster {
        self.terminal.as_ref().expect("a terminal that has not hung up")
    }

    /// Whether what is printed waits, as after Ctrl-S.
    pub(crate) fn is_stopped(&self) -> bool {
        let name = ptsname_r(self.terminal()).expect("its name");
        let side = OpenOptions::new().write(true).custom_flags(libc::O_NOCTTY).open(name).expect("its other side");
        poll(&mut [PollFd::new(side.as_fd(), PollFlags::POLLOUT)], PollTimeout::ZERO) == Ok(0)
    }

    /// The process group that has the terminal.
    pub(crate) fn foreground(&self) -> i32 {
        // Not tcgetpgrp(3) of nix: from the master's side no group may be there, which it has no value for.
        let mut group = 0;
        // SAFETY: TIOCGPGRP writes one pid_t to an address that lives through the call.
        let done = unsafe { libc::ioctl(self.terminal().as_raw_fd(), libc::TIOCGPGRP, &raw mut group) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        group
    }

    /// Gives the terminal another size.
    pub(crate) fn resize(&mut self, rows: u16, columns: u16) {
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: TIOCSWINSZ reads one winsize from an address that lives through the call.
        let done = unsafe { libc::ioctl(self.terminal().as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }

    /// Waits until the leader has ended; its exit code.
    #[track_caller]
    pub(crate) fn ends(&mut self) -> Option<i32> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.leader.try_wait().expect("its state") {
                return status.code();
            }
            assert!(begin.elapsed() < LIMIT, "it does not end; {}", self.described());
            std::thread::yield_now();
        }
    }

    /// Reads what has been printed, waiting for it. False if the terminal has closed or nothing came for long.
    fn reads(&mut self) -> bool {
        let timeout = PollTimeout::try_from(LIMIT).expect("a time");
        let mut fds = [PollFd::new(self.terminal().as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, timeout) == Ok(0) {
            return false;
        }
        let mut bytes = [0; 4096];
        match self.terminal().read(&mut bytes) {
            Ok(count) => {
                self.printed.push_str(&String::from_utf8_lossy(&bytes[..count]));
                count > 0
            }
            // EIO: nobody has the other side open any more.
            Err(error) => error.kind() == ErrorKind::Interrupted,
        }
    }

    fn described(&self) -> String {
        let processes: Vec<String> = self
            .processes()
            .into_iter()
            .map(|pid| {
                let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                format!("{pid} {} {}", stat(pid)[..3].join(" "), words.replace('\0', " "))
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

    /// The living processes of the session.
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
        // As long as the leader has not been waited for, the session's number is nobody else's. A guard, in a session
        // of its own, ends with its rlock.
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

fn command(words: &[&str], side: &File, dir: &Path) -> Command {
    let stdio = || Stdio::from(side.try_clone().expect("a descriptor"));
    let binary = Path::new(env!("CARGO_BIN_EXE_rlock"));
    let binaries = binary.parent().into_iter().map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(binaries.chain(std::env::split_paths(&path))).expect("a path");
    let inherited = std::env::vars_os().filter(|(name, _)| name == OsStr::new("HOME") || name == OsStr::new("TMPDIR"));
    super::unignore_signals();
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
        ])
        .env("PATH", path)
        .stdin(stdio())
        .stdout(stdio())
        .stderr(stdio());
    // SAFETY: two system calls between fork and exec, and nothing is allocated.
    unsafe {
        command.pre_exec(|| {
            setsid()?;
            // The new session has no terminal yet; its stdin becomes it.
            if libc::ioctl(0, libc::TIOCSCTTY, 0) == -1 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
        })
    };
    command
}
