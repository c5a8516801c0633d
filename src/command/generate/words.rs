//! The words that completions offer, from clap's description.

use clap::{Arg, Command};

/// Returns an option as it is typed: its letter and its name.
pub(super) fn flags(option: &Arg) -> impl Iterator<Item = String> {
    let short = option.get_short().map(|letter| format!("-{letter}"));
    short.into_iter().chain(option.get_long().map(|name| format!("--{name}")))
}

/// Returns the options whose value may be a word of its own.
pub(super) fn valued(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_opts().filter(|option| !option.is_require_equals_set())
}

/// Returns the words that the value of an argument may be, if it is one of a list.
pub(super) fn values(argument: &Arg) -> Vec<String> {
    argument.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect()
}

/// Returns the words that may follow a subcommand, if there is a list of them.
pub(super) fn positional(subcommand: &Command, whole: &Command) -> Vec<String> {
    match subcommand.get_name() {
        "help" | "man" => names(whole),
        _ => subcommand.get_positionals().next().map(values).unwrap_or_default(),
    }
}

/// Returns the names of the subcommands.
pub(super) fn names(whole: &Command) -> Vec<String> {
    whole.get_subcommands().map(|subcommand| subcommand.get_name().to_owned()).collect()
}
