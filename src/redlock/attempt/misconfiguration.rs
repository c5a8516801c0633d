//! What ends an attempt for good: a set of nodes that cannot hold the lock as configured, and nodes that refuse us.

use super::{Attempt, NodeReply};
use crate::lock::blocker::Blocker;
use crate::lock::occupant::Occupant;
use crate::node::{Answer, Fault, FaultKind, ServerInfo, Vote};

impl Attempt {
    /// What no time would mend: the configuration of one node, or of all of them together.
    pub(super) fn misconfiguration(&self) -> Option<(String, Fault)> {
        let about = |node: usize, fault: Fault| Some((self.nodes[node].name().to_owned(), fault));
        for (node, said) in self.said.iter().enumerate() {
            match said {
                Some(NodeReply::Failed(fault)) if fault.kind == FaultKind::Unfit => return about(node, fault.clone()),
                Some(NodeReply::Blocked(Blocker::Occupant(occupant))) => {
                    if let Some(why) = occupant.other_list(self.nodes.len()) {
                        return about(node, Fault::new(FaultKind::Unfit, why));
                    }
                }
                _ => {}
            }
        }
        for (node, server) in self.servers.iter().enumerate() {
            let ServerInfo::Told(identity) = server else { continue };
            for (earlier, other) in self.servers[..node].iter().enumerate() {
                if let ServerInfo::Told(other) = other
                    && let Some(how) = identity.shared_with(other)
                {
                    let why = format!("it {how} {}: nodes must be independent", self.nodes[earlier].name());
                    return about(node, Fault::new(FaultKind::Unfit, why));
                }
            }
        }
        // Where INFO tells nothing, or the other has not answered yet.
        let own =
            |said: &Option<NodeReply>| said.as_ref().and_then(NodeReply::occupant).is_some_and(|who| self.is_own(who));
        let node = self.said.iter().position(own)?;
        let why = "it has the token that another node was given just now: nodes must be independent";
        about(node, Fault::new(FaultKind::Unfit, why))
    }

    /// Whether it is this attempt itself, at a server that it has met by another name.
    pub(super) fn is_own(&self, occupant: &Occupant) -> bool {
        occupant.holder().is_some_and(|(token, _)| token == self.claim.token)
    }

    /// Why this answer is a refusal: the vote itself, or INFO, on which `--restart-guard DUR` relies.
    pub(super) fn refusal(&self, answer: &Answer) -> Option<Fault> {
        match (&answer.vote, &answer.server) {
            (Vote::Failed(fault), _) if fault.kind == FaultKind::Refused => Some(fault.clone()),
            (_, ServerInfo::Forbidden(why)) if self.guard.requires_uptime() => {
                let why = format!("--restart-guard cannot see whether it restarted: INFO: {why}");
                Some(Fault::new(FaultKind::Refused, why))
            }
            _ => None,
        }
    }

    /// Whether so many nodes refuse us that the others are no majority.
    pub(super) fn is_refused(&self) -> bool {
        self.refusals.iter().flatten().count() > self.quorum.tolerated()
    }

    /// The nodes that refuse us: number, name, and why.
    pub fn refusals(&self) -> impl Iterator<Item = (usize, &str, &Fault)> {
        let all = self.refusals.iter().zip(self.nodes.iter()).enumerate();
        all.filter_map(|(node, (refusal, there))| Some((node, there.name(), refusal.as_ref()?)))
    }
}
