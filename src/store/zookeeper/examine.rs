//! The checks of an ensemble for `doctor`: their words, their weight and their remedy.

use std::slice;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::RIGHTS;
use super::ensemble::{Attachment, Closing, Ensemble};
use super::jute::{ANY_VERSION, Kind, Operation, Request, error};
use super::path::LockPath;
use crate::clock;
use crate::store::examine::{Examination, Finding, Plan, Role, Weight, slowness};
use crate::store::net::quorum::QuorumAddress;
use crate::store::{Fault, FaultKind};
use crate::text::{duration, escape};

/// The znode that lists the servers (`ZooDefs.java`).
const CONFIG: &str = "/zookeeper/config";

/// The first version that has containers.
const LEAST_VERSION: (u64, u64) = (3, 5);

/// A TTL that an election may outlast.
const SHORT: Duration = Duration::from_secs(10);

/// Longest answer to `srvr` that is read.
const LONGEST_ANSWER: u64 = 4096;

/// A server that the address names.
struct Server {
    name: String,
    /// Its version and its role, if it tells them.
    srvr: Option<(String, String)>,
    sessions: Result<Sessions, Fault>,
}

/// The sessions that a server gives.
struct Sessions {
    least: Duration,
    longest: Duration,
    /// Time that a session took to begin.
    trip: Duration,
    /// Number of servers that the ensemble lists; 0 if that is not told.
    listed: usize,
}

/// Examines the ensemble, and whether it can have the locks of `plan`.
pub(super) async fn examination(
    ensemble: &Ensemble,
    address: &QuorumAddress,
    plan: &Plan,
) -> Result<Examination, Fault> {
    let each = ensemble.each().into_iter();
    let servers = join_all(each.map(|(name, server)| async move {
        let limit = server.limit();
        let end = clock::now() + limit;
        let (sessions, srvr) = tokio::join!(
            clock::until(end, sessions(&server)),
            clock::until(end, srvr(&server))
        );
        Server {
            name,
            srvr: srvr.flatten(),
            sessions: sessions.unwrap_or_else(|| Err(Fault::timeout(limit))),
        }
    }))
    .await;
    let Some(known) = servers
        .iter()
        .find_map(|server| server.sessions.as_ref().ok())
    else {
        let fault = servers.into_iter().find_map(|server| server.sessions.err());
        return Err(fault.unwrap_or_else(|| Fault::timeout(ensemble.limit())));
    };
    let mut findings: Vec<Finding> = servers.iter().filter_map(of_server).collect();
    findings.extend(of_sessions(known, plan));
    findings.extend(of_list(servers.len(), known.listed));
    findings.extend(slowness(known.trip, plan));
    for key in &plan.keys {
        match LockPath::of(&address.path, key) {
            Ok(path) => findings.extend(of_rights(ensemble, &path, plan.role).await?),
            Err(why) => {
                let what = format!("the name of {key} {why}");
                findings.push(Finding::new(Weight::Unfit, what, "choose another name"));
            }
        }
    }
    let lines = servers.iter().map(told).chain([
        format!(
            "sessions last from {} to {}; one begins within {}",
            duration::show(known.least),
            duration::show(known.longest),
            duration::show_rounded(known.trip)
        ),
        "a lock takes one connection of maxClientCnxns, and two while it is renewed".to_owned(),
    ]);
    let versions = servers.iter().filter_map(|server| server.srvr.as_ref());
    Ok(Examination {
        version: versions.map(|(version, _)| version.clone()).min(),
        lines: lines.collect(),
        fields: json!({
            "servers": servers.iter().map(fields).collect::<Vec<_>>(),
            "listed": known.listed,
            "least_session_ms": duration::millis(known.least),
            "longest_session_ms": duration::millis(known.longest),
        }),
        findings,
        ..Examination::default()
    })
}

/// Asks a server for the shortest and for the longest session.
async fn sessions(server: &Ensemble) -> Result<Sessions, Fault> {
    let begun = clock::now();
    let (least, _) = session(server, Duration::from_millis(1)).await?;
    let trip = clock::now().since(begun);
    let longest = Duration::from_millis(u64::from(i32::MAX.unsigned_abs()));
    let (longest, listed) = session(server, longest).await?;
    Ok(Sessions {
        least,
        longest,
        trip,
        listed,
    })
}

/// Begins and ends a session. Returns its length, and the number of servers that are listed.
async fn session(server: &Ensemble, timeout: Duration) -> Result<(Duration, usize), Fault> {
    let attachment = Attachment {
        session: None,
        timeout,
        requests: &[Request::Data(CONFIG.to_owned(), false)],
    };
    let (mut open, mut closing) = (None, Vec::new());
    let attached = server.attach(&attachment, &mut open, &mut closing).await?;
    let (Some(begun), Some(mut wire)) = (attached.session, open) else {
        return Err(Fault::new(FaultKind::Unavailable, "the session is over"));
    };
    let told = wire.reply(attached.xids[0]).await?.data()?;
    let config = told.map(|(data, _)| data).unwrap_or_default();
    let config = String::from_utf8_lossy(&config);
    let listed = config.lines().filter(|line| line.starts_with("server."));
    let listed = listed.count();
    let _ = Closing::of(wire).done().await;
    Ok((begun.timeout, listed))
}

/// Asks for version and role, which a server may not tell (`4lw.commands.whitelist`).
async fn srvr(server: &Ensemble) -> Option<(String, String)> {
    let mut stream = server.dial_first().await.ok()?;
    stream.write_all(b"srvr").await.ok()?;
    let mut told = Vec::new();
    stream
        .take(LONGEST_ANSWER)
        .read_to_end(&mut told)
        .await
        .ok()?;
    let (version, mode) = read_srvr(&String::from_utf8_lossy(&told))?;
    Some((server.told(&version), server.told(&mode)))
}

fn read_srvr(told: &str) -> Option<(String, String)> {
    let value = |name: &str| told.lines().find_map(|line| line.strip_prefix(name));
    let version = value("Zookeeper version: ")?.split(['-', ',']).next()?;
    Some((version.to_owned(), value("Mode: ")?.trim().to_owned()))
}

fn told(server: &Server) -> String {
    let name = &server.name;
    match (&server.sessions, &server.srvr) {
        (Err(fault), _) => format!("server {name}: {fault}"),
        (Ok(_), Some((version, mode))) => format!("server {name}: ZooKeeper {version}, {mode}"),
        (Ok(_), None) => format!("server {name}: it does not tell its version (srvr)"),
    }
}

fn fields(server: &Server) -> serde_json::Value {
    json!({
        "address": server.name,
        "version": server.srvr.as_ref().map(|(version, _)| version),
        "mode": server.srvr.as_ref().map(|(_, mode)| mode),
        "error": server.sessions.as_ref().err().map(|fault| fault.why.clone()),
    })
}

fn of_server(server: &Server) -> Option<Finding> {
    let name = &server.name;
    if let Err(fault) = &server.sessions {
        let what = format!("server {name}: {}", fault.cause());
        let remedy = fault.remedy.unwrap_or("see whether it runs");
        return Some(Finding::new(Weight::Warn, what, remedy));
    }
    let (version, _) = server.srvr.as_ref()?;
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
    let is_old = (numbers.next()?, numbers.next()?) < LEAST_VERSION;
    is_old.then(|| {
        let what = format!("version {version}; rlock needs 3.5 or later");
        Finding::new(Weight::Unfit, what, "upgrade it")
    })
}

fn of_sessions(sessions: &Sessions, plan: &Plan) -> Vec<Finding> {
    let ttl = plan.schedule.term().ttl();
    let mut findings = Vec::new();
    if sessions.longest < ttl {
        let (longest, ttl) = (duration::show(sessions.longest), duration::show(ttl));
        let what = format!("its longest session is {longest}, and the lock needs {ttl}");
        let remedy = "give a shorter --ttl, or raise maxSessionTimeout";
        findings.push(Finding::new(Weight::Unfit, what, remedy));
    }
    if ttl < SHORT {
        let what = "an election may take longer than the TTL, and then the lock is lost";
        findings.push(Finding::new(
            Weight::Note,
            what,
            "give a --ttl of 10s or more",
        ));
    }
    findings
}

/// Tells of a right that the user lacks on the lock's znode, or on the lowest one above it that there
/// is. A transaction tries it that fails at its end, so that nothing changes.
async fn of_rights(
    ensemble: &Ensemble,
    path: &LockPath,
    role: Role,
) -> Result<Option<Finding>, Fault> {
    let prefixes: Vec<&str> = path.prefixes().collect();
    let list = |znode: &&str| Request::Children((*znode).to_owned(), false);
    let lists: Vec<Request> = prefixes.iter().map(list).collect();
    let (mut visit, xids) = ensemble.visit(&lists).await?;
    let (mut lowest, mut listed) = ("", Ok(()));
    for (znode, xid) in prefixes.iter().zip(xids) {
        match visit.0.reply(xid).await?.children()? {
            Err(error::NO_NODE) => {}
            told => (lowest, listed) = (znode, told.map(drop)),
        }
    }
    let is_lock = prefixes.last() == Some(&lowest);
    let child = format!("{lowest}/rlock-doctor");
    let create = Operation::Create(child.clone(), Vec::new(), Kind::Persistent);
    let delete = Operation::Delete(child.clone(), ANY_VERSION);
    let mut may = async |operations: &[Operation]| {
        let fails = Operation::Check(format!("{child}/none"), ANY_VERSION);
        let multi = Request::Multi([operations, &[fails]].concat());
        let xid = visit.0.queue(&multi);
        Ok::<_, Fault>(visit.0.reply(xid).await?.multi()? != Err(error::NO_AUTH))
    };
    let is_job = role == Role::Job;
    let lacking = if is_lock && listed == Err(error::NO_AUTH) {
        Some("list")
    } else if is_job && !may(slice::from_ref(&create)).await? {
        Some("create")
    } else if is_job && is_lock && !may(&[create, delete]).await? {
        Some("delete")
    } else {
        None
    };
    visit.end().await;
    Ok(lacking.map(|right| {
        let znode = if lowest.is_empty() { "/" } else { lowest };
        let what = format!(
            "the user may not {right} children of the znode {}",
            escape::text(znode)
        );
        Finding::new(Weight::Refused, what, RIGHTS)
    }))
}

/// Tells of a list that does not name the servers.
fn of_list(named: usize, listed: usize) -> Option<Finding> {
    if listed < 2 {
        let what = "it is one server: no lock can be had while that is away";
        return Some(Finding::new(Weight::Note, what, "run three servers"));
    }
    let what = format!("the address names one of {listed} servers");
    (named == 1).then(|| Finding::new(Weight::Warn, what, "name all of them, separated by commas"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_answer_is_read() {
        let told = "Zookeeper version: 3.8.0-5a02a05, built on 2022\nLatency: 0\nMode: follower\n";
        assert_eq!(
            read_srvr(told),
            Some(("3.8.0".to_owned(), "follower".to_owned()))
        );
        assert_eq!(
            read_srvr("srvr is not executed because it is not in the whitelist."),
            None
        );
    }

    #[test]
    fn a_list_that_names_too_few_servers_is_told() {
        assert!(of_list(3, 3).is_none());
        assert!(of_list(1, 3).is_some_and(|finding| finding.what.contains("one of 3")));
        assert!(of_list(1, 0).is_some_and(|finding| finding.weight == Weight::Note));
    }
}
