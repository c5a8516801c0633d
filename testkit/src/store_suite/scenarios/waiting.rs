//! Waiters: who is next, and who is told.

use rlock::lock::blocker::Blocker;
use rlock::lock::mode::Mode;
use rlock::store::{Vote, Wake};

use crate::store_suite::{Ability, Client, Place, within};

/// A waiter is told when the lock is released, and then has it.
pub async fn a_release_wakes_the_next_waiter(place: &Place<'_>) {
    let mut holder = place.client();
    let mut waiter = place.client().in_line(1);
    holder.takes().await;
    waiter.meets(&holder).await;
    let (word, ()) = tokio::join!(biased; waiter.hears(), holder.releases());
    assert_ne!(word, Wake::StandBy);
    waiter.takes().await;
}

/// Waiters have the lock in the order of their tickets, and no newcomer overtakes them.
pub async fn waiters_have_their_turns_in_the_order_in_which_they_came(place: &Place<'_>) {
    if place.lacks(Ability::Line) {
        return;
    }
    let mut holder = place.client();
    let [mut first, mut second] = [1, 2].map(|number| place.client().in_line(number));
    holder.takes().await;
    for waiter in place.arrivals(vec![&mut first, &mut second]) {
        waiter.meets(&holder).await;
    }
    let mut newcomer = place.client();
    newcomer.meets(&holder).await;
    let since = rlock::clock::now();
    holder.releases().await;
    assert_eq!(first.hears().await, Wake::YourTurn);
    for other in [&mut second, &mut newcomer] {
        if !other.is_behind(&first, since).await {
            return;
        }
    }
    first.takes().await;
    first.releases().await;
    hears_its_turn(&second).await;
    second.takes().await;
}

/// A waiter that gives up keeps no other waiter back.
pub async fn a_waiter_that_leaves_is_passed_over(place: &Place<'_>) {
    if place.lacks(Ability::Line) {
        return;
    }
    let mut holder = place.client();
    let [mut first, mut second] = [1, 2].map(|number| place.client().in_line(number));
    holder.takes().await;
    first.meets(&holder).await;
    second.meets(&holder).await;
    let waiter = &first.claim.ticket.as_ref().expect("a waiter").waiter;
    first.node.queue().expect("a queue").leave(waiter).await;
    holder.releases().await;
    hears_its_turn(&second).await;
    second.takes().await;
}

/// A waiter whose process has ended keeps no other waiter back.
pub async fn a_waiter_that_is_gone_is_passed_over(place: &Place<'_>) {
    if place.lacks(Ability::Line) {
        return;
    }
    let mut holder = place.client();
    let [mut first, mut second] = [1, 2].map(|number| place.client().in_line(number));
    holder.takes().await;
    first.meets(&holder).await;
    second.meets(&holder).await;
    drop(first);
    holder.releases().await;
    // The store may learn of its end by and by.
    second.takes_in_time().await;
}

/// A release tells all readers that are next, and they have the lock together.
pub async fn readers_that_are_next_are_woken_together(place: &Place<'_>) {
    if place.lacks(Ability::Line) {
        return;
    }
    let mut holder = place.client();
    let [mut one, mut two] = [1, 2].map(|number| place.client_of(Mode::Shared).in_line(number));
    let mut writer = place.client().in_line(3);
    holder.takes().await;
    for waiter in [&mut one, &mut two, &mut writer] {
        waiter.meets(&holder).await;
    }
    holder.releases().await;
    hears_its_turn(&one).await;
    hears_its_turn(&two).await;
    one.takes().await;
    two.takes().await;
    assert!(!writer.is_granted().await);
    // The writer keeps later readers out.
    assert!(!place.client_of(Mode::Shared).is_granted().await);
    one.releases().await;
    two.releases().await;
    hears_its_turn(&writer).await;
    writer.takes().await;
}

/// A look shows the waiters, the next one first, and leaves them where they are.
pub async fn a_look_shows_the_waiters_in_their_order(place: &Place<'_>) {
    if place.lacks(Ability::Line) {
        return;
    }
    let mut holder = place.client();
    let mut waiters = [1, 2, 3].map(|number| place.client().in_line(number));
    holder.takes().await;
    for waiter in place.arrivals(waiters.iter_mut().collect()) {
        waiter.meets(&holder).await;
    }
    for _ in 0..2 {
        let seen = place.client().looks().await;
        let ids: Vec<_> = seen.queue.iter().map(|ticket| ticket.waiter.id).collect();
        assert_eq!(ids, waiters.iter().map(Client::id).collect::<Vec<_>>());
        assert!(!seen.more);
    }
    holder.releases().await;
    assert_eq!(waiters[0].hears().await, Wake::YourTurn);
}

/// A waiter with `--supersede` ends those that came before it and have the option too.
pub async fn a_later_waiter_supersedes_an_earlier_one(place: &Place<'_>) {
    if place.lacks(Ability::Superseding) {
        return;
    }
    let mut holder = place.client();
    let [mut old, mut new] = [1, 2].map(|number| place.client().in_line(number).superseding());
    holder.takes().await;
    old.meets(&holder).await;
    new.meets(&holder).await;
    let vote = old.vote().await;
    assert!(
        matches!(&vote, Vote::Blocked(Blocker::Newer(Some(by))) if by.id == new.id()),
        "{vote:?}"
    );
    holder.releases().await;
    new.takes().await;
}

/// Waits until the waiter is told that it is its turn. It may have been told to stand by before.
async fn hears_its_turn(waiter: &Client) {
    within("its turn", async {
        while waiter.hears().await != Wake::YourTurn {}
    })
    .await;
}
