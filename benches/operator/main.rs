//! The cost of questions: `rlock check` beside `redis-cli GET`, and `rlock inspect` beside
//! `redis-cli --scan`, on a server with a million keys of others.
//!
//! The contenders take turns, so that a machine that gets slower meanwhile slows all of them.
//! `benches/README.md` says how to run it and how to read it.

#![expect(clippy::print_stdout, reason = "the report is the output of a bench")]

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use testkit::Server;
use testkit::measure::contender::{Contender, Times, measure};
use testkit::measure::count;
use testkit::measure::machine::megabytes;
use testkit::measure::table::millis;
use testkit::processes::memory;
use testkit::program::clean;

/// The release build: `cargo bench` builds it in the bench profile, which inherits release.
const RLOCK: &str = testkit::benched!();

const FOREIGN: u64 = 1_000_000;
const LOCKS: u64 = 1_000;
const WARM_UP: usize = 5;

/// Rounds of the short contenders; the long ones get a twentieth.
const ROUNDS: usize = 300;

/// Keys of others, in steps that do not hold the server up for long.
const FILL: &str = "for i = ARGV[1], ARGV[2] do redis.call('SET', 'session:' .. i, 'a value of some length: ' .. i) end";

/// Locks as `run` leaves them: the key and its fence counter.
const LOCK: &str = r#"for i = 1, tonumber(ARGV[1]) do
  local key = 'job-' .. i
  local token = string.format('00000000-0000-4000-8000-%012x', i)
  local details = '{"host":"web1","pid":4711,"user":"deploy","since":1795270471061,"cmd":"backup.sh","ttl":3600000,"n":1,"v":1}'
  redis.call('SET', key, token .. ' ' .. details, 'PX', 3600000)
  redis.call('SET', 'rlock:fence:{' .. key .. '}:' .. key, 1795270471061520 + i, 'PX', 604800000)
end"#;

fn main() -> Result<()> {
    let rounds = count(ROUNDS)?;
    let server = Server::tcp(&[]);
    let port = server.port().to_string();
    let cli = |words: &[&str]| {
        [&["redis-cli", "-p", &port], words]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect()
    };

    let token = acquired(&server)?;
    let check = words(&[
        "check",
        "--key",
        "bench",
        "--token",
        &token,
        "--node",
        &server.tcp_url(),
    ]);
    let pair = [
        Contender::new("rlock check", check),
        Contender::new("redis-cli GET", cli(&["GET", "bench"])),
    ];
    println!("{rounds} rounds, wall time from spawn to exit:\n");
    print(&measure(&pair, WARM_UP, rounds, |_, _| Ok(()))?);

    fill(&server)?;
    let inspect = words(&["inspect", "--json", "--node", &server.tcp_url()]);
    let pair = [
        Contender::new("rlock inspect", inspect),
        Contender::new("redis-cli --scan", cli(&["--scan"])),
    ];
    let few = rounds.div_ceil(20);
    println!("\n{FOREIGN} keys of others and {LOCKS} locks, {few} rounds:\n");
    print(&measure(&pair, WARM_UP.min(few), few, |_, _| Ok(()))?);
    println!(
        "\nrlock inspect: peak memory {:.2} MB",
        megabytes(peak(&server)?)
    );
    Ok(())
}

fn words(of_rlock: &[&str]) -> Vec<String> {
    [&[RLOCK], of_rlock]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect()
}

/// Acquires a lock for an hour, and returns its token.
fn acquired(server: &Server) -> Result<String> {
    let output = clean(RLOCK)
        .args([
            "acquire",
            "--key",
            "bench",
            "--ttl",
            "1h",
            "--node",
            &server.tcp_url(),
        ])
        .output()?;
    ensure!(output.status.success(), "rlock acquire: {}", output.status);
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn fill(server: &Server) -> Result<()> {
    let run = |script: &str, words: &[String]| -> Result<()> {
        let port = server.port().to_string();
        let status = clean("redis-cli")
            .args(["-p", &port, "EVAL", script, "0"])
            .args(words)
            .stdout(Stdio::null())
            .status()?;
        ensure!(status.success(), "redis-cli: {status}");
        Ok(())
    };
    for step in 0..100 {
        let (first, last) = (step * FOREIGN / 100 + 1, (step + 1) * FOREIGN / 100);
        run(FILL, &[first.to_string(), last.to_string()])?;
    }
    run(LOCK, &[LOCKS.to_string()])
}

/// Prints the first contender against the second.
fn print(times: &[Times]) {
    for own in times {
        let [low, median, high] = [10, 50, 90].map(|percent| millis(own.percentile(percent)));
        println!(
            "{:18} median {median:>12}, p10 {low:>12}, p90 {high:>12}",
            own.name
        );
    }
    let ratio = times[0].median().as_secs_f64() / times[1].median().as_secs_f64();
    println!("{:18} {ratio:.2}", "ratio of medians");
}

/// Returns `VmHWM` of an `inspect` that has printed all locks and waits to do so again.
fn peak(server: &Server) -> Result<u64> {
    let mut child = clean(RLOCK)
        .args([
            "inspect",
            "--json",
            "--watch=1h",
            "--node",
            &server.tcp_url(),
        ])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no stdout")?).read_line(&mut line)?;
    let peak = memory(child.id().cast_signed(), "VmHWM");
    child.kill()?;
    child.wait()?;
    let found = line.matches(r#""state":"held""#).count() as u64;
    // Each lock is found at one node, and so is the acquired one.
    ensure!(
        found == 2 * (LOCKS + 1),
        "inspect found {} locks",
        found / 2
    );
    peak
}
