//! All locks that a majority of the nodes knows of.

use std::collections::BTreeSet;

use futures_util::TryStreamExt;
use futures_util::future::join_all;

use crate::lock::fault::{Fault, FaultKind, Faults};
use crate::lock::key::Key;
use crate::store::Store;

/// Room for the names that one node tells, in bytes: some 20,000 of ordinary length. A server that
/// invents names must not use our memory up.
const ROOM: usize = 4 << 20;

/// Bytes that a name takes besides its own, which are kept twice.
const NAME: usize = 120;

/// The result of a scan.
pub struct ScanResult {
    /// The locks, by the names under which they are stored.
    pub keys: Vec<Key>,
    /// The nodes that could not be scanned.
    pub faults: Faults,
}

/// Walks through the keys of all nodes at once. `wanted` chooses among the locks under `prefix`;
/// `progress` is told how many keys have been looked at, of how many.
pub async fn scan(
    stores: &[Box<dyn Store>],
    prefix: &str,
    wanted: impl Fn(&Key) -> bool,
    progress: impl Fn(u64, u64),
) -> ScanResult {
    let (seen, of) = (std::cell::Cell::new(0), std::cell::Cell::new(0_u64));
    let walk = async |store: &dyn Store| -> Result<BTreeSet<Key>, Fault> {
        let (mut keys, mut room, mut is_first) = (BTreeSet::new(), ROOM, true);
        let mut pages = store.listing().ok_or_else(cannot_list)?.pages(prefix);
        while let Some(page) = pages.try_next().await? {
            if std::mem::take(&mut is_first) {
                of.set(of.get().saturating_add(page.total.unwrap_or_default()));
            }
            for key in page.keys.into_iter().filter(&wanted) {
                let takes = NAME + 2 * key.stored().len();
                if keys.insert(key) {
                    room = room.checked_sub(takes).ok_or_else(too_many)?;
                }
            }
            seen.set(seen.get() + page.visited);
            progress(seen.get(), of.get());
        }
        Ok(keys)
    };
    let mut all = BTreeSet::new();
    let mut faults = Faults::default();
    for (node, walked) in join_all(stores.iter().map(|store| walk(store.as_ref())))
        .await
        .into_iter()
        .enumerate()
    {
        match walked {
            Ok(keys) => all.extend(keys),
            Err(fault) => faults.push(node, stores[node].name(), fault),
        }
    }
    ScanResult {
        keys: all.into_iter().collect(),
        faults,
    }
}

fn cannot_list() -> Fault {
    Fault::new(FaultKind::Unfit, "it cannot list its locks; name them")
}

fn too_many() -> Fault {
    let why = format!(
        "its locks' names take over {} MiB; name the locks, or give a pattern that fewer match",
        ROOM >> 20
    );
    Fault::new(FaultKind::Unknown, why)
}
