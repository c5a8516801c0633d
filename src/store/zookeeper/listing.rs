//! Finds the locks of an ensemble: znodes with an entry of a line, of whichever client. It walks
//! from the chroot down, and reads names only.
//!
//! The walk is bounded, since znodes may be others' data: it goes so deep and no deeper, and looks at
//! so many znodes. What the user may not list is taken for a lock that the user may not read.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::stream;

use super::ensemble::{Ensemble, Visit};
use super::jute::{Request, error};
use super::line;
use super::path::is_reserved;
use super::refused;
use super::view::{LEASES, MUTEX};
use crate::clock;
use crate::lock::key::Key;
use crate::store::{Fault, FaultKind, Page, Pages};

/// Most parts of a lock's name.
const DEEPEST: usize = 8;

/// Most znodes that are looked at.
const MOST: u64 = 10_000;

/// Number of znodes in a page.
const PAGE: usize = 200;

/// The part of a walk that is still to be done.
struct Walk {
    ensemble: Arc<Ensemble>,
    chroot: String,
    /// The slash that the names of locks begin with here, if they do. It is no part of their paths.
    lead: &'static str,
    /// The beginning of the names that are wanted, without that.
    wanted: String,
    visit: Option<Visit>,
    /// Names below the chroot, with their number of parts.
    left: VecDeque<(String, usize)>,
    visited: u64,
}

/// Finds the locks below `chroot` whose names begin with `wanted`.
pub(super) fn pages(ensemble: Arc<Ensemble>, chroot: &str, wanted: &str) -> Pages {
    let (lead, wanted) = match wanted.strip_prefix('/') {
        Some(wanted) => ("/", wanted),
        None => ("", wanted),
    };
    let walk = Walk {
        ensemble,
        chroot: chroot.to_owned(),
        lead,
        wanted: wanted.to_owned(),
        visit: None,
        left: VecDeque::from([(String::new(), 0)]),
        visited: 0,
    };
    Box::pin(stream::try_unfold(walk, |mut walk| async move {
        if walk.left.is_empty() {
            if let Some(visit) = walk.visit.take() {
                visit.end().await;
            }
            return Ok(None);
        }
        let limit = walk.ensemble.limit();
        let page = clock::until(clock::now() + limit, walk.page()).await;
        let page = page.unwrap_or_else(|| Err(Fault::timeout(limit)))?;
        Ok(Some((page, walk)))
    }))
}

impl Walk {
    /// Looks at the next znodes.
    async fn page(&mut self) -> Result<Page, Fault> {
        let count = self.left.len().min(PAGE);
        let next: Vec<_> = self.left.drain(..count).collect();
        self.visited += count as u64;
        if self.visited > MOST {
            return Err(too_many());
        }
        let visit = match &mut self.visit {
            Some(visit) => visit,
            none => none.insert(self.ensemble.visit(&[]).await?.0),
        };
        let ask = |(name, _): &(String, usize)| Request::Children(znode(&self.chroot, name), false);
        let xids: Vec<i32> = next
            .iter()
            .map(|znode| visit.0.queue(&ask(znode)))
            .collect();
        let (mut keys, mut closed, mut found) = (Vec::new(), Vec::new(), Vec::new());
        let lead = self.lead;
        let key = |name: &str| Key::new("", &format!("{lead}{name}"));
        for ((name, depth), xid) in next.into_iter().zip(xids) {
            let children = match visit.0.reply(xid).await?.children()? {
                Ok(children) => children,
                Err(error::NO_NODE) => continue,
                // Of what is wanted, nothing is above it.
                Err(error::NO_AUTH) if !name.is_empty() && name.starts_with(&self.wanted) => {
                    closed.extend(key(&name));
                    continue;
                }
                Err(code) => return Err(refused(code)),
            };
            if let Some(lock) = lock_of(&name, &children)
                && lock.starts_with(&self.wanted)
            {
                keys.extend(key(lock));
            }
            found.push((name, depth, children));
        }
        for (name, depth, children) in found {
            if depth < DEEPEST {
                let below = |child: &String| Some((self.below(&name, child)?, depth + 1));
                let is_semaphore = children.iter().any(|child| child == LEASES);
                let is_other = |child: &&String| !(is_semaphore && *child == MUTEX);
                let below: Vec<_> = children.iter().filter(is_other).filter_map(below).collect();
                self.left.extend(below);
            }
        }
        Ok(Page {
            keys,
            closed,
            visited: count as u64,
            total: None,
        })
    }

    /// Returns the name of a child that may be a wanted lock, or may have one below it.
    fn below(&self, name: &str, child: &str) -> Option<String> {
        let slash = if name.is_empty() { "" } else { "/" };
        let name = format!("{name}{slash}{child}");
        let is_wanted = name.starts_with(&self.wanted) || self.wanted.starts_with(&name);
        let is_own = self.chroot.is_empty() && is_reserved(&name);
        (is_wanted && !is_own && !line::is_entry(child)).then_some(name)
    }
}

/// Returns the lock that has these children, or of whose semaphore they are the leases.
fn lock_of<'n>(name: &'n str, children: &[String]) -> Option<&'n str> {
    if children.iter().any(|child| line::is_entry(child)) {
        return Some(name);
    }
    let lock = name.strip_suffix(LEASES)?.strip_suffix('/')?;
    children
        .iter()
        .any(|child| line::is_lease(child))
        .then_some(lock)
}

/// Returns the path of the znode of this name.
fn znode(chroot: &str, name: &str) -> String {
    match (chroot, name) {
        ("", "") => "/".to_owned(),
        (chroot, "") => chroot.to_owned(),
        (chroot, name) => format!("{chroot}/{name}"),
    }
}

fn too_many() -> Fault {
    let why = format!("it has more than {MOST} znodes there; name the locks, or write a chroot");
    Fault::new(FaultKind::Unknown, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::net::quorum::QuorumAccess;
    use crate::store::zookeeper::ensemble::dial;
    use std::time::Duration;

    fn walk(chroot: &str, wanted: &str) -> Walk {
        let ensemble = Ensemble::new(QuorumAccess::default(), dial(None), Duration::ZERO);
        Walk {
            ensemble: Arc::new(ensemble),
            chroot: chroot.to_owned(),
            lead: "",
            wanted: wanted.to_owned(),
            visit: None,
            left: VecDeque::new(),
            visited: 0,
        }
    }

    #[test]
    fn a_walk_goes_where_wanted_locks_may_be() {
        let all = walk("", "");
        assert_eq!(all.below("", "a").as_deref(), Some("a"));
        assert_eq!(all.below("a", "b").as_deref(), Some("a/b"));
        assert_eq!(all.below("a", "x-lock-0000000001"), None);
        assert_eq!(all.below("", "zookeeper"), None);
        assert!(walk("/x", "").below("", "zookeeper").is_some());
        let some = walk("", "a/b");
        assert!(some.below("", "a").is_some() && some.below("a", "bc").is_some());
        assert_eq!(some.below("a", "c"), None);
        let children = |name: &str| [format!("x-{name}-0000000001")];
        assert_eq!(lock_of("a/b", &children("lock")), Some("a/b"));
        assert_eq!(lock_of("a/leases", &children("lease")), Some("a"));
        assert_eq!(lock_of("a/leases", &children("lock")), Some("a/leases"));
        assert_eq!(lock_of("a/b", &children("lease")), None);
        assert_eq!(lock_of("leases", &children("lease")), None);
        assert_eq!(znode("", ""), "/");
        assert_eq!(znode("/x", ""), "/x");
        assert_eq!(znode("", "a/b"), "/a/b");
    }
}
