//! The files and variables that passwords and certificates come from: those of the servers, and
//! those of sentinels.

#[cfg(feature = "mysql")]
mod mycnf;
#[cfg(feature = "postgres")]
mod pgpass;

use std::fmt::Display;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use nix::unistd::Uid;
use zeroize::Zeroizing;

use super::{Source, Sources, config, open_regular, usage};
use crate::cli::NodeArgs;
use crate::exit::Failure;
use crate::secret::Secret;
use crate::store::address::Address;
#[cfg(feature = "sql")]
use crate::store::net::hosts::Endpoint;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
use crate::store::net::quorum::{QuorumAccess, QuorumAddress};
use crate::store::net::tls::{ClientCertificate, Pem, Trust};
use crate::store::redis::address::Remote;
use crate::store::redis::locator::Way;
use crate::store::redis::locator::way::{ReadSecrets, Secrets, SentinelLogin};
#[cfg(feature = "sql")]
use crate::store::sql::{Product, address::SqlAddress, session::SqlAccess};
use crate::text::escape;
#[cfg(feature = "sql")]
use crate::user;

/// Longest first line of a file with a password that is read.
const LONGEST_PASSWORD: u64 = 64 * 1024;

/// Largest PEM file that is read, in bytes.
const LARGEST_PEM: u64 = 1 << 20;

/// The file that a secret is read from, by the permissions that it must not have.
#[derive(Clone, Copy)]
enum SecretFile {
    /// A file with a password or a private key that the user or the administrator wrote.
    Written,
    /// A credential of systemd. It is root's with an ACL for the service's user, and an ACL shows
    /// as permissions of the group (systemd.exec(5), credentials).
    Credential,
}

impl SecretFile {
    /// Returns the permissions that the file must not have. Root alone chooses the group of a file
    /// of root, which may read it.
    fn exposed(self, owner: u32) -> u32 {
        match self {
            Self::Written if owner == 0 => 0o037,
            Self::Written => 0o077,
            Self::Credential => 0o007,
        }
    }
}

/// Adds to each server's address what it lacks: passwords, and the issuers to trust. They are read
/// again where a server refuses them.
pub(super) fn attach(
    addresses: Vec<Address>,
    args: &NodeArgs,
    sources: &Sources,
) -> Result<Vec<Way>, Failure> {
    let remotes: Vec<Remote> = addresses.into_iter().filter_map(Address::remote).collect();
    let secrets = secrets(&remotes, args, sources)?;
    let again: ReadSecrets = {
        let (remotes, args, sources) = (remotes.clone(), args.clone(), sources.clone());
        Arc::new(move || self::secrets(&remotes, &args, &sources).ok())
    };
    let way = |remote| Way::with(remote, secrets.clone(), Arc::clone(&again));
    Ok(remotes.into_iter().map(way).collect())
}

/// Reads what the addresses lack, and no file that none of them needs.
fn secrets(remotes: &[Remote], args: &NodeArgs, sources: &Sources) -> Result<Secrets, Failure> {
    let mut secrets = Secrets::default();
    if remotes.iter().any(Remote::is_tls) {
        secrets.trust = Some(trust(args)?);
    }
    if remotes.iter().any(|remote| remote.password.is_none()) {
        secrets.password = OF_SERVERS.password(args.password_file.as_deref(), sources)?;
    }
    if remotes.iter().any(Remote::has_sentinels) {
        secrets.sentinel = sentinel_login(args, sources)?;
    }
    Ok(secrets)
}

/// Returns how servers that have a quorum of their own are reached, with the password of the user and
/// the issuers to trust. Reads no file that the address does not need.
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
pub(super) fn access(
    address: &QuorumAddress,
    args: &NodeArgs,
    sources: &Sources,
) -> Result<QuorumAccess, Failure> {
    let user = match (&address.user, &address.password) {
        (None, _) => None,
        (Some(user), Some(password)) => Some((user.clone(), password.clone())),
        (Some(user), None) => {
            let password = OF_USER.password(args.password_file.as_deref(), sources)?;
            let missing = || {
                config(format!(
                    "--node {address}: its user {user} needs a password; give --password-file or RLOCK_PASSWORD"
                ))
            };
            Some((user.clone(), password.ok_or_else(missing)?))
        }
    };
    Ok(QuorumAccess {
        hosts: address.hosts.clone(),
        user,
        trust: address.is_tls.then(|| trust(args)).transpose()?,
    })
}

/// Returns how a database is reached. Files are read again for a later connection.
#[cfg(feature = "sql")]
pub(super) fn sql_access(
    address: &SqlAddress,
    args: &NodeArgs,
    sources: &Sources,
) -> Result<SqlAccess, Failure> {
    let access = sql_access_now(address, args, sources)?;
    let (address, args, sources) = (address.clone(), args.clone(), sources.clone());
    Ok(SqlAccess {
        renew: Some(Arc::new(move || {
            sql_access_now(&address, &args, &sources).ok()
        })),
        ..access
    })
}

/// The same, once. Reads no file that the address does not need: that of the database's own clients is
/// the last source of a password.
#[cfg(feature = "sql")]
fn sql_access_now(
    address: &SqlAddress,
    args: &NodeArgs,
    sources: &Sources,
) -> Result<SqlAccess, Failure> {
    let of_servers = match address.product {
        #[cfg(feature = "mysql")]
        Product::MySql => OF_MYSQL,
        #[cfg(feature = "postgres")]
        Product::Postgres => OF_POSTGRES,
    };
    let password = match &address.password {
        Some(password) => Some(password.clone()),
        None => of_servers.password(args.password_file.as_deref(), sources)?,
    };
    let file = match (&address.user, &password) {
        (Some(_), Some(_)) => ClientFile::None,
        (user, password) => client_file(address.product, user.is_none(), password.is_none())?,
    };
    let user = address.user.clone().or_else(|| file.user());
    let user = user.or_else(user::name).ok_or_else(|| {
        config(format!(
            "--node {address}: this user has no name; name the database's before the host, with an @"
        ))
    })?;
    let database = address.database.clone().unwrap_or_else(|| user.clone());
    let of_host = |host: &Endpoint| {
        let listed = || file.password(host, &database, &user);
        (host.clone(), password.clone().or_else(listed))
    };
    Ok(SqlAccess {
        hosts: address.hosts.iter().map(of_host).collect(),
        trust: address.is_tls.then(|| trust(args)).transpose()?,
        user,
        database,
        renew: None,
    })
}

/// A file with passwords that the clients of a database read.
#[cfg(feature = "sql")]
enum ClientFile {
    None,
    #[cfg(feature = "mysql")]
    MySql(mycnf::Login),
    /// Its name, and its text.
    #[cfg(feature = "postgres")]
    Postgres(String, Zeroizing<String>),
}

/// Reads the file of a database's clients, if it is there and may have what is missing.
#[cfg(feature = "sql")]
#[cfg_attr(
    not(feature = "mysql"),
    expect(unused_variables, reason = "only MySQL's names the user")
)]
fn client_file(
    product: Product,
    lacks_user: bool,
    lacks_password: bool,
) -> Result<ClientFile, Failure> {
    Ok(match product {
        #[cfg(feature = "mysql")]
        Product::MySql if lacks_user || lacks_password => {
            mycnf::read()?.map_or(ClientFile::None, ClientFile::MySql)
        }
        #[cfg(feature = "postgres")]
        Product::Postgres if lacks_password => pgpass::read()?
            .map_or(ClientFile::None, |(name, text)| {
                ClientFile::Postgres(name, text)
            }),
        _ => ClientFile::None,
    })
}

#[cfg(feature = "sql")]
impl ClientFile {
    /// Returns the user that it names.
    fn user(&self) -> Option<String> {
        match self {
            #[cfg(feature = "mysql")]
            Self::MySql(login) => login.user.clone(),
            _ => None,
        }
    }

    /// Returns the password for the user at a server.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(
            unused_variables,
            reason = "only PostgreSQL has a password for each server"
        )
    )]
    fn password(&self, host: &Endpoint, database: &str, user: &str) -> Option<Secret> {
        match self {
            Self::None => None,
            #[cfg(feature = "mysql")]
            Self::MySql(login) => login.password.clone(),
            #[cfg(feature = "postgres")]
            Self::Postgres(name, lines) => {
                let found = pgpass::find(lines, host, database, user)?;
                Some(Secret::of(name.as_str(), found))
            }
        }
    }
}

/// Returns the certificate and its key. One of them without the other is refused.
pub(super) fn certificate(args: &NodeArgs) -> Result<Option<(&Path, &Path)>, Failure> {
    match (args.cert.as_deref(), args.cert_key.as_deref()) {
        (None, None) => Ok(None),
        (Some(cert), Some(key)) => Ok(Some((cert, key))),
        (Some(_), None) => Err(usage("--cert needs its private key: give --cert-key")),
        (None, Some(_)) => Err(usage("--cert-key needs its certificate: give --cert")),
    }
}

/// Reads the certificates that TLS needs.
fn trust(args: &NodeArgs) -> Result<Trust, Failure> {
    let open = |option, path: &Path| match open_regular(path) {
        Ok((file, _)) => read_pem(option, path, file),
        Err(error) => Err(refused(option, path, &error)),
    };
    let read = |(cert, key): (&Path, &Path)| {
        let file = open_secret("--cert-key", key, SecretFile::Written)?;
        let (cert, key) = (open("--cert", cert)?, read_pem("--cert-key", key, file)?);
        ClientCertificate::new(&cert, &key).map_err(config)
    };
    let identity = certificate(args)?.map(read).transpose()?;
    let ca = args.ca.as_deref().map(|ca| open("--ca", ca)).transpose()?;
    Trust::new(ca.as_ref(), identity, args.tls_server_name.clone()).map_err(config)
}

/// Reads a PEM file, unless it is larger than any list of issuers.
fn read_pem(option: &'static str, path: &Path, file: File) -> Result<Pem, Failure> {
    let mut text = Vec::new();
    let read = file.take(LARGEST_PEM + 1).read_to_end(&mut text);
    read.map_err(|error| refused(option, path, &error))?;
    if text.len() as u64 > LARGEST_PEM {
        let why = format!("it is larger than {} MiB", LARGEST_PEM >> 20);
        return Err(refused(option, path, &why));
    }
    let path = shown(path);
    Ok(Pem { option, path, text })
}

/// The sources of a password, beside the address.
struct PasswordSources {
    /// The option that names a file, and its name for clap.
    option: &'static str,
    id: &'static str,
    /// Variables with the password, in their order.
    variables: &'static [&'static str],
    /// The name of systemd's credential.
    credential: &'static str,
}

const OF_SERVERS: PasswordSources = PasswordSources {
    option: "--password-file",
    id: "password_file",
    variables: &["RLOCK_PASSWORD", "REDISCLI_AUTH"],
    credential: "rlock.password",
};

#[cfg(any(feature = "etcd", feature = "zookeeper"))]
const OF_USER: PasswordSources = PasswordSources {
    variables: &["RLOCK_PASSWORD"],
    ..OF_SERVERS
};

#[cfg(feature = "mysql")]
const OF_MYSQL: PasswordSources = PasswordSources {
    variables: &["RLOCK_PASSWORD", "MYSQL_PWD"],
    ..OF_SERVERS
};

#[cfg(feature = "postgres")]
const OF_POSTGRES: PasswordSources = PasswordSources {
    variables: &["RLOCK_PASSWORD", "PGPASSWORD"],
    ..OF_SERVERS
};

const OF_SENTINELS: PasswordSources = PasswordSources {
    option: "--sentinel-password-file",
    id: "sentinel_password_file",
    variables: &["RLOCK_SENTINEL_PASSWORD"],
    credential: "rlock.sentinel-password",
};

impl PasswordSources {
    /// Returns the password of the option, a variable, systemd, or the option's key in a
    /// configuration file, in that order. The credential is chosen for one service, and the file of
    /// a host for all that run there.
    fn password(&self, file: Option<&Path>, sources: &Sources) -> Result<Option<Secret>, Failure> {
        let source = sources.of(self.id);
        let from_file = |file: &Path| {
            let text = read_password(self.option, file, SecretFile::Written)?;
            Ok(Some(Secret::of(
                format!("{}, named by {}", shown(file), self.chooser(source)),
                text,
            )))
        };
        let is_configured = matches!(source, Source::File(_));
        if let Some(file) = file.filter(|_| !is_configured) {
            return from_file(file);
        }
        for name in self.variables {
            if let Some(text) = variable(name)? {
                return Ok(Some(Secret::of(*name, text)));
            }
        }
        let credential = std::env::var_os("CREDENTIALS_DIRECTORY")
            .map(|folder| Path::new(&folder).join(self.credential));
        // A service may have other credentials only. One that cannot be looked up is no missing
        // one.
        let is_missing = |file: &Path| matches!(file.symlink_metadata(), Err(e) if e.kind() == ErrorKind::NotFound);
        let credential = credential.filter(|file| file.is_absolute() && !is_missing(file));
        if let Some(credential) = credential {
            let text = read_password(self.option, &credential, SecretFile::Credential)?;
            return Ok(Some(Secret::of(shown(&credential), text)));
        }
        file.map_or(Ok(None), from_file)
    }

    /// Returns what chose the option's file, for people.
    fn chooser(&self, source: &Source) -> String {
        match source {
            Source::File(origin) => origin.position.to_string(),
            Source::Variable => format!("RLOCK_{}", self.id.to_ascii_uppercase()),
            Source::Typed | Source::BuiltIn => self.option.to_owned(),
        }
    }
}

/// Returns the name and the password by which the sentinels know rlock. Those of the servers are
/// not shown to them.
fn sentinel_login(args: &NodeArgs, sources: &Sources) -> Result<SentinelLogin, Failure> {
    let password = OF_SENTINELS.password(args.sentinel_password_file.as_deref(), sources)?;
    Ok(SentinelLogin {
        user: variable("RLOCK_SENTINEL_USER")?,
        password,
    })
}

/// Returns the value of a variable; an empty one counts as not set.
fn variable(name: &str) -> Result<Option<String>, Failure> {
    let value = std::env::var_os(name).filter(|value| !value.is_empty());
    value
        .map(|value| {
            value
                .into_string()
                .map_err(|_| config(format!("{name} is not UTF-8")))
        })
        .transpose()
}

/// Reads the file with passwords of a database's clients, if it is there. Returns its name and its
/// text.
#[cfg(feature = "sql")]
fn client_text(path: &Path) -> Result<Option<(String, Zeroizing<String>)>, Failure> {
    if matches!(path.symlink_metadata(), Err(error) if error.kind() == ErrorKind::NotFound) {
        return Ok(None);
    }
    // It has passwords of other servers too.
    let mut text = Zeroizing::new(String::with_capacity(4096));
    let option = "the password file";
    let file = open_secret(option, path, SecretFile::Written)?;
    file.take(LONGEST_PASSWORD)
        .read_to_string(&mut text)
        .map_err(|error| refused(option, path, &error))?;
    Ok(Some((shown(path), text)))
}

/// Reads the first line of a file that belongs to the user or to root, without the permissions that
/// expose its kind.
fn read_password(option: &str, path: &Path, kind: SecretFile) -> Result<String, Failure> {
    let fail = |why: &dyn Display| refused(option, path, why);
    // A buffer that grows leaves a copy behind, and this one has room for most passwords.
    let mut text = Zeroizing::new(String::with_capacity(4096));
    let file = open_secret(option, path, kind)?;
    file.take(LONGEST_PASSWORD)
        .read_to_string(&mut text)
        .map_err(|e| fail(&e))?;
    match text.lines().next() {
        None | Some("") => Err(fail(&"its first line is empty")),
        Some(line) => Ok(line.to_owned()),
    }
}

/// Opens a file that belongs to the user or to root, without the permissions that expose its kind.
fn open_secret(option: &str, path: &Path, kind: SecretFile) -> Result<File, Failure> {
    let fail = |why: &dyn Display| refused(option, path, why);
    let user = Uid::effective().as_raw();
    let (file, metadata) = open_regular(path).map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => {
            fail(&format!("{error}; uid {user} must be able to read it (a file of root: by its group and mode 640)"))
        }
        _ => fail(&error),
    })?;
    let owner = metadata.uid();
    if owner != user && owner != 0 {
        return Err(fail(&format!(
            "it belongs to uid {owner}; make uid {user} or root its owner (chown)"
        )));
    }
    let mode = metadata.mode() & 0o777;
    if mode & kind.exposed(owner) != 0 {
        let closed = if owner == user { "600" } else { "640" };
        return Err(fail(&format!(
            "others may read or change it (mode {mode:03o}); run chmod {closed}"
        )));
    }
    Ok(file)
}

fn refused(option: &str, path: &Path, why: &dyn Display) -> Failure {
    config(format!("{option} {}: {why}", shown(path)))
}

fn shown(path: &Path) -> String {
    escape::text(&path.to_string_lossy())
}
