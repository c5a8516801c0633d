//! The servers that an address names: hosts and ports, and the user that rlock is there.

use std::fmt;
use std::path::PathBuf;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use url::{Host, Url};

use crate::secret::Secret;
use crate::text::escape;

/// Most hosts of one address that are accepted.
pub(in crate::store) const MOST_HOSTS: usize = 15;

/// Other parts of an address begin with these, or other addresses: encoded in a host they would
/// once be read as such.
const IN_NO_HOST: &str = "/?#@%,\\[]<>^|";

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

/// Hosts, with the user and the password that stand before them.
pub(in crate::store) struct Hosts {
    /// At least one. Several are over TCP, each with TLS or none of them.
    pub(in crate::store) all: Vec<Endpoint>,
    pub(in crate::store) user: Option<String>,
    pub(in crate::store) password: Option<Secret>,
}

impl Hosts {
    /// Reads the host of a server over TCP; `port` is its port if none is given.
    pub(in crate::store) fn of(url: &Url, tls: bool, port: u16) -> Result<Self, String> {
        let host = match url.host_str() {
            None | Some("") => return Err("the host is missing".to_owned()),
            Some(host) => decoded(host.trim_start_matches('[').trim_end_matches(']'))?,
        };
        let has_port_inside = host.contains(':') && !matches!(url.host(), Some(Host::Ipv6(_)));
        if has_port_inside
            || host.contains(|c: char| c.is_whitespace() || IN_NO_HOST.contains(c))
            || escape::text(&host) != host
        {
            return Err("the host has characters that no host has".to_owned());
        }
        let port = url.port().unwrap_or(port);
        Ok(Self {
            all: vec![Endpoint::Tcp { host, port, tls }],
            user: filled(decoded(url.username())?),
            password: filled(decoded(url.password().unwrap_or_default())?).map(Secret::new),
        })
    }

    /// Reads hosts with commas between them. Returns them, and what follows the slash behind them.
    /// `kind` is the noun for one of them.
    pub(in crate::store) fn several<'a>(
        rest: &'a str,
        tls: bool,
        port: u16,
        kind: &str,
    ) -> Result<(Self, &'a str), String> {
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = hosts.rsplit_once('@').unwrap_or(("", hosts));
        if path.contains('@') || login.contains('?') {
            return Err(ENCODE_PASSWORD.to_owned());
        }
        if rest.contains('?') {
            return Err("it takes no option behind a ?".to_owned());
        }
        let at = if login.is_empty() {
            String::new()
        } else {
            format!("{login}@")
        };
        let server = |host: &str| Self::of(&url_of(&format!("{at}{}", host.trim()))?, tls, port);
        let mut typed = hosts.split(',');
        let mut hosts = server(typed.next().unwrap_or_default())?;
        for host in typed {
            for host in server(host)?.all {
                if hosts.all.contains(&host) {
                    return Err(format!("it names the {kind} {host} twice"));
                }
                hosts.all.push(host);
            }
        }
        match hosts.all.len() {
            ..=MOST_HOSTS => Ok((hosts, path)),
            count => Err(format!("it names {count} {kind}s; {MOST_HOSTS} are enough")),
        }
    }
}

const ENCODE_PASSWORD: &str = "a / or ? in a password must be written %2F or %3F";

/// Reads the address of a server over TCP behind its scheme and `://`. Errors name no part of it
/// that may be a password's.
pub(in crate::store) fn url_of(rest: &str) -> Result<Url, String> {
    let url = Url::parse(&format!("redis://{rest}")).map_err(|error| {
        let is_list = rest.contains(char::is_whitespace);
        if is_list {
            "it has a blank; several addresses are separated by commas".to_owned()
        } else {
            error.to_string()
        }
    })?;
    // Said before anything of it is shown: the rest of a password.
    if url.path().contains('@') || url.query().is_some_and(|query| query.contains('@')) {
        return Err(ENCODE_PASSWORD.to_owned());
    }
    Ok(url)
}

/// Puts `user` into an address.
pub(in crate::store) fn with_user(address: &str, user: Option<&str>) -> String {
    user.map_or_else(
        || address.to_owned(),
        |user| {
            let user = utf8_percent_encode(user, NON_ALPHANUMERIC);
            address.replacen("://", &format!("://{user}@"), 1)
        },
    )
}

/// Whether both name one host.
pub(in crate::store) fn share_one(some: &[Endpoint], others: &[Endpoint]) -> bool {
    some.iter().any(|host| others.contains(host))
}

/// Returns `text` unless it is empty.
pub(in crate::store) fn filled(text: String) -> Option<String> {
    if text.is_empty() { None } else { Some(text) }
}

/// Returns a part of an address as it was meant.
pub(in crate::store) fn decoded(text: &str) -> Result<String, String> {
    percent_decode_str(text)
        .decode_utf8()
        .map(Into::into)
        .map_err(|_| "it is not UTF-8 once decoded".to_owned())
}
