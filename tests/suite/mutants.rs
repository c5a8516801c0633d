//! The list of mutants (simulation/mutants.toml): each still applies to the code as it is. `simulation/mutate` tries them.

use std::fs;
use std::path::Path;

/// A mutant, as far as it is checked here.
#[derive(Default)]
struct Mutant {
    name: String,
    file: String,
    find: String,
    replace: String,
}

/// Returns the mutants. Each value stands on its key's line, between double quotes or three single ones.
fn mutants(list: &str) -> Vec<Mutant> {
    let mut mutants: Vec<Mutant> = Vec::new();
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if line == "[[mutant]]" {
            mutants.push(Mutant::default());
            continue;
        }
        let (key, value) = line.split_once(" = ").expect("a key and its value");
        let within = |quotes: &str| value.strip_prefix(quotes)?.strip_suffix(quotes);
        let value = within("'''").or_else(|| within("\"")).expect("a value in quotes").to_owned();
        let mutant = mutants.last_mut().expect("a mutant to which the key belongs");
        match key {
            "name" => mutant.name = value,
            "file" => mutant.file = value,
            "find" => mutant.find = value,
            "replace" => mutant.replace = value,
            "rule" | "redundant" | "elsewhere" => {}
            other => panic!("{}: the key {other} is unknown", mutant.name),
        }
    }
    mutants
}

#[test]
fn each_mutant_applies_to_one_place() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = fs::read_to_string(root.join("simulation/mutants.toml")).unwrap();
    let mutants = mutants(&list);
    assert!(mutants.len() >= 40, "{} mutants", mutants.len());
    for Mutant { name, file, find, replace } in mutants {
        let text = fs::read_to_string(root.join(&file)).unwrap();
        assert_eq!(text.matches(&find).count(), 1, "{name}: {file} must contain this once: {find}");
        assert_ne!(find, replace, "{name}: it changes nothing");
    }
}
