//! Shared locks and slots.

use std::collections::BTreeSet;
use std::time::Duration;

use rlock::lock::blocker::Blocker;
use rlock::lock::mode::Mode;
use rlock::store::{Renewal, Vote};

use crate::store_suite::{Ability, Place};

/// Readers hold the lock together; a writer comes when the last of them has left.
pub async fn readers_share_the_lock_and_keep_writers_out(place: &Place<'_>) {
    if place.lacks(Ability::Shared) {
        return;
    }
    let [mut one, mut two] = [(); 2].map(|()| place.client_of(Mode::Shared));
    let mut writer = place.client();
    one.takes().await;
    two.takes().await;
    assert!(!writer.is_granted().await);
    one.releases().await;
    writer.meets(&two).await;
    two.releases().await;
    writer.takes().await;
    one.meets(&writer).await;
}

/// Each slot has one holder, and is free when that has left.
pub async fn each_slot_has_one_holder(place: &Place<'_>) {
    if place.lacks(Ability::Slots) {
        return;
    }
    let [mut one, mut two, mut three] = [(); 3].map(|()| place.client_of(Mode::Slots(2)));
    one.takes().await;
    two.takes().await;
    assert_eq!(
        BTreeSet::from([one.claim.index, two.claim.index]),
        BTreeSet::from([1, 2])
    );
    assert!(!three.is_granted().await);
    one.releases().await;
    three.takes().await;
    assert_eq!(three.claim.index, one.claim.index);
    assert!(!place.client().is_granted().await);
}

/// A client that wants the lock in another way waits until all holders have left.
pub async fn kinds_exclude_each_other(place: &Place<'_>) {
    if place.lacks(Ability::Shared) {
        return;
    }
    let all = [
        Mode::Exclusive,
        Mode::Shared,
        Mode::Slots(2),
        Mode::Slots(3),
    ];
    let number = if place.lacks(Ability::Slots) { 2 } else { 4 };
    let kinds = &all[..number];
    for &held in kinds {
        let mut holder = place.client_of(held);
        holder.takes().await;
        for &wanted in kinds.iter().filter(|wanted| **wanted != held) {
            let vote = place.client_of(wanted).vote().await;
            assert!(
                matches!(vote, Vote::Blocked(Blocker::Occupant(_))),
                "{wanted} beside {held}: {vote:?}"
            );
        }
        holder.releases().await;
    }
}

/// A look shows the members, and each of them has its own description.
pub async fn a_look_shows_each_member(place: &Place<'_>) {
    if place.lacks(Ability::Shared) {
        return;
    }
    let mut members = [(); 3].map(|()| place.client_of(Mode::Shared));
    for member in &mut members {
        member.takes().await;
    }
    let seen = place.client().looks().await;
    assert_eq!(seen.members, 3);
    for member in &members {
        let (_, told) = seen
            .of(member.token())
            .expect("a member")
            .holder()
            .expect("an rlock");
        assert_eq!(told, &member.claim.details);
    }
    members[0].releases().await;
    assert!(
        place
            .client()
            .looks()
            .await
            .of(members[0].token())
            .is_none()
    );
}

/// A member that is not renewed ends, and those that are stay.
pub async fn each_member_ends_by_itself(place: &Place<'_>) {
    if place.lacks(Ability::Leases) || place.lacks(Ability::Slots) {
        return;
    }
    let mut short = place
        .client_of(Mode::Slots(2))
        .with_ttl(Duration::from_secs(1));
    let [mut long, mut next] = [(); 2].map(|()| place.client_of(Mode::Slots(2)));
    long.takes().await;
    short.takes().await;
    next.takes_in_time().await;
    assert!(rlock::clock::now() >= short.until());
    assert_eq!(next.claim.index, short.claim.index);
    assert!(matches!(short.renews().await, Renewal::NotOurs(..)));
    assert!(matches!(long.renews().await, Renewal::Renewed(..)));
    assert_eq!(place.client().looks().await.members, 2);
}
