//! The command's process group: signalling it, and knowing that it is gone.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// Sends `signal` to every process of `group`. A group that is gone has got it.
pub fn send(group: Pid, signal: Signal) {
    // ESRCH: nobody is left. EPERM: all who are left have become somebody else (setuid), and no signal of ours can
    // reach them; `is_gone` will say that they live.
    let _ = killpg(group, signal);
}

/// Whether no process of `group` can run any more: zombies count as gone.
pub fn is_gone(group: Pid) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    !processes
        .flatten()
        .filter(|entry| entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit))
        .filter_map(|entry| std::fs::read(entry.path().join("stat")).ok())
        .any(|stat| is_alive_in(&stat, group))
}

/// Reads `/proc/PID/stat` (proc(5)): `pid (comm) state ppid pgrp …`, where comm may contain anything.
fn is_alive_in(stat: &[u8], group: Pid) -> bool {
    let Some(end) = stat.iter().rposition(|byte| *byte == b')') else { return false };
    let rest = String::from_utf8_lossy(&stat[end + 1..]);
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next();
    let pgrp = fields.nth(1).and_then(|field| field.parse::<i32>().ok());
    pgrp == Some(group.as_raw()) && !matches!(state, Some("Z" | "X"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zombie_is_gone_and_a_name_cannot_pretend() {
        let group = Pid::from_raw(42);
        assert!(is_alive_in(b"7 (sleep) S 1 42 42 0", group));
        assert!(is_alive_in(b"7 (a) Z 1 43 b) D 1 42 42 0", group));
        assert!(!is_alive_in(b"7 (sleep) Z 1 42 42 0", group));
        assert!(!is_alive_in(b"7 (x) S 1 42 42) S 1 43 43 0", group));
    }
}
