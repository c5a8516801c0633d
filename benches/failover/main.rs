//! Locks that a failover loses: grants that a server had acknowledged when it was killed, and that
//! its heir does not have.
//!
//! `benches/README.md` says how to run it and how to read it.

#![expect(clippy::print_stdout, reason = "the report is the output of a bench")]

mod restart;
mod set;

use anyhow::Result;

use testkit::measure::machine;
use testkit::measure::table::aligned;

use set::Set;

/// Number of failovers of each kind, unless another number is given.
const FAILOVERS: usize = 50;

/// Distances of the replicas, in ms.
const DISTANCES: [u64; 2] = [0, 2];

/// A row of the table.
struct Case {
    name: &'static str,
    /// `min-replicas-to-write`.
    least: usize,
    /// Number of replicas for which WAIT waits; 0: it is not sent.
    copies: usize,
    heir: Heir,
    /// Locks that may be lost, where that is known.
    aim: Option<usize>,
}

/// The replica that is promoted.
#[derive(Clone, Copy)]
enum Heir {
    /// That with the most of the primary's writes.
    Best,
    /// That with the fewest.
    Worst,
}

const CASES: [Case; 5] = [
    Case {
        name: "no WAIT",
        least: 0,
        copies: 0,
        heir: Heir::Best,
        aim: None,
    },
    Case {
        name: "min-replicas-to-write 1",
        least: 1,
        copies: 0,
        heir: Heir::Best,
        aim: None,
    },
    Case {
        name: "WAIT 1",
        least: 0,
        copies: 1,
        heir: Heir::Best,
        aim: Some(0),
    },
    Case {
        name: "WAIT 1, the other one promoted",
        least: 0,
        copies: 1,
        heir: Heir::Worst,
        aim: None,
    },
    Case {
        name: "WAIT 2, all",
        least: 0,
        copies: 2,
        heir: Heir::Worst,
        aim: Some(0),
    },
];

fn main() -> Result<()> {
    let wanted = testkit::measure::count(FAILOVERS)?;
    println!("{}", machine::described(&["redis-server"])?);
    println!("Locks lost of those acknowledged, {wanted} failovers each, two replicas:\n");
    let mut rows = vec![["", "replicas behind", "acknowledged", "lost", "aim"].map(str::to_owned)];
    for distance in DISTANCES {
        let mut set = Set::start(distance)?;
        for case in &CASES {
            let (mut acknowledged, mut lost) = (0, 0);
            for _ in 0..wanted {
                let kept = set.fail_over(case)?;
                acknowledged += usize::from(kept.is_some());
                lost += usize::from(kept == Some(false));
            }
            let aim = case.aim.map_or(String::new(), |aim| aim.to_string());
            let counts = [acknowledged, lost].map(|count| count.to_string());
            let [acknowledged, lost] = counts;
            rows.push([
                case.name.to_owned(),
                format!("{distance} ms"),
                acknowledged,
                lost,
                aim,
            ]);
        }
    }
    print!("{}", aligned(&rows));
    restart::report(wanted)?;
    println!("\nload average {} at the end", machine::load()?);
    Ok(())
}
