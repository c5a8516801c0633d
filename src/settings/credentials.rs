//! The files and variables that the nodes' passwords and certificates come from.

use std::fmt::Display;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::Uid;

use super::config;
use crate::cli::{NodeArgs, Source, Sources};
use crate::exit::Failure;
use crate::input;
use crate::node::address::{Endpoint, Secret, Server};
use crate::node::redis::access::Access;
use crate::node::redis::tls::Trust;
use crate::text::escape;

/// Longest first line of a `--password-file` that is read.
const LONGEST_PASSWORD: u64 = 64 * 1024;

/// Permissions that a password file must not have.
const PRIVATE: u32 = 0o077;

/// Permissions that a credential of systemd must not have. It is root's with an ACL for the service's user, and an ACL shows as
/// permissions of the group (systemd.exec(5), credentials).
const CREDENTIAL: u32 = 0o007;

/// Adds to each server what its address lacks: a password, and the issuers to trust.
pub(super) fn attach(servers: Vec<Server>, args: &NodeArgs, sources: &Sources) -> Result<Vec<Access>, Failure> {
    let is_tls = |server: &Server| matches!(server.endpoint, Endpoint::Tcp { tls: true, .. });
    let trust = if servers.iter().any(is_tls) { Some(Trust::new(args.ca.as_deref()).map_err(config)?) } else { None };
    let common = if servers.iter().any(|server| server.password.is_none()) {
        password(args.password_file.as_deref(), sources)?
    } else {
        None
    };
    let access = |server: Server| Access {
        password: server.password.clone().or_else(|| common.clone()),
        trust: trust.clone().filter(|_| is_tls(&server)),
        server,
    };
    Ok(servers.into_iter().map(access).collect())
}

/// Returns the password of `--password-file`, `RLOCK_PASSWORD`, `REDISCLI_AUTH`, the `password-file` of a configuration file, or
/// systemd, in that order.
fn password(file: Option<&Path>, sources: &Sources) -> Result<Option<Secret>, Failure> {
    let is_configured = matches!(sources.of("password_file"), Source::File(_));
    if let Some(file) = file.filter(|_| !is_configured) {
        return read_password(file, PRIVATE).map(Some);
    }
    for variable in ["RLOCK_PASSWORD", "REDISCLI_AUTH"] {
        if let Some(value) = std::env::var_os(variable).filter(|value| !value.is_empty()) {
            let text = value.into_string().map_err(|_| config(format!("{variable} is not UTF-8")))?;
            return Ok(Some(Secret::new(text)));
        }
    }
    if let Some(file) = file {
        return read_password(file, PRIVATE).map(Some);
    }
    let credential = std::env::var_os("CREDENTIALS_DIRECTORY").map(|folder| Path::new(&folder).join("rlock.password"));
    // A service may have other credentials only.
    let credential = credential.filter(|file| file.is_absolute() && file.symlink_metadata().is_ok());
    credential.map(|file| read_password(&file, CREDENTIAL)).transpose()
}

/// Reads the first line of a file that belongs to the user or to root, with none of the `exposed` permissions.
fn read_password(path: &Path, exposed: u32) -> Result<Secret, Failure> {
    let shown = escape::text(&path.to_string_lossy());
    let fail = |why: &dyn Display| config(format!("--password-file {shown}: {why}"));
    let (file, metadata) = input::open(path).map_err(|e| fail(&e))?;
    let (user, owner) = (Uid::effective().as_raw(), metadata.uid());
    if owner != user && owner != 0 {
        return Err(fail(&format!("it belongs to uid {owner}; make uid {user} or root its owner (chown)")));
    }
    if metadata.mode() & exposed != 0 {
        return Err(fail(&format!("others may read it (mode {:03o}); run chmod 600", metadata.mode() & 0o777)));
    }
    let mut text = String::new();
    file.take(LONGEST_PASSWORD).read_to_string(&mut text).map_err(|e| fail(&e))?;
    match text.lines().next() {
        None | Some("") => Err(fail(&"its first line is empty")),
        Some(line) => Ok(Secret::new(line)),
    }
}
