//! Errors in the words of Redis 7.0.

use std::borrow::Cow;
use std::{error, fmt};

/// An error reply, its code first, without the `-` that the protocol puts before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refusal(pub(super) Cow<'static, str>);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl error::Error for Refusal {}

impl Refusal {
    pub(super) const WRONG_TYPE: Self =
        Self::new("WRONGTYPE Operation against a key holding the wrong kind of value");
    pub(super) const SYNTAX: Self = Self::new("ERR syntax error");
    pub(super) const NOT_AN_INTEGER: Self =
        Self::new("ERR value is not an integer or out of range");
    pub(super) const NOT_A_FLOAT: Self = Self::new("ERR value is not a valid float");
    pub(super) const OUT_OF_MEMORY: Self =
        Self::new("OOM command not allowed when used memory > 'maxmemory'.");
    pub(super) const READ_ONLY: Self =
        Self::new("READONLY You can't write against a read only replica.");

    pub(super) const fn new(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }

    pub(super) fn with(text: impl Into<String>) -> Self {
        Self(Cow::Owned(text.into()))
    }

    pub(super) fn wrong_arity(command: &str) -> Self {
        Self::with(format!(
            "ERR wrong number of arguments for '{command}' command"
        ))
    }

    pub(super) fn unknown_subcommand(command: &str, subcommand: &[u8]) -> Self {
        let (command, subcommand) = (
            command.to_ascii_uppercase(),
            String::from_utf8_lossy(subcommand),
        );
        Self::with(format!(
            "ERR unknown subcommand '{subcommand}'. Try {command} HELP."
        ))
    }
}
