//! Settings of the subcommands that work on an existing lock: its nodes, its key and the caller's token.

use std::time::Duration;

use super::{StoreConfig, key, outer_locks, reporter};
use crate::cli::subcommands::HeldArgs;
use crate::cli::{NodeArgs, OutputArgs, Sources};
use crate::exit::Failure;
use crate::lock::key::Key;
use crate::lock::request::Copies;
use crate::lock::token::Token;
use crate::report::Reporter;

/// Limit for each exchange of a subcommand without a TTL to take a share of.
pub const NODE_TIMEOUT: Duration = Duration::from_secs(1);

/// The nodes, and the limit for each exchange.
pub struct NodeSettings {
    pub place: StoreConfig,
    /// Limit for each exchange with one of them.
    pub limit: Duration,
    /// `--wait-replicas` and `--fsync` of `renew`.
    pub copies: Option<Copies>,
}

impl NodeSettings {
    /// Checks what was typed.
    pub fn new(args: &NodeArgs, sources: &Sources) -> Result<Self, Failure> {
        Ok(Self {
            place: StoreConfig::new(args, sources)?,
            limit: args.node_timeout.unwrap_or(NODE_TIMEOUT),
            copies: None,
        })
    }
}

/// A lock that the caller claims by its token.
pub struct HeldLock {
    pub key: Key,
    pub token: Token,
    /// Whether the environment says that an outer `rlock run` renews and releases it.
    pub is_kept: bool,
    pub report: Reporter,
    pub reach: NodeSettings,
}

impl HeldLock {
    /// Checks what was typed.
    pub fn new(args: &HeldArgs, output: &OutputArgs, sources: &Sources) -> Result<Self, Failure> {
        let key = key(&args.nodes, &args.key)?;
        Ok(Self {
            report: reporter(&key, output),
            key,
            token: args.token,
            is_kept: outer_locks().is_run(args.token),
            reach: NodeSettings::new(&args.nodes, sources)?,
        })
    }
}
