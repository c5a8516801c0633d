//! Finds all locks of a server without blocking it: SCAN, never KEYS.
//!
//! Every lock that was used within a week has a fence counter, whose name contains the lock's. The
//! server filters by that name, so that a million keys of other clients cost it some time and us
//! none.

use std::time::Duration;

use futures_util::stream;
use redis::Value;

use super::connect::{Client, Connector};
use crate::store::redis::locator::Locator;
use crate::store::redis::names::{self, Derived};
use crate::store::{Fault, FaultKind, Page, Pages};

/// Matches the names of all fence counters.
const COUNTERS: &str = "rlock:fence:{*";

/// Number of keys that the server looks at in one request: some tenths of a millisecond of its
/// time.
const STEP: usize = 1000;

/// Bytes of one step's keys if all are counters of locks with the longest names. SCAN may return
/// some more than asked.
const REPLY_LIMIT: usize = STEP * 2400;

/// Number of steps beyond those that the number of keys explains: a table that was large stays
/// large for a while.
const SPARE_STEPS: u64 = 1000;

/// Walks through the keys of the servers of `locator` for the locks under `prefix`. `limit` bounds
/// each exchange, connecting included.
pub(super) fn pages(locator: Locator, limit: Duration, prefix: String) -> Pages {
    Box::pin(stream::try_unfold(None, move |scans: Option<Scans>| {
        let (locator, prefix) = (locator.clone(), prefix.clone());
        async move {
            let mut scans = match scans {
                Some(scans) => scans,
                None => Scans::begin(&locator, limit).await?,
            };
            let Some(names) = scans.step().await? else {
                return Ok(None);
            };
            let keys = names
                .iter()
                .filter_map(|name| names::lock_of(Derived::Fence, name, &prefix))
                .collect();
            Ok(Some((
                Page {
                    keys,
                    visited: STEP as u64,
                    total: scans.size,
                    ..Page::default()
                },
                Some(scans),
            )))
        }
    }))
}

/// Walks through the keys of all servers of a locator, one after the other.
struct Scans {
    left: Vec<Scan>,
    /// Number of keys, if each server reports it.
    size: Option<u64>,
}

impl Scans {
    async fn begin(locator: &Locator, limit: Duration) -> Result<Self, Fault> {
        let mut left = Vec::new();
        for site in locator.all().await? {
            left.push(
                Scan::begin(&site.connector, limit)
                    .await
                    .map_err(|fault| site.named(fault))?,
            );
        }
        let size = left
            .iter()
            .try_fold(0u64, |sum, scan| sum.checked_add(scan.size?));
        Ok(Self { left, size })
    }

    /// Returns the names of the counters in the next step; `None` at the end of the last walk.
    async fn step(&mut self) -> Result<Option<Vec<String>>, Fault> {
        while let Some(scan) = self.left.last_mut() {
            if let Some(names) = scan.step().await? {
                return Ok(Some(names));
            }
            self.left.pop();
        }
        Ok(None)
    }
}

/// A walk through one server's keys.
struct Scan {
    client: Client,
    /// Cursor of the next step; `None` at the end.
    cursor: Option<String>,
    /// Number of keys, if the server reports it.
    size: Option<u64>,
    /// Number of steps that are left.
    steps: u64,
}

impl Scan {
    /// Connects. `limit` bounds this, and each step.
    async fn begin(connector: &Connector, limit: Duration) -> Result<Self, Fault> {
        let client = Client::open(connector, limit, REPLY_LIMIT).await?;
        let size = match client.command(&["DBSIZE"]).await {
            Ok(Value::Int(size)) => u64::try_from(size).ok(),
            // A server that does not answer this does not answer SCAN either.
            Err(fault) if fault.kind == FaultKind::Unknown => return Err(fault),
            Ok(_) | Err(_) => None,
        };
        Ok(Self {
            client,
            cursor: Some("0".to_owned()),
            size,
            steps: most_steps(size),
        })
    }

    /// Returns the names of the counters in the next step; `None` at the end. Some may come twice.
    async fn step(&mut self) -> Result<Option<Vec<String>>, Fault> {
        let Some(cursor) = self.cursor.take() else {
            return Ok(None);
        };
        let endless = || Fault::new(FaultKind::Unknown, "SCAN comes to no end; name the locks");
        self.steps = self.steps.checked_sub(1).ok_or_else(endless)?;
        let mut command = redis::cmd("SCAN");
        command
            .arg(cursor)
            .arg("MATCH")
            .arg(COUNTERS)
            .arg("COUNT")
            .arg(STEP);
        let (cursor, names) = page(self.client.ask(&command).await?)
            .ok_or_else(|| Fault::new(FaultKind::Unknown, "unexpected reply to SCAN"))?;
        self.cursor = (cursor != "0").then_some(cursor);
        Ok(Some(names))
    }
}

/// Number of steps after which a walk through `size` keys is taken for endless. A table has at most
/// ten times as many slots as keys, except for a while after many were deleted (dict.c,
/// `HASHTABLE_MIN_FILL`). Without a size only the time limits it.
fn most_steps(size: Option<u64>) -> u64 {
    size.map_or(u64::MAX, |size| {
        (size / (STEP as u64 / 10)).saturating_add(SPARE_STEPS)
    })
}

/// Reads a reply to SCAN: the next cursor, and the names that are text, as those of locks are.
pub fn page(value: Value) -> Option<(String, Vec<String>)> {
    let Value::Array(parts) = value else {
        return None;
    };
    let [Value::BulkString(cursor), Value::Array(names)] = <[Value; 2]>::try_from(parts).ok()?
    else {
        return None;
    };
    let cursor = String::from_utf8(cursor)
        .ok()
        .filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
    let name = |value| {
        if let Value::BulkString(name) = value {
            String::from_utf8(name).ok()
        } else {
            None
        }
    };
    Some((cursor, names.into_iter().filter_map(name).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_has_ten_steps_for_each_that_the_size_explains_and_some_to_spare() {
        assert_eq!(most_steps(Some(0)), SPARE_STEPS);
        assert_eq!(most_steps(Some(1_000_000)), 10_000 + SPARE_STEPS);
        assert!(most_steps(Some(u64::MAX)) < u64::MAX);
        assert_eq!(most_steps(None), u64::MAX);
    }
}
