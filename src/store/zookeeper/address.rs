//! The address of an ensemble: `zookeeper://[user[:password]@]host[:2181],…[/chroot]`, with TLS
//! `zookeepers://`; in short `zk://` and `zks://`. The user is that of scheme `digest`.

use super::path;
use crate::store::net::hosts::decoded;
use crate::store::net::quorum::QuorumForm;

pub(in crate::store) const FORM: QuorumForm = QuorumForm {
    scheme: "zookeeper",
    port: 2181,
    server: "server",
    path: chroot,
};

/// Reads the znode below which all locks are.
fn chroot(typed: &str) -> Result<String, String> {
    let chroot = match decoded(typed.trim_end_matches('/'))? {
        empty if empty.is_empty() => empty,
        chroot => format!("/{chroot}"),
    };
    path::check(&chroot).map_err(|why| format!("the chroot {why}"))?;
    Ok(chroot)
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
