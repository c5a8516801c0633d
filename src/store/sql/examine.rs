//! The checks of a database for `doctor`: their words, their weight and their remedy.

use std::time::{Duration, SystemTime};

use serde_json::json;

use super::pool::Pool;
use super::session::{Reply, number, strange};
use crate::clock;
use crate::store::Fault;
use crate::store::examine::{Examination, Finding, Plan, Role, Weight, another_time, slowness};
use crate::text::{duration, escape};

/// Examines the database, and whether it lets us hold the locks of `plan`.
pub(super) async fn examination(pool: &Pool, plan: &Plan) -> Result<Examination, Fault> {
    let session = pool.session().await?;
    let begun = clock::now();
    let reply = session.ask(&pool.table.examined(), None).await?;
    let trip = clock::now().since(begun);
    let row = reply.0.first().and_then(|statement| statement.rows.first());
    let cells: Vec<&str> = row
        .ok_or_else(strange)?
        .iter()
        .map(|cell| cell.as_deref().unwrap_or_default())
        .collect();
    let [now, writes, fsync, full_pages, standbys, idle, left, ssl] = cells[..] else {
        return Err(strange());
    };
    let mut findings = of_table(pool.table.table_name(), plan.role, writes);
    findings.extend(of_server(fsync, full_pages, standbys, plan, idle));
    let ahead = if writes.contains('s') {
        pool.ask(&pool.table.ahead_of_time()).await?
    } else {
        Reply::default()
    };
    let ahead = ahead
        .0
        .first()
        .and_then(|told| told.rows.first()?.first()?.clone());
    let mut warn = |what: String, remedy: &str| {
        findings.push(Finding::new(Weight::Warn, what, remedy));
    };
    if let Some(ahead) = ahead.filter(|ahead| ahead != "0") {
        let what = format!(
            "{ahead} rows of other clients begin in the future: a host writes the time of another zone or clock"
        );
        warn(what, "let ShedLock use usingDbTime()");
    }
    if left.parse::<i64>().is_ok_and(|left| left < 10) {
        let what = format!("{left} connections are left");
        warn(what, "raise max_connections, or put PgBouncer before it");
    }
    if !session.is_direct {
        let what = "a pooler stands before it: waiters have no order, and ask again and again";
        let remedy = "name the server itself where many wait";
        findings.push(Finding::new(Weight::Note, what, remedy));
    }
    let now: u64 = number(Some(now))?;
    let ours = clock::unix_millis(SystemTime::now());
    let offset =
        i64::try_from(now / 1000).unwrap_or_default() - i64::try_from(ours).unwrap_or_default();
    findings.extend(another_time(offset, trip));
    findings.extend(slowness(trip, plan));
    let how = if session.is_direct {
        "direct"
    } else {
        "behind a pooler"
    };
    let encrypted = if ssl == "t" { "TLS" } else { "no TLS" };
    let version = escape::text(&session.version);
    let line = format!(
        "PostgreSQL {version}, {how}, {encrypted}; an exchange takes {}",
        duration::show_rounded(trip)
    );
    Ok(Examination {
        version: Some(version),
        lines: vec![line],
        fields: json!({
            "direct": session.is_direct,
            "tls": ssl == "t",
            "round_trip_ms": u64::try_from(trip.as_millis()).unwrap_or(u64::MAX),
            "clock_offset_ms": offset,
        }),
        lacks_rights: findings
            .iter()
            .any(|finding| finding.weight == Weight::Refused),
        findings,
        ..Examination::default()
    })
}

/// Tells of the rights to the table: letters for those that the user has.
fn of_table(table: &str, role: Role, rights: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let wanted: &[(char, &str)] = match role {
        Role::Monitor => &[('s', "SELECT")],
        Role::Operator => &[('s', "SELECT"), ('u', "UPDATE")],
        Role::Job => &[('s', "SELECT"), ('u', "UPDATE"), ('i', "INSERT")],
    };
    for (_, right) in wanted
        .iter()
        .filter(|(letter, _)| !rights.contains(*letter))
    {
        let what = format!("the user has no right to {right} in {table}");
        let remedy = "grant the rights of the line below";
        findings.push(Finding::new(Weight::Refused, what, remedy));
    }
    findings
}

/// Tells of the server's settings, and of the standbys that may lack a grant.
fn of_server(
    fsync: &str,
    full_pages: &str,
    standbys: &str,
    plan: &Plan,
    idle: &str,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut warn = |what: String, remedy: &str| {
        findings.push(Finding::new(Weight::Warn, what, remedy));
    };
    for (value, name) in [(fsync, "fsync"), (full_pages, "full_page_writes")] {
        if value == "off" {
            let what = format!("{name} is off: a crash of the machine may lose locks");
            warn(what, "set it to on");
        }
    }
    if !matches!(standbys, "0" | "") {
        let what =
            format!("{standbys} standbys are asynchronous: a failover may forget the last grants");
        warn(what, "set synchronous_standby_names");
    }
    let idle = Duration::from_millis(idle.parse().unwrap_or_default());
    if !idle.is_zero() && idle < plan.schedule.renew_every() {
        let shown = duration::show(idle);
        let what =
            format!("idle_session_timeout is {shown}, shorter than the time between two renewals");
        let remedy = "set it to 0 for rlock's user, or give a shorter --ttl";
        warn(what, remedy);
    }
    findings
}
