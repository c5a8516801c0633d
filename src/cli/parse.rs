//! Reads the command line, and makes one line of what clap has to say about it, with the words that
//! its user probably meant.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::io;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, FromArgMatches, ValueEnum};

use super::help::with_texts;
use super::subcommands::HeldArgs;
use super::{Cli, Command, Deferred, FileArgs, OutputArgs, definition, variable};
use crate::exit::{Failure, Outcome};
use crate::report::{Log, LogMode, failures};
use crate::secret;
use crate::text::{escape, is_pattern};

/// Words that rlock does not know: of flock(1), of its own past, and for what another command does.
/// And what to type in their place.
const INSTEAD: [(&str, &str); 8] = [
    ("--nonblock", "rlock calls it --no-wait"),
    ("--conflict-exit-code", "rlock calls it --busy-code"),
    (
        "--timeout",
        "--wait limits the waiting, --max-run the command",
    ),
    (
        "--user",
        "the user stands in the address: redis://USER@HOST",
    ),
    (
        "--replace",
        "rlock break --yes KEY ends the run that holds the lock: then run",
    ),
    (
        "--order",
        "waiters are served in their order; --supersede ends those that came before",
    ),
    (
        "--profile",
        "settings that a job chooses are RLOCK_ variables: systemd's EnvironmentFile= reads them",
    ),
    ("reclaim", "--on-lost warn lets the command go on"),
];

/// A parsed command line.
pub struct Parsed {
    pub command: Command,
    /// clap's own form of it, which tells where each value came from.
    pub matches: ArgMatches,
    /// The words, to be parsed again with the defaults of configuration files.
    pub words: Vec<OsString>,
    pub definition: clap::Command,
}

impl Parsed {
    pub fn read(mut definition: clap::Command, words: Vec<OsString>) -> Result<Self, clap::Error> {
        let matches = definition.try_get_matches_from_mut(&words)?;
        Ok(Self {
            command: Cli::from_arg_matches(&matches)?.command,
            matches,
            words,
            definition,
        })
    }
}

/// Options and locks of a subcommand.
pub struct Common<'a> {
    pub files: &'a FileArgs,
    pub output: &'a mut OutputArgs,
    /// Names of the locks, as far as they are known.
    pub locks: Vec<String>,
}

impl HeldArgs {
    /// Returns the lock's name. What was typed as KEY comes before the variable.
    pub fn key(&self) -> Option<&str> {
        self.name.as_deref().or(self.key.as_deref())
    }

    fn common(&mut self) -> (&FileArgs, &mut OutputArgs, Vec<String>) {
        let locks = self.key().map(str::to_owned).into_iter().collect();
        (&self.nodes.files, &mut self.output, locks)
    }
}

impl Command {
    /// Returns `None` for the subcommands that print generated files.
    pub fn common(&mut self) -> Option<Common<'_>> {
        let (files, output, locks) = match self {
            Self::Run(Deferred(args)) => (
                &args.lock.nodes.files,
                &mut args.output,
                args.lock.keys.clone(),
            ),
            Self::Acquire(Deferred(args)) => (
                &args.lock.nodes.files,
                &mut args.output,
                args.lock.keys.clone(),
            ),
            Self::Renew(Deferred(args)) => args.held.common(),
            Self::Release(Deferred(args)) => args.common(),
            Self::Check(Deferred(args)) => args.held.common(),
            Self::Inspect(Deferred(args)) => {
                let names = args.words.iter().filter(|word| !is_pattern(word));
                let locks = args.keys.iter().chain(names).cloned().collect();
                (&args.nodes.files, &mut args.output, locks)
            }
            Self::Break(Deferred(args)) => {
                let names = args.words.iter().filter(|word| !is_pattern(word));
                let locks = args.keys.iter().chain(names).cloned().collect();
                (&args.nodes.files, &mut args.output, locks)
            }
            Self::Doctor(Deferred(args)) => {
                (&args.nodes.files, &mut args.output, args.keys.clone())
            }
            Self::Config(Deferred(args)) => (&args.files, &mut args.output, args.keys.clone()),
            Self::Completions { .. } | Self::Man { .. } => return None,
        };
        Some(Common {
            files,
            output,
            locks,
        })
    }

    /// Returns `--log`.
    pub fn log(&mut self) -> Log {
        self.common()
            .map_or(Log::Text, |common| common.output.log.form())
    }
}

/// Reads the command line and the variables; `None` for `--help` and `--version`, which print
/// themselves.
pub fn parse(words: Vec<OsString>) -> anyhow::Result<Option<Parsed>> {
    let subcommand = words.get(1).cloned();
    let help = || help_for(subcommand.as_deref());
    if let Some((typed, meant)) = long_behind_one_dash(&words) {
        let line = format!(
            "unexpected argument '{}' found; did you mean {meant}?; see {}",
            escape::text(&typed),
            help()
        );
        return Err(Failure::new(Outcome::Usage, line).into());
    }
    let typed = words.clone();
    Parsed::read(definition(), words)
        .map(Some)
        .or_else(|mut error: clap::Error| {
            let line = match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                    let whole = with_texts(definition())
                        .try_get_matches_from(typed)
                        .err()
                        .unwrap_or(error);
                    return match whole.print() {
                        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                            Err(failures::not_printed(&error).into())
                        }
                        // A reader that has gone away has seen enough.
                        _ => Ok(None),
                    };
                }
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                | ErrorKind::MissingSubcommand => {
                    format!(
                        "no subcommand given; try rlock run --key NAME -- CMD, or {}",
                        help()
                    )
                }
                _ => {
                    let meant = hint(&mut error, &typed)
                        .map(|hint| format!("; {hint}"))
                        .unwrap_or_default();
                    format!("{}{meant}; see {}", described(&error), help())
                }
            };
            Err(Failure::new(Outcome::Usage, line).into())
        })
}

/// Returns the first option of a subcommand whose long name was typed behind one dash, and the long
/// option. As a short option it would mean something else: `-key` is the lock `ey`.
///
/// Most command lines have no word that could be one, and clap describes no option twice for them.
fn long_behind_one_dash(words: &[OsString]) -> Option<(String, String)> {
    let mut words = words.iter().map(|word| word.to_string_lossy());
    let name = words.nth(1)?;
    let mut words = words.take_while(|word| word != "--");
    let may_be_long =
        |word: Cow<str>| word.len() > 2 && word.starts_with('-') && !word.starts_with("--");
    if !words.clone().any(may_be_long) {
        return None;
    }
    let mut whole = definition();
    let subcommand = whole.find_subcommand_mut(&*name)?;
    subcommand.build();
    let takes_value = |arg: &Arg| arg.get_action().takes_values();
    while let Some(word) = words.next() {
        let Some(option) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) else {
            // What follows the command's name is its own.
            if name == "run" {
                return None;
            }
            continue;
        };
        let (long, value) = option
            .split_once('=')
            .map_or((option, None), |(name, value)| (name, Some(value)));
        let of_long = |name| {
            subcommand
                .get_arguments()
                .find(|arg| arg.get_long() == Some(name))
        };
        let has_own_value = if let Some(long) = long.strip_prefix('-') {
            value.is_some() || !of_long(long).is_some_and(takes_value)
        } else if long.len() > 1 && of_long(long).is_some() {
            return Some((format!("-{long}"), format!("--{long}")));
        } else {
            let of_short = |name| {
                subcommand
                    .get_arguments()
                    .find(|arg| arg.get_short() == Some(name))
            };
            let takes = |name| of_short(name).is_some_and(takes_value);
            option.find(takes).is_none_or(|at| at + 1 < option.len())
        };
        if !has_own_value {
            words.next();
        }
    }
    None
}

/// Takes the suggestions out of `error`, and returns the hint to print for the command line
/// `words`. clap's advice to pass an unknown option "as a value" would run it as a command.
fn hint(error: &mut clap::Error, words: &[OsString]) -> Option<String> {
    let wrong = match error.kind() {
        ErrorKind::UnknownArgument => in_words(error.get(ContextKind::InvalidArg)?),
        ErrorKind::InvalidSubcommand => in_words(error.get(ContextKind::InvalidSubcommand)?),
        ErrorKind::InvalidValue => in_words(error.get(ContextKind::InvalidValue)?),
        ErrorKind::MissingRequiredArgument => return without_key(words).map(str::to_owned),
        _ => return None,
    };
    if error.kind() == ErrorKind::UnknownArgument && words.get(1).is_some_and(is_option) {
        return Some("options stand behind a subcommand: rlock run --key NAME -- CMD".to_owned());
    }
    error.remove(ContextKind::Suggested);
    let similar = error
        .remove(ContextKind::SuggestedArg)
        .or_else(|| error.remove(ContextKind::SuggestedSubcommand));
    // A name that is only similar must not lead to the one subcommand that takes a lock from its
    // holder.
    let similar = similar
        .map(|names| in_words(&names))
        .filter(|names| !names.split(" or ").any(|name| name == "break"));
    let instead = INSTEAD
        .iter()
        .find(|(word, _)| *word == wrong)
        .map(|(_, instead)| (*instead).to_owned());
    instead.or_else(|| similar.map(|names| format!("did you mean {names}?")))
}

/// Returns how `run` is given the lock's name, if it was typed as flock(1) takes it, before the
/// command, or behind the command.
fn without_key(words: &[OsString]) -> Option<&'static str> {
    let is_key = |word: &OsString| {
        word == "-k" || word == "--key" || word.as_encoded_bytes().starts_with(b"--key=")
    };
    let mut typed = words
        .get(1)
        .filter(|word| *word == "run")
        .map(|_| words[2..].iter())?;
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
fn in_words(value: &ContextValue) -> String {
    match value {
        ContextValue::String(word) => word.clone(),
        ContextValue::Strings(words) => words.join(" or "),
        ContextValue::StyledStrs(texts) => texts
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; "),
        _ => String::new(),
    }
}

/// Returns the words that print the help of `subcommand`, if it is one, or of rlock.
fn help_for(subcommand: Option<&OsStr>) -> String {
    let named = subcommand
        .and_then(OsStr::to_str)
        .filter(|word| definition().find_subcommand(word).is_some());
    named.map_or_else(
        || "rlock --help".to_owned(),
        |name| format!("rlock {name} --help"),
    )
}

/// clap's message on one line, and the variable that it is about.
pub fn described(error: &clap::Error) -> String {
    let of_variable = variable_of(error)
        .map(|name| format!(" (from the environment: {name})"))
        .unwrap_or_default();
    format!("{}{of_variable}", one_line(error))
}

/// clap's message without its usage text and without passwords, on one line.
pub fn one_line(error: &clap::Error) -> String {
    let text = secret::without_userinfo(&error.render().to_string());
    let words = text
        .split("\n\nUsage:")
        .next()
        .unwrap_or_default()
        .split("\n\nFor more information")
        .next()
        .unwrap_or_default();
    let joined = |paragraph: &str| {
        let lines = paragraph
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty());
        let lines = lines.map(|line| escape::text(line.strip_prefix("error: ").unwrap_or(line)));
        lines.collect::<Vec<_>>().join(" ")
    };
    let paragraphs = words
        .split("\n\n")
        .map(joined)
        .filter(|paragraph| !paragraph.is_empty());
    paragraphs.collect::<Vec<_>>().join("; ")
}

/// Returns the variable that probably held the value which clap refuses.
fn variable_of(error: &clap::Error) -> Option<String> {
    let name = variable(long_flag(error)?);
    let value = std::env::var(&name).ok()?;
    (Some(&ContextValue::String(value)) == error.get(ContextKind::InvalidValue)).then_some(name)
}

/// Returns the long flag that the error is about, without its dashes.
pub fn long_flag(error: &clap::Error) -> Option<&str> {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    option.strip_prefix("--")?.split([' ', '=']).next()
}

/// Returns `--log` before the command line is known to be valid, so that its errors have the right
/// form.
pub fn log_format(args: &[OsString]) -> Log {
    let args = args.split(|arg| arg == "--").next().unwrap_or_default();
    let flag = args.iter().enumerate().find_map(|(index, arg)| {
        match arg.to_str()?.strip_prefix("--log")? {
            "" => args.get(index + 1).cloned(),
            value => value.strip_prefix('=').map(OsString::from),
        }
    });
    let value = flag.or_else(|| std::env::var_os("RLOCK_LOG"));
    let mode = value.and_then(|value| LogMode::from_str(value.to_str()?, false).ok());
    mode.unwrap_or(LogMode::Auto).form()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::RunArgs;

    fn run(words: &[&str]) -> Result<RunArgs, String> {
        let all = ["rlock", "run"]
            .iter()
            .chain(words)
            .map(OsString::from)
            .collect();
        match parse(all).map(|parsed| parsed.unwrap().command) {
            Ok(Command::Run(args)) => Ok(*args.0),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(format!("{error:#}")),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        definition().debug_assert();
    }

    #[test]
    fn a_command_may_follow_the_options_without_dashes_and_keeps_its_own() {
        let args = run(&["-k", "job", "ls", "-l", "--key", "--", "x"]).unwrap();
        assert_eq!(args.argv, ["ls", "-l", "--key", "--", "x"]);
        let args = run(&["-k", "job", "--", "-weird", "-q"]).unwrap();
        assert_eq!(
            (args.argv, args.output.quiet),
            (vec!["-weird".into(), "-q".into()], false)
        );
        let args = run(&["-n", "--ttl=5s", "-kkey", "--wait", "5s", "ls", "-key"]).unwrap();
        assert_eq!(
            (&*args.lock.keys, args.argv),
            (&["key".to_owned()][..], vec!["ls".into(), "-key".into()])
        );
    }

    #[test]
    fn a_misspelt_option_is_not_taken_for_the_command() {
        assert!(
            run(&["-k", "job", "--tll", "5s", "true"])
                .unwrap_err()
                .contains("--tll")
        );
    }

    #[test]
    fn a_usage_error_is_one_line_that_names_the_flag() {
        for (words, flag) in [
            (&["true"][..], "--key"),
            (&["-k", "job"], "CMD"),
            (&["-k", "job", "-c", "x", "true"], "-c"),
            (&["-k", "job", "--ttl", "30", "true"], "--ttl"),
            (&["-k", "job", "--ttl", "5M", "true"], "--ttl"),
            (&["-k", "job", "--wait=-1", "true"], "--wait"),
            (&["-k", "job", "-E", "256", "true"], "--busy-code"),
            (&["-k", "job", "--drift", "2", "true"], "--drift"),
            (&["-k", "job", "--signal", "NOPE", "true"], "--signal"),
        ] {
            let error = run(words).expect_err(&words.join(" "));
            assert!(
                error.contains(flag) && !error.contains('\n'),
                "{words:?}: {error}"
            );
        }
    }

    fn refusal(words: &[&str]) -> String {
        let words = ["rlock"].iter().chain(words).map(OsString::from).collect();
        parse(words)
            .err()
            .map(|error| format!("{error:#}"))
            .unwrap_or_default()
    }

    #[test]
    fn a_wrong_word_is_answered_with_the_right_one() {
        for (words, told) in [
            (
                &["run", "-k", "j", "--timeout", "5s", "true"][..],
                "argument '--timeout' found; --wait limits",
            ),
            (
                &["run", "-k", "j", "--wait-for", "5s", "true"],
                "found; did you mean --wait?; see rlock run --help",
            ),
            (
                &["run", "-k", "j", "--nonblock", "true"],
                "rlock calls it --no-wait; see",
            ),
            (
                &["run", "-k", "j", "--user", "u", "true"],
                "redis://USER@HOST; see",
            ),
            (
                &["run", "-k", "j", "--profile", "ci", "true"],
                "EnvironmentFile",
            ),
            (&["inspekt"], "did you mean inspect?"),
            (&["check", "--tokn", "x"], "did you mean --token?"),
            (
                &["beak", "x"],
                "unrecognized subcommand 'beak'; see rlock --help",
            ),
            (
                &["frobnicate"],
                "unrecognized subcommand 'frobnicate'; see rlock --help",
            ),
            (
                &["--key", "x", "true"],
                "options stand behind a subcommand: rlock run --key NAME -- CMD; see rlock --help",
            ),
            (
                &["--node", "local", "run"],
                "options stand behind a subcommand",
            ),
            (
                &["run", "true", "-k", "j"],
                "--key <NAME>; options stand before the command",
            ),
            (
                &["run", "/var/lock/job", "true"],
                "--key <NAME>; a lock's name follows --key: rlock run --key NAME -- CMD",
            ),
            (
                &["run", "-n", "job", "./x", "-v"],
                "a lock's name follows --key",
            ),
            (&["run", "true"], "--key <NAME>; see rlock run --help"),
            (&["release", "-k", "x"], "--token <TOKEN>; see"),
            (
                &["run", "-key=deploy", "true"],
                "unexpected argument '-key' found; did you mean --key?; see rlock run --help",
            ),
            (&["run", "-key", "job", "true"], "did you mean --key?"),
            (
                &["run", "-nk", "job", "-node", "local", "true"],
                "did you mean --node?",
            ),
            (&["run", "--ttl", "5s", "-shared", "true"], "--shared?"),
            (&["inspect", "job", "-json"], "did you mean --json?"),
        ] {
            let refusal = refusal(words);
            assert!(refusal.contains(told), "{words:?}: {refusal}");
            assert!(
                !refusal.contains("as a value") && !refusal.contains('\n'),
                "{refusal}"
            );
        }
    }
}
