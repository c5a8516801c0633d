//! What `rlock run` costs when nobody else wants the lock: wall time of the whole process beside its peers', memory
//! and threads while it holds, size of the binary.
//!
//! The contenders take turns (A B C D A B C D …), so that a machine that gets slower meanwhile slows all of them.
//! `benches/README.md` says how to run it and how to read it.

#![expect(clippy::print_stdout, reason = "the report is what a bench is for")]

mod contender;
mod footprint;
mod machine;
mod server;
mod table;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use contender::{Contender, Times, clean};
use rlock::job::guard::Guard;
use server::Server;

/// The release build: `cargo bench` builds it in the bench profile, which inherits release.
const RLOCK: &str = env!("CARGO_BIN_EXE_rlock");

/// The lock that all contenders on Redis take.
const KEY: &str = "bench";

const WARM_UP: usize = 20;
const ROUNDS: usize = 300;

/// Above this one-minute load average start-up times say more about the neighbours than about rlock.
const BUSY: f64 = 1.5;

fn main() -> Result<()> {
    let rounds = rounds()?;
    let load = machine::load()?;
    if load > BUSY {
        println!("WARNING: load average {load} is above {BUSY}; the times below are of little use\n");
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let server = Server::start(dir.path())?;
    let floor = compile_floor(dir.path())?;
    let local = dir.path().join("local");
    std::fs::create_dir(&local)?;

    print_versions(load)?;
    let contenders = contenders(&server, &floor, &local);
    println!("\n{rounds} rounds after {WARM_UP} to warm up, wall time from spawn to exit:\n");
    print!("{}", table::of_times(&measure(&contenders, rounds)?));

    println!("\nGuard, from before its fork until it has been given its order and sent away: {}", guard_cost(rounds)?);

    println!("\nWhile holding, two renewals done:\n");
    for node in [server.url(), format!("local:{}", local.display())] {
        println!("{}", footprint::while_holding(RLOCK, &node)?);
    }
    let size = std::fs::metadata(RLOCK)?.len();
    println!("\nBinary: {:.2} MB ({size} bytes)", megabytes(size));
    Ok(())
}

/// The first argument that is not cargo's own `--bench`.
fn rounds() -> Result<usize> {
    let given = std::env::args().skip(1).find(|arg| arg != "--bench");
    let rounds =
        given.map_or(Ok(ROUNDS), |arg| arg.parse().with_context(|| format!("{arg}: not a number of rounds")))?;
    ensure!(rounds > 0, "at least one round is needed");
    Ok(rounds)
}

fn print_versions(load: f64) -> Result<()> {
    for (program, flag) in [(RLOCK, "--version"), ("redis-server", "--version"), ("flock", "--version")] {
        println!("{}", machine::first_line(program, flag)?);
    }
    println!("{}, Linux {}", machine::first_line("rustc", "--version")?, machine::first_line("uname", "-r")?);
    println!("{} cores, load average {load} at start", std::thread::available_parallelism()?);
    Ok(())
}

/// Builds `floor.c` in `dir`.
fn compile_floor(dir: &Path) -> Result<PathBuf> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/floor.c");
    let floor = dir.join("floor");
    let status = clean("cc").args(["-O2", "-Wall", "-Wextra", "-o"]).arg(&floor).arg(source).status()?;
    ensure!(status.success(), "cc could not build {source}");
    Ok(floor)
}

/// Each with its own way to the same end: `true` run under a lock.
fn contenders(server: &Server, floor: &Path, local: &Path) -> [Contender; 4] {
    let rlock = |node: String| [RLOCK, "run", "--key", KEY, "--node", &node, "--", "true"].map(str::to_owned).to_vec();
    let port = server.port().to_string();
    let floor = [&floor.to_string_lossy(), "127.0.0.1", &port, KEY, "true"].map(str::to_owned).to_vec();
    let flock = ["flock", &local.join("flock.lock").to_string_lossy(), "true"].map(str::to_owned).to_vec();
    [
        Contender::new("rlock run, redis", rlock(server.url())),
        Contender::new("floor.c, redis", floor),
        Contender::new("flock", flock),
        Contender::new("rlock run, local", rlock(format!("local:{}", local.display()))),
    ]
}

/// Everybody once a round.
fn measure(contenders: &[Contender], rounds: usize) -> Result<Vec<Times>> {
    let mut times: Vec<Vec<Duration>> = vec![Vec::with_capacity(rounds); contenders.len()];
    for round in 0..WARM_UP + rounds {
        for (contender, times) in contenders.iter().zip(&mut times) {
            let time = contender.run()?;
            if round >= WARM_UP {
                times.push(time);
            }
        }
    }
    Ok(contenders.iter().zip(times).map(|(contender, times)| Times::new(contender.name(), times)).collect())
}

/// In 10⁶ bytes.
#[expect(clippy::cast_precision_loss, reason = "nothing here is near 2^52 bytes")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// What the guard adds to a run, in a process of rlock's size: the fork, its order, its end.
fn guard_cost(rounds: usize) -> Result<String> {
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let begin = std::time::Instant::now();
        let mut guard = Guard::start()?;
        guard.prepare(None, None)?;
        times.push(begin.elapsed());
        let begin = std::time::Instant::now();
        guard.dismiss();
        if let Some(last) = times.last_mut() {
            *last += begin.elapsed();
        }
        guard.bury();
    }
    times.sort_unstable();
    let ms = |time: Duration| format!("{:.3} ms", time.as_secs_f64() * 1e3);
    Ok(format!("median {}, p90 {}", ms(times[rounds / 2]), ms(times[rounds * 9 / 10])))
}
