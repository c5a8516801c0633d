//! Why a node gave no vote, what follows from it, and what to do about it.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use super::quorum::Quorum;

/// Why a node's vote is missing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The class of the fault.
    pub kind: FaultKind,
    /// The cause, for people; escaped.
    pub why: String,
}

/// The consequence of a fault for the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// The node refuses us, and will again: password, ACL, certificate.
    Refused,
    /// The node cannot be used as configured.
    Unfit,
    /// The request certainly changed nothing; later it may succeed.
    Unavailable,
    /// No answer: the request may have been executed, or may be yet.
    Unknown,
}

/// Alerts by which a server refuses the certificate that it was shown (RFC 8446 §6.2), in rustls' words.
pub const CERTIFICATE_ALERTS: [&str; 7] = [
    "alert: BadCertificate",
    "alert: UnsupportedCertificate",
    "alert: CertificateRevoked",
    "alert: CertificateExpired",
    "alert: CertificateUnknown",
    "alert: UnknownCA",
    "alert: AccessDenied",
];

impl Fault {
    /// A fault of `kind`, explained by `why`.
    pub fn new(kind: FaultKind, why: impl Into<String>) -> Self {
        Self { kind, why: why.into() }
    }

    /// No answer within `limit`.
    pub fn timeout(limit: Duration) -> Self {
        Self::new(FaultKind::Unknown, format!("no answer within {}", crate::text::duration::show_rounded(limit)))
    }

    /// The remedy for a refusal, by the server's words.
    pub fn cure(&self) -> &'static str {
        let says = |words: &[&str]| words.iter().any(|word| self.why.contains(word));
        if says(&["CertificateRequired"]) {
            "give --cert and --cert-key"
        } else if says(&CERTIFICATE_ALERTS) {
            "the server does not accept the certificate of --cert: see its issuer, its dates and its use"
        } else if says(&["not valid for name"]) {
            "give the name that its certificate has, in the address or with --tls-server-name"
        } else if says(&["HandshakeFailure"]) {
            "give --cert and --cert-key, if the server asks for a certificate"
        } else if says(&["certificate", "TLS"]) {
            "see the server's certificate, and --ca"
        } else if self.why.starts_with("sentinel ") {
            "give RLOCK_SENTINEL_PASSWORD or --sentinel-password-file, and RLOCK_SENTINEL_USER for another user than default"
        } else if says(&["run the 'wait", "run the 'WAIT"]) {
            "grant +wait, and for --fsync +waitaof"
        } else if says(&["NOPERM", "permission", "can't run this command", "can't access"]) {
            "grant the ACL line that rlock doctor --acl prints"
        } else {
            "give the password that the server knows with RLOCK_PASSWORD or --password-file, and its user as redis://USER@HOST"
        }
    }

    /// Whether the ACL forbids a command, a key or a channel. A wrong or missing password is another matter.
    pub fn is_of_acl(&self) -> bool {
        self.kind == FaultKind::Refused && self.why.contains("NOPERM")
    }

    /// Whether it forbids a key or a channel, whatever the command.
    pub fn is_about_names(&self) -> bool {
        self.kind == FaultKind::Refused && self.why.contains("to access")
    }

    /// Whether the ACL forbids the keys of a lock: the node answered, and may serve other locks.
    pub fn is_about_keys(&self) -> bool {
        let words = ["to access a key", "to access one of the keys", "can't access at least one of the keys"];
        self.kind == FaultKind::Refused && words.iter().any(|words| self.why.contains(words))
    }

    /// The warning for a node that refuses us while a majority of the others answers.
    pub fn as_missing_vote(&self) -> String {
        format!("{}; its vote is missing: {}", self.why.trim_end_matches('.'), self.cure())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// The nodes that gave no vote, by number and name, and why.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Faults(Vec<NodeFault>);

/// One node's fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeFault {
    /// The node's number, in the order in which the user named the nodes.
    pub node: usize,
    /// The node's name in messages.
    pub name: String,
    /// Why it gave no vote.
    pub fault: Fault,
}

impl Faults {
    /// Adds the fault of a node.
    pub fn push(&mut self, node: usize, name: &str, fault: Fault) {
        self.0.push(NodeFault { node, name: name.to_owned(), fault });
    }

    /// Adds the faults of other nodes.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Returns the fault of node `node`, if it has one.
    pub fn of(&self, node: usize) -> Option<&Fault> {
        self.0.iter().find(|there| there.node == node).map(|there| &there.fault)
    }

    /// Returns the nodes that refuse us.
    pub fn refusals(&self) -> impl Iterator<Item = &NodeFault> {
        self.0.iter().filter(|there| there.fault.kind == FaultKind::Refused)
    }

    /// Returns those of the faults that satisfy `is_meant`.
    #[must_use]
    pub fn only(&self, is_meant: impl Fn(&Fault) -> bool) -> Self {
        Self(self.0.iter().filter(|there| is_meant(&there.fault)).cloned().collect())
    }

    /// Returns what the faults amount to, where they leave no majority. A refusal is a missing vote, as an absence is, unless
    /// the nodes that refuse us leave no majority by themselves.
    pub fn kind(&self, quorum: Quorum) -> FaultKind {
        if self.refusals().count() > quorum.tolerated() {
            FaultKind::Refused
        } else if self.0.iter().any(|there| there.fault.kind == FaultKind::Unfit) {
            FaultKind::Unfit
        } else {
            FaultKind::Unavailable
        }
    }

    /// Returns the message for a command to which too few nodes gave an answer.
    pub fn no_majority(&self, quorum: Quorum) -> String {
        match quorum.total() {
            1 => self.to_string(),
            total => format!("no majority of the {total} nodes: {self}"),
        }
    }
}

impl Deref for Faults {
    type Target = [NodeFault];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// `redis1: no answer within 1s; redis2, redis3: cannot connect`. Nodes with the same fault stand together, since a whole set
/// often has one: all have just been started, or none can be reached.
impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_same = |a: &NodeFault, b: &NodeFault| a.fault.why == b.fault.why;
        let mut separator = "";
        for (index, there) in self.0.iter().enumerate() {
            if self.0[..index].iter().any(|earlier| has_same(earlier, there)) {
                continue;
            }
            let alike = self.0[index..].iter().filter(|other| has_same(other, there));
            let names = alike.map(|other| other.name.as_str()).collect::<Vec<_>>().join(", ");
            write!(f, "{separator}{names}: {}", there.fault)?;
            separator = "; ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_of_a_refusal_has_its_own_cure() {
        for (why, cure) in [
            ("the user or the password is wrong", "password"),
            ("NOAUTH Authentication required.", "password"),
            ("NOPERM this user has no permissions to run the 'eval' command", "ACL line"),
            ("NOPERM this user has no permissions to run the 'wait' command", "+wait"),
            ("ERR The user executing the script can't run this command or subcommand", "ACL line"),
            ("its certificate is not trusted (certificate expired)", "--ca"),
            ("it does not speak TLS; write redis:// if that is meant", "--ca"),
            ("received fatal alert: CertificateRequired", "--cert-key"),
            ("received fatal alert: UnknownCA", "the certificate of --cert"),
            ("its certificate is not trusted (certificate not valid for name \"h\")", "--tls-server-name"),
            ("sentinel h:26379: NOAUTH Authentication required.", "--sentinel-password-file"),
        ] {
            let fault = Fault::new(FaultKind::Refused, why);
            assert!(fault.cure().contains(cure), "{why}: {}", fault.cure());
            let told = fault.as_missing_vote();
            assert!(told.starts_with(why.trim_end_matches('.')) && !told.contains(".;"), "{told}");
        }
    }

    #[test]
    fn keys_that_are_forbidden_are_told_from_other_refusals() {
        let is_about_keys = |kind, why: &str| Fault::new(kind, why).is_about_keys();
        for why in [
            "NOPERM No permissions to access a key",
            "NOPERM this user has no permissions to access one of the keys used as arguments",
            "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments",
        ] {
            assert!(is_about_keys(FaultKind::Refused, why), "{why}");
            assert!(!is_about_keys(FaultKind::Unknown, why), "{why}");
        }
        for why in ["NOPERM this user has no permissions to run the 'eval' command", "NOAUTH Authentication required."]
        {
            assert!(!is_about_keys(FaultKind::Refused, why), "{why}");
        }
    }

    #[test]
    fn nodes_that_refuse_us_are_the_cause_once_they_leave_no_majority() {
        use FaultKind::{Refused, Unavailable, Unfit, Unknown};
        let faults = |kinds: &[FaultKind]| {
            let mut faults = Faults::default();
            kinds.iter().enumerate().for_each(|(node, kind)| faults.push(node, "redis", Fault::new(*kind, "why")));
            faults.kind(Quorum::of(3))
        };
        assert_eq!(faults(&[Refused, Refused]), Refused);
        assert_eq!(faults(&[Refused, Unknown]), Unavailable);
        assert_eq!(faults(&[Refused, Unfit]), Unfit);
    }

    #[test]
    fn faults_are_listed_with_the_names_of_their_nodes() {
        let mut faults = Faults::default();
        faults.push(0, "redis1", Fault::new(FaultKind::Unknown, "no answer"));
        assert_eq!(faults.no_majority(Quorum::of(1)), "redis1: no answer");
        faults.push(2, "redis3", Fault::new(FaultKind::Unavailable, "cannot connect"));
        let listed = "no majority of the 3 nodes: redis1: no answer; redis3: cannot connect";
        assert_eq!(faults.no_majority(Quorum::of(3)), listed);
        faults.push(1, "redis2", Fault::new(FaultKind::Unavailable, "no answer"));
        let listed = "no majority of the 3 nodes: redis1, redis2: no answer; redis3: cannot connect";
        assert_eq!(faults.no_majority(Quorum::of(3)), listed);
    }
}
