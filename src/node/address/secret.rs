//! A password and its source, which messages may name.

use std::fmt;

/// A password. Shown by nothing, not even `{:?}`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: String,
    /// Its source, for people; `None` for the address.
    source: Option<String>,
}

impl Secret {
    /// Wraps the password `text` of an address.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), source: None }
    }

    /// Wraps `text`, which came from `source`: a variable or a file, as messages show it.
    pub fn of(source: impl Into<String>, text: impl Into<String>) -> Self {
        Self { text: text.into(), source: Some(source.into()) }
    }

    /// The password itself, for the server alone.
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// Where it came from, for people.
    pub fn source(&self) -> &str {
        self.source.as_deref().unwrap_or("the address")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}
