//! The password file of PostgreSQL's clients: lines `host:port:database:user:password`, in which a
//! `*` matches all, and `\` stands before a `:` or a `\` (libpq, The Password File).

use std::path::PathBuf;

use zeroize::Zeroizing;

use super::{client_text, variable};
use crate::exit::Failure;
use crate::store::net::hosts::Endpoint;

/// The directories in which servers have their sockets. A line for `localhost` is meant for those.
const USUAL_SOCKETS: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// Returns the file that `PGPASSFILE` names, or `~/.pgpass`, and its text, if it is there.
pub(super) fn read() -> Result<Option<(String, Zeroizing<String>)>, Failure> {
    let usual = || std::env::home_dir().map(|home| home.join(".pgpass"));
    let Some(path) = variable("PGPASSFILE")?.map(PathBuf::from).or_else(usual) else {
        return Ok(None);
    };
    client_text(&path)
}

/// Returns the password of the first line for the user at this server.
pub(super) fn find(lines: &str, host: &Endpoint, database: &str, user: &str) -> Option<String> {
    let (host, port) = match host {
        Endpoint::Tcp { host, port, .. } => (host.clone(), port.to_string()),
        Endpoint::Unix(path) => {
            let dir = path.parent()?.to_string_lossy().into_owned();
            let port = path.extension()?.to_string_lossy().into_owned();
            let is_usual = USUAL_SOCKETS.contains(&dir.as_str());
            (
                if is_usual {
                    "localhost".to_owned()
                } else {
                    dir
                },
                port,
            )
        }
    };
    lines.lines().find_map(|line| {
        let mut fields = fields(line);
        if line.starts_with('#') || fields.len() < 5 {
            return None;
        }
        let password = fields.swap_remove(4);
        let wanted = [host.as_str(), &port, database, user];
        let is_for_us = wanted
            .iter()
            .zip(&fields)
            .all(|(own, field)| field == "*" || field == own);
        (is_for_us && !password.is_empty()).then_some(password)
    })
}

/// Returns the fields of a line.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        let Some(last) = fields.last_mut() else {
            break;
        };
        match c {
            ':' => fields.push(String::new()),
            '\\' => last.extend(characters.next()),
            c => last.push(c),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_for_the_user_at_the_server_counts() {
        let lines = "# db:5432:*:*:comment\nshort:line\ndb:1:*:*:other-port\ndb:5432:app:rlock:hunter\\:2\\\\\n*:*:*:*:all\n";
        let at = |host: &str| Endpoint::Tcp {
            host: host.to_owned(),
            port: 5432,
            tls: false,
        };
        let found = |host: &Endpoint, database| find(lines, host, database, "rlock");
        assert_eq!(found(&at("db"), "app").as_deref(), Some("hunter:2\\"));
        assert_eq!(found(&at("db"), "other").as_deref(), Some("all"));
        let own = "localhost:5432:*:*:usual\n/run/pg:7:*:*:own\n";
        for (path, password) in [
            ("/var/run/postgresql/.s.PGSQL.5432", Some("usual")),
            ("/run/pg/.s.PGSQL.7", Some("own")),
            ("/run/pg/.s.PGSQL.8", None),
        ] {
            let host = Endpoint::Unix(path.into());
            assert_eq!(find(own, &host, "app", "rlock").as_deref(), password);
        }
    }
}
