//! All the locks that a server knows of, found without stopping it: SCAN, never KEYS.
//!
//! Every lock that was used within a week has a fence counter, whose name tells the lock's. The server sorts out what is
//! none, so that a million keys of others cost it some time and us none.

use std::time::Duration;

use redis::Value;

use super::client::Client;
use super::connection::Access;
use crate::clock;
use crate::lock::instant::Instant;
use crate::node::{Fault, FaultKind};
use crate::text::duration;

/// Matches the names of all fence counters.
const COUNTERS: &str = "rlock:fence:{*";

/// So many keys are looked at in one request: some tenths of a millisecond of the server's time.
const STEP: usize = 1000;

/// One step's keys, if all of them should be locks with the longest names; SCAN may return some more than it was asked.
const REPLY_LIMIT: usize = STEP * 2400;

/// Number of steps that a walk may take beyond what the number of keys explains: a table that was large stays so for a while.
const SPARE_STEPS: u64 = 1000;

/// Longest walk, whatever the server says of its size.
const LONGEST: Duration = Duration::from_secs(300);

/// A walk through one server's keys.
pub struct Scan {
    client: Client,
    /// Where it goes on; `None` at its end.
    cursor: Option<String>,
    /// Number of keys, if the server says so.
    size: Option<u64>,
    /// Number of steps that are left.
    steps: u64,
    ends: Instant,
}

impl Scan {
    /// Connects. `limit` bounds this, and each step.
    pub async fn begin(access: &Access, limit: Duration) -> Result<Self, Fault> {
        let ends = clock::now() + LONGEST;
        let client = Client::open(access, limit, REPLY_LIMIT).await?;
        let size = match client.say(&["DBSIZE"]).await {
            Ok(Value::Int(size)) => u64::try_from(size).ok(),
            // A server that does not answer this does not answer SCAN either.
            Err(fault) if fault.kind == FaultKind::Unknown => return Err(fault),
            Ok(_) | Err(_) => None,
        };
        Ok(Self { client, cursor: Some("0".to_owned()), size, steps: most_steps(size), ends })
    }

    /// How many keys there are in all, if the server says so.
    pub fn size(&self) -> Option<u64> {
        self.size
    }

    /// The names of the counters in the next step; `None` at the end. Some may come twice.
    pub async fn step(&mut self) -> Result<Option<Vec<String>>, Fault> {
        let Some(cursor) = self.cursor.take() else { return Ok(None) };
        let endless = |why: String| Fault::new(FaultKind::Unknown, why);
        self.steps = self.steps.checked_sub(1).ok_or_else(|| endless("SCAN comes to no end".to_owned()))?;
        if clock::now() >= self.ends {
            let why = format!("SCAN is not at its end after {}; name the locks", duration::show(LONGEST));
            return Err(endless(why));
        }
        let mut command = redis::cmd("SCAN");
        command.arg(cursor).arg("MATCH").arg(COUNTERS).arg("COUNT").arg(STEP);
        let (cursor, names) = page(self.client.ask(&command).await?)
            .ok_or_else(|| Fault::new(FaultKind::Unknown, "an answer to SCAN that makes no sense"))?;
        self.cursor = (cursor != "0").then_some(cursor);
        Ok(Some(names))
    }

    /// So many keys a step looks at.
    pub fn stride(&self) -> u64 {
        STEP as u64
    }
}

/// Number of steps after which a walk through so many keys is one without end. A table has at most ten times as many places as
/// keys, but for a while after many were deleted (dict.c, `HASHTABLE_MIN_FILL`); without a size only the time limits it.
fn most_steps(size: Option<u64>) -> u64 {
    size.map_or(u64::MAX, |size| (size / (STEP as u64 / 10)).saturating_add(SPARE_STEPS))
}

/// The next cursor, and the names that are text: a lock's is.
pub fn page(value: Value) -> Option<(String, Vec<String>)> {
    let Value::Array(parts) = value else { return None };
    let [Value::BulkString(cursor), Value::Array(names)] = <[Value; 2]>::try_from(parts).ok()? else { return None };
    let cursor = String::from_utf8(cursor).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
    let name = |value| if let Value::BulkString(name) = value { String::from_utf8(name).ok() } else { None };
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
