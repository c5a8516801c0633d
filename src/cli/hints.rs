//! Answers to a wrong subcommand or option: the words that its user probably meant.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::definition;
use crate::secret;
use crate::text::{duration, escape};

/// Words that other tools have for what rlock has, and the words to type here.
const FOREIGN: [(&str, &str); 24] = [
    ("lock", "rlock run holds a lock around a command, rlock acquire without one"),
    ("exec", "rlock run holds a lock around a command"),
    ("unlock", "rlock release gives a lock back"),
    ("status", "rlock inspect shows locks"),
    ("list", "rlock inspect shows locks"),
    ("ls", "rlock inspect shows locks"),
    ("ps", "rlock inspect shows locks"),
    ("show", "rlock inspect shows locks"),
    ("get", "rlock inspect shows locks"),
    ("del", "rlock break takes a lock from its holder"),
    ("kill", "rlock break takes a lock from its holder"),
    ("version", "write rlock --version"),
    ("--version", "write rlock --version"),
    ("--user", "the user stands in the address: redis://USER@HOST"),
    ("--host", "rlock calls it --node"),
    ("--url", "rlock calls it --node"),
    ("--insecure", "the certificate is always checked: --ca names its issuer"),
    ("--timeout", "--wait limits the waiting, --max-run the command"),
    ("--nonblock", "rlock calls it --no-wait"),
    ("--nb", "rlock calls it --no-wait"),
    ("--conflict-exit-code", "rlock calls it --busy-code"),
    ("--expire", "rlock calls it --ttl"),
    ("--lock", "rlock calls it --key"),
    ("--limit", "rlock calls it --slots"),
];

/// Takes the suggestions out of `error`, and returns the hint to print for the command line `words`.
pub(super) fn taken_from(error: &mut clap::Error, words: &[OsString]) -> Option<String> {
    held(error, words)
        .or_else(|| suggestion(error))
        .or_else(|| dashed_value(error, words))
        .or_else(|| behind_command(error, words).map(str::to_owned))
        .or_else(|| before_subcommand(error, words).map(str::to_owned))
}

/// Returns how `check`, `release` and `renew` are given the lock's name and token, if they lack one of these.
fn held(error: &clap::Error, words: &[OsString]) -> Option<String> {
    let subcommand = words.get(1)?.to_str().filter(|word| ["check", "release", "renew"].contains(word))?;
    let wrong = error.get(ContextKind::InvalidArg).map(text)?;
    match error.kind() {
        ErrorKind::UnknownArgument if !wrong.starts_with('-') => {
            Some(format!("a lock is named by --key: rlock {subcommand} --key NAME --token TOKEN"))
        }
        ErrorKind::MissingRequiredArgument if wrong.contains("--token") => {
            let without = if subcommand == "release" { "; without it: rlock break NAME" } else { "" };
            Some(format!("TOKEN is what acquire printed, or RLOCK_TOKEN inside a run{without}"))
        }
        _ => None,
    }
}

/// Takes the suggestions out of `error`, and returns the one that counts. clap's advice to pass an unknown option "as a value" would
/// run it as a command.
fn suggestion(error: &mut clap::Error) -> Option<String> {
    let wrong = match error.kind() {
        ErrorKind::UnknownArgument => text(error.get(ContextKind::InvalidArg)?),
        ErrorKind::InvalidSubcommand => text(error.get(ContextKind::InvalidSubcommand)?),
        _ => return None,
    };
    let is_advice = |tip: &String| !tip.is_empty() && !tip.contains("as a value");
    let other = error.remove(ContextKind::Suggested).map(|tips| text(&tips)).filter(is_advice);
    let similar = error.remove(ContextKind::SuggestedArg).or_else(|| error.remove(ContextKind::SuggestedSubcommand));
    // A name that is only similar must not lead to the one subcommand that takes a lock from its holder.
    let similar = similar.map(|names| text(&names)).filter(|names| !names.split(" or ").any(|name| name == "break"));
    let similar = similar.map(|names| format!("did you mean {names}?"));
    let foreign = FOREIGN.iter().find(|(word, _)| *word == wrong).map(|(_, meant)| (*meant).to_owned());
    foreign.or(other).or(similar)
}

/// Returns how to write the value of an option, if it begins with a dash: clap took it for another option.
fn dashed_value(error: &clap::Error, words: &[OsString]) -> Option<String> {
    matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidValue).then_some(())?;
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).take_while(|word| word != "--").collect();
    let mut whole = definition();
    whole.build();
    let described = whole.find_subcommand(&**words.get(1)?)?;
    words.windows(2).find_map(|pair| {
        let value = &pair[1];
        let (long, short) = (pair[0].strip_prefix("--"), pair[0].strip_prefix('-'));
        let is_meant = |arg: &&clap::Arg| {
            let is_short = arg.get_short().is_some_and(|letter| short == Some(letter.to_string().as_str()));
            arg.get_action().takes_values() && (is_short || long.is_some() && arg.get_long() == long)
        };
        let long = described.get_arguments().find(is_meant)?.get_long()?;
        let is_dashed = value.len() > 1 && value.starts_with('-');
        let shown = || escape::text(&secret::without_userinfo(value));
        is_dashed.then(|| format!("a value that begins with - is written --{long}={}", shown()))
    })
}

/// Returns where options stand, if they were typed without a subcommand.
fn before_subcommand(error: &clap::Error, words: &[OsString]) -> Option<&'static str> {
    let is_option = words.get(1).is_some_and(|word| word.as_encoded_bytes().starts_with(b"-"));
    let is_meant = error.kind() == ErrorKind::UnknownArgument && is_option;
    is_meant.then_some("options stand behind a subcommand: rlock run --key NAME -- CMD")
}

/// Returns where options stand, if `run` lacks a lock's name that was typed: behind the command, which got it.
fn behind_command(error: &clap::Error, words: &[OsString]) -> Option<&'static str> {
    let is_key = |word: &OsString| word == "-k" || word == "--key" || word.as_encoded_bytes().starts_with(b"--key=");
    let is_meant = error.kind() == ErrorKind::MissingRequiredArgument && words.iter().skip(2).any(is_key);
    is_meant.then_some("options stand before the command: what follows it is the command's own")
}

/// Returns how to write the interval of `--watch`, if a word behind it looks like one: clap takes that for a lock's name.
pub(super) fn separate_interval(words: &[OsString]) -> Option<String> {
    let (_, interval) = words.iter().zip(words.iter().skip(1)).find(|(flag, word)| {
        *flag == "--watch" && word.to_str().is_some_and(|word| duration::parse_or_seconds(word).is_ok())
    })?;
    let interval = interval.to_string_lossy();
    Some(format!("write --watch={interval}: behind a space, {interval} is the name of a lock"))
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
    fn only_a_duration_behind_watch_is_taken_for_its_interval() {
        for words in [&["--watch", "job"][..], &["5s", "--watch"], &["--watch=5s", "5"], &["--watch", "--", "5s"]] {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            assert_eq!(separate_interval(&words), None, "{words:?}");
        }
    }

    #[test]
    fn a_word_of_another_tool_is_answered_with_rlocks() {
        for (words, told) in [
            (
                &["run", "-k", "j", "--timeout", "5s", "true"][..],
                "unexpected argument '--timeout' found; --wait limits",
            ),
            (&["run", "-k", "j", "--wait-for", "5s", "true"], "found; did you mean --wait?; see rlock run --help"),
            (&["run", "-k", "j", "--nonblock", "true"], "rlock calls it --no-wait; see"),
            (&["unlock", "-k", "j"], "unrecognized subcommand 'unlock'; rlock release"),
            (&["inspekt"], "did you mean inspect?"),
            (&["run", "-k", "-x", "true"], "a value that begins with - is written --key=-x; see"),
            (&["run", "-k", "j", "--ttl", "-5s", "true"], "a value that begins with - is written --ttl=-5s; see"),
            (&["run", "-k", "-\u{202e}x", "true"], "written --key=-\\u{202e}x; see"),
            (&["run", "-k", "j", "--node", "-redis://u:pw@h", "true"], "written --node=-redis://***@h; see"),
            (&["run", "-k", "j", "--no-wait", "-5", "true"], "unexpected argument '-5' found; see"),
            (&["--node", "local", "run"], "'run --node' exists"),
            (
                &["--key", "x", "true"],
                "options stand behind a subcommand: rlock run --key NAME -- CMD; see rlock --help",
            ),
            (&["-k", "x", "--", "true"], "options stand behind a subcommand"),
            (&["-v", "run"], "options stand behind a subcommand"),
            (&["backup", "./backup.sh"], "unrecognized subcommand 'backup'; see rlock --help"),
            (&["del", "x"], "rlock break takes a lock"),
            (&["version"], "write rlock --version; see"),
            (&["run", "--version"], "write rlock --version; see"),
            (&["run", "-k", "j", "--user", "u", "true"], "redis://USER@HOST; see"),
            (&["inspect", "--watch", "5s", "job"], "write --watch=5s: behind a space, 5s is the name of a lock"),
            (&["run", "true", "-k", "j"], "--key <NAME>; options stand before the command"),
            (&["run", "true"], "--key <NAME>; see rlock run --help"),
            (
                &["release", "x"],
                "unexpected argument 'x' found; a lock is named by --key: rlock release --key NAME --token TOKEN; see",
            ),
            (&["check", "x", "--token", "y"], "rlock check --key NAME --token TOKEN; see"),
            (
                &["release", "-k", "x"],
                "--token <TOKEN>; TOKEN is what acquire printed, or RLOCK_TOKEN inside a run; without it: rlock break NAME; see",
            ),
            (&["renew", "-k", "x"], "or RLOCK_TOKEN inside a run; see"),
            (&["check", "--tokn", "x"], "did you mean --token?"),
            (&["frobnicate"], "unrecognized subcommand 'frobnicate'; see rlock --help"),
        ] {
            let refusal = refusal(words);
            assert!(refusal.contains(told), "{words:?}: {refusal}");
            assert!(!refusal.contains("as a value") && !refusal.contains('\n'), "{refusal}");
        }
    }
}
