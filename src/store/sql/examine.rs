//! The checks of a database for `doctor`: their words, their weight and their remedy.

use std::collections::HashMap;
use std::time::SystemTime;

use serde_json::json;

use super::pool::Pool;
use super::session::{Reply, Session, number};
use super::statements::Right;
use crate::clock;
use crate::store::examine::{Examination, Finding, Plan, Role, Weight, another_time, slowness};
use crate::store::{Denied, Fault};
use crate::text::duration;

/// Facts of a server, by their names.
pub(in crate::store) struct Facts(HashMap<String, String>);

impl Facts {
    /// Reads the rows of all statements.
    fn of(reply: Reply) -> Self {
        let rows = reply
            .statements
            .into_iter()
            .flat_map(|statement| statement.rows);
        let fact = |row: Vec<Option<String>>| {
            let [name, value] = <[_; 2]>::try_from(row).ok()?;
            Some((name?.to_ascii_lowercase(), value?))
        };
        Self(rows.filter_map(fact).collect())
    }

    /// Returns what is told under the name.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The same, as a number.
    pub(super) fn number(&self, name: &str) -> Option<i64> {
        self.get(name)?.parse().ok()
    }
}

/// Examines the database, and whether it lets us hold the locks of `plan`.
pub(super) async fn examination(pool: &Pool, plan: &Plan) -> Result<Examination, Fault> {
    let (session, dialect) = (pool.session().await?, pool.table.dialect);
    let begun = clock::now();
    let facts = Facts::of(session.ask(&dialect.facts(&pool.table)).await?);
    let trip = clock::now().since(begun);
    let mut findings = of_table(pool, &session, plan.role).await?;
    let lacks_rights = !findings.is_empty();
    findings.extend(dialect.findings(&facts, plan));
    if !lacks_rights {
        let reply = pool.ask(&pool.table.ahead_of_time()).await?;
        findings.extend(ahead_of_time(reply.first_row(0)?));
    }
    if !session.is_direct {
        let what = "a pooler stands before it: waiters have no order, and ask again and again";
        let remedy = "name the server itself where many wait";
        findings.push(Finding::new(Weight::Note, what, remedy));
    }
    let now: u64 = number(facts.get("now"))?;
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
    let is_tls = pool.is_tls;
    let encrypted = if is_tls { "TLS" } else { "no TLS" };
    let version = &session.version;
    let line = format!(
        "{} {version}, {how}, {encrypted}; an exchange takes {}",
        dialect.name(),
        duration::show_rounded(trip)
    );
    Ok(Examination {
        version: Some(version.clone()),
        lines: vec![line],
        fields: json!({
            "direct": session.is_direct,
            "tls": is_tls,
            "round_trip_ms": u64::try_from(trip.as_millis()).unwrap_or(u64::MAX),
            "clock_offset_ms": offset,
        }),
        lacks_rights,
        findings,
        ..Examination::default()
    })
}

/// Tells of the rights to the table that the user lacks.
async fn of_table(pool: &Pool, session: &Session, role: Role) -> Result<Vec<Finding>, Fault> {
    let wanted: &[Right] = match role {
        Role::Monitor => &[Right::Select],
        Role::Operator => &[Right::Select, Right::Update],
        Role::Job => &[Right::Select, Right::Update, Right::Insert],
    };
    let mut findings = Vec::new();
    for right in wanted {
        match session.ask(&pool.table.trial(*right)).await {
            Err(fault) if fault.denied == Some(Denied::Key) => {
                let table = pool.table.table_name();
                let what = format!("the user has no right to {} in {table}", right.name());
                let remedy = "grant the rights of the line below";
                findings.push(Finding::new(Weight::Refused, what, remedy));
            }
            tried => drop(tried?),
        }
    }
    Ok(findings)
}

/// Tells of the rows of other clients that begin in the future.
fn ahead_of_time(number: &[Option<String>]) -> Option<Finding> {
    let number = number.first()?.as_deref().filter(|number| *number != "0")?;
    let what = format!(
        "{number} rows of other clients begin in the future: a host writes the time of another zone or clock"
    );
    let remedy = "let ShedLock use usingDbTime()";
    Some(Finding::new(Weight::Warn, what, remedy))
}

/// Tells of the settings `names` that are not as they must be for no lock to be lost.
pub(super) fn off(facts: &Facts, names: &[&str], must_be: &'static str) -> Vec<Finding> {
    let wrong = |name: &&&str| facts.get(name).is_some_and(|value| value != must_be);
    let told = |name: &&str| {
        let what = format!("{name} is not {must_be}: a crash of the machine may lose locks");
        Finding::new(Weight::Warn, what, &format!("set it to {must_be}"))
    };
    names.iter().filter(wrong).map(told).collect()
}
