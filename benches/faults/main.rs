//! How long a command outlives what is done to its rlock, and whether anybody else could hold the lock meanwhile.
//!
//! The witness is no part of rlock: the command is this very program, which appends the boot time to a file every
//! millisecond. A second rlock waits for the same lock with a witness of its own; its first tick must come after the
//! first one's last. `benches/README.md` says how to run it.

#![expect(clippy::print_stdout, reason = "the report is what a bench is for")]

mod scene;
#[path = "../support/mod.rs"]
mod support;
mod witness;

use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal::{SIGKILL, SIGSTOP};

use scene::{Company, Scene, Settings, signal};
use support::server::Server;

/// Repeats of the rows that matter most; the others get a fifth.
const REPEATS: usize = 100;

/// One thing that is done.
struct Fault {
    what: &'static str,
    settings: Settings,
    repeats: usize,
    /// Does it; the scene measures from when this returns.
    inject: fn(&Scene) -> Result<()>,
}

fn faults(repeats: usize) -> Vec<Fault> {
    let few = repeats.div_ceil(5);
    let long = Settings { ttl: "5s", ..Settings::default() };
    let short = Settings { ttl: "900ms", ..Settings::default() };
    vec![
        Fault {
            what: "rlock killed",
            settings: Settings { ttl: "900ms", ..long },
            repeats,
            inject: |s| signal(s.rlock, SIGKILL),
        },
        Fault {
            what: "rlock killed, local",
            settings: Settings { local: true, ..long },
            repeats,
            inject: |s| signal(s.rlock, SIGKILL),
        },
        Fault { what: "rlock stopped past its lease", settings: short, repeats, inject: |s| signal(s.rlock, SIGSTOP) },
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
            settings: Settings { company: Company::None, ..short },
            repeats: few,
            inject: |s| {
                signal(s.rlock, SIGSTOP)?;
                signal(s.guard, SIGKILL)?;
                signal(s.rlock, SIGKILL)
            },
        },
        Fault {
            what: "all frozen past the lease, from the thaw",
            settings: short,
            repeats: few,
            inject: |s| s.freeze_past_the_lease(Duration::from_millis(1100)),
        },
        Fault {
            what: "key deleted, TERM ignored, kill-after 100ms",
            settings: Settings { options: &["--kill-after", "100ms"], next: false, ..short },
            repeats: few,
            inject: |s| s.redis("DEL"),
        },
        Fault {
            what: "key taken over",
            settings: Settings { next: false, ..short },
            repeats: few,
            inject: |s| s.redis("SET"),
        },
        Fault {
            what: "command stopped, server hangs",
            settings: Settings { next: false, ..short },
            repeats: few,
            inject: |s| {
                signal(s.command, SIGSTOP)?;
                signal(s.server, SIGSTOP)
            },
        },
        Fault {
            what: "command ended, straggler contained",
            settings: Settings { options: &["--contain", "--kill-after", "50ms"], company: Company::Straggler, ..long },
            repeats: few,
            inject: |s| signal(s.command, SIGKILL),
        },
        Fault {
            what: "--max-run 50ms over, kill-after 100ms",
            settings: Settings { options: &["--max-run", "50ms", "--kill-after", "100ms"], ..short },
            repeats: few,
            inject: |_| Ok(()),
        },
    ]
}

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    let first = words.next();
    if first.as_deref() == Some(witness::WORD) {
        return witness::run(words);
    }
    let repeats = first.map_or(Ok(REPEATS), |word| word.parse())?;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    println!("{:<44} {:>5}  {:>9} {:>9} {:>9}  overlaps", "fault", "times", "median", "p99", "worst");
    for fault in faults(repeats) {
        // A server of its own, which may end up stopped.
        let server = Server::start(dir.path())?;
        let mut gone = Vec::new();
        let mut overlaps = 0;
        for _ in 0..fault.repeats {
            let outcome = scene::play(&server, dir.path(), fault.settings, fault.inject)?;
            gone.push(outcome.gone);
            overlaps += usize::from(outcome.overlapped);
        }
        gone.sort_unstable();
        let ms = |index: usize| format!("{:.1} ms", gone[index].as_secs_f64() * 1e3);
        let last = gone.len() - 1;
        println!(
            "{:<44} {:>5}  {:>9} {:>9} {:>9}  {overlaps}",
            fault.what,
            fault.repeats,
            ms(last / 2),
            ms(last * 99 / 100),
            ms(last)
        );
    }
    Ok(())
}
