//! The findings of `doctor`, weighed; as text, and with `--json` as an object.

use serde_json::{Value, json};

use crate::exit::Outcome;
use crate::lock::quorum::Quorum;
use crate::store::examine::{Examination, Finding, Rights, Weight};
use crate::store::{Denied, Fault, FaultKind};
use crate::text;
use crate::text::escape;
use crate::text::table::{self, Column};

/// All findings.
pub(super) struct Report {
    pub(super) names: Vec<String>,
    /// One for each node.
    pub(super) results: Vec<Result<Examination, Fault>>,
    /// Each with the number of its node; `None` if it concerns all of them.
    pub(super) findings: Vec<(Option<usize>, Finding)>,
    pub(super) grant: Option<Rights>,
}

const NODE: Column = Column {
    title: "NODE",
    yields: true,
    rank: 0,
};

const VERSION: Column = Column {
    title: "VERSION",
    yields: true,
    rank: 3,
};

impl Report {
    /// Returns the level of each finding.
    fn levels(&self) -> Vec<Fitness> {
        levels(&self.findings, self.names.len())
    }

    pub(super) fn verdict(&self) -> Fitness {
        verdict(&self.levels())
    }

    fn name(&self, node: Option<usize>) -> Option<&str> {
        node.map(|node| self.names[node].as_str())
    }

    /// Whether a node's user lacks a right, so that the grant is needed. A node may refuse even
    /// the first question.
    fn lacks_rights(&self) -> bool {
        self.results.iter().any(|result| match result {
            Ok(examination) => examination.lacks_rights,
            Err(fault) => fault.denied.is_some_and(|denied| denied != Denied::Login),
        })
    }

    /// Returns the table: a row for each node that has a version or a fault.
    fn table(&self) -> Vec<String> {
        let told = || self.results.iter().flatten();
        if self.results.iter().all(Result::is_ok) && told().all(|it| it.version.is_none()) {
            return self.names.clone();
        }
        let cells = told().map(|it| &it.cells).max_by_key(|cells| cells.len());
        let titles = cells.into_iter().flatten().map(|(column, _)| *column);
        let columns: Vec<Column> = [NODE, VERSION].into_iter().chain(titles).collect();
        let row = |(name, result): (&String, &Result<Examination, Fault>)| {
            let mut row = vec![name.clone()];
            match result {
                Ok(examination) => {
                    row.push(examination.version.clone().unwrap_or_default());
                    row.extend(examination.cells.iter().map(|(_, cell)| cell.clone()));
                }
                Err(fault) => row.push(state(fault).to_owned()),
            }
            row.resize(columns.len(), String::new());
            row
        };
        let rows: Vec<Vec<String>> = self.names.iter().zip(&self.results).map(row).collect();
        table::fit(&columns, &rows, text::columns(std::io::stdout()))
    }

    /// Returns the table, the findings, the verdict and, if it is asked for or needed, the grant.
    pub(super) fn text(&self, with_grant: bool) -> String {
        let mut lines = self.table();
        let told = self.results.iter().flatten();
        lines.extend(told.flat_map(|examination| examination.lines.iter().cloned()));
        for ((node, finding), level) in self.findings.iter().zip(self.levels()) {
            let about = self.name(*node).map(|name| format!("{name}: "));
            lines.push(format!(
                "{}: {}{}; {}",
                level.name(),
                about.unwrap_or_default(),
                finding.what,
                finding.remedy
            ));
        }
        let verdict = match self.verdict() {
            Fitness::Note => "fit to hold locks",
            Fitness::Warn => "locks can be held, but see the warnings",
            Fitness::Unfit(_) => "not fit to hold locks",
        };
        lines.push(format!("verdict: {verdict}"));
        let grant = self.grant.as_ref();
        let grant = grant.filter(|_| with_grant || self.lacks_rights());
        lines.extend(grant.map(|it| format!("rights that rlock needs; {}: {}", it.note, it.line)));
        lines.join("\n") + "\n"
    }

    /// Returns one object on one line.
    pub(super) fn json(&self) -> String {
        let verdict = if self.verdict() == Fitness::Note {
            "fit"
        } else {
            self.verdict().name()
        };
        let nodes = self.names.iter().zip(&self.results);
        let nodes = nodes.map(|(name, result)| node(name, result));
        let findings = self.findings.iter().zip(self.levels());
        let findings = findings.map(|((node, finding), level)| {
            json!({
                "node": self.name(*node),
                "level": level.name(),
                "what": finding.what,
                "remedy": finding.remedy,
            })
        });
        let report = json!({
            "verdict": verdict,
            "nodes": nodes.collect::<Vec<_>>(),
            "findings": findings.collect::<Vec<_>>(),
            "acl": self.grant.as_ref().map(|grant| &grant.line),
        });
        escape::json(&report.to_string()) + "\n"
    }
}

/// Returns the word for a node that told nothing of itself.
fn state(fault: &Fault) -> &'static str {
    match fault.kind {
        FaultKind::Refused => "refused",
        FaultKind::Unfit | FaultKind::Short => "unfit",
        FaultKind::Unavailable | FaultKind::Unknown => "away",
    }
}

fn node(name: &str, result: &Result<Examination, Fault>) -> Value {
    let mut told = match result {
        Ok(examination) => examination.fields.clone(),
        Err(fault) => json!({ "error": fault.to_string() }),
    };
    told["node"] = name.into();
    told["reachable"] = result.is_ok().into();
    told
}

/// A judgement of one finding, or of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fitness {
    Note,
    Warn,
    /// No lock can be held; the outcome is that of a `run`.
    Unfit(Outcome),
}

impl Fitness {
    fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warn => "warn",
            Self::Unfit(_) => "unfit",
        }
    }
}

/// Returns the level of each finding, once the votes of the `nodes` are counted.
fn levels(findings: &[(Option<usize>, Finding)], nodes: usize) -> Vec<Fitness> {
    let quorum = Quorum::of(nodes);
    let count = |weights: &[Weight]| {
        let is_meant = |node: usize| {
            findings
                .iter()
                .any(|(of, finding)| *of == Some(node) && weights.contains(&finding.weight))
        };
        (0..nodes).filter(|node| is_meant(*node)).count()
    };
    let has_majority = count(&[Weight::NoVote, Weight::Refused]) <= quorum.tolerated();
    let is_refused = count(&[Weight::Refused]) > quorum.tolerated();
    let level = |(_, finding): &(_, Finding)| match finding.weight {
        Weight::Note => Fitness::Note,
        Weight::Warn => Fitness::Warn,
        Weight::Unfit => Fitness::Unfit(Outcome::Config),
        Weight::Refused if is_refused => Fitness::Unfit(Outcome::Refused),
        Weight::NoVote | Weight::Refused if has_majority => Fitness::Warn,
        Weight::NoVote | Weight::Refused => Fitness::Unfit(Outcome::Unreachable),
    };
    findings.iter().map(level).collect()
}

/// Returns the worst level. Of several exit codes the one wins that waiting does not mend.
fn verdict(levels: &[Fitness]) -> Fitness {
    let rank = |level: &Fitness| match level {
        Fitness::Note => 0,
        Fitness::Warn => 1,
        Fitness::Unfit(Outcome::Unreachable) => 2,
        Fitness::Unfit(_) => 3,
    };
    levels
        .iter()
        .copied()
        .max_by_key(rank)
        .unwrap_or(Fitness::Note)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the verdict on nodes, each with one finding of this weight, or with none.
    fn level(weights: &[Option<Weight>]) -> Fitness {
        let of_node = |(node, weight): (usize, &Option<Weight>)| {
            weight.map(|weight| (Some(node), Finding::new(weight, "it is so", "wait")))
        };
        let findings: Vec<_> = weights.iter().enumerate().filter_map(of_node).collect();
        verdict(&levels(&findings, weights.len()))
    }

    #[test]
    fn the_worst_finding_decides() {
        let (fit, gone, refused) = (None, Some(Weight::NoVote), Some(Weight::Refused));
        let unfit = Some(Weight::Unfit);
        assert_eq!(level(&[fit]), Fitness::Note);
        assert_eq!(level(&[Some(Weight::Note)]), Fitness::Note);
        assert_eq!(level(&[Some(Weight::Warn)]), Fitness::Warn);
        assert_eq!(level(&[fit, gone, fit]), Fitness::Warn);
        assert_eq!(level(&[gone]), Fitness::Unfit(Outcome::Unreachable));
        assert_eq!(
            level(&[fit, gone, gone]),
            Fitness::Unfit(Outcome::Unreachable)
        );
        assert_eq!(level(&[fit, unfit, fit]), Fitness::Unfit(Outcome::Config));
        // One refusal is a missing vote; several leave no majority.
        assert_eq!(level(&[fit, refused, fit]), Fitness::Warn);
        assert_eq!(
            level(&[gone, refused, fit]),
            Fitness::Unfit(Outcome::Unreachable)
        );
        assert_eq!(
            level(&[refused, refused, fit]),
            Fitness::Unfit(Outcome::Refused)
        );
        assert_eq!(level(&[refused]), Fitness::Unfit(Outcome::Refused));
    }
}
