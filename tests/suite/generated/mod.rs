//! The files in `completions/`, `man/` and `docs/reference/` are what the binary's definition would
//! make now.

mod reference;

use std::path::{Path, PathBuf};

use crate::support::rlock_words;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Files, and the words of the command line that prints each of them.
fn generated() -> Vec<(PathBuf, Vec<String>)> {
    let completions = [
        ("bash", "rlock.bash"),
        ("zsh", "_rlock"),
        ("fish", "rlock.fish"),
    ];
    let mut all: Vec<_> = completions
        .iter()
        .map(|(shell, file)| {
            (
                root().join("completions").join(file),
                vec!["completions".to_owned(), (*shell).to_owned()],
            )
        })
        .collect();
    all.push((root().join("man/rlock.1"), vec!["man".to_owned()]));
    for name in subcommands() {
        all.push((
            root().join(format!("man/rlock-{name}.1")),
            vec!["man".to_owned(), name],
        ));
    }
    all
}

/// Names of the subcommands.
pub(crate) fn subcommands() -> Vec<String> {
    let definition = rlock::cli::definition();
    definition
        .get_subcommands()
        .map(|subcommand| subcommand.get_name().to_owned())
        .collect()
}

/// `TEST_BLESS=1 cargo test generated` rewrites the files.
#[test]
fn the_generated_files_are_not_stale() {
    for (file, words) in generated() {
        bless_or_compare(
            &file,
            &(rlock_words(&words)
                .finish()
                .code(0)
                .silent()
                .stdout
                .join("\n")
                + "\n"),
        );
    }
}

fn bless_or_compare(file: &Path, now: &str) {
    if std::env::var_os("TEST_BLESS").is_some() {
        std::fs::write(file, now).expect("the file");
    }
    let there = std::fs::read_to_string(file).unwrap_or_default();
    assert!(
        there == now,
        "{} is stale; run TEST_BLESS=1 cargo test generated",
        file.display()
    );
}

#[test]
fn the_reference_is_not_stale() {
    for (name, now) in reference::pages() {
        bless_or_compare(&root().join("docs/reference").join(name), &now);
    }
}

#[test]
fn readme_names_every_subcommand_and_only_exit_codes_that_are() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("README.md");
    for name in subcommands() {
        assert!(
            readme.contains(&format!("rlock {name}")),
            "README lacks rlock {name}"
        );
    }
    let rows = readme
        .split("## Exit codes")
        .nth(1)
        .expect("its section")
        .lines();
    let named: Vec<&str> = rows
        .filter_map(|row| row.strip_prefix("| ")?.split(" |").next())
        .skip(1)
        .collect();
    assert_eq!(named.len(), 5, "{named:?}");
    for code in named {
        assert!(
            rlock::exit::TABLE
                .iter()
                .any(|(known, _)| known.split(" (").next() == Some(code)),
            "no exit code {code}"
        );
    }
}
