//! The rules of waiters with `--supersede`, on a server in memory that executes the scripts.

use super::memory::{Host, wall};
use super::*;
use crate::lock::blocker::Blocker;

/// The claim of the waiter of this number, which came in this order and supersedes the older ones.
fn comes(number: u8, mode: Mode) -> Claim {
    let waiter = Waiter {
        mode,
        ..Waiter::example(number)
    };
    let came = 1_700_000_000_000_000 + u64::from(number);
    let ticket = Ticket {
        waiter,
        number: u64::from(number),
        supersedes: Some(came),
    };
    let details = Details {
        mode,
        ttl: 30_000,
        n: 3,
        ..Details::default()
    };
    Claim {
        ticket: Some(ticket),
        details,
        index: mode.number().map_or(0, |_| 1),
        ..claim(false)
    }
}

/// The claim of the same waiter without the option.
fn waits(number: u8) -> Claim {
    let claim = comes(number, Mode::Exclusive);
    Claim {
        ticket: claim.ticket.clone().map(|ticket| Ticket {
            supersedes: None,
            ..ticket
        }),
        ..claim
    }
}

/// The number of the waiter that ends the claim's; `None` if none does.
async fn superseded(node: &RedisNode, claim: &Claim) -> Option<u128> {
    match node.acquire(claim).await.vote {
        Vote::Blocked(Blocker::Newer(newer)) => newer.map(|newer| newer.id.as_u128()),
        _ => None,
    }
}

async fn holds(host: &Host) -> (RedisNode, Claim) {
    let (node, claim) = (host.node(), claim(false));
    assert!(matches!(
        node.acquire(&claim).await.vote,
        Vote::Granted { .. }
    ));
    (node, claim)
}

fn newest() -> String {
    derived(Derived::Newest)
}

#[test]
fn a_newcomer_ends_older_waiters_with_the_option_and_no_other() {
    for mode in [Mode::Exclusive, Mode::Shared, Mode::Slots(2)] {
        virtual_time::run(async {
            let host = Host::new();
            let [plain, a, b] = [host.node(), host.node(), host.node()];
            let holder = holds(&host).await;
            plain.acquire(&waits(1)).await;
            assert_eq!(superseded(&a, &comes(2, mode)).await, None);
            assert_eq!(superseded(&b, &comes(3, mode)).await, None);
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert_eq!(wake_of(&a), Some(Wake::YourTurn), "it is told to ask");
            assert_eq!(wake_of(&plain), None);
            assert_eq!(host.queue().len(), 2, "the older one has no place");
            assert_eq!(superseded(&a, &comes(2, mode)).await, Some(3));
            assert_eq!(superseded(&b, &comes(3, mode)).await, None);
            assert_eq!(host.queue().len(), 2);
            assert!(
                host.get(&newest())
                    .is_some_and(|(_, left)| left > 86_400_000)
            );
            drop(holder);
        });
    }
}

#[test]
fn of_two_that_came_at_once_one_stays() {
    virtual_time::run(async {
        let host = Host::new();
        let _holder = holds(&host).await;
        let [first, mut second] = [comes(1, Mode::Exclusive), comes(2, Mode::Exclusive)];
        second.ticket.as_mut().unwrap().supersedes = first.ticket.as_ref().unwrap().supersedes;
        assert_eq!(superseded(&host.node(), &second).await, None);
        assert_eq!(superseded(&host.node(), &first).await, Some(2));
        assert_eq!(superseded(&host.node(), &second).await, None);
    });
}

#[test]
fn an_abort_puts_no_superseded_waiter_back() {
    for mode in [Mode::Exclusive, Mode::Shared] {
        virtual_time::run(async {
            let host = Host::new();
            let [a, b] = [host.node(), host.node()];
            let (old, new) = (comes(1, mode), comes(2, mode));
            let keeps =
                |claim: &Claim| claim.release(QueueAction::Keep(claim.ticket.clone().unwrap()));
            assert!(matches!(a.acquire(&old).await.vote, Vote::Granted { .. }));
            a.release(&keeps(&old)).await;
            assert_eq!(host.queue().len(), 1, "it goes on waiting");
            assert!(matches!(a.acquire(&old).await.vote, Vote::Granted { .. }));
            b.acquire(&Claim {
                details: Details {
                    mode: Mode::Exclusive,
                    ..new.details.clone()
                },
                ..new.clone()
            })
            .await;
            a.release(&keeps(&old)).await;
            assert_eq!(host.queue(), [new.ticket.unwrap().waiter.to_string()]);
        });
    }
}

#[test]
fn a_free_lock_is_given_to_no_superseded_waiter_which_passes_its_turn_on() {
    virtual_time::run(async {
        let host = Host::new();
        let [a, plain] = [host.node(), host.node()];
        let (holder, held) = holds(&host).await;
        a.acquire(&comes(1, Mode::Exclusive)).await;
        plain.acquire(&waits(2)).await;
        // The newer waiter had no word for the older one, and has gone.
        let newer = comes(3, Mode::Exclusive).ticket.unwrap().newest();
        host.by_hand(&["SET", &newest(), &newer, "PX", "60000"]);
        holder.release(&held.release(QueueAction::None)).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(
            (wake_of(&a), wake_of(&plain)),
            (Some(Wake::YourTurn), Some(Wake::StandBy))
        );
        assert_eq!(superseded(&a, &comes(1, Mode::Exclusive)).await, Some(3));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(wake_of(&plain), Some(Wake::YourTurn));
        assert!(matches!(
            plain.acquire(&waits(2)).await.vote,
            Vote::Granted { .. }
        ));
    });
}

#[test]
fn a_lock_that_was_won_at_once_ends_the_older_waiters_too() {
    virtual_time::run(async {
        let host = Host::new();
        let node = host.node();
        let _holder = holds(&host).await;
        node.announce(&comes(2, Mode::Exclusive)).await;
        assert_eq!(superseded(&node, &comes(1, Mode::Exclusive)).await, Some(2));
        assert_eq!(superseded(&node, &comes(3, Mode::Exclusive)).await, None);
        node.announce(&comes(2, Mode::Exclusive)).await;
        assert_eq!(
            superseded(&node, &comes(3, Mode::Exclusive)).await,
            None,
            "a late word of an older one"
        );
    });
}

#[test]
fn a_place_that_moves_is_kept_though_a_newer_waiter_has_come() {
    virtual_time::run(async {
        let host = Host::new();
        let [a, b] = [host.node(), host.node()];
        let old = comes(1, Mode::Slots(2));
        assert!(matches!(
            a.acquire(&old).await.vote,
            Vote::Granted { index: 1, .. }
        ));
        b.acquire(&comes(2, Mode::Exclusive)).await;
        let moved = Claim {
            index: 2,
            is_exact: true,
            ..old
        };
        assert!(matches!(
            a.acquire(&moved).await.vote,
            Vote::Granted { index: 2, .. }
        ));
    });
}

#[test]
fn a_newest_waiter_from_the_future_came_before_the_clock_was_set_back() {
    let came = |seconds: i64| {
        format!(
            "{:016} {} h 1 1",
            wall().0 + seconds * 1_000_000,
            Uuid::from_u128(9)
        )
    };
    virtual_time::run(async {
        let of = |n| {
            let claim = comes(1, Mode::Exclusive);
            Claim {
                details: Details {
                    n,
                    ..claim.details.clone()
                },
                ..claim
            }
        };
        // Clocks of several nodes differ.
        for (n, ahead, ends) in [
            (1, 1, None),
            (1, -1, Some(9)),
            (3, 30, Some(9)),
            (3, 90, None),
        ] {
            let host = Host::new();
            let _holder = holds(&host).await;
            host.by_hand(&["SET", &newest(), &came(ahead), "PX", "60000"]);
            assert_eq!(
                superseded(&host.node(), &of(n)).await,
                ends,
                "{n} nodes, {ahead} s ahead"
            );
        }
    });
}

#[test]
fn a_newest_waiter_that_is_none_ends_no_other() {
    virtual_time::run(async {
        let host = Host::new();
        let _holder = holds(&host).await;
        host.by_hand(&["SET", &newest(), "x", "PX", "60000"]);
        assert_eq!(
            superseded(&host.node(), &comes(1, Mode::Exclusive)).await,
            None
        );
        host.by_hand(&["DEL", &newest()]);
        host.by_hand(&["HSET", &newest(), "f", "v"]);
        assert_eq!(
            superseded(&host.node(), &comes(2, Mode::Exclusive)).await,
            None
        );
        assert_eq!(host.queue().len(), 1, "the first one listens no more");
    });
}
