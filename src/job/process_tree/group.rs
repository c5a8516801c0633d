//! One process group, and whether its number is still its own.
//!
//! The kernel reuses a group's number once the group is empty and its leader reaped. While rlock
//! lives, its unreaped leader reserves the number. A guard whose rlock has died has no such hold,
//! and must never signal a number that may be reused.

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgid};

use super::table::{Process, ProcessId, ProcessTable, Start, start_of};

/// A process group, followed from scan to scan.
#[derive(Clone, Debug)]
pub(super) struct ProcessGroup {
    number: Pid,
    /// The leader began no later than this. A process of this number that began later is a
    /// stranger.
    leader_began_by: Start,
    /// Members at the last scan, zombies included: they reserve the number too. `None` before the
    /// first scan.
    members: Option<Vec<ProcessId>>,
    /// A scan found it empty or its number reused. It is never followed or signalled again.
    over: bool,
    killed: bool,
}

impl ProcessGroup {
    /// The group that process `number` leads, which began at `leader_began_by` or before.
    pub(super) fn new(number: Pid, leader_began_by: Start) -> Self {
        Self {
            number,
            leader_began_by,
            members: None,
            over: false,
            killed: false,
        }
    }

    pub(super) fn number(&self) -> Pid {
        self.number
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// Decides whether the number is still this group's.
    /// 1. It is, while the leader has it.
    /// 2. Once the leader is reaped, it is if a member of the last scan is still in the group: the
    ///    kernel reuses a number only after its group is empty.
    pub(super) fn follow(&mut self, all: &ProcessTable) {
        if self.over {
            return;
        }
        let members: Vec<ProcessId> = all
            .list
            .iter()
            .filter(|p| p.group == self.number)
            .map(Process::identity)
            .collect();
        self.over = match (all.get(self.number), &self.members) {
            (Some(leader), _) => leader
                .start
                .is_some_and(|start| start > self.leader_began_by),
            (None, None) => members.is_empty(),
            (None, Some(before)) => !members.iter().any(|member| before.contains(member)),
        };
        self.members = Some(members);
    }

    /// Whether `process`, of a table that was followed, is a member. The leader is one in whatever
    /// group.
    pub(super) fn contains(&self, process: &Process) -> bool {
        !self.over && (process.group == self.number || process.pid == self.number)
    }

    /// Sends `signal` to the group's number: only right after a scan, or while the leader is
    /// unreaped.
    pub(super) fn send(&self, signal: Signal) {
        if self.over {
            return;
        }
        // ESRCH: no member is left. EPERM: those left have become another user's (setuid) and
        // cannot be reached.
        let _ = killpg(self.number, signal);
        if getpgid(Some(self.number)).is_ok_and(|group| group != self.number) {
            let _ = kill(self.number, signal);
        }
    }

    /// Sends SIGSTOP to the group, unless its number is found reused.
    pub(super) fn stop(&mut self) {
        let is_later = |start| start > self.leader_began_by;
        self.over |=
            self.leader_began_by != Start::UNKNOWN && start_of(self.number).is_some_and(is_later);
        self.send(Signal::SIGSTOP);
    }

    /// Sends SIGKILL to the group, once: no member that got it can fork, and a member that rlock
    /// may not signal now will refuse later signals too.
    pub(super) fn kill(&mut self) {
        if !std::mem::replace(&mut self.killed, true) {
            self.send(Signal::SIGKILL);
        }
    }

    /// Whether the kernel knows neither a group nor a process of this number: then the group is
    /// over. Sends nothing.
    pub(super) fn is_unknown(&mut self) -> bool {
        let unknown = |result| result == Err(nix::Error::ESRCH);
        self.over |= unknown(killpg(self.number, None)) && unknown(kill(self.number, None));
        self.over
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::time::Duration;

    use super::super::tests::{began, entry};
    use super::*;

    /// The group 10, whose leader began at 100.
    fn group() -> ProcessGroup {
        ProcessGroup::new(Pid::from_raw(10), Start(100))
    }

    /// Follows the tables in turn; returns the members found in each.
    fn followed<const N: usize>(tables: [Vec<Process>; N]) -> Vec<Vec<i32>> {
        let mut group = group();
        let members = |list| {
            let all = ProcessTable::new(list);
            group.follow(&all);
            all.list
                .iter()
                .filter(|p| group.contains(p))
                .map(|p| p.pid.as_raw())
                .collect()
        };
        tables.into_iter().map(members).collect()
    }

    fn dead(process: Process) -> Process {
        Process {
            dead: true,
            ..process
        }
    }

    #[test]
    fn a_group_is_its_own_while_its_leader_has_the_number_dead_or_alive() {
        let leader = || began(entry(10, 1, 10, "sh"), 99);
        let zombie = || dead(leader());
        let other = began(entry(12, 1, 10, "sleep"), 300);
        let tables = [vec![leader()], vec![zombie()], vec![zombie(), other]];
        assert_eq!(followed(tables), [vec![10], vec![10], vec![10, 12]]);
        let elsewhere = || Process {
            group: Pid::from_raw(3),
            ..leader()
        };
        assert_eq!(
            followed([vec![elsewhere()], vec![elsewhere()]]),
            [vec![10], vec![10]]
        );
    }

    #[test]
    fn a_stranger_that_got_the_number_is_left_alone_and_so_is_its_group() {
        let leader = || began(entry(10, 1, 10, "sh"), 100);
        let stranger = || began(entry(10, 1, 10, "stranger"), 101);
        let its_child = || began(entry(11, 10, 10, "its child"), 102);
        assert_eq!(
            followed([vec![leader()], vec![stranger(), its_child()]]),
            [vec![10], vec![]]
        );
        assert_eq!(
            followed([vec![stranger()]]),
            [vec![0; 0]],
            "found by the first scan"
        );
        assert_eq!(
            followed([vec![leader()], vec![], vec![stranger()]]),
            [vec![10], vec![], vec![]]
        );
        // The stranger has come and gone between two scans, and left a child.
        assert_eq!(
            followed([vec![leader()], vec![its_child()]]),
            [vec![10], vec![]]
        );
    }

    #[test]
    fn members_without_their_leader_are_known_from_the_scan_before() {
        let member = |pid, start| began(entry(pid, 1, 10, "sleep"), start);
        let leader = began(entry(10, 1, 10, "sh"), 100);
        let tables = [
            vec![leader, member(11, 150)],
            vec![member(11, 150), member(12, 160)],
            vec![member(12, 160)],
            // The number 12 was reused too.
            vec![member(12, 170)],
        ];
        assert_eq!(
            followed(tables),
            [vec![10, 11], vec![11, 12], vec![12], vec![]]
        );
    }

    #[test]
    fn an_empty_group_is_over_for_good() {
        let member = || began(entry(11, 1, 10, "sleep"), 150);
        assert_eq!(
            followed([vec![member()], vec![], vec![member()]]),
            [vec![11], vec![], vec![]]
        );
        assert_eq!(followed([vec![], vec![member()]]), [vec![0; 0], vec![]]);
        let mut group = group();
        group.follow(&ProcessTable::new(vec![]));
        assert!(group.is_over() && group.is_unknown());
    }

    #[test]
    fn a_process_that_was_given_the_number_is_not_stopped() {
        let mut stranger = std::process::Command::new("sleep")
            .arg("60")
            .process_group(0)
            .spawn()
            .unwrap();
        let number = Pid::from_raw(stranger.id().cast_signed());
        let stops = |leader_began_by| {
            let mut group = ProcessGroup::new(number, leader_began_by);
            group.stop();
            let is_stopped = || {
                std::thread::sleep(Duration::from_millis(5));
                let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap();
                stat.contains(") T ")
            };
            ((0..20).any(|_| is_stopped()), group.is_over())
        };
        assert_eq!(stops(Start(1)), (false, true));
        assert_eq!(stops(start_of(number).unwrap()), (true, false));
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }

    #[test]
    fn a_leader_whose_start_is_hidden_is_waited_for() {
        let hidden = || Process {
            start: None,
            ..entry(10, 0, 10, "")
        };
        assert_eq!(
            followed([vec![hidden()], vec![hidden()]]),
            [vec![10], vec![10]]
        );
    }
}
