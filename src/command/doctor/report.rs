//! The findings of `doctor` as text, and with `--json` as an object.

use std::time::Duration;

use serde_json::{Value, json};

use super::checks::{self, Finding, Level};
use crate::store::local::Survey;
use crate::store::redis::acl::PASSWORD_PLACE;
use crate::store::redis::probe::Probe;
use crate::store::{Denied, Fault, FaultKind};
use crate::text;
use crate::text::duration;
use crate::text::escape;
use crate::text::table::{self, Column};

/// All findings.
pub(super) struct Report {
    pub(super) names: Vec<String>,
    /// One for each node; none on `local`.
    pub(super) probes: Vec<Result<Probe, Fault>>,
    /// The directory of `local`.
    pub(super) survey: Option<Survey>,
    pub(super) findings: Vec<Finding>,
    pub(super) acl: Option<String>,
}

const COLUMNS: [Column; 9] = [
    Column {
        title: "NODE",
        yields: true,
        rank: 0,
    },
    Column {
        title: "VERSION",
        yields: true,
        rank: 3,
    },
    Column {
        title: "ROLE",
        yields: false,
        rank: 2,
    },
    Column {
        title: "TRIP",
        yields: false,
        rank: 5,
    },
    Column {
        title: "CLOCK",
        yields: false,
        rank: 6,
    },
    Column {
        title: "UP",
        yields: false,
        rank: 7,
    },
    Column {
        title: "PERSISTENCE",
        yields: false,
        rank: 4,
    },
    Column {
        title: "EVICTION",
        yields: true,
        rank: 1,
    },
    Column {
        title: "REPLICAS",
        yields: false,
        rank: 8,
    },
];

impl Report {
    /// Returns the level of each finding.
    fn levels(&self) -> Vec<Level> {
        checks::levels(&self.findings, self.names.len())
    }

    pub(super) fn verdict(&self) -> Level {
        checks::verdict(&self.levels())
    }

    fn name(&self, finding: &Finding) -> Option<&str> {
        finding.node.map(|node| self.names[node].as_str())
    }

    /// Whether a node's user lacks a right, so that the ACL line is needed. A node may refuse even
    /// the first question.
    fn lacks_rights(&self) -> bool {
        self.probes.iter().any(|probe| match probe {
            Ok(probe) => !probe.lacking.is_empty() || !probe.denied.is_empty(),
            Err(fault) => fault.denied.is_some_and(|denied| denied != Denied::Login),
        })
    }

    /// Returns the table, the findings, the verdict and, if it is asked for or needed, the ACL
    /// line.
    pub(super) fn text(&self, with_acl: bool) -> String {
        let width = text::columns(std::io::stdout());
        let rows: Vec<Vec<String>> = self
            .names
            .iter()
            .zip(&self.probes)
            .map(|(name, probe)| row(name, probe))
            .collect();
        let mut lines = if rows.is_empty() {
            self.names.clone()
        } else {
            table::fit(&COLUMNS, &rows, width)
        };
        lines.extend(self.survey.as_ref().map(directory));
        for (name, probe) in self.names.iter().zip(&self.probes) {
            let watched = probe.as_ref().ok().and_then(|probe| probe.watched.as_ref());
            lines.extend(watched.map(|(primary, _)| format!("{name}: {primary}")));
        }
        for (finding, level) in self.findings.iter().zip(self.levels()) {
            let about = self
                .name(finding)
                .map(|name| format!("{name}: "))
                .unwrap_or_default();
            lines.push(format!(
                "{}: {about}{}; {}",
                level.name(),
                finding.what,
                finding.remedy
            ));
        }
        let verdict = match self.verdict() {
            Level::Note => "fit to hold locks",
            Level::Warn => "locks can be held, but see the warnings",
            Level::Unfit(_) => "not fit to hold locks",
        };
        lines.push(format!("verdict: {verdict}"));
        let acl = self
            .acl
            .as_ref()
            .filter(|_| with_acl || self.lacks_rights());
        lines.extend(acl.map(|acl| {
            format!("rights that rlock needs; write > and the password in place of {PASSWORD_PLACE}: {acl}")
        }));
        lines.join("\n") + "\n"
    }

    /// Returns one object on one line.
    pub(super) fn json(&self) -> String {
        let verdict = if self.verdict() == Level::Note {
            "fit"
        } else {
            self.verdict().name()
        };
        let local = self
            .survey
            .as_ref()
            .map(|survey| local(&self.names[0], survey));
        let nodes = self
            .names
            .iter()
            .zip(&self.probes)
            .map(|(name, probe)| node(name, probe))
            .chain(local);
        let findings = self
            .findings
            .iter()
            .zip(self.levels())
            .map(|(finding, level)| {
                json!({
                    "node": self.name(finding),
                    "level": level.name(),
                    "what": finding.what,
                    "remedy": finding.remedy,
                })
            });
        let report = json!({
            "verdict": verdict,
            "nodes": nodes.collect::<Vec<_>>(),
            "findings": findings.collect::<Vec<_>>(),
            "acl": self.acl,
        });
        escape::json(&report.to_string()) + "\n"
    }
}

fn row(name: &str, probe: &Result<Probe, Fault>) -> Vec<String> {
    let probe = match probe {
        Ok(probe) => probe,
        Err(fault) => {
            let state = match fault.kind {
                FaultKind::Refused => "refused",
                FaultKind::Unfit => "unfit",
                FaultKind::Unavailable | FaultKind::Unknown => "away",
            };
            let mut cells = vec![name.to_owned(), state.to_owned()];
            cells.resize(COLUMNS.len(), String::new());
            return cells;
        }
    };
    let field = |name| probe.field(name).unwrap_or("?").to_owned();
    vec![
        name.to_owned(),
        version(probe),
        if probe.field("role") == Some("slave") {
            "replica".to_owned()
        } else {
            field("role")
        },
        duration::show_measured(probe.round_trip),
        probe
            .clock_offset_ms
            .map_or_else(|| "?".to_owned(), |ahead| format!("{ahead:+} ms")),
        probe.number("uptime_in_seconds").map_or_else(
            || "?".to_owned(),
            |up| duration::show_rounded(Duration::from_secs(up)),
        ),
        match (probe.field("aof_enabled"), &probe.fsync) {
            (Some("1"), Some(fsync)) => format!("aof {fsync}"),
            (Some("1"), None) => "aof".to_owned(),
            (Some(_), _) => "none".to_owned(),
            (None, _) => "?".to_owned(),
        },
        field("maxmemory_policy"),
        field("connected_slaves"),
    ]
}

fn version(probe: &Probe) -> String {
    match (probe.field("valkey_version"), probe.field("redis_version")) {
        (Some(valkey), _) => format!("valkey {valkey}"),
        (None, Some(redis)) => redis.to_owned(),
        (None, None) => "?".to_owned(),
    }
}

fn node(name: &str, probe: &Result<Probe, Fault>) -> Value {
    match probe {
        Err(fault) => json!({ "node": name, "reachable": false, "error": fault.to_string() }),
        Ok(probe) => json!({
            "node": name,
            "reachable": true,
            "error": null,
            "version": version(probe),
            "role": probe.field("role"),
            "round_trip_us": u64::try_from(probe.round_trip.as_micros()).unwrap_or(u64::MAX),
            "clock_ahead_ms": probe.clock_offset_ms,
            "uptime_s": probe.number("uptime_in_seconds"),
            "appendonly": probe.field("aof_enabled").map(|enabled| enabled == "1"),
            "appendfsync": probe.fsync,
            "maxmemory_policy": probe.field("maxmemory_policy"),
            "replicas": probe.number("connected_slaves"),
            "primary": probe.watched.as_ref().map(|(primary, _)| primary.address()),
            "epoch": probe.watched.as_ref().and_then(|(primary, _)| primary.epoch),
            "lacking": probe.lacking.iter().map(|(_, right)| right.name).collect::<Vec<_>>(),
        }),
    }
}

/// Returns the directory in one line.
fn directory(survey: &Survey) -> String {
    let Survey {
        directory,
        file_system,
        owner,
        mode,
        ..
    } = survey;
    let directory = escape::text(&directory.to_string_lossy());
    format!("directory {directory}, on {file_system}, of uid {owner}, mode {mode:04o}")
}

fn local(name: &str, survey: &Survey) -> Value {
    json!({
        "node": name,
        "reachable": true,
        "directory": survey.directory.to_string_lossy(),
        "file_system": survey.file_system,
        "owner": survey.owner,
        "mode": format!("{:04o}", survey.mode),
    })
}
