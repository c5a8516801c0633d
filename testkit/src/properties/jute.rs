//! Replies of a ZooKeeper server.

use rlock::store::address::Address;
use rlock::store::net::quorum::QuorumAccess;
use rlock::store::zookeeper::ZooKeeperStore;

use super::conversation::{self, LIMIT, PATIENCE};

/// See [`conversation::hold`] for the first byte of the input.
pub fn hold(input: &[u8]) {
    conversation::hold(input, PATIENCE, |dial| {
        let Ok(Address::ZooKeeper(address)) = Address::parse("zookeeper://h") else {
            panic!("an address of ZooKeeper");
        };
        let access = QuorumAccess {
            hosts: address.hosts.clone(),
            ..QuorumAccess::default()
        };
        Box::new(ZooKeeperStore::over(&address, access, dial, LIMIT))
    });
}
