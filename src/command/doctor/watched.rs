//! Judges what the sentinels of a node said.

use std::time::Duration;

use super::diagnosis::{Level, Use};
use crate::lock::schedule::{millis_up, shortest_surviving};
use crate::node::redis::probe::Probe;
use crate::text::duration;

/// Time from the moment at which sentinels take a server for dead to that at which they name another one, measured with a server
/// that hangs.
const SWITCHING: Duration = Duration::from_millis(1900);

/// Whether the restart guard keeps it from granting anything, since it has just become the primary.
pub(super) fn is_promoted(probe: &Probe, how: &Use) -> bool {
    let age = probe.watched.as_ref().map(|(primary, _)| primary.age());
    how.guard.requires_uptime() && age.is_some_and(|age| age < how.guard.span(1, how.schedule.ttl()))
}

/// `missing`: the level of a finding that costs the node its vote.
pub(super) fn judge(probe: &Probe, how: &Use, missing: Level, say: &mut impl FnMut(Level, String, &str)) {
    let Some((primary, survey)) = &probe.watched else { return };
    let (listed, named) = (survey.listed, survey.namings.len());
    let known = survey.namings.iter().filter_map(|naming| naming.others).max().map_or(0, |others| others + 1);
    if named < listed {
        let what = format!("only {named} of {listed} sentinels name a primary");
        say(Level::Warn, what, "start the others, and check the network between them and this machine");
    }
    if listed < known {
        let what = format!("{listed} of its {known} sentinels are listed");
        say(Level::Warn, what, "list all of them: a majority of those that are listed decides");
    }
    if is_promoted(probe, how) {
        let what = format!(
            "it became the primary {} ago, and grants nothing yet (restart guard)",
            duration::show_rounded(primary.age())
        );
        say(missing, what, "wait");
    }
    let down_after = survey.namings.iter().filter_map(|naming| naming.down_after).max().unwrap_or_default();
    let outage = down_after + SWITCHING;
    if how.schedule.survives() < outage {
        let cure = match shortest_surviving(how.options, outage) {
            Some(ttl) => {
                format!("give --ttl {} or more, or lower down-after-milliseconds", duration::show(whole_seconds(ttl)))
            }
            None => "lower down-after-milliseconds".to_owned(),
        };
        let what = format!(
            "a failover takes {} (down-after-milliseconds {}), and a command with --ttl {} is stopped before that",
            duration::show_rounded(outage),
            down_after.as_millis(),
            duration::show(how.schedule.ttl()),
        );
        say(Level::Warn, what, &cure);
    }
}

fn whole_seconds(span: Duration) -> Duration {
    Duration::from_secs(millis_up(span).as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX))
}
