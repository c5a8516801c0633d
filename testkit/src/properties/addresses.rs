//! Addresses of nodes, one or several with commas between them, as in `--node` and `RLOCK_NODE`.

use std::ffi::OsString;

use rlock::store::address::{Address, joined};
use rlock::store::redis::address::Remote;

use super::{is_fit_to_be_shown, shown};

pub fn hold(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    for raw in &joined(text.split(',')) {
        match Address::parse(raw) {
            Ok(address) => is_the_same_when_read_again(raw, &address),
            Err(why) => is_fit_to_be_shown(&why, shown(raw.len())),
        }
        keeps_its_password(raw);
    }
}

/// An accepted address is shown without its secret, and the shown form leads to the same place when
/// it is read again. So does the form that the command inherits, which also stays one address in a
/// list.
fn is_the_same_when_read_again(raw: &str, address: &Address) {
    let name = address.to_string();
    is_fit_to_be_shown(&name, shown(raw.len()));
    let Some(remote) = address.clone().remote() else {
        return;
    };
    let [anonymous, without] = [None, remote.user.clone()].map(|user| {
        Address::Remote(Remote {
            user,
            password: None,
            ..remote.clone()
        })
    });
    let handed_on = address
        .without_secret()
        .into_string()
        .expect("a server's address is text");
    assert_eq!(
        joined(handed_on.split(',')),
        [handed_on.as_str()],
        "it would be taken for two"
    );
    assert_eq!(Address::parse(&name), Ok(anonymous), "{name}");
    assert_eq!(Address::parse(&handed_on), Ok(without), "{handed_on}");
}

/// A password before any `@` makes no difference to what is shown or inherited, however malformed
/// the address is.
fn keeps_its_password(raw: &str) {
    let Some((scheme, rest)) = raw.split_once("://") else {
        return;
    };
    // A path may have an @ in it, and is no secret.
    if scheme.ends_with("unix") || raw.starts_with("local:") {
        return;
    }
    let [told, other] = ["Zq9hunter2", "Yp8sesame1"].map(|password| {
        let before = rest
            .match_indices('@')
            .map(|(at, _)| format!("{scheme}://{}:{password}{}", &rest[..at], &rest[at..]));
        before
            .chain([format!("{scheme}://:{password}@{rest}")])
            .map(|with| said(&with))
            .collect::<Vec<_>>()
    });
    assert_eq!(told, other);
}

fn said(raw: &str) -> (String, Option<OsString>) {
    match Address::parse(raw) {
        Ok(address) => (address.to_string(), Some(address.without_secret())),
        Err(why) => (why, None),
    }
}
