//! Keeps `release` and `renew` from touching the lock of an outer `rlock run`.

use super::failure::not_the_holder;
use crate::exit::Failure;
use crate::lock::occupant::Occupant;
use crate::redlock::Nodes;
use crate::redlock::observe::observe_token;
use crate::report::Problem;
use crate::settings::token::HeldLock;

/// Refuses to change a lock that an outer `rlock run` renews. Its command would go on without the lock, or with a lease
/// that its holder does not know.
///
/// The nodes confirm what the variables claim, and name the holder. A lock that `acquire` took is the caller's. If too few
/// nodes answer, nothing is changed: *unknown is not no*.
pub(super) async fn refuse_inside(lock: &HeldLock, nodes: &Nodes) -> Result<(), Failure> {
    let HeldLock { key, token, reach, .. } = lock;
    if !lock.is_kept {
        return Ok(());
    }
    let looks = observe_token(nodes, key, *token, reach.limit, |census| census.tells_whose(*token)).await;
    let census = looks.census();
    if census.is_held_by(*token) != Some(true) {
        return Err(not_the_holder(key, nodes, &looks, *token, reach.node_is_default));
    }
    match census.entry(*token).and_then(Occupant::holder) {
        Some((_, details)) if !details.kept => Ok(()),
        holder => {
            let pid = holder.and_then(|(_, details)| details.pid);
            Err(Problem::KeptByRun { pid }.about(key))
        }
    }
}
