//! Every option that a configuration file may set, of all subcommands; and the settings of a file without a command line.

use clap::builder::Resettable;
use clap::{Arg, ArgAction, FromArgMatches, Id};

use super::files::{belongs_in_files, scopes, without_words};
use super::sources::{Source, Sources, id, variable};
use super::{RunArgs, definition};
use crate::config::{self, Config, Scope, Setting};
use crate::exit::Failure;

/// Takes away the options that an option depends on.
const NO_OPTION: Resettable<Id> = Resettable::Reset;

/// The options, each as its first subcommand describes it, and the names of those that no file may set.
pub(super) struct Catalogue {
    options: clap::Command,
    others: Vec<String>,
}

/// A setting that is in force. Its values may hold passwords.
pub struct Row<'a> {
    pub name: String,
    /// None if it is unset; several of a list.
    pub values: Vec<String>,
    /// Whether it is on or off.
    pub is_switch: bool,
    /// Whether it may have several values.
    pub is_list: bool,
    /// The option's variable.
    pub variable: String,
    pub source: Source<'a>,
}

/// The settings that are in force for runs of some locks.
pub struct Settings {
    options: clap::Command,
    matches: clap::ArgMatches,
    sources: Sources,
}

impl Catalogue {
    pub(super) fn new() -> Self {
        let mut whole = definition();
        whole.build();
        let (mut options, mut others) = (clap::Command::new("rlock"), Vec::new());
        for arg in whole.get_subcommands().flat_map(clap::Command::get_arguments) {
            if !belongs_in_files(arg) {
                others.extend(arg.get_long().map(str::to_owned));
            } else if !options.get_arguments().any(|known| known.get_long() == arg.get_long()) {
                options = options.arg(alone(arg));
            }
        }
        Self { options, others }
    }

    /// Returns the option that `setting` names.
    pub(super) fn find(&self, setting: &Setting) -> Result<&Arg, Failure> {
        let name = setting.name.as_str();
        if let Some(found) = self.options.get_arguments().find(|arg| arg.get_long() == Some(name)) {
            return Ok(found);
        }
        let position = &setting.origin.position;
        if name == "password" {
            let remedy = "give password-file, or set RLOCK_PASSWORD";
            return Err(config::fault(position, format!("password: a configuration file holds no password; {remedy}")));
        }
        if self.others.iter().any(|other| other == name) {
            return Err(config::fault(position, format!("{name}: --{name} is for the command line only")));
        }
        Err(config::unknown(position, name, self.options.get_arguments().filter_map(Arg::get_long)))
    }
}

/// Returns the option as it is without those that it requires, excludes or shares a letter with.
fn alone(arg: &Arg) -> Arg {
    let arg = arg.clone().short(None).required(false).conflicts_with(NO_OPTION).requires(NO_OPTION);
    arg.overrides_with(NO_OPTION)
}

impl Settings {
    /// Adds to the refusal of a setting's value where the value came from.
    pub fn explain(&self, failure: Failure) -> Failure {
        self.sources.explain(failure)
    }

    /// Returns the settings of runs of these locks.
    pub fn new(config: &Config, locks: &[String]) -> anyhow::Result<Self> {
        let options = Catalogue::new().options;
        let (matches, sources) = without_words(&options, config, &scopes(locks))?;
        Ok(Self { options, matches, sources })
    }

    /// Returns each setting, in the order of the options.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.options.get_arguments().filter(|arg| belongs_in_files(arg)).map(|arg| {
            let id = id(arg);
            let raw = self.matches.get_raw(&id).into_iter().flatten();
            let name = arg.get_long().unwrap_or_default();
            Row {
                name: name.to_owned(),
                values: raw.map(|value| value.to_string_lossy().into_owned()).collect(),
                is_switch: matches!(arg.get_action(), ArgAction::SetTrue),
                is_list: matches!(arg.get_action(), ArgAction::Append),
                variable: variable(name),
                source: self.sources.of(&id),
            }
        })
    }
}

/// Checks the names and values of every section, used or not. Returns the options of a run with the defaults, and with each `[lock]`
/// section, for the rules that concern several options.
pub fn runs(config: &Config) -> anyhow::Result<Vec<(RunArgs, Sources)>> {
    let without_variables =
        |command: clap::Command| command.mut_args(|arg| arg.env(None::<&'static str>).hide_env(true));
    let options = without_variables(Catalogue::new().options);
    let mut whole = definition();
    whole.build();
    let run = whole.find_subcommand("run").map(|run| without_variables(run.clone()));
    let patterns = std::iter::once(None).chain(config.patterns().map(Some));
    let mut runs = Vec::new();
    for scope in patterns.map(Scope::Sections) {
        without_words(&options, config, &[scope])?;
        if let Some(run) = &run {
            // The locks and the command are no settings.
            let run = run.clone().mut_args(|arg| arg.required(false).required_unless_present(NO_OPTION));
            let run =
                run.mut_arg("keys", |arg| arg.default_value("job")).mut_arg("argv", |arg| arg.default_value("true"));
            let (matches, sources) = without_words(&run, config, &[scope])?;
            runs.push((RunArgs::from_arg_matches(&matches)?, sources));
        }
    }
    Ok(runs)
}
