//! The address of a cluster: `redis-cluster://[user:password@]host[:port],…`.
//!
//! The hosts are seeds: each is a member that tells which primary serves which slot.

use std::fmt;

use super::service::{hosts, twice};
use super::{Endpoint, SERVER_PORT, Secret, Server, database};

/// Most seeds that are accepted.
const MOST_SEEDS: usize = 15;

/// Some members of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seeds {
    /// The members, at least one, each over TCP.
    pub members: Vec<Endpoint>,
    /// User at all members.
    pub user: Option<String>,
    /// Password at all members.
    pub password: Option<Secret>,
    /// Whether connections to members are encrypted.
    pub tls: bool,
}

impl Seeds {
    /// Reads the address, whose scheme is known.
    pub(super) fn parse(raw: &str, tls: bool) -> Result<Self, String> {
        let (mut all, path) = hosts(raw, tls, SERVER_PORT)?;
        if all.len() > MOST_SEEDS {
            return Err(format!("it names {} members; {MOST_SEEDS} are enough", all.len()));
        }
        let members: Vec<Endpoint> = all.iter().map(|server| server.endpoint.clone()).collect();
        if let Some(twice) = twice(&members) {
            return Err(format!("it names the member {twice} twice"));
        }
        if !path.is_empty() && database(path)? > 0 {
            return Err("a cluster has database 0 only".to_owned());
        }
        let Server { user, password, .. } = all.swap_remove(0);
        Ok(Self { members, user, password, tls })
    }

    /// Returns the member at `host` and `port`.
    pub fn server_at(&self, host: String, port: u16) -> Server {
        let endpoint = Endpoint::Tcp { host, port, tls: self.tls };
        Server { endpoint, user: self.user.clone(), password: self.password.clone(), db: 0 }
    }

    /// Whether both name a member in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.members.iter().any(|member| other.members.contains(member))
    }
}

/// The name by which messages know the node: its address without user and password.
impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members: Vec<String> = self.members.iter().map(Endpoint::to_string).collect();
        write!(f, "redis{}-cluster://{}", if self.tls { "s" } else { "" }, members.join(","))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Address;
    use super::super::tests::{refused, shown};
    use super::*;

    #[test]
    fn every_form_is_read_and_shown_without_its_password() {
        assert_eq!(shown("redis-cluster://a"), "redis-cluster://a:6379");
        assert_eq!(shown("valkeys-cluster://u:p%40ss@a,b:1,[::1]:2/0"), "rediss-cluster://a:6379,b:1,[::1]:2");
        let address = Address::parse("redis-cluster://us%3Aer:hunter2@a,b").unwrap();
        assert_eq!(address.without_secret(), "redis-cluster://us%3Aer@a:6379,b:6379");
    }

    #[test]
    fn a_bad_address_says_why_and_never_shows_the_password() {
        for (raw, why) in [
            ("redis-cluster://", "host"),
            ("redis-cluster://u:hunter2@a,", "host"),
            ("redis-cluster://u:hunter2@a,a:6379", "a:6379 twice"),
            ("redis-cluster://u:hunter2@a:99999", "port"),
            ("redis-cluster://u:hunter2@a/3", "database 0 only"),
            ("redis-cluster://u:hunter2@a/x", "x is no database"),
            ("redis-cluster://u:hunter2@a?db=1", "no option"),
            ("redis-cluster://u:1/hunter2@a", "%2F"),
        ] {
            refused(raw, why);
        }
        let many = (0..=MOST_SEEDS).map(|host| format!("h{host}")).collect::<Vec<_>>().join(",");
        assert!(shown(&format!("redis-cluster://{many}")).contains("16 members"));
    }

    proptest! {
        #[test]
        fn no_error_and_no_name_contains_the_password(tail in "[ -~]{0,20}") {
            let raw = format!("redis-cluster://user:hunter2@{tail}");
            prop_assert!(!shown(&raw).contains("hunter2"));
        }
    }
}
