//! Giving locks back whose rlock was killed: the guard runs `rlock release` for each once the command is dead.
//!
//! The settings for it, passwords among them, reach the guard in shared memory and the new program in its environment: ps
//! shows arguments to all users.

use std::env;
use std::ffi::{CString, OsStr};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use nix::unistd::{ForkResult, execve, fork};
use uuid::Uuid;

use crate::lock::key::Key;

/// The environment of `rlock release`: entries `NAME=VALUE`, each ended by a NUL. The first ones name the locks, one each.
#[derive(Clone)]
pub struct HandBack {
    entries: Vec<u8>,
    locks: usize,
}

impl HandBack {
    /// The release of these locks; `None` if a name contains a NUL.
    pub fn of(keys: &[Key]) -> Option<Self> {
        let empty = Self { entries: Vec::new(), locks: keys.len() };
        keys.iter().try_fold(empty, |whole, key| whole.with("RLOCK_KEY", key.typed().as_ref()))
    }

    /// Adds `name=value`; `None` if `value` contains a NUL.
    pub fn with(mut self, name: &str, value: &OsStr) -> Option<Self> {
        if value.as_bytes().contains(&0) {
            return None;
        }
        for part in [name.as_bytes(), b"=", value.as_bytes(), b"\0"] {
            self.entries.extend_from_slice(part);
        }
        Some(self)
    }

    pub fn bytes(&self) -> &[u8] {
        &self.entries
    }

    /// Number of locks.
    pub fn locks(&self) -> usize {
        self.locks
    }
}

/// Shows nothing of it: it may contain passwords.
impl std::fmt::Debug for HandBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HandBack")
    }
}

/// Whether rlock reads the variable `name`. The new program must get none of those that the guard inherited: they would
/// change what it does, or make it believe that it runs under the lock.
fn is_for_rlock(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b"RLOCK_") || name == "REDISCLI_AUTH"
}

/// Runs `rlock release` for each of `tokens`, one for each lock and nil where none is to be released, with `entries`. The descriptors
/// 0 to 2, which the guard has closed, are /dev/null.
pub(super) fn release(entries: &[u8], tokens: &[Uuid]) -> io::Result<()> {
    for _ in 0..3 {
        // open(2) takes the lowest free number: 0, 1 and 2.
        let _ = OpenOptions::new().read(true).write(true).open("/dev/null")?.into_raw_fd();
    }
    let inherited = env::vars_os().filter(|(name, _)| !is_for_rlock(name));
    let inherited = inherited.map(|(name, value)| [name, value].join(OsStr::new("=")).into_vec());
    let entries = entries.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()).map(<[u8]>::to_vec);
    let (keys, others): (Vec<_>, Vec<_>) = entries.enumerate().partition(|(entry, _)| *entry < tokens.len());
    let others: Vec<Vec<u8>> = inherited.chain(others.into_iter().map(|(_, entry)| entry)).collect();
    for ((_, key), token) in keys.into_iter().zip(tokens).rev().filter(|(_, token)| !token.is_nil()) {
        let token = format!("RLOCK_TOKEN={}", token.hyphenated()).into_bytes();
        let entries = others.iter().cloned().chain([key, token]);
        let environment: Vec<CString> = entries.filter_map(|entry| CString::new(entry).ok()).collect();
        // SAFETY: the guard has one thread, and its child executes another program at once.
        if let ForkResult::Child = unsafe { fork() }? {
            // This link works even if the file was replaced or removed meanwhile.
            execve(c"/proc/self/exe", &[c"rlock", c"release"], &environment)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_nul_terminated_and_hold_no_nul() {
        let keys = ["a", "b"].map(|name| Key::new("", name).unwrap());
        let whole = HandBack::of(&keys).unwrap().with("A", "1".as_ref()).unwrap().with("B", "".as_ref()).unwrap();
        assert_eq!(whole.bytes(), b"RLOCK_KEY=a\0RLOCK_KEY=b\0A=1\0B=\0");
        assert!(whole.with("C", OsStr::from_bytes(b"a\0b")).is_none());
    }

    #[test]
    fn nothing_that_the_user_set_for_rlock_reaches_the_release() {
        for name in ["RLOCK_QUIET", "RLOCK_HELD", "RLOCK_PASSWORD", "REDISCLI_AUTH"] {
            assert!(is_for_rlock(name.as_ref()), "{name}");
        }
        for name in ["PATH", "SSL_CERT_FILE", "XRLOCK_", "RLOCK"] {
            assert!(!is_for_rlock(name.as_ref()), "{name}");
        }
    }
}
