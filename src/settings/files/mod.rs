//! Configuration files: which are read, what stands in them, and which of their settings apply to a
//! run. docs/configuration.md.
//!
//! Only texts are known here. Whether a name is an option and a text is a value of it, `defaults`
//! asks clap.

mod candidates;
mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use glob::Pattern;

use crate::exit::{Failure, Outcome};
use crate::secret;
use crate::text::{escape, nearest};

pub use candidates::NO_FILE;

/// The configuration files of a run as one: the settings of a later file stand behind those of the
/// earlier ones.
#[derive(Default, Debug)]
pub struct Config {
    /// Files that were read.
    pub files: Vec<String>,
    /// Settings in the order of the files and their lines.
    pub settings: Vec<Setting>,
    sections: Vec<Section>,
}

/// `name = value` in a section. The texts of the value are what would be typed on the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// A long flag without its dashes.
    pub name: String,
    /// One, or those of an array.
    pub texts: Vec<String>,
    pub origin: Origin,
}

/// A table of a file, and the runs that it applies to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Section {
    /// All.
    Defaults,
    /// Those of a lock whose name matches this pattern.
    Lock(String),
}

/// A line of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Position {
    /// The file's path, escaped for messages.
    pub file: Arc<str>,
    /// Counted from 1.
    pub line: usize,
}

/// Where a setting stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    pub position: Position,
    pub section: Section,
    /// Number of sections before this one, in all files.
    earlier: usize,
}

impl Config {
    /// Reads the file that `--config` names, or the standard ones.
    pub fn read(named: Option<&Path>) -> Result<Self, Failure> {
        let mut whole = Self::default();
        for candidate in candidates::of(named) {
            let Some(contents) = candidate.read()? else {
                continue;
            };
            let known = whole.settings.len();
            whole.add(&contents.shown, &contents.text)?;
            let exposed = whole.settings[known..]
                .iter()
                .find(|setting| !contents.is_private && setting.has_password());
            if let Some(Setting { origin, .. }) = exposed {
                let why = "others can read the password in this address; run chmod 600";
                return Err(fault(&origin.position, why));
            }
            whole.files.push(contents.shown);
        }
        Ok(whole)
    }

    /// Returns the patterns of the `[lock]` sections.
    pub fn patterns(&self) -> impl Iterator<Item = &String> {
        self.sections.iter().filter_map(|section| match section {
            Section::Lock(pattern) => Some(pattern),
            Section::Defaults => None,
        })
    }

    /// Returns the settings that apply to a run of these locks, by name. Only names for which
    /// `is_open` holds are looked at. The locks must have the same settings.
    pub fn applying(
        &self,
        locks: &[String],
        is_open: impl Fn(&str) -> bool,
    ) -> Result<BTreeMap<&str, &Setting>, Failure> {
        let [first, others @ ..] = locks else {
            return Ok(self.of(None, &is_open));
        };
        let common = self.of(Some(first), &is_open);
        for other in others {
            let theirs = self.of(Some(other), &is_open);
            let differs = |name: &&&str| {
                let [ours, theirs] =
                    [&common, &theirs].map(|of| of.get(**name).map(|setting| &setting.texts));
                ours != theirs
            };
            if let Some(name) = common.keys().chain(theirs.keys()).find(differs) {
                let told = |lock: &str, setting: Option<&&Setting>| {
                    let how = setting.map_or_else(
                        || "not at all".to_owned(),
                        |setting| format!("by {}", setting.origin),
                    );
                    format!("for {} {how}", escape::text(lock))
                };
                let (one, other) = (told(first, common.get(name)), told(other, theirs.get(name)));
                let why = format!(
                    "--{name} is set differently for locks of one run: {one}, {other}; give --{name}"
                );
                return Err(Failure::new(Outcome::Config, why));
            }
        }
        Ok(common)
    }

    /// Returns the settings of the defaults and of the `[lock]` sections of `lock`, by name: of
    /// several the one of the highest rank.
    fn of(&self, lock: Option<&str>, is_open: impl Fn(&str) -> bool) -> BTreeMap<&str, &Setting> {
        let mut applying: BTreeMap<&str, &Setting> = BTreeMap::new();
        for setting in self
            .settings
            .iter()
            .filter(|setting| is_open(&setting.name))
        {
            let known = applying.get(setting.name.as_str());
            if setting.origin.section.has(lock)
                && known.is_none_or(|known| known.origin.rank() <= setting.origin.rank())
            {
                applying.insert(&setting.name, setting);
            }
        }
        applying
    }
}

impl Setting {
    /// Whether it is a node's address with a password.
    fn has_password(&self) -> bool {
        self.name == "node" && self.texts.iter().any(|text| secret::has_password(text))
    }
}

impl Section {
    /// Whether it applies to this lock. The pattern itself names a lock too, so that
    /// `config --check` can ask for each section.
    fn has(&self, lock: Option<&str>) -> bool {
        match self {
            Self::Defaults => true,
            Self::Lock(pattern) => lock.is_some_and(|lock| {
                pattern == lock || Pattern::new(pattern).is_ok_and(|pattern| pattern.matches(lock))
            }),
        }
    }
}

impl Origin {
    /// A setting of a higher rank goes before one of a lower rank: whether its section is a lock's,
    /// and the number of sections before that.
    pub fn rank(&self) -> (bool, usize) {
        (self.section != Section::Defaults, self.earlier)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// As in the file.
impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Defaults => f.write_str("[defaults]"),
            Self::Lock(pattern) => write!(f, "[lock.\"{}\"]", escape::text(pattern)),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.position, self.section)
    }
}

/// The failure of what stands at `position`.
pub fn fault(position: &Position, why: impl fmt::Display) -> Failure {
    Failure::new(Outcome::Config, format!("{position}: {why}"))
}

/// The failure of the unknown name at `position`.
pub fn unknown<'a>(
    position: &Position,
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Failure {
    let hint = nearest(name, known)
        .map(|near| format!("; did you mean {near}?"))
        .unwrap_or_default();
    fault(
        position,
        format!(
            "unknown name {}{hint}",
            escape::text(&secret::without_userinfo(name))
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn config(settings: impl IntoIterator<Item = (Section, &'static str, &'static str)>) -> Config {
        let setting = |(earlier, (section, name, value)): (usize, (Section, &str, &str))| Setting {
            name: name.into(),
            texts: vec![value.into()],
            origin: Origin {
                position: Position {
                    file: "f".into(),
                    line: earlier,
                },
                section,
                earlier,
            },
        };
        Config {
            settings: settings.into_iter().enumerate().map(setting).collect(),
            ..Config::default()
        }
    }

    fn lock(pattern: &str) -> Section {
        Section::Lock(pattern.into())
    }

    fn lines<const N: usize>(
        config: &Config,
        locks: &[&str],
        names: [&str; N],
    ) -> [Option<usize>; N] {
        let locks: Vec<String> = locks.iter().map(|lock| (*lock).to_owned()).collect();
        let applying = config.applying(&locks, |_| true).unwrap();
        names.map(|name| {
            applying
                .get(name)
                .map(|setting| setting.origin.position.line)
        })
    }

    #[test]
    fn a_locks_section_goes_before_the_defaults() {
        let all = config([
            (lock("deploy-[!a]"), "ttl", "lock"),
            (Section::Defaults, "ttl", "defaults"),
            (Section::Defaults, "note", "defaults"),
        ]);
        for (locks, ttl) in [
            (&[][..], 1),
            (&["deploy-a"], 1),
            (&["deploy-x"], 0),
            (&["deploy-[!a]"], 0),
        ] {
            assert_eq!(
                lines(&all, locks, ["ttl", "note"]),
                [Some(ttl), Some(2)],
                "{locks:?}"
            );
        }
    }

    #[test]
    fn locks_that_disagree_are_named_and_those_that_agree_are_not() {
        let all = config([
            (lock("a"), "ttl", "1m"),
            (lock("b"), "ttl", "1m"),
            (lock("c"), "ttl", "2m"),
            (Section::Defaults, "note", "n"),
        ]);
        let ask = |locks: [&str; 2], is_open: fn(&str) -> bool| {
            let found = all.applying(&locks.map(str::to_owned), is_open);
            found
                .map(|found| found.len())
                .map_err(|failure| failure.message)
        };
        assert_eq!(ask(["a", "b"], |_| true), Ok(2));
        assert_eq!(ask(["a", "c"], |name| name != "ttl"), Ok(1));
        let words = ask(["a", "c"], |_| true).unwrap_err();
        assert!(
            words.contains("--ttl") && words.contains("a by f:0") && words.contains("c by f:2"),
            "{words}"
        );
        assert!(
            ask(["a", "d"], |_| true)
                .unwrap_err()
                .contains("d not at all")
        );
        assert!(
            ask(["d", "a"], |_| true)
                .unwrap_err()
                .contains("d not at all")
        );
    }

    proptest! {
        /// Of the settings that apply none goes before the chosen one: neither by its section, nor
        /// by its line among such sections.
        #[test]
        fn the_chosen_one_is_the_last_of_the_highest_rank(order in proptest::collection::vec(0usize..4, 0..12)) {
            let sections = [Section::Defaults, lock("q*"), lock("l*"), lock("lock")];
            let all = config(order.iter().map(|at| (sections[*at].clone(), "ttl", "1m")));
            let applying = all.settings.iter().map(|setting| &setting.origin).filter(|at| at.section != sections[1]);
            let best = applying.max_by_key(|at| (at.section != Section::Defaults, at.position.line));
            let found = lines(&all, &["lock"], ["ttl"]);
            prop_assert_eq!(found, [best.map(|at| at.position.line)]);
        }
    }
}
