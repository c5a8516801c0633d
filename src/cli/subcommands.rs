//! The options of the subcommands that see and handle locks rather than run a command under one.

use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use super::{LockArgs, NodeArgs, OutputArgs, yes_or_no};
use crate::lock::restart::{self, RestartGuard};
use crate::lock::token::Token;
use crate::node::address;
use crate::text::duration;

/// `--format`: how `acquire` prints what it took.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum Format {
    /// `RLOCK_KEY=…`, `RLOCK_TOKEN=…` and `RLOCK_FENCE=…`, one a line
    Env,
    /// An object: key, token, fence, `ttl_ms` (how long the lock is certainly held)
    Json,
    /// The token alone
    Token,
}

/// `rlock acquire`.
#[allow(clippy::doc_markdown)]
#[derive(Args, Debug)]
pub struct AcquireArgs {
    /// The lock.
    #[command(flatten)]
    pub lock: LockArgs,

    /// What is printed: token; json (key, token, fence and the ttl_ms that are certainly left); or env, lines RLOCK_KEY=…,
    /// RLOCK_TOKEN=… and RLOCK_FENCE=… for a shell's eval and for $GITHUB_ENV
    #[arg(long, value_name = "FORMAT", env = "RLOCK_FORMAT", default_value = "token", hide_possible_values = true)]
    #[arg(help_heading = "Output")]
    pub format: Format,

    /// What rlock prints.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Which lock is meant by those who hold it.
#[derive(Args, Debug)]
#[command(next_help_heading = "Lock")]
pub struct HeldArgs {
    /// The lock's name, as it was taken
    #[arg(short, long, value_name = "NAME", env = "RLOCK_KEY")]
    pub key: String,

    /// What proves that the lock is the caller's, as acquire printed it or the command found it
    #[arg(long, value_name = "TOKEN", env = "RLOCK_TOKEN")]
    pub token: Token,

    /// Where it lives.
    #[command(flatten)]
    pub nodes: NodeArgs,
}

/// `rlock renew`.
#[derive(Args, Debug)]
pub struct RenewArgs {
    /// The lock.
    #[command(flatten)]
    pub held: HeldArgs,

    /// The lock's fence, so that a server that forgot it learns it again
    #[arg(long, value_name = "N", env = "RLOCK_FENCE", help_heading = "Lock")]
    pub fence: Option<u64>,

    /// How long the lock is to last from now on [default: as long as it was taken for]
    #[arg(long, value_name = "DUR", env = "RLOCK_TTL", value_parser = duration::parse, allow_negative_numbers = true)]
    #[arg(help_heading = "Lock")]
    pub ttl: Option<Duration>,

    /// What rlock prints.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `rlock release`.
#[derive(Args, Debug)]
pub struct ReleaseArgs {
    /// The lock.
    #[command(flatten)]
    pub held: HeldArgs,

    /// What rlock prints.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `rlock check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// The lock.
    #[command(flatten)]
    pub held: HeldArgs,

    /// And it must have this fence
    #[arg(long, value_name = "N", env = "RLOCK_FENCE", help_heading = "Lock")]
    pub fence: Option<u64>,

    /// And it must stay the caller's for at least this long without a renewal
    #[arg(long = "for", value_name = "DUR", value_parser = duration::parse, allow_negative_numbers = true)]
    #[arg(env = "RLOCK_FOR", help_heading = "Lock")]
    pub at_least: Option<Duration>,

    /// What rlock prints.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Refuses a node's address, which may have a password in it: a word that is looked up is shown and sent.
fn lock_name(text: &str) -> Result<String, String> {
    match text.split_once("://") {
        Some((scheme, _)) if address::is_scheme(scheme) => Err("a node's address is given with --node".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

/// `rlock inspect`.
#[allow(clippy::doc_markdown)]
#[derive(Args, Debug)]
#[command(override_usage = "rlock inspect [OPTIONS] [-k NAME]... [KEY|PATTERN]...")]
pub struct InspectArgs {
    /// A lock's name, whatever it looks like
    #[arg(short = 'k', long = "key", value_name = "NAME", help_heading = "Lock")]
    pub keys: Vec<String>,

    /// Names of locks, or patterns (*, ?, [a-z]) for locks that an rlock has used within a week; neither: all of those
    #[arg(value_name = "KEY|PATTERN", value_parser = lock_name)]
    pub words: Vec<String>,

    /// Where the locks live.
    #[command(flatten)]
    pub nodes: NodeArgs,

    /// Print an array with one object a key instead of the table
    #[arg(long, env = "RLOCK_JSON", value_parser = yes_or_no, action = ArgAction::SetTrue, help_heading = "Output")]
    pub json: bool,

    /// Look again and again, every 2s or as often as said, and redraw
    #[arg(long, value_name = "DUR", env = "RLOCK_WATCH", value_parser = duration::parse_or_seconds)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "2s", allow_negative_numbers = true)]
    #[arg(help_heading = "Output")]
    pub watch: Option<Duration>,

    /// What rlock prints.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `rlock doctor`.
#[derive(Args, Debug)]
pub struct DoctorArgs {
    /// A lock that the nodes are to hold: it is tried whether its key is allowed, and the ACL line is for it alone
    #[arg(short = 'k', long = "key", value_name = "NAME", help_heading = "Lock")]
    pub keys: Vec<String>,

    /// The nodes to be looked at.
    #[command(flatten)]
    pub nodes: NodeArgs,

    /// Lease length that is to be used: are the nodes quick enough for it?
    #[arg(long, value_name = "DUR", env = "RLOCK_TTL", default_value = "30s", value_parser = duration::parse)]
    #[arg(help_heading = "Lock", allow_negative_numbers = true)]
    pub ttl: Duration,

    /// The restart guard that is to be used, as for run
    #[arg(long, value_name = "auto|off|DUR", env = "RLOCK_RESTART_GUARD", default_value = "auto")]
    #[arg(value_parser = restart::parse, help_heading = "Lock", allow_negative_numbers = true)]
    pub restart_guard: RestartGuard,

    /// Print one object instead of the table
    #[arg(long, env = "RLOCK_JSON", value_parser = yes_or_no, action = ArgAction::SetTrue, help_heading = "Output")]
    pub json: bool,

    /// What rlock prints.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `rlock break`.
#[derive(Args, Debug)]
#[command(override_usage = "rlock break [OPTIONS] KEY\n       rlock break [OPTIONS] -k NAME")]
pub struct BreakArgs {
    /// The name of the lock to break, if it looks like an option
    #[arg(short, long, value_name = "NAME", conflicts_with = "name", help_heading = "Lock")]
    pub key: Option<String>,

    /// The name of the lock to break
    #[arg(value_name = "KEY", id = "name", required_unless_present = "key", value_parser = lock_name)]
    pub name: Option<String>,

    /// Do not ask
    #[arg(short, long, action = ArgAction::SetTrue, help_heading = "Lock")]
    pub yes: bool,

    /// Delete the key at once: the holder's command may run on until its next renewal, and not alone
    #[arg(long, action = ArgAction::SetTrue, help_heading = "Lock")]
    pub now: bool,

    /// Break what is at the key even if it is none of rlock's, or a lock whose holder uses another number of nodes
    #[arg(long, action = ArgAction::SetTrue, help_heading = "Lock")]
    pub foreign: bool,

    /// Where it lives.
    #[command(flatten)]
    pub nodes: NodeArgs,

    /// What rlock prints.
    #[command(flatten)]
    pub output: OutputArgs,
}
