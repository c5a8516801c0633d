//! The identity of the server behind a node, as it tells it. Nodes that share a server are no independent votes.

/// A server's identity, from INFO.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Seconds since it started, cut to whole ones. Of a server that became the primary later: since then, as its sentinels say.
    pub uptime: u64,
    /// Whether a failover has made it the primary since it started.
    pub is_promoted: bool,
    /// Its process: new with every start.
    pub run_id: String,
    /// Its data set: the same on a replica.
    pub replication_id: String,
}

impl Identity {
    /// Returns how two nodes share a server or its data, if they do.
    ///
    /// Redlock's proof needs votes that fail one by one; a replica has its primary's vote a second time, and after a
    /// failover perhaps without the last writes.
    pub fn shared_with(&self, other: &Self) -> Option<&'static str> {
        let same = |a: &str, b: &str| !a.is_empty() && a == b;
        if same(&self.run_id, &other.run_id) {
            Some("is the same server as")
        } else if same(&self.replication_id, &other.replication_id) {
            Some("has the same data as, being a replica of or with,")
        } else {
            None
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn identity(run_id: &str, replication_id: &str) -> Identity {
        Identity { uptime: 9, is_promoted: false, run_id: run_id.to_owned(), replication_id: replication_id.to_owned() }
    }

    #[test]
    fn a_server_met_twice_and_a_replica_are_no_independent_nodes() {
        assert_eq!(identity("a", "x").shared_with(&identity("b", "y")), None);
        assert!(identity("a", "x").shared_with(&identity("a", "x")).is_some_and(|how| how.contains("same server")));
        assert!(identity("a", "x").shared_with(&identity("b", "x")).is_some_and(|how| how.contains("replica")));
    }

    #[test]
    fn servers_that_tell_nothing_of_themselves_are_not_the_same() {
        assert_eq!(identity("", "").shared_with(&identity("", "")), None);
    }
}
