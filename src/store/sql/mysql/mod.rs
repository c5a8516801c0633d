//! MySQL and MariaDB: their statements.
//!
//! A request is no transaction: each of its statements is one, and has its own time. One that writes
//! begins with a statement that notes its time.

mod columns;
mod connection;
mod login;
mod packet;
#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio::sync::watch;

use super::address::{Form, SqlAddress};
use super::columns::creation;
use super::dialect::{Dialect, Working};
use super::examine::{Facts, off};
use super::session::{
    Begun, Greeting, NotBegun, Reply, SqlAccess, Statement, is_no_writer, number, strange,
};
use super::statements::{RecordRow, Table};
use crate::secret::Secret;
use crate::store::examine::{Finding, Plan, Rights, Weight};
use crate::store::net::dial::Stream;
use crate::store::net::hosts::Endpoint;

/// MySQL, version 8.0 or later, and MariaDB, 10.5 or later.
pub(super) struct MySql;

/// The time of a statement's start, as ShedLock's `usingDbTime()` writes it.
const NOW: &str = "UTC_TIMESTAMP(3)";

/// The time of a message's start, which [`Dialect::before`] notes.
const BEGUN: &str = "CAST(@begun AS DATETIME(3))";

/// The begin of unix time.
const EPOCH: &str = "TIMESTAMP'1970-01-01 00:00:00'";

static FORM: Form = Form {
    scheme: "mysql",
    port: 3306,
    tls: ("ssl-mode", "DISABLED", "VERIFY_IDENTITY"),
    socket: ("socket", "the path of a unix socket"),
    options: "table, columns, socket, ssl-mode and time_zone",
    names_role: false,
    needs_database: true,
    socket_of: |path, _| path.to_owned(),
    host_of: |path| (path, None),
};

/// Returns the µs from one time to another.
fn between(from: &str, to: &str) -> String {
    format!("TIMESTAMPDIFF(MICROSECOND, {from}, {to})")
}

/// Returns the µs for which a statement has waited since it began. `SYSDATE` is in the session's zone,
/// and so is what it is compared with.
fn waited() -> String {
    between("NOW(6)", "SYSDATE(6)")
}

/// Returns the conditions on a table of `information_schema` that hold for ours.
fn of_table(table: &Table) -> String {
    let own = table.table_name();
    let (schema, name) = match own.split_once('.') {
        Some((schema, name)) => (format!("'{schema}'"), name),
        None => ("DATABASE()".to_owned(), own),
    };
    format!("table_schema = {schema} AND table_name = '{name}'")
}

/// Returns the name of a line, which the server has for all its databases.
fn line(number: i64) -> String {
    format!("'rlock:{number:016x}'")
}

/// Lets a session end that is asked nothing for `gone`. Otherwise that of a client which is cut off would
/// stay for hours.
fn ends_after(gone: Duration) -> String {
    format!("SET wait_timeout = {}", gone.as_secs())
}

impl Dialect for MySql {
    fn name(&self) -> &'static str {
        "MySQL"
    }

    fn form(&self) -> &'static Form {
        &FORM
    }

    fn rights(&self, address: &SqlAddress) -> Rights {
        let quoted = |text: &str| format!("`{}`", text.replace('`', "``"));
        let own = match (&address.database, address.table.contains('.')) {
            (Some(database), false) => format!("{}.{}", quoted(database), address.table),
            _ => address.table.clone(),
        };
        let user = address.user.as_deref().unwrap_or("rlock");
        let user = user.replace('\\', r"\\").replace('\'', "''");
        let user = format!("'{user}'@'%'");
        // Names that differ in the case of a letter are two names, as in other stores.
        let end = " ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin";
        Rights {
            line: creation(&own, &address.columns, "DATETIME(3)", end, &user),
            note: "for mysql, as a user who may grant them".to_owned(),
        }
    }

    fn begin<'a>(
        &self,
        stream: Box<dyn Stream>,
        host: &'a Endpoint,
        password: Option<&'a Secret>,
        access: &'a SqlAccess,
        broken: &'a watch::Sender<()>,
    ) -> Working<'a, Result<Begun, NotBegun>> {
        Box::pin(connection::begin(stream, host, password, access, broken))
    }

    fn runs_all_that_is_written(&self) -> bool {
        false
    }

    /// Sets the session up: each statement is a transaction, and stores what a column has room for. The
    /// server gives up waiting for the lock of a row before we give up waiting for the server. Then it
    /// tells of the server its time, the number of the session, and whether it takes writes; and of the
    /// table its engine, its columns and its keys.
    fn greeting(&self, table: &Table) -> String {
        let zone = table.zone().map_or_else(String::new, |zone| {
            format!(", time_zone = {}", self.quoted(zone))
        });
        let ([name, ..], ours) = (table.columns(), of_table(table));
        let own = table.table_name();
        let now = self.micros(NOW);
        let wait = (table.limit() * 4 / 5).as_secs().max(1);
        format!(
            "SET autocommit = 1, sql_mode = '', character_set_results = 'utf8mb4', innodb_lock_wait_timeout = {wait}, lock_wait_timeout = {wait}{zone};\n\
             SELECT 1 FROM {own} WHERE false;\n\
             SELECT {now}, CONNECTION_ID(), (SELECT engine FROM information_schema.tables WHERE {ours});\n\
             SHOW VARIABLES WHERE variable_name IN ('binlog_format', 'log_bin', 'read_only');\n\
             SELECT column_name, column_type, extra FROM information_schema.columns WHERE {ours};\n\
             SELECT index_name FROM information_schema.statistics WHERE {ours} AND non_unique = 0 \
             GROUP BY index_name HAVING COUNT(*) = 1 AND MAX(column_name) = '{name}' AND MAX(sub_part) IS NULL"
        )
    }

    fn greeted(&self, table: &Table, reply: &Reply) -> Result<Greeting, NotBegun> {
        let [_, _, facts, settings, columns, keys] = &reply.statements[..] else {
            return Err(strange().into());
        };
        let Some([now, process, engine]) = facts.rows.first().map(Vec::as_slice) else {
            return Err(strange().into());
        };
        let greeting = Greeting {
            now: number(now.as_deref())?,
            process: number(process.as_deref())?,
        };
        if setting(settings, "read_only") != Some("OFF") {
            return Err(is_no_writer());
        }
        columns::check(table, columns)?;
        let repeats_statements = setting(settings, "log_bin") == Some("ON")
            && setting(settings, "binlog_format") == Some("STATEMENT");
        columns::check_rows(
            table,
            !keys.rows.is_empty(),
            engine.as_deref(),
            repeats_statements,
        )?;
        Ok(greeting)
    }

    fn before(&self, _: &Table, is_write: bool) -> Vec<String> {
        let noted = is_write.then(|| format!("SET @begun = {NOW}"));
        noted.into_iter().collect()
    }

    fn now(&self) -> &'static str {
        NOW
    }

    fn begun(&self) -> &'static str {
        BEGUN
    }

    fn after(&self, span: Duration) -> String {
        format!("TIMESTAMPADD(MICROSECOND, {}, {NOW})", span.as_micros())
    }

    /// The clock of a zone may have been set back while it waited, so that it waited for less than
    /// nothing.
    fn after_wait(&self, span: Duration) -> String {
        let span = format!("GREATEST({}, 0) + {}", waited(), span.as_micros());
        format!("TIMESTAMPADD(MICROSECOND, {span}, UTC_TIMESTAMP(6))")
    }

    fn a_little_after(&self, time: &str) -> String {
        format!("TIMESTAMPADD(MICROSECOND, 1000, {time})")
    }

    fn timestamp(&self, micros: u64) -> String {
        format!("TIMESTAMPADD(MICROSECOND, {micros}, {EPOCH})")
    }

    fn micros(&self, time: &str) -> String {
        between(EPOCH, time)
    }

    fn begin_shown(&self, column: &str) -> String {
        format!("COALESCE({}, 0)", between(EPOCH, column))
    }

    fn left_shown(&self, column: &str, now: &str) -> String {
        format!("COALESCE({}, 0)", between(now, column))
    }

    fn is_before(&self, deadline: u64) -> String {
        let begin = between(EPOCH, "UTC_TIMESTAMP(6)");
        format!("{begin} + ABS({}) < {deadline}", waited())
    }

    fn quoted(&self, text: &str) -> String {
        let hex = text.bytes().map(|byte| format!("{byte:02x}"));
        format!("_utf8mb4 X'{}'", hex.collect::<String>())
    }

    fn spliced(&self, prefix: &str, column: &str, from: usize) -> String {
        format!("CONCAT('{prefix}', SUBSTR({column}, {from}))")
    }

    fn bytes(&self, expression: &str) -> String {
        format!("CAST(CONVERT({expression} USING utf8mb4) AS BINARY)")
    }

    fn unless_there(&self, table: &Table) -> String {
        let [name, ..] = table.columns();
        format!("ON DUPLICATE KEY UPDATE {name} = {name}")
    }

    fn recorded(&self, table: &Table, name: &str, record: &RecordRow, condition: &str) -> String {
        let [_, until, at, by] = table.columns();
        let begin = self.timestamp(record.fence);
        let value = self.quoted(&record.value);
        // A collation may take the name of a lock for that of the record.
        let prefix = record.kind.prefix();
        let is_older = format!("{at} < {begin} AND {by} LIKE '{prefix}%'");
        let newer = |new: &str, old: &str| format!("{old} = IF({is_older}, {new}, {old})");
        // They are set in this order, and each compares the begin that is there.
        let sets = [newer(NOW, until), newer(&value, by), newer(&begin, at)];
        format!(
            "INSERT INTO {own} ({columns}) SELECT {name}, {NOW}, {begin}, {value} FROM (SELECT 1 AS one FROM {own} WHERE {condition}) AS held \
             ON DUPLICATE KEY UPDATE {sets}",
            own = table.table_name(),
            columns = table.columns().join(", "),
            sets = sets.join(", "),
        )
    }

    fn stand_in_line(&self, number: i64, gone: Duration) -> String {
        // No limit of the server ends its statement. Each of the two databases knows its own.
        let unlimited =
            "/*M!100108 , max_statement_time = 0 */ /*!80000 , max_execution_time = 0 */";
        let (ends, line) = (ends_after(gone), line(number));
        format!("{ends} {unlimited};\nSELECT GET_LOCK({line}, 86400)")
    }

    fn stand_first(&self, number: i64, gone: Duration) -> String {
        format!(
            "{};\nSELECT GET_LOCK({}, 0)",
            ends_after(gone),
            line(number)
        )
    }

    fn leave_line(&self, number: i64) -> String {
        format!("SELECT RELEASE_LOCK({})", line(number))
    }

    fn facts(&self, table: &Table) -> String {
        let ([name, ..], ours) = (table.columns(), of_table(table));
        format!(
            "SELECT 'now', {};\n\
             SELECT 'folds', collation_name NOT LIKE '%\\_bin' AND collation_name NOT LIKE '%\\_cs' FROM information_schema.columns WHERE {ours} AND column_name = '{name}';\n\
             SHOW GLOBAL VARIABLES WHERE variable_name IN ('innodb_flush_log_at_trx_commit', 'log_bin', 'max_connections', 'sync_binlog', 'wsrep_on', 'wsrep_sync_wait');\n\
             SHOW GLOBAL STATUS WHERE variable_name IN ('rpl_semi_sync_master_status', 'slaves_connected', 'threads_connected')",
            self.micros(NOW),
        )
    }

    /// Tells of the server's settings, and of the replicas that may lack a grant.
    fn findings(&self, facts: &Facts, _: &Plan) -> Vec<Finding> {
        let mut findings = off(facts, &["innodb_flush_log_at_trx_commit"], "1");
        if facts.get("log_bin") == Some("ON") {
            findings.extend(off(facts, &["sync_binlog"], "1"));
        }
        let mut add = |weight, what: String, remedy: &str| {
            findings.push(Finding::new(weight, what, remedy));
        };
        let replicas = facts.number("slaves_connected").unwrap_or_default();
        if replicas > 0 && facts.get("rpl_semi_sync_master_status") != Some("ON") {
            let what = format!(
                "{replicas} replicas are asynchronous: a failover may forget the last grants"
            );
            add(Weight::Warn, what, "let replication be semi-synchronous");
        }
        let awaits = facts.number("wsrep_sync_wait").unwrap_or_default();
        if facts.get("wsrep_on") == Some("ON") && awaits & 7 != 7 {
            let what = "wsrep_sync_wait is not 7: at a node of the cluster that lags, a lock seems to be gone, and its command is stopped";
            add(
                Weight::Warn,
                what.to_owned(),
                "set wsrep_sync_wait = 7 at all nodes",
            );
        }
        let most = facts.number("max_connections");
        let left = most.and_then(|most| Some(most - facts.number("threads_connected")?));
        if let Some(left) = left.filter(|left| *left < 10) {
            let what = format!("{left} connections are left");
            add(Weight::Warn, what, "raise max_connections");
        }
        if facts.get("folds") == Some("1") {
            let what = "names that differ in the case of a letter are one lock, by the collation of the table";
            add(
                Weight::Note,
                what.to_owned(),
                "see that no two jobs have such names",
            );
        }
        findings
    }
}

/// Returns the value of a setting of the server.
fn setting<'a>(settings: &'a Statement, name: &str) -> Option<&'a str> {
    let is = |row: &&Vec<Option<String>>| {
        let told = row.first().and_then(Option::as_deref);
        told.is_some_and(|told| told.eq_ignore_ascii_case(name))
    };
    settings.rows.iter().find(is)?.get(1)?.as_deref()
}
