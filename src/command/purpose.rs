//! The use of a lock that is being taken.

use crate::job::guard::Guard;

/// The use of a lock.
#[derive(Clone, Copy)]
pub(super) enum Purpose<'a> {
    /// A command with this name, which ends before the lock can pass on. If rlock dies, the guard releases what rlock had asked for.
    Command(&'a str, &'a Guard),
    /// Work that no process of rlock knows of (`acquire`).
    Steps,
}
