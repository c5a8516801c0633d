//! Where the value of each option came from.

use std::collections::BTreeMap;

use clap::ArgMatches;
use clap::parser::ValueSource;

use crate::config::{self, Origin};
use crate::exit::{Failure, Outcome};

/// Where a value came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source<'a> {
    BuiltIn,
    File(&'a Origin),
    Variable,
    Typed,
}

/// A setting of a higher rank goes before those of lower ranks that contradict it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rank {
    BuiltIn,
    File(config::Rank),
    Variable,
    Typed,
}

impl Source<'_> {
    pub fn rank(self) -> Rank {
        match self {
            Self::BuiltIn => Rank::BuiltIn,
            Self::File(origin) => Rank::File(origin.rank()),
            Self::Variable => Rank::Variable,
            Self::Typed => Rank::Typed,
        }
    }
}

/// The source of each option of a subcommand, by clap's id of the option.
#[derive(Default)]
pub struct Sources {
    /// Options that were typed or whose variable is set, and which of the two. The rest of clap's matches is not kept.
    chosen: Vec<(String, ValueSource)>,
    /// Options that a file sets.
    files: BTreeMap<String, Origin>,
}

impl Sources {
    pub(super) fn new(matches: Option<&ArgMatches>) -> Self {
        Self { chosen: chosen(matches), files: BTreeMap::new() }
    }

    /// The same, where `files` set these options.
    pub(super) fn with_files(matches: Option<&ArgMatches>, files: BTreeMap<String, Origin>) -> Self {
        Self { chosen: chosen(matches), files }
    }

    /// Returns the source of option `id`.
    pub fn of(&self, id: &str) -> Source<'_> {
        match self.chosen.iter().find(|(chosen, _)| chosen == id).map(|(_, source)| *source) {
            Some(ValueSource::CommandLine) => Source::Typed,
            Some(ValueSource::EnvVariable) => Source::Variable,
            _ => self.files.get(id).map_or(Source::BuiltIn, Source::File),
        }
    }

    /// Whether option `id` was typed.
    pub fn typed(&self, id: &str) -> bool {
        self.of(id) == Source::Typed
    }

    /// Whether option `id` was set at all.
    pub fn given(&self, id: &str) -> bool {
        self.of(id) != Source::BuiltIn
    }

    /// Adds to the refusal of an option's value where the value came from. The message begins with the flag, and the first flag in
    /// it that is set at all is to blame. A wrong file is a wrong configuration, not a wrong command line. If the first was typed,
    /// the next flag that was not is what contradicts it.
    pub fn explain(&self, failure: Failure) -> Failure {
        let is_of_option =
            failure.message.starts_with("--") && matches!(failure.outcome, Outcome::Usage | Outcome::Config);
        let words = failure.message.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').filter(|_| is_of_option);
        let mut named = words.filter_map(|word| self.named(word.strip_prefix("--")?));
        let first = named.next();
        let message = &failure.message;
        match first {
            Some((_, Source::File(origin))) => {
                Failure { outcome: Outcome::Config, message: format!("{origin}: {message}"), ..failure }
            }
            Some((long, Source::Variable)) => {
                Failure { message: format!("{message} (from the environment: {})", variable(long)), ..failure }
            }
            Some((_, Source::Typed)) => {
                let other = named.find_map(|(long, source)| match source {
                    Source::File(origin) => Some(format!("--{long} is set by {origin}")),
                    Source::Variable => Some(format!("--{long} is set by {}", variable(long))),
                    Source::BuiltIn | Source::Typed => None,
                });
                match other {
                    Some(other) => Failure { message: format!("{message} ({other})"), ..failure },
                    None => failure,
                }
            }
            Some((_, Source::BuiltIn)) | None => failure,
        }
    }

    /// Returns the source of a long flag that is set.
    fn named<'a>(&self, long: &'a str) -> Option<(&'a str, Source<'_>)> {
        // clap's derive makes ids of the long flags in this way.
        let source = self.of(&long.replace('-', "_"));
        (source != Source::BuiltIn).then_some((long, source))
    }
}

fn chosen(matches: Option<&ArgMatches>) -> Vec<(String, ValueSource)> {
    let sources =
        matches.into_iter().flat_map(|matches| matches.ids().map(|id| (id, matches.value_source(id.as_str()))));
    let chosen =
        sources.filter_map(|(id, source)| Some((id, source.filter(|source| *source != ValueSource::DefaultValue)?)));
    chosen.map(|(id, source)| (id.to_string(), source)).collect()
}

/// Returns the name of an option's variable.
pub(super) fn variable(long: &str) -> String {
    format!("RLOCK_{}", long.to_ascii_uppercase().replace('-', "_"))
}

pub(super) fn id(arg: &clap::Arg) -> String {
    arg.get_id().to_string()
}
