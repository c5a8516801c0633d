//! The remains of a release, on a server in memory: parked locks, and marks of a success.

use super::memory::Host;
use super::*;
use crate::lock::fence::Fence;
use crate::lock::occupant::Occupant;
use crate::lock::remains::{Parking, Remains};
use crate::node::Heal;

const SPAN: Duration = Duration::from_secs(60);
const LEFT: Duration = Duration::from_secs(50);

fn claim_of(mode: Mode) -> Claim {
    let details = Details { mode, ttl: 30_000, n: 3, pid: Some(7), ..Details::default() };
    Claim { token: Token::fresh(), details, index: u16::from(mode.number().is_some()), ..claim("job", false) }
}

fn parking(parks_tombstone: bool) -> Remains {
    Remains { parked: Some(Parking { left: LEFT, span: SPAN, parks_tombstone }), once: None }
}

fn marking() -> Remains {
    Remains { parked: None, once: Some(Duration::from_secs(3600)) }
}

async fn grant(node: &RedisNode, claim: &Claim) -> Fence {
    match node.acquire(claim).await.vote {
        Vote::Granted { fence, .. } => fence,
        vote => panic!("{vote:?}"),
    }
}

async fn release(node: &RedisNode, claim: &Claim, remains: Remains) -> ReleaseReply {
    node.release(&claim.release_leaving(QueueAction::None, remains)).await
}

/// Returns what a look at the lock shows.
async fn look(node: &RedisNode) -> Observation {
    node.observe(&key(), Look::default()).await.unwrap()
}

const KINDS: [Mode; 3] = [Mode::Exclusive, Mode::Shared, Mode::Slots(2)];

#[test]
fn a_parked_lock_stays_for_its_time_and_is_shown_as_the_runs_that_has_ended() {
    for mode in KINDS {
        virtual_time::run(async {
            let (host, claim) = (Host::new(), claim_of(mode));
            let node = host.node();
            grant(&node, &claim).await;
            assert!(matches!(release(&node, &claim, parking(false)).await, ReleaseReply::Released), "{mode}");
            let seen = look(&node).await;
            let holder = seen.occupant().unwrap();
            assert!(holder.is_parked() && holder.ttl == Some(LEFT), "{mode}: {holder:?}");
            assert!(holder.holder().is_some_and(|(token, told)| token == claim.token && told.pid.is_none()));
            let Vote::Held(met) = node.acquire(&claim_of(Mode::Exclusive)).await.vote else { panic!("{mode}") };
            assert_eq!((met.ttl, met.lease_length()), (Some(LEFT), Some(SPAN)), "{mode}");
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
            assert!(!matches!(node.renew(&claim.renewal(fence)).await, Renewal::Renewed(..)), "{mode}");
            let heal: Heal = claim.healing(fence, None);
            assert!(!matches!(node.heal(&heal).await, Renewal::Renewed(..) | Renewal::Healed(..)), "{mode}");
            let tombstone = claim.details.tombstone(claim.token, "me".to_owned());
            let how = ForceUnlock::Tombstone(claim.token, &tombstone);
            assert_eq!(node.force_unlock(&key(), how).await.unwrap(), Some(Revoked::TakenOver), "{mode}");
            let seen = look(&node).await;
            assert!(seen.occupant().unwrap().is_parked() && seen.occupant().unwrap().ttl == Some(LEFT), "{mode}");
            // The copy of a release that was sent on another connection.
            assert!(matches!(release(&node, &claim, parking(false)).await, ReleaseReply::Released), "{mode}");
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
            assert_eq!(node.force_unlock(&key(), ForceUnlock::Delete(claim.token, fence)).await.unwrap(), None);
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
        let short = Parking { left: Duration::from_secs(5), span: SPAN, parks_tombstone: false };
        release(&node, &slots[0], Remains { parked: Some(short), once: None }).await;
        let Vote::Held(met) = node.acquire(&slots[2]).await.vote else { panic!("a place was free") };
        assert_eq!((met.ttl, met.lease_length()), (Some(Duration::from_secs(5)), Some(SPAN)));
        assert_eq!(host.get("job").unwrap().1, 30_000, "the key ends with its last member");
        tokio::time::sleep(Duration::from_millis(5002)).await;
        grant(&node, &slots[2]).await;
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
                let tombstone = claim.details.tombstone(claim.token, "me".to_owned());
                node.force_unlock(&key(), ForceUnlock::Tombstone(claim.token, &tombstone)).await.unwrap();
                let reply = release(&node, &claim, parking(parks_tombstone)).await;
                assert!(matches!(reply, ReleaseReply::Released), "{mode}");
                let seen = look(&node).await;
                assert_eq!(seen.occupant().is_some_and(Occupant::is_parked), stays, "{mode}");
                assert_eq!(seen.holders.is_empty(), !stays, "{mode}");
            });
        }
    }
}

#[test]
fn a_lock_that_is_not_ours_is_neither_parked_nor_marked() {
    for mode in KINDS {
        virtual_time::run(async {
            let host = Host::new();
            let node = host.node();
            let (ours, theirs) = (claim_of(mode), claim_of(mode));
            grant(&node, &theirs).await;
            let before = look(&node).await;
            let both = Remains { once: marking().once, ..parking(true) };
            assert!(matches!(release(&node, &ours, both).await, ReleaseReply::NotOurs(_)), "{mode}");
            let after = look(&node).await;
            assert_eq!((after.holders, after.mark), (before.holders, None), "{mode}");
        });
    }
}

#[test]
fn a_mark_names_the_run_ends_by_itself_and_is_deleted_by_its_token_only() {
    virtual_time::run(async {
        let (host, claim) = (Host::new(), claim_of(Mode::Exclusive));
        let node = host.node();
        grant(&node, &claim).await;
        assert_eq!(look(&node).await.mark, None);
        for copy in 1..=2 {
            // A second copy of the release finds the lock gone, and the mark.
            assert!(matches!(release(&node, &claim, marking()).await, ReleaseReply::Released), "copy {copy}");
            let seen = look(&node).await;
            let mark = seen.mark.unwrap();
            assert_eq!(mark.holder().map(|(token, _)| token), Some(claim.token));
            assert!(mark.ttl == Some(Duration::from_secs(3600)) && seen.holders.is_empty());
        }
        let deleted = async |token| node.force_unlock(&key(), ForceUnlock::DeleteMark(token)).await.unwrap();
        assert_eq!(deleted(Token::fresh()).await, Some(Revoked::Missing));
        assert!(look(&node).await.mark.is_some());
        assert_eq!(deleted(claim.token).await, None);
        assert_eq!(look(&node).await.mark, None);
        grant(&node, &claim).await;
        release(&node, &claim, marking()).await;
        tokio::time::sleep(Duration::from_secs(3601)).await;
        assert_eq!(look(&node).await.mark, None);
    });
}

#[test]
fn a_mark_of_any_type_or_content_is_told_and_breaks_nothing() {
    virtual_time::run(async {
        let (host, claim) = (Host::new(), claim_of(Mode::Exclusive));
        let (node, mark) = (host.node(), key().derived(Derived::Once));
        host.by_hand(&["SET", &mark, "done"]);
        let seen = look(&node).await.mark.unwrap();
        assert!(seen.holder().is_none() && seen.success().contains("no rlock wrote"), "{seen:?}");
        host.by_hand(&["DEL", &mark]);
        host.by_hand(&["HSET", &mark, "a", "b"]);
        assert_eq!(look(&node).await.mark, None);
        grant(&node, &claim).await;
        assert!(matches!(release(&node, &claim, marking()).await, ReleaseReply::Released));
        assert!(look(&node).await.mark.is_some());
    });
}

#[test]
fn the_first_waiter_hears_when_a_lock_is_parked() {
    virtual_time::run(async {
        let (host, claim) = (Host::new(), claim_of(Mode::Exclusive));
        let (node, waiting) = (host.node(), host.node());
        grant(&node, &claim).await;
        let waits = Claim {
            ticket: Some(Ticket { waiter: Waiter::example(1), number: 1, supersedes: None }),
            ..claim_of(Mode::Exclusive)
        };
        waiting.acquire(&waits).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        waiting.acquire(&waits).await;
        release(&node, &claim, parking(false)).await;
        let woken = tokio::time::timeout(Duration::from_millis(10), waiting.wake()).await;
        assert!(matches!(woken, Ok(Wake::YourTurn)), "{woken:?}");
        let Vote::Held(met) = waiting.acquire(&waits).await.vote else { panic!("it is parked") };
        assert!(met.is_parked() && met.ttl.is_some_and(|ttl| ttl + Duration::from_secs(1) > LEFT));
        assert_eq!(host.queue().len(), 1);
    });
}
