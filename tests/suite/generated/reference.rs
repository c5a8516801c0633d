//! The pages of `docs/reference/`: each subcommand's options in the words of `--help`, as Markdown.

use std::fmt::Write;

use clap::{Arg, ArgAction, Command};

const ORIGIN: &str =
    "<!-- made from src/cli/ by: TEST_BLESS=1 cargo test --test suite generated -->\n";

/// File names and contents.
pub(super) fn pages() -> Vec<(String, String)> {
    let mut definition = rlock::cli::definition();
    definition.build();
    // clap adds a subcommand `help`, which has no page.
    let own = definition
        .get_subcommands()
        .filter(|subcommand| subcommand.get_name() != "help");
    let mut pages: Vec<_> = own
        .map(|subcommand| (format!("{}.md", subcommand.get_name()), page(subcommand)))
        .collect();
    pages.push(("exit-codes.md".to_owned(), codes()));
    pages
}

fn page(subcommand: &Command) -> String {
    let mut text = format!("{ORIGIN}# rlock {}\n\n", subcommand.get_name());
    let about = subcommand
        .get_long_about()
        .or_else(|| subcommand.get_about());
    let usage = subcommand.clone().render_usage().to_string();
    let usage: Vec<&str> = usage
        .trim_start_matches("Usage:")
        .lines()
        .map(str::trim)
        .collect();
    let _ = writeln!(
        text,
        "{}\n\n```\n{}\n```",
        about.map(ToString::to_string).unwrap_or_default().trim(),
        usage.join("\n")
    );
    for heading in headings(subcommand) {
        let _ = writeln!(
            text,
            "\n## {heading}\n\n| option | variable | default | meaning |\n|---|---|---|---|"
        );
        for argument in arguments(subcommand).filter(|argument| heading_of(argument) == heading) {
            let _ = writeln!(text, "{}", row(argument));
        }
    }
    text += "\n## Examples\n\n```sh\n";
    for (line, effect) in rlock::cli::examples(Some(subcommand.get_name())) {
        let _ = writeln!(text, "# {effect}\n{line}");
    }
    text += "```\n";
    let _ = writeln!(
        text,
        "\nThe [options and variables](../options.md) page has the rules that hold for all of them. [Exit codes](exit-codes.md)"
    );
    text
}

fn arguments(subcommand: &Command) -> impl Iterator<Item = &Arg> {
    subcommand
        .get_arguments()
        .filter(|argument| !argument.is_hide_set())
}

fn heading_of(argument: &Arg) -> &str {
    argument
        .get_help_heading()
        .unwrap_or(if argument.is_positional() {
            "Arguments"
        } else {
            "Other"
        })
}

/// In the order of their first options, but for help, which is last.
fn headings(subcommand: &Command) -> Vec<&str> {
    let mut headings = Vec::new();
    for heading in arguments(subcommand).map(heading_of) {
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    headings.sort_by_key(|heading| *heading == "Other");
    headings
}

fn row(argument: &Arg) -> String {
    let value = argument.get_value_names().map(|names| {
        names
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    });
    let value = value
        .filter(|_| argument.get_action().takes_values())
        .unwrap_or_default();
    let flags: Vec<String> = [
        argument.get_short().map(|short| format!("-{short}")),
        argument.get_long().map(|long| format!("--{long}")),
    ]
    .into_iter()
    .flatten()
    .collect();
    let optional = argument
        .get_num_args()
        .is_some_and(|range| range.min_values() == 0 && range.takes_values());
    let name = match flags.join(", ") {
        flags if flags.is_empty() => value,
        flags if optional => format!("{flags}[={value}]"),
        flags => format!("{flags} {value}"),
    };
    let variable = argument
        .get_env()
        .map(|name| format!("`{}`", name.to_string_lossy()))
        .unwrap_or_default();
    let default: Vec<String> = argument
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy().into_owned())
        .collect();
    let default = match argument.get_action() {
        ArgAction::SetTrue => "off".to_owned(),
        _ if default.is_empty() || default == [""] => String::new(),
        _ => format!("`{}`", default.join(",")),
    };
    let help = argument
        .get_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    format!(
        "| `{}` | {variable} | {default} | {} |",
        escaped(name.trim()),
        escaped(&help)
    )
}

fn codes() -> String {
    let table = |head: &str, rows: &[(&str, &str)]| {
        rows.iter().fold(
            format!("| {head} | meaning |\n|---|---|\n"),
            |text, (name, what)| text + &format!("| {} | {} |\n", escaped(name), escaped(what)),
        )
    };
    format!(
        "{ORIGIN}# Exit codes\n\n{}\n## Environment\n\nBeside the variables of the options:\n\n{}",
        table("code", rlock::exit::TABLE),
        table("variable", rlock::cli::VARIABLES)
    )
}

/// As a cell of a table.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
