//! The list of mutants (simulation/mutants.toml): each still applies to the code as it is.
//! `simulation/mutate` tries them.

use std::fs;
use std::path::Path;

use toml::{Table, Value};

/// The keys of a mutant; the last two are of some only.
const KEYS: [&str; 7] = [
    "name",
    "rule",
    "file",
    "find",
    "replace",
    "redundant",
    "elsewhere",
];

#[test]
fn each_mutant_applies_to_one_place() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = fs::read_to_string(root.join("simulation/mutants.toml")).unwrap();
    let list: Table = list.parse().unwrap();
    let mutants = list["mutant"].as_array().unwrap();
    assert!(mutants.len() >= 40, "{} mutants", mutants.len());
    for mutant in mutants {
        let unknown = mutant
            .as_table()
            .unwrap()
            .keys()
            .find(|key| !KEYS.contains(&key.as_str()));
        assert_eq!(unknown, None, "{mutant:?}");
        let [name, _, file, find, replace] = [0, 1, 2, 3, 4].map(|key| {
            mutant
                .get(KEYS[key])
                .and_then(Value::as_str)
                .unwrap_or_else(|| panic!("{}: {mutant:?}", KEYS[key]))
        });
        let text = fs::read_to_string(root.join(file)).unwrap();
        let found = match text.matches(find).count() {
            0 => unformatted(&text).matches(&unformatted(find)).count(),
            found => found,
        };
        assert_eq!(found, 1, "{name}: {file} must contain this once: {find}");
        assert_ne!(find, replace, "{name}: it changes nothing");
    }
}

/// Returns `text` without what a formatter adds: white space, and the comma behind the last of a
/// list.
fn unformatted(text: &str) -> String {
    let dense: String = text.split_whitespace().collect();
    dense
        .replace(",)", ")")
        .replace(",}", "}")
        .replace(",]", "]")
}
