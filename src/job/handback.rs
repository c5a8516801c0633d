//! Giving a lock back whose rlock was killed: the guard becomes `rlock release` once the command is dead.
//!
//! What that needs, passwords among it, is handed to the guard in shared memory and to the new program in its environment:
//! arguments stand in ps.

use std::convert::Infallible;
use std::env;
use std::ffi::{CString, OsStr};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use nix::unistd::execve;
use uuid::Uuid;

/// The environment of `rlock release`: entries `NAME=VALUE`, each ended by a NUL.
#[derive(Clone, Default)]
pub struct HandBack(Vec<u8>);

impl HandBack {
    /// With `name` set to `value`; `None` if no environment can hold that.
    pub fn with(mut self, name: &str, value: &OsStr) -> Option<Self> {
        if value.as_bytes().contains(&0) {
            return None;
        }
        for part in [name.as_bytes(), b"=", value.as_bytes(), b"\0"] {
            self.0.extend_from_slice(part);
        }
        Some(self)
    }

    /// The entries, as the guard reads them.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Passwords may be in it.
impl std::fmt::Debug for HandBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HandBack")
    }
}

/// Variables that mean something to rlock. Of those that the guard found, none may reach the new program: it is to do
/// neither more nor less than it is told, and must not believe that it runs under the lock.
fn is_for_rlock(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b"RLOCK_") || name == "REDISCLI_AUTH"
}

/// Becomes `rlock release` for `token`, with `entries` and no input or output; what hindered it, if that fails. For a guard that has none
/// of these descriptors open.
pub(super) fn release(entries: &[u8], token: Uuid) -> io::Result<Infallible> {
    for _ in 0..3 {
        // The lowest number that is free: 0, 1 and 2.
        let _ = OpenOptions::new().read(true).write(true).open("/dev/null")?.into_raw_fd();
    }
    let found = env::vars_os().filter(|(name, _)| !is_for_rlock(name));
    let found = found.map(|(name, value)| [name, value].join(OsStr::new("=")).into_vec());
    let told = entries.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()).map(<[u8]>::to_vec);
    let token = format!("RLOCK_TOKEN={token}").into_bytes();
    let environment: Vec<CString> =
        found.chain(told).chain([token]).filter_map(|entry| CString::new(entry).ok()).collect();
    // The file may have been replaced or removed since; this link still leads to it.
    Ok(execve(c"/proc/self/exe", &[c"rlock", c"release"], &environment)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_nul_terminated_and_hold_no_nul() {
        let whole = HandBack::default().with("A", "1".as_ref()).unwrap().with("B", "".as_ref()).unwrap();
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
