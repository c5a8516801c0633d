//! The completions for fish: those of `clap_complete`, which know of a subcommand's options alone, and the words that are none.

use std::fmt::Write;

use clap::Command;

use super::words;

/// The condition of what `clap_complete` offers behind `rlock run`.
const RUN: &str = "__fish_rlock_using_subcommand run\"";

/// Returns the script for the command line of `definition`, which is built, from that of `clap_complete`.
pub(super) fn script(options: &str, definition: &Command) -> String {
    let run = definition.find_subcommand("run");
    let valued: Vec<String> = run.into_iter().flat_map(words::valued).flat_map(words::flags).collect();
    let valued = valued.join(" ");
    let options = options.replace(RUN, &RUN.replace('"', "; and not __fish_rlock_in_command\""));
    let mut text = format!(
        "{options}\n\
         # Succeeds if the command of rlock run begins before the cursor's word.\n\
         function __fish_rlock_in_command\n    \
             set -l words (commandline -opc)\n    \
             set -e words[1..2]\n    \
             while set -q words[1]\n        \
                 if contains -- $words[1] {valued}\n            \
                     set -e words[1]\n        \
                 else if not string match -q -- '-*' $words[1]\n            \
                     return 0\n        \
                 end\n        \
                 set -e words[1]\n    \
             end\n    \
             return 1\n\
         end\n\n\
         complete -c rlock -f\n\
         complete -c rlock -n \"__fish_rlock_using_subcommand run\" -a \"(__fish_complete_subcommand --fcs-skip=2 {valued})\"\n"
    );
    // clap_complete offers the subcommands of help.
    for subcommand in definition.get_subcommands().filter(|subcommand| !subcommand.has_subcommands()) {
        let (name, positional) = (subcommand.get_name(), words::positional(subcommand, definition).join(" "));
        if !positional.is_empty() {
            let _ = writeln!(text, "complete -c rlock -n \"__fish_rlock_using_subcommand {name}\" -a \"{positional}\"");
        }
    }
    text
}
