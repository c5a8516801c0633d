//! All processes, as one scan of /proc shows them.
//!
//! The kernel reuses pids, so a process is identified by its pid and the time at which it began.

use std::collections::HashMap;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, SysconfVar, getpgid, getpgrp, getpid, sysconf};

use crate::lock::instant::Instant;
use crate::lock::outer;

/// When a process began, in the kernel's ticks since boot (proc(5): `starttime`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(in crate::job) struct Start(pub(super) u64);

impl Start {
    /// Later than any other.
    pub(super) const UNKNOWN: Self = Self(u64::MAX);

    /// Returns what /proc shows for a process that begins at `at`. `None` if /proc and our clock
    /// disagree about this very process, which began at about `born`: some kernels do in a time
    /// namespace.
    pub(in crate::job) fn at(at: Instant, born: Instant) -> Option<Self> {
        let per_second = sysconf(SysconfVar::CLK_TCK)
            .ok()
            .flatten()
            .and_then(|ticks| u64::try_from(ticks).ok())?;
        let ticks =
            |at: Instant| u128::from(at.as_nanos()) * u128::from(per_second) / NANOS_PER_SECOND;
        let shown = start_of(getpid())?;
        let agrees = ticks(born).abs_diff(shown.0.into()) <= per_second.into();
        u64::try_from(ticks(at)).ok().filter(|_| agrees).map(Self)
    }
}

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// Distinguishes a process from all others, earlier and later ones included.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ProcessId {
    pub(super) pid: Pid,
    pub(super) start: Option<Start>,
}

/// One process of /proc.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Process {
    pub(super) pid: Pid,
    pub(super) parent: Pid,
    pub(super) group: Pid,
    pub(super) name: String,
    /// A zombie cannot run, but still names its parent.
    pub(super) dead: bool,
    /// `None` for another user's process that /proc hides (`hidepid=1`).
    pub(super) start: Option<Start>,
}

impl Process {
    pub(super) fn identity(&self) -> ProcessId {
        ProcessId {
            pid: self.pid,
            start: self.start,
        }
    }

    pub(super) fn is_named(&self, name: &CStr) -> bool {
        self.name.as_bytes() == name.to_bytes()
    }

    /// Sends it `signal`, unless its pid was reused. A process of unknown start gets nothing.
    pub(super) fn send(&self, signal: Signal) {
        if self.start.is_some() && start_of(self.pid) == self.start {
            let _ = kill(self.pid, signal);
        }
    }

    /// Whether its initial environment can be read and has `mark`: the token of a lock, or the mark
    /// of a nested run. A thread that has ended shows none.
    fn carries(&self, mark: &str) -> bool {
        const VARIABLES: [&str; 3] = ["RLOCK_TOKEN", outer::VARIABLE, super::NESTED_MARK];
        let is_of = |entry: &[u8], name: &str| {
            entry
                .strip_prefix(name.as_bytes())
                .is_some_and(|rest| rest.first() == Some(&b'='))
        };
        let names_it = |entry: &[u8]| {
            VARIABLES.iter().any(|name| is_of(entry, name))
                && entry
                    .windows(mark.len())
                    .any(|part| part == mark.as_bytes())
        };
        let environment = |path: PathBuf| std::fs::read(path.join("environ")).unwrap_or_default();
        let carry = |environment: Vec<u8>| environment.split(|byte| *byte == 0).any(names_it);
        let process = Path::new("/proc").join(self.pid.to_string());
        let first = environment(process.clone());
        if !first.is_empty() {
            return carry(first);
        }
        // Its first thread may have ended before others.
        let threads = std::fs::read_dir(process.join("task"))
            .into_iter()
            .flatten()
            .flatten();
        threads.map(|thread| environment(thread.path())).any(carry)
    }
}

/// The mark that a lock leaves on the processes under it: its token in the environment in which
/// they were started.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) token: String,
    /// No process that began before the command has it.
    pub(super) since: Start,
}

impl Mark {
    /// Whether `process` has the mark and is not the calling process. One without an environment is
    /// in exec, which the next scan sees, or all its threads have ended.
    pub(super) fn is_on(&self, process: &Process) -> bool {
        let may_have =
            process.pid != getpid() && process.start.is_some_and(|start| start >= self.since);
        may_have && process.carries(&self.token)
    }
}

pub(super) struct ProcessTable {
    pub(super) list: Vec<Process>,
    index: HashMap<Pid, usize>,
}

impl ProcessTable {
    pub(super) fn new(list: Vec<Process>) -> Self {
        let index = list
            .iter()
            .enumerate()
            .map(|(place, p)| (p.pid, place))
            .collect();
        Self { list, index }
    }

    /// Reads /proc. Leaves out processes that have ended. One that cannot be read is an error: it
    /// may be the command's.
    pub(super) fn scan() -> io::Result<Self> {
        check_proc()?;
        let mut list = Vec::new();
        for entry in std::fs::read_dir("/proc")? {
            let entry = entry?;
            let Some(pid) = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok())
                .map(Pid::from_raw)
            else {
                continue;
            };
            match std::fs::read(entry.path().join("stat")) {
                Ok(stat) => list.extend(process(&stat)),
                Err(error) if has_ended(&error) => {}
                // Another user's process, with hidepid=1: only its group is known.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    list.extend(hidden(pid));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Self::new(list))
    }

    pub(super) fn get(&self, pid: Pid) -> Option<&Process> {
        self.index.get(&pid).map(|place| &self.list[*place])
    }

    /// Returns the process, its parent, and so on.
    pub(super) fn ancestors(&self, process: &Process) -> Vec<Pid> {
        let parent = |pid: &Pid| self.get(*pid).map(|p| p.parent);
        // A scan is not atomic, so a circle is possible in theory; no line is longer than the
        // table.
        std::iter::successors(Some(process.pid), parent)
            .take(self.list.len() + 1)
            .collect()
    }
}

fn has_ended(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH) || error.kind() == io::ErrorKind::NotFound
}

fn hidden(pid: Pid) -> Option<Process> {
    let group = getpgid(Some(pid)).ok()?;
    Some(Process {
        pid,
        parent: Pid::from_raw(0),
        group,
        name: String::new(),
        dead: false,
        start: None,
    })
}

/// Checks that /proc can be read with the descriptors that are left, and that it shows the pids
/// which kill(2) takes. A /proc of another PID namespace has another pid for this very process.
pub fn check_proc() -> io::Result<()> {
    let _directory = File::open("/proc")?;
    let mut stat = Vec::new();
    File::open("/proc/self/stat")?.read_to_end(&mut stat)?;
    if process(&stat).is_some_and(|shown| (shown.pid, shown.group) == (getpid(), getpgrp())) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        "it belongs to another PID namespace",
    ))
}

/// Returns the children of this process, zombies included.
pub fn own_children() -> Vec<ProcessId> {
    let text = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    let pids = text
        .split_ascii_whitespace()
        .filter_map(|word| word.parse().ok())
        .map(Pid::from_raw);
    pids.map(|pid| ProcessId {
        pid,
        start: start_of(pid),
    })
    .collect()
}

/// Returns when the process of this pid began; `None` if there is none, or /proc hides it.
pub(super) fn start_of(pid: Pid) -> Option<Start> {
    process(&std::fs::read(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?)?.start
}

/// Reads `/proc/PID/stat` (proc(5)): `pid (name) state ppid pgrp …`, where the name may contain
/// anything.
fn process(stat: &[u8]) -> Option<Process> {
    let text = String::from_utf8_lossy(stat);
    let (pid, rest) = text.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let number = |place: usize| fields.get(place)?.parse().ok();
    // A first thread that has exited looks like a zombie while others of its process run;
    // `num_threads` is field 20.
    let threads = number(17).unwrap_or(1);
    Some(Process {
        pid: Pid::from_raw(pid.parse().ok()?),
        parent: Pid::from_raw(number(1)?),
        group: Pid::from_raw(number(2)?),
        name: name.to_owned(),
        dead: matches!(*fields.first()?, "Z" | "X") && threads <= 1,
        start: fields
            .get(19)
            .and_then(|field| field.parse().ok())
            .map(Start),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nix::sys::signal::{SigHandler, signal};

    use super::*;

    #[test]
    fn a_line_of_proc_is_read_whatever_the_process_calls_itself() {
        let read = |text: &str| process(text.as_bytes()).expect("a process");
        let seen = |text| {
            let p = read(text);
            (
                p.pid.as_raw(),
                p.parent.as_raw(),
                p.group.as_raw(),
                p.name,
                p.dead,
                p.start,
            )
        };
        assert_eq!(
            seen("7 (sleep) S 1 42 42 0"),
            (7, 1, 42, "sleep".to_owned(), false, None)
        );
        assert_eq!(
            seen("7 (a) Z 1 43 b) D 1 42 42 0"),
            (7, 1, 42, "a) Z 1 43 b".to_owned(), false, None)
        );
        assert!(read("7 (x) Z 1 42 42 0").dead);
        let zombie = read("7 (x) Z 1 42 42 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0");
        assert_eq!((zombie.dead, zombie.start), (true, Some(Start(4711))));
        assert!(
            !read("7 (x) Z 1 42 42 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0").dead,
            "another thread runs"
        );
        assert_eq!(process(b""), None);
        assert_eq!(process(b"7 (x"), None);
    }

    #[test]
    fn proc_of_this_namespace_shows_this_process_and_its_start() {
        check_proc().expect("/proc");
        let us = start_of(getpid()).expect("our own line");
        let born = Instant::from_nanos(us.0 * 10_000_000);
        let at = |at| Start::at(at, born).expect("a clock that agrees");
        let before = crate::clock::now();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep");
        let began = start_of(Pid::from_raw(child.id().cast_signed())).expect("its line");
        assert!(at(before) <= began && began <= at(crate::clock::now()));
        child.kill().expect("its end");
        child.wait().expect("its end");
        assert_eq!(
            Start::at(before, born + Duration::from_secs(5)),
            None,
            "born five seconds after its start"
        );
    }

    #[test]
    fn the_mark_is_found_on_processes_that_began_after_the_command() {
        let mut child = std::process::Command::new("sleep");
        let mut child = child
            .arg("60")
            .env("RLOCK_HELD", "a=1234,b=5678")
            .spawn()
            .expect("sleep");
        let pid = Pid::from_raw(child.id().cast_signed());
        let seen = ProcessTable::scan()
            .expect("/proc")
            .get(pid)
            .cloned()
            .expect("the child");
        let began = |start| Process {
            start,
            ..seen.clone()
        };
        let mark = |token: &str| Mark {
            token: token.to_owned(),
            since: Start(100),
        };
        // The child may not have been exec'd yet.
        while !seen.carries("a=") {}
        assert!(
            mark("5678").is_on(&began(Some(Start(100))))
                && !mark("4711").is_on(&began(Some(Start(100))))
        );
        assert!(!mark("5678").is_on(&began(Some(Start(99)))) && !mark("5678").is_on(&began(None)));
        child.kill().expect("its end");
        child.wait().expect("its end");
        assert!(!mark("5678").is_on(&began(Some(Start(100)))));
    }

    #[test]
    fn the_mark_is_found_on_a_process_whose_first_thread_has_ended() {
        extern "C" fn end_thread(_: i32) {
            // SAFETY: ends the calling thread, which is waiting for this test.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        }
        const MARK: &str = "the mark of a test";
        if std::env::var_os(outer::VARIABLE).is_some_and(|mark| mark == MARK) {
            // SAFETY: the handler makes a system call.
            unsafe { signal(Signal::SIGUSR1, SigHandler::Handler(end_thread)) }.expect("a handler");
            // SAFETY: it sends a signal to our first thread.
            unsafe {
                libc::syscall(
                    libc::SYS_tgkill,
                    getpid().as_raw(),
                    getpid().as_raw(),
                    libc::SIGUSR1,
                )
            };
            std::thread::sleep(Duration::from_secs(60));
        }
        let mut child = std::process::Command::new(std::env::current_exe().expect("this program"));
        let name = "the_mark_is_found_on_a_process_whose_first_thread_has_ended";
        let mut child = child
            .args([name, "--test-threads=2"])
            .env(outer::VARIABLE, MARK)
            .spawn()
            .expect("this program");
        let stat = format!("/proc/{}/stat", child.id());
        while !std::fs::read_to_string(&stat)
            .expect("its line")
            .contains(") Z ")
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        let seen = process(&std::fs::read(&stat).expect("its line")).expect("a process");
        let is_found = !seen.dead && seen.carries(MARK);
        child.kill().expect("its end");
        child.wait().expect("its end");
        assert!(is_found && !seen.carries(MARK));
    }

    #[test]
    fn a_signal_is_not_sent_to_another_process_of_the_same_number() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep");
        let pid = Pid::from_raw(child.id().cast_signed());
        let seen = ProcessTable::scan()
            .expect("/proc")
            .get(pid)
            .cloned()
            .expect("the child");
        let earlier = Process {
            start: seen.start.map(|Start(ticks)| Start(ticks - 1)),
            ..seen.clone()
        };
        earlier.send(Signal::SIGKILL);
        Process {
            start: None,
            ..seen.clone()
        }
        .send(Signal::SIGKILL);
        seen.send(Signal::SIGTERM);
        let status = child.wait().expect("its end");
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(Signal::SIGTERM as i32)
        );
    }
}
