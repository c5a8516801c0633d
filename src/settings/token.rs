//! What those mean who see to a lock from outside: which nodes, which lock, whose.

use std::time::Duration;

use super::{StoreConfig, outer_locks, place, usage};
use crate::cli::subcommands::HeldArgs;
use crate::cli::{NodeArgs, OutputArgs, Sources};
use crate::exit::Failure;
use crate::lock::key::Key;
use crate::lock::token::Token;
use crate::report::Reporter;

/// Limit for each exchange of a command that has no TTL to take a share of.
pub const NODE_TIMEOUT: Duration = Duration::from_secs(1);

/// Clock-rate error allowed for, as a fraction: the default of `--drift`.
pub const DRIFT: f64 = 0.01;

/// The nodes, and how long each may take.
pub struct NodeSettings {
    /// The nodes.
    pub place: StoreConfig,
    /// Limit for each exchange with one of them.
    pub limit: Duration,
    /// Whether nobody chose the node: then an unreachable one is perhaps not meant at all.
    pub node_is_default: bool,
}

impl NodeSettings {
    /// Checks what was typed.
    pub fn new(args: &NodeArgs, sources: &Sources) -> Result<Self, Failure> {
        Ok(Self {
            place: place(args)?,
            limit: args.node_timeout.unwrap_or(NODE_TIMEOUT),
            node_is_default: !sources.given("node"),
        })
    }

    /// Refuses `local`: such a lock ends with its process, so `what` cannot concern one.
    pub fn needs_server(&self, what: &str) -> Result<(), Failure> {
        needs_server(&self.place, what)
    }
}

/// Refuses `local` for the subcommand `what`.
pub fn needs_server(place: &StoreConfig, what: &str) -> Result<(), Failure> {
    match place {
        StoreConfig::Servers(_) => Ok(()),
        StoreConfig::Local(_) => {
            Err(usage(format!("{what} needs a server: a lock on this machine alone ends with the rlock that holds it")))
        }
    }
}

/// A lock that the caller says is its own.
pub struct TokenSettings {
    /// The lock.
    pub key: Key,
    /// The caller's proof.
    pub token: Token,
    /// Whether the environment says that an `rlock run` above us keeps it.
    pub is_kept: bool,
    /// Where it lives.
    pub reach: NodeSettings,
    /// Says what happens.
    pub report: Reporter,
}

impl TokenSettings {
    /// Checks what was typed.
    pub fn new(args: &HeldArgs, output: &OutputArgs, sources: &Sources) -> Result<Self, Failure> {
        let key = Key::new(&args.nodes.prefix, &args.key).map_err(usage)?;
        let report = Reporter { key: key.clone(), log: output.log, quiet: output.quiet, verbose: output.verbose };
        let is_kept = outer_locks().is_run(args.token);
        Ok(Self { key, token: args.token, is_kept, reach: NodeSettings::new(&args.nodes, sources)?, report })
    }
}
