//! Variables that look like rlock's and are none: a misspelt one has no effect.

use std::collections::BTreeSet;

use super::definition;
use super::help::VARIABLES;
use super::sources::variable;
use crate::job::names::NESTED_MARK;
use crate::text::similar::nearest;

/// Beginning of the names of rlock's variables.
const PREFIX: &str = "RLOCK_";

/// A variable that rlock does not know.
#[derive(PartialEq, Eq, Debug)]
pub struct StrangeVariable {
    pub name: String,
    /// The variable that was probably meant.
    pub meant: Option<String>,
}

/// Returns the variables of the environment that begin as rlock's do and that it does not know.
pub fn strange_variables() -> Vec<StrangeVariable> {
    // Describing all options takes a while, and mostly there is none that is not set by an outer rlock.
    let set = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let set: BTreeSet<String> = set.filter(|name| name.starts_with(PREFIX)).collect();
    if set.is_empty() { Vec::new() } else { of(set, &known()) }
}

fn known() -> BTreeSet<String> {
    let mut whole = definition();
    whole.build();
    let options = whole.get_subcommands().flat_map(clap::Command::get_arguments);
    let has_variable = |arg: &&clap::Arg| arg.get_env().is_some() || arg.is_hide_env_set();
    let named = options.filter(has_variable).filter_map(|arg| arg.get_long().map(variable));
    let others = VARIABLES.iter().map(|(name, _)| *name).chain([NESTED_MARK]).map(str::to_owned);
    named.chain(others).collect()
}

fn of(set: BTreeSet<String>, known: &BTreeSet<String>) -> Vec<StrangeVariable> {
    let strange = set.into_iter().filter(|name| !known.contains(name));
    let meant = |name: &str| nearest(name, known.iter().map(String::as_str)).map(str::to_owned);
    strange.map(|name| StrangeVariable { meant: meant(&name), name }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_variable_is_strange_and_each_documented_one_is_known() {
        let known = known();
        for name in ["RLOCK_NODE", "RLOCK_TTL", "RLOCK_NO_WAIT", "RLOCK_HELD", "RLOCK_TOKEN", "RLOCK_NESTED"] {
            assert!(known.contains(name), "{name}");
        }
        let strange = of(["RLOCK_TTL", "RLOCK_TLL", "RLOCK_"].map(str::to_owned).into(), &known);
        let names: Vec<(&str, Option<&str>)> =
            strange.iter().map(|it| (it.name.as_str(), it.meant.as_deref())).collect();
        assert_eq!(names[1], ("RLOCK_TLL", Some("RLOCK_TTL")));
        assert_eq!((names.len(), names[0].0), (2, "RLOCK_"));
    }
}
