//! The checks of `doctor`: how much each weighs, its words and its remedy.

use std::time::Duration;

use crate::exit::Outcome;
use crate::lock::quorum::Quorum;
use crate::lock::restart::{self, RestartGuard, Restarted};
use crate::lock::schedule::{Schedule, ScheduleOptions, millis_up, shortest_surviving};
use crate::store::local;
use crate::store::redis::acl::{Lack, Right};
use crate::store::redis::place::{Naming, Survey};
use crate::store::redis::probe::Probe;
use crate::store::{Fault, FaultKind};
use crate::text::duration;

/// Largest clock offset that counts as right: time servers keep clocks within some milliseconds.
const SKEW: Duration = Duration::from_secs(1);

/// Oldest major version of Redis that rlock supports.
const OLDEST: u64 = 6;

/// Time from the moment at which sentinels take a server for dead to that at which they name
/// another one, measured with a server that hangs.
const SWITCHING: Duration = Duration::from_millis(1900);

/// Time from the moment at which the members of a cluster take a primary for dead to that at which
/// its replica takes writes.
const ELECTING: Duration = Duration::from_millis(1200);

/// The weight of a finding, before the votes are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Weight {
    /// Good to know; the nodes are fit.
    Note,
    /// Locks work, but may be lost or cost more than they must.
    Warn,
    /// It costs the node its vote.
    NoVote,
    /// The same: the node refuses rlock.
    Refused,
    /// No lock can be held with this node in the list.
    Unfit,
}

/// A fact that the user should know.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Finding {
    /// Number of the node; `None` if it concerns all of them.
    pub(super) node: Option<usize>,
    pub(super) weight: Weight,
    pub(super) what: String,
    pub(super) remedy: String,
}

impl Finding {
    /// A finding of node `node`.
    pub(super) fn of(node: usize, weight: Weight, what: impl Into<String>, remedy: &str) -> Self {
        Self {
            node: Some(node),
            weight,
            what: what.into(),
            remedy: remedy.to_owned(),
        }
    }

    /// A note on the whole set.
    pub(super) fn note(what: String, remedy: &str) -> Self {
        Self {
            node: None,
            weight: Weight::Note,
            what,
            remedy: remedy.to_owned(),
        }
    }
}

/// Planned use of the nodes.
pub(super) struct Use {
    pub(super) schedule: Schedule,
    /// The choices that made the schedule.
    pub(super) options: ScheduleOptions,
    pub(super) guard: RestartGuard,
}

/// A server as the checks see it.
struct Facts<'a> {
    probe: &'a Probe,
    /// The nodes that stand before it in the list.
    before: &'a [Result<Probe, Fault>],
    /// Number of nodes.
    nodes: usize,
    how: &'a Use,
}

/// Words of a check, if there is something to tell.
type Words = Option<String>;

impl Facts<'_> {
    /// Returns the checks of a server: weight, words and remedy.
    fn checks(&self) -> [(Weight, Words, &'static str); 15] {
        let unwritten = self.probe.unwritten.as_ref();
        // A restart guard covers what a crash forgets, as long as a minority of the nodes crashes
        // at a time.
        let is_guarded = self.nodes > 1 && !self.guard().is_zero();
        [
            (
                Weight::Unfit,
                self.refuses_scripts(),
                "allow EVAL and the commands of the ACL line there (rlock doctor --acl), or name another server",
            ),
            (
                Weight::NoVote,
                self.sets_no_key(),
                unwritten
                    .and_then(|fault| fault.remedy)
                    .unwrap_or("check its log"),
            ),
            (Weight::Unfit, self.is_old(), "upgrade it"),
            (
                Weight::NoVote,
                self.is_replica(),
                "name its primary, or another server",
            ),
            (Weight::NoVote, self.has_restarted(), "wait"),
            (Weight::NoVote, self.has_taken_over(), "wait"),
            (
                Weight::Warn,
                self.evicts(),
                "CONFIG SET maxmemory-policy noeviction and CONFIG REWRITE, or use a server for locks alone",
            ),
            (
                if is_guarded {
                    Weight::Note
                } else {
                    Weight::Warn
                },
                self.forgets(),
                "CONFIG SET appendonly yes, and CONFIG REWRITE",
            ),
            (
                if self.nodes > 1 {
                    Weight::Note
                } else {
                    Weight::Warn
                },
                self.fails_over(),
                "use several independent servers, and check RLOCK_FENCE in the storage",
            ),
            (
                Weight::Warn,
                self.has_another_time(),
                "run a time service on both (chrony, systemd-timesyncd), and set the clock in small steps",
            ),
            (
                Weight::Warn,
                self.is_slow(),
                "give a longer --ttl or --node-timeout",
            ),
            (
                Weight::Warn,
                self.has_silent_sentinels(),
                "start the others, and check the network between them and this machine",
            ),
            (
                Weight::Warn,
                self.has_unlisted_sentinels(),
                "list all of them: a majority of those that are listed decides",
            ),
            (
                Weight::Warn,
                self.is_away_for_long(),
                "give a longer --ttl, or lower that time",
            ),
            (
                Weight::Unfit,
                self.shares_a_server(),
                "name servers that are independent of each other",
            ),
        ]
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.probe.field(name)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.probe.number(name)
    }

    /// The time of the restart guard.
    fn guard(&self) -> Duration {
        self.how.guard.span(self.nodes, self.how.schedule.ttl())
    }

    fn refuses_scripts(&self) -> Words {
        let fault = self.probe.scripts.as_ref()?;
        Some(format!(
            "it cannot run rlock's scripts: {}",
            fault.why.trim_end_matches('.')
        ))
    }

    fn sets_no_key(&self) -> Words {
        let fault = self
            .probe
            .unwritten
            .as_ref()
            .filter(|_| self.is_replica().is_none())?;
        Some(format!(
            "it sets no key: {}",
            fault.why.trim_end_matches('.')
        ))
    }

    fn is_old(&self) -> Words {
        let version = self.field("redis_version")?;
        let major: u64 = version.split('.').next()?.parse().ok()?;
        (major < OLDEST).then(|| format!("version {version}; rlock needs {OLDEST}.0 or later"))
    }

    fn is_replica(&self) -> Words {
        (self.field("role") == Some("slave"))
            .then(|| "it is a replica and grants nothing".to_owned())
    }

    fn has_restarted(&self) -> Words {
        let (uptime, span) = (self.number("uptime_in_seconds")?, self.guard());
        (uptime < restart::least_uptime(span)).then(|| Restarted::new(uptime, span).to_string())
    }

    fn has_taken_over(&self) -> Words {
        let age = self.probe.watched.as_ref()?.0.age()?;
        let is_young = self.how.guard.requires_uptime() && age < self.guard();
        let age = duration::show_rounded(age);
        is_young.then(|| {
            format!("it became the primary {age} ago, and grants nothing yet (restart guard)")
        })
    }

    fn evicts(&self) -> Words {
        let policy = self
            .field("maxmemory_policy")
            .filter(|policy| *policy != "noeviction")?;
        let now = if self.number("maxmemory") == Some(0) {
            ", once maxmemory is set"
        } else {
            ""
        };
        Some(format!(
            "maxmemory-policy {policy} can evict a lock that is held{now}"
        ))
    }

    fn forgets(&self) -> Words {
        let what = "no append-only file: a crash forgets the locks of the last minutes, or all";
        (self.field("aof_enabled") == Some("0")).then(|| what.to_owned())
    }

    fn fails_over(&self) -> Words {
        let count = self
            .number("connected_slaves")
            .filter(|count| *count > 0 && self.is_replica().is_none())?;
        let of = if count == 1 {
            "a replica".to_owned()
        } else {
            format!("{count} replicas")
        };
        Some(format!(
            "it has {of}, and a failover to one can lose the last writes, locks among them"
        ))
    }

    fn has_another_time(&self) -> Words {
        let ahead = self.probe.clock_offset_ms?;
        let off = Duration::from_millis(ahead.unsigned_abs());
        let side = if ahead > 0 { "ahead of" } else { "behind" };
        // The trip takes a little off a whole minute.
        let shown = duration::show_rounded(Duration::from_millis(
            (ahead.unsigned_abs().saturating_add(50)) / 100 * 100,
        ));
        (off > SKEW + self.probe.round_trip)
            .then(|| format!("its clock is {shown} {side} this machine's: correcting it ends leases early or late"))
    }

    fn is_slow(&self) -> Words {
        let (trip, limit) = (self.probe.round_trip, self.how.schedule.node_timeout());
        (trip > limit / 2).then(|| {
            let (trip, limit) = (duration::show_rounded(trip), duration::show(limit));
            format!("a round trip takes {trip}, more than half of the node timeout of {limit}")
        })
    }

    fn has_silent_sentinels(&self) -> Words {
        let (listed, namings) = self.sentinels()?;
        let named = namings.len();
        (named < listed).then(|| format!("only {named} of {listed} sentinels name a primary"))
    }

    fn has_unlisted_sentinels(&self) -> Words {
        let (listed, namings) = self.sentinels()?;
        let known = namings.iter().filter_map(|naming| naming.others).max()? + 1;
        (listed < known).then(|| format!("{listed} of its {known} sentinels are listed"))
    }

    fn sentinels(&self) -> Option<(usize, &[Naming])> {
        match &self.probe.watched.as_ref()?.1 {
            Survey::Sentinels { listed, namings } => Some((*listed, namings)),
            Survey::Cluster { .. } => None,
        }
    }

    /// Tells of a failover in which no server answers for too long.
    fn is_away_for_long(&self) -> Words {
        let (option, silence, switching) = match &self.probe.watched.as_ref()?.1 {
            Survey::Sentinels { namings, .. } => (
                "down-after-milliseconds",
                namings
                    .iter()
                    .filter_map(|naming| naming.down_after)
                    .max()?,
                SWITCHING,
            ),
            Survey::Cluster { node_timeout } => {
                ("cluster-node-timeout", (*node_timeout)?, ELECTING)
            }
        };
        let outage = silence + switching;
        if self.how.schedule.survives() >= outage {
            return None;
        }
        let needed = shortest_surviving(self.how.options, outage).map_or_else(String::new, |ttl| {
            let seconds =
                u64::try_from(millis_up(ttl).as_millis().div_ceil(1000)).unwrap_or(u64::MAX);
            format!(
                "; it needs --ttl {} or more",
                duration::show(Duration::from_secs(seconds))
            )
        });
        Some(format!(
            "a failover takes {} ({option} {}), and a command with --ttl {} is stopped before that{needed}",
            duration::show_rounded(outage),
            silence.as_millis(),
            duration::show(self.how.schedule.ttl()),
        ))
    }

    fn shares_a_server(&self) -> Words {
        let identity = self.probe.identity();
        let how = self
            .before
            .iter()
            .flatten()
            .find_map(|other| identity.shared_with(&other.identity()))?;
        Some(format!(
            "it {how} another node of the list: both have one vote together"
        ))
    }
}

/// Returns the findings of all nodes and of their set, in the order of the nodes.
pub(super) fn of_servers(probes: &[Result<Probe, Fault>], how: &Use) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (node, probe) in probes.iter().enumerate() {
        match probe {
            Err(fault) => findings.push(of_fault(node, fault)),
            Ok(probe) => {
                findings.extend(of_rights(node, probe));
                let facts = Facts {
                    probe,
                    before: &probes[..node],
                    nodes: probes.len(),
                    how,
                };
                let checks = facts.checks().into_iter();
                findings.extend(checks.filter_map(|(weight, what, remedy)| {
                    Some(Finding::of(node, weight, what?, remedy))
                }));
            }
        }
    }
    let quorum = Quorum::of(probes.len());
    if probes.len() > 1 && probes.len().is_multiple_of(2) {
        let (total, needed, tolerated) = (quorum.total(), quorum.needed(), quorum.tolerated());
        let what = format!(
            "{needed} of {total} nodes must agree, so only {tolerated} may fail, as with {}",
            total - 1
        );
        findings.push(Finding::note(what, "use an odd number"));
    }
    findings
}

/// A node that told nothing of itself.
fn of_fault(node: usize, fault: &Fault) -> Finding {
    let what = fault.why.trim_end_matches('.');
    match fault.kind {
        FaultKind::Refused => Finding::of(
            node,
            Weight::Refused,
            what,
            fault.remedy.unwrap_or("see its log"),
        ),
        FaultKind::Unfit => {
            let (what, remedy) = what
                .rsplit_once("; ")
                .unwrap_or((what, "correct the node's address"));
            Finding::of(node, Weight::Unfit, what, remedy)
        }
        FaultKind::Unavailable | FaultKind::Unknown => {
            let remedy = fault
                .remedy
                .unwrap_or("start it, or check the network between it and this machine");
            Finding::of(node, Weight::NoVote, what, remedy)
        }
    }
}

/// Judges the rights that the user lacks, and the commands that the server lacks for any user.
fn of_rights(node: usize, probe: &Probe) -> Vec<Finding> {
    let mut findings = Vec::new();
    let consequence = |lacking: &(Lack, &Right)| (lacking.0, lacking.1.lacks);
    for group in probe
        .lacking
        .chunk_by(|a, b| consequence(a) == consequence(b))
    {
        let (lack, lacks) = consequence(&group[0]);
        let names = group
            .iter()
            .map(|(_, right)| right.name)
            .collect::<Vec<_>>()
            .join(", ");
        let (weight, subject, remedy) = match lack {
            Lack::Denied => (Weight::Refused, "the user may not use", GRANT),
            Lack::Unknown => {
                let remedy =
                    "see rename-command in its configuration, or whether a proxy is in front of it";
                (Weight::Unfit, "it does not know", remedy)
            }
        };
        let weight = if lacks.is_some() {
            Weight::Warn
        } else {
            weight
        };
        let what = format!(
            "{subject} {names}: {}",
            lacks.unwrap_or("no lock can be held")
        );
        findings.push(Finding::of(node, weight, what, remedy));
    }
    for (key, why) in &probe.denied {
        let what = format!("the user may not use the keys of {key}: {why}");
        findings.push(Finding::of(node, Weight::Refused, what, GRANT));
    }
    findings
}

const GRANT: &str = "grant the rights of the ACL line below";

/// Returns the finding of a directory of this machine, if it is one of a network file system.
pub(super) fn of_local(survey: &local::Survey) -> Vec<Finding> {
    let what = format!(
        "its directory is on {}: other hosts may not see its locks",
        survey.file_system
    );
    let remedy =
        "name a directory on a disk of this machine, or a server for locks of several hosts";
    let finding = survey
        .is_network
        .then(|| Finding::of(0, Weight::Warn, what, remedy));
    finding.into_iter().collect()
}

/// A judgement of one finding, or of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Level {
    Note,
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

/// Returns the level of each finding, once the votes of the `nodes` are counted.
pub(super) fn levels(findings: &[Finding], nodes: usize) -> Vec<Level> {
    let quorum = Quorum::of(nodes);
    let count = |weights: &[Weight]| {
        let is_meant = |node: usize| {
            findings
                .iter()
                .any(|finding| finding.node == Some(node) && weights.contains(&finding.weight))
        };
        (0..nodes).filter(|node| is_meant(*node)).count()
    };
    let has_majority = count(&[Weight::NoVote, Weight::Refused]) <= quorum.tolerated();
    let is_refused = count(&[Weight::Refused]) > quorum.tolerated();
    let level = |finding: &Finding| match finding.weight {
        Weight::Note => Level::Note,
        Weight::Warn => Level::Warn,
        Weight::Unfit => Level::Unfit(Outcome::Config),
        Weight::Refused if is_refused => Level::Unfit(Outcome::Refused),
        Weight::NoVote | Weight::Refused if has_majority => Level::Warn,
        Weight::NoVote | Weight::Refused => Level::Unfit(Outcome::Unreachable),
    };
    findings.iter().map(level).collect()
}

/// Returns the worst level. Of several exit codes the one wins that waiting does not mend.
pub(super) fn verdict(levels: &[Level]) -> Level {
    let rank = |level: &Level| match level {
        Level::Note => 0,
        Level::Warn => 1,
        Level::Unfit(Outcome::Unreachable) => 2,
        Level::Unfit(_) => 3,
    };
    levels
        .iter()
        .copied()
        .max_by_key(rank)
        .unwrap_or(Level::Note)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::fault::Denied;

    #[expect(clippy::unnecessary_wraps, reason = "a node may not have answered")]
    fn probe(ahead: i64, info: &[(&str, &str)]) -> Result<Probe, Fault> {
        Ok(Probe {
            round_trip: Duration::from_millis(1),
            clock_offset_ms: Some(ahead),
            info: info
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            fsync: None,
            lacking: Vec::new(),
            scripts: None,
            denied: Vec::new(),
            unwritten: None,
            watched: None,
        })
    }

    fn found(probes: &[Result<Probe, Fault>], guard: RestartGuard) -> Vec<Finding> {
        let options = ScheduleOptions::new(Duration::from_secs(30));
        let schedule = Schedule::new(options).unwrap_or_else(|_| unreachable!("the default fits"));
        of_servers(
            probes,
            &Use {
                schedule,
                options,
                guard,
            },
        )
    }

    fn level(probes: &[Result<Probe, Fault>]) -> Level {
        verdict(&levels(&found(probes, RestartGuard::Off), probes.len()))
    }

    #[test]
    fn several_nodes_under_a_restart_guard_may_forget() {
        let forgetful = || probe(0, &[("aof_enabled", "0"), ("uptime_in_seconds", "999")]);
        let weights = |nodes: usize, guard| {
            let findings = found(&(0..nodes).map(|_| forgetful()).collect::<Vec<_>>(), guard);
            let about = findings
                .iter()
                .filter(|finding| finding.what.contains("append-only"));
            about.map(|finding| finding.weight).collect::<Vec<_>>()
        };
        assert_eq!(weights(3, RestartGuard::Auto), [Weight::Note; 3]);
        assert_eq!(weights(3, RestartGuard::Off), [Weight::Warn; 3]);
        assert_eq!(
            weights(1, RestartGuard::For(Duration::from_secs(30))),
            [Weight::Warn]
        );
    }

    #[test]
    fn a_clock_is_compared_with_ours() {
        assert_eq!(level(&[probe(500, &[])]), Level::Note);
        for ahead in [60_000, -60_000] {
            assert_eq!(level(&[probe(ahead, &[])]), Level::Warn);
        }
    }

    #[test]
    fn the_worst_finding_decides() {
        let gone = || Err(Fault::new(FaultKind::Unknown, "no answer"));
        let refused = || Err(Fault::denied(Denied::Login, "WRONGPASS", "correct it"));
        assert_eq!(level(&[probe(0, &[])]), Level::Note);
        assert_eq!(level(&[probe(0, &[]), gone(), probe(0, &[])]), Level::Warn);
        assert_eq!(
            level(&[probe(0, &[]), gone(), gone()]),
            Level::Unfit(Outcome::Unreachable)
        );
        // One refusal is a missing vote; several leave no majority.
        assert_eq!(
            level(&[probe(0, &[]), refused(), probe(0, &[])]),
            Level::Warn
        );
        assert_eq!(
            level(&[gone(), refused(), probe(0, &[])]),
            Level::Unfit(Outcome::Unreachable)
        );
        assert_eq!(
            level(&[refused(), refused(), probe(0, &[])]),
            Level::Unfit(Outcome::Refused)
        );
        assert_eq!(level(&[refused()]), Level::Unfit(Outcome::Refused));
        let unwritten = || Some(Fault::new(FaultKind::Unavailable, "OOM"));
        let full = || {
            probe(0, &[]).map(|probe| Probe {
                unwritten: unwritten(),
                ..probe
            })
        };
        assert_eq!(level(&[full()]), Level::Unfit(Outcome::Unreachable));
        assert_eq!(level(&[full(), probe(0, &[]), probe(0, &[])]), Level::Warn);
        assert_eq!(
            level(&[full(), full(), probe(0, &[])]),
            Level::Unfit(Outcome::Unreachable)
        );
    }

    #[test]
    fn a_replica_is_no_vote_and_an_old_server_no_node() {
        let level = |info: &[(&str, &str)]| level(&[probe(0, info)]);
        assert_eq!(
            level(&[("role", "slave")]),
            Level::Unfit(Outcome::Unreachable)
        );
        assert_eq!(
            level(&[("redis_version", "5.0.14")]),
            Level::Unfit(Outcome::Config)
        );
        assert_eq!(level(&[("redis_version", "6.0.1")]), Level::Note);
        assert_eq!(level(&[("maxmemory_policy", "volatile-ttl")]), Level::Warn);
    }

    #[test]
    fn a_network_file_system_is_a_warning() {
        let fit = local::Survey {
            directory: "/run/rlock".into(),
            file_system: "tmpfs".to_owned(),
            is_network: false,
            owner: 0,
            mode: 0o700,
        };
        assert_eq!(of_local(&fit), []);
        let findings = of_local(&local::Survey {
            is_network: true,
            file_system: "nfs".to_owned(),
            ..fit
        });
        assert!(
            findings[0].weight == Weight::Warn && findings[0].what.contains("on nfs"),
            "{findings:?}"
        );
    }
}
