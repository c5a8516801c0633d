//! The commands that the server knows: one function each, in a table with what Redis' own table
//! says of them.
//!
//! A further command is a function and a row of [`COMMANDS`].

#![allow(
    clippy::unnecessary_wraps,
    reason = "the table has one type of function"
)]

mod channels;
mod cluster;
mod connection;
mod hashes;
mod keys;
mod ranges;
mod sentinel;
mod sorted_sets;
mod strings;

use super::number;
use super::refusal::Refusal;
use super::reply::Outcome;
use super::script;
use super::state::State;

/// A command's function. The first of the words is the command's name.
type Function = fn(&mut State, &[&[u8]]) -> Outcome;

/// A command of the server.
pub(super) struct Command {
    pub(super) name: &'static str,
    /// Number of words; at least that many if negative.
    arity: isize,
    flags: &'static [Flag],
    run: Function,
}

/// A property of a command, as COMMAND INFO has it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flag {
    /// It changes data: a replica refuses it.
    Write,
    /// It may take memory: refused if memory is short.
    DenyOom,
    /// Scripts may not use it.
    NoScript,
    /// It works on a RESP2 connection that has subscribed.
    Subscribed,
    /// Its second word is a channel, which the user must be allowed to use.
    Channel,
    /// So is each further word.
    Channels,
    /// A sentinel knows it too.
    Watching,
    /// Only a sentinel knows it.
    OnlyWatching,
}

use Flag::{Channel, Channels, DenyOom, NoScript, OnlyWatching, Subscribed, Watching, Write};

const fn row(name: &'static str, arity: isize, flags: &'static [Flag], run: Function) -> Command {
    Command {
        name,
        arity,
        flags,
        run,
    }
}

/// All commands, in the order of their names.
pub(super) const COMMANDS: &[Command] = &[
    row("asking", 1, &[NoScript], cluster::asking),
    row("auth", -2, &[NoScript, Watching], connection::auth),
    row("client", -2, &[NoScript, Watching], connection::client),
    row("cluster", -2, &[NoScript], cluster::cluster),
    row("del", -2, &[Write], keys::del),
    row("eval", -3, &[NoScript], script::eval),
    row("evalsha", -3, &[NoScript], script::evalsha),
    row("exists", -2, &[], keys::exists),
    row("get", 2, &[], strings::get),
    row("getrange", 4, &[], strings::getrange),
    row("hdel", -3, &[Write], hashes::hdel),
    row("hello", -1, &[NoScript, Watching], connection::hello),
    row("hexists", 3, &[], hashes::hexists),
    row("hget", 3, &[], hashes::hget),
    row("hgetall", 2, &[], hashes::hgetall),
    row("hlen", 2, &[], hashes::hlen),
    row("hmget", -3, &[], hashes::hmget),
    row("hset", -4, &[Write, DenyOom], hashes::hset),
    row("hstrlen", 3, &[], hashes::hstrlen),
    row("info", -1, &[], connection::info),
    row("pexpire", -3, &[Write], keys::pexpire),
    row("pexpireat", -3, &[Write], keys::pexpireat),
    row("ping", -1, &[Subscribed, Watching], connection::ping),
    row("pttl", 2, &[], keys::pttl),
    row("publish", 3, &[Channel], channels::publish),
    row("pubsub", -2, &[], channels::pubsub),
    row("script", -2, &[NoScript], script::script),
    row("select", 2, &[], connection::select),
    row(
        "sentinel",
        -2,
        &[NoScript, OnlyWatching],
        sentinel::sentinel,
    ),
    row("set", -3, &[Write, DenyOom], strings::set),
    row("strlen", 2, &[], strings::strlen),
    row(
        "subscribe",
        -2,
        &[NoScript, Subscribed, Channels, Watching],
        channels::subscribe,
    ),
    row("time", 1, &[], connection::time),
    row("type", 2, &[], keys::kind),
    row("unlink", -2, &[Write], keys::del),
    row(
        "unsubscribe",
        -1,
        &[NoScript, Subscribed, Watching],
        channels::unsubscribe,
    ),
    row("wait", 3, &[NoScript], connection::wait),
    row("zadd", -4, &[Write, DenyOom], sorted_sets::zadd),
    row("zcard", 2, &[], sorted_sets::zcard),
    row("zrange", -4, &[], ranges::zrange),
    row("zrangebyscore", -4, &[], ranges::zrangebyscore),
    row("zrank", 3, &[], sorted_sets::zrank),
    row("zrem", -3, &[Write], sorted_sets::zrem),
    row("zrevrange", -4, &[], ranges::zrevrange),
    row("zscore", 3, &[], sorted_sets::zscore),
];

impl Command {
    /// Returns the command of that name, in upper or lower case.
    pub(super) fn find(name: &[u8]) -> Option<&'static Self> {
        let lower = name.to_ascii_lowercase();
        let at = COMMANDS
            .binary_search_by(|command| command.name.as_bytes().cmp(&lower))
            .ok()?;
        Some(&COMMANDS[at])
    }

    /// Whether a server knows it; if it `watches`, whether a sentinel does.
    pub(super) fn is_known(&self, watches: bool) -> bool {
        if watches {
            self.is(Flag::Watching) || self.is(Flag::OnlyWatching)
        } else {
            !self.is(Flag::OnlyWatching)
        }
    }

    /// Returns the name with that of its only subcommand.
    pub(super) fn full_name(&self) -> &'static str {
        if self.name == "pubsub" {
            "pubsub|numsub"
        } else {
            self.name
        }
    }

    pub(super) fn is(&self, flag: Flag) -> bool {
        self.flags.contains(&flag)
    }

    /// Whether it takes `count` words, its name included.
    pub(super) fn takes(&self, count: usize) -> bool {
        if self.arity < 0 {
            count >= self.arity.unsigned_abs()
        } else {
            count == self.arity.unsigned_abs()
        }
    }

    /// Returns the channels among the words of a call.
    pub(super) fn channels<'a>(&self, words: &'a [&'a [u8]]) -> &'a [&'a [u8]] {
        let words = words.get(1..).unwrap_or_default();
        if self.is(Flag::Channels) {
            words
        } else if self.is(Flag::Channel) {
            &words[..words.len().min(1)]
        } else {
            &[]
        }
    }

    /// Returns the keys among the words of a call.
    pub(super) fn keys<'a>(&self, words: &'a [&'a [u8]]) -> &'a [&'a [u8]] {
        match self.name {
            "eval" | "evalsha" => {
                let count = words
                    .get(2)
                    .and_then(|text| number::integer(text))
                    .and_then(|count| usize::try_from(count).ok());
                words
                    .get(3..)
                    .and_then(|rest| rest.get(..count?))
                    .unwrap_or_default()
            }
            "del" | "exists" | "unlink" => &words[1..],
            "asking" | "auth" | "client" | "cluster" | "hello" | "info" | "ping" | "publish"
            | "pubsub" | "script" | "select" | "sentinel" | "subscribe" | "time"
            | "unsubscribe" => &[],
            _ => &words[1..2],
        }
    }

    /// Returns the name of the subcommand that `words` call, if the command has some and not this
    /// one.
    pub(super) fn lacks<'a>(&self, words: &[&'a [u8]]) -> Option<&'a [u8]> {
        let subcommand = words.get(1).copied()?;
        let known: &[&str] = match self.name {
            "client" => &[],
            "cluster" => &["NODES", "SLOTS"],
            "pubsub" => &["NUMSUB"],
            "script" => &["EXISTS", "FLUSH"],
            "sentinel" => &["GET-MASTER-ADDR-BY-NAME", "MASTER"],
            _ => return None,
        };
        (!known.contains(&word(subcommand).as_str())).then_some(subcommand)
    }

    pub(super) fn run(&self, state: &mut State, words: &[&[u8]]) -> Outcome {
        (self.run)(state, words)
    }
}

/// Returns a word that is an option or a name, in upper case.
fn word(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).to_ascii_uppercase()
}

fn integer_at(args: &[&[u8]], index: usize) -> Result<i64, Refusal> {
    args.get(index)
        .and_then(|text| number::integer(text))
        .ok_or(Refusal::NOT_AN_INTEGER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name() {
        for command in COMMANDS {
            let found = Command::find(command.name.to_uppercase().as_bytes());
            assert!(
                found.is_some_and(|found| found.name == command.name),
                "{}",
                command.name
            );
        }
    }
}
