//! The completions for bash. Those of `clap_complete` know neither `--option=VALUE`, nor that a command follows the options of `run`.

use std::fmt::Write;

use clap::{Arg, Command, ValueHint};

use super::words::{flags, names, positional, valued, values};

/// Functions that ask `_rlock_describe` for the words.
const FUNCTIONS: &str = include_str!("completion.bash");

/// Returns the script for the command line of `definition`, which is built.
pub(super) fn script(definition: &Command) -> String {
    let mut text = "# Completions of rlock for bash, made by: rlock completions bash\n\n\
                    # Sets $options to the options of subcommand $1, $positional to the words that may follow it, and $values to the\n\
                    # values of option $2: words, files, directories, commands or text; of a switch it is empty.\n\
                    _rlock_describe() {\n    values=''\n    case $1 in\n"
        .to_owned();
    describe(&mut text, "''", definition, &names(definition));
    for subcommand in definition.get_subcommands() {
        describe(&mut text, subcommand.get_name(), subcommand, &positional(subcommand, definition));
    }
    let _ = write!(text, "    esac\n}}\n\n{FUNCTIONS}");
    text
}

/// Writes the branch of a subcommand.
fn describe(text: &mut String, pattern: &str, command: &Command, positional: &[String]) {
    let options: Vec<String> = command.get_arguments().flat_map(flags).collect();
    let _ = write!(text, "        {pattern})\n            positional='{}'\n", listed(positional));
    let _ = write!(text, "            options='{}'\n            case $2 in\n", options.join(" "));
    let mut kinds: Vec<(String, Vec<String>)> = Vec::new();
    for option in valued(command) {
        let kind = kind(option);
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, names)) => names.extend(flags(option)),
            None => kinds.push((kind, flags(option).collect())),
        }
    }
    for (kind, names) in kinds {
        let _ = writeln!(text, "                {}) values='{kind}' ;;", names.join(" | "));
    }
    text.push_str("            esac\n            ;;\n");
}

/// Returns the kind of an option's values.
fn kind(option: &Arg) -> String {
    let words = values(option);
    match option.get_value_hint() {
        _ if !words.is_empty() => listed(&words),
        ValueHint::AnyPath | ValueHint::FilePath => "files".to_owned(),
        ValueHint::DirPath => "directories".to_owned(),
        ValueHint::CommandString => "commands".to_owned(),
        _ => "text".to_owned(),
    }
}

/// Returns the kind that is one of these words; without any it is text.
fn listed(words: &[String]) -> String {
    if words.is_empty() { "text".to_owned() } else { format!("words {}", words.join(" ")) }
}
