//! Judges a node whose server another one may replace: what its sentinels say, or its cluster.

use std::time::Duration;

use super::diagnosis::{Level, Use};
use crate::lock::schedule::{millis_up, shortest_surviving};
use crate::node::place::{Naming, Survey};
use crate::node::redis::probe::Probe;
use crate::text::duration;

/// Time from the moment at which sentinels take a server for dead to that at which they name another one, measured with a server
/// that hangs.
const SWITCHING: Duration = Duration::from_millis(1900);

/// Time from the moment at which the members of a cluster take a primary for dead to that at which its replica takes writes.
const ELECTING: Duration = Duration::from_millis(1200);

/// Whether the restart guard keeps it from granting anything, since it has just become the primary.
pub(super) fn is_promoted(probe: &Probe, how: &Use) -> bool {
    let age = probe.watched.as_ref().and_then(|(primary, _)| primary.age());
    how.guard.requires_uptime() && age.is_some_and(|age| age < how.guard.span(1, how.schedule.ttl()))
}

/// `missing`: the level of a finding that costs the node its vote.
pub(super) fn judge(probe: &Probe, how: &Use, missing: Level, say: &mut impl FnMut(Level, String, &str)) {
    let Some((primary, survey)) = &probe.watched else { return };
    if is_promoted(probe, how)
        && let Some(age) = primary.age()
    {
        let what = format!(
            "it became the primary {} ago, and grants nothing yet (restart guard)",
            duration::show_rounded(age)
        );
        say(missing, what, "wait");
    }
    match survey {
        Survey::Sentinels { listed, namings } => {
            sentinels(*listed, namings, say);
            let down_after = namings.iter().filter_map(|naming| naming.down_after).max().unwrap_or_default();
            outage("down-after-milliseconds", down_after, SWITCHING, how, say);
        }
        Survey::Cluster { node_timeout: Some(node_timeout) } => {
            outage("cluster-node-timeout", *node_timeout, ELECTING, how, say);
        }
        Survey::Cluster { node_timeout: None } => {}
    }
}

fn sentinels(listed: usize, namings: &[Naming], say: &mut impl FnMut(Level, String, &str)) {
    let named = namings.len();
    let known = namings.iter().filter_map(|naming| naming.others).max().map_or(0, |others| others + 1);
    if named < listed {
        let what = format!("only {named} of {listed} sentinels name a primary");
        say(Level::Warn, what, "start the others, and check the network between them and this machine");
    }
    if listed < known {
        let what = format!("{listed} of its {known} sentinels are listed");
        say(Level::Warn, what, "list all of them: a majority of those that are listed decides");
    }
}

/// Judges the time for which no server answers in a failover: `silence`, set by `option`, and `switching` behind it.
fn outage(option: &str, silence: Duration, switching: Duration, how: &Use, say: &mut impl FnMut(Level, String, &str)) {
    let outage = silence + switching;
    if how.schedule.survives() >= outage {
        return;
    }
    let cure = match shortest_surviving(how.options, outage) {
        Some(ttl) => format!("give --ttl {} or more, or lower {option}", duration::show(whole_seconds(ttl))),
        None => format!("lower {option}"),
    };
    let what = format!(
        "a failover takes {} ({option} {}), and a command with --ttl {} is stopped before that",
        duration::show_rounded(outage),
        silence.as_millis(),
        duration::show(how.schedule.ttl()),
    );
    say(Level::Warn, what, &cure);
}

fn whole_seconds(span: Duration) -> Duration {
    Duration::from_secs(millis_up(span).as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX))
}
