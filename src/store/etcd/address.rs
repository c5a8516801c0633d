//! The address of a cluster: `etcd://[user[:password]@]host[:2379],…[/prefix]`, with TLS
//! `etcds://`.

use crate::store::net::hosts::decoded;
use crate::store::net::quorum::{QuorumAddress, QuorumForm};
use crate::text::escape;

pub(in crate::store) const FORM: QuorumForm = QuorumForm {
    scheme: "etcd",
    port: 2379,
    server: "member",
    path,
};

fn path(typed: &str) -> Result<String, String> {
    let prefix = decoded(typed)?.trim_end_matches('/').to_owned();
    if escape::text(&prefix) != prefix {
        return Err("the prefix has characters that no name has".to_owned());
    }
    Ok(if prefix.is_empty() {
        prefix
    } else {
        format!("/{prefix}")
    })
}

/// Returns the beginning of all names of locks, without the slash behind it.
pub(super) fn prefix(address: &QuorumAddress) -> &str {
    address.path.strip_prefix('/').unwrap_or_default()
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
