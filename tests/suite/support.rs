//! The kit as the cases use it, with the binary under test.

pub(crate) use testkit::processes::{
    alive, children, guard_of, is_killed, parent, runs, signal, state,
};
pub(crate) use testkit::{
    Alias, Certificates, Client, Cluster, CutOff, Database, Delay, Etcd, Finished, LOADS_SLOWLY,
    MariaDb, NOBODY, NODE_TIMEOUT, Nodes, PgBouncer, Port, Postgres, Proxy, Rlock, Rooted, Running,
    Sentinel, Server, Session, Shared, Watched, eventually, far, far_at_first, skipped, slow,
};

use std::ffi::OsStr;
use std::time::{Duration, Instant};

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

/// Waits until the lease at the key `job` has been extended on each of `servers`.
pub(crate) fn renewed<'a>(servers: impl IntoIterator<Item = &'a Server>) {
    let left = |server: &Server| -> i64 { server.cli(&["PTTL", "job"]).parse().expect("a time") };
    let mut waiting: Vec<_> = servers
        .into_iter()
        .map(|server| (server, left(server)))
        .collect();
    eventually("the lease is extended", || {
        waiting.retain_mut(|(server, last)| {
            let before = std::mem::replace(last, left(server));
            !(0..*last).contains(&before)
        });
        waiting.is_empty()
    });
}

/// Waits until `holds` is false, and returns how long after the call it was last seen to be true. So
/// a delay of this thread does not count.
pub(crate) fn lasts(mut holds: impl FnMut() -> bool) -> Duration {
    let begin = Instant::now();
    let mut last = Duration::ZERO;
    eventually("it is over", || {
        let looked = begin.elapsed();
        let goes_on = holds();
        if goes_on {
            last = looked;
        }
        !goes_on
    });
    last
}

/// Runs `test` for all of `cases` at once, where each of them has to wait for seconds.
pub(crate) fn side_by_side<T: Send>(cases: impl IntoIterator<Item = T>, test: impl Fn(T) + Sync) {
    let test = &test;
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(move || test(case));
        }
    });
}

/// Returns `rlock run --key KEY`, to be completed.
pub(crate) fn rlock(key: &str) -> Rlock {
    rlock_words(["run", "--key", key])
}

/// Returns `rlock WORDS…`, to be completed.
pub(crate) fn rlock_words<I: IntoIterator<Item: AsRef<OsStr>>>(words: I) -> Rlock {
    Rlock::of(RLOCK, words)
}
