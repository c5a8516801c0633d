//! Where a node is: its URL, checked before anything is sent. docs/nodes.md, Addresses.
//!
//! redis' own URL reader answers "did not parse" and ignores options it does not know; an operator
//! needs to hear what is wrong, and without the password.

use std::ffi::OsString;
use std::fmt;

#[cfg(feature = "etcd")]
use crate::store::etcd;
use crate::store::local::LocalDir;
use crate::store::local::address as local;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
use crate::store::net::quorum::{QuorumAddress, QuorumForm};
use crate::store::redis::address::{self as redis, Remote, SERVER_PORT};
#[cfg(feature = "sql")]
use crate::store::sql::{Product, address::SqlAddress};
#[cfg(feature = "zookeeper")]
use crate::store::zookeeper;
use crate::text::escape;

/// A node's address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A server that speaks Redis' protocol, or the hosts that tell where it is.
    Remote(Remote),
    /// A cluster of etcd.
    #[cfg(feature = "etcd")]
    Etcd(QuorumAddress),
    /// An ensemble of ZooKeeper.
    #[cfg(feature = "zookeeper")]
    ZooKeeper(QuorumAddress),
    /// A table of a database.
    #[cfg(feature = "sql")]
    Sql(SqlAddress),
    /// flock(2) in a directory of this machine; `None` is the user's own default directory.
    Local(Option<LocalDir>),
}

/// The forms of an address, for error messages.
const FORMS: &str = "redis://[user:password@]host[:port][/db], rediss://…, redis+unix://[user:password@]/path[?db=N], \
                     redis-sentinel://host,…/service, redis-cluster://host,…, etcd://host,…[/prefix], zookeeper://host,…[/chroot], postgresql://host,…[/db], mysql://host,…/db, host[:port], /path, local or local:/dir[?shared]";

/// A kind of address, known by its beginning.
struct Scheme {
    /// Its names, without TLS.
    plain: &'static [&'static str],
    /// Names with TLS.
    tls: &'static [&'static str],
    /// Text between the name and the rest: `://`, or `:` for what is no URL. Before a `:` the name
    /// is in lower case, since a host may have it.
    separator: &'static str,
    /// Reads what follows, with or without TLS.
    parse: fn(&str, bool) -> Result<Address, String>,
    /// Whether it takes several hosts, with commas between them.
    has_hosts: bool,
}

/// The separator of a URL.
const OF_URL: &str = "://";

const SCHEMES: &[Scheme] = &[
    Scheme {
        plain: &["redis", "valkey"],
        tls: &["rediss", "valkeys"],
        separator: OF_URL,
        parse: |rest, is_tls| remote(rest, |rest| redis::tcp(rest, is_tls, SERVER_PORT)),
        has_hosts: false,
    },
    Scheme {
        plain: &["redis+unix", "valkey+unix", "unix"],
        tls: &[],
        separator: OF_URL,
        parse: |rest, _| remote(rest, redis::socket),
        has_hosts: false,
    },
    Scheme {
        plain: &["redis-sentinel", "valkey-sentinel"],
        tls: &["rediss-sentinel", "valkeys-sentinel"],
        separator: OF_URL,
        parse: |rest, is_tls| remote(rest, |rest| redis::service(rest, is_tls)),
        has_hosts: true,
    },
    Scheme {
        plain: &["redis-cluster", "valkey-cluster"],
        tls: &["rediss-cluster", "valkeys-cluster"],
        separator: OF_URL,
        parse: |rest, is_tls| remote(rest, |rest| redis::cluster(rest, is_tls)),
        has_hosts: true,
    },
    #[cfg(feature = "zookeeper")]
    Scheme {
        plain: &["zookeeper", "zk"],
        tls: &["zookeepers", "zks"],
        separator: OF_URL,
        parse: |rest, is_tls| {
            quorum(&zookeeper::address::FORM, rest, is_tls).map(Address::ZooKeeper)
        },
        has_hosts: true,
    },
    #[cfg(feature = "etcd")]
    Scheme {
        plain: &["etcd"],
        tls: &["etcds"],
        separator: OF_URL,
        parse: |rest, is_tls| quorum(&etcd::address::FORM, rest, is_tls).map(Address::Etcd),
        has_hosts: true,
    },
    #[cfg(feature = "mysql")]
    Scheme {
        plain: &["mysql", "mariadb"],
        tls: &[],
        separator: OF_URL,
        parse: |rest, _| table(Product::MySql, rest),
        has_hosts: true,
    },
    #[cfg(feature = "postgres")]
    Scheme {
        plain: &["postgresql", "postgres"],
        tls: &[],
        separator: OF_URL,
        parse: |rest, _| table(Product::Postgres, rest),
        has_hosts: true,
    },
    Scheme {
        plain: &[local::NAME],
        tls: &[],
        separator: ":",
        parse: |rest, _| LocalDir::parse(rest).map(|dir| Address::Local(Some(dir))),
        has_hosts: false,
    },
];

impl Scheme {
    /// Returns the scheme of an address, whether it is one with TLS, and what follows.
    fn of(raw: &str) -> Option<(&'static Self, bool, &str)> {
        SCHEMES.iter().find_map(|scheme| {
            let (name, rest) = raw.split_once(scheme.separator)?;
            let is_name = |known: &&str| {
                *known == name || (scheme.separator == OF_URL && known.eq_ignore_ascii_case(name))
            };
            let is_tls = scheme.tls.iter().any(is_name);
            (is_tls || scheme.plain.iter().any(is_name)).then_some((scheme, is_tls, rest))
        })
    }
}

/// Reads what follows the scheme of a server's address.
fn remote(
    rest: &str,
    read: impl FnOnce(&str) -> Result<Remote, String>,
) -> Result<Address, String> {
    without_fragment(rest)?;
    read(rest).map(Address::Remote)
}

/// Reads what follows the scheme of servers that have a quorum of their own.
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
fn quorum(form: &QuorumForm, rest: &str, is_tls: bool) -> Result<QuorumAddress, String> {
    without_fragment(rest)?;
    QuorumAddress::parse(form, rest, is_tls)
}

/// Reads what follows the scheme of a database.
#[cfg(feature = "sql")]
fn table(product: Product, rest: &str) -> Result<Address, String> {
    without_fragment(rest)?;
    SqlAddress::parse(product, rest).map(Address::Sql)
}

/// Refuses an address with a `#`, behind which another client would read nothing.
fn without_fragment(rest: &str) -> Result<(), String> {
    if rest.contains('#') {
        return Err("a # in an address must be written %23".to_owned());
    }
    Ok(())
}

/// Whether `raw` begins as an address with a scheme does, known or not.
pub fn has_scheme(raw: &str) -> bool {
    raw.contains(OF_URL) || Scheme::of(raw).is_some()
}

/// Whether addresses of nodes begin with `scheme` and `://`, or with one of its family.
pub fn is_scheme(scheme: &str) -> bool {
    let family = |name: &str| name.split(['+', '-']).next().map(str::to_ascii_lowercase);
    let mut names = SCHEMES
        .iter()
        .filter(|known| known.separator == OF_URL)
        .flat_map(|known| known.plain.iter().chain(known.tls));
    names.any(|name| family(name) == family(scheme))
}

impl Address {
    /// Reads one address. Errors name it without its password.
    pub fn parse(raw: &str) -> Result<Self, String> {
        let fail = |why: &str| Err(format!("--node {}: {why}", without_password(raw)));
        if raw.is_empty() {
            return Err("--node: one of the addresses is empty".to_owned());
        }
        let parsed = match Scheme::of(raw) {
            Some((scheme, is_tls, rest)) => (scheme.parse)(rest, is_tls),
            None if raw.contains(OF_URL) => Err(format!("unknown scheme; write {FORMS}")),
            None if raw == local::NAME => Ok(Self::Local(None)),
            None => short(raw).map(Self::Remote),
        };
        parsed.or_else(|why| fail(&why))
    }

    /// Returns the server or the hosts that it names, if it does.
    pub fn remote(self) -> Option<Remote> {
        match self {
            Self::Remote(remote) => Some(remote),
            #[cfg(feature = "etcd")]
            Self::Etcd(_) => None,
            #[cfg(feature = "zookeeper")]
            Self::ZooKeeper(_) => None,
            #[cfg(feature = "sql")]
            Self::Sql(_) => None,
            Self::Local(_) => None,
        }
    }

    /// Whether no other node may stand beside it.
    pub fn stands_alone(&self) -> bool {
        match self {
            Self::Remote(_) => false,
            #[cfg(feature = "etcd")]
            Self::Etcd(_) => true,
            #[cfg(feature = "zookeeper")]
            Self::ZooKeeper(_) => true,
            #[cfg(feature = "sql")]
            Self::Sql(_) => true,
            Self::Local(_) => true,
        }
    }

    /// Whether both lead to the same place.
    pub fn overlaps(&self, other: &Self) -> bool {
        match self {
            Self::Remote(one) => matches!(other, Self::Remote(other) if one.overlaps(other)),
            #[cfg(feature = "etcd")]
            Self::Etcd(one) => matches!(other, Self::Etcd(other) if one.overlaps(other)),
            #[cfg(feature = "zookeeper")]
            Self::ZooKeeper(one) => matches!(other, Self::ZooKeeper(other) if one.overlaps(other)),
            #[cfg(feature = "sql")]
            Self::Sql(one) => matches!(other, Self::Sql(other) if one.overlaps(other)),
            Self::Local(_) => self == other,
        }
    }
}

/// Reads the address of a server without its scheme.
fn short(raw: &str) -> Result<Remote, String> {
    // Before anything of it is shown: a part of it may be a password.
    if raw.contains('@') {
        return Err(
            "an address with a user or a password begins with redis:// or the like".to_owned(),
        );
    }
    if raw.starts_with('/') {
        return redis::unix_socket(raw);
    }
    let lower = raw.to_ascii_lowercase();
    if lower.split(':').next() == Some(local::NAME) {
        return Err(
            "did you mean local, in lower case? A host of this name is written redis://HOST"
                .to_owned(),
        );
    }
    if raw.contains(['/', '?', '#', '\\']) {
        return Err(format!("not an address; write {FORMS}"));
    }
    if raw.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("a number is no host; write host:port".to_owned());
    }
    redis::tcp(raw, false, SERVER_PORT).map_err(|why| match raw.split_once(':') {
        Some((scheme, _)) if is_scheme(scheme) => {
            format!(
                "{why}; behind a scheme write ://, as in {}://HOST",
                escape::text(scheme)
            )
        }
        _ => why,
    })
}

/// `raw` with all that could be a password cut out, however malformed it is. What follows the last
/// `@` is the host.
pub fn without_password(raw: &str) -> String {
    let (scheme, rest) = raw.split_once("://").unwrap_or(("", raw));
    let scheme = if scheme.contains(['@', ':']) {
        ""
    } else {
        scheme
    };
    let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    // An option of another client's may be one too; and where a password has a comma, its address
    // ends before the @.
    let rest = rest.split_once('?').map_or(rest, |(before, _)| before);
    let rest = if raw.starts_with("local:") {
        rest.to_owned()
    } else {
        rest.split(',')
            .map(without_digits)
            .collect::<Vec<_>>()
            .join(",")
    };
    let shown = if scheme.is_empty() {
        rest
    } else {
        format!("{scheme}://{rest}")
    };
    escape::text(&shown)
}

/// Returns one host of an address with its port. Behind no host, or too large for a port, digits
/// are a password whose @ is missing.
fn without_digits(rest: &str) -> String {
    let (host, port) = rest
        .split_once(':')
        .filter(|_| !rest.starts_with('['))
        .unwrap_or((rest, ""));
    let port = port.split('/').next().unwrap_or_default();
    let is_port = port.is_empty() || (!host.is_empty() && port.parse::<u16>().is_ok());
    if is_port {
        rest.to_owned()
    } else {
        format!("{host}:…")
    }
}

/// The name by which messages know the node: its address without user and password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(None) => f.write_str(local::NAME),
            Self::Local(Some(dir)) => dir.fmt(f),
            Self::Remote(remote) => remote.fmt(f),
            #[cfg(feature = "etcd")]
            Self::Etcd(cluster) => cluster.fmt(f),
            #[cfg(feature = "zookeeper")]
            Self::ZooKeeper(ensemble) => ensemble.fmt(f),
            #[cfg(feature = "sql")]
            Self::Sql(table) => table.fmt(f),
        }
    }
}

impl Address {
    /// The address as another rlock reads it: with its user, without its password.
    pub fn without_secret(&self) -> OsString {
        match self {
            Self::Local(Some(dir)) => dir.address(),
            Self::Remote(remote) => remote.without_secret().into(),
            #[cfg(feature = "etcd")]
            Self::Etcd(cluster) => cluster.without_secret().into(),
            #[cfg(feature = "zookeeper")]
            Self::ZooKeeper(ensemble) => ensemble.without_secret().into(),
            #[cfg(feature = "sql")]
            Self::Sql(table) => table.without_secret().into(),
            Self::Local(None) => self.to_string().into(),
        }
    }
}

/// Puts the pieces of a list of addresses together that commas have taken apart. A piece without a
/// scheme belongs to the hosts of the address before it, if that takes several and has no path yet.
pub fn joined<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut addresses: Vec<String> = Vec::new();
    for piece in pieces {
        let is_address = has_scheme(piece.trim()) || piece.trim() == local::NAME;
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

/// Whether more may follow the address behind a comma: hosts, or the names of columns.
fn is_open(address: &str) -> bool {
    let is_list = |rest: &str| match rest.rsplit_once(['?', '&']) {
        Some((_, option)) => option.starts_with("columns="),
        None => !rest.contains('/'),
    };
    Scheme::of(address.trim()).is_some_and(|(scheme, _, rest)| scheme.has_hosts && is_list(rest))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::secret::Secret;
    use crate::store::net::hosts::Endpoint;
    use proptest::prelude::*;

    pub(in crate::store) fn shown(raw: &str) -> String {
        Address::parse(raw).map_or_else(|error| error, |address| address.to_string())
    }

    /// Checks that the address is refused, and that the error says why and shows no secret.
    #[track_caller]
    pub(in crate::store) fn refused(raw: &str, why: &str) {
        let error = Address::parse(raw).expect_err(raw);
        assert!(error.contains(why), "{raw}: {error}");
        assert!(
            !["hunter2", "12345"]
                .iter()
                .any(|secret| error.contains(secret)),
            "{raw}: {error}"
        );
    }

    #[test]
    fn every_form_of_the_design_is_read_and_shown_without_its_password() {
        assert_eq!(shown("redis://h"), "redis://h:6379");
        assert_eq!(shown("valkey://u:p%40ss@h:1/2"), "redis://h:1/2");
        assert_eq!(shown("rediss://:s@[::1]:7"), "rediss://[::1]:7");
        assert_eq!(
            shown("redis+unix:///run/r%20s.sock?db=3"),
            "redis+unix:///run/r%20s.sock?db=3"
        );
        assert_eq!(
            shown("redis+unix://u:p%2Fw@/run/r.sock?db=3"),
            "redis+unix:///run/r.sock?db=3"
        );
        assert_eq!(shown("RedisS://h"), "rediss://h:6379");
        assert_eq!(
            shown("VALKEY+Unix:///run/r.sock"),
            "redis+unix:///run/r.sock"
        );
        assert_eq!(shown("local"), "local");
        assert_eq!(shown("local:/var/lock"), "local:/var/lock");
    }

    #[test]
    fn user_and_password_are_decoded() {
        let Ok(Address::Remote(server)) = Address::parse("redis://us%3Aer:p%40%2Fss@h") else {
            panic!()
        };
        assert_eq!(server.user.as_deref(), Some("us:er"));
        assert_eq!(server.password, Some(Secret::new("p@/ss")));
        for (raw, user, password) in [
            (
                "redis+unix://us%3Aer:p%2Fw@/run/a@b",
                Some("us:er"),
                Some("p/w"),
            ),
            ("redis+unix://:pw@/run/a@b", None, Some("pw")),
            ("redis+unix://u@/run/a@b", Some("u"), None),
            ("redis+unix:///run/a@b", None, None),
        ] {
            let Ok(Address::Remote(server)) = Address::parse(raw) else {
                panic!("{raw}")
            };
            assert_eq!(server.hosts, [Endpoint::Unix("/run/a@b".into())], "{raw}");
            assert_eq!(
                (server.user.as_deref(), server.password),
                (user, password.map(Secret::new)),
                "{raw}"
            );
        }
    }

    #[test]
    fn a_bad_address_says_why_and_never_shows_the_password() {
        for (raw, why) in [
            ("", "is empty"),
            ("redis://h redis://u:hunter2@i", "separated by commas"),
            ("local:dir", "absolute"),
            ("http://h", "unknown scheme"),
            ("redis://", "host"),
            ("redis://u:hunter2@", "host"),
            ("redis://u:hunter2@h:99999", "port"),
            ("redis://u:hunter2@h/x", "x is no database"),
            (
                "redis://u:hunter2@h/0?protocol=3",
                "unknown option protocol",
            ),
            ("redis://u:hunt#er2@h", "%23"),
            ("redis://u:hunter2@extra@h/-1", "-1 is no database"),
            ("redis://u:1/hunter2@h", "%2F"),
            ("redis://u:1?hunter2@h", "%3F"),
            ("redis://u:hunter2", "port"),
            ("redis://u:12345678", "port"),
            ("redis://:12345", "host"),
            ("redis://a%2Fb", "no host has"),
            ("redis://a%3A1", "no host has"),
            ("redis://u%40h", "no host has"),
            ("redis://h%E2%80%8B", "no host has"),
            ("redis+unix:///run/..%2Fx", ".."),
            ("redis+unix://h/x", "three slashes"),
            ("redis+unix://u:hunter2@", "three slashes"),
            ("redis+unix://u:hunter2@run/x", "three slashes"),
            ("redis+unix://u:1/hunter2@/x", "three slashes"),
            ("redis+unix:///x?pass=hunter2", "unknown option pass"),
        ] {
            refused(raw, why);
        }
    }

    #[test]
    fn another_rlock_is_given_the_user_but_not_the_password() {
        let address = Address::parse("redis://us%3Aer:hunter2@h/2").unwrap();
        assert_eq!(address.without_secret(), "redis://us%3Aer@h:6379/2");
        let address = Address::parse("redis+unix://us%3Aer:hunter2@/run/r").unwrap();
        assert_eq!(address.without_secret(), "redis+unix://us%3Aer@/run/r");
        let address = Address::parse("redis+unix:///run/a%2Cb").unwrap();
        assert_eq!(
            address.without_secret(),
            "redis+unix:///run/a%2Cb",
            "a comma would make it two"
        );
    }

    #[test]
    fn a_host_and_a_path_are_short_for_an_address() {
        assert_eq!(shown("h"), "redis://h:6379");
        assert_eq!(shown("redis:7"), "redis://redis:7");
        assert_eq!(shown("[::1]:7"), "redis://[::1]:7");
        assert_eq!(shown("10.0.0.5"), "redis://10.0.0.5:6379");
        assert_eq!(
            shown("/run/my redis%20.sock"),
            "redis+unix:///run/my%20redis%2520.sock"
        );
    }

    #[test]
    fn what_is_no_short_form_says_why_and_shows_no_password() {
        for (raw, why) in [
            ("6379", "write host:port"),
            ("h/2", "not an address"),
            ("redis:/h", "not an address"),
            ("./redis.sock", "not an address"),
            ("h:", "redis://h:6379"),
            ("h:hunter2", "invalid port number"),
            ("h:99999", "invalid port number"),
            ("u:hunter2@h", "begins with redis://"),
            ("/run/x?db=2", "redis+unix:///path?db=N"),
            ("/run/../x", ".."),
            ("/", "no"),
            ("/run/a\nb", "socket"),
            ("a b", "separated by commas"),
            ("redis:redis1", "as in redis://HOST"),
            ("redis+u\x19nix:x", "as in redis+u\\x19nix://HOST"),
            ("Local", "did you mean local"),
            ("LOCAL:/run", "did you mean local"),
        ] {
            let told = shown(raw);
            assert!(
                told.contains(why) && !told.contains("hunter2"),
                "{raw}: {told}"
            );
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

    proptest! {
        #[test]
        fn no_error_of_a_short_form_contains_a_password(tail in "[ -~]{0,20}") {
            let raw = format!("user:hunter2@{tail}");
            prop_assert!(!shown(&raw).contains("hunter2"));
        }

        #[test]
        fn a_shown_short_form_is_read_back(host in "[a-z][a-z0-9.-]{0,9}", port in 1u16.., path in "(/[a-z% ,]{1,5}){1,3}") {
            prop_assume!(host != "local");
            for raw in [format!("{host}:{port}"), path] {
                prop_assert_eq!(Address::parse(&raw), Address::parse(&shown(&raw)));
            }
        }

        #[test]
        fn no_error_and_no_name_contains_the_password(tail in "[ -~]{0,20}") {
            let raw = format!("redis://user:hunter2@{tail}");
            prop_assert!(!shown(&raw).contains("hunter2"));
        }

        #[test]
        fn no_address_makes_the_parser_panic(raw in ".*") {
            let _ = shown(&raw);
        }

        #[test]
        fn a_shown_address_is_read_back(host in "[a-z]{1,9}", port in 1u16.., db in 0u32..99, tls: bool) {
            let raw = format!("{}://{host}:{port}/{db}", if tls { "rediss" } else { "redis" });
            prop_assert_eq!(Address::parse(&raw), Address::parse(&shown(&raw)));
        }
    }
}
