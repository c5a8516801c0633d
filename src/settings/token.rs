//! Settings of the subcommands that work on existing locks: their nodes, their keys and the caller's tokens.

use std::time::Duration;

use super::{StoreConfig, keys, outer_locks, reporter, usage};
use crate::cli::List;
use crate::cli::subcommands::HeldArgs;
use crate::cli::{NodeArgs, OutputArgs, Sources};
use crate::exit::Failure;
use crate::lock::fence::Fence;
use crate::lock::key::Key;
use crate::lock::keys::{Keys, SEPARATOR};
use crate::lock::request::Copies;
use crate::lock::token::Token;
use crate::report::{Problem, Reporter};

/// Limit for each exchange of a subcommand without a TTL to take a share of.
pub const NODE_TIMEOUT: Duration = Duration::from_secs(1);

/// The nodes, and the limit for each exchange.
pub struct NodeSettings {
    pub place: StoreConfig,
    /// Limit for each exchange with one of them.
    pub limit: Duration,
    /// `--wait-replicas` and `--fsync` of `renew`.
    pub copies: Option<Copies>,
    /// Whether no flag, variable or file named a node. An unreachable one is perhaps not meant then.
    pub node_is_default: bool,
}

impl NodeSettings {
    /// Checks what was typed.
    pub fn new(args: &NodeArgs, sources: &Sources) -> Result<Self, Failure> {
        Ok(Self {
            place: StoreConfig::new(args, sources)?,
            limit: args.node_timeout.unwrap_or(NODE_TIMEOUT),
            copies: None,
            node_is_default: !sources.given("node"),
        })
    }
}

/// Locks that the caller claims by their tokens.
pub struct HeldSettings {
    pub keys: Keys,
    pub locks: Vec<HeldLock>,
    pub reach: NodeSettings,
}

/// A lock that the caller claims by its token.
pub struct HeldLock {
    pub key: Key,
    pub token: Token,
    /// `--fence`.
    pub fence: Option<Fence>,
    /// Whether the environment says that an outer `rlock run` renews and releases it.
    pub is_kept: bool,
    pub report: Reporter,
}

impl HeldSettings {
    /// Checks what was typed.
    pub fn new(
        args: &HeldArgs,
        fences: Option<&List<u64>>,
        output: &OutputArgs,
        sources: &Sources,
    ) -> Result<Self, Failure> {
        let tokens = &args.token.0;
        let keys = keys(&args.nodes, &args.names())?;
        let of_environment = std::env::var("RLOCK_KEY").unwrap_or_default();
        let of_environment: Vec<&str> = of_environment.split(SEPARATOR).collect();
        // A token from the environment is that of the lock which the environment names beside it.
        let listed = |option: &str| (!sources.typed(option)).then_some(of_environment.as_slice());
        let Some(tokens) = of_keys(&keys, tokens, listed("token")) else {
            return Err(miscounted("--token", tokens.len(), keys.len()));
        };
        let fences = match fences.map(|fences| (of_keys(&keys, &fences.0, listed("fence")), fences.0.len())) {
            None => vec![None; keys.len()],
            Some((Some(fences), _)) => fences.into_iter().map(Some).collect(),
            Some((None, count)) => return Err(miscounted("--fence", count, keys.len())),
        };
        let (report, outer) = (reporter(&keys, output), outer_locks());
        let lock = |((key, token), number): ((&Key, Token), Option<u64>)| {
            let fence = |number| Fence::new(number).ok_or_else(|| Problem::InvalidFence { number }.about(key));
            let (fence, is_kept) = (number.map(fence).transpose()?, outer.is_run(token));
            Ok(HeldLock { key: key.clone(), token, fence, is_kept, report: report.of(key) })
        };
        let locks = keys.iter().zip(tokens).zip(fences).map(lock).collect::<Result<_, Failure>>()?;
        Ok(Self { keys: keys.clone(), locks, reach: NodeSettings::new(&args.nodes, sources)? })
    }
}

/// Returns the items of `keys`, one for each in their order. `listed`: the names to which a longer list belongs.
fn of_keys<T: Copy>(keys: &Keys, items: &[T], listed: Option<&[&str]>) -> Option<Vec<T>> {
    match listed.filter(|names| names.len() == items.len() && items.len() > 1) {
        Some(names) => {
            let item = |key: &Key| names.iter().position(|name| *name == key.typed()).map(|place| items[place]);
            keys.iter().map(item).collect()
        }
        None => (items.len() == keys.len()).then(|| items.to_vec()),
    }
}

fn miscounted(option: &str, items: usize, locks: usize) -> Failure {
    let s = if locks == 1 { "" } else { "s" };
    usage(format!("{option}: {items} given for {locks} lock{s}; give one for each, in the order of the locks' names"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_the_environment_belongs_to_the_names_beside_it_and_any_other_to_the_keys() {
        let keys = |names: &[&str]| Keys::new(names.iter().map(|name| Key::new("", name).unwrap()).collect()).unwrap();
        let (both, names) = (keys(&["b", "a"]), ["a", "b", "c"]);
        assert_eq!(of_keys(&both, &[1, 2], None), Some(vec![1, 2]));
        assert_eq!(of_keys(&both, &[1, 2, 3], None), None);
        assert_eq!(of_keys(&both, &[1, 2, 3], Some(&names)), Some(vec![1, 2]));
        assert_eq!(of_keys(&keys(&["c"]), &[1, 2, 3], Some(&names)), Some(vec![3]));
        assert_eq!(of_keys(&keys(&["d"]), &[1, 2, 3], Some(&names)), None);
        assert_eq!(of_keys(&keys(&["d"]), &[1], Some(&["a"])), Some(vec![1]));
    }
}
