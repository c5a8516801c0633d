//! One setting of a configuration file, and where it stands.

use std::fmt;
use std::sync::Arc;

use crate::secret;
use crate::text::escape;

/// `name = value` in a section.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// A long flag without its dashes.
    pub name: String,
    pub value: Value,
    pub origin: Origin,
}

/// A value, of which the texts are what would be typed on the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// A string or a number.
    Text(String),
    /// `true` or `false`.
    Switch(bool),
    /// An array of strings or numbers.
    List(Vec<String>),
}

impl Value {
    /// The texts, one for each time that the flag would be typed.
    pub fn texts(&self) -> Vec<&str> {
        match self {
            Self::Text(text) => vec![text],
            Self::Switch(true) => vec!["true"],
            Self::Switch(false) => vec!["false"],
            Self::List(texts) => texts.iter().map(String::as_str).collect(),
        }
    }
}

impl Setting {
    /// Whether it is a node's address with a password.
    pub(super) fn has_password(&self) -> bool {
        self.name == "node" && self.value.texts().into_iter().any(secret::has_password)
    }
}

/// A line of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Position {
    /// The file's path, escaped for messages.
    pub file: Arc<str>,
    /// Counted from 1.
    pub line: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A table of a file, and the runs that it applies to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Section {
    /// All.
    Defaults,
    /// Those of a lock whose name matches this pattern.
    Lock(String),
}

/// A setting of a higher rank goes before one of a lower rank: whether its section is a lock's, and the number of sections before that.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rank(bool, usize);

impl Origin {
    pub fn rank(&self) -> Rank {
        Rank(matches!(self.section, Section::Lock(_)), self.earlier)
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

/// Where a setting stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    pub position: Position,
    pub section: Section,
    /// Number of sections before this one, in all files.
    pub earlier: usize,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.position, self.section)
    }
}
