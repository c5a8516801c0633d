//! Addresses with several hosts.
//!
//! * `redis-sentinel://[user:password@]host[:port],…/service[/db]`: user and password are the
//!   servers'. Sentinels never see them.
//! * `redis-cluster://[user:password@]host[:port],…`: each host is a member that tells which
//!   primary serves which slot.

use super::server::tcp;
use super::{HostKind, Remote, SERVER_PORT, database, decoded};
use crate::text::escape;

/// Port of a sentinel.
const SENTINEL_PORT: u16 = 26379;

/// Most sentinels or members that are accepted.
const MOST_HOSTS: usize = 15;

/// Reads what stands behind the scheme of a service's address.
pub(super) fn service(rest: &str, tls: bool) -> Result<Remote, String> {
    let (remote, path) = hosts(rest, tls, SENTINEL_PORT, "sentinel")?;
    let (name, db) = path.split_once('/').unwrap_or((path, ""));
    let name = decoded(name)?;
    if name.is_empty() {
        return Err("the service is missing; write redis-sentinel://host,…/service".to_owned());
    }
    if name.contains(char::is_whitespace) || escape::text(&name) != name {
        return Err("the service has characters that no service has".to_owned());
    }
    let db = if db.is_empty() { 0 } else { database(db)? };
    Ok(Remote {
        kind: HostKind::Sentinel(name),
        db,
        ..remote
    })
}

/// Reads what stands behind the scheme of a cluster's address.
pub(super) fn cluster(rest: &str, tls: bool) -> Result<Remote, String> {
    let (remote, path) = hosts(rest, tls, SERVER_PORT, "member")?;
    if !path.is_empty() && database(path)? > 0 {
        return Err("a cluster has database 0 only".to_owned());
    }
    Ok(Remote {
        kind: HostKind::Member,
        ..remote
    })
}

/// Reads the hosts of an address. Returns them with user and password, and what follows them.
fn hosts<'a>(rest: &'a str, tls: bool, port: u16, kind: &str) -> Result<(Remote, &'a str), String> {
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, hosts) = hosts.rsplit_once('@').unwrap_or(("", hosts));
    if path.contains('@') || login.contains('?') {
        return Err("a / or ? in a password must be written %2F or %3F".to_owned());
    }
    if rest.contains('?') {
        return Err("it takes no option behind a ?".to_owned());
    }
    let at = if login.is_empty() {
        String::new()
    } else {
        format!("{login}@")
    };
    let server = |host: &str| tcp(&format!("{at}{}", host.trim()), tls, port);
    let mut hosts = hosts.split(',');
    let mut all = server(hosts.next().unwrap_or_default())?;
    for host in hosts {
        for host in server(host)?.hosts {
            if all.hosts.contains(&host) {
                return Err(format!("it names the {kind} {host} twice"));
            }
            all.hosts.push(host);
        }
    }
    match all.hosts.len() {
        ..=MOST_HOSTS => Ok((all, path)),
        count => Err(format!("it names {count} {kind}s; {MOST_HOSTS} are enough")),
    }
}

/// Puts the pieces of a list of addresses together that commas have taken apart. A piece without a
/// scheme belongs to the sentinels or to the cluster before it, if that address has no path yet.
pub fn joined<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut addresses: Vec<String> = Vec::new();
    for piece in pieces {
        let is_address =
            piece.contains("://") || piece.trim() == "local" || piece.trim().starts_with("local:");
        match addresses
            .last_mut()
            .filter(|last| !is_address && is_open(last))
        {
            Some(last) => *last = format!("{last},{}", piece.trim()),
            None => addresses.push(piece.to_owned()),
        }
    }
    addresses
}

/// Whether the address is that of sentinels or a cluster, and more hosts may follow.
fn is_open(address: &str) -> bool {
    let names_several = |scheme: &str| {
        let scheme = scheme.to_ascii_lowercase();
        scheme.ends_with("-sentinel") || scheme.ends_with("-cluster")
    };
    address
        .trim()
        .split_once("://")
        .is_some_and(|(scheme, rest)| names_several(scheme) && !rest.contains('/'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{refused, shown};
    use super::super::{Address, Secret};
    use super::*;

    #[test]
    fn every_form_of_a_cluster_is_read_and_shown_without_its_password() {
        assert_eq!(shown("redis-cluster://a"), "redis-cluster://a:6379");
        assert_eq!(
            shown("valkeys-cluster://u:p%40ss@a,b:1,[::1]:2/0"),
            "rediss-cluster://a:6379,b:1,[::1]:2"
        );
        let address = Address::parse("redis-cluster://us%3Aer:hunter2@a,b").unwrap();
        assert_eq!(
            address.without_secret(),
            "redis-cluster://us%3Aer@a:6379,b:6379"
        );
    }

    #[test]
    fn a_bad_cluster_says_why_and_never_shows_the_password() {
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
        let many = (0..=MOST_HOSTS)
            .map(|host| format!("h{host}"))
            .collect::<Vec<_>>()
            .join(",");
        assert!(shown(&format!("redis-cluster://{many}")).contains("16 members"));
    }

    #[test]
    fn every_form_of_a_service_is_read_and_shown_without_its_password() {
        assert_eq!(
            shown("redis-sentinel://a/svc"),
            "redis-sentinel://a:26379/svc"
        );
        assert_eq!(
            shown("valkeys-sentinel://u:p%40ss@a,b:1,[::1]:2/svc/3"),
            "rediss-sentinel://a:26379,b:1,[::1]:2/svc/3"
        );
        assert_eq!(
            shown("redis-sentinel://u:p,ss@a/s%2Fv"),
            "redis-sentinel://a:26379/s%2Fv"
        );
        let Ok(Address::Remote(service)) = Address::parse("redis-sentinel://us%3Aer:p%2Fw@a,b/svc")
        else {
            panic!()
        };
        assert_eq!(
            (service.user.as_deref(), service.password),
            (Some("us:er"), Some(Secret::new("p/w")))
        );
        let address = Address::parse("redis-sentinel://us%3Aer:hunter2@a,b/svc/2").unwrap();
        assert_eq!(
            address.without_secret(),
            "redis-sentinel://us%3Aer@a:26379,b:26379/svc/2"
        );
    }

    #[test]
    fn a_bad_service_says_why_and_never_shows_the_password() {
        for (raw, why) in [
            ("redis-sentinel://a", "service is missing"),
            ("redis-sentinel://a,b/", "service is missing"),
            ("redis-sentinel:///svc", "host"),
            ("redis-sentinel://a,/svc", "host"),
            ("redis-sentinel://u:hunter2@a,a:26379/svc", "a:26379 twice"),
            ("redis-sentinel://u:hunter2@a:99999/svc", "port"),
            ("redis-sentinel://u:hunter2@a/svc/x", "x is no database"),
            ("redis-sentinel://u:hunter2@a/svc/1/2", "database"),
            ("redis-sentinel://u:hunter2@a/svc?db=1", "no option"),
            ("redis-sentinel://u:1/hunter2@a/svc", "%2F"),
            ("redis-sentinel://u:hunter2,b/svc", "port"),
            ("redis-sentinel://a,u:12345678/svc", "port"),
            ("redis-sentinel://u:hunt#er2@a/svc", "%23"),
            ("redis-sentinel://a/s%20v", "no service has"),
        ] {
            refused(raw, why);
        }
        let many = (0..=MOST_HOSTS)
            .map(|host| format!("h{host}"))
            .collect::<Vec<_>>()
            .join(",");
        assert!(shown(&format!("redis-sentinel://{many}/svc")).contains("16 sentinels"));
    }

    proptest! {
        #[test]
        fn no_error_and_no_name_contains_the_password(tail in "[ -~]{0,20}", kind in "sentinel|cluster") {
            let raw = format!("redis-{kind}://user:hunter2@{tail}");
            prop_assert!(!shown(&raw).contains("hunter2"));
        }
    }

    #[test]
    fn commas_separate_the_sentinels_of_an_address_and_the_addresses() {
        let joined = |list: &str| super::joined(list.split(',')).join(" ");
        assert_eq!(
            joined("redis-sentinel://a,b,c/svc,redis://d"),
            "redis-sentinel://a,b,c/svc redis://d"
        );
        assert_eq!(
            joined("redis-sentinel://a/svc,b,redis-sentinel://c, d/t/1"),
            "redis-sentinel://a/svc b redis-sentinel://c,d/t/1"
        );
        assert_eq!(
            joined("redis://a,b,local,redis-sentinel://c,local"),
            "redis://a b local redis-sentinel://c local"
        );
        assert_eq!(
            joined("redis-sentinel://u:p,w@a/svc"),
            "redis-sentinel://u:p,w@a/svc"
        );
        assert_eq!(
            joined("Redis-Sentinel://a,b/svc,c,/run/d"),
            "Redis-Sentinel://a,b/svc c /run/d"
        );
        assert_eq!(
            joined("redis-cluster://a,b:1,redis://c"),
            "redis-cluster://a,b:1 redis://c"
        );
        assert_eq!(joined("redis-cluster://a,b/,c"), "redis-cluster://a,b/ c");
    }
}
