//! The command's processes: signalling them, and knowing that none can run any more.
//!
//! They are the command's process group, the groups that rlocks nested inside it made for their commands, and with
//! `--contain` whatever else the command started. They are read from /proc, since the kernel has no event for the end of
//! processes that are not our children.

mod marks;
mod single;

use std::io;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid};

use self::marks::Marks;
use self::single::Group;
pub use super::processes::{Identity, can_look, own_children};
use super::processes::{Process, Processes, Start};
use crate::clock;

/// The name that every rlock gives itself, by which an outer one knows it.
pub const NAME: &std::ffi::CStr = c"rlock";

/// The guard's name, which is how an outer rlock knows that it is no command.
pub const GUARD_NAME: &std::ffi::CStr = c"rlock-guard";

/// The variable that marks what the command of a nested run starts: the token is the outer command's too.
pub const MARK: &str = "RLOCK_NESTED";

/// Pauses between two looks at processes that are to end: often at first, seldom in the end.
pub const LOOKS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(100)];

/// The longest pause of a guard, which has nothing else to do than to wait for processes that it cannot kill.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The processes that must be dead before the lock can pass on.
#[derive(Clone, Debug)]
pub struct ProcessTree {
    /// The command's own group.
    command: Group,
    /// Groups of commands under rlocks nested in it.
    nested: Vec<Group>,
    contain: Contain,
    /// What the guard of a dead rlock goes by.
    marks: Option<Marks>,
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
        /// Children that it had before: the program that became rlock had started them.
        before: Vec<Identity>,
    },
    /// rlock is dead and its orphans are init's: they are known by their [`Marks`].
    Marked,
}

impl ProcessTree {
    /// The processes of the command that leads `group`, for the rlock that is its parent and leaves it unreaped.
    pub fn new(group: Pid, contain: Contain) -> Self {
        Self { command: Group::new(group, Start::UNKNOWN), nested: Vec::new(), contain, marks: None }
    }

    /// The same for a guard: rlock may be dead, and the leader reaped. What rlock's death may cut off is known by `token`.
    /// The leader began no later than `began`, and what it started no sooner.
    pub(super) fn orphaned(group: Pid, began: Option<Start>, token: &str, contains: bool) -> Self {
        let contain = if contains { Contain::Marked } else { Contain::No };
        let marks = Marks::new(token, began.unwrap_or(Start(0)));
        Self {
            command: Group::new(group, began.unwrap_or(Start::UNKNOWN)),
            nested: Vec::new(),
            contain,
            marks: Some(marks),
        }
    }

    /// The command's process group.
    pub fn group(&self) -> Pid {
        self.command.number()
    }

    /// A guard has taken the place of another.
    pub fn set_guard(&mut self, pid: Pid) {
        if let Contain::Below { guard, .. } = &mut self.contain {
            *guard = pid;
        }
    }

    /// Sends `signal` to the command's group; rlocks nested in it pass it on by themselves. With `--contain` processes that
    /// left the group get it too. For rlock alone: its unreaped leader reserves the group's number.
    pub fn send(&self, signal: Signal) {
        self.command.send(signal);
        if matches!(self.contain, Contain::Below { .. }) {
            let Ok(all) = Processes::look() else { return };
            let left = |p: &&Process| !self.command.has(p) && self.is_below(&all, p);
            all.list
                .iter()
                .filter(left)
                .filter(|p| !self.is_below_a_nested_rlock(&all, p))
                .for_each(|p| p.send(signal));
        }
    }

    /// Kills them all.
    /// 1. The group is stopped, so that nothing runs on while /proc is read.
    /// 2. Nested groups are learned before the kill: the death of a nested rlock cuts the line to its command.
    /// 3. What is known by then is killed before any environment is read, which may block.
    pub fn kill(&mut self) {
        self.command.stop();
        if let Ok(all) = Processes::look() {
            self.follow(&all);
            self.kill_groups();
            all.list.iter().filter(|p| !p.dead && self.is_related(&all, p)).for_each(|p| p.send(Signal::SIGKILL));
        } else {
            self.kill_groups();
        }
        let _ = self.kill_living();
    }

    /// Kills them all, and returns when they are gone. False if /proc could not tell: then it is known of the command's own
    /// group alone.
    pub fn end(&mut self) -> bool {
        self.kill();
        let begin = clock::now();
        loop {
            match self.kill_living() {
                Ok(true) => return true,
                Err(_) if self.command.is_unknown() => return false,
                Ok(false) | Err(_) => {}
            }
            std::thread::sleep((clock::now().since(begin) / 8).clamp(LOOKS[0], LONGEST_PAUSE));
        }
    }

    /// Kills those that still live. True if none does; an error if that cannot be seen.
    pub fn kill_living(&mut self) -> io::Result<bool> {
        let all = Processes::look()?;
        let living = self.living(&all);
        self.kill_groups();
        for process in &living {
            process.send(Signal::SIGKILL);
        }
        Ok(living.is_empty() && !self.is_a_guard_at_work(&all))
    }

    /// Whether no process of the family can run any more; not if that cannot be seen.
    pub fn is_gone(&mut self) -> bool {
        Processes::look().is_ok_and(|all| self.living(&all).is_empty())
    }

    fn living<'a>(&mut self, all: &'a Processes) -> Vec<&'a Process> {
        self.follow(all);
        if let Some(marks) = &mut self.marks {
            marks.forget_the_gone(all);
        }
        all.list.iter().filter(|p| !p.dead && self.has(all, p)).collect()
    }

    fn kill_groups(&mut self) {
        self.command.kill();
        self.nested.iter_mut().for_each(Group::kill);
    }

    /// Follows the groups, forgets those that are over, and learns of nested ones.
    fn follow(&mut self, all: &Processes) {
        self.command.follow(all);
        self.nested.iter_mut().for_each(|group| group.follow(all));
        self.nested.retain(|group| !group.is_over());
        while self.learn(all) != 0 {}
    }

    /// Adds the groups led by children of the rlocks among us; their number, so that those within those follow.
    fn learn(&mut self, all: &Processes) -> usize {
        let name = NAME.to_string_lossy();
        let is_ours = |p: &&Process| p.name == name && self.in_groups(p);
        let rlocks: Vec<Pid> = all.list.iter().filter(is_ours).map(|p| p.pid).collect();
        let led = |p: &&Process| p.pid == p.group && rlocks.contains(&p.parent) && !p.is_a_guard();
        let new = all.list.iter().filter(led).filter(|p| !self.in_groups(p));
        let new: Vec<Group> = new.filter_map(|p| Some(Group::new(p.group, p.start?))).collect();
        let count = new.len();
        self.nested.extend(new);
        self.nested.iter_mut().rev().take(count).for_each(|group| group.follow(all));
        count
    }

    fn in_groups(&self, process: &Process) -> bool {
        self.command.has(process) || self.nested.iter().any(|group| group.has(process))
    }

    fn has(&mut self, all: &Processes, process: &Process) -> bool {
        self.is_related(all, process)
            || matches!(self.contain, Contain::Marked) && self.marks.as_mut().is_some_and(|marks| marks.are_on(process))
    }

    /// Whether it belongs, as far as numbers of processes tell.
    fn is_related(&self, all: &Processes, process: &Process) -> bool {
        self.in_groups(process) || self.is_below(all, process)
    }

    fn is_below(&self, all: &Processes, process: &Process) -> bool {
        let Contain::Below { rlock, guard, before } = &self.contain else { return false };
        let was_before = |pid: &Pid| all.get(*pid).is_some_and(|p| before.contains(&p.identity()));
        let line = all.line_of(process);
        line.contains(rlock)
            && process.pid != *rlock
            && !line.iter().take_while(|pid| *pid != rlock).any(|pid| pid == guard || was_before(pid))
    }

    /// An rlock in the command passes signals on to its own; they are not to come twice.
    fn is_below_a_nested_rlock(&self, all: &Processes, process: &Process) -> bool {
        let name = NAME.to_string_lossy();
        let Contain::Below { rlock, .. } = &self.contain else { return false };
        let line = all.line_of(process);
        let between = line.iter().skip(1).take_while(|pid| *pid != rlock);
        between.filter_map(|pid| all.get(*pid)).any(|p| p.name == name && !p.dead)
    }

    /// A nested rlock that died with ours leaves its command to its own guard, and no line from us to either. That guard
    /// ends when the nested command is dead.
    fn is_a_guard_at_work(&mut self, all: &Processes) -> bool {
        let Some(marks) = &mut self.marks else { return false };
        let us = all.get(getpid()).map(|p| (p.start, p.pid));
        // One that began before us watches over no command within ours: two must not wait for each other.
        let guards = all.list.iter().filter(|p| p.is_a_guard() && !p.dead && Some((p.start, p.pid)) > us);
        // An rlock that lives outside the group, as a daemon may, is marked too: then its guard is not at work.
        guards.into_iter().any(|guard| marks.are_on(guard) && !all.get(guard.parent).is_some_and(|p| marks.are_on(p)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: i32) -> Pid {
        Pid::from_raw(number)
    }

    pub(super) fn entry(number: i32, parent: i32, group: i32, name: &str) -> Process {
        let start = Some(Start(0));
        Process { pid: pid(number), parent: pid(parent), group: pid(group), name: name.to_owned(), dead: false, start }
    }

    pub(super) fn began(process: Process, at: u64) -> Process {
        Process { start: Some(Start(at)), ..process }
    }

    fn family(contain: Contain) -> ProcessTree {
        ProcessTree { command: Group::new(pid(10), Start(0)), ..ProcessTree::new(pid(10), contain) }
    }

    fn numbers<'a>(processes: impl IntoIterator<Item = &'a Process>) -> Vec<i32> {
        processes.into_iter().map(|p| p.pid.as_raw()).collect()
    }

    #[test]
    fn commands_of_rlocks_within_rlocks_belong_and_their_guards_and_daemons_do_not() {
        let all = Processes::new(vec![
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
        assert_eq!(numbers(family(Contain::No).living(&all)), [10, 11, 13, 14, 15]);
    }

    #[test]
    fn a_nested_command_that_outlives_its_rlock_is_waited_for_until_its_number_is_anothers() {
        let mut family = family(Contain::No);
        let nested = || began(entry(13, 11, 13, "root's"), 50);
        let all = vec![entry(10, 1, 10, "sh"), entry(11, 10, 10, "rlock"), nested()];
        assert_eq!(numbers(family.living(&Processes::new(all))), [10, 11, 13]);
        assert_eq!(numbers(family.living(&Processes::new(vec![Process { parent: pid(1), ..nested() }]))), [13]);
        let strangers = vec![began(entry(10, 1, 10, "stranger"), 60), began(entry(13, 1, 13, "stranger"), 60)];
        assert_eq!(numbers(family.living(&Processes::new(strangers))), [0; 0]);
        assert_eq!(family.nested.len(), 0);
    }

    #[test]
    fn what_is_below_an_rlock_is_contained_but_for_its_guard_and_what_was_there_before() {
        let all = |before| {
            Processes::new(vec![
                entry(5, 1, 5, "rlock"),
                entry(6, 5, 6, "rlock-guard"),
                began(entry(7, 5, 7, "before"), before),
                entry(8, 7, 7, "its child"),
                entry(10, 5, 10, "sh"),
                entry(11, 10, 11, "setsid"),
                entry(12, 5, 12, "adopted"),
                entry(13, 1, 13, "other"),
                entry(14, 10, 10, "rlock"),
                entry(15, 14, 15, "nested"),
            ])
        };
        let before = vec![Identity { pid: pid(7), start: Some(Start(0)) }];
        let mut family = family(Contain::Below { rlock: pid(5), guard: pid(6), before });
        let table = all(0);
        assert_eq!(numbers(family.living(&table)), [10, 11, 12, 14, 15]);
        let below = table.list.iter().filter(|p| family.has(&table, p)).collect::<Vec<_>>();
        let nested = below.into_iter().filter(|p| family.is_below_a_nested_rlock(&table, p));
        assert_eq!(numbers(nested), [15]);
        // What was there before has ended, and a process of the command got its number.
        assert_eq!(numbers(family.living(&all(9))), [7, 8, 10, 11, 12, 14, 15]);
    }

    #[test]
    fn a_leader_that_joined_another_group_still_belongs() {
        let all = Processes::new(vec![entry(10, 1, 3, "sh")]);
        assert_eq!(numbers(family(Contain::No).living(&all)), [10]);
    }
}
