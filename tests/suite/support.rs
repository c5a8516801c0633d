//! The kit as the cases use it, with the binary under test.

pub(crate) use testkit::processes::{alive, children, guard_of, parent, signal, state};
pub(crate) use testkit::{
    Alias, Certificates, Client, Cluster, CutOff, Database, Delay, Etcd, Finished, LOADS_SLOWLY,
    MariaDb, NOBODY, Nodes, PgBouncer, Port, Postgres, Proxy, Rlock, Rooted, Running, Sentinel,
    Server, Session, Shared, Watched, eventually, far, far_at_first, skipped, slow,
};

use std::ffi::OsStr;

/// Path of the binary under test.
pub(crate) const RLOCK: &str = match option_env!("TEST_RLOCK") {
    Some(path) => path,
    None => env!("CARGO_BIN_EXE_rlock"),
};

/// Returns `rlock run --key KEY`, to be completed.
pub(crate) fn rlock(key: &str) -> Rlock {
    rlock_words(["run", "--key", key])
}

/// Returns `rlock WORDS…`, to be completed.
pub(crate) fn rlock_words<I: IntoIterator<Item: AsRef<OsStr>>>(words: I) -> Rlock {
    Rlock::of(RLOCK, words)
}
