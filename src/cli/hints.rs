//! Answers to a wrong subcommand or option: the words that its user probably meant.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Words that rlock does not know: of flock(1), and for what another command does. And what to type in their place.
const INSTEAD: [(&str, &str); 8] = [
    ("--nonblock", "rlock calls it --no-wait"),
    ("--conflict-exit-code", "rlock calls it --busy-code"),
    ("--timeout", "--wait limits the waiting, --max-run the command"),
    ("--user", "the user stands in the address: redis://USER@HOST"),
    ("--replace", "rlock break --yes KEY ends the run that holds the lock: then run"),
    ("--order", "waiters are served in their order; --supersede ends those that came before"),
    ("--profile", "settings that a job chooses are RLOCK_ variables: systemd's EnvironmentFile= reads them"),
    ("reclaim", "--on-lost warn lets the command go on"),
];

/// Takes the suggestions out of `error`, and returns the hint to print for the command line `words`. clap's advice to pass an unknown
/// option "as a value" would run it as a command.
pub(super) fn taken_from(error: &mut clap::Error, words: &[OsString]) -> Option<String> {
    let wrong = match error.kind() {
        ErrorKind::UnknownArgument => text(error.get(ContextKind::InvalidArg)?),
        ErrorKind::InvalidSubcommand => text(error.get(ContextKind::InvalidSubcommand)?),
        ErrorKind::InvalidValue => text(error.get(ContextKind::InvalidValue)?),
        ErrorKind::MissingRequiredArgument => return without_key(words).map(str::to_owned),
        _ => return None,
    };
    if error.kind() == ErrorKind::UnknownArgument && words.get(1).is_some_and(is_option) {
        return Some("options stand behind a subcommand: rlock run --key NAME -- CMD".to_owned());
    }
    error.remove(ContextKind::Suggested);
    let similar = error.remove(ContextKind::SuggestedArg).or_else(|| error.remove(ContextKind::SuggestedSubcommand));
    // A name that is only similar must not lead to the one subcommand that takes a lock from its holder.
    let similar = similar.map(|names| text(&names)).filter(|names| !names.split(" or ").any(|name| name == "break"));
    let instead = INSTEAD.iter().find(|(word, _)| *word == wrong).map(|(_, instead)| (*instead).to_owned());
    instead.or_else(|| similar.map(|names| format!("did you mean {names}?")))
}

/// Returns how `run` is given the lock's name, if it was typed as flock(1) takes it, before the command, or behind the command.
fn without_key(words: &[OsString]) -> Option<&'static str> {
    let is_key = |word: &OsString| word == "-k" || word == "--key" || word.as_encoded_bytes().starts_with(b"--key=");
    let mut typed = words.get(1).filter(|word| *word == "run").map(|_| words[2..].iter())?;
    if typed.clone().any(is_key) {
        return Some("options stand before the command: what follows it is the command's own");
    }
    let first = typed.position(|word| !is_option(word))?;
    (words.len() > first + 3).then_some("a lock's name follows --key: rlock run --key NAME -- CMD")
}

fn is_option(word: &OsString) -> bool {
    word.as_encoded_bytes().starts_with(b"-")
}

/// Returns the words of a value on one line.
fn text(value: &ContextValue) -> String {
    match value {
        ContextValue::String(word) => word.clone(),
        ContextValue::Strings(words) => words.join(" or "),
        ContextValue::StyledStrs(texts) => texts.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::parse;

    fn refusal(words: &[&str]) -> String {
        let words = ["rlock"].iter().chain(words).map(OsString::from).collect();
        parse(words).err().map(|error| format!("{error:#}")).unwrap_or_default()
    }

    #[test]
    fn a_wrong_word_is_answered_with_the_right_one() {
        for (words, told) in [
            (&["run", "-k", "j", "--timeout", "5s", "true"][..], "argument '--timeout' found; --wait limits"),
            (&["run", "-k", "j", "--wait-for", "5s", "true"], "found; did you mean --wait?; see rlock run --help"),
            (&["run", "-k", "j", "--nonblock", "true"], "rlock calls it --no-wait; see"),
            (&["run", "-k", "j", "--user", "u", "true"], "redis://USER@HOST; see"),
            (&["run", "-k", "j", "--profile", "ci", "true"], "EnvironmentFile"),
            (&["inspekt"], "did you mean inspect?"),
            (&["check", "--tokn", "x"], "did you mean --token?"),
            (&["beak", "x"], "unrecognized subcommand 'beak'; see rlock --help"),
            (&["frobnicate"], "unrecognized subcommand 'frobnicate'; see rlock --help"),
            (
                &["--key", "x", "true"],
                "options stand behind a subcommand: rlock run --key NAME -- CMD; see rlock --help",
            ),
            (&["--node", "local", "run"], "options stand behind a subcommand"),
            (&["run", "true", "-k", "j"], "--key <NAME>; options stand before the command"),
            (
                &["run", "/var/lock/job", "true"],
                "--key <NAME>; a lock's name follows --key: rlock run --key NAME -- CMD",
            ),
            (&["run", "-n", "job", "./x", "-v"], "a lock's name follows --key"),
            (&["run", "true"], "--key <NAME>; see rlock run --help"),
            (&["release", "-k", "x"], "--token <TOKEN>; see"),
        ] {
            let refusal = refusal(words);
            assert!(refusal.contains(told), "{words:?}: {refusal}");
            assert!(!refusal.contains("as a value") && !refusal.contains('\n'), "{refusal}");
        }
    }
}
