//! The checks of a cluster for `doctor`: their words, their weight and their remedy.

use futures_util::future::join_all;
use serde_json::json;

use super::client::Client;
use super::names::Names;
use super::rpc::{MemberListRequest, StatusRequest, StatusResponse, single};
use crate::clock;
use crate::store::Fault;
use crate::store::examine::{Examination, Finding, Plan, Weight, slowness};
use crate::text::{duration, escape};

/// The first sound releases: a minor version, and the least patch of it. In earlier ones a leader
/// answers keepalives while its disk stands still, and its late revocations end leases that live
/// (etcd issues 12528 and 15247).
const SOUND: [(u64, u64); 2] = [(4, 31), (5, 13)];

/// A member that the address names.
struct Member {
    name: String,
    status: Result<StatusResponse, Fault>,
}

/// Examines the cluster, and whether it lets us see the locks of `plan` under `prefix`.
pub(super) async fn examination(
    client: &Client,
    prefix: &str,
    plan: &Plan,
) -> Result<Examination, Fault> {
    let ask = |(host, client): (_, Client)| async move {
        let limit = client.limit();
        let status = clock::until(clock::now() + limit, client.ask(StatusRequest {})).await;
        Member {
            name: format!("{host}"),
            status: status.unwrap_or_else(|| Err(Fault::timeout(limit))),
        }
    };
    let members = join_all(client.each().into_iter().map(ask)).await;
    let answered = || {
        members
            .iter()
            .filter_map(|member| member.status.as_ref().ok())
    };
    let Some(first) = answered().next() else {
        let fault = members.into_iter().find_map(|member| member.status.err());
        return Err(fault.unwrap_or_else(|| Fault::timeout(client.limit())));
    };
    let begun = clock::now();
    let mut findings = Vec::new();
    // A read goes through the leader.
    client.ask(single(b"rlock-doctor")).await.or_else(refusal)?;
    let trip = clock::now().since(begun);
    let listed = client.ask(MemberListRequest {}).await?.members;
    for key in &plan.keys {
        let entry = Names::new(prefix, key).all().0;
        if let Err(fault) = client.ask(single(&entry)).await {
            let what = format!("the user may not read the keys of {key}: {}", fault.cause());
            findings.push(Finding::new(Weight::Refused, what, GRANT));
        }
        if key.stored().contains('/') {
            let what = format!(
                "{key} is a part of another lock, if that is used too: each waits for the other's holders"
            );
            findings.push(Finding::new(
                Weight::Note,
                what,
                "give names without a slash",
            ));
        }
    }
    for member in &members {
        findings.extend(of_member(member));
    }
    // Members of one version have the same fault.
    findings.dedup();
    findings.extend(of_list(members.len(), listed.len()));
    findings.extend(slowness(trip, plan));
    let lines = members.iter().map(|member| match &member.status {
        Ok(status) => format!("member {}: {}", member.name, told(status)),
        Err(fault) => format!("member {}: {fault}", member.name),
    });
    let versions = answered().map(|status| escape::text(&status.version));
    Ok(Examination {
        version: Some(versions.min().unwrap_or_else(|| first.version.clone())),
        lines: lines
            .chain([format!(
                "a read through the leader takes {}",
                duration::show_rounded(trip)
            )])
            .collect(),
        fields: json!({
            "members": members.iter().map(fields).collect::<Vec<_>>(),
            "listed": listed.len(),
        }),
        lacks_rights: findings
            .iter()
            .any(|finding| finding.weight == Weight::Refused),
        findings,
        ..Examination::default()
    })
}

const GRANT: &str = "grant the role of the line below";

/// A denied read took its way through the leader too.
fn refusal<T: Default>(fault: Fault) -> Result<T, Fault> {
    if fault.is_about_names() {
        Ok(T::default())
    } else {
        Err(fault)
    }
}

fn told(status: &StatusResponse) -> String {
    let leader = match (status.leader, status.header) {
        (0, _) => "knows no leader",
        (leader, Some(header)) if leader == header.member_id => "leads",
        _ => "follows",
    };
    format!("etcd {}, {leader}", escape::text(&status.version))
}

fn fields(member: &Member) -> serde_json::Value {
    match &member.status {
        Ok(status) => json!({
            "address": member.name,
            "version": status.version,
            "leads": status.header.is_some_and(|header| header.member_id == status.leader),
            "errors": status.errors,
        }),
        Err(fault) => json!({ "address": member.name, "error": fault.why }),
    }
}

fn of_member(member: &Member) -> Vec<Finding> {
    let (name, warn) = (&member.name, Weight::Warn);
    let status = match &member.status {
        Ok(status) => status,
        Err(fault) => {
            let what = format!("member {name}: {}", fault.cause());
            let remedy = fault.remedy.unwrap_or("see whether it runs");
            return vec![Finding::new(warn, what, remedy)];
        }
    };
    let mut findings = Vec::new();
    if status.leader == 0 {
        let what = format!("member {name} knows no leader");
        findings.push(Finding::new(
            warn,
            what,
            "see whether a majority of the members is up",
        ));
    }
    if status.is_learner {
        let what = format!("member {name} is a learner, which answers no request");
        findings.push(Finding::new(warn, what, "name members that vote"));
    }
    for error in &status.errors {
        let what = format!("member {name}: {}", escape::short(error));
        let remedy = "etcdctl alarm list; compact and defragment it, then etcdctl alarm disarm";
        let weight = if error.contains("NOSPACE") {
            Weight::NoVote
        } else {
            warn
        };
        findings.push(Finding::new(weight, what, remedy));
    }
    match soundness(&status.version) {
        Some(true) => {}
        Some(false) => {
            let what = format!(
                "etcd {} may end a lease that lives when its leader's disk has stood still",
                escape::text(&status.version)
            );
            findings.push(Finding::new(
                warn,
                what,
                "upgrade it to 3.4.31, 3.5.13 or later",
            ));
        }
        None => {
            let what = format!(
                "version {}; rlock needs 3.4 or later",
                escape::text(&status.version)
            );
            findings.push(Finding::new(Weight::Unfit, what, "upgrade it"));
        }
    }
    findings
}

/// Whether a version is sound in what [`SOUND`] is about; `None` if it is too old.
fn soundness(version: &str) -> Option<bool> {
    let mut numbers = version
        .split(['.', '-'])
        .map(|number| number.parse().unwrap_or(0));
    let [major, minor, patch] = [(); 3].map(|()| numbers.next().unwrap_or(0));
    if (major, minor) < (3, 4) {
        return None;
    }
    let least = SOUND
        .iter()
        .find(|(known, _)| major == 3 && *known == minor);
    Some(least.is_none_or(|(_, least)| patch >= *least))
}

/// Tells of a list that does not name the members.
fn of_list(named: usize, listed: usize) -> Option<Finding> {
    if listed == 1 {
        let what = "it has one member: no lock can be had while that is away";
        return Some(Finding::new(Weight::Note, what, "run three members"));
    }
    let what = format!("the address names one of {listed} members");
    (named == 1).then(|| Finding::new(Weight::Warn, what, "name all of them, separated by commas"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_whose_leader_may_end_living_leases_are_known() {
        for (version, sound) in [
            ("3.3.25", None),
            ("2.3.8", None),
            ("3.4.23", Some(false)),
            ("3.4.31", Some(true)),
            ("3.5.0", Some(false)),
            ("3.5.12", Some(false)),
            ("3.5.13", Some(true)),
            ("3.6.0-rc.1", Some(true)),
            ("4.0.0", Some(true)),
        ] {
            assert_eq!(soundness(version), sound, "{version}");
        }
    }

    #[test]
    fn a_list_that_names_too_few_members_is_told() {
        assert!(of_list(3, 3).is_none());
        assert!(of_list(1, 3).is_some_and(|finding| finding.what.contains("one of 3")));
        assert!(of_list(1, 1).is_some_and(|finding| finding.weight == Weight::Note));
    }
}
