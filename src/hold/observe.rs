//! Looks at all nodes at once, which change nothing: at one lock, and for the names of all locks.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::TryStreamExt;
use futures_util::future::join_all;

use super::Nodes;
use crate::clock;
use crate::lock::census::Census;
use crate::lock::fault::{Fault, FaultKind, Faults};
use crate::lock::key::Key;
use crate::lock::messages::{Observation, Server};
use crate::store::{Look, Node, Page, Pages, Store};
use crate::text::duration;

/// The nodes' answers.
pub struct Observations {
    /// Each node's observation; `None` if it gave no answer.
    pub of_nodes: Vec<Option<Observation>>,
    /// The nodes that gave none.
    pub faults: Faults,
    /// The server that answers for each node, or should; see [`Node::server`].
    pub servers: Vec<Option<Server>>,
}

impl Observations {
    /// Returns the nodes that will not answer another question soon either, whatever lock it is
    /// about.
    pub fn away(&self) -> Faults {
        self.faults
            .only(|fault| matches!(fault.kind, FaultKind::Unavailable | FaultKind::Unknown))
    }

    /// Returns what the answers come to.
    pub fn census(&self) -> Census<'_> {
        Census::of(&self.of_nodes)
    }
}

/// Room for one node's answers to many observations, in bytes: some 10,000 locks that are held.
const ROOM: usize = 8 << 20;

/// The room that is left for each node. A node that invents locks must not use our memory up.
pub struct Room {
    left: Vec<usize>,
    /// The nodes that are not asked any more.
    away: Faults,
    is_overfull: bool,
}

impl Room {
    /// Room for each of that many nodes, of which those `away` are not asked.
    pub fn new(nodes: usize, away: Faults) -> Self {
        Self {
            left: vec![ROOM; nodes],
            away,
            is_overfull: false,
        }
    }

    /// Counts `seen`. A node that has told more than there is room for is not asked any more.
    pub fn count(&mut self, stores: &[Box<dyn Store>], seen: &Observations) {
        for (node, observation) in seen.of_nodes.iter().enumerate() {
            let takes = observation
                .as_ref()
                .map_or(0, |observation| observation.size);
            if takes > self.left[node] && self.away.of(node).is_none() {
                let why = format!(
                    "its locks take over {} MiB; name those that are meant",
                    ROOM >> 20
                );
                self.is_overfull = true;
                self.away.push(
                    node,
                    stores[node].name(),
                    Fault::new(FaultKind::Unknown, why),
                );
            }
            self.left[node] = self.left[node].saturating_sub(takes);
        }
    }

    /// Whether a node has told more than there is room for.
    pub fn is_overfull(&self) -> bool {
        self.is_overfull
    }

    /// Returns the nodes that are not asked any more.
    pub fn away(&self) -> &Faults {
        &self.away
    }
}

/// Asks all nodes for what is `wanted`, until `enough` says that more would change nothing, at most
/// for `limit`.
pub async fn observe(
    nodes: &Nodes,
    limit: Duration,
    wanted: Look,
    enough: impl Fn(&Census) -> bool,
) -> Observations {
    observe_but(nodes, &Faults::default(), limit, wanted, enough).await
}

/// Like [`observe`], but does not ask the nodes `away`, which have just failed.
pub async fn observe_but(
    nodes: &Nodes,
    away: &Faults,
    limit: Duration,
    wanted: Look,
    enough: impl Fn(&Census) -> bool,
) -> Observations {
    let mut seen = Observations {
        of_nodes: vec![None; nodes.len()],
        faults: away.clone(),
        servers: Vec::new(),
    };
    let request =
        |node: usize, there: &dyn Node| away.of(node).is_none().then(|| there.look(wanted));
    let faults = nodes.ask(limit, request, |node, observation| {
        seen.of_nodes[node] = Some(observation?);
        Ok(enough(&seen.census()))
    });
    let faults = faults.await;
    seen.faults.extend(faults);
    seen.servers = nodes.iter().map(|node| node.server()).collect();
    seen
}

/// Room for the names that one node tells, in bytes: some 20,000 of ordinary length. A server that
/// invents names must not use our memory up.
const NAMES_ROOM: usize = 4 << 20;

/// Bytes that a name takes besides its own, which are kept twice.
const NAME: usize = 120;

/// The result of a scan.
#[derive(Default)]
pub struct ScanResult {
    /// The locks, by the names under which they are stored.
    pub keys: Vec<Key>,
    /// The places that the user may not list.
    pub closed: Vec<Key>,
    /// The nodes that could not be scanned.
    pub faults: Faults,
}

/// Longest walk: a server may invent locks without end.
const LONGEST_WALK: Duration = Duration::from_secs(300);

/// Walks through the keys of all nodes at once. `wanted` chooses among the locks under `prefix`;
/// `progress` is told how many keys have been looked at, of how many.
pub async fn scan(
    stores: &[Box<dyn Store>],
    prefix: &str,
    wanted: impl Fn(&Key) -> bool,
    progress: impl Fn(u64, u64),
) -> ScanResult {
    let (seen, of) = (std::cell::Cell::new(0), std::cell::Cell::new(0_u64));
    let walk = async |store: &dyn Store| {
        let pages = store.listing().ok_or_else(cannot_list)?.pages(prefix);
        let mut is_first = true;
        let visited = |page: &Page| {
            if std::mem::take(&mut is_first) {
                of.set(of.get().saturating_add(page.total.unwrap_or_default()));
            }
            seen.set(seen.get() + page.visited);
            progress(seen.get(), of.get());
        };
        names(pages, &wanted, visited).await
    };
    let (mut all, mut closed) = (BTreeSet::new(), Vec::new());
    let mut faults = Faults::default();
    for (node, walked) in join_all(stores.iter().map(|store| walk(store.as_ref())))
        .await
        .into_iter()
        .enumerate()
    {
        match walked {
            Ok((keys, places)) => {
                all.extend(keys);
                closed.extend(places);
            }
            Err(fault) => faults.push(node, stores[node].name(), fault),
        }
    }
    ScanResult {
        keys: all.into_iter().collect(),
        closed,
        faults,
    }
}

/// Returns the `wanted` locks of all pages, and the places that the user may not list. `visited` is told
/// of each page.
async fn names(
    mut pages: Pages,
    wanted: impl Fn(&Key) -> bool,
    mut visited: impl FnMut(&Page),
) -> Result<(BTreeSet<Key>, Vec<Key>), Fault> {
    let (mut keys, mut closed, mut room) = (BTreeSet::new(), Vec::new(), NAMES_ROOM);
    let ends = clock::now() + LONGEST_WALK;
    while let Some(page) = pages.try_next().await? {
        if clock::now() >= ends {
            return Err(endless());
        }
        visited(&page);
        closed.extend(page.closed);
        for key in page.keys.into_iter().filter(&wanted) {
            let takes = NAME + 2 * key.stored().len();
            if keys.insert(key) {
                room = room.checked_sub(takes).ok_or_else(too_many)?;
            }
        }
    }
    Ok((keys, closed))
}

fn cannot_list() -> Fault {
    Fault::new(FaultKind::Unfit, "it cannot list its locks; name them")
}

fn endless() -> Fault {
    let why = format!(
        "its list of locks is not at its end after {}; name the locks",
        duration::show(LONGEST_WALK)
    );
    Fault::new(FaultKind::Unknown, why)
}

fn too_many() -> Fault {
    let why = format!(
        "its locks' names take over {} MiB; name the locks, or give a pattern that fewer match",
        NAMES_ROOM >> 20
    );
    Fault::new(FaultKind::Unknown, why)
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;
    use crate::clock::virtual_time;

    /// The pages of a server that invents a lock each second.
    fn invented() -> Pages {
        Box::pin(stream::unfold(0, async |number: u64| {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let page = Page {
                keys: vec![Key::new("", &number.to_string()).expect("a name")],
                visited: 1,
                total: None,
                ..Page::default()
            };
            Some((Ok(page), number + 1))
        }))
    }

    #[test]
    fn a_list_without_an_end_is_given_up() {
        virtual_time::run(async {
            let begin = clock::now();
            let fault = names(invented(), |_| true, |_| {}).await.unwrap_err();
            assert_eq!(clock::now().since(begin), LONGEST_WALK);
            assert!(fault.why.contains("not at its end after 5m"), "{fault:?}");
        });
    }
}
