//! The figures of stores beside the client that people use there, as one table.

use crate::figures::{Section, Unit, cell};

/// Line of `docs/comparison.md` before the table.
pub(crate) const BEGIN: &str = "<!-- benches/run writes the stores -->\n";

/// Stores, as the titles of their sections end.
const STORES: [&str; 4] = ["etcd", "ZooKeeper", "PostgreSQL", "MariaDB"];

/// The columns: the head, and how the titles of their sections begin.
const COLUMNS: [(&str, &str); 3] = [
    ("start to end", "Start to end"),
    ("hand-over", "Hand-over to one who waits"),
    ("hand-over, 20 wait", "20 who wait"),
];

/// Returns the medians, a row for each store and client.
pub(crate) fn table(sections: &[Section]) -> String {
    let mut rows = Vec::new();
    for store in STORES {
        let of_store = COLUMNS.map(|(_, begin)| {
            let title = format!("{begin}, {store}");
            sections.iter().find(|section| section.title == title)
        });
        let mut names: Vec<&str> = Vec::new();
        for row in of_store.iter().flatten().flat_map(|section| &section.rows) {
            if !names.contains(&row.name) {
                names.push(row.name);
            }
        }
        rows.extend(names.into_iter().map(|name| {
            let cells = of_store.map(|section| {
                let row = section.and_then(|section| section.row(name));
                cell(row.and_then(|row| row.figures[0]), Unit::Millis)
            });
            (format!("{store}: {name}"), cells.to_vec())
        }));
    }
    let heads = COLUMNS.map(|(head, _)| head.to_owned());
    let rows = rows
        .iter()
        .map(|(name, cells)| (name.as_str(), cells.clone()));
    crate::figures::table(&heads, "---:", rows)
}
