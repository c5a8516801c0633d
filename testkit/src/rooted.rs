//! An rlock of a user who is not root, and a program that becomes root: a command that this rlock
//! cannot kill.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::program::{install, install_script};
use crate::{Rlock, Server, skipped};

/// Number of the user and of its group.
pub const NOBODY: u32 = 65534;

/// A directory with a copy of rlock and such a program.
pub struct Rooted(TempDir);

impl Rooted {
    /// Makes one for the binary `rlock`; none where the tests do not run as root, or a program
    /// cannot become root.
    pub fn make(rlock: &str) -> Option<Self> {
        let made = Self(tempfile::tempdir().expect("a directory"));
        std::fs::set_permissions(made.0.path(), PermissionsExt::from_mode(0o755)).expect("a mode");
        for (from, to, mode) in [
            (rlock, "rlock", 0o755),
            ("/usr/bin/setpriv", "setpriv", 0o4755),
        ] {
            if install(Path::new(from), &made.0.path().join(to), mode).is_err() {
                skipped("there is no setpriv");
                return None;
            }
        }
        let setpriv = made.0.path().join("setpriv");
        let script = format!(
            "#!/bin/sh\nexec {} --reuid 0 --regid 0 --clear-groups \"$@\"\n",
            setpriv.display()
        );
        install_script(&script, &made.program()).expect("a script");
        let tried = Command::new(made.program())
            .args(["id", "-ru"])
            .uid(NOBODY)
            .gid(NOBODY)
            .output();
        if tried.is_ok_and(|output| output.stdout == b"0\n") {
            return Some(made);
        }
        skipped("a command that its rlock cannot kill takes root");
        None
    }

    /// Returns a copy of rlock that every user may run.
    pub fn rlock(&self) -> PathBuf {
        self.0.path().join("rlock")
    }

    /// Returns the program, which runs its arguments as root.
    pub fn program(&self) -> PathBuf {
        self.0.path().join("program")
    }

    /// Returns `rlock run --key KEY` as that user, to be completed.
    pub fn run(&self, key: &str, server: &Server) -> Rlock {
        let run = Rlock::of(self.rlock(), ["run", "--key", key]).node(&server.tcp_url());
        run.with(|command| {
            command.uid(NOBODY).gid(NOBODY);
        })
    }
}
