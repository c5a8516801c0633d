//! The remains of a release, on a server in memory: parked locks, and the record of the last run.

use super::memory::Host;
use super::*;
use crate::lock::blocker::Blocker;
use crate::lock::fence::Fence;
use crate::lock::last::{Entry, Note, RUN_LIFE, Record, Run, SUCCESS_LIFE};
use crate::lock::occupant::Occupant;
use crate::lock::remains::{Parking, Remains};
use crate::store::Keep;

const SPAN: Duration = Duration::from_secs(60);
const LEFT: Duration = Duration::from_secs(50);

fn claim_of(mode: Mode) -> Claim {
    let details = Details {
        mode,
        ttl: 30_000,
        n: 3,
        pid: Some(7),
        ..Details::default()
    };
    Claim {
        token: Token::fresh(),
        details,
        index: u16::from(mode.number().is_some()),
        ..claim(false)
    }
}

fn parking(parks_tombstone: bool) -> Remains {
    Remains {
        parked: Some(Parking {
            left: LEFT,
            span: SPAN,
            parks_tombstone,
        }),
        ..Remains::default()
    }
}

fn ending() -> Remains {
    Remains {
        run: Some(Run {
            exit: Some(3),
            ..Run::default()
        }),
        ..Remains::default()
    }
}

fn succeeding() -> Remains {
    Remains {
        once: Some(Duration::from_secs(3600)),
        ..ending()
    }
}

async fn grant(node: &RedisNode, claim: &Claim) -> Fence {
    match node.acquire(claim).await.vote {
        Vote::Granted { fence, .. } => fence,
        vote => panic!("{vote:?}"),
    }
}

async fn release(node: &RedisNode, claim: &Claim, remains: Remains) -> ReleaseReply {
    release_of(node, claim, Fence::FIRST, &remains).await
}

async fn release_of(
    node: &RedisNode,
    claim: &Claim,
    fence: Fence,
    remains: &Remains,
) -> ReleaseReply {
    node.release(&claim.release_leaving(QueueAction::None, fence, None, remains))
        .await
}

fn is_of(entry: Option<&Entry>, claim: &Claim) -> bool {
    entry.is_some_and(|entry| entry.token == claim.token)
}

/// Returns what a look at the lock shows.
async fn look(node: &RedisNode) -> Observation {
    node.look(Look::default()).await.unwrap()
}

const KINDS: [Mode; 3] = [Mode::Exclusive, Mode::Shared, Mode::Slots(2)];

#[test]
fn a_parked_lock_stays_for_its_time_and_is_shown_as_the_runs_that_has_ended() {
    for mode in KINDS {
        virtual_time::run(async {
            let (host, claim) = (Host::new(), claim_of(mode));
            let node = host.node();
            grant(&node, &claim).await;
            assert!(
                matches!(
                    release(&node, &claim, parking(false)).await,
                    ReleaseReply::Released
                ),
                "{mode}"
            );
            let seen = look(&node).await;
            let holder = seen.occupant().unwrap();
            assert!(
                holder.is_parked() && holder.ttl == Some(LEFT),
                "{mode}: {holder:?}"
            );
            assert!(
                holder
                    .holder()
                    .is_some_and(|(token, told)| token == claim.token && told.pid.is_none())
            );
            let Vote::Blocked(Blocker::Occupant(met)) =
                node.acquire(&claim_of(Mode::Exclusive)).await.vote
            else {
                panic!("{mode}")
            };
            assert_eq!(
                (met.ttl, met.lease_length()),
                (Some(LEFT), Some(SPAN)),
                "{mode}"
            );
            tokio::time::sleep(LEFT + Duration::from_millis(2)).await;
            grant(&node, &claim_of(Mode::Exclusive)).await;
        });
    }
}

#[test]
fn requests_of_the_run_that_come_late_change_no_parked_lock() {
    for mode in KINDS {
        virtual_time::run(async {
            let (host, claim) = (Host::new(), claim_of(mode));
            let node = host.node();
            let fence = grant(&node, &claim).await;
            release(&node, &claim, parking(false)).await;
            assert!(
                !matches!(node.keep(&claim.renewal(fence)).await, Renewal::Renewed(..)),
                "{mode}"
            );
            let heal: Keep = claim.healing(fence, None);
            assert!(
                !matches!(
                    node.keep(&heal).await,
                    Renewal::Renewed(..) | Renewal::Healed(..)
                ),
                "{mode}"
            );
            let tombstone = claim.details.tombstone(claim.token, "me".into());
            let how = TakeAway::Tombstone(claim.token, tombstone.clone());
            assert_eq!(
                node.take_away(how).await.unwrap(),
                Some(Revoked::TakenOver),
                "{mode}"
            );
            let seen = look(&node).await;
            assert!(
                seen.occupant().unwrap().is_parked() && seen.occupant().unwrap().ttl == Some(LEFT),
                "{mode}"
            );
            // The copy of a release that was sent on another connection.
            assert!(
                matches!(
                    release(&node, &claim, parking(false)).await,
                    ReleaseReply::Released
                ),
                "{mode}"
            );
            assert!(look(&node).await.occupant().unwrap().is_parked(), "{mode}");
        });
    }
}

#[test]
fn a_parked_lock_is_deleted_by_force_and_a_place_goes_to_the_next() {
    for mode in KINDS {
        virtual_time::run(async {
            let (host, claim) = (Host::new(), claim_of(mode));
            let node = host.node();
            let fence = grant(&node, &claim).await.get();
            release(&node, &claim, parking(false)).await;
            assert_eq!(
                node.take_away(TakeAway::Delete(claim.token, fence, None))
                    .await
                    .unwrap(),
                None
            );
            assert!(look(&node).await.holders.is_empty(), "{mode}");
            grant(&node, &claim_of(Mode::Exclusive)).await;
        });
    }
}

#[test]
fn a_parked_member_keeps_its_place_and_shortens_no_other() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        let slots = [(); 3].map(|()| claim_of(Mode::Slots(2)));
        grant(&node, &slots[0]).await;
        grant(&node, &slots[1]).await;
        let short = Parking {
            left: Duration::from_secs(5),
            span: SPAN,
            parks_tombstone: false,
        };
        release(
            &node,
            &slots[0],
            Remains {
                parked: Some(short),
                ..Remains::default()
            },
        )
        .await;
        let Vote::Blocked(Blocker::Occupant(met)) = node.acquire(&slots[2]).await.vote else {
            panic!("a place was free")
        };
        assert_eq!(
            (met.ttl, met.lease_length()),
            (Some(Duration::from_secs(5)), Some(SPAN))
        );
        assert_eq!(
            host.get("job").unwrap().1,
            30_000,
            "the key ends with its last member"
        );
        tokio::time::sleep(Duration::from_millis(5002)).await;
        grant(&node, &slots[2]).await;
    });
}

#[test]
fn a_member_at_another_slot_leaves_it_and_parks_nothing_there() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        // The majority has granted the second slot, and this node the first one.
        let claim = Claim {
            index: 2,
            ..claim_of(Mode::Slots(2))
        };
        let first = Claim {
            index: 1,
            ..claim.clone()
        };
        grant(&node, &first).await;
        let reply = release(&node, &claim, parking(false)).await;
        assert!(
            matches!(reply, ReleaseReply::NotOurs(Revoked::Missing)),
            "{reply:?}"
        );
        assert!(look(&node).await.holders.is_empty());
    });
}

#[test]
fn a_tombstone_is_parked_after_a_loss_only() {
    for mode in KINDS {
        for (parks_tombstone, stays) in [(false, false), (true, true)] {
            virtual_time::run(async {
                let (host, claim) = (Host::new(), claim_of(mode));
                let node = host.node();
                grant(&node, &claim).await;
                let tombstone = claim.details.tombstone(claim.token, "me".into());
                node.take_away(TakeAway::Tombstone(claim.token, tombstone.clone()))
                    .await
                    .unwrap();
                let reply = release(&node, &claim, parking(parks_tombstone)).await;
                assert!(matches!(reply, ReleaseReply::Released), "{mode}");
                let seen = look(&node).await;
                assert_eq!(
                    seen.occupant().is_some_and(Occupant::is_parked),
                    stays,
                    "{mode}"
                );
                assert_eq!(seen.holders.is_empty(), !stays, "{mode}");
            });
        }
    }
}

/// With and without the script.
#[test]
fn a_member_is_renewed_broken_and_parked_without_memory() {
    for mode in [Mode::Shared, Mode::Slots(2)] {
        for flushed in [false, true] {
            virtual_time::run(async {
                let (host, claim) = (Host::new(), claim_of(mode));
                let node = host.node();
                let fence = grant(&node, &claim).await;
                tokio::time::sleep(TTL / 2).await;
                if flushed {
                    host.by_hand(&["SCRIPT", "FLUSH"]);
                }
                host.memory().set_out_of_memory(true);
                let renewed = node.keep(&claim.renewal(fence)).await;
                assert!(matches!(renewed, Renewal::Renewed(..)), "{renewed:?}");
                assert_eq!(host.get("job").unwrap().1, 30_000, "{mode}");
                let tombstone = claim.details.tombstone(claim.token, "me".into());
                let broken = node.take_away(TakeAway::Tombstone(claim.token, tombstone.clone()));
                assert!(matches!(broken.await, Ok(None)), "{mode}");
                let reply = release(&node, &claim, parking(true)).await;
                assert!(matches!(reply, ReleaseReply::Released), "{mode}");
                let seen = look(&node).await;
                assert!(seen.occupant().is_some_and(Occupant::is_parked), "{mode}");
            });
        }
    }
}

#[test]
fn a_lock_that_is_not_ours_is_neither_parked_nor_recorded() {
    for mode in KINDS {
        virtual_time::run(async {
            let host = Host::new();
            let node = host.node();
            let (ours, theirs) = (claim_of(mode), claim_of(mode));
            grant(&node, &theirs).await;
            let before = look(&node).await;
            let both = Remains {
                parked: parking(true).parked,
                ..succeeding()
            };
            assert!(
                matches!(release(&node, &ours, both).await, ReleaseReply::NotOurs(_)),
                "{mode}"
            );
            let after = look(&node).await;
            assert_eq!(
                (after.holders, after.last),
                (before.holders, Record::default()),
                "{mode}"
            );
        });
    }
}

#[test]
fn a_run_is_recorded_where_it_frees_its_lock_and_ends_by_itself() {
    for mode in KINDS {
        for remains in [
            ending(),
            Remains {
                parked: parking(false).parked,
                ..ending()
            },
        ] {
            virtual_time::run(async {
                let (host, claim) = (Host::new(), claim_of(mode));
                let node = host.node();
                let fence = grant(&node, &claim).await;
                assert_eq!(look(&node).await.last, Record::default());
                assert!(
                    matches!(
                        release_of(&node, &claim, fence, &remains).await,
                        ReleaseReply::Released
                    ),
                    "{mode}"
                );
                tokio::time::sleep(LEFT + Duration::from_millis(2)).await;
                let last = look(&node).await.last;
                let run = last.run.as_ref().unwrap();
                assert!(
                    run.fence == fence && is_of(Some(run), &claim) && last.success.is_none(),
                    "{mode}: {last:?}"
                );
                assert_eq!(
                    (run.run.exit, run.age.as_secs()),
                    (Some(3), LEFT.as_secs()),
                    "{mode}"
                );
                tokio::time::sleep(RUN_LIFE).await;
                assert_eq!(look(&node).await.last, Record::default(), "{mode}");
            });
        }
    }
}

#[test]
fn a_success_outlasts_later_runs_and_is_deleted_by_its_token_only() {
    virtual_time::run(async {
        let (host, claim) = (Host::new(), claim_of(Mode::Exclusive));
        let node = host.node();
        let fence = grant(&node, &claim).await;
        for copy in 1..=2 {
            // A second copy of the release finds the lock gone, and the record.
            let reply = release_of(&node, &claim, fence, &succeeding()).await;
            assert!(matches!(reply, ReleaseReply::Released), "copy {copy}");
            let seen = look(&node).await;
            assert!(
                is_of(seen.last.success.as_ref(), &claim) && is_of(seen.last.run.as_ref(), &claim)
            );
            assert!(seen.holders.is_empty());
        }
        tokio::time::sleep(RUN_LIFE).await;
        let later = claim_of(Mode::Exclusive);
        let fence = grant(&node, &later).await;
        release_of(&node, &later, fence, &ending()).await;
        let last = look(&node).await.last;
        assert!(
            is_of(last.success.as_ref(), &claim) && is_of(last.run.as_ref(), &later),
            "{last:?}"
        );
        assert_eq!(
            last.success.as_ref().map(|success| success.age.as_secs()),
            Some(RUN_LIFE.as_secs())
        );
        let forgotten = async |token| node.take_away(TakeAway::Forget(token)).await.unwrap();
        assert_eq!(forgotten(later.token).await, Some(Revoked::Missing));
        assert!(look(&node).await.last.success.is_some());
        assert_eq!(forgotten(claim.token).await, None);
        assert_eq!(
            look(&node).await.last,
            Record {
                success: None,
                ..last
            }
        );
        tokio::time::sleep(SUCCESS_LIFE).await;
        assert_eq!(look(&node).await.last, Record::default());
    });
}

#[test]
fn a_record_is_written_over_a_lower_fence_only() {
    virtual_time::run(async {
        let (host, claims) = (Host::new(), [(); 2].map(|()| claim_of(Mode::Exclusive)));
        let node = host.node();
        for (claim, fence) in claims.iter().zip([9, 8]) {
            grant(&node, claim).await;
            release_of(&node, claim, Fence::new(fence).unwrap(), &succeeding()).await;
            let last = look(&node).await.last;
            assert!(
                is_of(last.run.as_ref(), &claims[0]) && is_of(last.success.as_ref(), &claims[0]),
                "{last:?}"
            );
        }
    });
}

#[test]
fn a_success_is_copied_with_its_age_and_is_no_run() {
    virtual_time::run(async {
        let [here, there] = [(); 2].map(|()| Host::new());
        let (first, second) = (here.node(), there.node());
        let claims = [(); 2].map(|()| claim_of(Mode::Exclusive));
        let fence = grant(&first, &claims[0]).await;
        release_of(&first, &claims[0], fence, &succeeding()).await;
        tokio::time::sleep(LEFT).await;
        let earlier = look(&first).await.last.success.map(Box::new);
        let fence = grant(&second, &claims[1]).await;
        release_of(
            &second,
            &claims[1],
            fence,
            &Remains {
                earlier: earlier.clone(),
                once: succeeding().once,
                ..Remains::default()
            },
        )
        .await;
        let last = look(&second).await.last;
        assert_eq!(
            (last.run, last.success),
            (None, earlier.map(|earlier| *earlier))
        );
    });
}

#[test]
fn a_record_of_any_type_or_content_keeps_no_lock_and_is_replaced() {
    virtual_time::run(async {
        let (host, claim) = (Host::new(), claim_of(Mode::Exclusive));
        let (node, record) = (host.node(), derived(Derived::Last));
        for planted in [
            &["SET", &record, "done"][..],
            &["SET", &record, &"9\n".repeat(4000)],
            &["HSET", &record, "a", "b"],
        ] {
            host.by_hand(&["DEL", &record]);
            host.by_hand(planted);
            assert_eq!(look(&node).await.last, Record::default());
            grant(&node, &claim).await;
            assert!(matches!(
                release(&node, &claim, succeeding()).await,
                ReleaseReply::Released
            ));
            assert!(look(&node).await.last.success.is_some(), "{planted:?}");
        }
    });
}

#[test]
fn a_lock_that_is_deleted_by_force_is_recorded_as_broken() {
    virtual_time::run(async {
        let (host, claim) = (Host::new(), claim_of(Mode::Exclusive));
        let node = host.node();
        let fence = grant(&node, &claim).await;
        let broken = Note::of(
            Run {
                broken: Some("me".into()),
                ..Run::default()
            },
            fence,
            claim.token,
        );
        let how = TakeAway::Delete(claim.token, fence.get(), Some(Box::new(broken.clone())));
        assert_eq!(node.take_away(how).await.unwrap(), None);
        let last = Record {
            run: Some(broken.entry),
            success: None,
        };
        assert_eq!(look(&node).await.last, last);
        // The record is of its fence and its token, and yet no copy of its release has freed the
        // lock.
        let reply = release_of(&node, &claim, fence, &succeeding()).await;
        assert!(
            matches!(reply, ReleaseReply::NotOurs(Revoked::Missing)),
            "{reply:?}"
        );
        assert_eq!(look(&node).await.last, last);
    });
}

#[test]
fn the_first_waiter_hears_when_a_lock_is_parked() {
    virtual_time::run(async {
        let (host, claim) = (Host::new(), claim_of(Mode::Exclusive));
        let (node, waiting) = (host.node(), host.node());
        grant(&node, &claim).await;
        let waits = Claim {
            ticket: Some(Ticket {
                waiter: Waiter::example(1),
                number: 1,
                supersedes: None,
            }),
            ..claim_of(Mode::Exclusive)
        };
        waiting.acquire(&waits).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        waiting.acquire(&waits).await;
        release(&node, &claim, parking(false)).await;
        let woken = tokio::time::timeout(Duration::from_millis(10), waiting.next()).await;
        assert!(
            matches!(woken, Ok(Hint::Woken(Wake::YourTurn))),
            "{woken:?}"
        );
        let Vote::Blocked(Blocker::Occupant(met)) = waiting.acquire(&waits).await.vote else {
            panic!("it is parked")
        };
        assert!(
            met.is_parked()
                && met
                    .ttl
                    .is_some_and(|ttl| ttl + Duration::from_secs(1) > LEFT)
        );
        assert_eq!(host.queue().len(), 1);
    });
}
