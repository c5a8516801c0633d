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

/// The fault of a login that the server does not know.
pub const WRONG_LOGIN: &str = "the user or the password is wrong";

/// The part of it that tells why the user is the default one.
pub const NO_USER_NAMED: &str = "as none is named";

/// Words in the cause of a refusal by TLS, and its remedy; the first that fits counts.
const OF_TLS: &[(&[&str], &str)] = &[
    (&["asks for a client certificate"], "give --cert and --cert-key"),
    (&["accept the certificate of --cert"], "see its issuer, its dates and its use"),
    (&["handshake failure"], "give --cert and --cert-key, if the server asks for a certificate"),
    (&["its issuer is unknown"], "give its issuer with --ca"),
    (&["it names no host", "X.509 v1"], "make it of version 3, with a subjectAltName"),
    (&["trusted: it is for "], "give the name that it has, in the address or with --tls-server-name"),
    (&["it is a CA's own"], "give the server a certificate that this CA has issued"),
    (&["it has expired", "it is not valid yet"], "see its dates, and this machine's clock"),
    (&["its certificate is not trusted"], "see the server's certificate, and --ca"),
    (&["TLS: ", "the TLS connection"], "see the server's TLS settings"),
];

/// The same of rights.
const OF_RIGHTS: &[(&[&str], &str)] = &[
    (&["run the 'wait", "run the 'WAIT"], "grant +wait, and for --fsync +waitaof"),
    (
        &["NOPERM", "permission", "can't run this command", "can't access"],
        "grant the line of rlock doctor --acl with -k for each lock of this user",
    ),
];

/// The same of servers that are away or change nothing.
const OF_SERVERS: &[(&[&str], &str)] = &[
    (&["cannot connect: failed to lookup", "Name does not resolve"], "check the name in --node"),
    (&["cannot connect: Connection refused", "cannot connect: No such file"], START_IT),
    (&["unreachable (os error", "No route", "timed out"], "see the network, or check --node"),
    (&["no answer within"], "see whether it hangs, and the network"),
    (&["OOM "], "raise its maxmemory, or delete keys"),
    (&["READONLY", "it is a replica"], "name the primary"),
    (&["replicas have the write"], "see its replicas"),
    (&["sentinels name a primary"], "see the sentinels that the list names"),
];

const START_IT: &str = "start it, or check --node";

const OF_SENTINEL: &str =
    "give RLOCK_SENTINEL_PASSWORD or --sentinel-password-file, and RLOCK_SENTINEL_USER for another user than default";

const NAME_THE_USER: &str = "correct it, or name its user in the address, as in redis://USER@HOST";

const CORRECT_IT: &str = "correct the password, or the user in the address";

const GIVE_PASSWORD: &str = "give the password that the server knows with RLOCK_PASSWORD or --password-file, and its user in the address, as in redis://USER@HOST";

impl Fault {
    /// A fault of `kind`, explained by `why`.
    pub fn new(kind: FaultKind, why: impl Into<String>) -> Self {
        Self { kind, why: why.into() }
    }

    /// No answer within `limit`.
    pub fn timeout(limit: Duration) -> Self {
        Self::new(FaultKind::Unknown, format!("no answer within {}", crate::text::duration::show_rounded(limit)))
    }

    /// The remedy, as far as there is one that the cause does not name itself.
    pub fn cure(&self) -> Option<&'static str> {
        match self.kind {
            FaultKind::Refused => Some(self.cure_of_refusal()),
            FaultKind::Unfit => None,
            FaultKind::Unavailable | FaultKind::Unknown => self.cure_in(OF_SERVERS),
        }
    }

    fn cure_in(&self, cures: &[(&[&str], &'static str)]) -> Option<&'static str> {
        let fits = |words: &[&str]| words.iter().any(|word| self.why.contains(word));
        cures.iter().find(|(words, _)| fits(words)).map(|(_, cure)| *cure)
    }

    /// The remedy for a refusal, by the server's words.
    pub fn cure_of_refusal(&self) -> &'static str {
        let is_of_sentinel = self.why.starts_with("sentinel ");
        // Before the tables: the cause names a user and a file, in any words.
        if !is_of_sentinel && self.why.contains(WRONG_LOGIN) {
            return if self.why.contains(NO_USER_NAMED) { NAME_THE_USER } else { CORRECT_IT };
        }
        let of_sentinel = is_of_sentinel.then_some(OF_SENTINEL);
        self.cure_in(OF_TLS).or(of_sentinel).or_else(|| self.cure_in(OF_RIGHTS)).unwrap_or(GIVE_PASSWORD)
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
        format!("{}; its vote is missing: {}", self.why.trim_end_matches('.'), self.cure_of_refusal())
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
        of_nodes(&self.to_string(), quorum)
    }

    /// The same with what to do. A remedy for all nodes stands at the end, and any other behind its own cause.
    pub fn no_majority_with_cures(&self, quorum: Quorum) -> String {
        let common = self.0.first().and_then(|there| there.fault.cure());
        let common = common.filter(|cure| self.0.iter().all(|there| there.fault.cure() == Some(cure)));
        let cure = match common {
            Some(START_IT) if self.0.len() > 1 => Some("start them, or check --node"),
            other => other,
        };
        match cure {
            // A server's sentence ends with a full stop of its own.
            Some(cure) => format!("{}; {cure}", self.no_majority(quorum).trim_end_matches('.')),
            None => of_nodes(&Listed { faults: self, has_cures: true }.to_string(), quorum),
        }
    }
}

impl Deref for Faults {
    type Target = [NodeFault];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

fn of_nodes(told: &str, quorum: Quorum) -> String {
    match quorum.total() {
        1 => told.to_owned(),
        total => format!("no majority of the {total} nodes: {told}"),
    }
}

/// `redis1: no answer within 1s; redis2, redis3: cannot connect`. Nodes with the same fault stand together, since a whole set
/// often has one: all have just been started, or none can be reached.
impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Listed { faults: self, has_cures: false }.fmt(f)
    }
}

/// Faults as a list; with remedies in brackets if it `has_cures`.
struct Listed<'a> {
    faults: &'a Faults,
    has_cures: bool,
}

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = &self.faults.0;
        let has_same = |a: &NodeFault, b: &NodeFault| a.fault.why == b.fault.why;
        let mut separator = "";
        for (index, there) in all.iter().enumerate() {
            if all[..index].iter().any(|earlier| has_same(earlier, there)) {
                continue;
            }
            let alike = all[index..].iter().filter(|other| has_same(other, there));
            let names = alike.map(|other| other.name.as_str()).collect::<Vec<_>>().join(", ");
            match there.fault.cure().filter(|_| self.has_cures) {
                Some(cure) => write!(f, "{separator}{names}: {} ({cure})", there.fault.why.trim_end_matches('.'))?,
                None => write!(f, "{separator}{names}: {}", there.fault)?,
            }
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
            (
                "the user or the password is wrong (user default, as none is named; password from REDISCLI_AUTH)",
                "redis://USER",
            ),
            (
                "the user or the password is wrong (user ci; password from the address)",
                "correct the password, or the user",
            ),
            (
                "sentinel h:1: the user or the password is wrong (user default, as none is named; no password)",
                "RLOCK_SENTINEL_USER",
            ),
            ("NOAUTH Authentication required.", "password"),
            ("NOPERM this user has no permissions to run the 'eval' command", "doctor --acl"),
            ("NOPERM this user has no permissions to run the 'wait' command", "+wait"),
            ("ERR The user executing the script can't run this command or subcommand", "doctor --acl"),
            ("sentinel h:26379: NOAUTH Authentication required.", "--sentinel-password-file"),
        ] {
            let fault = Fault::new(FaultKind::Refused, why);
            let told = fault.cure().unwrap();
            assert!(told.contains(cure), "{why}: {told}");
            let told = fault.as_missing_vote();
            assert!(told.starts_with(why.trim_end_matches('.')) && !told.contains(".;"), "{told}");
        }
    }

    #[test]
    fn one_remedy_for_all_nodes_stands_at_the_end_and_any_other_behind_its_cause() {
        use FaultKind::{Refused, Unavailable, Unknown};
        let told = |all: &[(FaultKind, &str)]| {
            let mut faults = Faults::default();
            for (node, (kind, why)) in all.iter().enumerate() {
                faults.push(node, ["a", "b", "c"][node], Fault::new(*kind, *why));
            }
            faults.no_majority_with_cures(Quorum::of(all.len()))
        };
        let away = (Unavailable, "cannot connect: Connection refused (os error 111)");
        let unnamed = (Unavailable, "cannot connect: failed to lookup address information: Name does not resolve");
        let (full, hung) = ((Unavailable, "OOM command not allowed."), (Unknown, "no answer within 1s"));
        let (locked, loading) = ((Refused, "NOAUTH Authentication required."), (Unavailable, "LOADING"));
        let descriptors = (Unavailable, "cannot connect: Too many open files (os error 24)");
        assert_eq!(told(&[away]), format!("a: {}; start it, or check --node", away.1));
        assert!(told(&[unnamed]).ends_with("; check the name in --node"));
        assert_eq!(told(&[full]), "a: OOM command not allowed; raise its maxmemory, or delete keys");
        assert_eq!(told(&[loading]), "a: LOADING");
        assert_eq!(told(&[descriptors]), format!("a: {}", descriptors.1));
        let both = told(&[away, away]);
        assert_eq!(both, format!("no majority of the 2 nodes: a, b: {}; start them, or check --node", away.1));
        let mixed = told(&[away, locked, loading]);
        assert!(mixed.contains(
            "(os error 111) (start it, or check --node); b: NOAUTH Authentication required (give the password"
        ));
        assert!(mixed.ends_with("; c: LOADING"));
        assert!(told(&[hung, full]).ends_with("b: OOM command not allowed (raise its maxmemory, or delete keys)"));
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
