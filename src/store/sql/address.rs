//! The address of a table of locks: `postgresql://[user[:password]@]host[:5432],…[/db][?OPTIONS]`,
//! and the like of another database.

use std::fmt;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::dialect::Product;
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

/// The columns of ShedLock's table: name, end, begin, holder.
const COLUMNS: [&str; 4] = ["name", "lock_until", "locked_at", "locked_by"];

/// The form of the addresses of one kind of database.
pub(in crate::store) struct Form {
    /// The scheme, as addresses are shown.
    pub(in crate::store) scheme: &'static str,
    /// Port of a server.
    pub(in crate::store) port: u16,
    /// The option of TLS, and its values without and with it.
    pub(in crate::store) tls: (&'static str, &'static str, &'static str),
    /// The option of a unix socket, and what it takes.
    pub(in crate::store) socket: (&'static str, &'static str),
    /// All options, for people.
    pub(in crate::store) options: &'static str,
    /// Whether the option `target_session_attrs` is known.
    pub(in crate::store) names_role: bool,
    /// Whether an address must name the database.
    pub(in crate::store) needs_database: bool,
    /// Returns the path of the unix socket that an address names, with the port beside it.
    pub(in crate::store) socket_of: fn(&str, u16) -> String,
    /// Returns what an address says of the path of a unix socket: its host, and its port.
    pub(in crate::store) host_of: fn(&str) -> (&str, Option<&str>),
}

/// The address of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SqlAddress {
    /// The kind of the database.
    pub product: Product,
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
    pub(in crate::store) fn parse(product: Product, rest: &str) -> Result<Self, String> {
        let form = product.dialect().form();
        let (main, options) = rest.split_once('?').unwrap_or((rest, ""));
        if options.contains('@') {
            return Err("a / or ? in a password must be written %2F or %3F".to_owned());
        }
        let mut options = Options::parse(form, options)?;
        let hosts = hosts(form, main, &mut options)?;
        if hosts.0.user.is_none() && hosts.0.password.is_some() {
            return Err("a password needs its user: write user:password@".to_owned());
        }
        let database = decoded(hosts.1.trim_end_matches('/'))?;
        if database.contains(char::is_control) {
            return Err("the database has characters that no name has".to_owned());
        }
        if database.is_empty() && form.needs_database {
            return Err(format!(
                "the database is missing: write {}://HOST/DATABASE",
                form.scheme
            ));
        }
        let Hosts {
            all,
            user,
            password,
        } = hosts.0;
        Ok(Self {
            product,
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
    /// A unix socket, as the option names it.
    socket: Option<String>,
}

impl Options {
    fn parse(form: &Form, text: &str) -> Result<Self, String> {
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
            let (tls, plain, verified) = form.tls;
            match name {
                "table" => options.table = table(value)?,
                "columns" => {
                    let names: Vec<String> = value.split(',').map(str::to_owned).collect();
                    options.columns = <[String; 4]>::try_from(names)
                        .ok()
                        .filter(|names| names.iter().all(|name| is_identifier(name)))
                        .ok_or("columns= takes four names of letters, digits, _ and $: those of name, lock_until, locked_at and locked_by")?;
                }
                name if name == form.socket.0 => {
                    if !value.starts_with('/') {
                        return Err(format!("{name}= takes {}", form.socket.1));
                    }
                    options.socket = Some(value);
                }
                name if name == tls => {
                    let value = value.to_ascii_lowercase().replace('-', "_");
                    options.is_tls = match value.as_str() {
                        "disable" | "disabled" => false,
                        "require" | "required" | "verify_ca" | "verify_full"
                        | "verify_identity" => true,
                        _ => {
                            return Err(format!(
                                "{tls}= is {plain} or {verified}: rlock never falls back to a connection without TLS"
                            ));
                        }
                    }
                }
                "time_zone" if is_zone(&value) => options.time_zone = Some(value),
                "time_zone" => return Err("time_zone= takes the name of a time zone".to_owned()),
                "target_session_attrs" if form.names_role => {
                    if !["read-write", "primary", "any"].contains(&value.as_str()) {
                        return Err("target_session_attrs= is read-write: a lock needs a server that takes writes".to_owned());
                    }
                }
                _ => return Err(format!("an option is unknown; there are {}", form.options)),
            }
        }
        Ok(options)
    }
}

/// Reads the hosts, and returns them with what follows the slash behind them.
fn hosts<'a>(
    form: &Form,
    main: &'a str,
    options: &mut Options,
) -> Result<(Hosts, &'a str), String> {
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
            form.port,
            "server",
        )?;
        return Ok((found, path));
    };
    if options.is_tls {
        return Err("a unix socket takes no TLS".to_owned());
    }
    let port = match port {
        "" => form.port,
        port => port
            .parse()
            .map_err(|_| "beside a unix socket only a port may stand")?,
    };
    // The host is read for its user and password alone.
    let read = Hosts::of(&url_of(&format!("{login}localhost"))?, false, port)?;
    let socket = (form.socket_of)(&socket, port);
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
        let form = self.product.dialect().form();
        let encoded = |text: &str| utf8_percent_encode(text, IN_TEXT).to_string();
        let host = |host: &Endpoint| match host {
            Endpoint::Unix(path) => {
                let path = path.to_string_lossy();
                let (host, port) = (form.host_of)(&path);
                let port = port.map_or_else(String::new, |port| format!(":{port}"));
                format!("{}{port}", encoded(host))
            }
            tcp @ Endpoint::Tcp { .. } => tcp.to_string(),
        };
        let hosts: Vec<String> = self.hosts.iter().map(host).collect();
        write!(f, "{}://{}", form.scheme, hosts.join(","))?;
        if let Some(database) = &self.database {
            write!(f, "/{}", encoded(database))?;
        }
        let columns = self.columns.join(",");
        let options = [
            (form.tls.0, self.is_tls.then_some(form.tls.2)),
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

#[cfg(all(test, feature = "postgres"))]
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

#[cfg(all(test, feature = "mysql"))]
mod tests_of_mysql {
    use crate::store::address::tests::{refused, shown};
    use crate::store::address::{Address, joined};

    #[test]
    fn every_form_is_read_and_shown_without_its_password() {
        for (raw, as_shown) in [
            ("mysql://a/x", "mysql://a:3306/x"),
            ("MARIADB://u:p%40ss@a,b:1/x", "mysql://a:3306,b:1/x"),
            (
                "mysql://u:x@a/x?ssl-mode=required&table=jobs.locks",
                "mysql://a:3306/x?ssl-mode=VERIFY_IDENTITY&table=jobs.locks",
            ),
            ("mysql://u@%2Frun%2Fm.sock/x", "mysql://%2Frun%2Fm.sock/x"),
            (
                "mysql://u@/x?socket=/run/m.sock",
                "mysql://%2Frun%2Fm.sock/x",
            ),
            (
                "mysql://a/x?columns=a,b,c,d&time_zone=+02:00",
                "mysql://a:3306/x?time_zone=+02:00&columns=a,b,c,d",
            ),
        ] {
            assert_eq!(shown(raw), as_shown);
            assert_eq!(shown(as_shown), as_shown);
        }
        let address = Address::parse("mariadb://us%3Aer:hunter2@a/x").unwrap();
        assert_eq!(address.without_secret(), "mysql://us%3Aer@a:3306/x");
        assert_eq!(joined("mysql://a,b/x".split(',')), ["mysql://a,b/x"]);
    }

    #[test]
    fn a_bad_address_says_why_and_never_shows_the_password() {
        for (raw, why) in [
            ("mysql:///app", "host"),
            ("mysql://a", "the database is missing"),
            ("mysql://u:1/hunter2@a/x", "%2F"),
            ("mysql://a/x?ssl-mode=PREFERRED", "never falls back"),
            ("mysql://a/x?sslmode=require", "unknown"),
            ("mysql://a/x?password=hunter2", "unknown"),
            ("mysql://a/x?socket=m.sock", "the path of a unix socket"),
            ("mysql://?socket=/run/m&ssl-mode=REQUIRED", "no TLS"),
        ] {
            refused(raw, why);
        }
    }
}
