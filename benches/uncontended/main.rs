//! The cost of `rlock run` when no other client wants the lock: wall time of the whole process
//! beside its peers', memory and threads while it holds, size of the binary.
//!
//! The contenders take turns (A B C D A B C D …), so that a machine that gets slower meanwhile
//! slows all of them. `benches/README.md` says how to run it and how to read it.

#![expect(clippy::print_stdout, reason = "the report is the output of a bench")]

mod footprint;
mod table;

use std::path::Path;

use anyhow::Result;

use rlock_cli::job::guard::Guard;
use testkit::Server;
use testkit::measure::contender::{Contender, measure};
use testkit::measure::machine::{self, megabytes};
use testkit::measure::table::millis;
use testkit::program::{compile, installed};

/// The binary to be measured: `cargo bench` builds it in the bench profile, which inherits release.
pub(crate) const RLOCK: &str = testkit::benched!();

/// The lock that all contenders on Redis take.
const KEY: &str = "bench";

const WARM_UP: usize = 20;
const ROUNDS: usize = 300;

fn main() -> Result<()> {
    let rounds = testkit::measure::count(ROUNDS)?;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let server = Server::tcp(&[]);
    let floor = compile(
        &testkit::repository().join("benches/floor.c"),
        &[],
        dir.path(),
    )?;
    let local = tempfile::tempdir_in(machine::IN_MEMORY)?;

    println!("{}", machine::described(&[RLOCK, "redis-server", "flock"])?);
    let contenders = contenders(
        &installed(RLOCK, dir.path())?,
        &server,
        &floor,
        local.path(),
    );
    println!("{rounds} rounds after {WARM_UP} to warm up, wall time from spawn to exit:\n");
    print!(
        "{}",
        table::of_times(&measure(&contenders, WARM_UP, rounds, |_, _| Ok(()))?)
    );

    println!(
        "\nGuard, from before its fork until it has ended: {}",
        guard_cost(rounds)?
    );

    println!("\nWhile holding, two renewals done:\n");
    for node in [
        server.tcp_url(),
        format!("local:{}", local.path().display()),
    ] {
        println!("{}", footprint::while_holding(&node)?);
    }
    let size = std::fs::metadata(RLOCK)?.len();
    println!("\nBinary: {:.2} MB ({size} bytes)", megabytes(size));
    Ok(())
}

/// Returns the contenders, each of which runs `true` under a lock.
fn contenders(program: &str, server: &Server, floor: &Path, local: &Path) -> [Contender; 4] {
    let rlock = |node: String| {
        [program, "run", "--key", KEY, "--node", &node, "--", "true"]
            .map(str::to_owned)
            .to_vec()
    };
    let port = server.port().to_string();
    let floor = [&floor.to_string_lossy(), "127.0.0.1", &port, KEY, "true"]
        .map(str::to_owned)
        .to_vec();
    let flock = ["flock", &local.join("flock.lock").to_string_lossy(), "true"]
        .map(str::to_owned)
        .to_vec();
    [
        Contender::new("rlock run, redis", rlock(server.tcp_url())),
        Contender::new("floor.c, redis", floor),
        Contender::new("flock", flock),
        Contender::new(
            "rlock run, local",
            rlock(format!("local:{}", local.display())),
        ),
    ]
}

/// Measures what the guard adds to a run, in a process of rlock's size: its fork, its order, its
/// end.
fn guard_cost(rounds: usize) -> Result<String> {
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let begin = std::time::Instant::now();
        let mut guard = Guard::start(std::rc::Rc::new(|_| ()))?;
        guard.prepare(uuid::Uuid::nil(), false, &[], vec![])?;
        drop(guard);
        times.push(begin.elapsed());
    }
    times.sort_unstable();
    Ok(format!(
        "median {}, p90 {}",
        millis(times[rounds / 2]),
        millis(times[rounds * 9 / 10])
    ))
}
