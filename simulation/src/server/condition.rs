//! Conditions of a server in which it refuses commands.

use super::command::{Command, Flag};
use super::refusal::Refusal;

/// A right that an ACL takes from every client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Right {
    /// To run this command, in lower case.
    Command(String),
    /// To use channels whose names begin with this.
    Channels(Vec<u8>),
}

/// Conditions that make the server refuse commands.
#[derive(Clone, Default, Debug)]
pub(super) struct Condition {
    pub(super) out_of_memory: bool,
    pub(super) replica: bool,
    pub(super) denied: Vec<Right>,
}

/// A right that the client lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lack {
    Command,
    Channel,
}

impl Condition {
    /// Whether commands that may take memory are refused. A replica takes what its primary had room
    /// for.
    pub(super) fn refuses_growth(&self) -> bool {
        self.out_of_memory && !self.replica
    }

    /// Returns the right that a call needs and the client lacks.
    pub(super) fn lack(&self, command: &Command, words: &[&[u8]]) -> Option<Lack> {
        if self.denied.is_empty() {
            return None;
        }
        let is_denied =
            |right: &Right| matches!(right, Right::Command(name) if name == command.name);
        if self.denied.iter().any(is_denied) {
            return Some(Lack::Command);
        }
        let bars = |channel: &[u8]| {
            self.denied.iter().any(
                |right| matches!(right, Right::Channels(prefix) if channel.starts_with(prefix)),
            )
        };
        command
            .channels(words)
            .iter()
            .any(|channel| bars(channel))
            .then_some(Lack::Channel)
    }

    /// Refuses a call that a client makes, in the order of Redis' own checks (server.c,
    /// `processCommand`).
    pub(super) fn admit(&self, command: &Command, words: &[&[u8]]) -> Result<(), Refusal> {
        match self.lack(command, words) {
            Some(Lack::Command) => {
                let called = command.full_name();
                Err(Refusal::with(format!(
                    "NOPERM this user has no permissions to run the '{called}' command"
                )))
            }
            Some(Lack::Channel) => Err(Refusal::new(
                "NOPERM this user has no permissions to access one of the channels used as arguments",
            )),
            None if self.refuses_growth() && command.is(Flag::DenyOom) => {
                Err(Refusal::OUT_OF_MEMORY)
            }
            None if self.replica && command.is(Flag::Write) => Err(Refusal::READ_ONLY),
            None => Ok(()),
        }
    }
}
