//! Servers that have a quorum of their own, as etcd's and ZooKeeper's: their address, and what it
//! takes to reach them.

use std::fmt;
use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::dial::{HostDial, boxed, connect, first_byte};
use super::hosts::{Endpoint, Hosts, share_one, with_user};
use super::tls::{Trust, no_tls};
use crate::secret::{self, Secret};
use crate::store::{Fault, FaultKind};

/// Must be encoded in a path; a comma would end the address.
const IN_PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'%')
    .add(b'?')
    .add(b'#')
    .add(b',')
    .add(b'@');

/// The address of such servers: `scheme://[user[:password]@]host[:port],…[/path]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuorumAddress {
    /// The scheme without TLS. With TLS an `s` follows it.
    scheme: &'static str,
    /// The servers, at least one.
    pub hosts: Vec<Endpoint>,
    /// Whether connections are encrypted.
    pub is_tls: bool,
    /// The user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<Secret>,
    /// The place of all locks there: empty, or with a slash before each part.
    pub path: String,
}

/// How the addresses of one kind of such servers are read.
pub(in crate::store) struct QuorumForm {
    /// The scheme without TLS.
    pub(in crate::store) scheme: &'static str,
    /// Port of a server for its clients.
    pub(in crate::store) port: u16,
    /// The noun for a server.
    pub(in crate::store) server: &'static str,
    /// Reads what stands behind the slash, as it was typed.
    pub(in crate::store) path: fn(&str) -> Result<String, String>,
}

impl QuorumAddress {
    /// Reads what stands behind the scheme.
    pub(in crate::store) fn parse(
        form: &QuorumForm,
        rest: &str,
        is_tls: bool,
    ) -> Result<Self, String> {
        let (hosts, path) = Hosts::several(rest, is_tls, form.port, form.server)?;
        let path = (form.path)(path)?;
        if hosts.user.is_none() && hosts.password.is_some() {
            return Err("a password needs its user: write user:password@".to_owned());
        }
        Ok(Self {
            scheme: form.scheme,
            hosts: hosts.all,
            is_tls,
            user: hosts.user,
            password: hosts.password,
            path,
        })
    }

    /// Returns the address with its user and without its password.
    pub(in crate::store) fn without_secret(&self) -> String {
        with_user(&self.to_string(), self.user.as_deref())
    }

    /// Whether both lead to the same servers.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.scheme == other.scheme && share_one(&self.hosts, &other.hosts)
    }
}

impl fmt::Display for QuorumAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.is_tls { "s" } else { "" };
        let hosts: Vec<String> = self.hosts.iter().map(Endpoint::to_string).collect();
        let path = utf8_percent_encode(&self.path, IN_PATH);
        write!(f, "{}{s}://{}{path}", self.scheme, hosts.join(","))
    }
}

/// How to reach the servers, and as whom.
#[derive(Clone, Default)]
pub struct QuorumAccess {
    /// The servers, at least one.
    pub hosts: Vec<Endpoint>,
    /// The user, if there is one, and the password.
    pub user: Option<(String, Secret)>,
    /// Needed for TLS only.
    pub trust: Option<Trust>,
}

impl QuorumAccess {
    /// Returns what a server said of itself, for people.
    pub(in crate::store) fn told(&self, words: &str) -> String {
        let password = self.user.as_ref().map(|(_, password)| password);
        secret::told(words, password)
    }
}

/// Returns what opens a stream to a server, with TLS if there is something to trust. `plain` says
/// how an address without TLS is written. A server without TLS answers `greeting` with a zero first.
pub(in crate::store) fn dial(
    trust: Option<Trust>,
    plain: &'static str,
    greeting: &[u8],
) -> HostDial {
    let greeting: Arc<[u8]> = greeting.into();
    Arc::new(move |endpoint, limit| {
        let (trust, greeting) = (trust.clone(), Arc::clone(&greeting));
        Box::pin(async move {
            let Endpoint::Tcp { host, port, .. } = &endpoint else {
                return Err(Fault::new(FaultKind::Unfit, "a server has no unix socket"));
            };
            let stream = connect(host, *port, limit).await?;
            let Some(trust) = trust else {
                return boxed(Ok(stream));
            };
            match trust.handshake(host, stream, plain).await {
                // A server without TLS closes a connection whose beginning it does not understand.
                Err(fault)
                    if fault.kind == FaultKind::Unavailable
                        && first_byte(host, *port, &greeting, limit / 4).await == Some(0) =>
                {
                    Err(no_tls(plain))
                }
                shaken => boxed(Ok(shaken?)),
            }
        })
    })
}
