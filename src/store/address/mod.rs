//! Where a node is: its URL, checked before anything is sent. docs/nodes.md, Addresses.
//!
//! redis' own URL reader answers "did not parse" and ignores options it does not know; an operator
//! needs to hear what is wrong, and without the password.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use percent_encoding::{
    AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode,
};

pub use crate::secret::Secret;
use crate::text::escape;
pub use directory::LocalDir;
pub use several::joined;

mod directory;
mod server;
mod several;

/// A node's address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A server that speaks Redis' protocol, or the hosts that tell where it is.
    Remote(Remote),
    /// flock(2) in a directory of this machine; `None` is the user's own default directory.
    Local(Option<LocalDir>),
}

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
    /// Whether connections to hosts and servers are encrypted.
    pub fn is_tls(&self) -> bool {
        self.hosts
            .iter()
            .any(|host| matches!(host, Endpoint::Tcp { tls: true, .. }))
    }

    /// Whether both lead to the same server.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.kind == other.kind && self.hosts.iter().any(|host| other.hosts.contains(host))
    }
}

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Endpoint {
    /// Host (without the brackets of an IPv6 address) and port; `tls` for `rediss://`.
    Tcp {
        /// Name or address.
        host: String,
        /// TCP port.
        port: u16,
        /// Whether the connection is encrypted and the server's name verified.
        tls: bool,
    },
    /// A unix socket.
    Unix(PathBuf),
}

/// The forms of an address, for error messages.
const FORMS: &str = "redis://[user:password@]host[:port][/db], rediss://…, redis+unix://[user:password@]/path[?db=N], \
                     redis-sentinel://host,…/service, redis-cluster://host,…, host[:port], /path, local or local:/dir[?shared]";

/// Port of a server.
const SERVER_PORT: u16 = 6379;

/// Whether addresses of nodes begin with `scheme`, in any case, and `://`.
pub fn is_scheme(scheme: &str) -> bool {
    let scheme = scheme.to_ascii_lowercase();
    let server = scheme.split(['+', '-']).next().unwrap_or_default();
    matches!(server, "redis" | "rediss" | "valkey" | "valkeys") || scheme == "unix"
}

impl Address {
    /// Reads one address. Errors name it without its password.
    pub fn parse(raw: &str) -> Result<Self, String> {
        let fail = |why: &str| Err(format!("--node {}: {why}", without_password(raw)));
        if raw.is_empty() {
            return Err("--node: one of the addresses is empty".to_owned());
        }
        if raw == "local" {
            return Ok(Self::Local(None));
        }
        if let Some(dir) = raw.strip_prefix(directory::SCHEME) {
            return LocalDir::parse(dir)
                .map(|dir| Self::Local(Some(dir)))
                .or_else(|why| fail(&why));
        }
        let Some((scheme, rest)) = raw.split_once("://") else {
            return server::short(raw)
                .map(Self::Remote)
                .or_else(|why| fail(&why));
        };
        if raw.contains('#') {
            return fail("a # in an address must be written %23");
        }
        let parsed = match &*scheme.to_ascii_lowercase() {
            "redis" | "valkey" => server::tcp(rest, false, SERVER_PORT),
            "rediss" | "valkeys" => server::tcp(rest, true, SERVER_PORT),
            "redis+unix" | "valkey+unix" | "unix" => server::socket(rest),
            "redis-sentinel" | "valkey-sentinel" => several::service(rest, false),
            "rediss-sentinel" | "valkeys-sentinel" => several::service(rest, true),
            "redis-cluster" | "valkey-cluster" => several::cluster(rest, false),
            "rediss-cluster" | "valkeys-cluster" => several::cluster(rest, true),
            _ => return fail(&format!("unknown scheme; write {FORMS}")),
        };
        parsed.map(Self::Remote).or_else(|why| fail(&why))
    }
}

fn filled(text: String) -> Option<String> {
    if text.is_empty() { None } else { Some(text) }
}

fn database(text: &str) -> Result<u32, String> {
    text.parse()
        .map_err(|_| format!("{} is no database number", escape::text(text)))
}

fn decoded(text: &str) -> Result<String, String> {
    percent_decode_str(text)
        .decode_utf8()
        .map(Into::into)
        .map_err(|_| "it is not UTF-8 once decoded".to_owned())
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

/// Must be encoded in a path, beside control characters and what is not ASCII; a comma would end
/// the address.
const IN_PATH: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'?').add(b'#').add(b',');

/// Must be encoded in a service's name.
const IN_NAME: &AsciiSet = &IN_PATH.add(b'/').add(b'@');

/// The name by which messages know the node: its address without user and password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(None) => f.write_str("local"),
            Self::Local(Some(dir)) => dir.fmt(f),
            Self::Remote(remote) => remote.fmt(f),
        }
    }
}

impl Address {
    /// The address as another rlock reads it: with its user, without its password.
    pub fn without_secret(&self) -> OsString {
        match self {
            Self::Local(Some(dir)) => dir.address(),
            Self::Remote(Remote {
                user: Some(user), ..
            }) => {
                let user = utf8_percent_encode(user, NON_ALPHANUMERIC).to_string();
                self.to_string()
                    .replacen("://", &format!("://{user}@"), 1)
                    .into()
            }
            _ => self.to_string().into(),
        }
    }
}

/// `host:port`, or the path of a socket.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => f.write_str(&escape::text(&path.to_string_lossy())),
            Self::Tcp { host, port, .. } => f.write_str(&host_and_port(&escape::text(host), *port)),
        }
    }
}

/// Returns `host:port`, with an IPv6 address in brackets.
pub fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

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
    use super::*;
    use proptest::prelude::*;

    pub(super) fn shown(raw: &str) -> String {
        Address::parse(raw).map_or_else(|error| error, |address| address.to_string())
    }

    /// Checks that the address is refused, and that the error says why and shows no secret.
    #[track_caller]
    pub(super) fn refused(raw: &str, why: &str) {
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

    proptest! {
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
