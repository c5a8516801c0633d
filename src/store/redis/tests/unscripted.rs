//! Servers that have lost `lock.lua`, or let a user call no script by its digest, on a server in
//! memory.

use ::simulation::server::Right;

use super::memory::Host;
use super::*;
use crate::lock::blocker::Blocker;
use crate::lock::remains::{Parking, Remains};

const KINDS: [Mode; 3] = [Mode::Exclusive, Mode::Shared, Mode::Slots(2)];

fn claim_of(mode: Mode) -> Claim {
    let details = Details {
        mode,
        ttl: 30_000,
        n: 3,
        ..Details::default()
    };
    Claim {
        token: Token::fresh(),
        details,
        index: u16::from(mode.number().is_some()),
        ..claim(false)
    }
}

async fn grant(node: &RedisNode, claim: &Claim) -> Fence {
    match node.acquire(claim).await.vote {
        Vote::Granted { fence, .. } => fence,
        vote => panic!("{vote:?}"),
    }
}

fn asked(host: &Host) -> (u64, u64) {
    let memory = host.memory();
    (memory.requests("evalsha"), memory.requests("eval"))
}

#[test]
fn a_server_without_the_script_is_sent_it_once_and_keeps_it() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        for expected in [(1, 1), (3, 2), (5, 3)] {
            let claim = claim_of(Mode::Exclusive);
            grant(&node, &claim).await;
            assert_eq!(asked(&host), expected);
            assert!(matches!(
                node.release(&claim.release(QueueAction::None)).await,
                ReleaseReply::Released
            ));
        }
    });
}

#[test]
fn a_grant_lasts_from_before_the_first_request_that_was_sent_for_it() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        let begun = clock::now();
        host.delay(Duration::from_millis(100));
        let Vote::Granted { until, .. } = node.acquire(&claim_of(Mode::Exclusive)).await.vote
        else {
            panic!()
        };
        assert!(
            clock::now().since(begun) >= Duration::from_millis(200),
            "two exchanges"
        );
        assert!(until <= begun + TTL, "counted from the second one");
    });
}

#[test]
fn a_renewal_and_a_release_do_without_the_script() {
    for mode in KINDS {
        virtual_time::run(async {
            let (host, claim) = (Host::new(), claim_of(mode));
            let node = host.node();
            let fence = grant(&node, &claim).await;
            tokio::time::sleep(TTL / 2).await;
            host.by_hand(&["SCRIPT", "FLUSH"]);
            assert!(
                matches!(node.keep(&claim.renewal(fence)).await, Renewal::Renewed(..)),
                "{mode}"
            );
            assert_eq!(host.get("job").unwrap().1, 30_000, "{mode}");
            let known = host.by_hand(&["SCRIPT", "EXISTS", &script::LOCK.digest]);
            assert_eq!(
                known, "*1\r\n:0\r\n",
                "{mode}: it was not sent the whole script"
            );
            host.by_hand(&["SCRIPT", "FLUSH"]);
            assert!(
                matches!(
                    node.release(&claim.release(QueueAction::None)).await,
                    ReleaseReply::Released
                ),
                "{mode}"
            );
            assert_eq!(host.get("job"), None, "{mode}");
        });
    }
}

#[test]
fn a_release_frees_the_lock_though_no_reply_is_read() {
    for mode in KINDS {
        virtual_time::run(async {
            let (host, claim) = (Host::new(), claim_of(mode));
            let node = host.node();
            grant(&node, &claim).await;
            host.by_hand(&["SCRIPT", "FLUSH"]);
            host.delay(Duration::from_millis(100));
            drop(node.release(&claim.release(QueueAction::None)));
            tokio::time::sleep(Duration::from_millis(101)).await;
            assert_eq!(host.get("job"), None, "{mode}: it takes one write");
        });
    }
}

#[test]
fn what_does_without_the_script_touches_no_other_holder() {
    for mode in KINDS {
        virtual_time::run(async {
            let (host, theirs) = (Host::new(), claim_of(mode));
            let node = host.node();
            let fence = grant(&node, &theirs).await;
            let before = host.get("job");
            let ours = claim_of(mode);
            host.by_hand(&["SCRIPT", "FLUSH"]);
            assert!(
                matches!(node.keep(&ours.renewal(fence)).await, Renewal::NotOurs(..)),
                "{mode}"
            );
            host.by_hand(&["SCRIPT", "FLUSH"]);
            assert!(
                matches!(
                    node.release(&ours.release(QueueAction::None)).await,
                    ReleaseReply::NotOurs(_)
                ),
                "{mode}"
            );
            assert_eq!(host.get("job"), before, "{mode}");
            assert!(
                matches!(
                    node.keep(&theirs.renewal(fence)).await,
                    Renewal::Renewed(..)
                ),
                "{mode}"
            );
        });
    }
}

#[test]
fn a_tombstone_is_told_by_a_renewal_and_deleted_by_a_release_without_the_script() {
    for mode in KINDS {
        virtual_time::run(async {
            let (host, claim) = (Host::new(), claim_of(mode));
            let node = host.node();
            let fence = grant(&node, &claim).await;
            let tombstone = claim.details.tombstone(claim.token, "me".into());
            node.take_away(TakeAway::Tombstone(claim.token, tombstone.clone()))
                .await
                .unwrap();
            host.by_hand(&["SCRIPT", "FLUSH"]);
            let renewal = node.keep(&claim.renewal(fence)).await;
            assert!(
                matches!(&renewal, Renewal::Broken(None, by) if by.name == "me"),
                "{mode}: {renewal:?}"
            );
            host.delay(Duration::from_millis(100));
            drop(node.release(&claim.release(QueueAction::None)));
            tokio::time::sleep(Duration::from_millis(101)).await;
            assert_eq!(host.get("job"), None, "{mode}");
        });
    }
}

#[test]
fn a_lock_is_parked_though_the_script_is_gone_and_stays_after_a_release_of_its_run() {
    for mode in KINDS {
        virtual_time::run(async {
            let (host, claim) = (Host::new(), claim_of(mode));
            let node = host.node();
            grant(&node, &claim).await;
            let left = Duration::from_secs(50);
            let parked = Some(Parking {
                left,
                span: left,
                parks_tombstone: false,
            });
            host.by_hand(&["SCRIPT", "FLUSH"]);
            let parks = claim.release_leaving(
                QueueAction::None,
                Fence::FIRST,
                None,
                &Remains {
                    parked,
                    ..Remains::default()
                },
            );
            host.delay(Duration::from_millis(100));
            drop(node.release(&parks));
            assert!(node.settled(LIMIT).await);
            // The marker of a lock with members says nothing of the member.
            let value = host.get("job").unwrap();
            assert_eq!(
                value.1,
                50_000 - 100,
                "{mode}: it counts once answered, {}",
                value.0
            );
            host.by_hand(&["SCRIPT", "FLUSH"]);
            node.release(&claim.release(QueueAction::None)).await;
            assert!(host.get("job").is_some(), "{mode}");
        });
    }
}

#[test]
fn waiters_hear_of_a_release_though_the_script_is_gone() {
    virtual_time::run(async {
        let (host, holder) = (Host::new(), claim_of(Mode::Exclusive));
        let (node, waiting) = (host.node(), host.node());
        grant(&node, &holder).await;
        assert!(matches!(
            waiting.acquire(&claim(true)).await.vote,
            Vote::Blocked(Blocker::Occupant(_))
        ));
        host.by_hand(&["SCRIPT", "FLUSH"]);
        assert!(matches!(
            node.release(&holder.release(QueueAction::None)).await,
            ReleaseReply::Released
        ));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(wake_of(&waiting), Some(Wake::YourTurn));
    });
}

#[test]
fn a_release_cancels_a_request_that_the_server_did_not_execute() {
    virtual_time::run(async {
        let (host, claim) = (Host::new(), claim_of(Mode::Exclusive));
        let node = host.node();
        host.delay(Duration::from_millis(100));
        let answer = node.acquire(&claim);
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(node.release(&claim.release(QueueAction::None)));
        let Vote::Failed(fault) = answer.await.vote else {
            panic!("it was granted")
        };
        assert!(fault.why.contains("given up"), "{fault}");
        tokio::time::sleep(TTL / 2).await;
        assert_eq!(host.get("job"), None);
    });
}

#[test]
fn a_confirmation_raises_the_counter_though_the_script_is_gone() {
    virtual_time::run(async {
        let (host, claim) = (Host::new(), claim_of(Mode::Exclusive));
        let node = host.node();
        let higher = Fence::new(grant(&node, &claim).await.get() + 5).unwrap();
        host.by_hand(&["SCRIPT", "FLUSH"]);
        assert!(matches!(
            node.keep(&claim.confirmation(higher)).await,
            Renewal::Renewed(..)
        ));
        assert_eq!(host.counter(), higher.get());
    });
}

#[test]
fn a_user_that_may_call_no_script_by_its_digest_brings_it_along_from_then_on() {
    for mode in KINDS {
        virtual_time::run(async {
            let (host, claim) = (Host::new(), claim_of(mode));
            let node = host.node();
            host.memory().deny(Right::Command("evalsha".to_owned()));
            let fence = grant(&node, &claim).await;
            assert!(
                matches!(node.keep(&claim.renewal(fence)).await, Renewal::Renewed(..)),
                "{mode}"
            );
            assert!(
                matches!(
                    node.release(&claim.release(QueueAction::None)).await,
                    ReleaseReply::Released
                ),
                "{mode}"
            );
            assert_eq!((host.get("job"), asked(&host).1), (None, 3), "{mode}");
        });
    }
}
