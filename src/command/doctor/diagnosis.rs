//! Judges what the nodes said of themselves: probes in, findings out.

use std::time::Duration;

use crate::cli::StrangeVariable;
use crate::exit::Outcome;
use crate::lock::quorum::Quorum;
use crate::lock::restart::{self, RestartGuard, Restarted};
use crate::lock::schedule::{Schedule, ScheduleOptions};
use crate::node::redis::acl::Impact;
use crate::node::redis::probe::Probe;
use crate::node::{Fault, FaultKind};
use crate::report::strange_variable;
use crate::text::is_pattern;
use crate::text::{duration, escape};

use super::durability;
use super::trial::{self, Trial};
use super::{rights, watched, writes};

/// Largest clock offset that counts as right: time servers keep clocks within some milliseconds.
const SKEW: Duration = Duration::from_secs(1);

/// Oldest major version of Redis that rlock supports.
const OLDEST: u64 = 6;

/// Weight of a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Level {
    /// Good to know; the nodes are fit.
    Note,
    /// Locks work, but may be lost or cost more than they must.
    Warn,
    /// No lock can be held; the outcome is that of a `run`.
    Unfit(Outcome),
}

impl Level {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warn => "warn",
            Self::Unfit(_) => "unfit",
        }
    }
}

/// A fact that the user should know, and the remedy.
#[derive(Debug)]
pub(super) struct Finding {
    /// Number of the node; `None` if it concerns all of them.
    pub(super) node: Option<usize>,
    pub(super) level: Level,
    pub(super) what: String,
    pub(super) cure: String,
}

/// Planned use of the nodes.
pub(super) struct Use {
    pub(super) schedule: Schedule,
    /// The choices that made the schedule.
    pub(super) options: ScheduleOptions,
    pub(super) guard: RestartGuard,
}

/// Returns the finding of a variable that rlock does not know.
pub(super) fn of_variable(variable: &StrangeVariable) -> Finding {
    let what = strange_variable(&variable.name, variable.meant.as_deref());
    Finding { node: None, level: Level::Note, what, cure: "it has no effect; see rlock doctor --help".to_owned() }
}

/// Returns the finding of a lock's name that looks like a pattern.
pub(super) fn of_name(name: &str) -> Option<Finding> {
    let what = format!("{} is taken as the name of one lock, and no pattern", escape::text(name));
    let cure = "for patterns see Rights in docs/nodes.md".to_owned();
    is_pattern(name).then_some(Finding { node: None, level: Level::Note, what, cure })
}

/// Returns all findings, in the order of the nodes. `trials` has one for each node.
pub(super) fn of(probes: &[Result<Probe, Fault>], trials: &[Option<Trial>], how: &Use) -> Vec<Finding> {
    let mut findings = Vec::new();
    let votes = Votes::of(probes, trials, how);
    let reference = median(probes);
    for (node, probe) in probes.iter().enumerate() {
        let mut say = |level, what: String, cure: &str| {
            findings.push(Finding { node: Some(node), level, what, cure: cure.to_owned() });
        };
        match probe {
            Err(fault) => away(fault, votes, &mut say),
            Ok(probe) => {
                rights::judge(probe, probes.len(), votes, &mut say);
                server(probe, votes, &mut say);
                durability::judge(probe, probes.len(), how, &mut say);
                replicas(probe, probes.len(), &mut say);
                restarted(probe, probes.len(), how, votes, &mut say);
                clock(probe, reference, probes.len(), &mut say);
                speed(probe, how, &mut say);
                promoted(probe, probes.len(), how, &mut say);
                watched::judge(probe, how, votes.missing(), &mut say);
                trial::judge(trials[node].as_ref(), votes, &mut say);
            }
        }
    }
    findings.extend(set(probes));
    findings
}

/// Consequence of the votes that are missing.
#[derive(Clone, Copy)]
pub(super) struct Votes {
    /// Whether the remaining nodes are a majority.
    majority: bool,
    /// Whether the nodes that refuse rlock leave no majority.
    refused: bool,
}

impl Votes {
    /// Those of a directory of this machine: there is no other.
    pub(super) const OF_LOCAL: Self = Self { majority: false, refused: true };

    fn of(probes: &[Result<Probe, Fault>], trials: &[Option<Trial>], how: &Use) -> Self {
        let quorum = Quorum::of(probes.len());
        let nodes = || probes.iter().zip(trials.iter().map(Option::as_ref));
        let refused = nodes().filter(|(probe, trial)| refuses(probe) || trial::refuses(*trial)).count();
        let votes = |(probe, trial): &(&Result<Probe, Fault>, Option<&Trial>)| {
            let takes = |probe: &Probe| {
                let is_young = is_restarted(probe, probes.len(), how) || watched::is_promoted(probe, how);
                !is_replica(probe) && !is_young && writes::obstacle(probe).is_none_or(|it| !it.certain)
            };
            !refuses(probe) && !trial::fails(*trial) && probe.as_ref().is_ok_and(takes)
        };
        Self { majority: nodes().filter(votes).count() >= quorum.needed(), refused: refused > quorum.tolerated() }
    }

    /// Level of a finding that costs a node its vote.
    pub(super) fn missing(self) -> Level {
        if self.majority { Level::Warn } else { Level::Unfit(Outcome::Unreachable) }
    }

    /// Level of a refusal.
    pub(super) fn refusal(self) -> Level {
        if self.refused { Level::Unfit(Outcome::Refused) } else { self.missing() }
    }
}

fn refuses(probe: &Result<Probe, Fault>) -> bool {
    match probe {
        Err(fault) => fault.kind == FaultKind::Refused,
        Ok(probe) => !probe.denied.is_empty() || probe.missing.iter().any(|right| right.lacks == Impact::Required),
    }
}

fn is_replica(probe: &Probe) -> bool {
    probe.field("role") == Some("slave")
}

fn away(fault: &Fault, votes: Votes, say: &mut impl FnMut(Level, String, &str)) {
    let what = fault.why.trim_end_matches('.').to_owned();
    match fault.kind {
        FaultKind::Refused => {
            say(votes.refusal(), what, fault.remedy.unwrap_or("see its log"));
        }
        FaultKind::Unfit => {
            let (what, cure) = what.rsplit_once("; ").unwrap_or((&what, "correct the node's address"));
            say(Level::Unfit(Outcome::Config), what.to_owned(), cure);
        }
        FaultKind::Unavailable | FaultKind::Unknown => {
            let cure = fault.remedy.unwrap_or("start it, or check the network between it and this machine");
            say(votes.missing(), what, cure);
        }
    }
}

fn server(probe: &Probe, votes: Votes, say: &mut impl FnMut(Level, String, &str)) {
    if let Some(version) = probe.field("redis_version")
        && version.split('.').next().and_then(|major| major.parse().ok()).is_some_and(|major: u64| major < OLDEST)
    {
        let what = format!("version {version}; rlock needs {OLDEST}.0 or later");
        say(Level::Unfit(Outcome::Config), what, "upgrade it");
    }
    if is_replica(probe) {
        say(votes.missing(), "it is a replica and grants nothing".to_owned(), "name its primary, or another server");
    } else if let Some(obstacle) = writes::obstacle(probe) {
        let level = if obstacle.certain { votes.missing() } else { Level::Warn };
        say(level, obstacle.what, obstacle.cure);
    }
}

fn replicas(probe: &Probe, nodes: usize, say: &mut impl FnMut(Level, String, &str)) {
    let count = probe.number("connected_slaves").filter(|count| *count > 0 && probe.field("role") != Some("slave"));
    if let Some(count) = count {
        let level = if nodes == 1 { Level::Warn } else { Level::Note };
        let of = if count == 1 { "a replica".to_owned() } else { format!("{count} replicas") };
        let what = format!("it has {of}, and a failover to one can lose the last writes, locks among them");
        say(level, what, "use several independent servers, and check RLOCK_FENCE in the storage");
    }
}

fn restarted(probe: &Probe, nodes: usize, how: &Use, votes: Votes, say: &mut impl FnMut(Level, String, &str)) {
    let span = how.guard.span(nodes, how.schedule.ttl());
    if let Some(uptime) = probe.number("uptime_in_seconds").filter(|_| is_restarted(probe, nodes, how)) {
        say(votes.missing(), Restarted::new(uptime, span).to_string(), "wait");
    }
}

/// Whether the restart guard keeps it from granting anything.
fn is_restarted(probe: &Probe, nodes: usize, how: &Use) -> bool {
    let least = restart::least_uptime(how.guard.span(nodes, how.schedule.ttl()));
    probe.number("uptime_in_seconds").is_some_and(|uptime| uptime < least)
}

/// Tells of a server that was promoted, and whose sentinels, if it has any, do not tell when.
fn promoted(probe: &Probe, nodes: usize, how: &Use, say: &mut impl FnMut(Level, String, &str)) {
    let span = how.guard.span(nodes, how.schedule.ttl());
    let is_promoted = probe.number("second_repl_offset").is_some() && !is_replica(probe) && probe.watched.is_none();
    if is_promoted && !span.is_zero() {
        let time = duration::show(Duration::from_secs(restart::least_uptime(span)));
        let what = format!("it was promoted: it grants a lock {time} after the first request for it (restart guard)");
        say(Level::Warn, what, "wait for the first use of each lock");
    }
}

fn clock(probe: &Probe, reference: i64, nodes: usize, say: &mut impl FnMut(Level, String, &str)) {
    let Some(ahead) = probe.clock_offset_ms else { return };
    let off = ahead - reference;
    let span = Duration::from_millis(off.unsigned_abs());
    if span > SKEW + probe.round_trip {
        let side = if off > 0 { "ahead of" } else { "behind" };
        let whose = if nodes == 1 { "this machine's" } else { "the others" };
        // The trip takes a little off a whole minute.
        let nearest = Duration::from_millis(off.unsigned_abs().saturating_add(50) / 100 * 100);
        let what = format!(
            "its clock is {} {side} {whose}: correcting it ends leases early or late",
            duration::show_rounded(nearest)
        );
        say(
            Level::Warn,
            what,
            "run a time service there (chrony, systemd-timesyncd), and set the clock in small steps",
        );
    }
}

/// Returns the median offset of the nodes' clocks and ours: one wrong clock does not make the others look wrong.
fn median(probes: &[Result<Probe, Fault>]) -> i64 {
    let mut all: Vec<i64> = probes.iter().flatten().filter_map(|probe| probe.clock_offset_ms).collect();
    if all.len() < 3 {
        all.push(0);
    }
    all.sort_unstable();
    // Of two clocks ours is taken as right.
    if all.len() == 2 { 0 } else { all[all.len() / 2] }
}

fn speed(probe: &Probe, how: &Use, say: &mut impl FnMut(Level, String, &str)) {
    if probe.round_trip > how.schedule.node_timeout() / 2 {
        let (trip, limit) = (duration::show_rounded(probe.round_trip), duration::show(how.schedule.node_timeout()));
        let what = format!("a round trip takes {trip}, more than half of the node timeout of {limit}");
        say(Level::Warn, what, "give a longer --ttl or --node-timeout");
    }
}

/// Returns the findings that concern the whole set of nodes.
fn set(probes: &[Result<Probe, Fault>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let known: Vec<(usize, &Probe)> =
        probes.iter().enumerate().filter_map(|(node, probe)| Some((node, probe.as_ref().ok()?))).collect();
    for (index, (node, probe)) in known.iter().enumerate() {
        for (_, other) in &known[..index] {
            if let Some(how) = probe.identity().shared_with(&other.identity()) {
                let what = format!("it {how} another node of the list: both have one vote together");
                let cure = "name servers that are independent of each other".to_owned();
                let level = Level::Unfit(Outcome::Config);
                findings.push(Finding { node: Some(*node), level, what, cure });
                break;
            }
        }
    }
    let quorum = Quorum::of(probes.len());
    if probes.len() > 1 && probes.len().is_multiple_of(2) {
        let (total, needed, tolerated) = (quorum.total(), quorum.needed(), quorum.tolerated());
        let what = format!("{needed} of {total} nodes must agree, so only {tolerated} may fail, as with {}", total - 1);
        findings.push(Finding { node: None, level: Level::Note, what, cure: "use an odd number".to_owned() });
    }
    findings
}

/// Returns the worst level. Of several exit codes the one wins that waiting does not mend.
pub(super) fn verdict(findings: &[Finding]) -> Level {
    let rank = |finding: &&Finding| match finding.level {
        Level::Note => 0,
        Level::Warn => 1,
        Level::Unfit(Outcome::Unreachable) => 2,
        Level::Unfit(_) => 3,
    };
    findings.iter().max_by_key(rank).map_or(Level::Note, |finding| finding.level)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::redis::probe::Write;

    #[expect(clippy::unnecessary_wraps, reason = "a diagnosis is of nodes that may not have answered")]
    fn probe(ahead: i64, info: &[(&str, &str)]) -> Result<Probe, Fault> {
        Ok(Probe {
            round_trip: Duration::from_millis(1),
            clock_offset_ms: Some(ahead),
            info: info.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            fsync: None,
            missing: Vec::new(),
            unknown: Vec::new(),
            scripts: None,
            denied: Vec::new(),
            wakeups_denied: false,
            write: Write::Taken,
            watched: None,
        })
    }

    fn found(probes: &[Result<Probe, Fault>], guard: RestartGuard) -> Vec<Finding> {
        let options = ScheduleOptions::new(Duration::from_secs(30));
        let schedule = Schedule::new(options).unwrap_or_else(|_| unreachable!("the default fits"));
        let how = Use { schedule, options, guard };
        of(probes, &vec![None; probes.len()], &how)
    }

    #[test]
    fn several_nodes_under_a_restart_guard_may_forget() {
        let forgetful = || probe(0, &[("aof_enabled", "0"), ("uptime_in_seconds", "999")]);
        let levels = |nodes: usize, guard| {
            let findings = found(&(0..nodes).map(|_| forgetful()).collect::<Vec<_>>(), guard);
            let about = findings.iter().filter(|finding| finding.what.contains("append-only"));
            about.map(|finding| finding.level.name()).collect::<Vec<_>>()
        };
        assert_eq!(levels(3, RestartGuard::Auto), ["note"; 3]);
        assert_eq!(levels(3, RestartGuard::Off), ["warn"; 3]);
        assert_eq!(levels(1, RestartGuard::For(Duration::from_secs(30))), ["warn"]);
    }

    #[test]
    fn of_clocks_the_one_in_the_middle_is_right() {
        let wrong = |offsets: &[i64]| {
            let probes: Vec<_> = offsets.iter().map(|ahead| probe(*ahead, &[])).collect();
            let findings = found(&probes, RestartGuard::Off);
            findings.iter().filter(|finding| finding.what.contains("clock")).filter_map(|f| f.node).collect::<Vec<_>>()
        };
        assert_eq!(wrong(&[60_000]), [0]);
        assert_eq!(wrong(&[0, -60_000]), [1]);
        assert_eq!(wrong(&[0, 60_000, 10]), [1]);
        // Our clock is wrong then, and no lock depends on it.
        assert_eq!(wrong(&[60_000, 60_001, 60_002]), [0; 0]);
        assert_eq!(wrong(&[500]), [0; 0]);
    }

    #[test]
    fn the_worst_finding_decides() {
        let gone = || Err(Fault::new(FaultKind::Unknown, "no answer"));
        let refused = || Err(Fault::new(FaultKind::Refused, "WRONGPASS"));
        let level = |probes: &[Result<Probe, Fault>]| verdict(&found(probes, RestartGuard::Off));
        assert_eq!(level(&[probe(0, &[])]), Level::Note);
        assert_eq!(level(&[probe(0, &[]), gone(), probe(0, &[])]), Level::Warn);
        assert_eq!(level(&[probe(0, &[]), gone(), gone()]), Level::Unfit(Outcome::Unreachable));
        // One refusal is a missing vote; several leave no majority.
        assert_eq!(level(&[probe(0, &[]), refused(), probe(0, &[])]), Level::Warn);
        assert_eq!(level(&[gone(), refused(), probe(0, &[])]), Level::Unfit(Outcome::Unreachable));
        assert_eq!(level(&[refused(), refused(), probe(0, &[])]), Level::Unfit(Outcome::Refused));
        assert_eq!(level(&[refused()]), Level::Unfit(Outcome::Refused));
        let full = || probe(0, &[]).map(|probe| Probe { write: Write::Refused("OOM".to_owned()), ..probe });
        assert_eq!(level(&[full()]), Level::Unfit(Outcome::Unreachable));
        assert_eq!(level(&[full(), probe(0, &[]), probe(0, &[])]), Level::Warn);
        assert_eq!(level(&[full(), full(), probe(0, &[])]), Level::Unfit(Outcome::Unreachable));
    }

    #[test]
    fn a_server_that_was_promoted_is_told_where_a_guard_waits() {
        let info = |offset: &'static str| [("second_repl_offset", offset), ("role", "master")];
        let level = |info: &[(&str, &str)], guard| verdict(&found(&[probe(0, info)], guard));
        let guard = RestartGuard::For(Duration::from_secs(30));
        assert_eq!(level(&info("15"), guard), Level::Warn);
        assert_eq!(level(&info("-1"), guard), Level::Note);
        assert_eq!(level(&info("15"), RestartGuard::Auto), Level::Note);
    }

    #[test]
    fn a_replica_is_no_vote_and_an_old_server_no_node() {
        let level = |info: &[(&str, &str)]| verdict(&found(&[probe(0, info)], RestartGuard::Off));
        assert_eq!(level(&[("role", "slave")]), Level::Unfit(Outcome::Unreachable));
        assert_eq!(level(&[("redis_version", "5.0.14")]), Level::Unfit(Outcome::Config));
        assert_eq!(level(&[("redis_version", "6.0.1")]), Level::Note);
        assert_eq!(level(&[("maxmemory_policy", "volatile-ttl")]), Level::Warn);
    }
}
