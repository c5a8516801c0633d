//! The text below the options in help: exit codes, variables and examples.

use std::fmt::Write;
use std::io;

use clap::Command;

use super::examples::examples;
use crate::exit;
use crate::text;

/// Number of columns that clap fills at most.
const MOST_COLUMNS: usize = 100;

/// Environment variables without a flag, in the words of `--help`, the man page and `docs/reference/`.
pub const VARIABLES: &[(&str, &str)] = &[
    ("RLOCK_PASSWORD", "password for the node, unless its URL or --password-file has one"),
    ("REDISCLI_AUTH", "the same, as redis-cli reads it; RLOCK_PASSWORD comes first"),
    ("RLOCK_SENTINEL_USER", "user at the sentinels of redis-sentinel://"),
    ("RLOCK_SENTINEL_PASSWORD", "password at the sentinels, unless --sentinel-password-file has one"),
    ("RLOCK_KEY", "set for the command: the key as typed, without the prefix; of several, a list with commas"),
    (
        "RLOCK_TOKEN",
        "set for the command: proof that the lock is its own; of several, a list in the order of RLOCK_KEY",
    ),
    (
        "RLOCK_FENCE",
        "set for the command: a number that strictly increases from holder to holder; of several, such a list",
    ),
    (
        "RLOCK_SLOT",
        "set for the command with --slots: the number of its slot, from 1 on; of several, a list in the order of RLOCK_KEY",
    ),
    (
        "CREDENTIALS_DIRECTORY",
        "set by systemd: its file rlock.password is the password unless a URL, a flag or a variable gives one",
    ),
    ("RLOCK_HELD", "set for the command: TOKEN:FENCE of each lock that it runs under, outermost first, with commas"),
];

/// Adds the texts to rlock and its subcommands, and hides the values of variables, which may be passwords. To do so takes longer
/// than to parse, so it is done for help only.
pub(super) fn with_texts(mut definition: Command) -> Command {
    definition.build();
    let definition = definition.mut_subcommands(|subcommand| {
        let name = subcommand.get_name().to_owned();
        let subcommand = subcommand.mut_args(|arg| arg.hide_env_values(true));
        subcommand.after_help(short(Some(&name))).after_long_help(long(Some(&name)))
    });
    definition.after_help(short(None)).after_long_help(long(None))
}

/// For `-h` of a subcommand, or of rlock: the codes in one line, and where to find the rest.
fn short(subcommand: Option<&str>) -> String {
    let codes = match subcommand {
        None | Some("run") => "the command's own, 75 busy, 69 no majority reachable, 79 lock lost",
        Some("acquire") => "0 taken, 75 busy, 69 no majority reachable",
        Some("completions" | "man") => "0 printed, 74 output could not be written",
        Some(_) => "0 yes or done, 1 no, 69 no majority reachable, 77 refused, 78 configuration",
    };
    format!(
        "Exit codes: {codes}\nAll options, variables and codes, and examples: rlock {} --help",
        subcommand.unwrap_or("<COMMAND>")
    )
}

/// For `--help`: all codes and variables, and examples.
fn long(subcommand: Option<&str>) -> String {
    let mut text = format!("{}\n{}\nExamples:", table("Exit codes", exit::TABLE), table("Environment", VARIABLES));
    for (line, effect) in examples(subcommand) {
        let _ = write!(text, "\n  {line}\n      {effect}");
    }
    text
}

fn table(title: &str, rows: &[(&str, &str)]) -> String {
    let columns = text::columns(io::stdout()).unwrap_or(MOST_COLUMNS).min(MOST_COLUMNS);
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = format!("{title}:\n");
    for (name, meaning) in rows {
        // clap would begin further lines below the names.
        let lines = lines(meaning, columns.saturating_sub(width + 4));
        let _ = writeln!(text, "  {name:width$}  {}", lines.join(&format!("\n{:1$}", "", width + 4)));
    }
    text
}

/// Breaks a text into lines of at most `columns`, if its words are no longer.
fn lines(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut().filter(|line| line.chars().count() + 1 + word.chars().count() <= columns) {
            Some(line) => line.extend([" ", word]),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_broken_at_blanks_into_lines_that_fit() {
        assert_eq!(lines("one two three four", 9), ["one two", "three", "four"]);
        assert_eq!(lines("größe größe", 11), ["größe größe"]);
        assert_eq!(lines("overlong to", 4), ["overlong", "to"]);
        assert_eq!(lines("one two", 0), ["one", "two"]);
    }
}
