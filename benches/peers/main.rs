//! `rlock run` beside the programs and libraries that people use in its place. `benches/run`
//! installs them and runs this.
//!
//! The peers take turns, so that a machine that gets slower meanwhile slows all of them. Without an
//! argument everything is measured, and the tables and plots of `docs/comparison.md` and `benches/`
//! are written. With names of measures only these run, and nothing is written. `benches/README.md`
//! says how to read it.

#![expect(clippy::print_stdout, reason = "the report is the output of a bench")]

mod alone;
mod bill;
mod consensus;
mod figures;
mod peer;
mod plot;
mod replay;
mod replayed;
mod report;
mod stores;
mod waiting;

use anyhow::{Result, ensure};

use figures::Section;
use peer::World;
use testkit::Server;
use testkit::measure::machine::IN_MEMORY;
use testkit::program::compile;
use testkit::witness;

/// The binary to be measured: `cargo bench` builds it in the bench profile, which inherits release.
pub(crate) const RLOCK: &str = testkit::benched!();

const SERVERS: usize = 5;

type Measure = fn(&World) -> Result<Vec<Section>>;

const MEASURES: [(&str, Measure); 13] = [
    ("start", alone::start),
    ("five", alone::five),
    ("hand-over", waiting::hand_over),
    ("crowd", waiting::crowd),
    ("memory", alone::memory),
    ("waiting", bill::waiting),
    ("standing", replayed::standing),
    ("asking", replayed::asking),
    ("running", replayed::running),
    ("etcd", consensus::etcd),
    ("zookeeper", consensus::zookeeper),
    ("mysql", consensus::mysql),
    ("postgres", consensus::postgres),
];

fn main() -> Result<()> {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .collect();
    for name in &wanted {
        let names = MEASURES.map(|(name, _)| name);
        ensure!(
            names.contains(&name.as_str()),
            "{name}: none of {}",
            names.join(", ")
        );
    }
    let (dir, locks) = (
        tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?,
        tempfile::tempdir_in(IN_MEMORY)?,
    );
    let mut world = World {
        dir: dir.path().to_owned(),
        locks: locks.path().to_owned(),
        witness: witness::build(dir.path())?,
        floor: compile(
            &testkit::repository().join("benches/floor.c"),
            &[],
            dir.path(),
        )?,
        servers: (0..SERVERS).map(|_| Server::tcp(&[])).collect(),
        absent: Vec::new(),
    };
    let head = report::head(&mut world.absent)?;
    println!("{head}");

    let mut sections = Vec::new();
    for (name, measure) in MEASURES {
        if wanted.is_empty() || wanted.iter().any(|one| one == name) {
            for section in measure(&world)? {
                println!("{}", section.markdown());
                sections.push(section);
            }
        }
    }
    if wanted.is_empty() {
        report::write(&head, &sections)?;
    }
    Ok(())
}
