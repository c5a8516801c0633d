//! The files that are written: `benches/results.md`, `benches/results.svg`, and the table in
//! `docs/comparison.md`.

use std::path::Path;

use anyhow::{Context, Result};

use crate::alone::{FIVE, HUNG, MEMORY, START, START_LOCAL};
use crate::bill::WAITING;
use crate::figures::{Section, cell, table};
use crate::peer::{ON_SERVERS, ON_THIS_MACHINE, Peer};
use crate::plot::{self, Panel};
use crate::replayed::{ASKING, RUNNING, STANDING};
use crate::stores;
use crate::waiting::{FEW, HAND_OVER, HAND_OVER_LOCAL, MANY_LOCAL, OF_RLOCK};
use testkit::measure::machine;

/// Path of the page that shows the medians.
const PAGE: &str = "docs/comparison.md";

/// Lines of that page before its tables, and behind each.
const BEGIN: &str = "<!-- benches/run writes this -->\n";
const BEGIN_BILL: &str = "<!-- benches/run writes the bill -->\n";
const END: &str = "<!-- to here -->\n";

/// The columns of that table: the head, and the tables one of which has the first figure.
const IN_PAGE: [(&str, [&str; 2]); 6] = [
    ("start to end", [START, START_LOCAL]),
    ("hand-over", [HAND_OVER, HAND_OVER_LOCAL]),
    ("five servers", [FIVE, ""]),
    ("one of five hangs", [HUNG, ""]),
    ("memory, holding", [MEMORY, ""]),
    ("memory, waiting", [FEW, MANY_LOCAL]),
];

/// The panels of the plot, by table and column.
const PLOTTED: [(&str, &str); 14] = [
    (START, "median"),
    (START_LOCAL, "median"),
    (HAND_OVER, "median"),
    (HAND_OVER_LOCAL, "median"),
    (FIVE, "median"),
    (HUNG, "median"),
    (FEW, "commands a second, idle"),
    (FEW, "commands per hand-over"),
    (FEW, "memory of one"),
    (MEMORY, "memory"),
    (WAITING, "hand-over p50"),
    (WAITING, "requests a second, idle"),
    (WAITING, "processor time per hand-over"),
    (WAITING, "memory of the server"),
];

/// Returns the head of the figures: the machine, all versions, and the peers that are not installed
/// and so `absent`.
pub(crate) fn head(absent: &mut Vec<Peer>) -> Result<String> {
    let mut lines = machine()?;
    for peer in [&ON_SERVERS[..], &ON_THIS_MACHINE[..]].concat() {
        let line = peer.version().unwrap_or_else(|error| {
            absent.push(peer);
            // Without its causes: they have paths of this machine.
            format!("**{} is skipped**: {error}", peer.name())
        });
        // Two peers can be one program.
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    Ok(lines
        .into_iter()
        .fold(String::new(), |text, line| text + "* " + &line + "\n"))
}

/// Returns the machine, and the programs that are always on it.
fn machine() -> Result<Vec<String>> {
    let cpu = std::fs::read_to_string("/proc/cpuinfo")?;
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map(|(_, model)| model);
    let lines = machine::described(&["redis-server"])?;
    let mut head: Vec<String> = lines
        .lines()
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect();
    head.extend(model.map(|model| format!("processor: {model}")));
    Ok(head)
}

/// Writes all files.
pub(crate) fn write(head: &str, sections: &[Section]) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let put = |name: &str, text: &str| {
        std::fs::write(root.join(name), text).with_context(|| name.to_owned())
    };
    put("benches/results.md", &results(head, sections))?;
    put("benches/results.svg", &plot::drawn(&panels(sections)))?;
    let page = std::fs::read_to_string(root.join(PAGE))?;
    let page = with_table(&page, stores::BEGIN, &stores::table(sections))?;
    let bill = sections
        .iter()
        .filter(|section| [WAITING, STANDING, ASKING, RUNNING].contains(&section.title));
    let bill: Vec<String> = bill.map(Section::table).collect();
    put(
        PAGE,
        &with_table(
            &with_table(&page, BEGIN, &summary(sections))?,
            BEGIN_BILL,
            &bill.join("\n"),
        )?,
    )
}

/// Returns the page with this table behind the line `begin`.
fn with_table(page: &str, begin: &str, table: &str) -> Result<String> {
    let parts = page
        .split_once(begin)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.with_context(|| format!("{PAGE} has no line {begin}"))?;
    Ok(format!("{before}{begin}{table}{END}{after}"))
}

fn results(head: &str, sections: &[Section]) -> String {
    let heads = ["waits", "renews", "a command whose lock is lost", "fence"].map(str::to_owned);
    let all = ON_SERVERS
        .iter()
        .chain(&ON_THIS_MACHINE)
        .filter(|peer| **peer != Peer::EtcdctlInMemory);
    let does = table(
        &heads,
        "---",
        all.map(|peer| (peer.name(), peer.does().map(str::to_owned).to_vec())),
    );
    let tables: Vec<String> = sections.iter().map(Section::markdown).collect();
    format!(
        "# rlock and its peers\n\n`benches/run` has written this; `README.md` beside it says how to read it.\n\n\
         ![The medians](results.svg)\n\n{head}\n## What each of them does\n\n{does}\n{}",
        tables.join("\n")
    )
}

fn panels(sections: &[Section]) -> Vec<Panel> {
    let panel = |(title, column): (&'static str, &'static str)| {
        let section = sections.iter().find(|section| section.title == title)?;
        let (column, unit) = section
            .columns
            .iter()
            .zip(0..)
            .find_map(|((name, unit), at)| (*name == column).then_some((at, *unit)))?;
        let bars = section
            .rows
            .iter()
            .filter(|row| !row.name.starts_with("of it"));
        let bars = bars
            .filter_map(|row| Some((row.name, row.figures[column]?)))
            .collect();
        Some(Panel {
            title,
            what: section.columns[column].0,
            unit,
            bars,
        })
    };
    PLOTTED.into_iter().filter_map(panel).collect()
}

fn summary(sections: &[Section]) -> String {
    let figure = |name: &str, titles: [&str; 2]| {
        let mut found = sections
            .iter()
            .filter(|section| titles.contains(&section.title));
        let of =
            |section: &Section| Some(cell(section.row(name)?.figures[0], section.columns[0].1));
        found
            .find_map(of)
            .unwrap_or_else(|| cell(None, crate::figures::Unit::Count))
    };
    let heads = IN_PAGE.map(|(head, _)| head.to_owned());
    let row = |name| {
        (
            name,
            IN_PAGE.map(|(_, titles)| figure(name, titles)).to_vec(),
        )
    };
    let names = ON_SERVERS
        .map(Peer::name)
        .into_iter()
        .chain(OF_RLOCK)
        .chain(ON_THIS_MACHINE.map(Peer::name));
    table(&heads, "---:", names.map(row))
}
