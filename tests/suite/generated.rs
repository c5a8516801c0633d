//! What stands in `completions/` and `man/` is what the binary would print now; README tells the same as `--help`.

use std::path::{Path, PathBuf};

use crate::support::rlock_words;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The file, and the words that print it.
fn generated() -> Vec<(PathBuf, Vec<String>)> {
    let completions = [
        ("bash", "rlock.bash"),
        ("zsh", "_rlock"),
        ("fish", "rlock.fish"),
        ("elvish", "rlock.elv"),
        ("powershell", "_rlock.ps1"),
    ];
    let mut all: Vec<_> = completions
        .iter()
        .map(|(shell, file)| {
            (root().join("completions").join(file), vec!["completions".to_owned(), (*shell).to_owned()])
        })
        .collect();
    all.push((root().join("man/rlock.1"), vec!["man".to_owned()]));
    for name in subcommands() {
        all.push((root().join(format!("man/rlock-{name}.1")), vec!["man".to_owned(), name]));
    }
    all
}

/// All that are not hidden.
fn subcommands() -> Vec<String> {
    let definition = rlock::cli::definition();
    let shown = definition.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    shown.map(|subcommand| subcommand.get_name().to_owned()).collect()
}

/// `RLOCK_BLESS=1 cargo test generated` writes them anew.
#[test]
fn the_generated_files_are_not_stale() {
    for (file, words) in generated() {
        let now = rlock_words(&words).finish().code(0).silent().stdout.join("\n") + "\n";
        if std::env::var_os("RLOCK_BLESS").is_some() {
            std::fs::write(&file, &now).expect("the file");
        }
        let there = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(there == now, "{} is stale; run RLOCK_BLESS=1 cargo test generated", file.display());
    }
}

#[test]
fn readme_has_every_flag_variable_and_exit_code_in_the_words_of_help() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("README.md");
    let mut definition = rlock::cli::definition();
    definition.build();
    for name in subcommands() {
        let subcommand = definition.find_subcommand(&name).expect("it");
        assert!(readme.contains(&format!("rlock {name}")), "README lacks rlock {name}");
        for option in subcommand.get_arguments() {
            let help = option.get_help().map(ToString::to_string).unwrap_or_default();
            assert!(readme.contains(&help), "README lacks, of {name}: {help}");
            let long = option.get_long().map(|long| format!("--{long}"));
            for word in long.into_iter().chain(option.get_env().map(|env| env.to_string_lossy().into_owned())) {
                assert!(readme.contains(&word), "README lacks, of {name}: {word}");
            }
        }
    }
    for (name, what) in rlock::exit::TABLE.iter().chain(rlock::cli::VARIABLES) {
        assert!(readme.contains(name) && readme.contains(what), "README lacks {name}: {what}");
    }
}
