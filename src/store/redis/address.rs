//! The address of a node of Redis' kind: a server, the sentinels of a service, or members of a
//! cluster.
//!
//! * `redis://[user[:password]@]host[:port][/db]`: a server over TCP.
//! * `redis+unix://[user[:password]@]/path[?db=N]`, or its `/path` alone: a server's unix socket.
//! * `redis-sentinel://[user:password@]host[:port],…/service[/db]`: user and password are the
//!   servers'. Sentinels never see them.
//! * `redis-cluster://[user:password@]host[:port],…`: each host is a member that tells which
//!   primary serves which slot.

use std::fmt;
use std::path::{Component, PathBuf};

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use url::Url;

use crate::secret::Secret;
use crate::store::net::hosts::{Endpoint, Hosts, decoded, filled, share_one, url_of, with_user};
use crate::text::escape;

/// How to reach a server and as whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remote {
    /// Kind of the hosts.
    pub kind: HostKind,
    /// The hosts, at least one. Several are over TCP, each with TLS or none of them.
    pub hosts: Vec<Endpoint>,
    /// User at the servers. Sentinels never see it.
    pub user: Option<String>,
    /// Password at the servers.
    pub password: Option<Secret>,
    /// Database number at the servers.
    pub db: u32,
}

/// The kind of a node's hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostKind {
    /// The server itself, alone.
    Server,
    /// Sentinels, which name the server of the service of this name.
    Sentinel(String),
    /// Members of a cluster, which tell the primary that serves the lock's slot.
    Member,
}

impl Remote {
    fn at(hosts: Hosts, kind: HostKind, db: u32) -> Self {
        Self {
            kind,
            hosts: hosts.all,
            user: hosts.user,
            password: hosts.password,
            db,
        }
    }

    /// Whether connections to hosts and servers are encrypted.
    pub fn is_tls(&self) -> bool {
        self.hosts
            .iter()
            .any(|host| matches!(host, Endpoint::Tcp { tls: true, .. }))
    }

    /// Whether its hosts are sentinels.
    pub fn has_sentinels(&self) -> bool {
        matches!(self.kind, HostKind::Sentinel(_))
    }

    /// Returns the address with its user and without its password.
    pub(in crate::store) fn without_secret(&self) -> String {
        with_user(&self.to_string(), self.user.as_deref())
    }

    /// Whether both lead to the same server.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.kind == other.kind && share_one(&self.hosts, &other.hosts)
    }
}

/// Port of a server.
pub(in crate::store) const SERVER_PORT: u16 = 6379;

/// Port of a sentinel.
const SENTINEL_PORT: u16 = 26379;

/// Reads the address of a server over TCP behind its scheme and `://`; `port` is its port if none
/// is given. Errors name no part of it that may be a password's.
pub(in crate::store) fn tcp(rest: &str, tls: bool, port: u16) -> Result<Remote, String> {
    let url = url_of(rest)?;
    if let Some((name, _)) = url.query_pairs().next() {
        return Err(format!(
            "unknown option {}; the database number is written /N",
            escape::text(&name)
        ));
    }
    let hosts = Hosts::of(&url, tls, port)?;
    let db = match url.path().trim_start_matches('/') {
        "" => 0,
        number => database(number)?,
    };
    Ok(Remote::at(hosts, HostKind::Server, db))
}

/// Reads the path of a socket as it is typed, without an option.
pub(in crate::store) fn unix_socket(raw: &str) -> Result<Remote, String> {
    if raw.contains('?') {
        return Err("a path takes no option; write redis+unix:///path?db=N".to_owned());
    }
    // A URL, as which it is shown and handed on, has no such parts.
    let is_relative = |part| matches!(part, "." | "..");
    if raw.trim_matches('/').is_empty()
        || raw.split('/').any(is_relative)
        || escape::text(raw) != raw
    {
        return Err("not the path of a socket".to_owned());
    }
    let hosts = vec![Endpoint::Unix(checked(raw.to_owned())?)];
    Ok(Remote {
        kind: HostKind::Server,
        hosts,
        user: None,
        password: None,
        db: 0,
    })
}

/// Reads what stands behind the scheme of a socket's address: `[user[:password]@]/path[?db=N]`.
pub(in crate::store) fn socket(rest: &str) -> Result<Remote, String> {
    // A URL with a user has a host, so the user is taken off first.
    let (login, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let login = login.strip_suffix('@').unwrap_or(login);
    let is_login = rest.len() > login.len() + path.len();
    let url = Url::parse(&format!("redis+unix://{path}"))
        .map_err(|_| "the path cannot be read".to_owned())?;
    if (!login.is_empty() && !is_login) || url.path().len() < 2 {
        return Err(
            "write three slashes and an absolute path: redis+unix:///run/redis.sock".to_owned(),
        );
    }
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let mut db = 0;
    for (name, value) in url.query_pairs() {
        match &*name {
            "db" => db = database(&value)?,
            other => {
                return Err(format!(
                    "unknown option {}; only db is known",
                    escape::text(other)
                ));
            }
        }
    }
    Ok(Remote {
        kind: HostKind::Server,
        hosts: vec![Endpoint::Unix(checked(decoded(url.path())?)?)],
        user: filled(decoded(user)?),
        password: filled(decoded(password)?).map(Secret::new),
        db,
    })
}

/// Checks the path of a socket.
fn checked(path: String) -> Result<PathBuf, String> {
    let path = PathBuf::from(path);
    // Another rlock, which is given this address, would go up first and miss what a link leads to.
    if path.components().any(|part| part == Component::ParentDir) {
        return Err("a path in an address cannot go up with ..".to_owned());
    }
    Ok(path)
}

/// Reads what stands behind the scheme of a service's address.
pub(in crate::store) fn service(rest: &str, tls: bool) -> Result<Remote, String> {
    let (hosts, path) = Hosts::several(rest, tls, SENTINEL_PORT, "sentinel")?;
    let (name, db) = path.split_once('/').unwrap_or((path, ""));
    let name = decoded(name)?;
    if name.is_empty() {
        return Err("the service is missing; write redis-sentinel://host,…/service".to_owned());
    }
    if name.contains(char::is_whitespace) || escape::text(&name) != name {
        return Err("the service has characters that no service has".to_owned());
    }
    let db = if db.is_empty() { 0 } else { database(db)? };
    Ok(Remote::at(hosts, HostKind::Sentinel(name), db))
}

/// Reads what stands behind the scheme of a cluster's address.
pub(in crate::store) fn cluster(rest: &str, tls: bool) -> Result<Remote, String> {
    let (hosts, path) = Hosts::several(rest, tls, SERVER_PORT, "member")?;
    if !path.is_empty() && database(path)? > 0 {
        return Err("a cluster has database 0 only".to_owned());
    }
    Ok(Remote::at(hosts, HostKind::Member, 0))
}

fn database(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| format!("{} is no database number", escape::text(text)))
}

/// Must be encoded in a path, beside control characters and what is not ASCII; a comma would end
/// the address.
const IN_PATH: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'?').add(b'#').add(b',');

/// Must be encoded in a service's name.
const IN_NAME: &AsciiSet = &IN_PATH.add(b'/').add(b'@');

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = self
            .hosts
            .iter()
            .map(Endpoint::to_string)
            .collect::<Vec<_>>()
            .join(",");
        let scheme = if self.is_tls() { "rediss" } else { "redis" };
        let mut db = "/";
        match (&self.kind, &self.hosts[..]) {
            (HostKind::Server, [Endpoint::Unix(path)]) => {
                db = "?db=";
                write!(
                    f,
                    "redis+unix://{}",
                    utf8_percent_encode(&path.to_string_lossy(), IN_PATH)
                )?;
            }
            (HostKind::Server, _) => write!(f, "{scheme}://{hosts}")?,
            (HostKind::Sentinel(service), _) => {
                write!(
                    f,
                    "{scheme}-sentinel://{hosts}/{}",
                    utf8_percent_encode(service, IN_NAME)
                )?;
            }
            (HostKind::Member, _) => write!(f, "{scheme}-cluster://{hosts}")?,
        }
        if self.db > 0 {
            write!(f, "{db}{}", self.db)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::store::address::Address;
    use crate::store::address::tests::{refused, shown};
    use crate::store::net::hosts::MOST_HOSTS;

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
}
