//! The address of an ensemble: `zookeeper://[user[:password]@]host[:2181],…[/chroot]`, with TLS
//! `zookeepers://`; in short `zk://` and `zks://`.

use std::fmt;

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};

use super::path;
use crate::secret::Secret;
use crate::store::redis::address::{Endpoint, decoded, hosts};

/// Port of a server for its clients.
const CLIENT_PORT: u16 = 2181;

/// Must be encoded in a chroot; a comma would end the address.
const IN_CHROOT: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'%')
    .add(b'?')
    .add(b'#')
    .add(b',')
    .add(b'@');

/// How to reach an ensemble and as whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZooKeeperAddress {
    /// The servers, at least one.
    pub hosts: Vec<Endpoint>,
    /// Whether connections are encrypted.
    pub is_tls: bool,
    /// The user of scheme `digest`.
    pub user: Option<String>,
    /// Its password.
    pub password: Option<Secret>,
    /// The znode below which all locks are; empty, or with a slash before each part.
    pub chroot: String,
}

impl ZooKeeperAddress {
    /// Reads what stands behind the scheme.
    pub(in crate::store) fn parse(rest: &str, is_tls: bool) -> Result<Self, String> {
        let (remote, chroot) = hosts(rest, is_tls, CLIENT_PORT, "server")?;
        let chroot = match decoded(chroot.trim_end_matches('/'))? {
            empty if empty.is_empty() => empty,
            chroot => format!("/{chroot}"),
        };
        path::check(&chroot).map_err(|why| format!("the chroot {why}"))?;
        if remote.user.is_none() && remote.password.is_some() {
            return Err("a password needs its user: write user:password@".to_owned());
        }
        Ok(Self {
            hosts: remote.hosts,
            is_tls,
            user: remote.user,
            password: remote.password,
            chroot,
        })
    }

    /// Returns the address with its user and without its password.
    pub(in crate::store) fn without_secret(&self) -> String {
        let Some(user) = &self.user else {
            return self.to_string();
        };
        let user = utf8_percent_encode(user, NON_ALPHANUMERIC);
        self.to_string().replacen("://", &format!("://{user}@"), 1)
    }

    /// Whether both lead to the same ensemble.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.hosts.iter().any(|host| other.hosts.contains(host))
    }
}

impl fmt::Display for ZooKeeperAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls {
            "zookeepers"
        } else {
            "zookeeper"
        };
        let hosts: Vec<String> = self.hosts.iter().map(Endpoint::to_string).collect();
        let chroot = utf8_percent_encode(&self.chroot, IN_CHROOT);
        write!(f, "{scheme}://{}{chroot}", hosts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::store::address::Address;
    use crate::store::address::tests::{refused, shown};

    #[test]
    fn every_form_is_read_and_shown_without_its_password() {
        assert_eq!(shown("zk://a"), "zookeeper://a:2181");
        assert_eq!(
            shown("ZKS://u:p%40ss@a,b:1,[::1]:2/locks/"),
            "zookeepers://a:2181,b:1,[::1]:2/locks"
        );
        assert_eq!(shown("zookeeper://a/a%2Cb/c"), "zookeeper://a:2181/a%2Cb/c");
        let address = Address::parse("zk://us%3Aer:hunter2@a,b/x").unwrap();
        assert_eq!(
            address.without_secret(),
            "zookeeper://us%3Aer@a:2181,b:2181/x"
        );
    }

    #[test]
    fn a_bad_address_says_why_and_never_shows_the_password() {
        for (raw, why) in [
            ("zookeeper://", "host"),
            ("zk://u:hunter2@a,a:2181", "a:2181 twice"),
            ("zk://u:hunter2@a:99999", "port"),
            ("zk://u:hunter2@a?x=1", "no option"),
            ("zk://u:1/hunter2@a", "%2F"),
            ("zk://:hunter2@a", "needs its user"),
            ("zk://a/x#y", "%23"),
            ("zk://a/x//y", "empty part"),
            ("zk://a/zookeeper", "own"),
        ] {
            refused(raw, why);
        }
    }

    proptest! {
        #[test]
        fn no_error_and_no_name_contains_the_password(tail in "[ -~]{0,20}") {
            let raw = format!("zookeeper://user:hunter2@{tail}");
            prop_assert!(!shown(&raw).contains("hunter2"));
        }
    }
}
