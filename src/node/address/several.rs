//! Addresses with several hosts.
//!
//! * `redis-sentinel://[user:password@]host[:port],…/service[/db]`: user and password are the servers'. Sentinels never see them.
//! * `redis-cluster://[user:password@]host[:port],…`: each host is a member that tells which primary serves which slot.

use std::fmt;

use percent_encoding::{AsciiSet, utf8_percent_encode};

use super::server::tcp;
use super::{Endpoint, IN_PATH, SERVER_PORT, Secret, Server, database, decoded};
use crate::text::escape;

/// Port of a sentinel.
const SENTINEL_PORT: u16 = 26379;

/// Must be encoded in a service's name.
const IN_NAME: &AsciiSet = &IN_PATH.add(b'/').add(b'@');

/// Most sentinels or members that are accepted.
const MOST_HOSTS: usize = 15;

/// A service whose server is named by sentinels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    /// The sentinels, at least one, each over TCP.
    pub sentinels: Vec<Endpoint>,
    /// The name by which the sentinels know the service.
    pub name: String,
    /// User at the servers.
    pub user: Option<String>,
    /// Password at the servers.
    pub password: Option<Secret>,
    /// Database number at the servers.
    pub db: u32,
    /// Whether connections to sentinels and servers are encrypted.
    pub tls: bool,
}

impl Service {
    /// Reads the address, whose scheme is known.
    pub(super) fn parse(raw: &str, tls: bool) -> Result<Self, String> {
        let (sentinels, Server { user, password, .. }, path) = hosts(raw, tls, SENTINEL_PORT, "sentinel")?;
        let (name, db) = path.split_once('/').unwrap_or((path, ""));
        let name = decoded(name)?;
        if name.is_empty() {
            return Err("the service is missing; write redis-sentinel://host,…/service".to_owned());
        }
        if name.contains(char::is_whitespace) || escape::text(&name) != name {
            return Err("the service has characters that no service has".to_owned());
        }
        let db = if db.is_empty() { 0 } else { database(db)? };
        Ok(Self { sentinels, name, user, password, db, tls })
    }

    /// Returns the server of this service at `host` and `port`.
    pub fn server_at(&self, host: String, port: u16) -> Server {
        let endpoint = Endpoint::Tcp { host, port, tls: self.tls };
        Server { endpoint, user: self.user.clone(), password: self.password.clone(), db: self.db }
    }

    /// Whether both name the same service of the same sentinels, or of some that are the same.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.name == other.name && self.sentinels.iter().any(|sentinel| other.sentinels.contains(sentinel))
    }
}

/// The name by which messages know the node: its address without user and password.
impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hosts, name) = (listed(&self.sentinels), utf8_percent_encode(&self.name, IN_NAME));
        write!(f, "redis{}-sentinel://{hosts}/{name}", if self.tls { "s" } else { "" })?;
        if self.db > 0 { write!(f, "/{}", self.db) } else { Ok(()) }
    }
}

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
        let (members, Server { user, password, .. }, path) = hosts(raw, tls, SERVER_PORT, "member")?;
        if !path.is_empty() && database(path)? > 0 {
            return Err("a cluster has database 0 only".to_owned());
        }
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
        write!(f, "redis{}-cluster://{}", if self.tls { "s" } else { "" }, listed(&self.members))
    }
}

/// Reads the hosts of an address. Returns them, the first one with its user and password, and what follows them.
fn hosts<'a>(raw: &'a str, tls: bool, port: u16, kind: &str) -> Result<(Vec<Endpoint>, Server, &'a str), String> {
    let (_, rest) = raw.split_once("://").unwrap_or_default();
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, hosts) = hosts.rsplit_once('@').map_or(("", hosts), |(login, hosts)| (login, hosts));
    if path.contains('@') || login.contains('?') {
        return Err("a / or ? in a password must be written %2F or %3F".to_owned());
    }
    if rest.contains('?') {
        return Err("it takes no option behind a ?".to_owned());
    }
    let at = if login.is_empty() { String::new() } else { format!("{login}@") };
    let mut endpoints = Vec::new();
    let mut first = None;
    for host in hosts.split(',') {
        let server = tcp(&format!("{at}{}", host.trim()), tls, port)?;
        if endpoints.contains(&server.endpoint) {
            return Err(format!("it names the {kind} {} twice", server.endpoint));
        }
        endpoints.push(server.endpoint.clone());
        first.get_or_insert(server);
    }
    match first {
        Some(first) if endpoints.len() <= MOST_HOSTS => Ok((endpoints, first, path)),
        _ => Err(format!("it names {} {kind}s; {MOST_HOSTS} are enough", endpoints.len())),
    }
}

fn listed(hosts: &[Endpoint]) -> String {
    hosts.iter().map(Endpoint::to_string).collect::<Vec<_>>().join(",")
}

/// Puts the pieces of a list of addresses together that commas have taken apart. A piece without a scheme belongs to the
/// sentinels or to the cluster before it, if that address has no path yet.
pub fn joined<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut addresses: Vec<String> = Vec::new();
    for piece in pieces {
        let is_address = piece.contains("://") || piece.trim() == "local" || piece.trim().starts_with("local:");
        match addresses.last_mut().filter(|last| !is_address && is_open(last)) {
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
    address.trim().split_once("://").is_some_and(|(scheme, rest)| names_several(scheme) && !rest.contains('/'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Address;
    use super::super::tests::{refused, shown};
    use super::*;

    #[test]
    fn every_form_of_a_cluster_is_read_and_shown_without_its_password() {
        assert_eq!(shown("redis-cluster://a"), "redis-cluster://a:6379");
        assert_eq!(shown("valkeys-cluster://u:p%40ss@a,b:1,[::1]:2/0"), "rediss-cluster://a:6379,b:1,[::1]:2");
        let address = Address::parse("redis-cluster://us%3Aer:hunter2@a,b").unwrap();
        assert_eq!(address.without_secret(), "redis-cluster://us%3Aer@a:6379,b:6379");
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
        let many = (0..=MOST_HOSTS).map(|host| format!("h{host}")).collect::<Vec<_>>().join(",");
        assert!(shown(&format!("redis-cluster://{many}")).contains("16 members"));
    }

    #[test]
    fn every_form_of_a_service_is_read_and_shown_without_its_password() {
        assert_eq!(shown("redis-sentinel://a/svc"), "redis-sentinel://a:26379/svc");
        assert_eq!(
            shown("valkeys-sentinel://u:p%40ss@a,b:1,[::1]:2/svc/3"),
            "rediss-sentinel://a:26379,b:1,[::1]:2/svc/3"
        );
        assert_eq!(shown("redis-sentinel://u:p,ss@a/s%2Fv"), "redis-sentinel://a:26379/s%2Fv");
        let Ok(Address::Service(service)) = Address::parse("redis-sentinel://us%3Aer:p%2Fw@a,b/svc") else { panic!() };
        assert_eq!((service.user.as_deref(), service.password), (Some("us:er"), Some(Secret::new("p/w"))));
        let address = Address::parse("redis-sentinel://us%3Aer:hunter2@a,b/svc/2").unwrap();
        assert_eq!(address.without_secret(), "redis-sentinel://us%3Aer@a:26379,b:26379/svc/2");
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
        let many = (0..=MOST_HOSTS).map(|host| format!("h{host}")).collect::<Vec<_>>().join(",");
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
        assert_eq!(joined("redis-sentinel://a,b,c/svc,redis://d"), "redis-sentinel://a,b,c/svc redis://d");
        assert_eq!(
            joined("redis-sentinel://a/svc,b,redis-sentinel://c, d/t/1"),
            "redis-sentinel://a/svc b redis-sentinel://c,d/t/1"
        );
        assert_eq!(joined("redis://a,b,local,redis-sentinel://c,local"), "redis://a b local redis-sentinel://c local");
        assert_eq!(joined("redis-sentinel://u:p,w@a/svc"), "redis-sentinel://u:p,w@a/svc");
        assert_eq!(joined("Redis-Sentinel://a,b/svc,c,/run/d"), "Redis-Sentinel://a,b/svc c /run/d");
        assert_eq!(joined("redis-cluster://a,b:1,redis://c"), "redis-cluster://a,b:1 redis://c");
        assert_eq!(joined("redis-cluster://a,b/,c"), "redis-cluster://a,b/ c");
    }
}
