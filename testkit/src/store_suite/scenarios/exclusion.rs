//! Grants and releases of one lock, and values that are not rlock's.

use futures_util::future::join_all;
use rlock::lock::blocker::Blocker;
use rlock::lock::token::Token;
use rlock::store::{ReleaseReply, Vote};

use crate::store_suite::{Client, Place};

/// A holder keeps all others out until it releases the lock.
pub async fn a_holder_keeps_all_others_out(place: &Place<'_>) {
    let [mut holder, mut next, mut third] = [(); 3].map(|()| place.client());
    holder.takes().await;
    next.meets(&holder).await;
    third.meets(&holder).await;
    holder.releases().await;
    next.takes().await;
    holder.meets(&next).await;
}

/// Of many clients that come in one moment one is granted the lock.
pub async fn of_clients_that_come_at_once_one_has_the_lock(place: &Place<'_>) {
    for _ in 0..5 {
        let mut clients: Vec<Client> = (0..8).map(|_| place.client()).collect();
        let granted = join_all(clients.iter_mut().map(Client::is_granted)).await;
        assert_eq!(granted.iter().filter(|granted| **granted).count(), 1);
        let holder = granted.iter().position(|granted| *granted).expect("one");
        clients[holder].releases().await;
    }
}

/// A release frees the lock of its own token alone.
pub async fn a_release_by_another_token_frees_nothing(place: &Place<'_>) {
    let [mut holder, mut other] = [(); 2].map(|()| place.client());
    holder.takes().await;
    for node in [&holder.node, &other.node] {
        let mut release = holder.release();
        release.token = Token::fresh();
        let reply = node.release(&release).await;
        assert!(matches!(reply, ReleaseReply::NotOurs(_)), "{reply:?}");
    }
    other.meets(&holder).await;
    holder.releases().await;
}

/// A release that is repeated does not free the next holder's lock.
pub async fn a_release_that_comes_again_frees_nothing(place: &Place<'_>) {
    let [mut first, mut next] = [(); 2].map(|()| place.client());
    first.takes().await;
    first.releases().await;
    next.takes().await;
    let reply = first.gives_back().await;
    assert!(matches!(reply, ReleaseReply::NotOurs(_)), "{reply:?}");
    first.meets(&next).await;
}

/// Each grant has a fence above those of all grants before it.
pub async fn each_fence_is_above_the_last(place: &Place<'_>) {
    let mut last = None;
    for _ in 0..4 {
        let mut client = place.client();
        let fence = client.takes().await;
        assert!(last < Some(fence), "{last:?} {fence}");
        last = Some(fence);
        client.releases().await;
    }
}

/// Requests for one lock touch no other.
pub async fn locks_of_a_store_are_independent(place: &Place<'_>) {
    let other_place = place.another();
    let [mut holder, mut other] = [place.client(), other_place.client()];
    holder.takes().await;
    other.takes().await;
    other.releases().await;
    place.client().meets(&holder).await;
    other_place.client().takes().await;
    holder.releases().await;
}

/// A value that another program has put at the lock's place keeps rlock out and is left there.
pub async fn a_foreign_value_is_respected(place: &Place<'_>) {
    let guard = place.occupy();
    let mut client = place.client();
    for _ in 0..2 {
        let vote = client.vote().await;
        assert!(
            matches!(&vote, Vote::Blocked(Blocker::Occupant(met)) if met.holder().is_none()),
            "{vote:?}"
        );
        let reply = client.gives_back().await;
        assert!(matches!(reply, ReleaseReply::NotOurs(_)), "{reply:?}");
    }
    place.delete();
    drop(guard);
    client.takes().await;
}

/// A look shows who holds the lock, and leaves it as it is.
pub async fn a_look_shows_the_holder_and_changes_nothing(place: &Place<'_>) {
    let [mut holder, other] = [(); 2].map(|()| place.client());
    assert!(other.looks().await.holders.is_empty());
    holder.takes().await;
    let [first, again] = [other.looks().await, other.looks().await];
    for seen in [&first, &again] {
        let (token, told) = seen
            .occupant()
            .expect("a holder")
            .holder()
            .expect("an rlock");
        let details = place.told(&holder.claim.details, told);
        assert_eq!((token, told), (holder.token(), &details));
    }
    assert_eq!(
        (first.fence, first.queue.len()),
        (again.fence, again.queue.len())
    );
    holder.releases().await;
    assert!(other.looks().await.holders.is_empty());
}
