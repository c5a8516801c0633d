//! Sets of nodes that cannot hold the lock as configured, whatever the votes.

use super::{Ballot, NodeReply};
use crate::lock::fault::{Fault, FaultKind};
use crate::lock::messages::ServerInfo;
use crate::lock::occupant::Occupant;

impl Ballot {
    /// Returns the fault in the configuration of one node, or of all of them together, and the node that shows it. Waiting does
    /// not mend it.
    pub(super) fn misconfiguration<'a>(&self, name: &impl Fn(usize) -> &'a str) -> Option<(usize, Fault)> {
        self.unfit_node().or_else(|| self.shared_server(name)).or_else(|| self.met_itself())
    }

    fn unfit_node(&self) -> Option<(usize, Fault)> {
        self.votes.iter().enumerate().find_map(|(node, vote)| match &vote.reply {
            Some(NodeReply::Failed(fault)) if fault.kind == FaultKind::Unfit => Some((node, fault.clone())),
            Some(reply) => {
                let why = reply.occupant()?.other_list(self.votes.len())?;
                Some((node, Fault::new(FaultKind::Unfit, why)))
            }
            None => None,
        })
    }

    fn shared_server<'a>(&self, name: &impl Fn(usize) -> &'a str) -> Option<(usize, Fault)> {
        let identity = |node: usize| match &self.votes[node].server {
            ServerInfo::Told(identity) => Some(identity),
            _ => None,
        };
        (0..self.votes.len()).find_map(|node| {
            let own = identity(node)?;
            let shares = |earlier| Some((earlier, own.shared_with(identity(earlier)?)?));
            let (earlier, how) = (0..node).find_map(shares)?;
            let why = format!("it {how} {}: nodes must be independent", name(earlier));
            Some((node, Fault::new(FaultKind::Unfit, why)))
        })
    }

    /// Finds a server that was named twice where INFO tells nothing, or where one of its names has not answered yet.
    fn met_itself(&self) -> Option<(usize, Fault)> {
        let is_own = |reply: &NodeReply| reply.occupant().is_some_and(|occupant| self.is_own(occupant));
        let node = self.votes.iter().position(|vote| vote.reply.as_ref().is_some_and(is_own))?;
        let why = "it has the token that another node was given just now: nodes must be independent";
        Some((node, Fault::new(FaultKind::Unfit, why)))
    }

    /// Whether `occupant` is this attempt itself, at a server that it has met by another name.
    pub(super) fn is_own(&self, occupant: &Occupant) -> bool {
        occupant.holder().is_some_and(|(token, _)| token == self.rules.token)
    }
}
