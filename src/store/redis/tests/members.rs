//! The rules of shared locks and slots, each by itself, on a server in memory that executes the
//! scripts.

use super::memory::Host;
use super::*;
use crate::lock::fence::Fence;
use crate::lock::lease::Revoked;
use crate::store::{Keep, TakeAway};

/// The claim of a client that wants the lock in this way, at `index`.
fn wants(mode: Mode, index: u16) -> Claim {
    let details = Details {
        mode,
        ttl: 30_000,
        n: 3,
        ..Details::default()
    };
    Claim {
        token: Token::fresh(),
        details,
        index,
        ..claim(false)
    }
}

fn reader() -> Claim {
    wants(Mode::Shared, 0)
}

fn slot(index: u16) -> Claim {
    wants(Mode::Slots(2), index)
}

/// The claim as that of the waiter of this number, which came in this order from a host of its own.
fn queued(number: u8, claim: Claim) -> Claim {
    let id = Uuid::from_u128(u128::from(number));
    let (mode, user) = (claim.details.mode, "u".to_owned());
    let waiter = Waiter {
        id,
        host: format!("host{number}"),
        pid: 1,
        since: 1,
        mode,
        user,
        note: None,
    };
    Claim {
        ticket: Some(Ticket {
            waiter,
            number: u64::from(number),
            supersedes: None,
        }),
        ..claim
    }
}

async fn grant(node: &RedisNode, claim: &Claim) -> (Fence, u16) {
    match node.acquire(claim).await.vote {
        Vote::Granted { fence, index, .. } => (fence, index),
        vote => panic!("{vote:?}"),
    }
}

async fn is_granted(node: &RedisNode, claim: &Claim) -> bool {
    matches!(node.acquire(claim).await.vote, Vote::Granted { .. })
}

async fn release(node: &RedisNode, claim: &Claim) -> ReleaseReply {
    node.release(&claim.release(QueueAction::None)).await
}

fn renewal(claim: &Claim, fence: Fence, index: u16) -> Keep {
    Keep {
        index,
        ..claim.renewal(fence)
    }
}

/// The healing of a holder that was told this counter.
fn told(claim: &Claim, fence: Fence, index: u16, counter: Option<u64>) -> Keep {
    Keep {
        index,
        ..claim.healing(fence, counter)
    }
}

async fn pass(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

#[test]
fn a_writer_in_the_queue_keeps_later_readers_out() {
    virtual_time::run(async {
        let host = Host::new();
        let [first, writer, reader_behind, newcomer] = [(); 4].map(|()| host.node());
        grant(&first, &reader()).await;
        assert!(!is_granted(&writer, &queued(1, wants(Mode::Exclusive, 0))).await);
        assert!(
            !is_granted(&reader_behind, &queued(2, reader())).await,
            "behind the writer"
        );
        assert!(!is_granted(&newcomer, &reader()).await, "without a place");
    });
}

#[test]
fn a_waiter_of_another_kind_keeps_those_behind_it_out_though_there_is_room() {
    virtual_time::run(async {
        let host = Host::new();
        let [holder, writer, other] = [(); 3].map(|()| host.node());
        let (held, next) = (slot(1), queued(2, slot(1)));
        grant(&holder, &held).await;
        assert!(!is_granted(&writer, &queued(1, wants(Mode::Exclusive, 0))).await);
        assert!(!is_granted(&other, &next).await, "slot 2 is free");
        release(&holder, &held).await;
        assert!(!is_granted(&other, &next).await, "it is the writer's turn");
        assert!(is_granted(&writer, &queued(1, wants(Mode::Exclusive, 0))).await);
    });
}

#[test]
fn the_lock_ends_with_its_last_member() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        grant(&node, &reader()).await;
        pass(20_000).await;
        grant(&node, &reader()).await;
        assert_eq!(host.get("job").map(|(_, left)| left), Some(30_000));
        pass(11_000).await;
        assert!(
            !is_granted(&node, &wants(Mode::Exclusive, 0)).await,
            "the second reader has it still"
        );
        pass(19_001).await;
        assert!(is_granted(&node, &wants(Mode::Exclusive, 0)).await);
    });
}

#[test]
fn members_of_an_older_marker_are_void() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        let (old, new) = (reader(), reader());
        let (fence, _) = grant(&node, &old).await;
        host.by_hand(&["DEL", "job"]);
        grant(&node, &new).await;
        assert!(
            matches!(
                node.keep(&renewal(&old, fence, 0)).await,
                Renewal::NotOurs(..)
            ),
            "the old one counts again"
        );
        assert!(matches!(release(&node, &new).await, ReleaseReply::Released));
        assert_eq!(host.get("job"), None, "the old one keeps the lock");
    });
}

#[test]
fn an_attempt_that_comes_twice_has_one_place() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        let (twice, other) = (slot(1), slot(1));
        grant(&node, &twice).await;
        assert!(
            !is_granted(&node, &twice).await,
            "this server has two names"
        );
        assert_eq!(grant(&node, &other).await.1, 2);
        assert!(!is_granted(&node, &slot(1)).await, "both are taken");
    });
}

#[test]
fn no_client_joins_members_of_which_some_were_evicted() {
    for evicted in [Derived::Leases, Derived::Holders] {
        virtual_time::run(async move {
            let host = Host::new();
            let node = host.node();
            grant(&node, &slot(1)).await;
            host.by_hand(&["DEL", &derived(evicted)]);
            assert!(!is_granted(&node, &slot(2)).await, "{evicted:?}");
        });
    }
}

#[test]
fn no_client_joins_holders_of_another_kind_or_on_another_number_of_nodes() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        grant(&node, &reader()).await;
        for other in [slot(1), wants(Mode::Slots(3), 1), wants(Mode::Exclusive, 0)] {
            assert!(!is_granted(&node, &other).await, "{:?}", other.details.mode);
        }
        let mut alone = reader();
        alone.details.n = 1;
        assert!(!is_granted(&node, &alone).await, "a holder on one node");
        assert!(is_granted(&node, &reader()).await);
    });
}

#[test]
fn members_whose_leases_were_evicted_keep_the_lock() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        let (one, two) = (reader(), reader());
        grant(&node, &one).await;
        grant(&node, &two).await;
        host.by_hand(&["DEL", &derived(Derived::Leases)]);
        release(&node, &one).await;
        assert!(!is_granted(&node, &wants(Mode::Exclusive, 0)).await);
    });
}

#[test]
fn a_member_that_moves_needs_no_place_more() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        let (other, mut moves) = (slot(1), slot(2));
        grant(&node, &other).await;
        grant(&node, &moves).await;
        moves.is_exact = true;
        assert_eq!(grant(&node, &moves).await.1, 2, "both places are taken");
    });
}

#[test]
fn a_member_that_is_over_gives_up_its_place_and_is_not_renewed() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        let (early, late) = (slot(1), slot(2));
        let (fence, index) = grant(&node, &early).await;
        pass(20_000).await;
        grant(&node, &late).await;
        pass(10_001).await;
        assert!(matches!(
            node.keep(&renewal(&early, fence, index)).await,
            Renewal::NotOurs(Revoked::Missing, _, _)
        ));
        assert_eq!(grant(&node, &slot(2)).await.1, 1, "the only free one");
    });
}

/// Moves the members' ends by so many ms. A negative number is the time by which the clock of the
/// server is behind from which the lock has come. MIGRATE takes the ends along as they are, and each
/// key's TTL as the ms that it has left.
fn move_ends(host: &Host, members: &[&Claim], by: i64) {
    let leases = derived(Derived::Leases);
    for token in members.iter().map(|claim| claim.token.to_string()) {
        let score = host.by_hand(&["ZSCORE", &leases, &token]);
        let end: i64 = score.lines().last().unwrap().parse().unwrap();
        host.by_hand(&["ZADD", &leases, &(end + by).to_string(), &token]);
    }
}

/// With and without the script, which the target of a move may not have.
#[test]
fn members_that_moved_to_a_clock_ahead_end_when_they_would_have_ended() {
    for flushed in [false, true] {
        virtual_time::run(async move {
            let host = Host::new();
            let node = host.node();
            let (one, two) = (slot(1), slot(2));
            let (fence, index) = grant(&node, &one).await;
            grant(&node, &two).await;
            pass(15_000).await;
            move_ends(&host, &[&one, &two], -20_000);
            assert!(!is_granted(&node, &slot(1)).await, "both are held");
            for _ in 0..3 {
                if flushed {
                    host.by_hand(&["SCRIPT", "FLUSH"]);
                }
                let renewed = node.keep(&renewal(&one, fence, index)).await;
                assert!(matches!(renewed, Renewal::Renewed(..)), "{renewed:?}");
                assert_eq!(host.get("job").unwrap().1, 30_000);
                pass(4_999).await;
            }
            assert!(
                !is_granted(&node, &slot(2)).await,
                "two's lease is not over"
            );
            pass(4).await;
            assert_eq!(grant(&node, &slot(2)).await.1, 2, "two's place");
            assert_eq!(host.get("job").unwrap().1, 30_000, "its last member");
        });
    }
}

/// With and without the script.
#[test]
fn the_lock_ends_with_its_last_member_when_the_clock_was_set_back() {
    for flushed in [false, true] {
        virtual_time::run(async move {
            let host = Host::new();
            let node = host.node();
            let member = slot(1);
            let (fence, index) = grant(&node, &member).await;
            // What was written by a clock that was 20 s ahead.
            move_ends(&host, &[&member], 20_000);
            let derived = [Derived::Leases, Derived::Holders].map(derived);
            for key in ["job".to_owned()].iter().chain(&derived) {
                host.by_hand(&["PEXPIRE", key, "50000"]);
            }
            if flushed {
                host.by_hand(&["SCRIPT", "FLUSH"]);
            }
            let renewed = node.keep(&renewal(&member, fence, index)).await;
            assert!(matches!(renewed, Renewal::Renewed(..)), "{renewed:?}");
            assert_eq!(host.get("job").unwrap().1, 30_000);
        });
    }
}

#[test]
fn the_lock_ends_with_its_last_member_when_one_leaves_without_the_script() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        let (early, late) = (slot(1), slot(2));
        let (fence, index) = grant(&node, &early).await;
        pass(10_000).await;
        grant(&node, &late).await;
        host.by_hand(&["SCRIPT", "FLUSH"]);
        assert!(matches!(
            release(&node, &late).await,
            ReleaseReply::Released
        ));
        assert_eq!(host.get("job").unwrap().1, 20_000);
        let renewed = node.keep(&renewal(&early, fence, index)).await;
        assert!(matches!(renewed, Renewal::Renewed(..)), "{renewed:?}");
    });
}

#[test]
fn each_slot_has_one_holder_and_is_free_again_when_it_leaves() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        let (one, two) = (slot(1), slot(1));
        assert_eq!(
            (grant(&node, &one).await.1, grant(&node, &two).await.1),
            (1, 2)
        );
        assert!(matches!(release(&node, &one).await, ReleaseReply::Released));
        assert_eq!(grant(&node, &slot(2)).await.1, 1);
    });
}

#[test]
fn a_member_is_renewed_at_its_own_slot_only() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        let member = slot(1);
        let (fence, index) = grant(&node, &member).await;
        assert!(matches!(
            node.keep(&renewal(&member, fence, index)).await,
            Renewal::Renewed(..)
        ));
        assert!(matches!(
            node.keep(&renewal(&member, fence, 2)).await,
            Renewal::NotOurs(..)
        ));
    });
}

#[test]
fn an_exclusive_renewal_that_meets_members_finds_the_lock_taken_over() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        let (writer, slot) = (wants(Mode::Exclusive, 0), slot(1));
        let (fence, _) = grant(&node, &writer).await;
        host.by_hand(&["DEL", "job"]);
        grant(&node, &slot).await;
        let kept = node.keep(&writer.renewal(fence)).await;
        assert!(
            matches!(kept, Renewal::NotOurs(Revoked::TakenOver, _, Some(_))),
            "{kept:?}"
        );
    });
}

#[test]
fn a_member_is_healed_into_a_free_slot_of_its_own_kind_only() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        let (lost, owner) = (slot(1), slot(1));
        let high = Fence::new(4_000_000_000_000_000).unwrap();
        grant(&node, &owner).await;
        let counter = Some(host.counter());
        let heal = |index| told(&lost, high, index, counter);
        assert!(
            matches!(
                node.keep(&heal(1)).await,
                Renewal::NotOurs(Revoked::TakenOver, _, _)
            ),
            "another client's slot"
        );
        assert!(matches!(node.keep(&heal(2)).await, Renewal::Healed(..)));
        let reader = told(&reader(), high, 0, counter);
        assert!(
            matches!(
                node.keep(&reader).await,
                Renewal::NotOurs(Revoked::TakenOver, _, _)
            ),
            "another kind"
        );
    });
}

#[test]
fn two_members_that_have_each_others_slot_change_places() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        let (one, two) = (slot(1), slot(2));
        // Elsewhere they came in the other order.
        let fence = grant(&node, &one).await.0.max(grant(&node, &two).await.0);
        assert!(matches!(
            node.keep(&told(&one, fence, 2, None)).await,
            Renewal::NotOurs(Revoked::TakenOver, _, _)
        ));
        assert!(!is_granted(&node, &slot(1)).await, "no place is given up");
        assert!(matches!(
            node.keep(&told(&two, fence, 1, None)).await,
            Renewal::Healed(..)
        ));
        for (member, index) in [(&one, 2), (&two, 1)] {
            let renewed = node.keep(&renewal(member, fence, index)).await;
            assert!(matches!(renewed, Renewal::Renewed(..)), "slot {index}");
        }
        assert!(!is_granted(&node, &slot(1)).await, "both are taken");
        release(&node, &two).await;
        assert_eq!(grant(&node, &slot(2)).await.1, 1, "its slot is free again");
    });
}

#[test]
fn a_member_at_another_members_slot_is_not_extended_there() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        let of_three = |index| wants(Mode::Slots(3), index);
        let members = [1, 2, 3].map(of_three);
        let mut fence = Fence::FIRST;
        for member in &members {
            fence = grant(&node, member).await.0;
        }
        pass(29_000).await;
        // The slot of each is the next one's.
        let heal = |member: usize| {
            let index = [2, 3, 1][member];
            node.keep(&told(&members[member], fence, index, None))
        };
        for member in 0..3 {
            let healed = heal(member).await;
            assert!(matches!(healed, Renewal::NotOurs(..)), "{healed:?}");
        }
        pass(1_001).await;
        for member in 0..3 {
            assert!(matches!(heal(member).await, Renewal::Healed(..)));
        }
    });
}

#[test]
fn a_member_that_was_broken_at_another_slot_is_told() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        let member = slot(1);
        let (fence, _) = grant(&node, &member).await;
        let tombstone = member.details.tombstone(member.token, "root@ops".into());
        let broken = node.take_away(TakeAway::Tombstone(member.token, tombstone.clone()));
        assert!(broken.await.is_ok());
        for index in [1, 2] {
            let kept = node.keep(&told(&member, fence, index, None)).await;
            assert!(matches!(kept, Renewal::Broken(..)), "{kept:?}");
        }
    });
}

#[test]
fn a_release_tells_all_readers_that_are_next() {
    virtual_time::run(async {
        let host = Host::new();
        let [holder, a, b, writer] = [(); 4].map(|()| host.node());
        let held = wants(Mode::Exclusive, 0);
        grant(&holder, &held).await;
        assert!(!is_granted(&a, &queued(1, reader())).await);
        assert!(!is_granted(&b, &queued(2, reader())).await);
        assert!(!is_granted(&writer, &queued(3, wants(Mode::Exclusive, 0))).await);
        release(&holder, &held).await;
        pass(1).await;
        assert_eq!([&a, &b].map(wake_of), [Some(Wake::YourTurn); 2]);
        assert_ne!(wake_of(&writer), Some(Wake::YourTurn));
    });
}
