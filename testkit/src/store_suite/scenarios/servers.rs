//! Servers that hang and restart, and replies that are lost. *Unknown is not no.*

use std::time::Duration;

use rlock::lock::lease::Revoked;
use rlock::store::{FaultKind, Hint, Queue, Renewal, Vote};

use crate::LIMIT;
use crate::store_suite::{Ability, Client, Data, Place, within};

/// The store may have granted a lock though its reply was lost: a release undoes it.
pub async fn a_release_undoes_a_grant_whose_reply_was_lost(place: &Place<'_>) {
    if place.lacks(Ability::Servers) {
        return;
    }
    let (mut unlucky, mut next) = (place.impatient_client(), place.client());
    connects(place, &unlucky).await;
    unlucky.wire.lose_replies();
    does_not_know(&mut unlucky).await;
    // A place that becomes the lock takes several requests, of which the first is all that arrives.
    if !unlucky.node.queue().is_some_and(Queue::becomes_the_lock) {
        within("the grant is seen", async {
            while next.looks().await.of(unlucky.token()).is_none() {}
        })
        .await;
        next.meets(&unlucky).await;
    }
    unlucky.gives_back().await;
    next.takes_in_time().await;
}

/// A server that hangs grants the lock when it goes on, and undoes the grant when it reads the
/// release behind it.
pub async fn a_release_undoes_what_a_server_that_hung_grants_late(place: &Place<'_>) {
    if place.lacks(Ability::Servers) {
        return;
    }
    let mut unlucky = place.impatient_client();
    connects(place, &unlucky).await;
    place.hang();
    does_not_know(&mut unlucky).await;
    drop(unlucky.node.release(&unlucky.release()));
    assert!(unlucky.node.settled(LIMIT).await);
    place.resume();
    is_free_in_time(place).await;
}

/// A request that the kernel has taken is executed though its caller has gone, and the release
/// behind it too.
pub async fn what_is_written_runs_without_its_caller(place: &Place<'_>) {
    if place.lacks(Ability::Servers) {
        return;
    }
    let client = place.client();
    connects(place, &client).await;
    place.hang();
    drop(client.node.acquire(&client.claim));
    drop(client.node.release(&client.release()));
    assert!(client.node.settled(LIMIT).await);
    drop(client);
    place.resume();
    is_free_in_time(place).await;
}

/// A holder that could not renew goes on once its server answers.
pub async fn a_holder_renews_once_a_server_that_hung_goes_on(place: &Place<'_>) {
    if place.lacks(Ability::Servers) {
        return;
    }
    let mut holder = place.impatient_client();
    holder.takes_in_time().await;
    place.hang();
    let renewal = holder.renews().await;
    assert!(matches!(renewal, Renewal::Failed(_)), "{renewal:?}");
    place.resume();
    let renewal = holder.renews_in_time().await;
    assert!(matches!(renewal, Renewal::Renewed(..)), "{renewal:?}");
    place.client().meets(&holder).await;
    holder.releases().await;
}

/// A holder notices that its server restarts. Where that kept the lock, the holder keeps it too.
pub async fn a_holder_survives_a_restart_that_keeps_its_lock(place: &Place<'_>) {
    if place.lacks(Ability::Servers) {
        return;
    }
    let mut holder = place.client();
    holder.takes().await;
    place.restart(Data::Kept);
    let hint = within("the holder notices", holder.node.next()).await;
    assert_eq!(hint, Hint::Changed);
    let renewal = holder.renews_in_time().await;
    assert!(matches!(renewal, Renewal::Renewed(..)), "{renewal:?}");
    place.client().meets(&holder).await;
    holder.releases().await;
}

/// A server that returns without the lock says so, and takes it again.
pub async fn a_lock_is_set_again_at_a_server_that_returns_empty(place: &Place<'_>) {
    if place.lacks(Ability::Servers) || place.lacks(Ability::Healing) {
        return;
    }
    let mut holder = place.client();
    holder.takes().await;
    place.restart(Data::Lost);
    let lost = holder.renews_in_time().await;
    assert!(
        matches!(lost, Renewal::NotOurs(Revoked::Missing, _, _)),
        "{lost:?}"
    );
    let healed = holder.heals_after(lost).await;
    assert!(matches!(healed, Renewal::Healed(..)), "{healed:?}");
    place.client().meets(&holder).await;
    holder.releases().await;
}

/// A server that has just started may have forgotten its holder, and grants no client that asks for
/// its uptime.
pub async fn a_server_that_has_just_started_grants_no_careful_client(place: &Place<'_>) {
    if place.lacks(Ability::Servers) || place.lacks(Ability::Uptime) {
        return;
    }
    let [mut holder, mut careful, mut careless] = [(); 3].map(|()| place.client());
    holder.takes().await;
    place.restart(Data::Lost);
    careful.claim.guarded = Some(Duration::from_secs(3600));
    let vote = careful.vote().await;
    assert!(matches!(vote, Vote::Restarted), "{vote:?}");
    careless.takes().await;
    careful.meets(&careless).await;
}

/// Opens the client's connections, to a lock that was used before: the first use of one may take
/// several requests.
async fn connects(place: &Place<'_>, client: &Client) {
    let mut first = place.client();
    first.takes().await;
    first.releases().await;
    within("an answer", async {
        while client
            .node
            .look(rlock::store::Look::default())
            .await
            .is_err()
        {}
    })
    .await;
}

/// Asks for the lock, and has no answer.
async fn does_not_know(client: &mut Client) {
    match client.vote().await {
        Vote::Failed(fault) => assert_eq!(fault.kind, FaultKind::Unknown, "{fault}"),
        vote => panic!("{vote:?}"),
    }
}

/// Waits until a client has the lock, and gives it back: no grant comes behind it.
async fn is_free_in_time(place: &Place<'_>) {
    let mut next = place.client();
    next.takes_in_time().await;
    next.releases().await;
    assert!(next.looks().await.holders.is_empty());
}
