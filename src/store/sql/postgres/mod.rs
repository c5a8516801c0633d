//! PostgreSQL: its statements.

mod columns;
mod connection;
mod meter;

use std::time::Duration;

use tokio::sync::watch;

use self::columns::FOLDS;
use super::address::{Form, SqlAddress};
use super::columns::creation;
use super::dialect::{Dialect, Working};
use super::examine::{Facts, off};
use super::session::{Begun, Greeting, NotBegun, Reply, SqlAccess, is_no_writer, number, strange};
use super::statements::{RecordRow, Table};
use crate::secret::Secret;
use crate::store::examine::{Finding, Plan, Rights, Weight};
use crate::store::net::dial::Stream;
use crate::store::net::hosts::Endpoint;
use crate::text::duration;

/// PostgreSQL, version 12 or later.
pub(super) struct Postgres;

/// The time of the message, as ShedLock's `usingDbTime()` writes it.
const NOW: &str = "timezone('utc', CURRENT_TIMESTAMP)";

static FORM: Form = Form {
    scheme: "postgresql",
    port: 5432,
    tls: ("sslmode", "disable", "verify-full"),
    socket: ("host", "the directory of a unix socket"),
    options: "table, columns, host, sslmode, time_zone and target_session_attrs",
    names_role: true,
    needs_database: false,
    socket_of: |dir, port| format!("{}/.s.PGSQL.{port}", dir.trim_end_matches('/')),
    host_of: |path| {
        let (dir, file) = path.rsplit_once('/').unwrap_or(("", path));
        (dir, file.rsplit('.').next())
    },
};

/// Returns a span of time. Versions before 15 take no large number of microseconds in the text of
/// an interval.
fn interval(micros: u128) -> String {
    let (seconds, rest) = (micros / 1_000_000, micros % 1_000_000);
    format!("make_interval(secs => {seconds}) + make_interval(secs => 0.{rest:06})")
}

impl Dialect for Postgres {
    fn name(&self) -> &'static str {
        "PostgreSQL"
    }

    fn form(&self) -> &'static Form {
        &FORM
    }

    fn rights(&self, address: &SqlAddress) -> Rights {
        let user = match &address.user {
            Some(user) => format!("\"{}\"", user.replace('"', "\"\"")),
            None => "rlock".to_owned(),
        };
        Rights {
            line: creation(&address.table, &address.columns, "TIMESTAMP", "", &user),
            note: "for psql, as the table's owner".to_owned(),
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
        true
    }

    /// Tells of the server its time, the number of the session, and whether it takes writes. Tells of
    /// the table whether it has one row for a name, whether a crash leaves it, and its columns.
    fn greeting(&self, table: &Table) -> String {
        format!(
            "SELECT {}, pg_backend_pid(), current_setting('transaction_read_only'), {}, \
             (SELECT relpersistence FROM pg_class WHERE oid = to_regclass({own})), \
             (SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod) \
             || CASE WHEN collisdeterministic THEN '' ELSE COALESCE('{FOLDS}' || collname, '') END, E'\\n') \
             FROM pg_attribute LEFT JOIN pg_collation c ON c.oid = attcollation \
             WHERE attrelid = to_regclass({own}) AND attnum > 0 AND NOT attisdropped)",
            self.micros(NOW),
            has_one_row_each(table),
            own = self.quoted(table.table_name()),
        )
    }

    fn greeted(&self, table: &Table, reply: &Reply) -> Result<Greeting, NotBegun> {
        let [now, process, read_only, is_keyed, persistence, columns] = reply.first_row(0)? else {
            return Err(strange().into());
        };
        let greeting = Greeting {
            now: number(now.as_deref())?,
            process: number(process.as_deref())?,
        };
        if read_only.as_deref() == Some("on") {
            return Err(is_no_writer());
        }
        columns::check(table, columns.as_deref())?;
        columns::check_rows(
            table,
            is_keyed.as_deref() == Some("t"),
            persistence.as_deref(),
        )?;
        Ok(greeting)
    }

    fn before(&self, table: &Table, is_write: bool) -> Vec<String> {
        let zone = table
            .zone()
            .map(|zone| format!("SELECT set_config('TimeZone', {}, true)", self.quoted(zone)));
        let writes = is_write.then(|| to_write(table.limit()));
        zone.into_iter().chain(writes).collect()
    }

    fn now(&self) -> &'static str {
        NOW
    }

    fn after(&self, span: Duration) -> String {
        format!("{NOW} + {}", interval(span.as_micros()))
    }

    fn after_wait(&self, span: Duration) -> String {
        let span = interval(span.as_micros());
        format!("timezone('utc', clock_timestamp()) + {span}")
    }

    fn a_little_after(&self, time: &str) -> String {
        format!("{time} + interval '1 millisecond'")
    }

    fn timestamp(&self, micros: u64) -> String {
        format!("timestamp 'epoch' + {}", interval(u128::from(micros)))
    }

    fn micros(&self, time: &str) -> String {
        format!("(extract(epoch from ({time})) * 1000000)::bigint")
    }

    fn zoneless(&self, column: &str) -> String {
        format!("{column}::timestamp")
    }

    fn begin_shown(&self, column: &str) -> String {
        let begin = format!("GREATEST(LEAST({column}::timestamp, '9999-01-01'), '0001-01-01')");
        self.micros(&begin)
    }

    fn left_shown(&self, column: &str, now: &str) -> String {
        // An end that never comes has a difference too. It is told as it is compared with the time:
        // where the column has a time zone, a time of day that spring leaves out counts as later.
        let end = format!("LEAST({column}, {now} + interval '1000 years')");
        self.micros(&format!("{end} - {now}"))
    }

    fn is_before(&self, deadline: u64) -> String {
        format!("extract(epoch from clock_timestamp()) * 1000000 < {deadline}")
    }

    /// It is the same whatever `standard_conforming_strings` says. A NUL, which no text in a database
    /// has, is left out.
    fn quoted(&self, text: &str) -> String {
        let text = text
            .replace('\0', "")
            .replace('\\', r"\\")
            .replace('\'', "''");
        format!("E'{text}'")
    }

    fn spliced(&self, prefix: &str, column: &str, from: usize) -> String {
        format!("'{prefix}' || substr({column}, {from})")
    }

    fn bytes(&self, expression: &str) -> String {
        format!("{expression} COLLATE \"C\"")
    }

    fn unless_there(&self, _: &Table) -> String {
        "ON CONFLICT DO NOTHING".to_owned()
    }

    fn recorded(&self, table: &Table, name: &str, record: &RecordRow, condition: &str) -> String {
        let [key, until, at, by] = table.columns();
        format!(
            "INSERT INTO {own} AS old ({columns}) SELECT {name}, {NOW}, {}, {} WHERE EXISTS (SELECT 1 FROM {own} WHERE {condition}) \
             ON CONFLICT ({key}) DO UPDATE SET {until} = EXCLUDED.{until}, {at} = EXCLUDED.{at}, {by} = EXCLUDED.{by} WHERE old.{at} < EXCLUDED.{at}",
            self.timestamp(record.fence),
            self.quoted(&record.value),
            own = table.table_name(),
            columns = table.columns().join(", "),
        )
    }

    fn stand_in_line(&self, number: i64, gone: Duration) -> String {
        // The server notices the end of a client that waits; older ones than 14 know no such setting.
        format!(
            "{};\n\
             SELECT set_config('lock_timeout', '0', false), set_config('statement_timeout', '0', false);\n\
             SELECT set_config(name, '1s', false) FROM pg_settings WHERE name = 'client_connection_check_interval';\n\
             SELECT pg_advisory_lock({number})",
            ends_after(gone),
        )
    }

    fn stand_first(&self, number: i64, gone: Duration) -> String {
        let ends = ends_after(gone);
        format!("{ends};\nSELECT pg_try_advisory_lock({number})")
    }

    fn leave_line(&self, number: i64) -> String {
        format!("SELECT pg_advisory_unlock({number})")
    }

    fn facts(&self, table: &Table) -> String {
        format!(
            "SELECT 'now', {}::text \
             UNION ALL SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'idle_session_timeout') \
             UNION ALL SELECT 'standbys', (SELECT CASE WHEN bool_and(sync_state = 'async') THEN count(*) ELSE 0 END FROM pg_stat_replication)::text \
             UNION ALL SELECT 'left', (current_setting('max_connections')::int - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'))::text \
             UNION ALL SELECT 'policies', 'apply' WHERE row_security_active(to_regclass({}))",
            self.micros(NOW),
            self.quoted(table.table_name()),
        )
    }

    /// Tells of the server's settings, and of the standbys that may lack a grant.
    fn findings(&self, facts: &Facts, plan: &Plan) -> Vec<Finding> {
        let mut findings = off(facts, &["fsync", "full_page_writes"], "on");
        let mut warn = |what: String, remedy: &str| {
            findings.push(Finding::new(Weight::Warn, what, remedy));
        };
        if let Some(standbys) = facts.number("standbys").filter(|standbys| *standbys > 0) {
            let what = format!(
                "{standbys} standbys are asynchronous: a failover may forget the last grants"
            );
            warn(what, "set synchronous_standby_names");
        }
        let idle = facts.number("idle_session_timeout").unwrap_or_default();
        let idle = Duration::from_millis(idle.unsigned_abs());
        if !idle.is_zero() && idle < plan.schedule.renew_every() {
            let shown = duration::show(idle);
            let what = format!(
                "idle_session_timeout is {shown}, shorter than the time between two renewals"
            );
            let remedy = "set it to 0 for rlock's user, or give a shorter --ttl";
            warn(what, remedy);
        }
        if let Some(left) = facts.number("left").filter(|left| *left < 10) {
            let what = format!("{left} connections are left");
            warn(what, "raise max_connections, or put PgBouncer before it");
        }
        if facts.get("policies").is_some() {
            let what =
                "row level security is on for this user: a row that a policy hides is no lock";
            findings.push(Finding::new(Weight::Note, what, connection::POLICY));
        }
        findings
    }
}

/// Returns what stands before statements that write.
///
/// 1. The server gives up waiting for the lock of a row before we give up waiting for the server.
/// 2. A crash of the server forgets no grant.
fn to_write(limit: Duration) -> String {
    format!(
        "SELECT set_config('lock_timeout', '{}ms', true), set_config('synchronous_commit', \
         CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)",
        (limit.as_millis() * 4 / 5).max(1)
    )
}

/// Lets the session of a client end that is cut off for `gone`. The kernel would wait for two hours.
fn ends_after(gone: Duration) -> String {
    let settings = [
        ("idle", (gone / 2).as_secs()),
        ("interval", (gone / 6).as_secs()),
        ("count", 3),
    ];
    let settings = settings
        .map(|(name, value)| format!("set_config('tcp_keepalives_{name}', '{value}', false)"));
    format!(
        "SELECT {}, set_config('tcp_user_timeout', '{}', false)",
        settings.join(", "),
        gone.as_millis(),
    )
}

/// Whether a unique index is on the name alone. A view has none of its own.
fn has_one_row_each(table: &Table) -> String {
    let [name, ..] = table.columns();
    format!(
        "EXISTS (SELECT 1 FROM pg_class WHERE oid = to_regclass({own}) AND relkind = 'v') OR \
         EXISTS (SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] \
         WHERE i.indrelid = to_regclass({own}) AND i.indisunique AND i.indisvalid AND i.indpred IS NULL \
         AND i.indnkeyatts = 1 AND a.attname = {name})",
        own = Postgres.quoted(table.table_name()),
        name = Postgres.quoted(&name.to_ascii_lowercase()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_leaves_its_literal() {
        assert_eq!(Postgres.quoted(r"it's \ a"), r"E'it''s \\ a'");
        assert_eq!(Postgres.quoted("a\0b\\'; DROP"), r"E'ab\\''; DROP'");
    }

    #[test]
    fn a_span_is_exact_and_of_a_form_that_old_versions_take() {
        assert_eq!(
            Postgres.after(Duration::from_micros(7_200_000_001)),
            format!("{NOW} + make_interval(secs => 7200) + make_interval(secs => 0.000001)")
        );
        assert_eq!(
            Postgres.timestamp(1_795_684_015_578_486),
            "timestamp 'epoch' + make_interval(secs => 1795684015) + make_interval(secs => 0.578486)"
        );
    }

    #[test]
    fn the_kernel_of_the_server_takes_a_client_that_is_cut_off_for_gone_within_the_time() {
        assert_eq!(
            ends_after(Duration::from_secs(10)),
            "SELECT set_config('tcp_keepalives_idle', '5', false), set_config('tcp_keepalives_interval', '1', false), \
             set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '10000', false)"
        );
    }

    #[test]
    fn the_time_left_is_told_as_it_is_compared() {
        assert!(
            !Postgres
                .left_shown("lock_until", NOW)
                .contains("lock_until::timestamp")
        );
    }
}
