//! Which settings apply: those of the lock go before the defaults. Pure.

use std::collections::BTreeMap;

use glob::Pattern;

use super::setting::{Section, Setting};

/// Runs or sections that settings are looked up for.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// A run of the lock with this name, if it names one.
    Run(Option<&'a str>),
    /// The sections themselves: the defaults, and the `[lock]` section with this pattern.
    Sections(Option<&'a str>),
}

impl<'a> Scope<'a> {
    fn has(self, section: &Section) -> bool {
        match (self, section) {
            (_, Section::Defaults) => true,
            (Self::Run(lock), Section::Lock(pattern)) => {
                lock.is_some_and(|lock| Pattern::new(pattern).is_ok_and(|pattern| pattern.matches(lock)))
            }
            (Self::Sections(wanted), Section::Lock(pattern)) => wanted == Some(pattern),
        }
    }

    /// Returns the settings that apply, by name: of several the one of the highest rank.
    pub fn settings(self, settings: &[Setting]) -> BTreeMap<&str, &Setting> {
        let mut applying: BTreeMap<&str, &Setting> = BTreeMap::new();
        for setting in settings.iter().filter(|setting| self.has(&setting.origin.section)) {
            let known = applying.get(setting.name.as_str());
            if known.is_none_or(|known| known.origin.rank() <= setting.origin.rank()) {
                applying.insert(&setting.name, setting);
            }
        }
        applying
    }

    fn lock(self) -> &'a str {
        let (Self::Run(name) | Self::Sections(name)) = self;
        name.unwrap_or_default()
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

    fn run(lock: Option<&str>) -> Scope<'_> {
        Scope::Run(lock)
    }

    #[test]
    fn a_locks_section_goes_before_the_defaults() {
        let all = [
            setting(1, lock("deploy-[!a]"), "ttl", "lock"),
            setting(2, Section::Defaults, "ttl", "defaults"),
            setting(3, Section::Defaults, "note", "defaults"),
        ];
        let found = |scope: Scope| {
            let applying = scope.settings(&all);
            ["ttl", "note"].map(|name| applying.get(name).map(|setting| setting.origin.position.line))
        };
        assert_eq!(found(run(None)), [Some(2), Some(3)]);
        assert_eq!(found(run(Some("deploy-a"))), [Some(2), Some(3)]);
        assert_eq!(found(run(Some("deploy-x"))), [Some(1), Some(3)]);
        assert_eq!(found(Scope::Sections(Some("deploy-[!a]"))), [Some(1), Some(3)]);
        assert_eq!(found(Scope::Sections(None)), [Some(2), Some(3)]);
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
            let scopes: Vec<Scope> = locks.iter().map(|lock| run(Some(lock))).collect();
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
        /// Of the settings that apply none goes before the chosen one: neither by its section, nor by its line among such sections.
        #[test]
        fn the_chosen_one_is_the_last_of_the_highest_rank(order in proptest::collection::vec(0usize..4, 0..12)) {
            let sections = [Section::Defaults, lock("q*"), lock("l*"), lock("lock")];
            let all: Vec<Setting> =
                order.iter().enumerate().map(|(line, at)| setting(line, sections[*at].clone(), "ttl", "1m")).collect();
            let applying = all.iter().filter(|setting| setting.origin.section != sections[1]);
            let best = applying.max_by_key(|s| (s.origin.section != Section::Defaults, s.origin.position.line));
            prop_assert_eq!(run(Some("lock")).settings(&all).get("ttl").copied(), best);
        }
    }
}
