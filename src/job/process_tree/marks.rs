//! The mark that a lock leaves on the processes under it: its token in the environment in which they were started.

use std::collections::HashMap;

use nix::unistd::getpid;

use super::table::{Identity, Process, ProcessTable, Start};

/// The mark, and the processes that have it.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    token: String,
    /// No process that began before the command has it.
    since: Start,
    /// Environments read so far. Each is read once: a process that clears its own is still known.
    read: HashMap<Identity, bool>,
}

impl Marks {
    pub(super) fn new(token: &str, since: Start) -> Self {
        Self { token: token.to_owned(), since, read: HashMap::new() }
    }

    /// Whether `process` has the mark and is not the calling process.
    pub(super) fn are_on(&mut self, process: &Process) -> bool {
        if process.pid == getpid() || process.start.is_none_or(|start| start < self.since) {
            return false;
        }
        if let Some(known) = self.read.get(&process.identity()) {
            return *known;
        }
        // During exec a process has no environment for a moment: the next scan reads it again.
        let Some(carries) = process.carries(&self.token) else { return false };
        self.read.insert(process.identity(), carries);
        carries
    }

    /// Drops what was read of processes that are not in `all`.
    pub(super) fn forget_ended(&mut self, all: &ProcessTable) {
        self.read.retain(|identity, _| all.get(identity.pid).is_some_and(|p| p.identity() == *identity));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{began, entry};
    use super::*;

    #[test]
    fn the_mark_is_read_of_processes_that_began_after_the_command_and_once() {
        let mut child =
            std::process::Command::new("sleep").arg("60").env("RLOCK_HELD", "a=1234,b=5678").spawn().unwrap();
        let pid = child.id().cast_signed();
        let start = Start(100);
        let process = |start| began(entry(pid, 1, pid, "sleep"), start);
        let mut marks = Marks::new("5678", start);
        // The child may not have been exec'd yet.
        while process(100).carries("a=") != Some(true) {}
        assert!(!marks.are_on(&process(99)));
        assert!(!marks.are_on(&Process { start: None, ..process(100) }));
        assert!(marks.are_on(&process(100)) && !Marks::new("4711", start).are_on(&process(100)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(marks.are_on(&process(100)), "what is known is kept");
        assert!(!marks.are_on(&process(101)), "nothing is known of another process of this number");
        marks.forget_ended(&ProcessTable::new(vec![process(101)]));
        assert!(!marks.are_on(&process(100)));
    }
}
