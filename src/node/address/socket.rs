//! The address of a unix socket: `redis+unix://[user[:password]@]/path[?db=N]`.

use std::path::{Component, PathBuf};

use url::Url;

use super::{Endpoint, Secret, Server, database, decoded, filled};
use crate::text::escape;

/// Reads what stands behind the scheme of a socket's address: `[user[:password]@]/path[?db=N]`.
pub(super) fn parse(rest: &str) -> Result<Server, String> {
    // A URL with a user has a host, so the user is taken off first.
    let (login, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let login = login.strip_suffix('@').unwrap_or(login);
    let is_login = rest.len() > login.len() + path.len();
    let url = Url::parse(&format!("redis+unix://{path}")).map_err(|_| "the path cannot be read".to_owned())?;
    if (!login.is_empty() && !is_login) || url.path().len() < 2 {
        return Err("write three slashes and an absolute path: redis+unix:///run/redis.sock".to_owned());
    }
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let mut db = 0;
    for (name, value) in url.query_pairs() {
        match &*name {
            "db" => db = database(&value)?,
            other => return Err(format!("unknown option {}; only db is known", escape::text(other))),
        }
    }
    Ok(Server {
        endpoint: Endpoint::Unix(checked(decoded(url.path())?)?),
        user: filled(decoded(user)?),
        password: filled(decoded(password)?).map(Secret::new),
        db,
    })
}

/// Checks the path of a socket.
pub(super) fn checked(path: String) -> Result<PathBuf, String> {
    let path = PathBuf::from(path);
    // Another rlock, which is given this address, would go up first and miss what a link leads to.
    if path.components().any(|part| part == Component::ParentDir) {
        return Err("a path in an address cannot go up with ..".to_owned());
    }
    Ok(path)
}
