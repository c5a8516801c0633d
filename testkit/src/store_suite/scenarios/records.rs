//! The record of the last run, and of the last success.

use std::time::Duration;

use rlock::lock::last::{Note, Record, Run};
use rlock::lock::mode::Mode;
use rlock::store::{ReleaseReply, TakeAway};

use crate::store_suite::{Ability, Client, Place};

/// Time for which a success counts.
const COUNTS: Option<Duration> = Some(Duration::from_secs(3600));

/// A run is recorded by the release that frees its lock, of whichever kind, with its fence.
pub async fn a_run_is_recorded_with_its_release(place: &Place<'_>) {
    if place.lacks(Ability::Records) {
        return;
    }
    let kinds = [Mode::Exclusive, Mode::Shared, Mode::Slots(2)];
    let number = if place.lacks(Ability::Shared) { 1 } else { 3 };
    for mode in kinds.into_iter().take(number) {
        let mut client = place.client_of(mode);
        client.takes().await;
        let before = client.looks().await.last;
        ends(&client, None).await;
        let last = client.looks().await.last;
        let run = last.run.expect("the run");
        assert_eq!(
            (run.token, run.fence, run.run.exit),
            (client.token(), client.fence(), Some(0))
        );
        assert!(
            run.age < Duration::from_secs(60) && run.run.host == "web1" && run.run.cmd == "backup",
            "{run:?}"
        );
        assert_eq!(last.success, before.success);
    }
    // A lock that is given back without a command leaves it alone.
    let mut client = place.client();
    client.takes().await;
    let before = client.looks().await.last;
    client.releases().await;
    assert_eq!(tokens(&client.looks().await.last), tokens(&before));
}

/// A success stays when other commands have run since, until it is deleted by the token of its run.
pub async fn a_success_outlasts_later_runs_and_is_forgotten_by_its_token(place: &Place<'_>) {
    if place.lacks(Ability::Records) {
        return;
    }
    let [mut first, mut later] = [(); 2].map(|()| place.client());
    first.takes().await;
    for _ in 0..2 {
        // The second request finds that it was executed.
        ends(&first, COUNTS).await;
    }
    later.takes().await;
    ends(&later, None).await;
    assert_eq!(
        tokens(&later.looks().await.last),
        [Some(later.token()), Some(first.token())]
    );
    for (token, is_done) in [(later.token(), false), (first.token(), true)] {
        let forgotten = later
            .node
            .take_away(TakeAway::Forget(token))
            .await
            .expect("an answer");
        assert_eq!(forgotten.is_none(), is_done);
    }
    assert_eq!(
        tokens(&later.looks().await.last),
        [Some(later.token()), None]
    );
}

/// The record of a run stays when an older run's release comes once more.
pub async fn a_record_is_written_over_a_lower_fence_only(place: &Place<'_>) {
    if place.lacks(Ability::Records) {
        return;
    }
    let [mut first, mut later] = [(); 2].map(|()| place.client());
    for client in [&mut first, &mut later] {
        client.takes().await;
        ends(client, COUNTS).await;
    }
    first.ends(COUNTS).await;
    assert_eq!(tokens(&later.looks().await.last), [Some(later.token()); 2]);
}

/// A lock that is deleted by force tells by whom.
pub async fn a_lock_that_is_taken_away_is_recorded_as_broken(place: &Place<'_>) {
    if place.lacks(Ability::Records) {
        return;
    }
    let mut holder = place.client();
    let fence = holder.takes().await;
    let note = Note::of(
        Run {
            broken: Some("ops".into()),
            ..Run::default()
        },
        fence,
        holder.token(),
    );
    let delete = TakeAway::Delete(holder.token(), fence.get(), Some(Box::new(note)));
    assert_eq!(
        holder.node.take_away(delete).await.expect("an answer"),
        None
    );
    let run = holder.looks().await.last.run.expect("the run").run;
    assert_eq!(run.broken, Some("ops".into()));
}

async fn ends(client: &Client, once: Option<Duration>) {
    let reply = client.ends(once).await;
    assert!(matches!(reply, ReleaseReply::Released), "{reply:?}");
}

/// Returns the tokens of the last run and of the last success.
fn tokens(last: &Record) -> [Option<rlock::lock::token::Token>; 2] {
    [&last.run, &last.success].map(|entry| entry.as_ref().map(|entry| entry.token))
}
