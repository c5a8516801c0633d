//! A cluster: primaries that share the slots, their replicas, and slots that are moved by hand.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use crate::{Port, Server, eventually};

/// Number of slots.
const SLOTS: usize = 16_384;

/// Time after which the others take a silent member for dead.
pub const NODE_TIMEOUT: Duration = Duration::from_secs(1);

/// Primaries and their replicas. All of them end with it.
pub struct Cluster {
    /// The members: at first the primaries, then one replica of each, if there are any, in the same
    /// order.
    pub servers: Vec<Server>,
    replicas: usize,
}

/// A slot that is being moved from one primary to another.
pub struct Move<'a> {
    cluster: &'a Cluster,
    slot: String,
    from: usize,
    to: usize,
}

impl Cluster {
    /// Starts `primaries`, each with a replica if it is `replicated`, and waits until all members
    /// know all slots.
    pub fn start(primaries: usize, replicated: bool) -> Self {
        let total = if replicated { 2 * primaries } else { primaries };
        let servers: Vec<Server> = std::thread::scope(|scope| {
            let starting: Vec<_> = (0..total).map(|_| scope.spawn(member)).collect();
            starting
                .into_iter()
                .map(|server| server.join().expect("a server"))
                .collect()
        });
        for (number, server) in servers.iter().enumerate() {
            server.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
            server.cli(&[
                "CLUSTER",
                "MEET",
                "127.0.0.1",
                &servers[0].port().to_string(),
            ]);
        }
        for (number, primary) in servers[..primaries].iter().enumerate() {
            add_slots(
                primary,
                SLOTS * number / primaries..SLOTS * (number + 1) / primaries,
            );
        }
        let all = Self {
            servers,
            replicas: total - primaries,
        };
        for (number, replica) in all.servers.iter().enumerate().skip(primaries) {
            let id = all.id(number - primaries);
            eventually("it replicates", || {
                replica.cli(&["CLUSTER", "REPLICATE", &id]) == "OK"
            });
        }
        all.settled();
        all
    }

    /// Starts a server that is a cluster by itself, with more options for its port.
    pub fn single(more: impl Fn(u16) -> Vec<String>) -> Server {
        let server = member_with(more);
        add_slots(&server, 0..SLOTS);
        eventually("it serves its slots", || {
            server
                .cli(&["CLUSTER", "INFO"])
                .contains("cluster_state:ok")
        });
        server
    }

    /// From now on the others take a member for dead that is silent for `timeout`.
    pub fn takes_for_dead_after(&self, timeout: Duration) {
        let timeout = timeout.as_millis().to_string();
        for server in &self.servers {
            let told = server.cli(&["CONFIG", "SET", "cluster-node-timeout", &timeout]);
            assert_eq!(told, "OK");
        }
    }

    /// Waits until all members agree about slots and replicas, and each replica has what its
    /// primary has.
    pub fn settled(&self) {
        let replicas = self.replicas;
        for server in &self.servers {
            eventually("a member knows the others", || {
                let info = server.cli(&["CLUSTER", "INFO"]);
                let nodes = server.cli(&["CLUSTER", "NODES"]);
                info.contains("cluster_state:ok")
                    && info.contains(&format!("cluster_known_nodes:{}", self.servers.len()))
                    && nodes.lines().filter(|line| line.contains("slave")).count() == replicas
                    && !["handshake", "fail", "disconnected"]
                        .iter()
                        .any(|trouble| nodes.contains(trouble))
                    && slots_in(&nodes) == slots_in(&self.servers[0].cli(&["CLUSTER", "NODES"]))
            });
        }
        for server in &self.servers {
            eventually("it is in step", || {
                let told = server.cli(&["INFO", "replication"]);
                told.contains("role:master") || told.contains("master_link_status:up")
            });
        }
    }

    /// Returns the number of the replica of `primary`.
    pub fn replica_of(&self, primary: usize) -> usize {
        let id = self.id(primary);
        let replicates = |server: &Server| {
            let nodes = server.cli(&["CLUSTER", "NODES"]);
            nodes
                .lines()
                .any(|line| line.contains("myself,slave") && line.split(' ').nth(3) == Some(&id))
        };
        self.servers.iter().position(replicates).expect("a replica")
    }

    /// Fails over from `primary` to its replica on purpose, and returns the replica's number once
    /// it is the primary.
    pub fn fail_over(&self, primary: usize) -> usize {
        let heir = self.replica_of(primary);
        eventually("a failover begins", || {
            self.servers[heir].cli(&["CLUSTER", "FAILOVER"]) == "OK"
        });
        self.taken_over(heir);
        heir
    }

    /// Waits until `heir` is a primary.
    pub fn taken_over(&self, heir: usize) {
        eventually("the replica takes over", || {
            self.servers[heir].cli(&["ROLE"]).starts_with("master")
        });
    }

    /// Takes no writes at `primary` any more for some seconds, and waits until its replica has all
    /// of them: what happens to it then loses none.
    pub fn in_step(&self, primary: usize) {
        let (heir, primary) = (
            &self.servers[self.replica_of(primary)],
            &self.servers[primary],
        );
        assert_eq!(primary.cli(&["CLIENT", "PAUSE", "5000", "WRITE"]), "OK");
        let offset = |server: &Server, field: &str| {
            let told = server.cli(&["INFO", "replication"]);
            told.lines()
                .find_map(|line| line.strip_prefix(field).map(str::to_owned))
        };
        eventually("the replica has all writes", || {
            offset(primary, "master_repl_offset:") == offset(heir, "slave_repl_offset:")
        });
    }

    /// Returns the node's address, with all members in it.
    pub fn url(&self) -> String {
        self.url_of(&(0..self.servers.len()).collect::<Vec<_>>())
    }

    /// Returns the address with these members alone.
    pub fn url_of(&self, members: &[usize]) -> String {
        let hosts: Vec<String> = members
            .iter()
            .map(|member| format!("127.0.0.1:{}", self.servers[*member].port()))
            .collect();
        format!("redis-cluster://{}", hosts.join(","))
    }

    /// Deletes all keys.
    pub fn empty(&self) {
        for server in &self.servers {
            let told = server.cli(&["FLUSHALL"]);
            assert!(told == "OK" || told.contains("READONLY"), "{told}");
        }
    }

    /// Returns the number of a primary other than `owner`.
    pub fn other_than(&self, owner: usize) -> usize {
        let is_primary = |server: &Server| server.cli(&["ROLE"]).starts_with("master");
        (0..self.servers.len())
            .find(|member| *member != owner && is_primary(&self.servers[*member]))
            .expect("a primary")
    }

    fn id(&self, member: usize) -> String {
        self.servers[member].cli(&["CLUSTER", "MYID"])
    }

    /// Returns the slot of `key`.
    pub fn slot(&self, key: &str) -> String {
        self.servers[0].cli(&["CLUSTER", "KEYSLOT", key])
    }

    /// Returns the number of the member that serves `key` itself.
    pub fn owner(&self, key: &str) -> usize {
        let serves = |server: &Server| {
            let told = server.cli(&["TYPE", key]);
            !told.contains("MOVED")
                && !told.contains("CLUSTERDOWN")
                && server.cli(&["ROLE"]).starts_with("master")
        };
        let mut found = None;
        eventually("a member serves the key", || {
            found = self.servers.iter().position(serves);
            found.is_some()
        });
        found.expect("a primary")
    }

    /// Begins to move the slot of `key` to member `to`: none of its keys has moved yet.
    pub fn move_slot(&self, key: &str, to: usize) -> Move<'_> {
        let (slot, from) = (self.slot(key), self.owner(key));
        let set = |member: usize, state: &str, other: usize| {
            let told =
                self.servers[member].cli(&["CLUSTER", "SETSLOT", &slot, state, &self.id(other)]);
            assert_eq!(told, "OK");
        };
        set(to, "IMPORTING", from);
        set(from, "MIGRATING", to);
        Move {
            cluster: self,
            slot,
            from,
            to,
        }
    }
}

impl<'a> Move<'a> {
    /// Moves one key.
    pub fn key(&self, key: &str) {
        let port = self.cluster.servers[self.to].port().to_string();
        let told = self
            .source()
            .cli(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
        assert!(told == "OK" || told == "NOKEY", "{key}: {told}");
    }

    /// Moves all keys that are left.
    pub fn rest(&self) {
        loop {
            let keys = self
                .source()
                .cli(&["CLUSTER", "GETKEYSINSLOT", &self.slot, "100"]);
            if keys.is_empty() {
                return;
            }
            keys.lines().for_each(|key| self.key(key));
        }
    }

    /// Ends the move: the slot is the target's.
    pub fn end(self) {
        let id = self.cluster.id(self.to);
        let of_both = [self.to, self.from];
        let others = (0..self.cluster.servers.len()).filter(|member| !of_both.contains(member));
        for member in of_both.into_iter().chain(others) {
            // A replica takes it from its primary.
            self.cluster.servers[member].cli(&["CLUSTER", "SETSLOT", &self.slot, "NODE", &id]);
        }
    }

    /// Returns the member that the slot comes from.
    pub fn source(&self) -> &'a Server {
        &self.cluster.servers[self.from]
    }

    /// Returns the member that the slot goes to.
    pub fn target(&self) -> &'a Server {
        &self.cluster.servers[self.to]
    }
}

/// Returns who has which slots, by what a member says of all `nodes`.
fn slots_in(nodes: &str) -> BTreeSet<String> {
    let owner = |line: &str| {
        let mut words = line.split(' ');
        let id = words.next()?;
        let slots: Vec<&str> = words
            .skip(7)
            .filter(|slot| !slot.starts_with('['))
            .collect();
        (!slots.is_empty()).then(|| format!("{id} {}", slots.join(" ")))
    };
    nodes.lines().filter_map(owner).collect()
}

/// Starts a member that knows no other yet, with more options for its port.
fn member_with(more: impl Fn(u16) -> Vec<String>) -> Server {
    let timeout = NODE_TIMEOUT.as_millis().to_string();
    Server::on_first_free(Port::low(), |port| {
        let words = [
            ["--cluster-enabled", "yes"],
            ["--cluster-node-timeout", &timeout],
            ["--repl-diskless-sync-delay", "0"],
        ];
        words
            .concat()
            .into_iter()
            .map(str::to_owned)
            .chain(more(port))
            .collect()
    })
}

fn member() -> Server {
    member_with(|port| vec!["--port".to_owned(), port.to_string()])
}

/// Gives these slots to a primary.
fn add_slots(primary: &Server, slots: Range<usize>) {
    let slots: Vec<String> = slots.map(|slot| slot.to_string()).collect();
    let words = ["CLUSTER", "ADDSLOTS"]
        .into_iter()
        .chain(slots.iter().map(String::as_str));
    assert_eq!(primary.cli(&words.collect::<Vec<_>>()), "OK");
}
