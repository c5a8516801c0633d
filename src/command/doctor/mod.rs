//! `rlock doctor`: tells whether nodes are fit to hold locks. Changes nothing, but for the lock of
//! `--try`.
//!
//! Each store examines itself. What concerns all nodes together is judged here.

mod report;
mod trial;

use futures_util::future::join_all;

use crate::cli::subcommands::DoctorArgs;
use crate::command::{block_on, print};
use crate::exit::Outcome;
use crate::lock::quorum::Quorum;
use crate::lock::schedule::ScheduleOptions;
use crate::settings::{self, NODE_TIMEOUT, NodeSettings, Sources, strange_variables};
use crate::store::examine::{Examination, Finding, Plan, Weight};
use crate::store::redis::acl;
use crate::store::{Fault, FaultKind};
use crate::text::{escape, is_pattern};
use report::{Fitness, Report};

pub fn doctor(args: &DoctorArgs, sources: &Sources) -> anyhow::Result<Outcome> {
    let reach = NodeSettings::new(&args.nodes, sources)?;
    let keys = args
        .keys
        .iter()
        .map(|name| settings::key(&args.nodes, name))
        .collect::<Result<Vec<_>, _>>()?;
    let options = ScheduleOptions {
        node_timeout: args.nodes.node_timeout,
        ..ScheduleOptions::new(args.ttl)
    };
    let schedule = settings::schedule(options)?;
    let own = args
        .tries
        .then(|| settings::key(&args.nodes, trial::NAME))
        .transpose()?;
    let locks = acl::Locks {
        keys: &keys,
        patterns: &args.patterns,
        prefix: &args.nodes.prefix,
    };
    let grant = reach.store.grant(args.role, locks)?;
    // A slow node must show as slow, not as dead.
    let limit = reach.limit.max(NODE_TIMEOUT);
    let mut report = block_on(async {
        let stores = reach.store.open(limit, 1, reach.writes)?;
        let plan = Plan {
            role: args.role,
            keys,
            nodes: stores.len(),
            schedule,
            options,
            guard: args.restart_guard,
        };
        let results = join_all(stores.iter().map(|store| store.examine(&plan))).await;
        let mut findings = judge(&results);
        if let Some(own) = own {
            let is_ok = |(node, _): &(usize, _)| results[*node].is_ok();
            let that_answer = stores.iter().enumerate().filter(is_ok);
            let term = schedule.term();
            findings.extend(trial::findings(that_answer, &own, stores.len(), term, limit).await);
        }
        Ok(Report {
            names: stores.iter().map(|store| store.name().to_owned()).collect(),
            results,
            findings,
            grant,
        })
    })?;
    let patterns = args.keys.iter().filter(|name| is_pattern(name));
    let patterns = patterns.map(|name| {
        let what = format!(
            "{} is taken as the name of one lock, and no pattern",
            escape::text(name)
        );
        Finding::new(Weight::Note, what, "give a pattern with --pattern")
    });
    let strange = strange_variables().into_iter();
    let strange = strange.map(|what| {
        Finding::new(
            Weight::Note,
            what,
            "it has no effect; see rlock doctor --help",
        )
    });
    let notes = patterns.chain(strange);
    report.findings.extend(notes.map(|note| (None, note)));
    let told = if args.json {
        report.json()
    } else {
        report.text(args.acl)
    };
    print(told.as_bytes())?;
    Ok(match report.verdict() {
        Fitness::Note => Outcome::Done,
        Fitness::Warn => Outcome::No,
        Fitness::Unfit(outcome) => outcome,
    })
}

/// Returns the findings of all nodes, each with the node's number, and those of their set.
fn judge(results: &[Result<Examination, Fault>]) -> Vec<(Option<usize>, Finding)> {
    let mut findings = Vec::new();
    for (node, result) in results.iter().enumerate() {
        let of_node = match result {
            Err(fault) => vec![of_fault(fault)],
            Ok(examination) => {
                let twice = met_before(examination, &results[..node]);
                examination.findings.iter().cloned().chain(twice).collect()
            }
        };
        findings.extend(of_node.into_iter().map(|finding| (Some(node), finding)));
    }
    let quorum = Quorum::of(results.len());
    if results.len() > 1 && results.len().is_multiple_of(2) {
        let (total, needed, tolerated) = (quorum.total(), quorum.needed(), quorum.tolerated());
        let what = format!(
            "{needed} of {total} nodes must agree, so only {tolerated} may fail, as with {}",
            total - 1
        );
        findings.push((None, Finding::new(Weight::Note, what, "use an odd number")));
    }
    findings
}

/// Tells of a node that shares a server or its data with one that stands `before` it in the list.
fn met_before(examination: &Examination, before: &[Result<Examination, Fault>]) -> Option<Finding> {
    let identity = examination.identity.as_ref()?;
    let others = before.iter().flatten();
    let mut others = others.filter_map(|other| other.identity.as_ref());
    let how = others.find_map(|other| identity.shared_with(other))?;
    let what = format!("it {how} another node of the list: both have one vote together");
    let remedy = "name servers that are independent of each other";
    Some(Finding::new(Weight::Unfit, what, remedy))
}

/// A node that told nothing of itself.
fn of_fault(fault: &Fault) -> Finding {
    let (weight, usual) = match fault.kind {
        FaultKind::Refused => (Weight::Refused, "see its log"),
        FaultKind::Unfit | FaultKind::Short => (Weight::Unfit, "correct the node's address"),
        FaultKind::Unavailable | FaultKind::Unknown => (
            Weight::NoVote,
            "start it, or check the network between it and this machine",
        ),
    };
    Finding::new(weight, fault.cause(), fault.remedy.unwrap_or(usual))
}
