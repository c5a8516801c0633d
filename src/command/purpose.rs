//! The use of a lock that is being taken.

use std::ffi::OsStr;

use crate::job::guard::Guard;

/// The use of a lock.
#[derive(Clone, Copy)]
pub(super) enum Purpose<'a> {
    /// A command, which ends before the lock can pass on. If rlock dies, the guard releases what rlock had asked for.
    Command(&'a OsStr, &'a Guard),
    /// Work that no process of rlock knows of (`acquire`).
    Steps,
}
