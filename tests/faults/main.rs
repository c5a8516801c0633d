//! The faults: how long a command outlives a fault of its rlock, and whether the next holder ran
//! meanwhile, which fails.
//!
//! The witness is no part of rlock: the command is this program, which appends the boot time to a
//! file every millisecond. A second rlock waits for the same lock with a witness of its own; its
//! first tick must come after the first one's last. `tests/README.md` says how to run it.

#![expect(clippy::print_stdout, reason = "the report is the output")]

mod scene;
mod witness;

use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::Signal::{SIGKILL, SIGSTOP};
use testkit::Server;
use testkit::measure::table::millis;
use testkit::processes::try_signal as signal;

use scene::{Company, KEY, Scene, Settings};

/// Path of the binary under test.
pub(crate) const RLOCK: &str = env!("CARGO_BIN_EXE_rlock");

/// Repeats of the rows that matter most, unless another number is given. The others get a fifth.
const REPEATS: usize = 100;

/// One fault.
struct Fault {
    what: &'static str,
    settings: Settings,
    repeats: usize,
    /// Injects the fault. The scene measures from its return on.
    inject: fn(&Scene) -> Result<()>,
}

/// The fault that overlaps by nature: no lock can prevent that a tree which was frozen as a whole
/// goes on for a moment.
const FROZEN: &str = "all frozen past the lease, from the thaw";

fn faults(repeats: usize) -> Vec<Fault> {
    let few = repeats.div_ceil(5);
    let long = Settings {
        ttl: "5s",
        ..Settings::default()
    };
    let short = Settings {
        ttl: "900ms",
        ..Settings::default()
    };
    vec![
        Fault {
            what: "rlock killed",
            settings: Settings {
                ttl: "900ms",
                ..long
            },
            repeats,
            inject: |s| signal(s.rlock, SIGKILL),
        },
        Fault {
            what: "rlock killed, local",
            settings: Settings {
                local: true,
                ..long
            },
            repeats,
            inject: |s| signal(s.rlock, SIGKILL),
        },
        Fault {
            what: "rlock stopped past its lease",
            settings: short,
            repeats,
            inject: |s| signal(s.rlock, SIGSTOP),
        },
        Fault {
            what: "guard killed, then rlock",
            settings: short,
            repeats: few,
            inject: |s| {
                signal(s.guard, SIGKILL)?;
                s.wait_for_another_guard()?;
                signal(s.rlock, SIGKILL)
            },
        },
        Fault {
            what: "guard stopped, then rlock killed",
            settings: short,
            repeats: few,
            inject: |s| {
                signal(s.guard, SIGSTOP)?;
                s.wait_for_another_guard()?;
                signal(s.rlock, SIGKILL)
            },
        },
        Fault {
            what: "both killed at once",
            settings: Settings {
                company: Company::None,
                ..short
            },
            repeats: few,
            inject: |s| {
                signal(s.rlock, SIGSTOP)?;
                signal(s.guard, SIGKILL)?;
                signal(s.rlock, SIGKILL)
            },
        },
        Fault {
            what: FROZEN,
            settings: short,
            repeats: few,
            inject: |s| s.freeze_past_the_lease(Duration::from_millis(1100)),
        },
        Fault {
            what: "key deleted, TERM ignored, kill-after 100ms",
            settings: Settings {
                options: &["--kill-after", "100ms"],
                next: false,
                ..short
            },
            repeats: few,
            inject: |s| s.write_key(&["DEL", KEY]),
        },
        Fault {
            what: "key taken over",
            settings: Settings {
                next: false,
                ..short
            },
            repeats: few,
            inject: |s| s.write_key(&["SET", KEY, "a foreign value", "PX", "300"]),
        },
        Fault {
            what: "command stopped, server hangs",
            settings: Settings {
                next: false,
                ..short
            },
            repeats: few,
            inject: |s| {
                signal(s.command, SIGSTOP)?;
                signal(s.server.pid(), SIGSTOP)
            },
        },
        Fault {
            what: "command ended, straggler contained",
            settings: Settings {
                options: &["--contain", "--kill-after", "50ms"],
                company: Company::Straggler,
                ..long
            },
            repeats: few,
            inject: |s| signal(s.command, SIGKILL),
        },
        Fault {
            what: "--max-run 50ms over, kill-after 100ms",
            settings: Settings {
                options: &["--max-run", "50ms", "--kill-after", "100ms"],
                ..short
            },
            repeats: few,
            inject: |_| Ok(()),
        },
    ]
}

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let first = words.next();
    if first.as_deref() == Some(witness::WORD) {
        return witness::run(words);
    }
    let repeats = first.map_or(Ok(REPEATS), |word| word.parse())?;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    println!(
        "{:<44} {:>5}  {:>11} {:>11} {:>11}  overlaps",
        "fault", "times", "median", "p99", "worst"
    );
    let mut overlapped = Vec::new();
    for fault in faults(repeats) {
        // Each fault has a server of its own, which may end up stopped.
        let server = Server::tcp(&[]);
        let mut gone = Vec::new();
        let mut overlaps = 0;
        for _ in 0..fault.repeats {
            let outcome = scene::play(&server, dir.path(), fault.settings, fault.inject)?;
            gone.push(outcome.gone);
            overlaps += usize::from(outcome.overlapped);
        }
        gone.sort_unstable();
        let last = gone.len() - 1;
        println!(
            "{:<44} {:>5}  {:>11} {:>11} {:>11}  {overlaps}",
            fault.what,
            fault.repeats,
            millis(gone[last / 2]),
            millis(gone[last * 99 / 100]),
            millis(gone[last])
        );
        if overlaps > 0 && fault.what != FROZEN {
            overlapped.push(fault.what);
        }
    }
    ensure!(
        overlapped.is_empty(),
        "two held the lock at once: {}",
        overlapped.join("; ")
    );
    Ok(())
}
