//! Configuration files: which are read, what stands in them, and which of their settings apply to a run. docs/design.md §2.
//!
//! Only texts are known here. Whether a name is an option and a text is a value of it, `cli::files` asks clap.

mod file;
mod places;
mod scope;
mod setting;

use crate::exit::{Failure, Outcome};
use crate::text::nearest;

use places::Contents;
pub use places::{Choice, Place};
pub use scope::{Disagreement, Scope, agreed};
pub use setting::{Origin, Position, Rank, Section, Setting, Value};

/// The configuration files of a run as one: a later file is added behind the earlier ones.
#[derive(Default, Debug)]
pub struct Config {
    /// Files that were read.
    pub files: Vec<String>,
    /// Settings in the order of the files and their lines.
    pub settings: Vec<Setting>,
    sections: Vec<Section>,
}

impl Config {
    /// Reads the files of `choice`.
    pub fn read(choice: &Choice) -> Result<Self, Failure> {
        Self::of(places::of(choice))
    }

    /// Reads the files at `places`, of which the standard ones may be missing.
    pub fn of(places: impl IntoIterator<Item = Place>) -> Result<Self, Failure> {
        let mut whole = Self::default();
        for place in places {
            if let Some(Contents { shown, text, is_private }) = place.read()? {
                let file = file::parse(&shown, &text)?;
                if let Some(exposed) = file.settings.iter().find(|setting| !is_private && setting.has_password()) {
                    let position = &exposed.origin.position;
                    return Err(fault(position, "others can read the password in this address; run chmod 600"));
                }
                whole.add(shown, file);
            }
        }
        Ok(whole)
    }

    fn add(&mut self, shown: String, file: Self) {
        self.files.push(shown);
        let earlier = self.sections.len();
        self.settings.extend(file.settings.into_iter().map(|mut setting| {
            setting.origin.earlier += earlier;
            setting
        }));
        self.sections.extend(file.sections);
    }

    /// Patterns of the `[lock]` sections.
    pub fn patterns(&self) -> impl Iterator<Item = &str> {
        self.sections.iter().filter_map(|section| match section {
            Section::Lock(pattern) => Some(pattern.as_str()),
            Section::Defaults => None,
        })
    }
}

/// The failure of what stands at `position`.
pub fn fault(position: &Position, why: impl std::fmt::Display) -> Failure {
    Failure::new(Outcome::Config, format!("{position}: {why}"))
}

/// The failure of the unknown name at `position`.
pub fn unknown<'a>(position: &Position, name: &str, known: impl IntoIterator<Item = &'a str>) -> Failure {
    let hint = nearest(name, known).map(|near| format!("; did you mean {near}?")).unwrap_or_default();
    fault(position, format!("unknown name {}{hint}", crate::text::escape::text(name)))
}
