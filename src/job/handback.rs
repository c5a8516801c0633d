//! Giving locks back whose rlock was killed: the guard becomes `rlock release` once the command is dead.
//!
//! The settings for it, passwords among them, reach the guard in shared memory and the new program in its environment: ps
//! shows arguments to all users.

use std::convert::Infallible;
use std::env;
use std::ffi::{CString, OsStr};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use nix::unistd::execve;
use uuid::Uuid;

use crate::lock::keys::list;

/// The environment of `rlock release`: entries `NAME=VALUE`, each ended by a NUL.
#[derive(Clone)]
pub struct HandBack {
    entries: Vec<u8>,
    locks: usize,
}

impl HandBack {
    /// The release of this many locks, whose names are still to be added.
    pub fn of(locks: usize) -> Self {
        Self { entries: Vec::new(), locks }
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

/// Becomes `rlock release` for `tokens`, one for each lock, with `entries` and /dev/null as descriptors 0 to 2, which the guard
/// has closed.
pub(super) fn release(entries: &[u8], tokens: &[Uuid]) -> io::Result<Infallible> {
    for _ in 0..3 {
        // open(2) takes the lowest free number: 0, 1 and 2.
        let _ = OpenOptions::new().read(true).write(true).open("/dev/null")?.into_raw_fd();
    }
    let inherited = env::vars_os().filter(|(name, _)| !is_for_rlock(name));
    let inherited = inherited.map(|(name, value)| [name, value].join(OsStr::new("=")).into_vec());
    let entries = entries.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()).map(<[u8]>::to_vec);
    let token = format!("RLOCK_TOKEN={}", list(tokens)).into_bytes();
    let environment: Vec<CString> =
        inherited.chain(entries).chain([token]).filter_map(|entry| CString::new(entry).ok()).collect();
    // This link works even if the file was replaced or removed meanwhile.
    Ok(execve(c"/proc/self/exe", &[c"rlock", c"release"], &environment)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_nul_terminated_and_hold_no_nul() {
        let whole = HandBack::of(1).with("A", "1".as_ref()).unwrap().with("B", "".as_ref()).unwrap();
        assert_eq!(whole.bytes(), b"A=1\0B=\0");
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
