//! Locks that are taken from their holders.

use rlock::lock::blocker::Blocker;
use rlock::lock::lease::Revoked;
use rlock::store::{Renewal, TakeAway, Vote, Wakes};

use crate::store_suite::{Ability, Client, Place, within};

/// A tombstone keeps others out until its holder has stopped and deletes it, and the holder is
/// told.
pub async fn a_tombstone_keeps_the_lock_until_its_holder_deletes_it(place: &Place<'_>) {
    if place.lacks(Ability::TakingAway) {
        return;
    }
    let [mut holder, breaker, mut next] = [(); 3].map(|()| place.client());
    holder.takes().await;
    holder.node.queue().expect("a queue").listen(holder.token());
    within("the holder listens", async {
        while holder.node.queue().expect("a queue").wakes() != Wakes::Yes {
            let renewal = holder.renews().await;
            assert!(matches!(renewal, Renewal::Renewed(..)), "{renewal:?}");
        }
    })
    .await;
    assert_eq!(breaks(&breaker, &holder).await, None);
    holder.hears().await;
    next.meets(&holder).await;
    let renewal = holder.renews().await;
    assert!(
        matches!(&renewal, Renewal::Broken(_, by) if by.name == "ops"),
        "{renewal:?}"
    );
    assert!(matches!(
        next.vote().await,
        Vote::Blocked(Blocker::Occupant(_))
    ));
    holder.releases().await;
    next.takes().await;
}

/// A lock that is deleted is free at once. Its holder is told, and cannot set it again.
pub async fn a_lock_that_is_deleted_passes_on_and_its_holder_is_told(place: &Place<'_>) {
    if place.lacks(Ability::TakingAway) {
        return;
    }
    let [mut holder, breaker, mut next] = [(); 3].map(|()| place.client());
    let fence = holder.takes().await;
    let delete = TakeAway::Delete(holder.token(), fence.get(), None);
    assert_eq!(
        breaker
            .node
            .take_away(delete.clone())
            .await
            .expect("an answer"),
        None
    );
    let renewal = holder.renews().await;
    assert!(
        matches!(renewal, Renewal::NotOurs(Revoked::Missing, _, _)),
        "{renewal:?}"
    );
    next.takes().await;
    assert!(next.fence() > fence);
    let again = breaker.node.take_away(delete).await.expect("an answer");
    assert_eq!(again, Some(Revoked::TakenOver));
    holder.meets(&next).await;
}

/// A request that takes a lock away names its holder: no later holder loses the lock by it.
pub async fn a_lock_is_taken_from_the_holder_that_is_named_and_no_other(place: &Place<'_>) {
    if place.lacks(Ability::TakingAway) {
        return;
    }
    let [mut old, mut holder, breaker] = [(); 3].map(|()| place.client());
    old.takes().await;
    old.releases().await;
    assert_eq!(breaks(&breaker, &old).await, Some(Revoked::Missing));
    holder.takes().await;
    assert_eq!(breaks(&breaker, &old).await, Some(Revoked::TakenOver));
    let renewal = holder.renews().await;
    assert!(matches!(renewal, Renewal::Renewed(..)), "{renewal:?}");
}

/// A value that is not rlock's is deleted on request, if it is still the one that the user has
/// seen.
pub async fn a_foreign_value_is_deleted_while_it_is_the_one_that_was_seen(place: &Place<'_>) {
    if place.lacks(Ability::TakingAway) {
        return;
    }
    let mut client = place.client();
    let guard = place.occupy();
    let seen = client.looks().await.foreign.expect("what is there");
    drop(guard);
    place.delete();
    client.takes().await;
    let deleted = client
        .node
        .take_away(TakeAway::DeleteForeign(seen.clone()))
        .await
        .expect("an answer");
    assert_eq!(deleted, Some(Revoked::TakenOver));
    client.releases().await;
    let _guard = place.occupy();
    let seen = client.looks().await.foreign.expect("what is there");
    assert_eq!(
        client
            .node
            .take_away(TakeAway::DeleteForeign(seen.clone()))
            .await
            .expect("an answer"),
        None
    );
    client.takes().await;
}

/// Puts a tombstone in the place of the lock of `holder`.
async fn breaks(breaker: &Client, holder: &Client) -> Option<Revoked> {
    let tombstone = holder.claim.details.tombstone(holder.token(), "ops".into());
    let how = TakeAway::Tombstone(holder.token(), tombstone);
    breaker.node.take_away(how).await.expect("an answer")
}
