//! A network namespace of the soak, so that its partitions affect no other program.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result};
use nix::unistd::Uid;

use crate::tool::run;

/// Variable that is set in the namespace.
const MARK: &str = "SOAK_PRIVATE";

/// Whether this process is in the namespace.
pub(crate) fn is_private() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Replaces this process by the same program in a namespace. root keeps its rights in it, which the
/// guards make use of.
pub(crate) fn again_in_private(words: &[String]) -> Result<()> {
    let how = if Uid::effective().is_root() {
        "-n"
    } else {
        "-rn"
    };
    let error = Command::new("unshare")
        .args([how, "--"])
        .arg(std::env::current_exe()?)
        .args(words)
        .env(MARK, "1")
        .exec();
    Err(error).context("unshare (util-linux) is needed")
}

/// Brings up the loopback interface, which is down in a new namespace.
pub(crate) fn bring_up() -> Result<()> {
    run("ip", &["link", "set", "lo", "up"]).map(drop)
}

/// Returns the address of the servers for a contender: one of its own, so that it can be cut off
/// alone.
pub(crate) fn address(contender: usize) -> String {
    format!("127.0.1.{}", contender + 1)
}

/// Address from which servers and sentinels of a deployment ask each other.
pub(crate) const INTERNAL: &str = "127.0.2.1";

/// Whether packets can be dropped: a kernel may have no packet filter for an unprivileged
/// namespace.
pub(crate) fn can_cut() -> bool {
    [Cut::partition(usize::from(u8::MAX) - 1), Cut::server(1)]
        .into_iter()
        .all(|cut| cut.and_then(Cut::mend).is_ok())
}

/// A rule that drops packets until it is removed.
pub(crate) struct Cut(Vec<String>);

impl Cut {
    /// Cuts `contender` off from the servers in both directions.
    pub(crate) fn partition(contender: usize) -> Result<Self> {
        Self::put(&[
            "INPUT",
            "-d",
            &address(contender),
            "-p",
            "tcp",
            "-j",
            "DROP",
        ])
    }

    /// Refuses connections to the server on `port`. A reset, unlike a drop, delays no packet past
    /// the mend.
    pub(crate) fn server(port: u16) -> Result<Self> {
        let port = port.to_string();
        Self::put(&[
            "INPUT",
            "-p",
            "tcp",
            "--dport",
            &port,
            "-j",
            "REJECT",
            "--reject-with",
            "tcp-reset",
        ])
    }

    /// Drops the replies to `contender`; its requests arrive.
    pub(crate) fn replies(contender: usize) -> Result<Self> {
        Self::put(&[
            "OUTPUT",
            "-s",
            &address(contender),
            "-p",
            "tcp",
            "--tcp-flags",
            "PSH",
            "PSH",
            "-j",
            "DROP",
        ])
    }

    /// Drops all packets between the server on `port` and those that ask from the internal address.
    pub(crate) fn internal(port: u16) -> Result<[Self; 2]> {
        let port = port.to_string();
        let requests = Self::put(&[
            "INPUT", "-s", INTERNAL, "-p", "tcp", "--dport", &port, "-j", "DROP",
        ])?;
        Ok([
            requests,
            Self::put(&[
                "INPUT", "-d", INTERNAL, "-p", "tcp", "--sport", &port, "-j", "DROP",
            ])?,
        ])
    }

    fn put(rule: &[&str]) -> Result<Self> {
        run("iptables", &[&["-w", "-A"], rule].concat())?;
        Ok(Self(rule.iter().map(ToString::to_string).collect()))
    }

    /// Removes the rule.
    pub(crate) fn mend(self) -> Result<()> {
        let rule: Vec<&str> = self.0.iter().map(String::as_str).collect();
        run("iptables", &[&["-w", "-D"], rule.as_slice()].concat()).map(drop)
    }
}
