//! The kit as the cases use it, with the binary under test.

pub(crate) use testkit::processes::{alive, children, guard_of, parent, signal, state};
pub(crate) use testkit::{
    Alias, Certificates, Client, Cluster, CutOff, Database, Delay, Etcd, Finished, LOADS_SLOWLY,
    MariaDb, NOBODY, Nodes, PgBouncer, Port, Postgres, Proxy, Rlock, Rooted, Running, Sentinel,
    Server, Session, Shared, Watched, eventually, far, far_at_first, skipped, slow,
};

use std::ffi::OsStr;
use std::time::Duration;

/// Path of the binary under test.
pub(crate) const RLOCK: &str = match option_env!("TEST_RLOCK") {
    Some(path) => path,
    None => env!("CARGO_BIN_EXE_rlock"),
};

/// Options for a lease that is short, but survives some seconds in which a busy machine lets the
/// server or rlock stand still.
pub(crate) const STEADY: [&str; 6] = ["--ttl", "6s", "--node-timeout", "1s", "--kill-after", "0"];

/// Checks that the median of `count` gaps is below `limit`, or below that of what `usual` takes on a
/// machine that is so busy. One round of three is enough.
#[track_caller]
pub(crate) fn median_is_below(
    limit: Duration,
    count: usize,
    usual: impl Fn() -> Duration,
    gap: impl Fn() -> Duration,
) {
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[count / 2]
    };
    let mut medians = Vec::new();
    let is_below = (0..3).any(|_| {
        let (gaps, usuals) = (0..count).map(|_| (gap(), usual())).unzip();
        let (gap, usual) = (median(gaps), median(usuals));
        medians.push((gap, usual));
        gap < limit.max(usual)
    });
    assert!(is_below, "{medians:?}");
}

/// Returns `rlock run --key KEY`, to be completed.
pub(crate) fn rlock(key: &str) -> Rlock {
    rlock_words(["run", "--key", key])
}

/// Returns `rlock WORDS…`, to be completed.
pub(crate) fn rlock_words<I: IntoIterator<Item: AsRef<OsStr>>>(words: I) -> Rlock {
    Rlock::of(RLOCK, words)
}
