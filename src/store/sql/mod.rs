//! A lock as a row of a table in a database: ShedLock's table, which its clients use beside rlock
//! (docs/sql.md).
//!
//! 1. The row decides, and nothing else: a lock is free if its end has come by the database's clock.
//! 2. `row` has what rlock writes there, `statements` the requests, and `lock` what their answers
//!    mean. `look` shows locks and takes them away.
//! 3. A `session` is a connection, and `pool` chooses it.
//! 4. `line` keeps the waiters in their order, where the database can.
//! 5. What a database has of its own is its `dialect`, in a folder for each.
//!
//! A database is one node: its failover is its own.

pub mod address;
mod columns;
mod dialect;
mod examine;
mod line;
mod lock;
mod look;
#[cfg(feature = "mysql")]
mod mysql;
mod pool;
#[cfg(feature = "postgres")]
mod postgres;
mod row;
pub mod session;
mod statements;

use std::sync::Arc;
use std::time::Duration;

use self::address::SqlAddress;
pub use self::dialect::Product;
use self::lock::Lock;
use self::pool::Pool;
use self::row::RecordKind;
use self::session::{SqlAccess, dial};
use self::statements::Table;
use super::{
    Answer, Claim, Examination, Fault, Feature, Hint, Keep, Lacking, Listing, Look, Node, Pages,
    Pending, Plan, Queue, Release, ReleaseReply, Renewal, Store, TakeAway, Vote, Wakes,
};
use crate::lock::key::Key;
use crate::lock::lease::Revoked;
use crate::lock::messages::Observation;
use crate::lock::queue::Waiter;
use crate::lock::token::Token;
use crate::store::examine::Rights;
use crate::store::net::dial::HostDial;
use crate::store::net::task::started;

/// The features that a table lacks.
pub const LACKING: Lacking = &[
    (Feature::Shared, ONE_HOLDER),
    (Feature::Slots, ONE_HOLDER),
    (
        Feature::Supersede,
        "is not for databases: their lines only tell who is first",
    ),
    (
        Feature::Copies,
        "is for Redis: replication is the database's own setting, see rlock doctor",
    ),
    (Feature::OtherForms, "is for Redis"),
    (
        Feature::RestartGuard,
        "is for Redis: a database keeps its locks over a restart",
    ),
];

const ONE_HOLDER: &str = "is not for databases: a row of ShedLock's table has one holder";

/// Longest name, in characters: the column of the table has room for as many.
const LONGEST_NAME: usize = 64;

/// The same of a lock with a record, whose row has a longer name.
const LONGEST_WITH_RECORD: usize = LONGEST_NAME - "rlock once ".len();

/// Whether rows of this name are records of locks, as what is in them tells too.
fn is_reserved(text: &str) -> bool {
    RecordKind::ALL
        .iter()
        .any(|kind| text.starts_with(kind.prefix()))
}

/// Checks the name of a lock. `has_record`: its row must have one beside it. Errors are for people.
pub fn check_key(key: &Key, has_record: bool) -> Result<(), String> {
    let name = key.stored();
    let length = name.chars().count();
    if is_reserved(name) {
        return Err("begins as the rows do that record runs".to_owned());
    }
    if name.contains('\0') {
        return Err("has a NUL, which no text in a database has".to_owned());
    }
    if length > LONGEST_NAME {
        return Err(format!(
            "has {length} characters with its prefix; in a database it has at most {LONGEST_NAME}"
        ));
    }
    if has_record && length > LONGEST_WITH_RECORD {
        return Err(format!(
            "has {length} characters with its prefix; with --once it has at most {LONGEST_WITH_RECORD}"
        ));
    }
    Ok(())
}

/// Returns the text that makes the table and gives a user the rights to it.
pub fn rights(address: &SqlAddress) -> Rights {
    address.product.dialect().rights(address)
}

/// A table of locks.
pub struct SqlStore {
    name: String,
    pool: Arc<Pool>,
}

impl SqlStore {
    /// A database that is connected to when it is first asked. `limit` bounds each exchange,
    /// connecting included.
    pub fn new(address: &SqlAddress, access: SqlAccess, limit: Duration) -> Self {
        Self::over(address, access, dial(), limit)
    }

    /// The same, over streams that `dial` opens.
    pub fn over(address: &SqlAddress, access: SqlAccess, dial: HostDial, limit: Duration) -> Self {
        let table = Table::new(address, limit);
        Self {
            name: address.to_string(),
            pool: Arc::new(Pool::new(access, dial, table, limit)),
        }
    }
}

impl Store for SqlStore {
    fn name(&self) -> &str {
        &self.name
    }

    fn open(&self, key: &Key) -> Box<dyn Node> {
        Box::new(SqlNode {
            name: self.name.clone(),
            lock: Lock::new(Arc::clone(&self.pool), key.stored()),
        })
    }

    fn listing(&self) -> Option<&dyn Listing> {
        Some(self)
    }

    fn examine(&self, plan: &Plan) -> Pending<Result<Examination, Fault>> {
        let (pool, plan) = (Arc::clone(&self.pool), plan.clone());
        Box::pin(async move { examine::examination(&pool, &plan).await })
    }
}

impl Listing for SqlStore {
    fn pages(&self, prefix: &str) -> Pages {
        look::pages(Arc::clone(&self.pool), prefix)
    }
}

/// A lock in a table.
struct SqlNode {
    name: String,
    lock: Arc<Lock>,
}

impl Node for SqlNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn acquire(&self, claim: &Claim) -> Pending<Answer> {
        let (lock, claim) = (Arc::clone(&self.lock), claim.clone());
        let attempt = lock.begins(claim.token);
        started(async move { lock.acquire(claim, attempt).await }, |fault| {
            Vote::Failed(fault).into()
        })
    }

    fn keep(&self, keep: &Keep) -> Pending<Renewal> {
        let (lock, keep) = (Arc::clone(&self.lock), keep.clone());
        let attempt = keep.heal.as_ref().map(|_| lock.begins(keep.token));
        started(
            async move { lock.keep(keep, attempt).await },
            Renewal::Failed,
        )
    }

    fn look(&self, _: Look) -> Pending<Result<Observation, Fault>> {
        let lock = Arc::clone(&self.lock);
        started(async move { lock.look().await }, Err)
    }

    fn take_away(&self, how: TakeAway) -> Pending<Result<Option<Revoked>, Fault>> {
        let lock = Arc::clone(&self.lock);
        started(async move { lock.take_away(&how).await }, Err)
    }

    fn release(&self, release: &Release) -> Pending<ReleaseReply> {
        let (lock, release, unwritten) = (
            Arc::clone(&self.lock),
            release.clone(),
            self.lock.writes.begin(),
        );
        let behind = lock.gives_up(release.token);
        started(
            async move { lock.release(release, behind, unwritten).await },
            ReleaseReply::Failed,
        )
    }

    fn next(&self) -> Pending<Hint> {
        self.lock.hints.next()
    }

    fn queue(&self) -> Option<&dyn Queue> {
        Some(self)
    }

    fn settled(&self, limit: Duration) -> Pending<bool> {
        // A late request grants nothing, so that the release behind it is needed no more.
        self.lock
            .writes
            .written(limit.max(self.lock.may_grant_for()))
    }
}

impl Queue for SqlNode {
    fn leave(&self, _: &Waiter) -> Pending<()> {
        if !self.lock.state().holds {
            self.lock.leave_line();
        }
        super::ready(())
    }

    fn listen(&self, token: Token) {
        self.lock.watch(token);
    }

    fn wakes(&self) -> Wakes {
        if self.lock.is_watched() || self.lock.state().line.wakes() {
            Wakes::Yes
        } else {
            Wakes::No
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_room_for_itself_and_for_its_record() {
        let checked = |length: usize, has_record| {
            let key = Key::new("p", &"ü".repeat(length - 1)).unwrap();
            check_key(&key, has_record).err()
        };
        assert_eq!((checked(64, false), checked(53, true)), (None, None));
        assert_eq!(
            checked(65, false).as_deref(),
            Some("has 65 characters with its prefix; in a database it has at most 64")
        );
        assert_eq!(
            checked(54, true).as_deref(),
            Some("has 54 characters with its prefix; with --once it has at most 53")
        );
        let reserved = Key::new("", "rlock once job").unwrap();
        assert!(check_key(&reserved, false).is_err());
    }
}
