//! The address of a cluster: `etcd://[user[:password]@]host[:2379],…[/prefix]`, with TLS
//! `etcds://`.

use std::fmt;

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::secret::Secret;
use crate::store::redis::address::{Endpoint, decoded, hosts};
use crate::text::escape;

/// Port of a member for its clients.
const CLIENT_PORT: u16 = 2379;

/// Must be encoded in a prefix; a comma would end the address.
const IN_PREFIX: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'%')
    .add(b'?')
    .add(b'#')
    .add(b',')
    .add(b'@');

/// How to reach a cluster and as whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EtcdAddress {
    /// Members of the cluster, at least one.
    pub hosts: Vec<Endpoint>,
    /// Whether connections are encrypted.
    pub is_tls: bool,
    /// The user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<Secret>,
    /// The beginning of all names of locks, without the slash behind it.
    pub prefix: String,
}

impl EtcdAddress {
    /// Reads what stands behind the scheme.
    pub(in crate::store) fn parse(rest: &str, is_tls: bool) -> Result<Self, String> {
        let (remote, path) = hosts(rest, is_tls, CLIENT_PORT, "member")?;
        let prefix = decoded(path)?.trim_end_matches('/').to_owned();
        if escape::text(&prefix) != prefix {
            return Err("the prefix has characters that no name has".to_owned());
        }
        if remote.user.is_none() && remote.password.is_some() {
            return Err("a password needs its user: write user:password@".to_owned());
        }
        Ok(Self {
            hosts: remote.hosts,
            is_tls,
            user: remote.user,
            password: remote.password,
            prefix,
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

    /// Whether both lead to the same cluster.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.hosts.iter().any(|host| other.hosts.contains(host))
    }
}

impl fmt::Display for EtcdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "etcds" } else { "etcd" };
        let hosts: Vec<String> = self.hosts.iter().map(Endpoint::to_string).collect();
        write!(f, "{scheme}://{}", hosts.join(","))?;
        if self.prefix.is_empty() {
            return Ok(());
        }
        write!(f, "/{}", utf8_percent_encode(&self.prefix, IN_PREFIX))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::store::address::Address;
    use crate::store::address::tests::{refused, shown};

    #[test]
    fn every_form_is_read_and_shown_without_its_password() {
        assert_eq!(shown("etcd://a"), "etcd://a:2379");
        assert_eq!(
            shown("ETCDS://u:p%40ss@a,b:1,[::1]:2/locks/"),
            "etcds://a:2379,b:1,[::1]:2/locks"
        );
        assert_eq!(shown("etcd://a//locks"), "etcd://a:2379//locks");
        assert_eq!(shown("etcd://a/a%2Cb"), "etcd://a:2379/a%2Cb");
        let address = Address::parse("etcd://us%3Aer:hunter2@a,b/x").unwrap();
        assert_eq!(address.without_secret(), "etcd://us%3Aer@a:2379,b:2379/x");
    }

    #[test]
    fn a_bad_address_says_why_and_never_shows_the_password() {
        for (raw, why) in [
            ("etcd://", "host"),
            ("etcd://u:hunter2@a,a:2379", "a:2379 twice"),
            ("etcd://u:hunter2@a:99999", "port"),
            ("etcd://u:hunter2@a?x=1", "no option"),
            ("etcd://u:1/hunter2@a", "%2F"),
            ("etcd://:hunter2@a", "needs its user"),
            ("etcd://a/x#y", "%23"),
            ("etcd://a/x%00", "no name has"),
        ] {
            refused(raw, why);
        }
    }

    proptest! {
        #[test]
        fn no_error_and_no_name_contains_the_password(tail in "[ -~]{0,20}") {
            let raw = format!("etcd://user:hunter2@{tail}");
            prop_assert!(!shown(&raw).contains("hunter2"));
        }

        #[test]
        fn a_shown_address_is_read_back(host in "[a-z]{1,9}", port in 1u16.., prefix in "/?[a-z%, ]{0,9}") {
            let raw = format!("etcd://{host}:{port}/{}", percent_encoding::utf8_percent_encode(&prefix, percent_encoding::NON_ALPHANUMERIC));
            prop_assert_eq!(Address::parse(&raw), Address::parse(&shown(&raw)));
        }
    }
}
