//! The differences between the databases: the form of their addresses, how a session is begun, and the
//! text of statements.
//!
//! 1. A time is one without a zone, and in UTC, as ShedLock's `usingDbTime()` writes it.
//! 2. [`Dialect::now`] is the time of a statement's start, or of its message's. [`Dialect::begun`] is
//!    that of its message's.

use std::pin::Pin;
use std::time::Duration;

use tokio::sync::watch;

use super::address::{Form, SqlAddress};
use super::examine::Facts;
#[cfg(feature = "mysql")]
use super::mysql;
#[cfg(feature = "postgres")]
use super::postgres;
use super::session::{Begun, Greeting, NotBegun, Reply, SqlAccess};
use super::statements::{RecordRow, Table};
use crate::secret::Secret;
use crate::store::examine::{Finding, Plan, Rights};
use crate::store::net::dial::Stream;
use crate::store::net::hosts::Endpoint;

/// A kind of database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Product {
    /// MySQL or MariaDB.
    #[cfg(feature = "mysql")]
    MySql,
    /// PostgreSQL.
    #[cfg(feature = "postgres")]
    Postgres,
}

impl Product {
    /// Returns what it has of its own.
    pub(in crate::store) fn dialect(self) -> &'static dyn Dialect {
        match self {
            #[cfg(feature = "mysql")]
            Self::MySql => &mysql::MySql,
            #[cfg(feature = "postgres")]
            Self::Postgres => &postgres::Postgres,
        }
    }
}

/// Work that goes on in a task.
pub(in crate::store) type Working<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// All that a kind of database has of its own.
pub(in crate::store) trait Dialect: Sync {
    /// Returns the database's name, for people.
    fn name(&self) -> &'static str;

    /// Returns the form of its addresses.
    fn form(&self) -> &'static Form;

    /// Returns the text that makes the table and gives a user the rights to it.
    fn rights(&self, address: &SqlAddress) -> Rights;

    /// Logs in over `stream` to `host`. `broken` hears when the session has come to an end that no
    /// caller wanted.
    fn begin<'a>(
        &self,
        stream: Box<dyn Stream>,
        host: &'a Endpoint,
        password: Option<&'a Secret>,
        access: &'a SqlAccess,
        broken: &'a watch::Sender<()>,
    ) -> Working<'a, Result<Begun, NotBegun>>;

    /// Whether a server that hung runs all that was written, though its client is gone. Otherwise it may
    /// run a request for a lock, and not the release behind it, so that rlock must not exit before the
    /// deadline of that.
    fn runs_all_that_is_written(&self) -> bool;

    /// Returns the first request of a session.
    fn greeting(&self, table: &Table) -> String;

    /// Reads the answer to it. Fails if the server takes no writes, or the table would lie.
    fn greeted(&self, table: &Table, reply: &Reply) -> Result<Greeting, NotBegun>;

    /// Returns the statements that stand before those of a request.
    fn before(&self, table: &Table, is_write: bool) -> Vec<String>;

    /// Returns the time.
    fn now(&self) -> &'static str;

    /// Returns the time at which a message that writes began. By this time a lock that it took or
    /// extended has all the time left that it was given, however long its commit took.
    fn begun(&self) -> &'static str {
        self.now()
    }

    /// Returns the time `span` after [`Self::now`].
    fn after(&self, span: Duration) -> String;

    /// Returns the time `span` after the moment at which a statement changes a row: it may have waited
    /// for that since [`Self::now`].
    fn after_wait(&self, span: Duration) -> String;

    /// Returns the time 1 ms after `time`.
    fn a_little_after(&self, time: &str) -> String;

    /// Returns the timestamp of a unix time in µs.
    fn timestamp(&self, micros: u64) -> String;

    /// Returns the unix time of a timestamp, in µs.
    fn micros(&self, time: &str) -> String;

    /// Returns the column of a time, as one without a zone.
    fn zoneless(&self, column: &str) -> String {
        column.to_owned()
    }

    /// Returns the unix time of a column in µs, whatever is in it.
    fn begin_shown(&self, column: &str) -> String;

    /// Returns the µs from `now` until the time of a column, whatever is in it.
    fn left_shown(&self, column: &str, now: &str) -> String;

    /// Returns the condition that it is not `deadline` yet, a unix time in µs. Unlike [`Self::now`]
    /// this is the time at which the condition is looked at.
    fn is_before(&self, deadline: u64) -> String;

    /// Returns `text` as a literal that no setting of the server changes.
    fn quoted(&self, text: &str) -> String;

    /// Returns `prefix` and what `column` has from its character number `from` on.
    fn spliced(&self, prefix: &str, column: &str, from: usize) -> String;

    /// Returns the expression whose comparisons are those of its bytes.
    fn bytes(&self, expression: &str) -> String;

    /// Returns the end of an insertion that changes no row that is there.
    fn unless_there(&self, table: &Table) -> String;

    /// Returns the statement that writes a record over one of a lower fence, if `condition` holds of
    /// some row of the table.
    fn recorded(&self, table: &Table, name: &str, record: &RecordRow, condition: &str) -> String;

    /// Returns the request for the place `number` in a line: it returns when that is the first. The
    /// session of a client that is cut off for `gone` ends, where its place is the first.
    fn stand_in_line(&self, number: i64, gone: Duration) -> String;

    /// Returns the request for the first place in a line, if there is none in it. The session ends as
    /// above.
    fn stand_first(&self, number: i64, gone: Duration) -> String;

    /// Returns the request that leaves a line.
    fn leave_line(&self, number: i64) -> String;

    /// Returns the request for the [`Facts`]: statements with rows of a name and a value.
    fn facts(&self, table: &Table) -> String;

    /// Returns what `doctor` finds in them.
    fn findings(&self, facts: &Facts, plan: &Plan) -> Vec<Finding>;
}
