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
    /// The remedy. The cause of an unfit node ends with it.
    pub remedy: Option<&'static str>,
    /// The right that is missing, if that is the cause.
    pub denied: Option<Denied>,
}

/// The consequence of a fault for the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// The node refuses us, and will again: password, rights, certificate.
    Refused,
    /// The node cannot be used as configured.
    Unfit,
    /// This machine lacks something to use the node: descriptors, memory.
    Short,
    /// The request certainly changed nothing; later it may succeed.
    Unavailable,
    /// No answer: the request may have been executed, or may be yet.
    Unknown,
}

/// A right that a server denies to its user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denied {
    /// All, without the right user and password.
    Login,
    Command,
    /// The keys of a lock. Those of others may be allowed.
    Key,
    /// A channel of waiters.
    Channel,
}

impl Fault {
    /// A fault of `kind`, explained by `why`.
    pub fn new(kind: FaultKind, why: impl Into<String>) -> Self {
        Self {
            kind,
            why: why.into(),
            remedy: None,
            denied: None,
        }
    }

    /// A refusal, for lack of the right to what is `denied`.
    pub fn denied(denied: Denied, why: impl Into<String>, remedy: &'static str) -> Self {
        Self {
            denied: Some(denied),
            ..Self::new(FaultKind::Refused, why).with_remedy(remedy)
        }
    }

    /// A node that cannot be used as configured, as `what` says, and the remedy.
    pub fn unfit(what: impl fmt::Display, remedy: &'static str) -> Self {
        Self::new(FaultKind::Unfit, format!("{what}; {remedy}")).with_remedy(remedy)
    }

    /// No answer within `limit`.
    pub fn timeout(limit: Duration) -> Self {
        let why = format!(
            "no answer within {}",
            crate::text::duration::show_rounded(limit)
        );
        Self::new(FaultKind::Unknown, why)
            .with_remedy("see whether it hangs, the network, and the port")
    }

    /// A release found the lock gone. An earlier one, whose answer was lost, may have given it back, and
    /// another client may have taken it since.
    pub fn unheard() -> Self {
        let why = "the answer to the release was lost, and the lock is gone";
        Self::new(FaultKind::Unknown, why)
    }

    /// The same fault, with what to do.
    #[must_use]
    pub fn with_remedy(self, remedy: &'static str) -> Self {
        Self {
            remedy: Some(remedy),
            ..self
        }
    }

    /// Returns the cause without the remedy, and without the full stop of a server's sentence.
    pub fn cause(&self) -> &str {
        let ends = |remedy| self.why.strip_suffix(remedy)?.strip_suffix("; ");
        let cause = self.remedy.and_then(ends).unwrap_or(&self.why);
        cause.trim_end_matches('.')
    }

    /// Returns the remedy, if the cause does not end with it.
    pub fn separate_remedy(&self) -> Option<&'static str> {
        self.remedy.filter(|remedy| !self.why.ends_with(remedy))
    }

    /// Whether the same request may succeed later.
    pub fn may_pass(&self) -> bool {
        !matches!(self.kind, FaultKind::Refused | FaultKind::Unfit)
    }

    /// Whether the node refuses what we show to it, or we refuse its certificate: not a right of a
    /// user that it knows.
    pub fn is_about_login(&self) -> bool {
        self.kind == FaultKind::Refused && matches!(self.denied, None | Some(Denied::Login))
    }

    /// Whether names are denied, of a key or a channel, and not a command.
    pub fn is_about_names(&self) -> bool {
        matches!(self.denied, Some(Denied::Key | Denied::Channel))
    }

    /// The warning for a node that refuses us while a majority of the others answers.
    pub fn as_missing_vote(&self) -> String {
        let remedy = self
            .remedy
            .map(|remedy| format!(": {remedy}"))
            .unwrap_or_default();
        format!("{}; its vote is missing{remedy}", self.cause())
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
        self.0.push(NodeFault {
            node,
            name: name.to_owned(),
            fault,
        });
    }

    /// Adds the faults of other nodes.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Returns the fault of node `node`, if it has one.
    pub fn of(&self, node: usize) -> Option<&Fault> {
        self.0
            .iter()
            .find(|there| there.node == node)
            .map(|there| &there.fault)
    }

    /// Returns the nodes that refuse us.
    pub fn refusals(&self) -> impl Iterator<Item = &NodeFault> {
        self.0
            .iter()
            .filter(|there| there.fault.kind == FaultKind::Refused)
    }

    /// Returns those of the faults that satisfy `is_meant`.
    #[must_use]
    pub fn only(&self, is_meant: impl Fn(&Fault) -> bool) -> Self {
        Self(
            self.0
                .iter()
                .filter(|there| is_meant(&there.fault))
                .cloned()
                .collect(),
        )
    }

    /// Returns what the faults amount to, where they leave no majority. A refusal is a missing
    /// vote, as an absence is, unless the nodes that refuse us leave no majority by themselves.
    pub fn kind(&self, quorum: Quorum) -> FaultKind {
        if self.refusals().count() > quorum.tolerated() {
            FaultKind::Refused
        } else {
            let is_any = |kind: &FaultKind| self.0.iter().any(|there| there.fault.kind == *kind);
            let lasting = [FaultKind::Short, FaultKind::Unfit]
                .into_iter()
                .find(is_any);
            lasting.unwrap_or(FaultKind::Unavailable)
        }
    }

    /// Returns the message for a command to which too few nodes gave an answer.
    pub fn no_majority(&self, quorum: Quorum) -> String {
        of_nodes(&self.to_string(), quorum)
    }

    /// The same with what to do. A remedy for all nodes stands at the end, and any other behind its
    /// own cause.
    pub fn no_majority_with_remedies(&self, quorum: Quorum) -> String {
        let common = self.0.first();
        let common = common.and_then(|there| there.fault.separate_remedy());
        match common.filter(|remedy| {
            self.0
                .iter()
                .all(|there| there.fault.remedy == Some(remedy))
        }) {
            // A server's sentence ends with a full stop of its own.
            Some(remedy) => format!(
                "{}; {remedy}",
                self.no_majority(quorum).trim_end_matches('.')
            ),
            None => of_nodes(
                &Listed {
                    faults: self,
                    has_remedies: true,
                }
                .to_string(),
                quorum,
            ),
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

/// `redis1: no answer within 1s; redis2, redis3: cannot connect`. Nodes with the same fault stand
/// together, since a whole set often has one: all have just been started, or none can be reached.
impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Listed {
            faults: self,
            has_remedies: false,
        }
        .fmt(f)
    }
}

/// Faults as a list; with remedies in brackets if it `has_remedies`.
struct Listed<'a> {
    faults: &'a Faults,
    has_remedies: bool,
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
            let names = alike
                .map(|other| other.name.as_str())
                .collect::<Vec<_>>()
                .join(", ");
            let remedy = there.fault.separate_remedy();
            match remedy.filter(|_| self.has_remedies) {
                Some(remedy) => {
                    write!(f, "{separator}{names}: {} ({remedy})", there.fault.cause())?;
                }
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
    fn one_remedy_for_all_nodes_stands_at_the_end_and_any_other_behind_its_cause() {
        let away = || Fault::new(FaultKind::Unavailable, "cannot connect").with_remedy("start it");
        let full = || {
            Fault::new(FaultKind::Unavailable, "OOM command not allowed.")
                .with_remedy("delete keys")
        };
        let loading = || Fault::new(FaultKind::Unavailable, "LOADING");
        let told = |all: Vec<Fault>| {
            let (mut faults, quorum) = (Faults::default(), Quorum::of(all.len()));
            all.into_iter()
                .enumerate()
                .for_each(|(node, fault)| faults.push(node, ["a", "b", "c"][node], fault));
            faults.no_majority_with_remedies(quorum)
        };
        assert_eq!(
            told(vec![full()]),
            "a: OOM command not allowed; delete keys"
        );
        assert_eq!(told(vec![loading()]), "a: LOADING");
        assert_eq!(
            told(vec![away(), away()]),
            "no majority of the 2 nodes: a, b: cannot connect; start it"
        );
        assert_eq!(
            told(vec![away(), full(), loading()]),
            "no majority of the 3 nodes: a: cannot connect (start it); b: OOM command not allowed (delete keys); c: LOADING"
        );
    }

    #[test]
    fn the_remedy_for_an_unfit_node_is_told_once() {
        let fault = || Fault::unfit("it speaks TLS", "write rediss");
        assert_eq!(fault().to_string(), "it speaks TLS; write rediss");
        assert_eq!(fault().cause(), "it speaks TLS");
        let mut faults = Faults::default();
        faults.push(0, "a", fault());
        let told = faults.no_majority_with_remedies(Quorum::of(1));
        assert_eq!(told, "a: it speaks TLS; write rediss");
    }

    #[test]
    fn a_missing_vote_has_its_remedy() {
        let fault = Fault::denied(
            Denied::Login,
            "NOAUTH Authentication required.",
            "give a password",
        );
        assert_eq!(
            fault.as_missing_vote(),
            "NOAUTH Authentication required; its vote is missing: give a password"
        );
    }

    #[test]
    fn nodes_that_refuse_us_are_the_cause_once_they_leave_no_majority() {
        use FaultKind::{Refused, Unavailable, Unfit, Unknown};
        let faults = |kinds: &[FaultKind]| {
            let mut faults = Faults::default();
            kinds
                .iter()
                .enumerate()
                .for_each(|(node, kind)| faults.push(node, "redis", Fault::new(*kind, "why")));
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
        faults.push(
            2,
            "redis3",
            Fault::new(FaultKind::Unavailable, "cannot connect"),
        );
        let listed = "no majority of the 3 nodes: redis1: no answer; redis3: cannot connect";
        assert_eq!(faults.no_majority(Quorum::of(3)), listed);
        faults.push(1, "redis2", Fault::new(FaultKind::Unavailable, "no answer"));
        let listed =
            "no majority of the 3 nodes: redis1, redis2: no answer; redis3: cannot connect";
        assert_eq!(faults.no_majority(Quorum::of(3)), listed);
    }
}
