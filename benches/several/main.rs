//! The cost of several nodes beside one, and of a hung one among them; and whether a contended lock
//! on them ever has two holders.
//!
//! `benches/README.md` says how to run it and how to read it.

#![expect(clippy::print_stdout, reason = "the report is the output of a bench")]

mod contention;

use std::time::Duration;

use anyhow::{Result, bail};

use testkit::Server;
use testkit::measure::contender::{Contender, Times, measure};
use testkit::measure::machine;
use testkit::measure::table::{aligned, millis};
use testkit::witness;

/// The binary to be measured: `cargo bench` builds it in the bench profile, which inherits release.
pub(crate) const RLOCK: &str = testkit::benched!();

const NODES: usize = 5;
const WARM_UP: usize = 10;
const ROUNDS: usize = 200;

/// Grants of the contended lock, unless another number is given.
const GRANTS: usize = 1000;

fn main() -> Result<()> {
    let grants = testkit::measure::count(GRANTS)?;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let servers: Vec<Server> = (0..NODES).map(|_| Server::tcp(&[])).collect();
    println!("{}", machine::described(&[RLOCK, "redis-server"])?);

    println!("{ROUNDS} rounds after {WARM_UP} to warm up, wall time from spawn to exit:\n");
    print!("{}", table(&alone(&servers)?)?);

    let witness = witness::build(dir.path())?;
    println!(
        "\n{} processes that all want one lock, each again as soon as it has had it:\n",
        contention::PROCESSES
    );
    let mut rows = vec![contention::HEAD.map(str::to_owned)];
    for nodes in [1, NODES] {
        rows.push(contention::run(
            &servers[..nodes],
            &witness,
            dir.path(),
            grants,
        )?);
    }
    print!("{}", aligned(&rows));
    println!("\nload average {} at the end", machine::load()?);
    Ok(())
}

/// Returns `--node`, and the option that a lock on freshly started servers needs.
fn on(servers: &[Server]) -> [String; 4] {
    let urls: Vec<String> = servers.iter().map(Server::tcp_url).collect();
    [
        "--node".to_owned(),
        urls.join(","),
        "--restart-guard".to_owned(),
        "off".to_owned(),
    ]
}

/// Measures by turns: one node, all nodes, all nodes with another one hung each round.
fn alone(servers: &[Server]) -> Result<Vec<Times>> {
    // Each contender has its own key: a release need not have reached every node when the next run
    // begins.
    let contender = |name: &'static str, key: &str, servers: &[Server]| {
        let mut argv = [RLOCK, "run", "--key", key].map(str::to_owned).to_vec();
        argv.extend(on(servers));
        argv.extend(["--", "true"].map(str::to_owned));
        Contender::new(name, argv)
    };
    let contenders = [
        contender("1 node", "one", &servers[..1]),
        contender("5 nodes", "several", servers),
        contender("5 nodes, one hung", "hung", servers),
    ];
    let hung = contenders.len() - 1;
    let times = measure(&contenders, WARM_UP, ROUNDS, |round, turn| {
        let victim = &servers[round % servers.len()];
        if turn == hung {
            victim.freeze();
        } else {
            servers.iter().for_each(Server::wake);
        }
        Ok(())
    });
    servers.iter().for_each(Server::wake);
    times
}

/// Shows medians against their aims: 5 nodes at most 1.6 times one, a hung one at most 1.2 times
/// that and 50 ms.
fn table(times: &[Times]) -> Result<String> {
    let [one, several, hung] = times else {
        bail!("three contenders")
    };
    let row = |times: &Times, against: String, aim: String| {
        let [median, p10, p90] = [50, 10, 90].map(|percent| millis(times.percentile(percent)));
        [times.name.to_owned(), median, p10, p90, against, aim]
    };
    let ratio =
        |times: &Times, to: &Times| times.median().as_secs_f64() / to.median().as_secs_f64();
    let most = several.median().mul_f64(1.2) + Duration::from_millis(50);
    Ok(aligned(&[
        ["contender", "median", "p10", "p90", "ratio", "aim"].map(str::to_owned),
        row(one, String::new(), String::new()),
        row(
            several,
            format!("{:.2} of 1 node", ratio(several, one)),
            "1.60".to_owned(),
        ),
        row(
            hung,
            format!("{:.2} of 5 nodes", ratio(hung, several)),
            millis(most),
        ),
    ]))
}
