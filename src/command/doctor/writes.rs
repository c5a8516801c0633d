//! Conditions under which a server refuses writes from every client, and their remedies.
//!
//! The server was sent a write that changes nothing, so its own answer decides. If an ACL prevented that write, INFO
//! decides; where INFO is inconclusive, the finding is a warning.

use crate::node::redis::probe::{Probe, Write};

/// A reason why a server sets no key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Obstacle {
    /// Whether writes are certainly refused.
    pub(super) certain: bool,
    pub(super) what: String,
    pub(super) cure: &'static str,
}

/// A condition under which Redis refuses the writes of every client.
#[derive(Clone, Copy)]
enum Condition {
    Memory,
    Replicas,
    Snapshot,
    AppendOnlyFile,
    Cluster,
    Loading,
}

impl Condition {
    fn what(self, probe: &Probe) -> String {
        let field = |name| probe.field(name).unwrap_or("?");
        match self {
            Self::Memory => {
                let (used, most) = (field("used_memory_human"), field("maxmemory_human"));
                format!("it is out of memory and sets no key: {used} used, maxmemory {most}")
            }
            Self::Replicas => {
                let there = probe.field("min_slaves_good_slaves").map_or_else(String::new, |good| format!(" ({good})"));
                format!("it sets no key: fewer replicas are in sync{there} than min-replicas-to-write requires")
            }
            Self::Snapshot => {
                "it sets no key: its last snapshot failed, and stop-writes-on-bgsave-error is on".to_owned()
            }
            Self::AppendOnlyFile => "it sets no key: it could not write to its append-only file".to_owned(),
            Self::Cluster => "it sets no key: its cluster is down, or lacks a node for the key".to_owned(),
            Self::Loading => "it sets no key yet: it is loading its data".to_owned(),
        }
    }

    fn cure(self) -> &'static str {
        match self {
            Self::Memory => "raise maxmemory, or delete keys",
            Self::Replicas => "restart its replicas, or lower min-replicas-to-write",
            Self::Snapshot => "check its log, free space on its disk, then BGSAVE",
            Self::AppendOnlyFile => "check its log, and free space on its disk",
            Self::Cluster => "see CLUSTER INFO there, or name servers that are not part of a cluster",
            Self::Loading => "wait",
        }
    }
}

/// Returns what keeps the server from setting a key, if anything does. Replicas are judged elsewhere.
pub(super) fn obstacle(probe: &Probe) -> Option<Obstacle> {
    match &probe.write {
        Write::Refused(why) => Some(refused(probe, why)),
        Write::Taken => failed_snapshot(probe, "its last snapshot failed"),
        Write::Untried => by_info(probe).or_else(|| {
            failed_snapshot(probe, "its last snapshot failed: with stop-writes-on-bgsave-error it sets no key")
        }),
    }
}

/// Explains the server's own words.
fn refused(probe: &Probe, why: &str) -> Obstacle {
    let condition = match why.split(' ').next().unwrap_or_default() {
        "OOM" => Some(Condition::Memory),
        "NOREPLICAS" => Some(Condition::Replicas),
        "MISCONF" if is(probe, "rdb_last_bgsave_status", "err") => Some(Condition::Snapshot),
        "MISCONF" if is(probe, "aof_last_write_status", "err") => Some(Condition::AppendOnlyFile),
        "CLUSTERDOWN" => Some(Condition::Cluster),
        "LOADING" => Some(Condition::Loading),
        _ => None,
    };
    let what = condition.map_or_else(|| format!("it sets no key: {why}"), |condition| condition.what(probe));
    let cure = condition.map_or("check its log", Condition::cure);
    Obstacle { certain: true, what, cure }
}

/// Returns what INFO proves.
fn by_info(probe: &Probe) -> Option<Obstacle> {
    let (used, most) = (probe.number("used_memory"), probe.number("maxmemory").filter(|most| *most > 0));
    // Buffers for replicas and for the append-only file do not count. Any other policy makes room first.
    let counted = used.map(|used| used.saturating_sub(probe.number("mem_not_counted_for_evict").unwrap_or_default()));
    let is_full = is(probe, "maxmemory_policy", "noeviction") && most.is_some_and(|most| counted > Some(most));
    let condition = if is_full {
        Condition::Memory
    } else if is(probe, "min_slaves_good_slaves", "0") {
        // INFO has this field only where min-replicas-to-write is 1 or more.
        Condition::Replicas
    } else if is(probe, "aof_enabled", "1") && is(probe, "aof_last_write_status", "err") {
        Condition::AppendOnlyFile
    } else {
        return None;
    };
    Some(Obstacle { certain: true, what: condition.what(probe), cure: condition.cure() })
}

fn failed_snapshot(probe: &Probe, what: &str) -> Option<Obstacle> {
    let failed = is(probe, "rdb_last_bgsave_status", "err");
    failed.then(|| Obstacle { certain: false, what: what.to_owned(), cure: Condition::Snapshot.cure() })
}

fn is(probe: &Probe, field: &str, value: &str) -> bool {
    probe.field(field) == Some(value)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn probe(write: Write, info: &[(&str, &str)]) -> Probe {
        Probe {
            round_trip: Duration::from_millis(1),
            clock_offset_ms: None,
            info: info.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            fsync: None,
            missing: Vec::new(),
            unknown: Vec::new(),
            scripts: None,
            denied: Vec::new(),
            wakeups_denied: false,
            write,
            watched: None,
        }
    }

    /// Returns whether the obstacle is certain, and its words.
    fn found(write: Write, info: &[(&str, &str)]) -> Option<(bool, String)> {
        obstacle(&probe(write, info)).map(|obstacle| (obstacle.certain, obstacle.what))
    }

    #[test]
    fn the_servers_own_answer_decides() {
        for (why, info, words) in [
            ("OOM command not allowed when used memory > 'maxmemory'.", None, "out of memory"),
            ("NOREPLICAS Not enough good replicas to write.", None, "min-replicas-to-write"),
            ("MISCONF Redis is configured to save RDB snapshots", Some("rdb_last_bgsave_status"), "snapshot"),
            ("MISCONF Errors writing to the AOF file", Some("aof_last_write_status"), "append-only file"),
            ("MISCONF of another kind", None, "MISCONF of another kind"),
            ("CLUSTERDOWN Hash slot not served", None, "cluster is down"),
            ("LOADING Redis is loading the dataset in memory", None, "loading"),
            ("BUSY Redis is busy running a script.", None, "BUSY Redis is busy"),
        ] {
            let info: Vec<(&str, &str)> = info.into_iter().map(|field| (field, "err")).collect();
            let (certain, what) = found(Write::Refused(why.to_owned()), &info).expect(why);
            assert!(certain && what.contains(words), "{why}: {what}");
        }
        let full = [("maxmemory_policy", "noeviction"), ("used_memory", "9"), ("maxmemory", "8")];
        assert_eq!(found(Write::Taken, &full), None);
        assert_eq!(found(Write::Taken, &[("min_slaves_good_slaves", "0")]), None);
    }

    #[test]
    fn where_no_write_could_be_tried_info_proves_some_of_it() {
        let full = |policy, used| {
            let info = [("maxmemory_policy", policy), ("used_memory", used), ("maxmemory", "8")];
            found(Write::Untried, &info).is_some_and(|(certain, _)| certain)
        };
        assert!(full("noeviction", "9"));
        assert!(!full("noeviction", "8") && !full("allkeys-lru", "9"));
        assert_eq!(found(Write::Untried, &[("used_memory", "9"), ("maxmemory", "0")]), None);
        let buffers = [("mem_not_counted_for_evict", "2"), ("used_memory", "9"), ("maxmemory", "8")];
        assert_eq!(found(Write::Untried, &[&buffers[..], &[("maxmemory_policy", "noeviction")]].concat()), None);
        let certain = |info: &[(&str, &str)]| found(Write::Untried, info).map(|(certain, _)| certain);
        assert_eq!(certain(&[("min_slaves_good_slaves", "0")]), Some(true));
        assert_eq!(certain(&[("min_slaves_good_slaves", "1")]), None);
        assert_eq!(certain(&[("aof_enabled", "1"), ("aof_last_write_status", "err")]), Some(true));
        assert_eq!(certain(&[("aof_enabled", "0"), ("aof_last_write_status", "err")]), None);
    }

    #[test]
    fn a_failed_snapshot_alone_does_not_prove_that_writes_are_refused() {
        for write in [Write::Taken, Write::Untried] {
            let told = found(write, &[("rdb_last_bgsave_status", "err")]);
            assert!(told.is_some_and(|(certain, what)| !certain && what.contains("snapshot")));
        }
    }
}
