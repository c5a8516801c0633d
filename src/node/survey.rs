//! All the locks that a server knows of, found without stopping it: SCAN, never KEYS.
//!
//! Every lock that was used within a week has a fence counter, whose name tells the lock's. The server sorts out what is
//! none, so that a million keys of others cost it some time and us none.

use std::time::Duration;

use redis::Value;

use super::console::Console;
use super::link::Access;
use super::{Fault, FaultKind};

/// Matches the names of all fence counters.
const COUNTERS: &str = "rlock:fence:{*";

/// So many keys are looked at in one request: some tenths of a millisecond of the server's time.
const STEP: usize = 1000;

/// One step's keys, if all of them should be locks with the longest names; SCAN may return some more than it was asked.
const REPLY_LIMIT: usize = STEP * 2400;

/// A walk through one server's keys.
pub struct Survey {
    console: Console,
    /// Where it goes on; `None` at its end.
    cursor: Option<String>,
}

impl Survey {
    /// Connects. `limit` bounds this, and each step.
    pub async fn begin(access: &Access, limit: Duration) -> Result<Self, Fault> {
        Ok(Self { console: Console::open(access, limit, REPLY_LIMIT).await?, cursor: Some("0".to_owned()) })
    }

    /// How many keys there are in all, if the server says so. An error if it says nothing: then it will not to more either.
    pub async fn size(&self) -> Result<Option<u64>, Fault> {
        match self.console.say(&["DBSIZE"]).await {
            Ok(Value::Int(size)) => Ok(u64::try_from(size).ok()),
            Err(fault) if fault.kind == FaultKind::Unknown => Err(fault),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    /// The names of the counters in the next step; `None` at the end. Some may come twice.
    pub async fn step(&mut self) -> Result<Option<Vec<String>>, Fault> {
        let Some(cursor) = self.cursor.take() else { return Ok(None) };
        let mut command = redis::cmd("SCAN");
        command.arg(cursor).arg("MATCH").arg(COUNTERS).arg("COUNT").arg(STEP);
        let (cursor, names) = page(self.console.ask(&command).await?)
            .ok_or_else(|| Fault::new(FaultKind::Unknown, "an answer to SCAN that makes no sense"))?;
        self.cursor = (cursor != "0").then_some(cursor);
        Ok(Some(names))
    }

    /// So many keys a step looks at.
    pub fn stride(&self) -> u64 {
        STEP as u64
    }
}

/// The next cursor, and the names that are text: a lock's is.
pub fn page(value: Value) -> Option<(String, Vec<String>)> {
    let Value::Array(parts) = value else { return None };
    let [Value::BulkString(cursor), Value::Array(names)] = <[Value; 2]>::try_from(parts).ok()? else { return None };
    let cursor = String::from_utf8(cursor).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
    let name = |value| if let Value::BulkString(name) = value { String::from_utf8(name).ok() } else { None };
    Some((cursor, names.into_iter().filter_map(name).collect()))
}
