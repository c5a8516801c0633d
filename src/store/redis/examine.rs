//! The checks of a server for `doctor`: their words, their weight and their remedy; and what is
//! shown of it.

use std::time::Duration;

use serde_json::{Value, json};

use super::acl::{Lack, Right};
use super::locator::{Naming, Survey};
use super::probe::{Probe, ReplicaClock};
use super::reply::{self, proven};
use crate::lock::messages::ServerIdentity;
use crate::lock::restart::Restarted;
use crate::lock::schedule::{millis_up, shortest_surviving};
use crate::store::examine::{Examination, Finding, Plan, Weight, another_time, slowness};
use crate::text::duration;
use crate::text::table::Column;

/// Oldest major version of Redis that rlock supports.
const OLDEST: u64 = 6;

/// Time from the moment at which sentinels take a server for dead to that at which they name
/// another one, measured with a server that hangs.
const SWITCHING: Duration = Duration::from_millis(1900);

/// Time from the moment at which the members of a cluster take a primary for dead to that at which
/// its replica takes writes.
const ELECTING: Duration = Duration::from_millis(1200);

const GRANT: &str = "grant the rights of the ACL line below";

/// Returns what is shown of the node `name`, whose server was probed.
pub(super) fn examination(name: &str, probe: &Probe, plan: &Plan) -> Examination {
    let primary = probe.watched.as_ref().map(|(primary, _)| primary);
    let server = Examined { probe, plan };
    Examination {
        version: Some(server.version()),
        cells: server.cells(),
        lines: primary
            .map(|it| format!("{name}: {it}"))
            .into_iter()
            .collect(),
        fields: server.fields(),
        findings: server.findings(),
        identity: Some(server.identity()),
        lacks_rights: !probe.lacking.is_empty() || !probe.denied.is_empty(),
    }
}

/// A server as the checks see it.
struct Examined<'a> {
    probe: &'a Probe,
    plan: &'a Plan,
}

impl Examined<'_> {
    fn findings(&self) -> Vec<Finding> {
        let (trip, clock_offset) = (self.probe.round_trip, self.probe.clock_offset_ms);
        let checks = [
            self.refuses_scripts(),
            self.sets_no_key(),
            self.is_old(),
            self.is_open(),
            self.is_a_replica(),
            self.has_restarted(),
            self.has_taken_over(),
            self.evicts(),
            self.forgets(),
            self.fails_over(),
            clock_offset.and_then(|ahead| another_time(ahead, trip)),
            slowness(trip, self.plan),
            self.has_silent_sentinels(),
            self.has_unlisted_sentinels(),
            self.is_away_for_long(),
        ];
        let [theirs, ours] = self.probe.days_left;
        let ends = [
            theirs.map(|days| ends_soon("its certificate", days, "replace it on the server")),
            ours.map(|days| {
                let remedy = "replace it in its file, which rlock reads again";
                ends_soon("the certificate of --cert", days, remedy)
            }),
        ];
        self.lacks_rights()
            .into_iter()
            .chain(self.have_replicas_other_clocks())
            .chain(ends.into_iter().flatten())
            .chain(checks.into_iter().flatten())
            .collect()
    }

    /// Tells of the rights that the user lacks, and of the commands that the server lacks for any
    /// user.
    fn lacks_rights(&self) -> Vec<Finding> {
        let consequence = |lacking: &(Lack, &Right)| (lacking.0, lacking.1.lacks);
        let groups = self
            .probe
            .lacking
            .chunk_by(|a, b| consequence(a) == consequence(b));
        let of_commands = groups.map(|group| {
            let (lack, lacks) = consequence(&group[0]);
            let names = group
                .iter()
                .map(|(_, right)| right.name)
                .collect::<Vec<_>>()
                .join(", ");
            let (weight, subject, remedy) = match lack {
                Lack::Denied => (Weight::Refused, "the user may not use", GRANT),
                Lack::Unknown => (
                    Weight::Unfit,
                    "it does not know",
                    "see rename-command in its configuration, or whether a proxy is in front of it",
                ),
            };
            let what = format!(
                "{subject} {names}: {}",
                lacks.unwrap_or("no lock can be held")
            );
            Finding::new(lacks.map_or(weight, |_| Weight::Warn), what, remedy)
        });
        let of_keys = self.probe.denied.iter().map(|(key, why)| {
            let what = format!("the user may not use the keys of {key}: {why}");
            Finding::new(Weight::Refused, what, GRANT)
        });
        of_commands.chain(of_keys).collect()
    }

    fn refuses_scripts(&self) -> Option<Finding> {
        let why = self.probe.scripts.as_ref()?.cause();
        Some(Finding::new(
            Weight::Unfit,
            format!("it cannot run rlock's scripts: {why}"),
            "allow EVAL and the commands of the ACL line there (rlock doctor --acl), or name another server",
        ))
    }

    fn sets_no_key(&self) -> Option<Finding> {
        let fault = self.probe.unwritten.as_ref()?;
        let what = format!("it sets no key: {}", fault.cause());
        (!self.replicates()).then(|| {
            Finding::new(
                Weight::NoVote,
                what,
                fault.remedy.unwrap_or("check its log"),
            )
        })
    }

    fn is_old(&self) -> Option<Finding> {
        let version = self.field("redis_version")?;
        let major: u64 = version.split('.').next()?.parse().ok()?;
        let what = format!("version {version}; rlock needs {OLDEST}.0 or later");
        (major < OLDEST).then(|| Finding::new(Weight::Unfit, what, "upgrade it"))
    }

    fn is_open(&self) -> Option<Finding> {
        let what = "it lets any client write that reaches it, without a password: each can take every lock away";
        let remedy = "give it users (rlock doctor --acl), and turn its default user off";
        self.probe
            .is_open
            .then(|| Finding::new(Weight::Warn, what, remedy))
    }

    fn is_a_replica(&self) -> Option<Finding> {
        let what = "it is a replica and grants nothing";
        let remedy = "name its primary, or another server";
        self.replicates()
            .then(|| Finding::new(Weight::NoVote, what, remedy))
    }

    fn has_restarted(&self) -> Option<Finding> {
        let (remembers, span) = (proven(self.uptime()?), self.plan.guarded());
        let what = Restarted::new("restarted", remembers, span).to_string();
        (remembers < span).then(|| Finding::new(Weight::NoVote, what, "wait"))
    }

    fn has_taken_over(&self) -> Option<Finding> {
        let age = self.probe.watched.as_ref()?.0.age()?;
        let is_young = self.plan.guard.is_strict() && age < self.plan.guarded();
        let what = format!(
            "it became the primary {} ago, and grants nothing yet (restart guard)",
            duration::show_rounded(age)
        );
        is_young.then(|| Finding::new(Weight::NoVote, what, "wait"))
    }

    fn evicts(&self) -> Option<Finding> {
        let policy = self
            .field("maxmemory_policy")
            .filter(|policy| *policy != "noeviction")?;
        let now = if self.number("maxmemory") == Some(0) {
            ", once maxmemory is set"
        } else {
            ""
        };
        Some(Finding::new(
            Weight::Warn,
            format!("maxmemory-policy {policy} can evict a lock that is held{now}"),
            "CONFIG SET maxmemory-policy noeviction and CONFIG REWRITE, or use a server for locks alone",
        ))
    }

    fn forgets(&self) -> Option<Finding> {
        // A restart guard covers what a crash forgets, as long as a minority of the nodes crashes
        // at a time.
        let weight = if self.plan.nodes > 1 && !self.plan.guarded().is_zero() {
            Weight::Note
        } else {
            Weight::Warn
        };
        let what = "no append-only file: a crash forgets the locks of the last minutes, or all";
        let remedy = "CONFIG SET appendonly yes, and CONFIG REWRITE";
        (self.field("aof_enabled") == Some("0")).then(|| Finding::new(weight, what, remedy))
    }

    fn fails_over(&self) -> Option<Finding> {
        let count = self.replicas().filter(|count| *count > 0)?;
        let of = if count == 1 {
            "a replica".to_owned()
        } else {
            format!("{count} replicas")
        };
        let weight = if self.plan.nodes > 1 {
            Weight::Note
        } else {
            Weight::Warn
        };
        let what = format!(
            "it has {of}, and a failover to one can lose the last writes, locks among them"
        );
        let remedy = "use several independent servers, and check RLOCK_FENCE in the storage";
        (!self.replicates()).then(|| Finding::new(weight, what, remedy))
    }

    /// Compares the clocks of its replicas with its own. A lease that a replica takes over ends by
    /// the replica's clock.
    fn have_replicas_other_clocks(&self) -> Vec<Finding> {
        let own = self.probe.clock_offset_ms;
        let judge = |replica: &ReplicaClock| {
            let name = &replica.name;
            let (trip, ahead) = match &replica.told {
                Ok((trip, told)) => (trip, (*told)?.saturating_sub(own?)),
                Err(fault) => {
                    let what = format!(
                        "the clock of its replica {name} is not known: {}",
                        fault.cause()
                    );
                    return Some(Finding::new(
                        Weight::Note,
                        what,
                        "compare it by hand: redis-cli TIME",
                    ));
                }
            };
            let off = Duration::from_millis(ahead.unsigned_abs());
            if off <= self.plan.schedule.margin() + self.probe.round_trip + *trip {
                return None;
            }
            let (side, end) = if ahead > 0 {
                ("ahead of", "before their holders are stopped")
            } else {
                ("behind", "that much later")
            };
            let what = format!(
                "the clock of its replica {name} is {} {side} its own: after a failover leases end {end}",
                duration::show_rounded(off)
            );
            let remedy = "run a time service on both (chrony, systemd-timesyncd)";
            Some(Finding::new(Weight::Warn, what, remedy))
        };
        self.probe.replicas.iter().filter_map(judge).collect()
    }

    fn has_silent_sentinels(&self) -> Option<Finding> {
        let (listed, namings) = self.sentinels()?;
        let named = namings.len();
        let what = format!("only {named} of {listed} sentinels name a primary");
        let remedy = "start the others, and check the network between them and this machine";
        (named < listed).then(|| Finding::new(Weight::Warn, what, remedy))
    }

    fn has_unlisted_sentinels(&self) -> Option<Finding> {
        let (listed, namings) = self.sentinels()?;
        let known = namings.iter().filter_map(|naming| naming.others).max()? + 1;
        let what = format!("{listed} of its {known} sentinels are listed");
        let remedy = "list all of them: a majority of those that are listed decides";
        (listed < known).then(|| Finding::new(Weight::Warn, what, remedy))
    }

    fn sentinels(&self) -> Option<(usize, &[Naming])> {
        match &self.probe.watched.as_ref()?.1 {
            Survey::Sentinels { listed, namings } => Some((*listed, namings)),
            Survey::Cluster { .. } => None,
        }
    }

    /// Tells of a failover in which no server answers for too long.
    fn is_away_for_long(&self) -> Option<Finding> {
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
        if self.plan.schedule.survives() >= outage {
            return None;
        }
        let needed =
            shortest_surviving(self.plan.options, outage).map_or_else(String::new, |ttl| {
                let seconds =
                    u64::try_from(millis_up(ttl).as_millis().div_ceil(1000)).unwrap_or(u64::MAX);
                format!(
                    "; it needs --ttl {} or more",
                    duration::show(Duration::from_secs(seconds))
                )
            });
        let what = format!(
            "a failover takes {} ({option} {}), and a command with --ttl {} is stopped before that{needed}",
            duration::show_rounded(outage),
            silence.as_millis(),
            duration::show(self.plan.schedule.ttl()),
        );
        let remedy = "give a longer --ttl, or lower that time";
        Some(Finding::new(Weight::Warn, what, remedy))
    }

    /// Returns a field of INFO.
    fn field(&self, name: &str) -> Option<&str> {
        self.probe.info.get(name).map(String::as_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    /// Returns the seconds since it started.
    fn uptime(&self) -> Option<u64> {
        self.number("uptime_in_seconds")
    }

    /// Returns the number of its replicas.
    fn replicas(&self) -> Option<u64> {
        self.number("connected_slaves")
    }

    /// Whether it is a replica itself.
    fn replicates(&self) -> bool {
        self.field("role") == Some("slave")
    }

    fn version(&self) -> String {
        match (self.field("valkey_version"), self.field("redis_version")) {
            (Some(valkey), _) => format!("valkey {valkey}"),
            (None, Some(redis)) => redis.to_owned(),
            (None, None) => "?".to_owned(),
        }
    }

    fn identity(&self) -> ServerIdentity {
        let field = |name| self.field(name).unwrap_or_default();
        let uptime = self.uptime().unwrap_or_default();
        reply::identity(uptime, field("run_id"), field("master_replid"))
    }

    /// Returns its row of the table, behind name and version.
    fn cells(&self) -> Vec<(Column, String)> {
        let field = |name| self.field(name).unwrap_or("?").to_owned();
        let role = if self.replicates() {
            "replica".to_owned()
        } else {
            field("role")
        };
        let clock = self.probe.clock_offset_ms;
        let clock = clock.map_or_else(|| "?".to_owned(), |ahead| format!("{ahead:+} ms"));
        let up = self.uptime().map(Duration::from_secs);
        let up = up.map_or_else(|| "?".to_owned(), duration::show_rounded);
        let persistence = match (self.field("aof_enabled"), &self.probe.fsync) {
            (Some("1"), Some(fsync)) => format!("aof {fsync}"),
            (Some("1"), None) => "aof".to_owned(),
            (Some(_), _) => "none".to_owned(),
            (None, _) => "?".to_owned(),
        };
        let trip = duration::show_measured(self.probe.round_trip);
        let column = |title, rank| Column {
            title,
            yields: rank == 1,
            rank,
        };
        vec![
            (column("ROLE", 2), role),
            (column("TRIP", 5), trip),
            (column("CLOCK", 6), clock),
            (column("UP", 7), up),
            (column("PERSISTENCE", 4), persistence),
            (column("EVICTION", 1), field("maxmemory_policy")),
            (column("REPLICAS", 8), field("connected_slaves")),
        ]
    }

    /// Returns its fields in JSON.
    fn fields(&self) -> Value {
        let probe = self.probe;
        let primary = probe.watched.as_ref().map(|(primary, _)| primary);
        json!({
            "error": null,
            "version": self.version(),
            "role": self.field("role"),
            "round_trip_us": u64::try_from(probe.round_trip.as_micros()).unwrap_or(u64::MAX),
            "clock_ahead_ms": probe.clock_offset_ms,
            "uptime_s": self.uptime(),
            "appendonly": self.field("aof_enabled").map(|enabled| enabled == "1"),
            "appendfsync": probe.fsync,
            "maxmemory_policy": self.field("maxmemory_policy"),
            "replicas": self.replicas(),
            "primary": primary.map(|primary| primary.told().address),
            "epoch": primary.and_then(|primary| primary.epoch),
            "lacking": probe.lacking.iter().map(|(_, right)| right.name).collect::<Vec<_>>(),
        })
    }
}

/// Tells of a certificate that ends in some days.
fn ends_soon(which: &str, days: u64, remedy: &str) -> Finding {
    let span = if days == 1 {
        "a day".to_owned()
    } else {
        format!("{days} days")
    };
    Finding::new(Weight::Warn, format!("{which} ends within {span}"), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::restart::RestartGuard;
    use crate::lock::schedule::{Schedule, ScheduleOptions};
    use crate::store::examine::Role;
    use crate::store::{Fault, FaultKind};

    fn probe(info: &[(&str, &str)]) -> Probe {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Probe {
            round_trip: Duration::from_millis(1),
            clock_offset_ms: Some(0),
            info: info.iter().map(owned).collect(),
            fsync: None,
            lacking: Vec::new(),
            scripts: None,
            denied: Vec::new(),
            unwritten: None,
            days_left: [None, None],
            is_open: false,
            replicas: Vec::new(),
            watched: None,
        }
    }

    fn weights(probe: &Probe, nodes: usize, guard: RestartGuard) -> Vec<Weight> {
        let options = ScheduleOptions::new(Duration::from_secs(30));
        let schedule = Schedule::new(options).unwrap_or_else(|_| unreachable!("the default fits"));
        let plan = Plan {
            role: Role::Job,
            keys: Vec::new(),
            nodes,
            schedule,
            options,
            guard,
        };
        let findings = examination("redis", probe, &plan).findings;
        findings.into_iter().map(|finding| finding.weight).collect()
    }

    #[test]
    fn several_nodes_under_a_restart_guard_may_forget() {
        let forgetful = probe(&[("aof_enabled", "0"), ("uptime_in_seconds", "999")]);
        let guard = RestartGuard::For(Duration::from_secs(30));
        assert_eq!(weights(&forgetful, 3, RestartGuard::Auto), [Weight::Note]);
        assert_eq!(weights(&forgetful, 3, RestartGuard::Off), [Weight::Warn]);
        assert_eq!(weights(&forgetful, 1, guard), [Weight::Warn]);
    }

    #[test]
    fn a_server_that_grants_nothing_is_no_vote_and_an_old_one_no_node() {
        let weights = |probe: &Probe| weights(probe, 1, RestartGuard::Off);
        let of_field = |name, value| weights(&probe(&[(name, value)]));
        assert_eq!(of_field("role", "slave"), [Weight::NoVote]);
        assert_eq!(of_field("redis_version", "5.0"), [Weight::Unfit]);
        assert_eq!(of_field("redis_version", "6.2.20"), []);
        assert_eq!(of_field("maxmemory_policy", "volatile-ttl"), [Weight::Warn]);
        let full = Probe {
            unwritten: Some(Fault::new(FaultKind::Unavailable, "OOM")),
            ..probe(&[])
        };
        assert_eq!(weights(&full), [Weight::NoVote]);
    }
}
