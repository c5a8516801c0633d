//! The plain user that runs servers which refuse root.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::unistd::{Uid, User, chown};
use tempfile::TempDir;

use crate::program::clean;
use crate::rooted::NOBODY;

/// Returns a command as the user of the servers.
pub(crate) fn as_user(program: &Path) -> Command {
    let mut command = clean(program);
    if let Some(user) = server_user() {
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    // It may not enter the directory of the tests.
    command.current_dir("/");
    command
}

/// Returns the user that runs servers where the tests run as root.
fn server_user() -> Option<User> {
    let nobody = || User::from_uid(NOBODY.into()).ok().flatten();
    Uid::effective()
        .is_root()
        .then(|| nobody().expect("a user without rights"))
}

/// Gives the user of the servers a file or a directory.
pub(crate) fn give(path: &Path) {
    if let Some(user) = server_user() {
        chown(path, Some(user.uid), Some(user.gid)).expect("its directory");
    }
}

/// Returns a directory of that user.
pub(crate) fn directory() -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    give(dir.path());
    dir
}

/// Runs a command that must succeed.
pub(crate) fn run(command: &mut Command) {
    let output = command.output().expect("a program");
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
