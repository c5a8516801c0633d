//! The command's processes: signalling them, and knowing that none can run any more.
//!
//! They are the command's process group, the groups that nested rlocks made for their commands, and
//! with `--contain` whatever else the command started. They are read from /proc: the kernel has no
//! event for the end of processes that are not our children.

mod group;
mod table;

use std::ffi::CStr;
use std::io;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid, getuid};

use self::group::ProcessGroup;
pub(super) use self::table::Start;
use self::table::{Mark, Process, ProcessTable, start_of};
pub use self::table::{ProcessId, check_proc, own_children};
use crate::clock;

/// The process name of every rlock.
pub const RLOCK: &CStr = c"rlock";

/// The process name of every guard. An outer rlock must not take it for a command.
pub const GUARD: &CStr = c"rlock-guard";

/// The variable that marks the processes of a nested run's command: their `RLOCK_TOKEN` is the
/// outer command's too.
pub const NESTED_MARK: &str = "RLOCK_NESTED";

/// The longest pause between two polls of an rlock.
pub const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// The pause before a second poll that confirms the first one.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// The longest pause of a guard, which only waits for processes that it cannot kill.
const LONGEST_GUARD_PAUSE: Duration = Duration::from_secs(5);

/// Returns the pause before the next poll after `waited`: an eighth of it, so that the delay stays
/// in proportion.
pub fn pause(waited: Duration, longest: Duration) -> Duration {
    (waited / 8).clamp(SHORTEST_PAUSE, longest)
}

/// How long a guard waits for that of another user's nested run. Its command dies within
/// milliseconds, if that guard may kill it.
const STRANGERS: Duration = Duration::from_secs(2);

/// The processes that must be dead before the lock can pass on.
#[derive(Clone, Debug)]
pub struct ProcessTree {
    command: ProcessGroup,
    /// Groups of commands under nested rlocks.
    nested: Vec<ProcessGroup>,
    /// `--contain`: processes that left the group belong to the tree, too. They are found by their
    /// parents, for rlock adopts orphans (`PR_SET_CHILD_SUBREAPER`), or by their marks.
    contains: bool,
    /// Children of rlock that are not the command's: its guards, and those that it had before it
    /// was exec'd.
    others: Vec<ProcessId>,
    /// `None` while rlock lives: a guard needs it once rlock's death has cut the line of parents.
    mark: Option<Mark>,
}

impl ProcessTree {
    /// The processes of the command that leads `group`, for the rlock that is its parent and leaves
    /// it unreaped. `others`: with `--contain`, the children that rlock had before.
    pub fn new(group: Pid, others: Option<Vec<ProcessId>>) -> Self {
        let (contains, others) = (others.is_some(), others.unwrap_or_default());
        Self {
            command: ProcessGroup::new(group, Start::UNKNOWN),
            nested: Vec::new(),
            contains,
            others,
            mark: None,
        }
    }

    /// The same for a guard: rlock may be dead and the leader reaped. The leader began no later
    /// than `began`, and all other processes no sooner. `token` marks them.
    pub(super) fn orphaned(group: Pid, began: Option<Start>, token: &str, contains: bool) -> Self {
        let mark = Some(Mark {
            token: token.to_owned(),
            since: began.unwrap_or(Start(0)),
        });
        let command = ProcessGroup::new(group, began.unwrap_or(Start::UNKNOWN));
        Self {
            command,
            nested: Vec::new(),
            contains,
            others: Vec::new(),
            mark,
        }
    }

    /// The command's process group.
    pub fn group(&self) -> Pid {
        self.command.number()
    }

    /// Notes that another guard has replaced the old one.
    pub fn set_guard(&mut self, guard: Pid) {
        self.others.push(ProcessId {
            pid: guard,
            start: start_of(guard),
        });
    }

    /// Sends `signal` to the command's group, and with `--contain` to processes that left it.
    /// Nested rlocks forward it themselves. Only for rlock, whose unreaped leader reserves the
    /// group's number.
    pub fn send(&self, signal: Signal) {
        self.command.send(signal);
        if self.contains
            && let Ok(all) = ProcessTable::scan()
        {
            self.left(&all)
                .into_iter()
                .for_each(|process| process.send(signal));
        }
    }

    /// Kills all processes of the tree.
    /// 1. Stop the group, so that nothing runs on while /proc is read.
    /// 2. Discover nested groups before the kill: the death of a nested rlock cuts the line to its
    ///    command.
    /// 3. Kill what is known by then before reading any environment, which may block.
    pub fn kill(&mut self) {
        self.command.stop();
        if let Ok(all) = ProcessTable::scan() {
            self.follow(&all);
            self.kill_groups();
            all.list
                .iter()
                .filter(|p| !p.dead && self.is_related(&all, p))
                .for_each(|p| p.send(Signal::SIGKILL));
        } else {
            self.kill_groups();
        }
        let _ = self.kill_living();
    }

    /// Kills all processes and returns true when they are gone. Returns false if /proc could not be
    /// read: then only the command's own group is known to be gone.
    pub fn end(&mut self) -> bool {
        self.kill();
        let begin = clock::now();
        loop {
            let waited = clock::now().since(begin);
            match ProcessTable::scan() {
                Ok(all) if self.kill_in(&all) && !self.is_a_guard_at_work(&all, waited) => {
                    return true;
                }
                Err(_) if self.command.is_unknown() => return false,
                Ok(_) | Err(_) => std::thread::sleep(pause(waited, LONGEST_GUARD_PAUSE)),
            }
        }
    }

    /// Kills the living processes. Returns whether there were none; an error if /proc cannot be
    /// read.
    pub fn kill_living(&mut self) -> io::Result<bool> {
        Ok(self.kill_in(&ProcessTable::scan()?))
    }

    fn kill_in(&mut self, all: &ProcessTable) -> bool {
        let living = self.living(all);
        self.kill_groups();
        for process in &living {
            process.send(Signal::SIGKILL);
        }
        living.is_empty()
    }

    /// Returns the number of processes of the tree that can run.
    pub fn count(&mut self) -> io::Result<usize> {
        Ok(self.living(&ProcessTable::scan()?).len())
    }

    fn living<'a>(&mut self, all: &'a ProcessTable) -> Vec<&'a Process> {
        self.follow(all);
        all.list
            .iter()
            .filter(|p| !p.dead && self.contains(all, p))
            .collect()
    }

    fn kill_groups(&mut self) {
        self.command.kill();
        self.nested.iter_mut().for_each(ProcessGroup::kill);
    }

    /// Follows the groups, forgets those that are over, and discovers nested ones.
    fn follow(&mut self, all: &ProcessTable) {
        self.command.follow(all);
        self.nested.iter_mut().for_each(|group| group.follow(all));
        self.nested.retain(|group| !group.is_over());
        // There may be rlocks in a group that is found.
        while let Some(found) = self.undiscovered(all) {
            self.nested.push(found);
        }
    }

    /// Returns a group that is not known yet, led by a child of an rlock in the tree.
    fn undiscovered(&self, all: &ProcessTable) -> Option<ProcessGroup> {
        let is_ours = |p: &Process| p.is_named(RLOCK) && self.in_groups(p);
        let leads = |p: &&Process| {
            p.pid == p.group && !p.is_named(GUARD) && all.get(p.parent).is_some_and(is_ours)
        };
        let mut leaders = all.list.iter().filter(leads).filter(|p| !self.in_groups(p));
        let mut found = leaders.find_map(|p| Some(ProcessGroup::new(p.group, p.start?)))?;
        found.follow(all);
        Some(found)
    }

    fn in_groups(&self, process: &Process) -> bool {
        self.command.contains(process) || self.nested.iter().any(|group| group.contains(process))
    }

    fn contains(&self, all: &ProcessTable, process: &Process) -> bool {
        self.is_related(all, process)
            || self.contains && self.mark.as_ref().is_some_and(|mark| mark.is_on(process))
    }

    /// Whether pids, groups and parents show that `process` belongs to the tree.
    fn is_related(&self, all: &ProcessTable, process: &Process) -> bool {
        self.in_groups(process) || self.is_below(all, process)
    }

    /// Whether `--contain` makes `process` one of the tree, because it is below this rlock.
    fn is_below(&self, all: &ProcessTable, process: &Process) -> bool {
        self.contains && !self.line(all, process).is_empty()
    }

    /// Returns the pids from `process` up to a child of this rlock that is the command's, or
    /// nothing.
    fn line(&self, all: &ProcessTable, process: &Process) -> Vec<Pid> {
        let mut line = all.ancestors(process);
        let is_other = |pid: &Pid| {
            all.get(*pid)
                .is_some_and(|p| self.others.contains(&p.identity()))
        };
        line.truncate(line.iter().position(|pid| *pid == getpid()).unwrap_or(0));
        if line.iter().any(is_other) {
            Vec::new()
        } else {
            line
        }
    }

    /// Returns the processes that left the group, except those to which a nested rlock forwards
    /// signals.
    fn left<'a>(&self, all: &'a ProcessTable) -> Vec<&'a Process> {
        let is_rlock = |pid: &Pid| all.get(*pid).is_some_and(|p| p.is_named(RLOCK) && !p.dead);
        let left = all
            .list
            .iter()
            .filter(|p| !self.command.contains(p) && self.is_below(all, p));
        left.filter(|p| !self.line(all, p).iter().skip(1).any(is_rlock))
            .collect()
    }

    /// Whether the guard of a nested rlock still has to kill its command. If that rlock died with
    /// ours, no line of parents leads to either; its guard ends when the nested command is dead.
    fn is_a_guard_at_work(&self, all: &ProcessTable, waited: Duration) -> bool {
        let Some(mark) = &self.mark else { return false };
        let us = all.get(getpid()).map(|p| (p.start, p.pid));
        // Two guards must not wait for each other. One that began before us has no command within
        // ours.
        let guards = all
            .list
            .iter()
            .filter(|p| p.is_named(GUARD) && !p.dead && Some((p.start, p.pid)) > us);
        // A marked rlock may live outside the group, as a daemon does: its guard has nothing to do.
        let mut trusted = guards
            .into_iter()
            .filter(|guard| waited < STRANGERS || is_trusted(guard.pid));
        trusted
            .any(|guard| mark.is_on(guard) && !all.get(guard.parent).is_some_and(|p| mark.is_on(p)))
    }
}

/// Whether the process is of our user or of root. Any other user could give one a guard's name and
/// the mark.
fn is_trusted(pid: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let real = status.lines().find_map(|line| {
        line.strip_prefix("Uid:")?
            .split_whitespace()
            .next()?
            .parse::<u32>()
            .ok()
    });
    real.is_some_and(|real| real == 0 || real == getuid().as_raw())
}

/// Whether `ancestor` started this process, or a process that did.
pub fn is_below(ancestor: Pid) -> bool {
    let below = |all: ProcessTable| {
        Some(
            all.ancestors(all.get(getpid())?)
                .iter()
                .skip(1)
                .any(|pid| *pid == ancestor),
        )
    };
    ProcessTable::scan().ok().and_then(below).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number)
    }

    pub(super) fn entry(number: i32, parent: i32, group: i32, name: &str) -> Process {
        let start = Some(Start(0));
        Process {
            pid: pid(number),
            parent: pid(parent),
            group: pid(group),
            name: name.to_owned(),
            dead: false,
            start,
        }
    }

    pub(super) fn began(process: Process, at: u64) -> Process {
        Process {
            start: Some(Start(at)),
            ..process
        }
    }

    fn tree(before: Option<Vec<ProcessId>>) -> ProcessTree {
        ProcessTree {
            command: ProcessGroup::new(pid(10), Start(0)),
            ..ProcessTree::new(pid(10), before)
        }
    }

    fn numbers<'a>(processes: impl IntoIterator<Item = &'a Process>) -> Vec<i32> {
        processes.into_iter().map(|p| p.pid.as_raw()).collect()
    }

    #[test]
    fn commands_of_rlocks_within_rlocks_belong_and_their_guards_and_daemons_do_not() {
        let all = ProcessTable::new(vec![
            entry(10, 1, 10, "sh"),
            entry(11, 10, 10, "rlock"),
            entry(12, 11, 12, "rlock-guard"),
            entry(13, 11, 13, "sh"),
            entry(14, 13, 13, "rlock"),
            entry(15, 14, 15, "sleep"),
            entry(16, 1, 16, "daemon"),
            entry(20, 1, 20, "rlock"),
            entry(21, 20, 21, "sleep"),
        ]);
        assert_eq!(numbers(tree(None).living(&all)), [10, 11, 13, 14, 15]);
    }

    #[test]
    fn a_nested_command_that_outlives_its_rlock_is_waited_for_until_its_number_is_anothers() {
        let mut tree = tree(None);
        let nested = || began(entry(13, 11, 13, "root's"), 50);
        let all = vec![entry(10, 1, 10, "sh"), entry(11, 10, 10, "rlock"), nested()];
        assert_eq!(numbers(tree.living(&ProcessTable::new(all))), [10, 11, 13]);
        assert_eq!(
            numbers(tree.living(&ProcessTable::new(vec![Process {
                parent: pid(1),
                ..nested()
            }]))),
            [13]
        );
        let strangers = vec![
            began(entry(10, 1, 10, "stranger"), 60),
            began(entry(13, 1, 13, "stranger"), 60),
        ];
        assert_eq!(numbers(tree.living(&ProcessTable::new(strangers))), [0; 0]);
        assert_eq!(tree.nested.len(), 0);
    }

    #[test]
    fn what_is_below_an_rlock_is_contained_but_for_its_guard_and_what_was_there_before() {
        let rlock = getpid().as_raw();
        let all = |before| {
            ProcessTable::new(vec![
                entry(rlock, 1, rlock, "rlock"),
                entry(6, rlock, 6, "rlock-guard"),
                began(entry(7, rlock, 7, "before"), before),
                entry(8, 7, 7, "its child"),
                entry(10, rlock, 10, "sh"),
                entry(11, 10, 11, "setsid"),
                entry(12, rlock, 12, "adopted"),
                entry(13, 1, 13, "other"),
                entry(14, 10, 10, "rlock"),
                entry(15, 14, 15, "nested"),
            ])
        };
        let before = [6, 7].map(|number| ProcessId {
            pid: pid(number),
            start: Some(Start(0)),
        });
        let mut tree = tree(Some(before.to_vec()));
        let table = all(0);
        assert_eq!(numbers(tree.living(&table)), [10, 11, 12, 14, 15]);
        assert_eq!(numbers(tree.left(&table)), [11, 12]);
        // What was there before has ended, and a process of the command got its number.
        assert_eq!(numbers(tree.living(&all(9))), [7, 8, 10, 11, 12, 14, 15]);
    }

    #[test]
    fn a_leader_that_joined_another_group_still_belongs() {
        let all = ProcessTable::new(vec![entry(10, 1, 3, "sh")]);
        assert_eq!(numbers(tree(None).living(&all)), [10]);
    }
}
