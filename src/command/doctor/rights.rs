//! Judges the commands that a node refuses to rlock's user, or does not know.

use super::diagnosis::{Level, Votes};
use crate::exit::Outcome;
use crate::node::redis::acl::{CHANNELS, Impact, Right};
use crate::node::redis::probe::Probe;
use crate::node::{Denied, Fault};

/// Whether the node's user lacks a right, so that the ACL line is needed. A node may refuse even the first question.
pub(super) fn are_lacking(probe: &Result<Probe, Fault>) -> bool {
    match probe {
        Ok(probe) => !probe.missing.is_empty() || !probe.denied.is_empty() || probe.wakeups_denied,
        Err(fault) => fault.denied.is_some_and(|denied| denied != Denied::Login),
    }
}

pub(super) fn judge(probe: &Probe, nodes: usize, votes: Votes, say: &mut impl FnMut(Level, String, &str)) {
    granted(probe, nodes, votes, say);
    known(probe, nodes, say);
}

/// Returns the level of what a node lacks. A single node needs neither a restart guard nor a check of independence.
fn level(names: &str, nodes: usize) -> Level {
    if names == "info" && nodes == 1 { Level::Note } else { Level::Warn }
}

/// Tells what `lacking` rights mean: those with the same consequence together. `required`: the level of those without which no
/// lock can be held; `None` if they are told elsewhere.
fn each_lack(lacking: &[&Right], nodes: usize, required: Option<Level>, tell: &mut impl FnMut(Level, String)) {
    for group in lacking.chunk_by(|a, b| a.lacks == b.lacks) {
        let names = group.iter().map(|right| right.name).collect::<Vec<_>>().join(", ");
        let found = match group[0].lacks {
            Impact::Required => required.map(|level| (level, "no lock can be held")),
            Impact::Degraded(lacks) => Some((level(&names, nodes), lacks)),
            Impact::Cosmetic(lacks) => Some((Level::Note, lacks)),
        };
        if let Some((level, lacks)) = found {
            tell(level, format!("{names}: {lacks}"));
        }
    }
}

fn granted(probe: &Probe, nodes: usize, votes: Votes, say: &mut impl FnMut(Level, String, &str)) {
    let refused: Vec<&str> =
        probe.missing.iter().filter(|right| right.lacks == Impact::Required).map(|right| right.name).collect();
    let cure = "grant the rights of the ACL line below";
    if !refused.is_empty() {
        say(votes.refusal(), format!("the user may not use {}", refused.join(", ")), cure);
    }
    for (key, why) in &probe.denied {
        say(votes.refusal(), format!("the user may not use the keys of {key}: {why}"), cure);
    }
    // What is required was told above.
    each_lack(&probe.missing, nodes, None, &mut |level, what| say(level, format!("the user may not use {what}"), cure));
    if probe.wakeups_denied {
        let what = format!("the user may not use the channels {CHANNELS}: waiters hear late that the lock is free");
        say(Level::Warn, what, cure);
    }
}

/// Judges what the server itself cannot do, for any user.
fn known(probe: &Probe, nodes: usize, say: &mut impl FnMut(Level, String, &str)) {
    let unfit = Level::Unfit(Outcome::Config);
    if let Some(fault) = &probe.scripts {
        let what = format!("it cannot run rlock's scripts: {}", fault.why.trim_end_matches('.'));
        say(
            unfit,
            what,
            "allow EVAL and the commands of the ACL line there (rlock doctor --acl), or name another server",
        );
    }
    let cure = "see rename-command in its configuration, or whether a proxy is in front of it";
    each_lack(&probe.unknown, nodes, Some(unfit), &mut |level, what| {
        say(level, format!("it does not know {what}"), cure);
    });
}
