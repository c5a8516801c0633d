//! Namespaces of the kernel, through unshare(1).

use std::process::{Command, Stdio};

use crate::skipped;

/// Returns `unshare OPTIONS`, to be completed; none where that is not possible. It is killed after
/// a minute, with the namespace if that has a first process.
pub fn unshare(options: &[&str]) -> Option<Command> {
    let tried = Command::new("unshare")
        .args(options)
        .arg("true")
        .stderr(Stdio::null())
        .status();
    if !tried.is_ok_and(|status| status.success()) {
        skipped(&format!(
            "unshare {} is not possible here",
            options.join(" ")
        ));
        return None;
    }
    let mut command = Command::new("timeout");
    command
        .args(["60", "unshare"])
        .args(options)
        .stdin(Stdio::null());
    Some(command)
}
