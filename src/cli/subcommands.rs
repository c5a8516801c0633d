//! The options of the subcommands other than `run`: clap's types and nothing else.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::values::{fence, lock_name, restart_guard, slot, token};
use super::{CopyArgs, FileArgs, LockArgs, NodeArgs, OutputArgs};
use crate::lock::fence::Fence;
use crate::lock::restart::RestartGuard;
use crate::lock::token::Token;
use crate::store::examine::Role;
use crate::text::duration;

/// `--format` of `acquire`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum Format {
    /// `RLOCK_KEY=…`, `RLOCK_TOKEN=…`, `RLOCK_FENCE=…` and with slots `RLOCK_SLOT=…`, one a line
    Env,
    /// An object: key, token, fence, slot, `ttl_ms` (how long the lock is certainly held)
    Json,
    /// The token alone
    Token,
}

/// `--format` of `inspect`. It has no variable: `RLOCK_FORMAT` is that of `acquire`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum InspectFormat {
    /// One row a lock
    Table,
    /// An array with one object a lock
    Json,
    /// The same, as wide as it is
    Wide,
    /// The name of each lock that is held
    Name,
    /// Gauges
    #[value(name = "openmetrics")]
    OpenMetrics,
}

#[allow(clippy::doc_markdown)]
#[derive(Args, Debug)]
pub struct AcquireArgs {
    #[command(flatten)]
    pub lock: LockArgs,

    /// Output: token, json or env
    ///
    /// token is the token alone. json is key, token, fence, slot and the ttl_ms that are certainly
    /// left. env are lines RLOCK_KEY=…, RLOCK_TOKEN=…, RLOCK_FENCE=… and with slots RLOCK_SLOT=…
    /// for a shell's eval and for $GITHUB_ENV.
    #[arg(
        long,
        value_name = "FORMAT",
        env = "RLOCK_FORMAT",
        default_value = "token",
        hide_possible_values = true
    )]
    #[arg(help_heading = "Output")]
    pub format: Format,

    #[command(flatten)]
    pub output: OutputArgs,
}

#[allow(clippy::doc_markdown)]
#[derive(Args, Debug)]
#[command(next_help_heading = "Lock")]
pub struct HeldArgs {
    /// The lock's name, as it was taken, even if it looks like an option
    #[arg(
        short,
        long,
        value_name = "NAME",
        env = "RLOCK_KEY",
        required_unless_present = "name"
    )]
    pub key: Option<String>,

    /// The lock's name, as it was taken
    #[arg(value_name = "KEY", id = "name", value_parser = lock_name)]
    pub name: Option<String>,

    /// Proof that the lock is the caller's, as acquire printed it or the command found it
    #[arg(long, value_name = "TOKEN", env = "RLOCK_TOKEN", value_parser = token)]
    pub token: Token,

    #[command(flatten)]
    pub nodes: NodeArgs,

    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Args, Debug)]
pub struct RenewArgs {
    #[command(flatten)]
    pub held: HeldArgs,

    /// The lock's fence, for a server that has forgotten it
    #[arg(long, value_name = "N", env = "RLOCK_FENCE", value_parser = fence, help_heading = "Lock")]
    pub fence: Option<Fence>,

    /// How long the lock is to last from now on [default: as long as it was taken for]
    #[arg(long, value_name = "DUR", env = "RLOCK_TTL", value_parser = duration::parse, help_heading = "Lock")]
    pub ttl: Option<Duration>,

    #[command(flatten)]
    pub copies: CopyArgs,
}

#[derive(Args, Debug)]
pub struct CheckArgs {
    #[command(flatten)]
    pub held: HeldArgs,

    /// Also require this fence
    #[arg(long, value_name = "N", env = "RLOCK_FENCE", value_parser = fence, help_heading = "Lock")]
    pub fence: Option<Fence>,

    /// Also require that the lock stays the caller's for this long without a renewal
    #[arg(long = "for", value_name = "DUR", value_parser = duration::parse, env = "RLOCK_FOR", help_heading = "Lock")]
    pub at_least: Option<Duration>,
}

#[allow(clippy::doc_markdown)]
#[derive(Args, Debug)]
#[command(override_usage = "rlock inspect [OPTIONS] [-k NAME]... [KEY|PATTERN]...")]
pub struct InspectArgs {
    /// A lock's name, even if it looks like a pattern or an option
    #[arg(short = 'k', long = "key", value_name = "NAME", help_heading = "Lock")]
    pub keys: Vec<String>,

    /// Names of locks, or patterns (*, ?, [a-z], [!a-z]) for locks used within a week; without
    /// either, all of those
    #[arg(value_name = "KEY|PATTERN", value_parser = lock_name)]
    pub words: Vec<String>,

    /// Only locks that a client on this host holds
    #[arg(long, value_name = "HOST", help_heading = "Lock")]
    pub host: Option<String>,

    #[command(flatten)]
    pub nodes: NodeArgs,

    /// Print an array with one object a key instead of the table
    #[arg(long, env = "RLOCK_JSON", help_heading = "Output")]
    pub json: bool,

    /// Output: table, wide (a table that is not cut), name (of each lock that is held), json (as
    /// --json) or openmetrics, gauges of locks and nodes for Prometheus [default: table]
    #[arg(
        short = 'o',
        long,
        value_name = "FORMAT",
        hide_possible_values = true,
        help_heading = "Output"
    )]
    pub format: Option<InspectFormat>,

    /// Redraw every 2s, or at the given interval, until q is pressed
    #[arg(long, value_name = "DUR", env = "RLOCK_WATCH", value_parser = duration::parse_or_seconds)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "2s", help_heading = "Output")]
    pub watch: Option<Duration>,

    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// A lock for these nodes: checks that the ACL allows its key, and makes the ACL line for it
    /// alone
    #[arg(short = 'k', long = "key", value_name = "NAME", help_heading = "Lock")]
    pub keys: Vec<String>,

    /// Makes the ACL line for all locks whose names match, such as deploy-*
    #[arg(
        long = "pattern",
        value_name = "PATTERN",
        help_heading = "Lock",
        hide_short_help = true
    )]
    pub patterns: Vec<String>,

    /// The user's work: job runs commands under locks, operator shows and breaks them, monitor
    /// shows them
    #[arg(
        long,
        value_name = "ROLE",
        default_value = "job",
        help_heading = "Lock",
        hide_short_help = true
    )]
    pub role: Role,

    #[command(flatten)]
    pub nodes: NodeArgs,

    /// The lease length you plan to use; nodes that are too slow for it are reported
    #[arg(long, value_name = "DUR", env = "RLOCK_TTL", default_value = "30s", value_parser = duration::parse)]
    #[arg(help_heading = "Lock")]
    pub ttl: Duration,

    /// The restart guard you plan to use, as for run
    #[arg(
        long,
        value_name = "auto|off|DUR",
        env = "RLOCK_RESTART_GUARD",
        default_value = "auto"
    )]
    #[arg(value_parser = restart_guard, help_heading = "Lock")]
    pub restart_guard: RestartGuard,

    /// Print what grants a user exactly the rights that rlock needs: an ACL line, commands or SQL
    ///
    /// It is also printed where a node's user lacks a right. --json has it always.
    #[arg(long, help_heading = "Output")]
    pub acl: bool,

    /// Also take the lock rlock-doctor at each node, and give it back
    #[arg(long = "try", help_heading = "Lock")]
    pub tries: bool,

    /// Print one object instead of the table
    #[arg(long, env = "RLOCK_JSON", help_heading = "Output")]
    pub json: bool,

    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Args, Debug)]
#[command(override_usage = "rlock break [OPTIONS] [-k NAME]... [KEY|PATTERN]...")]
pub struct BreakArgs {
    /// A lock's name, even if it looks like a pattern or an option
    #[arg(short = 'k', long = "key", value_name = "NAME", help_heading = "Lock")]
    pub keys: Vec<String>,

    /// Names of locks, or patterns (*, ?, [a-z], [!a-z]) for locks that are held
    #[arg(value_name = "KEY|PATTERN", required_unless_present_any = ["keys", "host"], value_parser = lock_name)]
    pub words: Vec<String>,

    /// Break what clients on this host hold, of all locks where none is named
    #[arg(long, value_name = "HOST", help_heading = "Lock")]
    pub host: Option<String>,

    /// Break the lock of this token alone
    #[arg(long, value_name = "TOKEN", help_heading = "Lock")]
    pub token: Option<Token>,

    /// Break the lock of the holder of this slot alone
    #[arg(long, value_name = "I", help_heading = "Lock", value_parser = slot)]
    pub slot: Option<u16>,

    /// Why: the holder says it, and inspect shows it
    #[arg(long, value_name = "TEXT", help_heading = "Lock")]
    pub reason: Option<String>,

    /// Do not ask
    #[arg(short, long, help_heading = "Lock")]
    pub yes: bool,

    /// Delete the key at once: the holder's command may run on, not alone, until its next renewal
    #[arg(long, help_heading = "Lock")]
    pub now: bool,

    /// Break also a value that rlock did not write
    #[arg(long, help_heading = "Lock")]
    pub foreign: bool,

    #[command(flatten)]
    pub nodes: NodeArgs,

    #[command(flatten)]
    pub output: OutputArgs,
}

#[allow(clippy::doc_markdown)]
#[derive(Args, Debug)]
pub struct ConfigArgs {
    /// A lock: shows the settings that runs of it have; repeated, those of one run of all of them
    #[arg(short = 'k', long = "key", value_name = "NAME", help_heading = "Lock")]
    pub keys: Vec<String>,

    /// Check every section of the files instead, and print the names of the files
    #[arg(long, conflicts_with = "keys", help_heading = "Configuration")]
    pub check: bool,

    /// Show also settings that have their built-in value, as --json does
    #[arg(long, help_heading = "Output")]
    pub all: bool,

    #[command(flatten)]
    pub files: FileArgs,

    /// Print an array with one object a setting instead of the table
    #[arg(long, env = "RLOCK_JSON", help_heading = "Output")]
    pub json: bool,

    #[command(flatten)]
    pub output: OutputArgs,
}
