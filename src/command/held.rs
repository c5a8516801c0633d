//! Work on locks that the caller claims by their tokens: all at once, with one outcome.

use futures_util::future::join_all;

use super::nodes::{nodes_of, stores};
use crate::exit::{Failure, Outcome};
use crate::redlock::Nodes;
use crate::settings::token::{HeldLock, HeldSettings};

/// Carries `work` out on each lock. The failures are one: it names the locks that it is about.
pub(super) async fn on_each(
    settings: &HeldSettings,
    work: impl AsyncFn(&HeldLock, &Nodes) -> Result<(), Failure>,
) -> Result<Outcome, Failure> {
    let reach = &settings.reach;
    let stores = stores(&reach.place, reach.limit, settings.locks.len(), reach.copies)?;
    let done = settings.locks.iter().map(async |lock| work(lock, &nodes_of(&stores)).await.err());
    let failures = join_all(done).await.into_iter().flatten().collect();
    Failure::merged(failures).map_or(Ok(Outcome::Done), Err)
}
