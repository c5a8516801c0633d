//! The address of a server: `redis://[user[:password]@]host[:port][/db]`, and that of a unix socket
//! `redis+unix://[user[:password]@]/path[?db=N]`, or its `/path` alone.

use std::path::{Component, PathBuf};

use url::{Host, Url};

use super::{Endpoint, HostKind, Remote, Secret, database, decoded, filled};
use crate::text::escape;

/// Other parts of an address begin with these, or other addresses: encoded in a host they would
/// once be read as such.
const IN_NO_HOST: &str = "/?#@%,\\[]<>^|";

/// Reads the address of a server over TCP behind its scheme and `://`; `port` is its port if none
/// is given. Errors name no part of it that may be a password's.
pub(in crate::store) fn tcp(rest: &str, tls: bool, port: u16) -> Result<Remote, String> {
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
        return Err("a / or ? in a password must be written %2F or %3F".to_owned());
    }
    if let Some((name, _)) = url.query_pairs().next() {
        return Err(format!(
            "unknown option {}; the database number is written /N",
            escape::text(&name)
        ));
    }
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
    let db = match url.path().trim_start_matches('/') {
        "" => 0,
        number => database(number)?,
    };
    Ok(Remote {
        kind: HostKind::Server,
        hosts: vec![Endpoint::Tcp {
            host,
            port: url.port().unwrap_or(port),
            tls,
        }],
        user: filled(decoded(url.username())?),
        password: url
            .password()
            .map(decoded)
            .transpose()?
            .and_then(filled)
            .map(Secret::new),
        db,
    })
}

/// Reads the path of a socket as it is typed, without an option.
pub(in crate::store) fn unix_socket(raw: &str) -> Result<Remote, String> {
    if raw.contains('?') {
        return Err("a path takes no option; write redis+unix:///path?db=N".to_owned());
    }
    if raw.trim_matches('/').is_empty() || escape::text(raw) != raw {
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
