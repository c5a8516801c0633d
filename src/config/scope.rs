//! Which settings apply: those of the lock go before those of the profile, and these before the defaults. Pure.

use std::collections::BTreeMap;

use glob::Pattern;

use super::setting::{Section, Setting};

/// The profile and the lock that settings are looked up for.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// A run of the lock with this name, if it names one.
    Run { profile: Option<&'a str>, lock: Option<&'a str> },
    /// The sections themselves: the defaults, a profile, and the `[lock]` section with this pattern.
    Sections { profile: Option<&'a str>, pattern: Option<&'a str> },
}

impl<'a> Scope<'a> {
    fn has(self, section: &Section) -> bool {
        match (self, section) {
            (_, Section::Defaults) => true,
            (Self::Run { profile, .. } | Self::Sections { profile, .. }, Section::Profile(name)) => {
                profile == Some(name)
            }
            (Self::Run { lock, .. }, Section::Lock(pattern)) => {
                lock.is_some_and(|lock| Pattern::new(pattern).is_ok_and(|pattern| pattern.matches(lock)))
            }
            (Self::Sections { pattern: wanted, .. }, Section::Lock(pattern)) => wanted == Some(pattern),
        }
    }

    /// Returns the settings that apply, by name. Of two in sections of one level the later one does.
    pub fn settings(self, settings: &[Setting]) -> BTreeMap<&str, &Setting> {
        let mut applying: BTreeMap<&str, &Setting> = BTreeMap::new();
        for setting in settings.iter().filter(|setting| self.has(&setting.origin.section)) {
            let level = |setting: &Setting| setting.origin.section.level();
            let is_outranked = |known: &&Setting| level(known) > level(setting);
            if !applying.get(setting.name.as_str()).is_some_and(is_outranked) {
                applying.insert(&setting.name, setting);
            }
        }
        applying
    }

    fn lock(self) -> &'a str {
        match self {
            Self::Run { lock, .. } => lock.unwrap_or_default(),
            Self::Sections { pattern, .. } => pattern.unwrap_or_default(),
        }
    }
}

/// A setting that two locks of one run have with different values, or one of them alone.
#[derive(PartialEq, Eq, Debug)]
pub struct Disagreement<'s, 'a> {
    pub name: &'s str,
    /// The locks, and their settings.
    pub sides: [(&'a str, Option<&'s Setting>); 2],
}

/// Returns the settings that apply to all `scopes`. Only names for which `is_open` holds are looked at.
pub fn agreed<'s, 'a>(
    settings: &'s [Setting],
    scopes: &[Scope<'a>],
    is_open: impl Fn(&str) -> bool,
) -> Result<BTreeMap<&'s str, &'s Setting>, Box<Disagreement<'s, 'a>>> {
    let open = |scope: Scope<'a>| {
        let mut applying = scope.settings(settings);
        applying.retain(|name, _| is_open(name));
        applying
    };
    let Some((first, others)) = scopes.split_first() else { return Ok(BTreeMap::new()) };
    let common = open(*first);
    let texts = |setting: Option<&&'s Setting>| setting.map(|setting| setting.value.texts());
    for other in others {
        let theirs = open(*other);
        let differs = |name: &&&str| texts(common.get(**name)) != texts(theirs.get(**name));
        if let Some(name) = common.keys().chain(theirs.keys()).find(differs) {
            let side = |scope: &Scope<'a>, of: &BTreeMap<_, &'s Setting>| (scope.lock(), of.get(*name).copied());
            return Err(Box::new(Disagreement { name, sides: [side(first, &common), side(other, &theirs)] }));
        }
    }
    Ok(common)
}

impl Disagreement<'_, '_> {
    /// Says what the locks disagree about, and which flag settles it.
    pub fn message(&self) -> String {
        let side = |(lock, setting): &(&str, Option<&Setting>)| {
            let lock = crate::text::escape::text(lock);
            match setting {
                Some(setting) => format!("{lock} by {}", setting.origin),
                None => format!("{lock} not at all"),
            }
        };
        let [one, other] = &self.sides;
        let name = self.name;
        format!(
            "--{name} is set differently for locks of one run: for {}, for {}; give --{name}",
            side(one),
            side(other)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::setting::{Origin, Position, Value};
    use proptest::prelude::*;

    fn setting(line: usize, section: Section, name: &str, value: &str) -> Setting {
        let position = Position { file: "f".into(), line };
        Setting {
            name: name.into(),
            value: Value::Text(value.into()),
            origin: Origin { position, section, earlier: line },
        }
    }

    fn lock(pattern: &str) -> Section {
        Section::Lock(pattern.into())
    }

    fn profile(name: &str) -> Section {
        Section::Profile(name.into())
    }

    fn run<'a>(profile: Option<&'a str>, lock: Option<&'a str>) -> Scope<'a> {
        Scope::Run { profile, lock }
    }

    #[test]
    fn a_lock_goes_before_a_profile_and_a_profile_before_the_defaults() {
        let all = [
            setting(1, lock("deploy-*"), "ttl", "lock"),
            setting(2, profile("prod"), "ttl", "prod"),
            setting(3, profile("test"), "ttl", "test"),
            setting(4, Section::Defaults, "ttl", "defaults"),
            setting(5, Section::Defaults, "note", "defaults"),
        ];
        let found = |scope: Scope| {
            let applying = scope.settings(&all);
            ["ttl", "note"].map(|name| applying.get(name).map(|setting| setting.origin.position.line))
        };
        assert_eq!(found(run(None, None)), [Some(4), Some(5)]);
        assert_eq!(found(run(Some("prod"), None)), [Some(2), Some(5)]);
        assert_eq!(found(run(Some("prod"), Some("backup"))), [Some(2), Some(5)]);
        assert_eq!(found(run(Some("prod"), Some("deploy-x"))), [Some(1), Some(5)]);
        assert_eq!(found(Scope::Sections { profile: None, pattern: Some("deploy-*") }), [Some(1), Some(5)]);
    }

    #[test]
    fn locks_that_disagree_are_named_and_those_that_agree_are_not() {
        let all = [
            setting(1, lock("a"), "ttl", "1m"),
            setting(2, lock("b"), "ttl", "1m"),
            setting(3, lock("c"), "ttl", "2m"),
            setting(4, Section::Defaults, "note", "n"),
        ];
        let ask = |locks: &[&'static str], is_open: fn(&str) -> bool| {
            let scopes: Vec<Scope> = locks.iter().map(|lock| run(None, Some(lock))).collect();
            agreed(&all, &scopes, is_open).map(|found| found.len()).map_err(|disagreement| disagreement.message())
        };
        assert_eq!(ask(&["a", "b"], |_| true), Ok(2));
        assert_eq!(ask(&["a", "c"], |name| name != "ttl"), Ok(1));
        let words = ask(&["a", "c"], |_| true).unwrap_err();
        assert!(words.contains("--ttl") && words.contains("a by f:1") && words.contains("c by f:3"), "{words}");
        assert!(ask(&["a", "d"], |_| true).unwrap_err().contains("d not at all"));
        assert!(ask(&["d", "a"], |_| true).unwrap_err().contains("d not at all"));
    }

    proptest! {
        /// Of the settings that apply none goes before the chosen one: neither by its level, nor by its line within a level.
        #[test]
        fn the_chosen_one_is_the_last_of_the_highest_level(order in proptest::collection::vec(0usize..4, 0..12)) {
            let sections = [Section::Defaults, profile("p"), profile("q"), lock("l*")];
            let all: Vec<Setting> =
                order.iter().enumerate().map(|(line, at)| setting(line, sections[*at].clone(), "ttl", "1m")).collect();
            let applying = all.iter().filter(|setting| setting.origin.section != profile("q"));
            let best = applying.max_by_key(|setting| (setting.origin.section.level(), setting.origin.position.line));
            prop_assert_eq!(run(Some("p"), Some("lock")).settings(&all).get("ttl").copied(), best);
        }
    }
}
