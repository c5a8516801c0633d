//! The text of each request: one message of a few statements. What differs between databases is the
//! [`Dialect`]'s.
//!
//! 1. The time is the database's.
//! 2. A statement that may give us the lock has a deadline in the database's clock. One that runs
//!    later, because the server hung or the network did, grants nothing.
//! 3. No row is deleted, and a new row grants nothing.
//! 4. Each statement may be the last one that runs. So a record is written before the lock is given
//!    back. A database may run them as one transaction, but need not.
//! 5. Each statement that changes a row sets its `lock_until`, which a server may set otherwise: that
//!    of a first `TIMESTAMP` in MySQL (`explicit_defaults_for_timestamp`).

use std::time::Duration;

use super::address::SqlAddress;
use super::dialect::Dialect;
use super::row::{BEFORE_TOKEN, RecordKind, State};
use crate::lock::token::Token;

/// A `locked_at` from which on no fence can rise: that of the year 2112 is near 2^52. A row that
/// begins later was written by hand.
const LAST_YEAR: &str = "'2112-01-01'";

/// The end of a lock that is taken away. A column with a time zone stores a time of day that spring
/// leaves out as a later one, so that the present is no end.
const PAST: &str = "'2000-01-01'";

/// Number of statements of a release that stand before the one that shows the row, and give the lock
/// back.
pub(super) const GIVING_BACK: usize = 3;

/// A message.
pub(super) struct Message {
    pub(super) text: String,
    /// Number of statements before the ones that the request consists of.
    pub(super) before: usize,
    /// Number of the statement that shows the row, of the request itself.
    pub(super) shows: usize,
}

/// The table, as statements name it.
#[derive(Clone)]
pub(in crate::store) struct Table {
    pub(super) dialect: &'static dyn Dialect,
    /// Its own name.
    own: String,
    /// Name, end, begin, holder.
    columns: [String; 4],
    /// The time zone of other clients.
    zone: Option<String>,
    limit: Duration,
}

impl Table {
    /// The table at `address`; each exchange takes `limit` at most.
    pub(super) fn new(address: &SqlAddress, limit: Duration) -> Self {
        Self {
            dialect: address.product.dialect(),
            own: address.table.clone(),
            columns: address.columns.clone(),
            zone: address.time_zone.clone(),
            limit,
        }
    }

    /// Returns the table's name.
    pub(super) fn table_name(&self) -> &str {
        &self.own
    }

    /// Returns the time zone of other clients, if the address names it.
    pub(super) fn zone(&self) -> Option<&str> {
        self.zone.as_deref()
    }

    /// Returns the limit of an exchange.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// Returns its columns: name, end, begin, holder.
    pub(super) fn columns(&self) -> [&str; 4] {
        self.columns.each_ref().map(String::as_str)
    }

    /// Makes a message of statements, of which the number `shows` shows the row.
    fn message(&self, is_write: bool, statements: &[String], shows: usize) -> Message {
        let mut all = self.dialect.before(self, is_write);
        let before = all.len();
        all.extend_from_slice(statements);
        let text = all.join(";\n");
        Message {
            text,
            before,
            shows,
        }
    }

    /// Shows the row of the lock, behind statements that write it.
    fn shown_behind(&self, key: &str) -> String {
        self.shown(&[key], self.dialect.begun())
    }

    /// Shows the rows `names`: name, holder, begin, time left, now.
    fn shown(&self, names: &[&str], now: &str) -> String {
        let (own, [_, until, at, by], dialect) = (&self.own, self.columns(), self.dialect);
        let begin = dialect.begin_shown(at);
        let left = dialect.left_shown(until, now);
        let now = dialect.micros(now);
        let one = |name: &&str| {
            let (quoted, is) = (dialect.quoted(name), self.is(name));
            format!("SELECT {quoted}, {by}, {begin}, {left}, {now} FROM {own} WHERE {is}")
        };
        let each: Vec<String> = names.iter().map(one).collect();
        each.join(" UNION ALL ")
    }

    fn is(&self, key: &str) -> String {
        format!("{} = {}", self.columns[0], self.dialect.quoted(key))
    }

    /// Whether the row is in one of `states` as the token's.
    fn owned(&self, states: &[State], token: Token) -> String {
        let [_, _, _, by] = self.columns();
        let is = |state: &State| format!("{by} LIKE '{}{token} %'", state.prefix());
        let any: Vec<String> = states.iter().map(is).collect();
        format!("({})", any.join(" OR "))
    }

    fn is_free(&self) -> String {
        format!("{} <= {}", self.columns[1], self.dialect.now())
    }

    fn is_taken(&self) -> String {
        format!("{} > {}", self.columns[1], self.dialect.now())
    }

    /// The same, if its end has not come.
    fn held(&self, states: &[State], token: Token) -> String {
        format!("{} AND {}", self.owned(states, token), self.is_taken())
    }

    /// Returns the statement that sets columns of the row, if `condition` holds.
    fn update(&self, key: &str, sets: &str, condition: &str) -> String {
        format!(
            "UPDATE {} SET {sets} WHERE {} AND {condition}",
            self.own,
            self.is(key)
        )
    }

    /// Returns the statement that puts the row into `state` until `end`, if `condition` holds.
    fn changed(&self, key: &str, state: State, end: &str, also: &str, condition: &str) -> String {
        let [_, until, _, by] = self.columns();
        let changed = self.dialect.spliced(state.prefix(), by, BEFORE_TOKEN + 1);
        self.update(
            key,
            &format!("{by} = {changed}, {until} = {end}{also}"),
            condition,
        )
    }

    /// Takes the lock if it is free, its row is no record, and it is not `deadline` yet.
    pub(super) fn acquire(&self, key: &str, value: &str, ttl: Duration, deadline: u64) -> Message {
        let ([_, until, at, by], dialect) = (self.columns(), self.dialect);
        let rising = dialect.a_little_after(&dialect.zoneless(at));
        let sets = format!(
            "{at} = GREATEST({}, {rising}), {until} = {}, {by} = {}",
            dialect.now(),
            dialect.after(ttl),
            dialect.quoted(value),
        );
        let [last, once] = RecordKind::ALL.map(|kind| format!("{by} LIKE '{}%'", kind.prefix()));
        let condition = format!(
            "{} AND {at} < {LAST_YEAR} AND NOT ({last} OR {once}) AND {}",
            self.is_free(),
            dialect.is_before(deadline),
        );
        let take = self.update(key, &sets, &condition);
        self.message(true, &[take, self.shown_behind(key)], 1)
    }

    /// Adds the row of a lock, which is free.
    pub(super) fn create(&self, key: &str) -> Message {
        let add = format!(
            "INSERT INTO {} ({}) VALUES ({}, '2000-01-01', '2000-01-01', 'rlock free -') {}",
            self.own,
            self.columns().join(", "),
            self.dialect.quoted(key),
            self.dialect.unless_there(self),
        );
        self.message(true, &[add], 0)
    }

    /// Extends the lock if it is the token's.
    pub(super) fn renew(&self, key: &str, token: Token, ttl: Duration) -> Message {
        let renew = self.extended(key, &[State::Held], token, ttl);
        self.message(true, &[renew, self.shown_behind(key)], 1)
    }

    fn extended(&self, key: &str, states: &[State], token: Token, ttl: Duration) -> String {
        // A statement that has waited for the row may run behind a later renewal, and must not make
        // the lock shorter.
        let sets = format!("{} = {}", self.columns[1], self.dialect.after_wait(ttl));
        self.update(key, &sets, &self.owned(states, token))
    }

    /// The same, of a tombstone too; and takes the lock again if it is free, no later grant than
    /// `newest` was given, and it is not `deadline` yet. The first statement extends, the second
    /// takes.
    pub(super) fn heal(&self, key: &str, token: Token, ttl: Duration, again: &Again) -> Message {
        let ([_, until, at, by], dialect) = (self.columns(), self.dialect);
        let renew = self.extended(key, &[State::Held, State::Dead], token, ttl);
        let begin = dialect.zoneless(at);
        let sets = format!(
            "{until} = {}, {by} = {}, {at} = GREATEST({begin}, {})",
            dialect.after(ttl),
            dialect.quoted(&again.value),
            dialect.timestamp(again.fence),
        );
        let condition = format!(
            "{} AND {} <= {} AND {}",
            self.is_free(),
            dialect.micros(&begin),
            again.newest,
            dialect.is_before(again.deadline),
        );
        let take = self.update(key, &sets, &condition);
        self.message(true, &[renew, take, self.shown_behind(key)], 2)
    }

    /// Gives the lock back if it is the token's, and writes the records before. One statement parks
    /// it, if it is to stay; the next frees it. The last one ends a lock that is free [later](PAST) by
    /// its column.
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
        let park = match parked {
            Some(_) => self.held(states(parks), token),
            None => "false".to_owned(),
        };
        let park = self.changed(key, State::Parked, &self.dialect.after(left), "", &park);
        let ours = self.held(states(true), token);
        let free = self.changed(key, State::Free, self.dialect.begun(), "", &ours);
        let written = |record: &RecordRow| self.recorded(key, record, &ours);
        let is_late = self.held(&[State::Free], token);
        let end = format!("{} = {PAST}", self.columns[1]);
        let mut statements: Vec<String> = records.iter().map(written).collect();
        statements.extend([
            park,
            free,
            self.update(key, &end, &is_late),
            self.shown_behind(key),
        ]);
        let shows = statements.len() - 1;
        self.message(true, &statements, shows)
    }

    /// Writes the row of a record over one of a lower fence, if `condition` holds of the lock's row.
    fn recorded(&self, key: &str, record: &RecordRow, condition: &str) -> String {
        let name = self
            .dialect
            .quoted(&format!("{}{key}", record.kind.prefix()));
        let condition = format!("{} AND {condition}", self.is(key));
        self.dialect.recorded(self, &name, record, &condition)
    }

    /// Puts the tombstone `value` in the place of the token's lock.
    pub(super) fn entomb(&self, key: &str, token: Token, value: &str) -> Message {
        let [_, until, _, by] = self.columns();
        let sets = format!("{by} = {}, {until} = {until}", self.dialect.quoted(value));
        let ours = self.owned(&[State::Held], token);
        let entomb = self.update(key, &sets, &format!("{ours} AND {}", self.is_taken()));
        self.message(true, &[entomb, self.shown_behind(key)], 1)
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
        let ([_, _, at, _], dialect) = (self.columns(), self.dialect);
        let passed = format!(
            ", {at} = GREATEST({}, {})",
            dialect.zoneless(at),
            dialect.a_little_after(&dialect.timestamp(fence)),
        );
        let ours = self.owned(&[State::Held, State::Dead, State::Parked], token);
        let ours = format!("{ours} AND {}", self.is_taken());
        let delete = self.changed(key, State::Gone, PAST, &passed, &ours);
        let mut statements = vec![delete, self.shown_behind(key)];
        let gone = self.owned(&[State::Gone], token);
        statements.extend(record.map(|record| self.recorded(key, record, &gone)));
        self.message(true, &statements, 1)
    }

    /// Ends the lock of another client, if its row still says what was `seen`.
    pub(super) fn delete_foreign(&self, key: &str, seen: &str) -> Message {
        let [_, until, _, by] = self.columns();
        let sets = format!("{until} = {PAST}");
        let condition = format!(
            "{by} = {} AND {}",
            self.dialect.quoted(seen),
            self.is_taken()
        );
        let delete = self.update(key, &sets, &condition);
        self.message(true, &[delete, self.shown_behind(key)], 1)
    }

    /// Forgets the success of `token`.
    pub(super) fn forget(&self, key: &str, token: Token) -> Message {
        let [_, until, _, by] = self.columns();
        let once = RecordKind::Once.prefix();
        let sets = format!("{by} = '{once}-', {until} = {until}");
        let condition = format!("{by} LIKE '{once}{token} %'");
        let forget = self.update(&format!("{once}{key}"), &sets, &condition);
        self.message(true, &[forget, self.shown_behind(key)], 1)
    }

    /// Shows the lock.
    pub(super) fn peek(&self, key: &str) -> Message {
        self.message(false, &[self.shown(&[key], self.dialect.now())], 0)
    }

    /// Shows the lock and its record.
    pub(super) fn look(&self, key: &str) -> Message {
        let records = RecordKind::ALL.map(|kind| format!("{}{key}", kind.prefix()));
        let shown = self.shown(&[key, &records[0], &records[1]], self.dialect.now());
        self.message(false, &[shown], 0)
    }

    /// Shows the names of `number` rows that begin with `prefix`, from behind `last` on.
    pub(super) fn list(&self, prefix: &str, last: Option<&str>, number: usize) -> Message {
        let (own, [name, ..], dialect) = (&self.own, self.columns(), self.dialect);
        let length = prefix.chars().count();
        let begin = dialect.bytes(&format!("left({name}, {length})"));
        let bytes = dialect.bytes(name);
        let behind = last.map_or_else(String::new, |last| {
            format!(" AND {bytes} > {}", dialect.quoted(last))
        });
        let text = format!(
            "SELECT {name} FROM {own} WHERE {begin} = {}{behind} ORDER BY {bytes} LIMIT {number}",
            dialect.quoted(prefix),
        );
        self.message(false, &[text], 0)
    }

    /// Returns the statement that needs the `right` to the table, and does nothing.
    pub(super) fn trial(&self, right: Right) -> String {
        let (own, columns, [_, until, _, by]) =
            (&self.own, self.columns().join(", "), self.columns());
        match right {
            Right::Select => format!("SELECT {columns} FROM {own} WHERE false"),
            Right::Update => {
                format!("UPDATE {own} SET {by} = {by}, {until} = {until} WHERE false")
            }
            Right::Insert => {
                let time = self.dialect.now();
                format!(
                    "INSERT INTO {own} ({columns}) SELECT '', {time}, {time}, '' FROM (SELECT 1) AS one WHERE false"
                )
            }
        }
    }

    /// Counts the rows of other clients that begin in the future.
    pub(super) fn ahead_of_time(&self) -> Message {
        let ([_, _, at, by], dialect) = (self.columns(), self.dialect);
        let count = format!(
            "SELECT count(*) FROM {} WHERE {by} NOT LIKE 'rlock %' AND {} > {}",
            self.own,
            dialect.zoneless(at),
            dialect.after(Duration::from_secs(1)),
        );
        self.message(false, &[count], 0)
    }
}

/// A right to the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Right {
    /// To look.
    Select,
    /// To take, to renew and to give back.
    Update,
    /// To add the row of a name.
    Insert,
}

impl Right {
    /// Returns its name in SQL.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Select => "SELECT",
            Self::Update => "UPDATE",
            Self::Insert => "INSERT",
        }
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
pub(in crate::store) struct RecordRow {
    pub(super) kind: RecordKind,
    pub(super) fence: u64,
    pub(super) value: String,
}

#[cfg(all(test, feature = "postgres"))]
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

    /// Returns the parts that `text` lacks.
    fn lacks<'a>(message: &Message, parts: &[&'a str]) -> Vec<&'a str> {
        let lacks = |part: &&&str| !message.text.contains(**part);
        parts.iter().filter(lacks).copied().collect()
    }

    #[test]
    fn each_statement_changes_a_row_only_as_it_must_be() {
        let (table, token) = (table("postgresql://a"), Token::fresh());
        let (ttl, now) = (Duration::from_secs(1), table.dialect.now());
        let again = Again {
            value: "v".to_owned(),
            fence: 7,
            newest: 8,
            deadline: 4711,
        };
        let record = RecordRow {
            kind: RecordKind::Last,
            fence: 7,
            value: "r".to_owned(),
        };
        let ours = format!("locked_by LIKE 'rlock held {token} %'");
        let (free, held) = (
            format!("lock_until <= {now} AND "),
            format!("lock_until > {now}"),
        );
        let rises = format!("GREATEST({now}, locked_at::timestamp + interval '1 millisecond')");
        let passes = table.dialect.a_little_after(&table.dialect.timestamp(7));
        let newest = format!(
            "{free}{} <= 8 AND ",
            table.dialect.micros("locked_at::timestamp")
        );
        let left = Duration::from_secs(3);
        let parked = format!("lock_until = {}", table.dialect.after(left));
        let written =
            format!("WHERE EXISTS (SELECT 1 FROM shedlock WHERE name = E'job' AND ({ours}");
        for (message, parts) in [
            (table.acquire("job", "v", ttl, 1), &[&*free, &rises][..]),
            (
                table.create("job"),
                &["'2000-01-01', '2000-01-01', 'rlock free -'"],
            ),
            (
                table.renew("job", token, ttl),
                &[&ours, "lock_until = timezone('utc', clock_timestamp()) + "],
            ),
            (table.heal("job", token, ttl, &again), &[&ours, &newest]),
            (
                table.release("job", token, None, &[record]),
                &[&ours, &written],
            ),
            (
                table.release("job", token, Some((left, true)), &[]),
                &[&*parked],
            ),
            (table.entomb("job", token, "v"), &[&ours, &held]),
            (
                table.delete("job", token, 7, None),
                &[&ours, &held, &passes],
            ),
            (
                table.delete_foreign("job", "host1"),
                &["AND locked_by = E'host1' AND ", &held],
            ),
        ] {
            // A crash of the server forgets nothing, whatever its user has set.
            let on_disk = "('synchronous_commit', CASE current_setting('synchronous_commit') \
                 WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)";
            assert!(message.text.contains(on_disk), "{}", message.text);
            let lacking = lacks(&message, parts);
            assert!(lacking.is_empty(), "{lacking:?}: {}", message.text);
        }
    }

    #[test]
    fn each_update_says_when_the_lock_ends() {
        let (table, token) = (table("postgresql://a"), Token::fresh());
        let ttl = Duration::from_secs(1);
        for message in [
            table.renew("job", token, ttl),
            table.release("job", token, Some((ttl, true)), &[]),
            table.entomb("job", token, "v"),
            table.delete("job", token, 7, None),
            table.delete_foreign("job", "host1"),
            table.forget("job", token),
        ] {
            let updates = message
                .text
                .lines()
                .filter(|line| line.starts_with("UPDATE"));
            for update in updates {
                assert!(update.contains("lock_until = "), "{update}");
            }
        }
    }
}
