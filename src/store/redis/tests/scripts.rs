//! The rules of the scripts, each by itself, on a server in memory that executes them.

use ::simulation::server::Right;

use super::memory::{Host, wall};
use super::*;
use crate::lock::blocker::Blocker;
use crate::lock::details::LARGEST_VALUE;
use crate::lock::fence::Fence;
use crate::store::{Heal, Keep};

/// Tokens that differ in their last digit.
fn token(digit: u8) -> Token {
    format!("00000000-0000-4000-8000-00000000000{digit}")
        .parse()
        .unwrap()
}

fn claim_of(digit: u8) -> Claim {
    let details = Details {
        ttl: 30_000,
        n: 3,
        ..Details::default()
    };
    Claim {
        token: token(digit),
        details,
        ..claim(false)
    }
}

/// The claim of the waiter of this number, which came in this order, from a host of its own.
fn waits(number: u8) -> Claim {
    let id = Uuid::from_u128(u128::from(number));
    let (user, note) = (String::new(), None);
    let waiter = Waiter {
        id,
        host: format!("host{number}"),
        pid: 1,
        since: 1,
        mode: Mode::Exclusive,
        user,
        note,
    };
    Claim {
        ticket: Some(Ticket {
            waiter,
            number: u64::from(number),
            supersedes: None,
        }),
        ..claim_of(number)
    }
}

fn renew_of(digit: u8, fence: u64) -> Keep {
    Keep {
        token: token(digit),
        fence: Fence::new(fence).unwrap(),
        term: term(),
        index: 0,
        mode: Mode::Exclusive,
        raises_counter: false,
        heal: None,
    }
}

fn heal_of(digit: u8, fence: u64, told: Option<u64>) -> Keep {
    let heal = Heal {
        details: claim_of(digit).details,
        told,
        waiter: None,
    };
    Keep {
        heal: Some(heal),
        ..renew_of(digit, fence)
    }
}

async fn grant(node: &RedisNode, claim: &Claim) -> u64 {
    match node.acquire(claim).await.vote {
        Vote::Granted { fence, .. } => fence.get(),
        vote => panic!("{vote:?}"),
    }
}

/// The number of the waiter whose turn it is.
async fn refused_for(node: &RedisNode, claim: &Claim) -> u128 {
    match node.acquire(claim).await.vote {
        Vote::Blocked(Blocker::Reserved(reservation)) => reservation.waiter.unwrap().id.as_u128(),
        vote => panic!("{vote:?}"),
    }
}

async fn pass(span: Duration) {
    tokio::time::sleep(span).await;
}

fn release_of(claim: &Claim) -> Release {
    claim.release(claim.ticket.clone().map_or(QueueAction::None, |ticket| {
        QueueAction::Leave(ticket.waiter)
    }))
}

#[test]
fn a_token_that_is_not_the_holders_changes_nothing() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        let fence = grant(&node, &claim_of(1)).await;
        pass(TTL / 2).await;
        let before = (host.get("job"), host.counter());
        assert!(matches!(
            node.keep(&renew_of(2, fence)).await,
            Renewal::NotOurs(Revoked::TakenOver, _, _)
        ));
        assert!(matches!(
            node.keep(&heal_of(2, fence, None)).await,
            Renewal::NotOurs(Revoked::TakenOver, _, _)
        ));
        assert!(matches!(
            node.release(&release_of(&claim_of(2))).await,
            ReleaseReply::NotOurs(Revoked::TakenOver)
        ));
        let tombstone = claim_of(2).details.tombstone(token(2), "me".into());
        for how in [
            TakeAway::Tombstone(token(2), tombstone.clone()),
            TakeAway::Delete(token(2), 0, None),
        ] {
            assert_eq!(
                node.take_away(how.clone()).await.unwrap(),
                Some(Revoked::TakenOver),
                "{how:?}"
            );
        }
        assert!(matches!(
            node.acquire(&claim_of(2)).await.vote,
            Vote::Blocked(Blocker::Occupant(_))
        ));
        assert_eq!((host.get("job"), host.counter()), before);
    });
}

#[test]
fn the_holder_extends_its_key_and_carries_its_fence_and_deletes_it() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        let fence = grant(&node, &claim_of(1)).await;
        assert_eq!(
            (host.counter(), host.get("job").unwrap().1),
            (fence, 30_000)
        );
        pass(TTL / 2).await;
        assert!(matches!(
            node.keep(&renew_of(1, fence + 5)).await,
            Renewal::Renewed(_, Some(_))
        ));
        assert_eq!(
            (host.counter(), host.get("job").unwrap().1),
            (fence + 5, 30_000)
        );
        node.keep(&renew_of(1, fence)).await;
        assert_eq!(host.counter(), fence + 5, "no renewal lowers the counter");
        assert!(matches!(
            node.release(&release_of(&claim_of(1))).await,
            ReleaseReply::Released
        ));
        assert_eq!(host.get("job"), None);
    });
}

#[test]
fn a_healing_sets_the_key_again_only_over_the_counter_that_was_told() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        let fence = grant(&node, &claim_of(1)).await;
        host.by_hand(&["DEL", "job"]);
        let higher = fence + 3;
        host.by_hand(&[
            "SET",
            &derived(Derived::Fence),
            &higher.to_string(),
            "PX",
            "100000",
        ]);
        for told in [None, Some(fence), Some(higher + 1)] {
            let healing = node.keep(&heal_of(1, fence, told)).await;
            assert!(
                matches!(healing, Renewal::NotOurs(Revoked::Missing, Some(count), None) if count == higher),
                "{healing:?}"
            );
            assert_eq!(host.get("job"), None);
        }
        let healing = node.keep(&heal_of(1, fence, Some(higher))).await;
        assert!(
            matches!(healing, Renewal::Healed(_, Some(count)) if count == higher),
            "{healing:?}"
        );
        assert_eq!(
            (host.counter(), host.get("job").unwrap().1),
            (higher, 30_000),
            "the counter is not lowered"
        );
    });
}

#[test]
fn a_healing_raises_a_counter_that_was_lost() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        assert!(matches!(
            node.keep(&heal_of(1, 1000, None)).await,
            Renewal::Healed(_, Some(0))
        ));
        assert_eq!((host.counter(), host.get("job").unwrap().1), (1000, 30_000));
    });
}

#[test]
fn a_tombstone_keeps_the_place_until_its_holder_deletes_it() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        let fence = grant(&node, &claim_of(1)).await;
        pass(TTL / 2).await;
        let tombstone = claim_of(1).details.tombstone(token(1), "me".into());
        let broken = node
            .take_away(TakeAway::Tombstone(token(1), tombstone.clone()))
            .await;
        assert_eq!(broken.unwrap(), None);
        let (value, left) = host.get("job").unwrap();
        assert!(
            value.starts_with("broken ") && left == 15_000,
            "{value} for {left} ms"
        );
        assert!(matches!(
            node.keep(&renew_of(1, fence)).await,
            Renewal::Broken(None, _)
        ));
        assert!(matches!(
            node.acquire(&claim_of(2)).await.vote,
            Vote::Blocked(Blocker::Occupant(_))
        ));
        assert!(matches!(
            node.keep(&heal_of(1, fence, None)).await,
            Renewal::Broken(Some(_), _)
        ));
        assert_eq!(host.get("job").unwrap().1, 30_000);
        assert!(matches!(
            node.release(&release_of(&claim_of(1))).await,
            ReleaseReply::Released
        ));
        assert_eq!(host.get("job"), None);
    });
}

#[test]
fn a_forced_deletion_keeps_a_healing_that_is_under_way_out() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        let fence = grant(&node, &claim_of(1)).await;
        assert_eq!(
            node.take_away(TakeAway::Delete(token(1), fence + 9, None))
                .await
                .unwrap(),
            None
        );
        assert_eq!((host.get("job"), host.counter()), (None, fence + 10));
        assert!(matches!(
            node.keep(&heal_of(1, fence, None)).await,
            Renewal::NotOurs(Revoked::Missing, _, _)
        ));
    });
}

#[test]
fn a_forced_deletion_tells_the_next_waiter() {
    virtual_time::run(async {
        let host = Host::new();
        let [holder, waiter] = [(); 2].map(|()| host.node());
        let fence = grant(&holder, &claim_of(9)).await;
        waiter.acquire(&waits(1)).await;
        let how = TakeAway::Delete(token(9), fence, None);
        assert_eq!(holder.take_away(how).await.unwrap(), None);
        pass(Duration::from_millis(1)).await;
        assert_eq!(wake_of(&waiter), Some(Wake::YourTurn));
    });
}

#[test]
fn a_healing_takes_the_holder_out_of_the_queue() {
    virtual_time::run(async {
        let host = Host::new();
        let [holder, waiter] = [(); 2].map(|()| host.node());
        grant(&holder, &claim_of(9)).await;
        waiter.acquire(&waits(1)).await;
        holder.release(&release_of(&claim_of(9))).await;
        // It has won the lock at other nodes.
        let waiter_of = |claim: &Claim| claim.ticket.clone().map(|ticket| ticket.waiter);
        let mut keep = heal_of(1, host.counter(), None);
        keep.heal.as_mut().unwrap().waiter = waiter_of(&waits(1));
        assert!(matches!(waiter.keep(&keep).await, Renewal::Healed(..)));
        assert_eq!(
            (host.queue().len(), host.get(&derived(Derived::Turns))),
            (0, None)
        );
    });
}

#[test]
fn fences_rise_by_the_counter_and_by_the_hint_whatever_the_servers_clock() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        let now = u64::try_from(wall().0).unwrap();
        let next = async |hint: u64, nodes: usize| {
            let claim = Claim {
                fence_hint: hint,
                details: Details {
                    n: nodes,
                    ..Details::default()
                },
                ..claim_of(1)
            };
            let fence = grant(&node, &claim).await;
            node.release(&release_of(&claim)).await;
            fence
        };
        let low = next(7, 3).await;
        assert_eq!(low, 7, "a hint far behind");
        assert_eq!(next(7, 3).await, low + 1, "a counter ahead of the hint");
        assert_eq!(next(now, 3).await, now, "a hint");
        let high = next(now + 3_600_000_000, 3).await;
        assert_eq!(high, now + 3_600_000_000, "a hint far ahead");
        host.by_hand(&["DEL", &derived(Derived::Fence)]);
        assert_eq!(next(7, 1).await, now, "a lone node that lost its counter");
    });
}

#[test]
fn a_node_that_restarted_or_is_a_replica_grants_nothing() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        let guarded = |uptime| Claim {
            guarded: Some(uptime),
            ..claim_of(1)
        };
        let old = Duration::from_secs(3598);
        assert!(matches!(
            node.acquire(&guarded(old * 2)).await.vote,
            Vote::Restarted
        ));
        assert_eq!((host.get("job"), host.counter()), (None, 0));
        grant(&node, &guarded(old)).await;
        // A holder's key on a replica is no answer: no release there would wake the waiter.
        for is_held in [true, false] {
            host.memory().set_replica(true);
            for claim in [
                Claim {
                    token: token(2),
                    ..guarded(old)
                },
                waits(2),
            ] {
                let vote = host.node().acquire(&claim).await.vote;
                assert!(matches!(vote, Vote::Failed(_)), "{vote:?}, held: {is_held}");
            }
            host.memory().set_replica(false);
            host.by_hand(&["DEL", "job"]);
        }
    });
}

#[test]
fn waiters_are_served_in_order_and_newcomers_after_them() {
    virtual_time::run(async {
        let host = Host::new();
        let [holder, first, second] = [host.node(), host.node(), host.node()];
        grant(&holder, &claim_of(9)).await;
        for (node, number) in [(&second, 2), (&first, 1)] {
            assert!(matches!(
                node.acquire(&waits(number)).await.vote,
                Vote::Blocked(Blocker::Occupant(_))
            ));
        }
        assert_eq!(host.queue().len(), 2);
        holder.release(&release_of(&claim_of(9))).await;
        pass(Duration::from_millis(1)).await;
        assert_eq!(
            (wake_of(&first), wake_of(&second)),
            (Some(Wake::YourTurn), Some(Wake::StandBy))
        );
        assert_eq!(refused_for(&holder, &claim_of(8)).await, 1);
        assert_eq!(refused_for(&second, &waits(2)).await, 1);
        grant(&first, &waits(1)).await;
        assert_eq!(
            (host.queue().len(), host.get(&derived(Derived::Turns))),
            (1, None)
        );
    });
}

#[test]
fn a_newcomer_comes_behind_all_others_though_the_clock_was_set_back() {
    virtual_time::run(async {
        let host = Host::new();
        let [holder, waiter, newcomer] = [(); 3].map(|()| host.node());
        grant(&holder, &claim_of(9)).await;
        let mut early = waits(1);
        let hour_ahead = u64::try_from(wall().0).unwrap() + 3_600_000_000;
        early.ticket.as_mut().unwrap().number = hour_ahead;
        waiter.acquire(&early).await;
        let told = newcomer.acquire(&claim_of(2)).await.position.unwrap().now;
        assert_eq!(told, hour_ahead + 1);
    });
}

#[test]
fn a_failed_attempt_keeps_its_place_and_one_that_leaves_passes_its_turn_on() {
    virtual_time::run(async {
        let host = Host::new();
        let [first, second] = [host.node(), host.node()];
        grant(&first, &waits(1)).await;
        assert!(matches!(
            second.acquire(&waits(2)).await.vote,
            Vote::Blocked(Blocker::Occupant(_))
        ));
        let keeps = waits(1).release(QueueAction::Keep(waits(1).ticket.unwrap()));
        first.release(&keeps).await;
        assert_eq!(
            refused_for(&second, &waits(2)).await,
            1,
            "the first has its place again"
        );
        assert_eq!(wake_of(&second), Some(Wake::StandBy));
        let left = waits(1).ticket.unwrap().waiter;
        first.leave(&left).await;
        pass(Duration::from_millis(1)).await;
        assert_eq!(
            (wake_of(&second), host.queue().len()),
            (Some(Wake::YourTurn), 1)
        );
        grant(&second, &waits(2)).await;
    });
}

#[test]
fn a_waiter_that_leaves_gives_a_stalled_head_no_more_time() {
    virtual_time::run(async {
        let host = Host::new();
        let [holder, head, next, other] = [host.node(), host.node(), host.node(), host.node()];
        grant(&holder, &claim_of(9)).await;
        for (node, number) in [(&head, 1), (&next, 2), (&other, 3)] {
            assert!(matches!(
                node.acquire(&waits(number)).await.vote,
                Vote::Blocked(Blocker::Occupant(_))
            ));
        }
        holder.release(&release_of(&claim_of(9))).await;
        pass(Duration::from_millis(300)).await;
        // It had the lock at a minority of other nodes, and gives its place up at all of them.
        assert_eq!(refused_for(&other, &waits(3)).await, 1);
        other.release(&release_of(&waits(3))).await;
        pass(Duration::from_millis(300)).await;
        grant(&next, &waits(2)).await;
        drop(head);
    });
}

#[test]
fn a_head_that_does_not_take_its_turn_in_time_is_passed_over() {
    virtual_time::run(async {
        let host = Host::new();
        let [holder, head, next] = [host.node(), host.node(), host.node()];
        grant(&holder, &claim_of(9)).await;
        for (node, number) in [(&head, 1), (&next, 2)] {
            assert!(matches!(
                node.acquire(&waits(number)).await.vote,
                Vote::Blocked(Blocker::Occupant(_))
            ));
        }
        holder.release(&release_of(&claim_of(9))).await;
        pass(Duration::from_millis(400)).await;
        assert_eq!(refused_for(&next, &waits(2)).await, 1);
        pass(Duration::from_millis(200)).await;
        grant(&next, &waits(2)).await;
        next.release(&release_of(&waits(2))).await;
        // An offer from the future counts as old: the clock was set back.
        assert!(matches!(
            head.acquire(&waits(1)).await.vote,
            Vote::Granted { .. }
        ));
        assert!(matches!(
            next.acquire(&waits(2)).await.vote,
            Vote::Blocked(Blocker::Occupant(_))
        ));
        assert!(matches!(
            holder.acquire(&waits(3)).await.vote,
            Vote::Blocked(Blocker::Occupant(_))
        ));
        head.release(&release_of(&waits(1))).await;
        let ahead = (wall().0 / 1000 + 60_000).to_string();
        let entry = waits(2).ticket.unwrap().waiter.to_string();
        host.by_hand(&["ZADD", &derived(Derived::Turns), &ahead, &entry]);
        grant(&holder, &waits(3)).await;
    });
}

#[test]
fn a_waiter_behind_one_that_has_stalled_has_less_time() {
    virtual_time::run(async {
        let host = Host::new();
        let [holder, head, second, third] = [host.node(), host.node(), host.node(), host.node()];
        grant(&holder, &claim_of(9)).await;
        for (node, number) in [(&head, 1), (&second, 2), (&third, 3)] {
            assert!(matches!(
                node.acquire(&waits(number)).await.vote,
                Vote::Blocked(Blocker::Occupant(_))
            ));
        }
        holder.release(&release_of(&claim_of(9))).await;
        pass(Duration::from_millis(500)).await;
        assert_eq!(refused_for(&third, &waits(3)).await, 2);
        pass(Duration::from_millis(199)).await;
        assert_eq!(refused_for(&third, &waits(3)).await, 2);
        pass(Duration::from_millis(1)).await;
        grant(&third, &waits(3)).await;
    });
}

#[test]
fn waiters_that_listen_no_more_are_removed() {
    virtual_time::run(async {
        let host = Host::new();
        let [holder, gone, also_gone, next] = [host.node(), host.node(), host.node(), host.node()];
        grant(&holder, &claim_of(9)).await;
        for (node, number) in [(&gone, 1), (&also_gone, 2), (&next, 4)] {
            assert!(matches!(
                node.acquire(&waits(number)).await.vote,
                Vote::Blocked(Blocker::Occupant(_))
            ));
        }
        drop(gone);
        pass(Duration::from_millis(1)).await;
        assert!(matches!(
            next.acquire(&waits(4)).await.vote,
            Vote::Blocked(Blocker::Occupant(_))
        ));
        assert_eq!(host.queue().len(), 2, "while the lock is held");
        holder.release(&release_of(&claim_of(9))).await;
        drop(also_gone);
        pass(Duration::from_millis(1)).await;
        grant(&next, &waits(4)).await;
        assert!(host.queue().is_empty(), "where it is free");
    });
}

#[test]
fn a_user_that_may_not_publish_gets_no_place() {
    virtual_time::run(async {
        let host = Host::new();
        let [holder, mute] = [host.node(), host.node()];
        grant(&holder, &claim_of(9)).await;
        host.memory().deny(Right::Command("publish".to_owned()));
        let answer = mute.acquire(&waits(1)).await;
        assert!(answer.position.unwrap().refused.is_some() && host.queue().is_empty());
    });
}

#[test]
fn a_large_foreign_value_is_described_and_not_fetched() {
    virtual_time::run(async {
        let host = Host::new();
        host.by_hand(&["SET", "job", &"x".repeat(1 << 20)]);
        let seen = host
            .node()
            .look(Look::default())
            .await
            .unwrap()
            .foreign
            .unwrap();
        let [kind, length, head] = &seen.0[..] else {
            panic!("{seen:?}")
        };
        assert_eq!((&kind[..], &length[..]), (&b"string"[..], &b"1048576"[..]));
        assert_eq!(head.len(), LARGEST_VALUE);
    });
}

#[test]
fn a_value_that_is_none_of_ours_is_shown_without_its_control_characters() {
    virtual_time::run(async {
        let host = Host::new();
        host.by_hand(&["SET", "job", "\x1b]0;owned\x07"]);
        let seen = host.node().look(Look::default()).await.unwrap();
        let shown = seen.holders[0].told(0);
        assert!(shown.contains("the value \\x1b]0;owned\\x07"), "{shown}");
    });
}

#[test]
fn a_value_of_which_only_the_head_is_told_is_none_of_ours() {
    virtual_time::run(async {
        let host = Host::new();
        // JSON may end in blanks: what was told is a whole value of ours.
        let Claim { token, details, .. } = claim_of(9);
        let value = format!("{:<1$}", details.value(token), LARGEST_VALUE + 1);
        host.by_hand(&["SET", "job", &value]);
        let seen = host.node().look(Look::default()).await.unwrap();
        assert!(seen.foreign.is_some(), "{seen:?}");
        assert!(seen.holders[0].holder().is_none(), "{seen:?}");
    });
}
