//! The data of one server, and who watches them.

use std::collections::{BTreeMap, BTreeSet};

use rlock::store::zookeeper::jute::Request;

use super::tree::{Answer, Happening, Transaction, Tree, parent};
use crate::network::SocketId;

/// Watches of one kind, by path. Each is told once.
type Watches = BTreeMap<String, BTreeSet<SocketId>>;

/// The data of a server, and the connections that watch some.
#[derive(Clone, Debug, Default)]
pub struct Replica {
    tree: Tree,
    of_data: Watches,
    of_children: Watches,
}

/// A watcher, and the change that it is told of.
pub type Told = (SocketId, Happening, String);

impl Replica {
    /// A replica of these data.
    pub fn of(tree: Tree) -> Self {
        Self {
            tree,
            ..Self::default()
        }
    }

    /// Its data.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Answers a read.
    pub fn read(&mut self, by: SocketId, request: &Request) -> Answer {
        let (answer, path, watches) = match request {
            Request::Data(path, true) => (self.tree.data(path), path, &mut self.of_data),
            Request::Children(path, true) => {
                (self.tree.children(path), path, &mut self.of_children)
            }
            Request::Data(path, false) => return self.tree.data(path),
            Request::Children(path, false) => return self.tree.children(path),
            _ => return Answer::Nothing,
        };
        if !matches!(answer, Answer::Failed(_)) {
            watches.entry(path.clone()).or_default().insert(by);
        }
        answer
    }

    /// Executes a transaction. Returns its answer, and who is told of it.
    pub fn execute(&mut self, transaction: &Transaction) -> (Answer, Vec<Told>) {
        let (answer, changes) = self.tree.execute(transaction);
        let mut told = Vec::new();
        for (happening, path) in changes {
            let watchers = self.of_data.remove(&path).unwrap_or_default();
            if happening == Happening::Deleted {
                // Who watches both is told once (`DataTree.java`, deleteNode).
                let others = self.of_children.remove(&path).unwrap_or_default();
                let others = others.difference(&watchers);
                told.extend(others.map(|by| (*by, happening, path.clone())));
            }
            told.extend(watchers.into_iter().map(|by| (by, happening, path.clone())));
            if happening != Happening::Data
                && let Some(above) = parent(&path)
            {
                let watchers = self.of_children.remove(above).unwrap_or_default();
                let tell = |by| (by, Happening::Children, above.to_owned());
                told.extend(watchers.into_iter().map(tell));
            }
        }
        (answer, told)
    }

    /// Forgets the watches of a connection.
    pub fn forget(&mut self, connection: SocketId) {
        for watches in [&mut self.of_data, &mut self.of_children] {
            watches.retain(|_, watchers| {
                watchers.remove(&connection);
                !watchers.is_empty()
            });
        }
    }
}
