//! The short forms of a server's address: `host[:port]`, and the absolute path of a unix socket.

use url::Url;

use super::{Endpoint, FORMS, SERVER_PORT, Server, directory, socket, tcp, unreadable};
use crate::text::escape;

/// Reads an address without a scheme.
pub(super) fn parse(raw: &str) -> Result<Server, String> {
    // Before anything of it is shown: a part of it may be a password.
    if raw.contains('@') {
        return Err("an address with a user or a password begins with redis:// or the like".to_owned());
    }
    if raw.starts_with('/') {
        return unix_socket(raw);
    }
    let lower = raw.to_ascii_lowercase();
    if lower == "local" || lower.starts_with(directory::SCHEME) {
        return Err("did you mean local, in lower case? A host of this name is written redis://HOST".to_owned());
    }
    if raw.contains(['/', '?', '#', '\\']) {
        return Err(format!("not an address; write {FORMS}"));
    }
    if raw.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("a number is no host; write host:port".to_owned());
    }
    let url = Url::parse(&format!("redis://{raw}")).map_err(|_| unreadable::why(raw))?;
    tcp(&url, false, SERVER_PORT)
}

/// Takes the path as it is typed, without an option.
fn unix_socket(raw: &str) -> Result<Server, String> {
    if raw.contains('?') {
        return Err("a path takes no option; write redis+unix:///path?db=N".to_owned());
    }
    if raw.trim_matches('/').is_empty() || escape::text(raw) != raw {
        return Err("not the path of a socket".to_owned());
    }
    Ok(Server { endpoint: Endpoint::Unix(socket::checked(raw.to_owned())?), user: None, password: None, db: 0 })
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
        assert_eq!(shown("/run/my redis%20.sock"), "redis+unix:///run/my%20redis%2520.sock");
    }

    #[test]
    fn what_is_no_short_form_says_why_and_shows_no_password() {
        for (raw, why) in [
            ("6379", "write host:port"),
            ("h/2", "not an address"),
            ("redis:/h", "not an address"),
            ("./redis.sock", "not an address"),
            ("h:", "redis://h:6379"),
            ("h:hunter2", "no number"),
            ("h:99999", "above 65535"),
            ("u:hunter2@h", "begins with redis://"),
            ("/run/x?db=2", "redis+unix:///path?db=N"),
            ("/run/../x", ".."),
            ("/", "no"),
            ("/run/a\nb", "socket"),
            ("a b", "separated by commas"),
            ("redis:redis1", "as in redis://HOST"),
            ("Local", "did you mean local"),
            ("LOCAL:/run", "did you mean local"),
        ] {
            let told = shown(raw);
            assert!(told.contains(why) && !told.contains("hunter2"), "{raw}: {told}");
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
