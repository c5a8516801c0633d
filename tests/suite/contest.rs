//! Clients that contend for a lock while the servers behind it change places.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use testkit::LIMIT;

use crate::support::{eventually, rlock};

/// Number of clients that want the lock at the same time.
const CONTENDERS: usize = 8;

/// Longest time for which a client waits for the lock. It is longer than any failover takes: on a
/// busy machine sentinels do nothing for half a minute at a time.
const PATIENCE: Duration = Duration::from_secs(600);

/// Clients that take the lock again and again, each by one rlock after the other.
///
/// Each command tries a lock of the kernel, which ends with the command however it ends: two at
/// once show there.
pub(crate) struct Contest {
    dir: tempfile::TempDir,
    url: String,
}

impl Contest {
    /// Clients of the lock at the node `url`.
    pub(crate) fn new(url: String) -> Self {
        Self {
            dir: tempfile::tempdir().expect("a directory"),
            url,
        }
    }

    /// Lets them contend while `during` runs, and until the lock was held many times more.
    pub(crate) fn run(&self, during: impl FnOnce()) {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for number in 0..CONTENDERS {
                let is_over = &is_over;
                scope.spawn(move || self.contend(number, is_over));
            }
            self.goes_on();
            during();
            for _ in 0..3 {
                self.goes_on();
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }

    /// Waits until the lock was held some times more.
    pub(crate) fn goes_on(&self) {
        let before = self.fences().len();
        eventually("the lock is taken", || {
            self.fences().len() > before + CONTENDERS
        });
    }

    fn contend(&self, number: usize, is_over: &AtomicBool) {
        // One of them holds the lock for long, over several renewals.
        let stay = if number == 0 { "1.2" } else { "0.02" };
        let inside = format!(
            "echo $RLOCK_FENCE >> {0}/fences; exec sleep {stay}",
            self.dir.path().display()
        );
        let script = format!(
            "flock --nonblock --conflict-exit-code 99 {0}/held sh -c '{inside}'; [ $? != 99 ] || echo two >> {0}/overlaps",
            self.dir.path().display()
        );
        while !is_over.load(Ordering::Relaxed) {
            // Without the guard a lock that the failover lost may be granted while its holder is
            // being stopped.
            let run = rlock("job").node(&self.url).args([
                "--ttl",
                "2s",
                "--restart-guard",
                "2s",
                "--kill-after",
                "0",
                "--wait",
                &format!("{}s", PATIENCE.as_secs()),
            ]);
            let running = run.args(["--", "sh", "-c", &script]).spawn();
            let ended = running.finish_within(PATIENCE + LIMIT);
            assert!(
                ended.exited_with(0) || ended.exited_with(79),
                "{}",
                ended.stderr
            );
        }
    }

    fn fences(&self) -> Vec<u64> {
        let text = std::fs::read_to_string(self.dir.path().join("fences")).unwrap_or_default();
        text.lines()
            .map(|fence| fence.parse().expect("a fence"))
            .collect()
    }

    /// Checks that no two held the lock at once, and that the fences rise.
    #[track_caller]
    pub(crate) fn is_fair(&self) {
        assert!(!self.overlaps().exists(), "two commands ran at once");
        let fences = self.fences();
        assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
    }

    fn overlaps(&self) -> std::path::PathBuf {
        Path::new(self.dir.path()).join("overlaps")
    }
}
