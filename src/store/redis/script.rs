//! The scripts that a server executes.
//!
//! 1. `lock.lua` does all that is done for a lock. The server keeps it, so it is called by its
//!    digest (EVALSHA). One that does not have it has executed nothing, and is sent the whole of it
//!    (EVAL), which it keeps then.
//! 2. The others need nothing that the server keeps, and no key but the lock's own, or those of its
//!    members. `keep.lua` extends a lock and `free.lua` deletes it, on a server that has forgotten
//!    `lock.lua` or has only some of the lock's keys.

use std::sync::LazyLock;

use redis::{Arg, Cmd};
use sha1_smol::Sha1;

use crate::lock::backoff::{LATE_TURN, TURN};

/// A script as it is sent.
pub struct Script {
    /// Without what only people read.
    pub text: String,
    /// Its SHA-1 in hex, by which a server knows it.
    pub digest: String,
}

/// All that is done for a lock.
pub static LOCK: LazyLock<Script> = LazyLock::new(|| {
    let (turn, late) = (TURN.as_millis(), LATE_TURN.as_millis());
    let numbers = format!("local TURN, LATE_TURN = {turn}, {late}\n");
    Script::new(&(numbers + include_str!("lock.lua")))
});

/// Extends an exclusive lock.
pub static KEEP: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("keep.lua")));

/// The same for a member.
pub static KEEP_MEMBER: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("keep_member.lua")));

/// Deletes an exclusive lock.
pub static FREE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("free.lua")));

/// Deletes one that may have Redisson's form.
pub static FREE_REDISSON: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("free_redisson.lua")));

/// Takes a member out.
pub static FREE_MEMBER: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("free_member.lua")));

impl Script {
    fn new(source: &str) -> Self {
        let lines = source
            .lines()
            .map(str::trim_start)
            .filter(|line| !line.is_empty() && !line.starts_with("--"));
        let text = lines.collect::<Vec<_>>().join("\n");
        let digest = Sha1::from(&text).digest().to_string();
        Self { text, digest }
    }
}

/// Returns a call of `lock.lua` by its digest as one that brings the script along, and any other
/// command as it is.
pub(super) fn whole(call: &Cmd) -> Cmd {
    if !matches!(call.args_iter().next(), Some(Arg::Simple(b"EVALSHA"))) {
        return call.clone();
    }
    let args = || {
        call.args_iter().skip(2).filter_map(|arg| {
            if let Arg::Simple(bytes) = arg {
                Some(bytes)
            } else {
                None
            }
        })
    };
    let length = args().map(<[u8]>::len).sum::<usize>();
    let mut whole = Cmd::with_capacity(2 + args().count(), LOCK.text.len() + length);
    whole.arg("EVAL").arg(&LOCK.text);
    args().for_each(|bytes| _ = whole.arg(bytes));
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_sent_without_what_only_people_read() {
        for script in [
            &LOCK,
            &KEEP,
            &KEEP_MEMBER,
            &FREE,
            &FREE_REDISSON,
            &FREE_MEMBER,
        ] {
            let is_code =
                |line: &str| !line.is_empty() && !line.starts_with(' ') && !line.starts_with("--");
            assert!(
                script.text.lines().all(is_code) && script.digest.len() == 40,
                "{}",
                script.text
            );
        }
        // Redis 6 refuses what Redis 7 calls a script with flags on a server that is out of memory.
        assert!(!LOCK.text.starts_with("#!"));
    }

    #[test]
    fn a_call_that_brings_the_script_along_has_the_same_keys_and_arguments() {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&LOCK.digest)
            .arg(2)
            .arg("job")
            .arg("rlock:fence:{job}:job")
            .arg("renew")
            .arg("token")
            .arg("");
        let words = |call: &Cmd| -> Vec<Vec<u8>> {
            call.args_iter()
                .filter_map(|arg| {
                    if let Arg::Simple(bytes) = arg {
                        Some(bytes.to_vec())
                    } else {
                        None
                    }
                })
                .collect()
        };
        let (before, after) = (words(&call), words(&whole(&call)));
        assert_eq!(
            (&after[0][..], &after[1][..]),
            (&b"EVAL"[..], LOCK.text.as_bytes())
        );
        assert_eq!(before[2..], after[2..]);
    }
}
