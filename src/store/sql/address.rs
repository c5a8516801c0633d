//! The address of a table of locks:
//! `postgresql://[user[:password]@]host[:5432],…[/db][?OPTIONS]`.

use std::fmt;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::secret::Secret;
use crate::store::net::hosts::{Endpoint, Hosts, decoded, share_one, url_of, with_user};

/// Must be encoded in the name of a database or a directory.
const IN_TEXT: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'%')
    .add(b'?')
    .add(b'#')
    .add(b'&')
    .add(b',')
    .add(b'@')
    .add(b'/');

/// Port of a server.
const PORT: u16 = 5432;

/// The columns of ShedLock's table: name, end, begin, holder.
const COLUMNS: [&str; 4] = ["name", "lock_until", "locked_at", "locked_by"];

/// The address of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SqlAddress {
    /// The servers, at least one, in the order in which they are tried.
    pub hosts: Vec<Endpoint>,
    /// Whether connections are encrypted.
    pub is_tls: bool,
    /// The user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<Secret>,
    /// The database; that of the user's name if there is none.
    pub database: Option<String>,
    /// The table, as it is written in statements.
    pub table: String,
    /// Its columns, in the order of [`COLUMNS`].
    pub columns: [String; 4],
    /// The time zone of the sessions of other clients.
    pub time_zone: Option<String>,
}

impl SqlAddress {
    /// Reads what stands behind the scheme.
    pub(in crate::store) fn parse(rest: &str) -> Result<Self, String> {
        let (main, options) = rest.split_once('?').unwrap_or((rest, ""));
        if options.contains('@') {
            return Err("a / or ? in a password must be written %2F or %3F".to_owned());
        }
        let mut options = Options::parse(options)?;
        let hosts = hosts(main, &mut options)?;
        if hosts.0.user.is_none() && hosts.0.password.is_some() {
            return Err("a password needs its user: write user:password@".to_owned());
        }
        let database = decoded(hosts.1.trim_end_matches('/'))?;
        if database.contains(char::is_control) {
            return Err("the database has characters that no name has".to_owned());
        }
        let Hosts {
            all,
            user,
            password,
        } = hosts.0;
        Ok(Self {
            hosts: all,
            is_tls: options.is_tls,
            user,
            password,
            database: Some(database).filter(|name| !name.is_empty()),
            table: options.table,
            columns: options.columns,
            time_zone: options.time_zone,
        })
    }

    /// Returns the address with its user and without its password.
    pub(in crate::store) fn without_secret(&self) -> String {
        with_user(&self.to_string(), self.user.as_deref())
    }

    /// Whether both lead to the same servers.
    pub fn overlaps(&self, other: &Self) -> bool {
        share_one(&self.hosts, &other.hosts)
    }
}

/// The options behind the `?`.
struct Options {
    is_tls: bool,
    table: String,
    columns: [String; 4],
    time_zone: Option<String>,
    /// The directory of a unix socket.
    socket: Option<String>,
}

impl Options {
    fn parse(text: &str) -> Result<Self, String> {
        let mut options = Self {
            is_tls: false,
            table: "shedlock".to_owned(),
            columns: COLUMNS.map(str::to_owned),
            time_zone: None,
            socket: None,
        };
        for option in text.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let value = decoded(value)?;
            match name {
                "table" => options.table = table(value)?,
                "columns" => {
                    let names: Vec<String> = value.split(',').map(str::to_owned).collect();
                    options.columns = <[String; 4]>::try_from(names)
                        .ok()
                        .filter(|names| names.iter().all(|name| is_identifier(name)))
                        .ok_or("columns= takes four names of letters, digits, _ and $: those of name, lock_until, locked_at and locked_by")?;
                }
                "host" if value.starts_with('/') => options.socket = Some(value),
                "host" => return Err("host= takes the directory of a unix socket".to_owned()),
                "sslmode" => {
                    options.is_tls = match value.as_str() {
                        "disable" => false,
                        "require" | "verify-ca" | "verify-full" => true,
                        _ => return Err("sslmode= is disable or verify-full: rlock never falls back to a connection without TLS".to_owned()),
                    }
                }
                "time_zone" if is_zone(&value) => options.time_zone = Some(value),
                "time_zone" => return Err("time_zone= takes the name of a time zone".to_owned()),
                "target_session_attrs"
                    if ["read-write", "primary", "any"].contains(&value.as_str()) => {}
                "target_session_attrs" => {
                    return Err("target_session_attrs= is read-write: a lock needs a server that takes writes".to_owned());
                }
                _ => return Err("an option is unknown; there are table, columns, host, sslmode, time_zone and target_session_attrs".to_owned()),
            }
        }
        Ok(options)
    }
}

/// Reads the hosts, and returns them with what follows the slash behind them.
fn hosts<'a>(main: &'a str, options: &mut Options) -> Result<(Hosts, &'a str), String> {
    let (login, rest) = match main.split_once('/') {
        // The rest of a password.
        Some((_, path)) if path.contains('@') => {
            return Err("a / or ? in a password must be written %2F or %3F".to_owned());
        }
        _ => main
            .rsplit_once('@')
            .map_or(("", main), |(login, rest)| (&main[..=login.len()], rest)),
    };
    let (listed, path) = rest.split_once('/').unwrap_or((rest, ""));
    let encoded = listed
        .get(..3)
        .is_some_and(|begin| begin.eq_ignore_ascii_case("%2f"));
    let (socket, port) = match options.socket.take() {
        Some(socket) => (Some(socket), listed.trim_start_matches(':')),
        None if encoded => {
            let (host, port) = listed.split_once(':').unwrap_or((listed, ""));
            (Some(decoded(host)?), port)
        }
        None => (None, ""),
    };
    let Some(socket) = socket else {
        let (found, _) = Hosts::several(
            &main[..main.len() - path.len()],
            options.is_tls,
            PORT,
            "server",
        )?;
        return Ok((found, path));
    };
    if options.is_tls {
        return Err("a unix socket takes no TLS".to_owned());
    }
    let port = match port {
        "" => PORT,
        port => port
            .parse()
            .map_err(|_| "beside the directory of a unix socket only a port may stand")?,
    };
    // The host is read for its user and password alone.
    let read = Hosts::of(&url_of(&format!("{login}localhost"))?, false, port)?;
    let socket = format!("{}/.s.PGSQL.{port}", socket.trim_end_matches('/'));
    let all = vec![Endpoint::Unix(socket.into())];
    Ok((Hosts { all, ..read }, path))
}

fn table(name: String) -> Result<String, String> {
    let parts: Vec<&str> = name.split('.').collect();
    if parts.len() <= 2 && parts.into_iter().all(is_identifier) {
        return Ok(name);
    }
    Err("table= takes [schema.]name, of letters, digits, _ and $".to_owned())
}

/// Whether a statement may have it as a name without quotes.
fn is_identifier(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_$".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.len() <= 63
        && name.chars().all(is_part)
}

fn is_zone(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_/+-:".contains(c);
    !name.is_empty() && name.len() <= 63 && name.chars().all(is_part)
}

impl fmt::Display for SqlAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let encoded = |text: &str| utf8_percent_encode(text, IN_TEXT).to_string();
        let host = |host: &Endpoint| match host {
            Endpoint::Unix(path) => {
                let text = path.to_string_lossy().into_owned();
                let (dir, file) = text.rsplit_once('/').unwrap_or(("", &text));
                let port = file.rsplit('.').next().unwrap_or_default();
                format!("{}:{port}", encoded(dir))
            }
            tcp @ Endpoint::Tcp { .. } => tcp.to_string(),
        };
        let hosts: Vec<String> = self.hosts.iter().map(host).collect();
        write!(f, "postgresql://{}", hosts.join(","))?;
        if let Some(database) = &self.database {
            write!(f, "/{}", encoded(database))?;
        }
        let columns = self.columns.join(",");
        let options = [
            ("sslmode", self.is_tls.then_some("verify-full")),
            (
                "table",
                Some(self.table.as_str()).filter(|table| *table != "shedlock"),
            ),
            ("time_zone", self.time_zone.as_deref()),
            // The last one: a list of addresses is read with its commas.
            (
                "columns",
                Some(columns.as_str()).filter(|names| *names != COLUMNS.join(",")),
            ),
        ];
        let given = options
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        for (index, (name, value)) in given.enumerate() {
            let mark = if index == 0 { '?' } else { '&' };
            write!(f, "{mark}{name}={value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::store::address::tests::{refused, shown};
    use crate::store::address::{Address, joined};

    #[test]
    fn every_form_is_read_and_shown_without_its_password() {
        for (raw, as_shown) in [
            ("postgresql://a", "postgresql://a:5432"),
            ("POSTGRES://u:p%40ss@a/app", "postgresql://a:5432/app"),
            (
                "postgresql://u:x@a,b:1,[::1]:2/app?sslmode=require&table=jobs.locks",
                "postgresql://a:5432,b:1,[::1]:2/app?sslmode=verify-full&table=jobs.locks",
            ),
            (
                "postgresql://u@%2Frun%2Fpg:7/app?target_session_attrs=primary",
                "postgresql://%2Frun%2Fpg:7/app",
            ),
            (
                "postgresql://u@/app?host=/run/pg",
                "postgresql://%2Frun%2Fpg:5432/app",
            ),
            (
                "postgresql://a?columns=a,b,c,d&time_zone=Europe/Berlin",
                "postgresql://a:5432?time_zone=Europe/Berlin&columns=a,b,c,d",
            ),
        ] {
            assert_eq!(shown(raw), as_shown);
            assert_eq!(shown(as_shown), as_shown);
        }
        let address = Address::parse("postgresql://us%3Aer:hunter2@a,b/x?table=t").unwrap();
        assert_eq!(
            address.without_secret(),
            "postgresql://us%3Aer@a:5432,b:5432/x?table=t"
        );
    }

    #[test]
    fn a_list_is_read_with_the_commas_of_hosts_and_columns() {
        for raw in ["postgresql://a,b/x", "postgresql://a?columns=a,b,c,d"] {
            assert_eq!(joined(raw.split(',')), [raw]);
        }
        assert_eq!(joined("postgresql://a/x?table=t,b".split(',')).len(), 2);
    }

    #[test]
    fn a_bad_address_says_why_and_never_shows_the_password() {
        for (raw, why) in [
            ("postgresql://", "host"),
            ("postgresql:///app", "host"),
            ("postgresql://u:hunter2@a,a:5432", "a:5432 twice"),
            ("postgresql://u:hunter2@a:99999", "port"),
            ("postgresql://u:1/hunter2@a", "%2F"),
            ("postgresql://u:1?hunter2@a", "%2F"),
            ("postgresql://:hunter2@a", "needs its user"),
            ("postgresql://a/x#y", "%23"),
            ("postgresql://a?sslmode=prefer", "never falls back"),
            ("postgresql://a?table=a.b.c", "table="),
            ("postgresql://a?table=a;drop", "table="),
            ("postgresql://a?columns=a,b", "four names"),
            ("postgresql://a?password=hunter2", "unknown"),
            ("postgresql://a?target_session_attrs=standby", "read-write"),
            ("postgresql://a?host=b", "unix socket"),
            ("postgresql://a?host=/run", "only a port"),
            ("postgresql://?host=/run&sslmode=require", "no TLS"),
            ("postgresql://a?time_zone=a'b", "time zone"),
        ] {
            refused(raw, why);
        }
    }

    proptest! {
        #[test]
        fn no_error_and_no_name_contains_the_password(tail in "[ -~]{0,20}") {
            let raw = format!("postgresql://user:hunter2@{tail}");
            prop_assert!(!shown(&raw).contains("hunter2"));
        }
    }
}
