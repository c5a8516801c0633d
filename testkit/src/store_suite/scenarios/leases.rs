//! How long a grant lasts, what a holder is told that has lost it, and when it is set again.

use std::time::Duration;

use rlock::lock::lease::Revoked;
use rlock::store::{ReleaseReply, Renewal};

use crate::store_suite::{Ability, Place};

/// A TTL that a test waits for.
const SHORT: Duration = Duration::from_secs(1);

/// A TTL that is longer than a test, and shorter than what a renewal asks for.
const MIDDLE: Duration = Duration::from_secs(60);

/// A grant that is not renewed ends, and not before its holder has been told that it may.
pub async fn a_grant_ends_by_itself_and_not_early(place: &Place<'_>) {
    if place.lacks(Ability::Leases) {
        return;
    }
    let mut holder = place.client().with_ttl(SHORT);
    let mut next = place.client();
    holder.takes().await;
    next.takes_in_time().await;
    assert!(rlock::clock::now() >= holder.until());
    let reply = holder.gives_back().await;
    assert!(matches!(reply, ReleaseReply::NotOurs(_)), "{reply:?}");
    holder.meets(&next).await;
}

/// A renewal counts from before it was sent, and is seen by others.
pub async fn a_renewal_extends_the_grant(place: &Place<'_>) {
    if place.lacks(Ability::Leases) {
        return;
    }
    let can_be_longer = !place.lacks(Ability::LongerLeases);
    let mut holder = if can_be_longer {
        place.client().with_ttl(MIDDLE)
    } else {
        place.client()
    };
    holder.takes().await;
    let long = place.client().claim.term;
    holder.claim.term = long;
    let sent = rlock::clock::now();
    let renewal = holder.renews().await;
    let answered = rlock::clock::now();
    let Renewal::Renewed(until, _) = renewal else {
        panic!("{renewal:?}")
    };
    assert!(
        until >= long.end(sent) && until <= long.end(answered),
        "{until:?}"
    );
    if place.lacks(Ability::TimeLeft) {
        return;
    }
    let seen = place.client().looks().await;
    let left = seen.occupant().expect("a holder").ttl.expect("an end");
    assert!(left > MIDDLE && left <= long.ttl(), "{left:?}");
}

/// A renewal by a client that has not the lock changes nothing.
pub async fn a_renewal_by_another_token_extends_nothing(place: &Place<'_>) {
    if place.lacks(Ability::Leases) {
        return;
    }
    let mut holder = place.client().with_ttl(MIDDLE);
    let mut other = place.client();
    let fence = holder.takes().await;
    other.meets(&holder).await;
    let renewal = other.node.keep(&other.claim.renewal(fence)).await;
    assert!(
        matches!(renewal, Renewal::NotOurs(Revoked::TakenOver, _, _)),
        "{renewal:?}"
    );
    if !place.lacks(Ability::TimeLeft) {
        let seen = other.looks().await;
        let left = seen.occupant().expect("a holder").ttl.expect("an end");
        assert!(left <= MIDDLE, "{left:?}");
    }
    other.meets(&holder).await;
}

/// A holder whose lock was deleted is told at its next renewal.
pub async fn a_holder_is_told_that_its_lock_is_gone(place: &Place<'_>) {
    let mut holder = place.client();
    holder.takes().await;
    place.delete();
    let renewal = holder.renews().await;
    assert!(
        matches!(renewal, Renewal::NotOurs(Revoked::Missing, _, _)),
        "{renewal:?}"
    );
    let reply = holder.gives_back().await;
    assert!(
        matches!(reply, ReleaseReply::NotOurs(Revoked::Missing)),
        "{reply:?}"
    );
}

/// A holder whose lock is another client's is told so.
pub async fn a_holder_is_told_that_another_client_has_its_lock(place: &Place<'_>) {
    let [mut holder, mut other] = [(); 2].map(|()| place.client());
    holder.takes().await;
    place.delete();
    other.takes().await;
    let renewal = holder.renews().await;
    assert!(
        matches!(renewal, Renewal::NotOurs(Revoked::TakenOver, _, _)),
        "{renewal:?}"
    );
    let reply = holder.gives_back().await;
    assert!(
        matches!(reply, ReleaseReply::NotOurs(Revoked::TakenOver)),
        "{reply:?}"
    );
    place.client().meets(&other).await;
}

/// A lock that is gone is set again by its holder.
pub async fn a_lock_is_set_again_where_nothing_is(place: &Place<'_>) {
    if place.lacks(Ability::Healing) {
        return;
    }
    let mut holder = place.client();
    holder.takes().await;
    place.delete();
    let healed = holder.heals_after(holder.renews().await).await;
    assert!(matches!(healed, Renewal::Healed(..)), "{healed:?}");
    place.client().meets(&holder).await;
    let renewal = holder.renews().await;
    assert!(matches!(renewal, Renewal::Renewed(..)), "{renewal:?}");
    holder.releases().await;
}

/// A lock is not set again where another client has it.
pub async fn a_lock_is_not_set_again_over_another_clients(place: &Place<'_>) {
    if place.lacks(Ability::Healing) {
        return;
    }
    let [mut holder, mut other] = [(); 2].map(|()| place.client());
    holder.takes().await;
    place.delete();
    let lost = holder.renews().await;
    other.takes().await;
    let healed = holder.heals_after(lost).await;
    assert!(
        matches!(healed, Renewal::NotOurs(Revoked::TakenOver, _, _)),
        "{healed:?}"
    );
    place.client().meets(&other).await;
}

/// A lock is not set again, though nothing is there, when another client has had it since the
/// holder was told.
pub async fn a_lock_is_not_set_again_after_another_client_has_had_it(place: &Place<'_>) {
    if place.lacks(Ability::Healing) {
        return;
    }
    let [mut holder, mut other] = [(); 2].map(|()| place.client());
    holder.takes().await;
    place.delete();
    let lost = holder.renews().await;
    other.takes().await;
    other.releases().await;
    let healed = holder.heals_after(lost).await;
    assert!(
        matches!(healed, Renewal::NotOurs(Revoked::Missing, _, _)),
        "{healed:?}"
    );
    other.takes().await;
}
