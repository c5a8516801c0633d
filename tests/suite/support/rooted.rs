//! An rlock of a user who is not root, and a program that becomes root: a command that this rlock cannot kill.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::rlock::copy_of_rlock;
use super::{Rlock, Server, skipped};

/// The user's and its group's number.
pub(crate) const NOBODY: u32 = 65534;

/// A directory with both.
pub(crate) struct Rooted(TempDir);

impl Rooted {
    /// None where the tests are not root's, or a program cannot become root.
    pub(crate) fn make() -> Option<Self> {
        let made = Self(tempfile::tempdir().expect("a directory"));
        let set = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("a mode");
        set(made.0.path(), 0o755);
        for (from, to, mode) in [(env!("CARGO_BIN_EXE_rlock"), "rlock", 0o755), ("/usr/bin/setpriv", "setpriv", 0o4755)]
        {
            let copied = std::fs::copy(from, made.0.path().join(to));
            if copied.is_err() {
                skipped("there is no setpriv");
                return None;
            }
            set(&made.0.path().join(to), mode);
        }
        let setpriv = made.0.path().join("setpriv");
        let script = format!("#!/bin/sh\nexec {} --reuid 0 --regid 0 --clear-groups \"$@\"\n", setpriv.display());
        std::fs::write(made.program(), script).expect("a script");
        set(&made.program(), 0o755);
        let tried = Command::new(made.program()).args(["id", "-ru"]).uid(NOBODY).gid(NOBODY).output();
        if tried.is_ok_and(|output| output.stdout == b"0\n") {
            return Some(made);
        }
        skipped("no command here becomes one that its rlock cannot kill: that takes root");
        None
    }

    /// A copy of rlock that everybody may run.
    pub(crate) fn rlock(&self) -> PathBuf {
        self.0.path().join("rlock")
    }

    /// Runs its arguments as root.
    pub(crate) fn program(&self) -> PathBuf {
        self.0.path().join("program")
    }

    /// `rlock run --key KEY` of the other user's, to be completed.
    pub(crate) fn run(&self, key: &str, server: &Server) -> Rlock {
        let run = copy_of_rlock(self.rlock().as_ref(), ["run", "--key", key]).node(&server.tcp_url());
        run.with(|command| {
            command.uid(NOBODY).gid(NOBODY);
        })
    }
}
