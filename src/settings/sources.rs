//! Where the value of each option came from, and variables that look like rlock's and are none: a
//! misspelt one has no effect.

use std::collections::{BTreeMap, BTreeSet};

use clap::parser::ValueSource;
use clap::{ArgMatches, Id};

use super::files::Origin;
use crate::cli::{VARIABLES, definition, variable};
use crate::exit::{Failure, Outcome};
use crate::job::process_tree::NESTED_MARK;
use crate::text::{escape, nearest};

/// Where a value came from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    BuiltIn,
    File(Origin),
    Variable,
    Typed,
}

impl Source {
    /// A source of a higher rank goes before those of lower ranks.
    pub(super) fn rank(&self) -> (u8, (bool, usize)) {
        const LEAST: (bool, usize) = (false, 0);
        match self {
            Self::BuiltIn => (0, LEAST),
            Self::File(origin) => (1, origin.rank()),
            Self::Variable => (2, LEAST),
            Self::Typed => (3, LEAST),
        }
    }
}

/// The source of each option of a subcommand that is set at all, by clap's id of the option.
#[derive(Clone, Default)]
pub struct Sources(BTreeMap<String, Source>);

impl Sources {
    /// Returns the sources of the options of a subcommand, as clap knows them.
    pub fn new(matches: &ArgMatches) -> Self {
        let source = |id: &Id| match matches.value_source(id.as_str())? {
            ValueSource::CommandLine => Some((id.to_string(), Source::Typed)),
            ValueSource::EnvVariable => Some((id.to_string(), Source::Variable)),
            _ => None,
        };
        Self(matches.ids().filter_map(source).collect())
    }

    /// The same, where files have set these options.
    pub(super) fn with_files(mut self, origins: BTreeMap<String, Origin>) -> Self {
        for (id, origin) in origins {
            self.0.entry(id).or_insert(Source::File(origin));
        }
        self
    }

    /// Returns the source of option `id`.
    pub fn of(&self, id: &str) -> &Source {
        self.0.get(id).unwrap_or(&Source::BuiltIn)
    }

    /// Whether option `id` was typed.
    pub fn typed(&self, id: &str) -> bool {
        *self.of(id) == Source::Typed
    }

    /// Whether option `id` was set at all.
    pub fn given(&self, id: &str) -> bool {
        self.0.contains_key(id)
    }

    /// Returns which of the options that exclude each other counts: of those that are on, the one
    /// of the highest rank. Two of one rank contradict each other.
    pub fn decisive<'a>(&self, options: &[(&'a str, bool)]) -> Result<Option<&'a str>, Failure> {
        let given: Vec<_> = options
            .iter()
            .filter(|(_, is_on)| *is_on)
            .map(|(id, _)| (self.of(id).rank(), *id))
            .collect();
        let Some((highest, id)) = given.iter().max() else {
            return Ok(None);
        };
        if given.iter().filter(|(rank, _)| rank == highest).count() == 1 {
            return Ok(Some(id));
        }
        let mut names: Vec<String> = options
            .iter()
            .map(|(id, _)| format!("--{}", id.replace('_', "-")))
            .collect();
        let last = names.pop().unwrap_or_default();
        let why = format!(
            "{} and {last} contradict each other: give one of them",
            names.join(", ")
        );
        Err(Failure::new(Outcome::Usage, why))
    }

    /// Adds to the refusal of an option's value where the value came from. The message begins with
    /// the flag, and the first flag in it that is set at all is to blame. A wrong file is a wrong
    /// configuration, not a wrong command line. If the first was typed, the next flag that was not
    /// is what contradicts it.
    pub fn explain(&self, failure: Failure) -> Failure {
        let is_of_option = failure.message.starts_with("--")
            && matches!(failure.outcome, Outcome::Usage | Outcome::Config);
        let words = failure
            .message
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
            .filter(|_| is_of_option);
        let mut named = words.filter_map(|word| self.named(word.strip_prefix("--")?));
        let first = named.next();
        let message = &failure.message;
        match first {
            Some((_, Source::File(origin))) => Failure {
                outcome: Outcome::Config,
                message: format!("{origin}: {message}"),
                ..failure
            },
            Some((long, Source::Variable)) => Failure {
                message: format!("{message} (from the environment: {})", variable(long)),
                ..failure
            },
            Some((_, Source::Typed)) => {
                let other = named.find_map(|(long, source)| match source {
                    Source::File(origin) => Some(format!("--{long} is set by {origin}")),
                    Source::Variable => Some(format!("--{long} is set by {}", variable(long))),
                    Source::BuiltIn | Source::Typed => None,
                });
                match other {
                    Some(other) => Failure {
                        message: format!("{message} ({other})"),
                        ..failure
                    },
                    None => failure,
                }
            }
            Some((_, Source::BuiltIn)) | None => failure,
        }
    }

    /// Returns the source of a long flag that is set.
    fn named<'a>(&self, long: &'a str) -> Option<(&'a str, &Source)> {
        // clap's derive makes ids of the long flags in this way.
        self.0
            .get(&long.replace('-', "_"))
            .map(|source| (long, source))
    }
}

pub(super) fn id(arg: &clap::Arg) -> String {
    arg.get_id().to_string()
}

/// Beginning of the names of rlock's variables.
const PREFIX: &str = "RLOCK_";

/// Returns a sentence on each variable of the environment that begins as rlock's do and that it
/// does not know.
pub fn strange_variables() -> Vec<String> {
    // Describing all options takes a while, and mostly there is none that is not set by an outer
    // rlock.
    let set = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let set: BTreeSet<String> = set.filter(|name| name.starts_with(PREFIX)).collect();
    if set.is_empty() {
        Vec::new()
    } else {
        of(&set, &known())
    }
}

fn known() -> BTreeSet<String> {
    let mut whole = definition();
    whole.build();
    let options = whole
        .get_subcommands()
        .flat_map(clap::Command::get_arguments);
    let has_variable = |arg: &&clap::Arg| arg.get_env().is_some() || arg.is_hide_env_set();
    let named = options
        .filter(has_variable)
        .filter_map(|arg| arg.get_long().map(variable));
    let others = VARIABLES
        .iter()
        .map(|(name, _)| *name)
        .chain([NESTED_MARK])
        .map(str::to_owned);
    named.chain(others).collect()
}

fn of(set: &BTreeSet<String>, known: &BTreeSet<String>) -> Vec<String> {
    let strange = set.iter().filter(|name| !known.contains(*name));
    let told = |name: &String| {
        let meant = nearest(name, known.iter().map(String::as_str));
        let hint = meant
            .map(|meant| format!(": did you mean {meant}?"))
            .unwrap_or_default();
        format!("unknown variable {}{hint}", escape::text(name))
    };
    strange.map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_variable_is_strange_and_each_documented_one_is_known() {
        let known = known();
        for name in [
            "RLOCK_NODE",
            "RLOCK_TTL",
            "RLOCK_NO_WAIT",
            "RLOCK_HELD",
            "RLOCK_TOKEN",
            "RLOCK_NESTED",
        ] {
            assert!(known.contains(name), "{name}");
        }
        let strange = of(
            &["RLOCK_TTL", "RLOCK_TLL", "RLOCK_"]
                .map(str::to_owned)
                .into(),
            &known,
        );
        assert_eq!(
            strange[1],
            "unknown variable RLOCK_TLL: did you mean RLOCK_TTL?"
        );
        assert!(
            strange.len() == 2 && strange[0].starts_with("unknown variable RLOCK_"),
            "{strange:?}"
        );
    }
}
