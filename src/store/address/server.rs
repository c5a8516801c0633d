//! The address of a server: `redis://[user[:password]@]host[:port][/db]`, that of a unix socket
//! `redis+unix://[user[:password]@]/path[?db=N]`, and the short forms `host[:port]` and `/path`.

use std::path::{Component, PathBuf};

use url::{Host, Url};

use super::{
    Endpoint, FORMS, HostKind, Remote, SERVER_PORT, Secret, database, decoded, directory, filled,
    is_scheme,
};
use crate::text::escape;

/// Other parts of an address begin with these, or other addresses: encoded in a host they would
/// once be read as such.
const IN_NO_HOST: &str = "/?#@%,\\[]<>^|";

/// Reads the address of a server over TCP behind its scheme and `://`; `port` is its port if none
/// is given. Errors name no part of it that may be a password's.
pub(super) fn tcp(rest: &str, tls: bool, port: u16) -> Result<Remote, String> {
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

/// Reads an address without a scheme.
pub(super) fn short(raw: &str) -> Result<Remote, String> {
    // Before anything of it is shown: a part of it may be a password.
    if raw.contains('@') {
        return Err(
            "an address with a user or a password begins with redis:// or the like".to_owned(),
        );
    }
    if raw.starts_with('/') {
        return unix_socket(raw);
    }
    let lower = raw.to_ascii_lowercase();
    if lower == "local" || lower.starts_with(directory::SCHEME) {
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
    tcp(raw, false, SERVER_PORT).map_err(|why| match raw.split_once(':') {
        Some((scheme, _)) if is_scheme(scheme) => {
            format!(
                "{why}; behind a scheme write ://, as in {}://HOST",
                escape::text(scheme)
            )
        }
        _ => why,
    })
}

/// Takes the path as it is typed, without an option.
fn unix_socket(raw: &str) -> Result<Remote, String> {
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
pub(super) fn socket(rest: &str) -> Result<Remote, String> {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Address;
    use super::super::tests::shown;

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

    proptest! {
        #[test]
        fn no_error_and_no_name_contains_a_password(tail in "[ -~]{0,20}") {
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
    }
}
