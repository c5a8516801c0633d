//! Replies of a server of MySQL or MariaDB.

use rlock::store::address::Address;
use rlock::store::net::hosts::Endpoint;
use rlock::store::sql::SqlStore;
use rlock::store::sql::session::SqlAccess;

use super::conversation::{self, LIMIT};

/// See [`conversation::hold`] for the first byte of the input.
pub fn hold(input: &[u8]) {
    conversation::hold(input, LIMIT * 2, |dial| {
        let Ok(Address::Sql(address)) = Address::parse("mysql://rlock@h/app") else {
            panic!("an address of MySQL");
        };
        let host = Endpoint::Tcp {
            host: "h".to_owned(),
            port: 1,
            tls: false,
        };
        let access = SqlAccess {
            hosts: vec![(host, None)],
            user: "rlock".to_owned(),
            database: "app".to_owned(),
            trust: None,
            renew: None,
        };
        Box::new(SqlStore::over(&address, access, dial, LIMIT))
    });
}
