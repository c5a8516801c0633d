//! The command's processes: signalling them, and knowing that none can run any more.
//!
//! They are the command's process group, the groups that rlocks nested inside it made for their commands, and with
//! `--contain` whatever else the command started. Who belongs is read from /proc, since the kernel has no event for the
//! end of other people's children.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgid};

/// The name that every rlock gives itself, by which an outer one knows it.
pub const NAME: &std::ffi::CStr = c"rlock";

/// Pauses between two looks at processes that are to end: often at first, seldom in the end.
pub const LOOKS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(100)];

/// The processes that must be dead before the lock can pass on.
#[derive(Clone, Debug)]
pub struct Family {
    /// The command's own group.
    group: Pid,
    /// Groups of commands under rlocks nested in it, until they were seen empty.
    nested: Vec<Pid>,
    contain: Contain,
}

/// How processes that left the group are found.
#[derive(Clone, Debug)]
pub enum Contain {
    /// They are not: without `--contain` they may go on.
    No,
    /// They are below this rlock, which adopts orphans (`PR_SET_CHILD_SUBREAPER`).
    Below {
        /// rlock.
        rlock: Pid,
        /// Its guard.
        guard: Pid,
        /// Children that it had before: whoever exec'd rlock had started them.
        before: Vec<Pid>,
    },
    /// rlock is dead and its orphans are init's: they are known by the token in their environment.
    Marked(String),
}

/// One line of /proc.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Process {
    pid: Pid,
    parent: Pid,
    group: Pid,
    name: String,
    /// A zombie runs no more, but still says who its parent is.
    dead: bool,
}

impl Family {
    /// The processes of the command that leads `group`.
    pub fn new(group: Pid, contain: Contain) -> Self {
        Self { group, nested: Vec::new(), contain }
    }

    /// The command's process group.
    pub fn group(&self) -> Pid {
        self.group
    }

    /// Whether processes that lose their parent become rlock's children.
    pub fn adopts_orphans(&self) -> bool {
        matches!(self.contain, Contain::Below { .. })
    }

    /// A guard has taken the place of another.
    pub fn set_guard(&mut self, pid: Pid) {
        if let Contain::Below { guard, .. } = &mut self.contain {
            *guard = pid;
        }
    }

    /// Sends `signal` to the command's group; rlocks nested in it pass it on by themselves. With `--contain` those who
    /// left the group get it too.
    pub fn send(&self, signal: Signal) {
        self.send_to_group(signal);
        if !matches!(self.contain, Contain::No) {
            let Ok(all) = Processes::look() else { return };
            let left = |p: &&Process| p.group != self.group && p.pid != self.group && self.contains(&all, p);
            all.list.iter().filter(left).filter(|p| !self.is_below_a_nested_rlock(&all, p)).for_each(|p| {
                let _ = kill(p.pid, signal);
            });
        }
    }

    fn send_to_group(&self, signal: Signal) {
        // ESRCH: nobody is left. EPERM: who is left has become somebody else (setuid) and cannot be reached.
        let _ = killpg(self.group, signal);
        // Its zombie is kept, so that the number is still the leader's, whatever group that has joined.
        if getpgid(Some(self.group)).is_ok_and(|group| group != self.group) {
            let _ = kill(self.group, signal);
        }
    }

    /// Kills them all: stopped first, so that nothing runs on while /proc is read, and read before the kill, since the
    /// death of a nested rlock cuts the thread by which its command is found.
    pub fn kill(&mut self) {
        self.send_to_group(Signal::SIGSTOP);
        self.kill_living();
        self.send_to_group(Signal::SIGKILL);
    }

    /// Kills them all, and returns when they are gone.
    pub fn end(&mut self) {
        self.kill();
        let mut pause = LOOKS[0];
        while !self.kill_living() {
            std::thread::sleep(pause);
            pause = (pause * 2).min(LOOKS[1]);
        }
    }

    /// Kills who is still there. True if nobody is; not if that cannot be seen.
    pub fn kill_living(&mut self) -> bool {
        let Ok(living) = self.look() else {
            self.send_to_group(Signal::SIGKILL);
            return false;
        };
        for pid in &living {
            let _ = kill(*pid, Signal::SIGKILL);
        }
        living.is_empty()
    }

    /// Whether no process of the family can run any more; not if that cannot be seen.
    pub fn is_gone(&mut self) -> bool {
        self.look().is_ok_and(|living| living.is_empty())
    }

    /// Who lives. Learns of nested groups, and forgets those that are empty, whose number may soon be another's.
    fn look(&mut self) -> io::Result<Vec<Pid>> {
        let all = Processes::look()?;
        self.nested.retain(|group| all.list.iter().any(|p| p.group == *group && !p.dead));
        while self.learn(&all.list) != 0 {}
        Ok(all.list.iter().filter(|p| !p.dead && self.has(&all, p)).map(|p| p.pid).collect())
    }

    /// Adds the groups led by children of the rlocks among us; their number, so that those within those follow.
    fn learn(&mut self, all: &[Process]) -> usize {
        let name = NAME.to_string_lossy();
        let is_ours = |p: &Process| p.name == name && self.in_groups(p);
        let rlocks: Vec<Pid> = all.iter().filter(|p| is_ours(p)).map(|p| p.pid).collect();
        let led =
            |p: &&Process| p.pid == p.group && rlocks.contains(&p.parent) && p.name.as_bytes() != GUARD_NAME.to_bytes();
        let new: Vec<Pid> = all.iter().filter(led).map(|p| p.group).filter(|g| !self.is_known(*g)).collect();
        self.nested.extend(&new);
        new.len()
    }

    fn is_known(&self, group: Pid) -> bool {
        group == self.group || self.nested.contains(&group)
    }

    fn in_groups(&self, process: &Process) -> bool {
        self.is_known(process.group)
    }

    fn has(&self, all: &Processes, process: &Process) -> bool {
        // The leader may have joined another group.
        process.pid == self.group || self.in_groups(process) || self.contains(all, process)
    }

    fn contains(&self, all: &Processes, process: &Process) -> bool {
        match &self.contain {
            Contain::No => false,
            Contain::Below { rlock, guard, before } => {
                let line = all.line_of(process);
                line.contains(rlock)
                    && process.pid != *rlock
                    && !line.iter().take_while(|pid| *pid != rlock).any(|pid| pid == guard || before.contains(pid))
            }
            Contain::Marked(token) => is_marked(process.pid, token),
        }
    }

    /// An rlock in the command passes signals on to its own; they are not to come twice.
    fn is_below_a_nested_rlock(&self, all: &Processes, process: &Process) -> bool {
        let name = NAME.to_string_lossy();
        let Contain::Below { rlock, .. } = &self.contain else { return false };
        let line = all.line_of(process);
        let between = line.iter().skip(1).take_while(|pid| *pid != rlock);
        between.filter_map(|pid| all.get(*pid)).any(|p| p.name == name && !p.dead)
    }
}

/// The guard's name, which is how an outer rlock knows that it is no command.
pub const GUARD_NAME: &std::ffi::CStr = c"rlock-guard";

fn is_marked(pid: Pid, token: &str) -> bool {
    let wanted = format!("RLOCK_TOKEN={token}");
    std::fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes()))
}

/// All processes, as /proc shows them.
struct Processes {
    list: Vec<Process>,
    places: HashMap<Pid, usize>,
}

impl Processes {
    fn new(list: Vec<Process>) -> Self {
        let places = list.iter().enumerate().map(|(place, p)| (p.pid, place)).collect();
        Self { list, places }
    }

    /// Reads /proc. What cannot be read is an error, since it may be somebody of ours; who is gone meanwhile is gone.
    fn look() -> io::Result<Self> {
        let mut list = Vec::new();
        for entry in std::fs::read_dir("/proc")? {
            let entry = entry?;
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()).map(Pid::from_raw) else {
                continue;
            };
            match std::fs::read(entry.path().join("stat")) {
                Ok(stat) => list.extend(process(&stat)),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // Another user's, with hidepid=1: its group is all that is known of it.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => list.extend(hidden(pid)),
                Err(error) => return Err(error),
            }
        }
        if list.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(Self::new(list)) }
    }

    fn get(&self, pid: Pid) -> Option<&Process> {
        self.places.get(&pid).map(|place| &self.list[*place])
    }

    /// The process, its parent, and so on.
    fn line_of(&self, process: &Process) -> Vec<Pid> {
        let parent = |pid: &Pid| self.get(*pid).map(|p| p.parent);
        // What is read is not one moment's, so a circle is possible in theory; no line is longer than the table.
        std::iter::successors(Some(process.pid), parent).take(self.list.len() + 1).collect()
    }
}

fn hidden(pid: Pid) -> Option<Process> {
    let group = getpgid(Some(pid)).ok()?;
    Some(Process { pid, parent: Pid::from_raw(0), group, name: String::new(), dead: false })
}

/// Whether the end of processes can be seen here at all, with the descriptors that we have left.
pub fn can_look() -> io::Result<()> {
    let _directory = File::open("/proc")?;
    // The kernel writes all of it for the first byte that is read.
    File::open("/proc/self/stat")?.read_exact(&mut [0])
}

/// The children of this process.
pub fn own_children() -> Vec<Pid> {
    let text = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).map(Pid::from_raw).collect()
}

/// Reads `/proc/PID/stat` (proc(5)): `pid (name) state ppid pgrp …`, where the name may contain anything.
fn process(stat: &[u8]) -> Option<Process> {
    let text = String::from_utf8_lossy(stat);
    let (pid, rest) = text.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let number = |place: usize| fields.get(place)?.parse().ok();
    // A first thread that has exited looks like a zombie while others of its process run; `num_threads` is field 20.
    let threads = number(17).unwrap_or(1);
    Some(Process {
        pid: Pid::from_raw(pid.parse().ok()?),
        parent: Pid::from_raw(number(1)?),
        group: Pid::from_raw(number(2)?),
        name: name.to_owned(),
        dead: matches!(*fields.first()?, "Z" | "X") && threads <= 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number)
    }

    fn entry(number: i32, parent: i32, group: i32, name: &str) -> Process {
        Process { pid: pid(number), parent: pid(parent), group: pid(group), name: name.to_owned(), dead: false }
    }

    #[test]
    fn a_line_of_proc_is_read_whatever_the_process_calls_itself() {
        let read = |text: &str| process(text.as_bytes()).expect("a process");
        assert_eq!(read("7 (sleep) S 1 42 42 0"), entry(7, 1, 42, "sleep"));
        assert_eq!(read("7 (a) Z 1 43 b) D 1 42 42 0"), entry(7, 1, 42, "a) Z 1 43 b"));
        assert!(read("7 (x) Z 1 42 42 0").dead);
        assert!(read("7 (x) Z 1 42 42 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0").dead);
        assert!(!read("7 (x) Z 1 42 42 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0").dead, "another thread runs");
        assert_eq!(process(b""), None);
        assert_eq!(process(b"7 (x"), None);
    }

    #[test]
    fn commands_of_rlocks_within_rlocks_belong_and_their_guards_and_daemons_do_not() {
        let all = [
            entry(10, 1, 10, "sh"),
            entry(11, 10, 10, "rlock"),
            entry(12, 11, 12, "rlock-guard"),
            entry(13, 11, 13, "sh"),
            entry(14, 13, 13, "rlock"),
            entry(15, 14, 15, "sleep"),
            entry(16, 1, 16, "daemon"),
            entry(20, 1, 20, "rlock"),
            entry(21, 20, 21, "sleep"),
        ];
        let mut family = Family::new(pid(10), Contain::No);
        while family.learn(&all) > 0 {}
        assert_eq!(family.nested, [pid(13), pid(15)]);
    }

    #[test]
    fn what_is_below_an_rlock_is_contained_but_for_its_guard_and_what_was_there_before() {
        let all = Processes::new(vec![
            entry(5, 1, 5, "rlock"),
            entry(6, 5, 6, "rlock-guard"),
            entry(7, 5, 7, "before"),
            entry(8, 7, 7, "its child"),
            entry(10, 5, 10, "sh"),
            entry(11, 10, 11, "setsid"),
            entry(12, 5, 12, "adopted"),
            entry(13, 1, 13, "other"),
            entry(14, 10, 10, "rlock"),
            entry(15, 14, 15, "nested"),
        ]);
        let contain = Contain::Below { rlock: pid(5), guard: pid(6), before: vec![pid(7)] };
        let family = Family::new(pid(10), contain);
        let such = |wanted: &dyn Fn(&Process) -> bool| -> Vec<i32> {
            all.list.iter().filter(|p| wanted(p)).map(|p| p.pid.as_raw()).collect()
        };
        assert_eq!(such(&|p| family.has(&all, p)), [10, 11, 12, 14, 15]);
        assert_eq!(such(&|p| family.is_below_a_nested_rlock(&all, p)), [15]);
    }

    #[test]
    fn a_leader_that_joined_another_group_still_belongs() {
        let all = Processes::new(vec![entry(10, 1, 3, "sh")]);
        assert!(Family::new(pid(10), Contain::No).has(&all, &all.list[0]));
    }
}
