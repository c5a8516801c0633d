//! The text below the options in help: exit codes, variables and examples.

use std::fmt::Write;
use std::io;

use clap::Command;

use crate::exit;
use crate::text;

/// Number of columns that clap fills at most.
const MOST_COLUMNS: usize = 100;

/// Environment variables without a flag, in the words of `--help`, the man page and
/// `docs/reference/`.
pub const VARIABLES: &[(&str, &str)] = &[
    (
        "RLOCK_PASSWORD",
        "password for the node, unless its URL or --password-file has one",
    ),
    (
        "REDISCLI_AUTH",
        "the same, as redis-cli reads it; RLOCK_PASSWORD comes first",
    ),
    (
        "RLOCK_SENTINEL_USER",
        "user at the sentinels of redis-sentinel://",
    ),
    (
        "RLOCK_SENTINEL_PASSWORD",
        "password at the sentinels, unless --sentinel-password-file has one",
    ),
    (
        "RLOCK_KEY",
        "set for the command: the key as typed, without the prefix; of several, a list with commas",
    ),
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
    (
        "RLOCK_HELD",
        "set for the command: TOKEN:FENCE of each lock that it runs under, outermost first, with commas",
    ),
];

/// A command line, and its effect.
pub type Example = (&'static str, &'static str);

const BACKUP: Example = (
    "rlock run -k backup -- ./backup.sh",
    "Wait for the lock, run the command, and give the lock back",
);

const CRON: Example = (
    "rlock run -k backup -n -E 0 -q --hold-at-least 1m -- ./backup.sh",
    "In the crontab of each of several hosts: one host runs the job, the others skip it and exit with 0",
);

/// Returns the examples of a subcommand, or of rlock. The suite runs them.
pub fn examples(subcommand: Option<&str>) -> &'static [Example] {
    match subcommand {
        None => &[
            BACKUP,
            CRON,
            (
                "rlock inspect",
                "Show which locks are held, by which client and since when, and who waits",
            ),
            (
                "rlock run -k hello --node local -- echo hello",
                "Try it without a server",
            ),
        ],
        Some("run") => &[
            BACKUP,
            CRON,
            (
                "rlock run -k deploy -w 20m --note \"$CI_JOB_URL\" -- ./deploy.sh",
                "Give up waiting after 20 minutes with exit code 75, and show others which job holds the lock",
            ),
            (
                "rlock run -k dump -c 'pg_dump shop | gzip >shop.gz'",
                "Run a pipeline under the lock",
            ),
            (
                "rlock run -k report --slots 4 --max-run 1h -- ./report.sh",
                "Let four of these run at a time, and stop each after an hour",
            ),
        ],
        Some("acquire") => &[
            (
                "token=$(rlock acquire -k deploy --ttl 20m --wait 10m) || exit",
                "In a script: take the lock for 20 minutes, and keep its token",
            ),
            (
                "rlock acquire -k deploy --ttl 20m --format env >>\"$GITHUB_ENV\"",
                "In a CI job: later steps find the lock in RLOCK_KEY and RLOCK_TOKEN",
            ),
            (
                "rlock acquire -k deploy --ttl 72h --note 'frozen until Monday'",
                "Keep deploys out until Monday",
            ),
        ],
        Some("renew") => &[
            (
                "rlock renew -k deploy --token \"$token\"",
                "Extend the lock, by as much as it was taken for",
            ),
            (
                "rlock renew --ttl 10m",
                "Extend the lock of RLOCK_KEY and RLOCK_TOKEN so that it ends in ten minutes",
            ),
        ],
        Some("release") => &[
            (
                "rlock release -k deploy --token \"$token\"",
                "Give the lock back",
            ),
            (
                "trap 'rlock release' EXIT; trap 'exit 1' HUP INT TERM",
                "In a script with RLOCK_KEY and RLOCK_TOKEN: give the lock back however the script ends",
            ),
        ],
        Some("check") => &[
            (
                "rlock check && ./switch-over.sh",
                "In a command of rlock run: take the step only if the lock is still held",
            ),
            (
                "rlock check --for 5s && ./switch-over.sh",
                "Take it only if the lock also stays held for five seconds",
            ),
            (
                "rlock check -k deploy --token \"$token\"",
                "Check a lock of rlock acquire",
            ),
        ],
        Some("inspect") => &[
            ("rlock inspect", "Show all locks that are held"),
            (
                "rlock inspect deploy",
                "Show one lock and its waiters; exit 1 if it is free",
            ),
            (
                "rlock inspect --json 'deploy*'",
                "Print the locks that match a pattern for other programs",
            ),
        ],
        Some("break") => &[
            (
                "rlock break deploy",
                "Show the holder, ask, stop its command, and take the lock away",
            ),
            (
                "rlock break --yes deploy",
                "Do not ask, as a script needs it",
            ),
        ],
        Some("doctor") => &[
            ("rlock doctor", "Check the nodes that are configured"),
            (
                "rlock doctor --node redis://redis1,redis://redis2,redis://redis3",
                "Check three servers before they are used",
            ),
            (
                "rlock doctor --acl -k backup -k deploy",
                "Print the ACL line of a user for these two locks",
            ),
        ],
        Some("config") => &[
            (
                "rlock config -k deploy",
                "Show the settings that runs of this lock have",
            ),
            ("rlock config --check", "Check the configuration files"),
        ],
        Some("completions") => &[
            ("source <(rlock completions bash)", "In ~/.bashrc"),
            (
                "source <(rlock completions zsh)",
                "In ~/.zshrc, behind compinit",
            ),
            (
                "rlock completions fish | source",
                "In ~/.config/fish/config.fish",
            ),
        ],
        Some("man") => &[
            ("rlock man run | man -l -", "Read the page of rlock run"),
            (
                "rlock man >rlock.1",
                "Write the page of rlock, for a directory such as /usr/local/share/man/man1",
            ),
        ],
        Some(_) => &[],
    }
}

/// Adds the texts to rlock and its subcommands, and hides the values of variables, which may be
/// passwords. To do so takes longer than to parse, so it is done for help only.
pub(super) fn with_texts(mut definition: Command) -> Command {
    definition.build();
    let definition = definition.mut_subcommands(|subcommand| {
        let name = subcommand.get_name().to_owned();
        let subcommand = subcommand.mut_args(|arg| arg.hide_env_values(true));
        subcommand
            .after_help(short(Some(&name)))
            .after_long_help(long(Some(&name)))
    });
    definition
        .after_help(short(None))
        .after_long_help(long(None))
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
    let mut text = format!(
        "{}\n{}\nExamples:",
        table("Exit codes", exit::TABLE),
        table("Environment", VARIABLES)
    );
    for (line, effect) in examples(subcommand) {
        let _ = write!(text, "\n  {line}\n      {effect}");
    }
    text
}

fn table(title: &str, rows: &[(&str, &str)]) -> String {
    let columns = text::columns(io::stdout())
        .unwrap_or(MOST_COLUMNS)
        .min(MOST_COLUMNS);
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = format!("{title}:\n");
    for (name, meaning) in rows {
        // clap would begin further lines below the names.
        let lines = lines(meaning, columns.saturating_sub(width + 4));
        let _ = writeln!(
            text,
            "  {name:width$}  {}",
            lines.join(&format!("\n{:1$}", "", width + 4))
        );
    }
    text
}

/// Breaks a text into lines of at most `columns`, if its words are no longer.
fn lines(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines
            .last_mut()
            .filter(|line| line.chars().count() + 1 + word.chars().count() <= columns)
        {
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
