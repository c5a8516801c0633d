//! The command's processes: signalling them, and knowing that none can run any more.
//!
//! They are the command's process group, the groups that rlocks nested inside it made for their commands, and with
//! `--contain` whatever else the command started. Who belongs is read from /proc, since the kernel has no event for the
//! end of other people's children.

use std::collections::HashMap;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// The name that every rlock gives itself, by which an outer one knows it.
pub const NAME: &std::ffi::CStr = c"rlock";

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
    /// They are below this rlock, which adopts orphans (`PR_SET_CHILD_SUBREAPER`), save for its guard.
    Below {
        /// rlock.
        rlock: Pid,
        /// Its guard.
        guard: Pid,
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
        // ESRCH: nobody is left. EPERM: who is left has become somebody else (setuid) and cannot be reached.
        let _ = killpg(self.group, signal);
        if !matches!(self.contain, Contain::No) {
            let all = processes();
            all.iter().filter(|p| p.group != self.group && self.contains(&all, p)).for_each(|p| {
                let _ = kill(p.pid, signal);
            });
        }
    }

    /// Kills them all: stopped first, so that nothing runs on while /proc is read, and read before the kill, since the
    /// death of a nested rlock cuts the thread by which its command is found.
    pub fn kill(&mut self) {
        let _ = killpg(self.group, Signal::SIGSTOP);
        self.kill_living();
        let _ = killpg(self.group, Signal::SIGKILL);
    }

    /// Kills who is still there. True if nobody is.
    pub fn kill_living(&mut self) -> bool {
        let living = self.look();
        for process in &living {
            let _ = kill(process.pid, Signal::SIGKILL);
        }
        living.is_empty()
    }

    /// Whether no process of the family can run any more.
    pub fn is_gone(&mut self) -> bool {
        self.look().is_empty()
    }

    /// Who lives. Learns of nested groups, and forgets those that are empty, whose number may soon be another's.
    fn look(&mut self) -> Vec<Process> {
        let all = processes();
        self.nested.retain(|group| all.iter().any(|p| p.group == *group && !p.dead));
        let mut known = self.nested.len() + 1;
        while known != 0 {
            known = self.learn(&all);
        }
        all.iter().filter(|p| !p.dead && self.has(&all, p)).cloned().collect()
    }

    /// Adds the groups led by children of the rlocks among us; their number, so that those within those follow.
    fn learn(&mut self, all: &[Process]) -> usize {
        let name = NAME.to_string_lossy();
        let is_ours = |p: &Process| p.name == name && self.in_groups(p);
        let rlocks: Vec<Pid> = all.iter().filter(|p| is_ours(p)).map(|p| p.pid).collect();
        let led = |p: &&Process| p.pid == p.group && rlocks.contains(&p.parent) && p.name != GUARD_NAME;
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

    fn has(&self, all: &[Process], process: &Process) -> bool {
        self.in_groups(process) || self.contains(all, process)
    }

    fn contains(&self, all: &[Process], process: &Process) -> bool {
        match &self.contain {
            Contain::No => false,
            Contain::Below { rlock, guard } => process.pid != *guard && is_below(all, process, *rlock),
            Contain::Marked(token) => is_marked(process.pid, token),
        }
    }
}

/// The guard's name, which is how an outer rlock knows that it is no command.
pub const GUARD_NAME: &str = "rlock-guard";

fn is_below(all: &[Process], process: &Process, ancestor: Pid) -> bool {
    let parents: HashMap<Pid, Pid> = all.iter().map(|p| (p.pid, p.parent)).collect();
    // A snapshot of /proc is not one moment's, so a circle is possible in theory; no chain is longer than the table.
    let mut line = std::iter::successors(parents.get(&process.pid), |pid| parents.get(pid)).take(parents.len());
    line.any(|pid| *pid == ancestor)
}

fn is_marked(pid: Pid, token: &str) -> bool {
    let wanted = format!("RLOCK_TOKEN={token}");
    std::fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes()))
}

fn processes() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit))
        .filter_map(|entry| std::fs::read(entry.path().join("stat")).ok())
        .filter_map(|stat| process(&stat))
        .collect()
}

/// Reads `/proc/PID/stat` (proc(5)): `pid (name) state ppid pgrp …`, where the name may contain anything.
fn process(stat: &[u8]) -> Option<Process> {
    let text = String::from_utf8_lossy(stat);
    let (pid, rest) = text.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    let mut number = || fields.next()?.parse().ok().map(Pid::from_raw);
    let (parent, group) = (number()?, number()?);
    Some(Process {
        pid: Pid::from_raw(pid.parse().ok()?),
        parent,
        group,
        name: name.to_owned(),
        dead: matches!(state, "Z" | "X"),
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
        assert_eq!(process(b""), None);
        assert_eq!(process(b"7 (x"), None);
    }

    #[test]
    fn commands_of_rlocks_within_rlocks_belong_and_their_guards_and_daemons_do_not() {
        let all = [
            entry(10, 1, 10, "sh"),
            entry(11, 10, 10, "rlock"),
            entry(12, 11, 12, GUARD_NAME),
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
    fn what_is_below_an_rlock_is_contained_but_for_its_guard() {
        let all = [
            entry(5, 1, 5, "rlock"),
            entry(6, 5, 6, GUARD_NAME),
            entry(10, 5, 10, "sh"),
            entry(11, 10, 11, "setsid"),
            entry(12, 5, 12, "adopted"),
            entry(13, 1, 13, "other"),
        ];
        let family = Family::new(pid(10), Contain::Below { rlock: pid(5), guard: pid(6) });
        let contained: Vec<i32> = all.iter().filter(|p| family.has(&all, p)).map(|p| p.pid.as_raw()).collect();
        assert_eq!(contained, [10, 11, 12]);
    }
}
