//! `--wait-replicas` and `--fsync`: the copies without which a write does not count.

use std::time::Duration;

use super::StoreConfig;
use crate::cli::CopyArgs;
use crate::exit::Failure;
use crate::lock::request::Copies;

/// Limit for an exchange with `--fsync`, unless one is given. A server with `appendfsync everysec` takes a second, and may skip
/// one (redis.conf).
const WITH_FSYNC: Duration = Duration::from_millis(2500);

/// Returns the copies that are asked for, which a server alone can make; `None` if none are.
pub fn of(args: CopyArgs, place: &StoreConfig) -> Result<Option<Copies>, Failure> {
    let copies = Copies { replicas: args.wait_replicas.unwrap_or_default(), fsync: args.fsync };
    if copies.replicas == 0 && !copies.fsync {
        return Ok(None);
    }
    place.needs_server(if copies.replicas > 0 { "--wait-replicas" } else { "--fsync" })?;
    Ok(Some(copies))
}

/// Returns the limit for an exchange, `given` or that of `--fsync`; `None` if it follows from the TTL.
pub fn node_timeout(given: Option<Duration>, args: CopyArgs) -> Option<Duration> {
    given.or(args.fsync.then_some(WITH_FSYNC))
}
