//! Settings of configuration files as defaults of clap's options: clap reads their values as it
//! reads typed ones.
//!
//! 1. The command line is parsed for the locks and the files that it names.
//! 2. If a file sets anything, it is parsed again, with that in the place of built-in defaults. So
//!    flags and variables go first.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::builder::Resettable;
use clap::{Arg, ArgAction, ArgMatches, Id};

use super::files::{self, Config, Origin, Setting};
use super::sources::{Source, Sources, id};
use crate::cli::{
    Command, Common, OutputArgs, Parsed, RunArgs, definition, described, long_flag, one_line,
    variable,
};
use crate::exit::{Failure, Outcome};
use crate::text::escape;

/// Options that no file may set: what a run locks and proves is said by its caller, and the last
/// one chooses the settings.
const NOT_IN_FILES: [&str; 4] = ["key", "token", "fence", "config"];

/// Whether a file may set the option: it has a variable, and is none of [`NOT_IN_FILES`].
fn belongs_in_files(arg: &Arg) -> bool {
    let has_variable = arg.get_env().is_some() || arg.is_hide_env_set();
    has_variable
        && arg
            .get_long()
            .is_some_and(|long| !NOT_IN_FILES.contains(&long))
}

/// Completes what was typed by the configuration files. `rlock config` reads them by itself.
pub fn complete(mut parsed: Parsed) -> Result<(Command, Sources), Failure> {
    let reads_files = !matches!(parsed.command, Command::Config(_));
    let (config, locks) = match parsed.command.common().filter(|_| reads_files) {
        Some(Common { files, locks, .. }) => (Config::read(files.config.as_deref())?, locks),
        None => Default::default(),
    };
    let (mut command, sources) = complete_by(parsed, &config, &locks)?;
    if let Some(Common { output, .. }) = command.common() {
        (output.quiet, output.verbose) =
            volume(output, &sources).map_err(|failure| sources.explain(failure))?;
    }
    Ok((command, sources))
}

fn complete_by(
    parsed: Parsed,
    config: &Config,
    locks: &[String],
) -> Result<(Command, Sources), Failure> {
    let subcommand = parsed.matches.subcommand();
    let (name, sources) = subcommand
        .map(|(name, matches)| (name.to_owned(), Sources::new(matches)))
        .unwrap_or_default();
    let defaults = match parsed.definition.find_subcommand(&name) {
        Some(command) => Defaults::new(command, &sources, config, locks)?,
        None => Defaults::default(),
    };
    if defaults.0.is_empty() {
        return Ok((parsed.command, sources));
    }
    let definition = parsed
        .definition
        .mut_subcommand(&name, |command| defaults.set(command));
    let whole = Parsed::read(definition, parsed.words).map_err(|error| defaults.refusal(&error))?;
    Ok((whole.command, sources.with_files(defaults.origins())))
}

/// Returns `--quiet` and `--verbose`, of which one at most is on.
pub(super) fn volume(output: &OutputArgs, sources: &Sources) -> Result<(bool, bool), Failure> {
    let decisive = sources.decisive(&[("quiet", output.quiet), ("verbose", output.verbose)])?;
    Ok((decisive == Some("quiet"), decisive == Some("verbose")))
}

/// Values that files give to options, by clap's id of the option.
#[derive(Default)]
struct Defaults(BTreeMap<String, (Vec<OsString>, Setting)>);

impl Defaults {
    /// Checks the names and forms of all settings, and returns those that apply to options of
    /// `command` which neither a flag nor a variable sets.
    fn new(
        command: &clap::Command,
        sources: &Sources,
        config: &Config,
        locks: &[String],
    ) -> Result<Self, Failure> {
        if !config.settings.is_empty() {
            let catalogue = Catalogue::new();
            config
                .settings
                .iter()
                .try_for_each(|setting| words(catalogue.find(setting)?, setting).map(drop))?;
        }
        let find = |name: &str| {
            command
                .get_arguments()
                .find(|arg| belongs_in_files(arg) && arg.get_long() == Some(name))
        };
        let is_open = |name: &str| find(name).is_some_and(|arg| !sources.given(&id(arg)));
        let applying = config.applying(locks, is_open)?;
        let of_option = |(name, setting): (&str, &Setting)| {
            let arg = find(name)?;
            Some(words(arg, setting).map(|words| (id(arg), (words, setting.clone()))))
        };
        applying
            .into_iter()
            .filter_map(of_option)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Returns `command` with these defaults.
    fn set(&self, command: clap::Command) -> clap::Command {
        command.mut_args(|arg| match self.0.get(arg.get_id().as_str()) {
            None => arg,
            Some((words, _)) => {
                // clap keeps defaults for 'static, and a process reads its files once.
                let words = words.iter().map(|word| &*word.clone().leak());
                arg.env(None::<&'static str>)
                    .hide_env(true)
                    .default_values(words.collect::<Vec<_>>())
            }
        })
    }

    /// Returns the failure of a value that clap refuses. As the first parse went well, it is that
    /// of a file.
    fn refusal(&self, error: &clap::Error) -> Failure {
        let long = long_flag(error);
        let origin = self
            .0
            .values()
            .find(|(_, setting)| Some(setting.name.as_str()) == long);
        let origin = origin
            .map(|(_, setting)| format!("{}: ", setting.origin))
            .unwrap_or_default();
        Failure::new(Outcome::Config, format!("{origin}{}", one_line(error)))
    }

    /// Returns where the value of each option stands.
    fn origins(self) -> BTreeMap<String, Origin> {
        self.0
            .into_iter()
            .map(|(id, (_, setting))| (id, setting.origin))
            .collect()
    }
}

/// Returns the words that would be typed after the flag.
fn words(arg: &Arg, setting: &Setting) -> Result<Vec<OsString>, Failure> {
    let refuse =
        |why: &str| files::fault(&setting.origin.position, format!("{}: {why}", setting.name));
    if setting.texts.is_empty() {
        return Err(refuse("the array is empty"));
    }
    if setting.texts.len() > 1 && !matches!(arg.get_action(), ArgAction::Append) {
        return Err(refuse("give one value, not an array"));
    }
    let is_path = arg.get_value_parser().type_id() == TypeId::of::<PathBuf>();
    let word = |text: &String| {
        if text.contains('\0') {
            Err(refuse("the value has a NUL character"))
        } else if is_path && !Path::new(text).is_absolute() {
            Err(refuse(&format!(
                "{}: write an absolute path",
                escape::text(text)
            )))
        } else {
            Ok(text.into())
        }
    };
    setting.texts.iter().map(word).collect()
}

/// Completes the options of `command` by the files, where no words are typed.
fn without_words(
    command: &clap::Command,
    config: &Config,
    locks: &[String],
) -> anyhow::Result<(ArgMatches, Sources)> {
    let read = |command: clap::Command| command.try_get_matches_from(["rlock"]);
    let sources = Sources::new(&read(command.clone()).map_err(|error| usage(&error))?);
    let defaults = Defaults::new(command, &sources, config, locks)?;
    let matches = read(defaults.set(command.clone())).map_err(|error| defaults.refusal(&error))?;
    Ok((matches, sources.with_files(defaults.origins())))
}

fn usage(error: &clap::Error) -> Failure {
    Failure::new(Outcome::Usage, described(error))
}

/// Takes away the options that an option depends on.
const NO_OPTION: Resettable<Id> = Resettable::Reset;

/// The options, each as its first subcommand describes it, and the names of those that no file may
/// set.
struct Catalogue {
    options: clap::Command,
    others: Vec<String>,
}

/// A setting that is in force. Its values may hold passwords.
pub struct Row<'a> {
    pub name: String,
    /// None if it is unset; several of a list.
    pub values: Vec<String>,
    /// Whether it is on, of an option without a value.
    pub switch: Option<bool>,
    /// Whether it may have several values.
    pub is_list: bool,
    /// The option's variable.
    pub variable: String,
    pub source: &'a Source,
}

/// The settings that are in force for runs of some locks.
pub struct EffectiveSettings {
    options: clap::Command,
    matches: ArgMatches,
    pub sources: Sources,
}

impl Catalogue {
    fn new() -> Self {
        let mut whole = definition();
        whole.build();
        let (mut options, mut others) = (clap::Command::new("rlock"), Vec::new());
        for arg in whole
            .get_subcommands()
            .flat_map(clap::Command::get_arguments)
        {
            if !belongs_in_files(arg) {
                others.extend(arg.get_long().map(str::to_owned));
            } else if !options
                .get_arguments()
                .any(|known| known.get_long() == arg.get_long())
            {
                options = options.arg(alone(arg));
            }
        }
        Self { options, others }
    }

    /// Returns the option that `setting` names.
    fn find(&self, setting: &Setting) -> Result<&Arg, Failure> {
        let name = setting.name.as_str();
        if let Some(found) = self
            .options
            .get_arguments()
            .find(|arg| arg.get_long() == Some(name))
        {
            return Ok(found);
        }
        let position = &setting.origin.position;
        if name == "password" {
            let remedy = "give password-file, or set RLOCK_PASSWORD";
            return Err(files::fault(
                position,
                format!("password: a configuration file holds no password; {remedy}"),
            ));
        }
        if self.others.iter().any(|other| other == name) {
            return Err(files::fault(
                position,
                format!("{name}: --{name} is for the command line only"),
            ));
        }
        Err(files::unknown(
            position,
            name,
            self.options.get_arguments().filter_map(Arg::get_long),
        ))
    }
}

/// Returns the option as it is without those that it requires, excludes or shares a letter with.
fn alone(arg: &Arg) -> Arg {
    let arg = arg
        .clone()
        .short(None)
        .required(false)
        .conflicts_with(NO_OPTION)
        .requires(NO_OPTION);
    arg.overrides_with(NO_OPTION)
}

impl EffectiveSettings {
    /// Returns the settings of runs of these locks.
    pub fn new(config: &Config, locks: &[String]) -> anyhow::Result<Self> {
        let options = Catalogue::new().options;
        let (matches, sources) = without_words(&options, config, locks)?;
        Ok(Self {
            options,
            matches,
            sources,
        })
    }

    /// Returns each setting, in the order of the options.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.options
            .get_arguments()
            .filter(|arg| belongs_in_files(arg))
            .map(|arg| {
                let id = id(arg);
                let raw = self.matches.get_raw(&id).into_iter().flatten();
                let name = arg.get_long().unwrap_or_default();
                Row {
                    name: name.to_owned(),
                    values: raw
                        .map(|value| value.to_string_lossy().into_owned())
                        .collect(),
                    switch: matches!(arg.get_action(), ArgAction::SetTrue)
                        .then(|| self.matches.get_flag(&id)),
                    is_list: matches!(arg.get_action(), ArgAction::Append),
                    variable: variable(name),
                    source: self.sources.of(&id),
                }
            })
    }
}

/// Checks the names and values of every section, used or not. Returns the options of a run with the
/// defaults, and with each `[lock]` section, for the rules that concern several options.
pub fn runs(config: &Config) -> anyhow::Result<Vec<(RunArgs, Sources)>> {
    let without_variables = |command: clap::Command| {
        command.mut_args(|arg| arg.env(None::<&'static str>).hide_env(true))
    };
    let options = without_variables(Catalogue::new().options);
    let mut whole = definition();
    whole.build();
    let whole = whole.mut_subcommand("run", without_variables);
    let mut runs = Vec::new();
    let of_locks = config.patterns().map(std::slice::from_ref);
    for locks in std::iter::once(&[][..]).chain(of_locks) {
        without_words(&options, config, locks)?;
        let words = ["rlock", "run", "-k", "job", "--", "true"]
            .map(OsString::from)
            .to_vec();
        let typed = Parsed::read(whole.clone(), words).map_err(|error| usage(&error))?;
        let (command, sources) = complete_by(typed, config, locks)?;
        if let Command::Run(args) = command {
            runs.push((*args.0, sources));
        }
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::parse;

    /// Parses `rlock run -k KEY WORDS true` with a file of this text.
    fn run(text: &str, key: &str, words: &[&str]) -> Result<(RunArgs, Sources), Failure> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let words = ["rlock", "run", "-k", key]
            .iter()
            .chain(words)
            .chain(&["true"])
            .map(OsString::from)
            .collect();
        let parsed = parse(words).unwrap().unwrap();
        let config = Config::read(Some(file.path()))?;
        let (command, sources) = complete_by(parsed, &config, &[key.to_owned()])?;
        let Command::Run(args) = command else {
            panic!("{text}")
        };
        Ok((*args.0, sources))
    }

    #[test]
    fn a_file_sets_what_was_not_typed_and_clap_reads_its_values() {
        let text = "[defaults]\nnode = ['redis://a,redis://b', 'redis://c']\nno-wait = true\nquiet = false\nbusy-code = 3\n\
                    ttl = '1h30m'\nformat = 'json'\n";
        let (args, sources) = run(text, "job", &["--ttl", "9s"]).unwrap();
        assert_eq!(
            args.lock.nodes.node,
            ["redis://a", "redis://b", "redis://c"]
        );
        assert_eq!(
            (args.lock.no_wait, args.output.quiet, args.lock.busy_code),
            (true, false, 3)
        );
        assert_eq!(
            (args.lock.ttl.as_secs(), args.argv),
            (9, vec!["true".into()])
        );
        assert!(matches!(sources.of("node"), Source::File(origin) if origin.position.line == 2));
        assert_eq!(
            (sources.of("ttl"), sources.of("wait")),
            (&Source::Typed, &Source::BuiltIn)
        );
        assert!(sources.given("node") && !sources.typed("node"));
    }

    #[test]
    fn the_later_of_two_sections_decides_what_kind_of_lock_it_is() {
        let (_, sources) = run(
            "[lock.'j*']\nslots = 3\n[lock.'jo*']\nshared = true\n",
            "job",
            &[],
        )
        .unwrap();
        assert!(sources.of("shared").rank() > sources.of("slots").rank());
        let (_, sources) = run("[lock.'j*']\nslots = 3\nshared = true\n", "job", &[]).unwrap();
        assert_eq!(sources.of("shared").rank(), sources.of("slots").rank());
    }

    #[test]
    fn of_quiet_and_verbose_the_one_of_the_higher_rank_counts() {
        let volume = |text: &str, words: &[&str]| {
            let (args, sources) = run(text, "job", words).unwrap();
            super::volume(&args.output, &sources)
                .map_err(|failure| sources.explain(failure).outcome)
        };
        assert_eq!(
            volume("[defaults]\nquiet = true\n", &["-v"]),
            Ok((false, true))
        );
        assert_eq!(
            volume("[defaults]\nverbose = true\n", &["-q"]),
            Ok((true, false))
        );
        assert_eq!(
            volume(
                "[defaults]\nverbose = true\n[lock.job]\nquiet = true\n",
                &[]
            ),
            Ok((true, false))
        );
        assert_eq!(
            volume("[defaults]\nverbose = true\nquiet = true\n", &[]),
            Err(Outcome::Config)
        );
        assert_eq!(volume("", &["-q", "-v"]), Err(Outcome::Usage));
        assert_eq!(
            (volume("", &["-q"]), volume("", &["-v"])),
            (Ok((true, false)), Ok((false, true)))
        );
    }

    #[test]
    fn a_refusal_by_a_later_rule_names_the_line_that_set_the_option() {
        let (_, sources) = run("[lock.'j*']\nttl = '1s'\n", "job", &["--drift", "0.1"]).unwrap();
        let told =
            |flag: &str| sources.explain(Failure::new(Outcome::Usage, format!("{flag} is wrong")));
        let of_file = told("--ttl");
        assert!(
            of_file
                .message
                .ends_with(":2 [lock.\"j*\"]: --ttl is wrong"),
            "{of_file}"
        );
        assert_eq!(of_file.outcome, Outcome::Config);
        assert!(
            told("--wait 3 does not fit to --ttl")
                .message
                .contains(":2 [lock")
        );
        let contradicted = told("--drift and --ttl");
        assert_eq!(contradicted.outcome, Outcome::Usage);
        assert!(
            contradicted
                .message
                .starts_with("--drift and --ttl is wrong (--ttl is set by "),
            "{contradicted}"
        );
        for flag in ["--drift", "--wait", "--no-such", "ttl", "with --ttl"] {
            let failure = told(flag);
            assert_eq!(
                (failure.outcome, failure.message),
                (Outcome::Usage, format!("{flag} is wrong"))
            );
        }
    }
}
