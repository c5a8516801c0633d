//! All locks that a majority of the nodes knows of.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;

use crate::lock::key::Key;
use crate::node::Fault;
use crate::node::link::Access;
use crate::node::survey::Survey;

/// What was found.
pub struct Found {
    /// The locks, by the names under which they are stored.
    pub keys: Vec<Key>,
    /// The nodes that could not be walked through, by their numbers, and why.
    pub faults: Vec<(usize, Fault)>,
}

/// Walks through the keys of all nodes at once. `wanted` chooses among the locks under `prefix`; `progress` is told how
/// many keys have been looked at, of how many.
pub async fn survey(
    servers: &[Access],
    limit: Duration,
    prefix: &str,
    wanted: impl Fn(&Key) -> bool,
    progress: impl Fn(u64, u64),
) -> Found {
    let (seen, of) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let walk = async |access: &Access| -> Result<Vec<Key>, Fault> {
        let mut survey = Survey::begin(access, limit).await?;
        of.set(of.get() + survey.size().await?.unwrap_or_default());
        let mut keys = Vec::new();
        while let Some(names) = survey.step().await? {
            keys.extend(names.iter().filter_map(|name| Key::of_derived("fence", name, prefix)).filter(&wanted));
            seen.set(seen.get() + survey.stride());
            progress(seen.get(), of.get());
        }
        Ok(keys)
    };
    let mut all = BTreeMap::new();
    let mut faults = Vec::new();
    for (node, walked) in join_all(servers.iter().map(walk)).await.into_iter().enumerate() {
        match walked {
            Ok(keys) => all.extend(keys.into_iter().map(|key| (key.stored().to_owned(), key))),
            Err(fault) => faults.push((node, fault)),
        }
    }
    Found { keys: all.into_values().collect(), faults }
}
