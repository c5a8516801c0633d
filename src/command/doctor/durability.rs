//! Judges whether a server keeps the locks that it has granted: through a lack of memory, and through a crash.

use super::diagnosis::{Level, Use};
use crate::node::redis::probe::Probe;

pub(super) fn judge(probe: &Probe, nodes: usize, how: &Use, say: &mut impl FnMut(Level, String, &str)) {
    eviction(probe, say);
    persistence(probe, nodes, how, say);
}

fn eviction(probe: &Probe, say: &mut impl FnMut(Level, String, &str)) {
    if let Some(policy) = probe.field("maxmemory_policy").filter(|policy| *policy != "noeviction") {
        let now = if probe.number("maxmemory") == Some(0) { ", once maxmemory is set" } else { "" };
        let what = format!("maxmemory-policy {policy} can evict a lock that is held{now}");
        say(
            Level::Warn,
            what,
            "CONFIG SET maxmemory-policy noeviction and CONFIG REWRITE, or use a server for locks alone",
        );
    }
}

/// A restart guard covers what a crash forgets, as long as a minority of the nodes crashes at a time.
fn persistence(probe: &Probe, nodes: usize, how: &Use, say: &mut impl FnMut(Level, String, &str)) {
    match (probe.field("aof_enabled"), probe.fsync.as_deref()) {
        (Some("0"), _) => {
            let is_covered = nodes > 1 && !how.guard.span(nodes, how.schedule.ttl()).is_zero();
            let level = if is_covered { Level::Note } else { Level::Warn };
            let what = "no append-only file: a crash forgets the locks of the last minutes, or all".to_owned();
            say(level, what, "CONFIG SET appendonly yes, and CONFIG REWRITE");
        }
        (Some("1"), Some("no")) => {
            let what = "appendfsync no: a power failure forgets the locks of the last half minute".to_owned();
            say(Level::Note, what, "CONFIG SET appendfsync everysec, and CONFIG REWRITE");
        }
        (Some("1"), None) => {
            let what = "appendfsync unknown: CONFIG GET is not allowed".to_owned();
            say(
                Level::Note,
                what,
                "nothing to do if redis.conf has everysec or always; CONFIG GET would show passwords too",
            );
        }
        _ => {}
    }
}
