//! The checks of a cluster for `doctor`: their words, their weight and their remedy.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use super::client::{Client, Outcome};
use super::names::{Names, first_of};
use super::rpc::{
    LeaseKeepAliveRequest, MemberListRequest, PutRequest, Request, StatusRequest, StatusResponse,
    TxnRequest, op, range, single,
};
use crate::clock;
use crate::lock::key::Key;
use crate::lock::mode::Mode;
use crate::store::Fault;
use crate::store::examine::{Examination, Finding, Plan, Role, Weight, slowness};
use crate::store::net::hosts::Endpoint;
use crate::text::{duration, escape};

/// The first sound releases: a minor version, and the least patch of it. In earlier ones a leader
/// answers keepalives while its disk stands still, and its late revocations end leases that live
/// (etcd issues 12528 and 15247).
const SOUND: [(u64, u64); 2] = [(4, 31), (5, 13)];

/// Time in which the members choose another leader, as etcd is configured: they miss the old one
/// for one to two seconds, and may need a second vote.
const ELECTION: Duration = Duration::from_secs(4);

/// A member that the address names.
struct Member {
    name: String,
    status: Result<StatusResponse, Fault>,
    /// Why it answers no keepalive, though it answers.
    unrenewed: Option<Fault>,
}

impl Member {
    async fn asked(host: Endpoint, client: Client) -> Self {
        let (name, limit) = (host.to_string(), client.limit());
        let asking = async {
            let mut status = client.ask(StatusRequest {}).await?;
            status.version = client.told(&status.version);
            status
                .errors
                .iter_mut()
                .for_each(|error| *error = client.told(error));
            // There is no such lease, so that none is extended.
            let keepalive = client.call(LeaseKeepAliveRequest { id: i64::MAX }, None);
            Ok((status, keepalive.await))
        };
        let asked = clock::until(clock::now() + limit, asking).await;
        let unrenewed = match &asked {
            Some(Ok((_, Outcome::Refused(status)))) => Some(status.fault()),
            _ => None,
        };
        let asked = asked.unwrap_or_else(|| Err(Fault::timeout(limit)));
        Self {
            name,
            status: asked.map(|(status, _)| status),
            unrenewed,
        }
    }
}

/// Examines the cluster, and whether it lets us see the locks of `plan` under `prefix`.
pub(super) async fn examination(
    client: &Client,
    prefix: &str,
    plan: &Plan,
) -> Result<Examination, Fault> {
    let each = client.each().into_iter();
    let members = join_all(each.map(|(host, client)| Member::asked(host, client))).await;
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
        findings.extend(of_rights(client, &Names::new(prefix, key), key, plan.role).await?);
    }
    let lacks_rights = !findings.is_empty();
    for key in &plan.keys {
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
    findings.extend(of_ttl(plan.schedule.ttl()));
    let lines = members.iter().map(|member| match &member.status {
        Ok(status) => format!("member {}: {}", member.name, told(status)),
        Err(fault) => format!("member {}: {fault}", member.name),
    });
    let versions = answered().map(|status| status.version.clone());
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
        lacks_rights,
        findings,
        ..Examination::default()
    })
}

const GRANT: &str = "grant the role of the line below";

/// Tells of the rights to the keys of a lock that the user lacks. Each is tried by a transaction that
/// leaves it out: etcd checks the rights to all of one.
async fn of_rights(
    client: &Client,
    names: &Names,
    key: &Key,
    role: Role,
) -> Result<Vec<Finding>, Fault> {
    let (entry, mark, newest) = (
        names.entry(Mode::Exclusive, 0),
        names.mark(),
        names.newest(),
    );
    let one = |key: &[u8]| (escape::bytes(key), single(key));
    let entries = (format!("the keys of {key}"), first_of(names.all()));
    let places = [
        (entries, entry, Weight::Refused, ""),
        (one(&mark), mark, Weight::Warn, ": inspect and --once fail"),
        (one(&newest), newest, Weight::Warn, ": --supersede fails"),
    ];
    let (places, rights) = match role {
        Role::Job => (&places[..], 2),
        Role::Operator => (&places[..2], 2),
        Role::Monitor => (&places[..2], 1),
    };
    let mut findings = Vec::new();
    for ((name, read), key, weight, lacks) in places {
        let write = PutRequest {
            key: key.clone(),
            ..PutRequest::default()
        };
        let trials = [
            ("read", range(read.clone())),
            ("write", op(Request::Put(write))),
        ];
        for (right, trial) in trials.into_iter().take(rights) {
            let left_out = TxnRequest {
                failure: vec![trial],
                ..TxnRequest::default()
            };
            match client.ask(left_out).await {
                Err(fault) if fault.is_about_names() => {
                    let what = format!("the user may not {right} {name}{lacks}");
                    findings.push(Finding::new(*weight, what, GRANT));
                }
                tried => drop(tried?),
            }
        }
    }
    Ok(findings)
}

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
    format!("etcd {}, {leader}", status.version)
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
    if let Some(fault) = &member.unrenewed {
        let what = format!("{name} answers no keepalive: {}", fault.cause());
        let remedy = "name the members, and no etcd grpc-proxy";
        findings.push(Finding::new(Weight::Unfit, what, remedy));
    }
    // A full store gives no lock, and a corrupt one gives nothing back either.
    for alarm in status.errors.iter().filter(|error| error.contains("alarm")) {
        let what = format!("member {name}: {alarm}");
        let remedy = if alarm.contains("NOSPACE") {
            "compact and defragment it, then etcdctl alarm disarm"
        } else {
            "see etcdctl alarm list, and replace the member whose data differ"
        };
        findings.push(Finding::new(Weight::NoVote, what, remedy));
    }
    match soundness(&status.version) {
        Some(true) => {}
        Some(false) => {
            let what = format!(
                "etcd {} may end a lease that lives when its leader's disk has stood still",
                status.version
            );
            findings.push(Finding::new(
                warn,
                what,
                "upgrade it to 3.4.31, 3.5.13 or later",
            ));
        }
        None => {
            let what = format!("version {}; rlock needs 3.4 or later", status.version);
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

/// Tells of a lease that may end while the members choose a leader. It is renewed each third of it.
fn of_ttl(ttl: Duration) -> Option<Finding> {
    let what = format!(
        "a lease of {} may end while the members choose another leader",
        duration::show(ttl)
    );
    (ttl * 2 / 3 < ELECTION).then(|| Finding::new(Weight::Warn, what, "give a --ttl of 6s or more"))
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
    fn a_learner_and_alarms_are_told() {
        let status = StatusResponse {
            version: "3.5.13".to_owned(),
            leader: 1,
            is_learner: true,
            errors: vec!["memberID:1 alarm:CORRUPT ".to_owned()],
            ..StatusResponse::default()
        };
        let findings = of_member(&Member {
            name: "m".to_owned(),
            status: Ok(status),
            unrenewed: None,
        });
        let weights: Vec<_> = findings.iter().map(|finding| finding.weight).collect();
        assert_eq!(weights, [Weight::Warn, Weight::NoVote]);
        assert!(findings[0].what.contains("a learner"));
        assert!(findings[1].what.contains("CORRUPT"));
    }

    #[test]
    fn a_lease_that_an_election_may_outlast_is_told() {
        let told = [3, 5, 6, 30].map(|seconds| of_ttl(Duration::from_secs(seconds)).is_some());
        assert_eq!(told, [true, true, false, false]);
    }

    #[test]
    fn a_list_that_names_too_few_members_is_told() {
        assert!(of_list(3, 3).is_none());
        assert!(of_list(1, 3).is_some_and(|finding| finding.what.contains("one of 3")));
        assert!(of_list(1, 1).is_some_and(|finding| finding.weight == Weight::Note));
    }
}
