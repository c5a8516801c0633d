//! The text of each request: one message of a few statements, which the database runs as one
//! transaction. What differs between databases stands first.
//!
//! 1. The time is the database's. It is the same in all statements of a message: that of its start.
//! 2. A statement that may give us the lock has a deadline in the database's clock. One that runs
//!    later, because the server hung or the network did, grants nothing.
//! 3. No row is deleted, and a new row grants nothing.

use std::time::Duration;

use super::address::SqlAddress;
use super::row::{BEFORE_TOKEN, RecordKind, State};
use crate::lock::token::Token;

/// The time of the message, as ShedLock's `usingDbTime()` writes it.
const NOW: &str = "timezone('utc', CURRENT_TIMESTAMP)";

/// Returns a span of time. Versions before 15 take no large number of microseconds in the text of
/// an interval.
fn interval(micros: u128) -> String {
    let (seconds, rest) = (micros / 1_000_000, micros % 1_000_000);
    format!("make_interval(secs => {seconds}) + make_interval(secs => 0.{rest:06})")
}

/// Returns the time `span` after [`NOW`].
fn after(span: Duration) -> String {
    format!("{NOW} + {}", interval(span.as_micros()))
}

/// Returns the unix time of a timestamp, in µs.
fn micros(time: &str) -> String {
    format!("(extract(epoch from ({time})) * 1000000)::bigint")
}

/// Returns the timestamp of a unix time in µs.
fn timestamp(micros: u64) -> String {
    format!("timestamp 'epoch' + {}", interval(u128::from(micros)))
}

/// Returns the condition that it is not `deadline` yet, a unix time in µs. Unlike [`NOW`] this is
/// the time at which the condition is looked at.
fn before(deadline: u64) -> String {
    format!("extract(epoch from clock_timestamp()) * 1000000 < {deadline}")
}

/// Returns `text` as a literal that is the same whatever `standard_conforming_strings` says. A NUL,
/// which no text in a database has, is left out.
fn quoted(text: &str) -> String {
    let text = text
        .replace('\0', "")
        .replace('\\', r"\\")
        .replace('\'', "''");
    format!("E'{text}'")
}

/// Returns what stands before statements that write.
///
/// 1. The server gives up waiting for the lock of a row before we give up waiting for the server.
/// 2. A crash of the server forgets no grant.
fn to_write(limit: Duration) -> String {
    format!(
        "SELECT set_config('lock_timeout', '{}ms', true), set_config('synchronous_commit', \
         CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true);\n",
        (limit.as_millis() * 4 / 5).max(1)
    )
}

/// A `locked_at` from which on no fence can rise: that of the year 2112 is near 2^52. A row that
/// begins later was written by hand.
const LAST_YEAR: &str = "'2112-01-01'";

/// Adds a row that is not there.
const UNLESS_THERE: &str = "ON CONFLICT DO NOTHING";

/// Number of the statements before those of the request: [`to_write`].
const BEFORE: usize = 1;

/// A message, and the number of its statement that writes first.
pub(super) struct Message {
    pub(super) text: String,
    /// Number of statements before the ones that the request consists of.
    pub(super) before: usize,
}

/// The table, as statements name it.
#[derive(Clone)]
pub(super) struct Table {
    /// Its own name.
    own: String,
    name: String,
    until: String,
    at: String,
    by: String,
    /// Sets the time zone of the transaction.
    zone: Option<String>,
    limit: Duration,
}

impl Table {
    /// The table at `address`; each exchange takes `limit` at most.
    pub(super) fn new(address: &SqlAddress, limit: Duration) -> Self {
        let [name, until, at, by] = address.columns.clone();
        let zone = address.time_zone.as_ref();
        Self {
            own: address.table.clone(),
            name,
            until,
            at,
            by,
            zone: zone
                .map(|zone| format!("SELECT set_config('TimeZone', {}, true);\n", quoted(zone))),
            limit,
        }
    }

    /// Returns the table's name.
    pub(super) fn table_name(&self) -> &str {
        &self.own
    }

    /// Whether the address names the time zone of other clients.
    pub(super) fn has_zone(&self) -> bool {
        self.zone.is_some()
    }

    /// Returns its columns: name, end, begin, holder.
    pub(super) fn columns(&self) -> [&str; 4] {
        [&self.name, &self.until, &self.at, &self.by]
    }

    fn message(&self, is_write: bool, statements: &[String]) -> Message {
        let zone = self.zone.clone().unwrap_or_default();
        let before = usize::from(self.zone.is_some());
        let (writing, before) = if is_write {
            (to_write(self.limit), before + BEFORE)
        } else {
            (String::new(), before)
        };
        let text = format!("{zone}{writing}{}", statements.join(";\n"));
        Message { text, before }
    }

    /// Shows the rows `names`: name, holder, begin, time left, time since the end, now.
    fn shown(&self, names: &[&str]) -> String {
        let Self {
            own: table,
            name,
            until,
            at,
            by,
            ..
        } = self;
        let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
        // An end that never comes has a difference too. It is told as [`Self::is_free`] compares it:
        // where the column has a time zone, a time of day that spring leaves out counts as later.
        let end = format!("LEAST({until}, {NOW} + interval '1000 years')");
        let begin = format!("GREATEST(LEAST({at}::timestamp, '9999-01-01'), '0001-01-01')");
        format!(
            "SELECT {name}, {by}, {}, {}, {} FROM {table} WHERE {name} IN ({})",
            micros(&begin),
            micros(&format!("{end} - {NOW}")),
            micros(NOW),
            names.join(", ")
        )
    }

    fn is(&self, key: &str) -> String {
        format!("{} = {}", self.name, quoted(key))
    }

    /// Whether the row is in one of `states` as the token's.
    fn owned(&self, states: &[State], token: Token) -> String {
        let is = |state: &State| format!("{} LIKE '{}{token} %'", self.by, state.prefix());
        let any: Vec<String> = states.iter().map(is).collect();
        format!("({})", any.join(" OR "))
    }

    fn is_free(&self) -> String {
        format!("{} <= {NOW}", self.until)
    }

    /// Returns the statement that puts the row into `state` until `end`, if `condition` holds.
    fn changed(&self, key: &str, state: State, end: &str, also: &str, condition: &str) -> String {
        let Self {
            own: table,
            until,
            by,
            ..
        } = self;
        let rest = BEFORE_TOKEN + 1;
        format!(
            "UPDATE {table} SET {by} = '{}' || substr({by}, {rest}), {until} = {end}{also} WHERE {} AND {condition}",
            state.prefix(),
            self.is(key)
        )
    }

    /// Takes the lock if it is free, and it is not `deadline` yet.
    pub(super) fn acquire(&self, key: &str, value: &str, ttl: Duration, deadline: u64) -> Message {
        let Self {
            own: table,
            until,
            at,
            by,
            ..
        } = self;
        let take = format!(
            "UPDATE {table} SET {at} = GREATEST({NOW}, {at}::timestamp + interval '1 millisecond'), {until} = {}, {by} = {} \
             WHERE {} AND {} AND {at} < {LAST_YEAR} AND {}",
            after(ttl),
            quoted(value),
            self.is(key),
            self.is_free(),
            before(deadline),
        );
        self.message(true, &[take, self.shown(&[key])])
    }

    /// Adds the row of a lock, which is free.
    pub(super) fn create(&self, key: &str) -> Message {
        let Self { own: table, .. } = self;
        let add = format!(
            "INSERT INTO {table} ({}) VALUES ({}, '2000-01-01', '2000-01-01', 'rlock free -') {UNLESS_THERE}",
            self.columns().join(", "),
            quoted(key),
        );
        self.message(true, &[add])
    }

    /// Extends the lock if it is the token's.
    pub(super) fn renew(&self, key: &str, token: Token, ttl: Duration) -> Message {
        let renew = self.extended(key, &[State::Held], token, ttl);
        self.message(true, &[renew, self.shown(&[key])])
    }

    fn extended(&self, key: &str, states: &[State], token: Token, ttl: Duration) -> String {
        let Self {
            own: table, until, ..
        } = self;
        format!(
            "UPDATE {table} SET {until} = {} WHERE {} AND {}",
            after(ttl),
            self.is(key),
            self.owned(states, token),
        )
    }

    /// The same, of a tombstone too; and takes the lock again if it is free, no later grant than
    /// `newest` was given, and it is not `deadline` yet. The first statement extends, the second
    /// takes.
    pub(super) fn heal(&self, key: &str, token: Token, ttl: Duration, again: &Again) -> Message {
        let Self {
            own: table,
            until,
            at,
            by,
            ..
        } = self;
        let renew = self.extended(key, &[State::Held, State::Dead], token, ttl);
        let take = format!(
            "UPDATE {table} SET {until} = {}, {by} = {}, {at} = GREATEST({at}::timestamp, {}) \
             WHERE {} AND {} AND {} <= {} AND {}",
            after(ttl),
            quoted(&again.value),
            timestamp(again.fence),
            self.is(key),
            self.is_free(),
            micros(&format!("{at}::timestamp")),
            again.newest,
            before(again.deadline),
        );
        self.message(true, &[renew, take, self.shown(&[key])])
    }

    /// Gives the lock back if it is the token's. The first statement parks it, if it is to stay;
    /// the second frees it.
    pub(super) fn release(
        &self,
        key: &str,
        token: Token,
        parked: Option<(Duration, bool)>,
        records: &[RecordRow],
    ) -> Message {
        let states = |with_tombstones: bool| -> &[State] {
            if with_tombstones {
                &[State::Held, State::Dead]
            } else {
                &[State::Held]
            }
        };
        let (left, parks) = parked.unwrap_or((Duration::ZERO, false));
        let park = self.owned(states(parks), token);
        let park = match parked {
            Some(_) => park,
            None => "false".to_owned(),
        };
        let park = self.changed(key, State::Parked, &after(left), "", &park);
        let free = self.owned(&[State::Held, State::Dead], token);
        let free = self.changed(key, State::Free, NOW, "", &free);
        let written = |record: &RecordRow| {
            let ended = self.owned(&[State::Parked, State::Free], token);
            self.recorded(key, record, &ended)
        };
        let mut statements = vec![park, free];
        statements.push(self.shown(&[key]));
        statements.extend(records.iter().map(written));
        self.message(true, &statements)
    }

    /// Writes the row of a record over one of a lower fence, if `condition` holds of the lock's row.
    fn recorded(&self, key: &str, record: &RecordRow, condition: &str) -> String {
        let Self {
            own: table,
            until,
            at,
            by,
            ..
        } = self;
        let name = format!("{}{key}", record.kind.prefix());
        format!(
            "INSERT INTO {table} AS old ({}) SELECT {}, {NOW}, {}, {} WHERE EXISTS (SELECT 1 FROM {table} WHERE {} AND {condition}) \
             ON CONFLICT ({}) DO UPDATE SET {until} = EXCLUDED.{until}, {at} = EXCLUDED.{at}, {by} = EXCLUDED.{by} WHERE old.{at} < EXCLUDED.{at}",
            self.columns().join(", "),
            quoted(&name),
            timestamp(record.fence),
            quoted(&record.value),
            self.is(key),
            self.name,
        )
    }

    /// Puts the tombstone `value` in the place of the token's lock.
    pub(super) fn entomb(&self, key: &str, token: Token, value: &str) -> Message {
        let Self {
            own: table,
            until,
            by,
            ..
        } = self;
        let entomb = format!(
            "UPDATE {table} SET {by} = {} WHERE {} AND {} AND {until} > {NOW}",
            quoted(value),
            self.is(key),
            self.owned(&[State::Held], token),
        );
        self.message(true, &[entomb, self.shown(&[key])])
    }

    /// Takes the token's lock away. The fence passes `fence`, so that its holder cannot take it
    /// again.
    pub(super) fn delete(
        &self,
        key: &str,
        token: Token,
        fence: u64,
        record: Option<&RecordRow>,
    ) -> Message {
        let at = &self.at;
        let passed = format!(
            ", {at} = GREATEST({at}::timestamp, {} + interval '1 millisecond')",
            timestamp(fence)
        );
        let ours = self.owned(&[State::Held, State::Dead, State::Parked], token);
        let ours = format!("{ours} AND {} > {NOW}", self.until);
        let delete = self.changed(key, State::Gone, NOW, &passed, &ours);
        let mut statements = vec![delete, self.shown(&[key])];
        let gone = self.owned(&[State::Gone], token);
        statements.extend(record.map(|record| self.recorded(key, record, &gone)));
        self.message(true, &statements)
    }

    /// Ends the lock of another client, if its row still says what was `seen`.
    pub(super) fn delete_foreign(&self, key: &str, seen: &str) -> Message {
        let Self {
            own: table,
            until,
            by,
            ..
        } = self;
        let delete = format!(
            "UPDATE {table} SET {until} = {NOW} WHERE {} AND {by} = {} AND {until} > {NOW}",
            self.is(key),
            quoted(seen),
        );
        self.message(true, &[delete, self.shown(&[key])])
    }

    /// Forgets the success of `token`.
    pub(super) fn forget(&self, key: &str, token: Token) -> Message {
        let Self { own: table, by, .. } = self;
        let once = RecordKind::Once.prefix();
        let forget = format!(
            "UPDATE {table} SET {by} = '{once}-' WHERE {} AND {by} LIKE '{once}{token} %'",
            self.is(&format!("{once}{key}")),
        );
        self.message(true, &[forget, self.shown(&[key])])
    }

    /// Shows the lock.
    pub(super) fn peek(&self, key: &str) -> Message {
        self.message(false, &[self.shown(&[key])])
    }

    /// Shows the lock and its record.
    pub(super) fn look(&self, key: &str) -> Message {
        let records =
            [RecordKind::Last, RecordKind::Once].map(|kind| format!("{}{key}", kind.prefix()));
        self.message(false, &[self.shown(&[key, &records[0], &records[1]])])
    }

    /// Shows the names of `number` rows that begin with `prefix`, from behind `last` on.
    pub(super) fn list(&self, prefix: &str, last: Option<&str>, number: usize) -> Message {
        let Self {
            own: table, name, ..
        } = self;
        let length = prefix.chars().count();
        let behind = last.map_or_else(String::new, |last| {
            format!(" AND {name} COLLATE \"C\" > {}", quoted(last))
        });
        let text = format!(
            "SELECT {name} FROM {table} WHERE left({name}, {length}) = {}{behind} ORDER BY {name} COLLATE \"C\" LIMIT {number}",
            quoted(prefix),
        );
        self.message(false, &[text])
    }

    /// Tells of the server its time, the number of the session, and whether it takes writes. Tells of
    /// the table whether it has one row for a name, whether a crash leaves it, and its columns.
    pub(super) fn greeting(&self) -> String {
        format!(
            "SELECT {}, pg_backend_pid(), current_setting('transaction_read_only'), {}, \
             (SELECT relpersistence FROM pg_class WHERE oid = to_regclass({own})), \
             (SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), E'\\n') FROM pg_attribute \
             WHERE attrelid = to_regclass({own}) AND attnum > 0 AND NOT attisdropped)",
            micros(NOW),
            self.has_one_row_each(),
            own = quoted(&self.own),
        )
    }

    /// Whether a unique index is on the name alone. A view has none of its own.
    fn has_one_row_each(&self) -> String {
        format!(
            "EXISTS (SELECT 1 FROM pg_class WHERE oid = to_regclass({own}) AND relkind = 'v') OR \
             EXISTS (SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] \
             WHERE i.indrelid = to_regclass({own}) AND i.indisunique AND i.indisvalid AND i.indpred IS NULL \
             AND i.indnkeyatts = 1 AND a.attname = {name})",
            own = quoted(&self.own),
            name = quoted(&self.name.to_ascii_lowercase()),
        )
    }

    /// Tells what `doctor` checks, in the order in which that reads it.
    pub(super) fn examined(&self) -> String {
        let shown = quoted(&self.own);
        let right = |letter: char, name: &str| {
            format!("CASE WHEN has_table_privilege({shown}, '{name}') THEN '{letter}' ELSE '' END")
        };
        let rights = [('s', "SELECT"), ('i', "INSERT"), ('u', "UPDATE")];
        let rights = rights
            .map(|(letter, name)| right(letter, name))
            .join(" || ");
        format!(
            "SELECT {}, {rights}, \
             current_setting('fsync'), current_setting('full_page_writes'), \
             (SELECT CASE WHEN bool_and(sync_state = 'async') THEN count(*) ELSE 0 END FROM pg_stat_replication), \
             (SELECT setting FROM pg_settings WHERE name = 'idle_session_timeout'), \
             current_setting('max_connections')::int - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'), \
             (SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid())",
            micros(NOW),
        )
    }

    /// Counts the rows of other clients that begin in the future.
    pub(super) fn ahead_of_time(&self) -> Message {
        let Self {
            own: table, at, by, ..
        } = self;
        let count = format!(
            "SELECT count(*) FROM {table} WHERE {by} NOT LIKE 'rlock %' AND {at}::timestamp > {NOW} + interval '1 second'"
        );
        self.message(false, &[count])
    }
}

/// A lock that is taken again where it is gone.
pub(super) struct Again {
    pub(super) value: String,
    /// The holder's fence.
    pub(super) fence: u64,
    /// The highest fence that may have been given.
    pub(super) newest: u64,
    pub(super) deadline: u64,
}

/// A row of a record, to be written.
pub(super) struct RecordRow {
    pub(super) kind: RecordKind,
    pub(super) fence: u64,
    pub(super) value: String,
}

/// Returns the request for the place `number` in a line: it returns when that is the first.
pub(super) fn stand_in_line(number: i64) -> String {
    // The server notices the end of a client that waits; older ones than 14 know no such setting.
    format!(
        "SELECT set_config('lock_timeout', '0', false), set_config('statement_timeout', '0', false);\n\
         SELECT set_config(name, '1s', false) FROM pg_settings WHERE name = 'client_connection_check_interval';\n\
         SELECT pg_advisory_lock({number})"
    )
}

/// Returns the request for the first place in a line, if there is none in it.
pub(super) fn stand_first(number: i64) -> String {
    format!("SELECT pg_try_advisory_lock({number})")
}

/// Returns the request that leaves a line.
pub(super) fn leave_line(number: i64) -> String {
    format!("SELECT pg_advisory_unlock({number})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::address::Address;

    fn table(url: &str) -> Table {
        let Ok(Address::Sql(address)) = Address::parse(url) else {
            panic!("{url}")
        };
        Table::new(&address, Duration::from_secs(1))
    }

    #[test]
    fn no_text_leaves_its_literal() {
        assert_eq!(quoted(r"it's \ a"), r"E'it''s \\ a'");
        assert_eq!(quoted("a\0b\\'; DROP"), r"E'ab\\''; DROP'");
    }

    #[test]
    fn a_span_is_exact_and_of_a_form_that_old_versions_take() {
        assert_eq!(
            after(Duration::from_micros(7_200_000_001)),
            format!("{NOW} + make_interval(secs => 7200) + make_interval(secs => 0.000001)")
        );
        assert_eq!(
            timestamp(1_795_684_015_578_486),
            "timestamp 'epoch' + make_interval(secs => 1795684015) + make_interval(secs => 0.578486)"
        );
    }

    #[test]
    fn the_time_left_is_told_as_it_is_compared() {
        let message = table("postgresql://a?time_zone=Europe/Berlin").look("job");
        assert!(!message.text.contains("lock_until::timestamp"));
    }

    #[test]
    fn what_may_grant_has_a_deadline() {
        let (table, token) = (table("postgresql://a"), Token::fresh());
        let again = Again {
            value: "v".to_owned(),
            fence: 7,
            newest: 8,
            deadline: 4711,
        };
        let ttl = Duration::from_secs(1);
        for message in [
            table.acquire("job", "v", ttl, 4711),
            table.heal("job", token, ttl, &again),
        ] {
            assert!(message.text.contains("clock_timestamp()) * 1000000 < 4711"));
        }
    }

    #[test]
    fn a_table_has_the_names_of_its_address() {
        let own = table("postgresql://a?table=app.locks&time_zone=Europe/Berlin&columns=a,b,c,d");
        let message = own.acquire("job", "v", Duration::from_secs(1), 1);
        assert!(
            message
                .text
                .starts_with("SELECT set_config('TimeZone', E'Europe/Berlin', true)")
        );
        assert!(message.text.contains("UPDATE app.locks SET c = GREATEST("));
        assert!(message.text.contains("WHERE a = E'job' AND b <= timezone"));
        assert_eq!(message.before, 2);
    }
}
