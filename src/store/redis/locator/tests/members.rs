//! Slots that move between simulated members of a cluster.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::{Cluster, Confirmation, HashSlot, Location, Locator, Source};
use super::{GRANTED, LIMIT, SimulatedServer, claim, key};
use crate::clock::{self, virtual_time};
use crate::lock::messages::QueueAction;
use crate::store::redis::RedisServer;
use crate::store::redis::connection::REPLY_LIMIT;
use crate::store::{FaultKind, Node, ReleaseReply, Renewal, Store, Vote};

const MOVED: &str = "-MOVED 1 h:2\r\n";

const ASK: &str = "-ASK 1 h:2\r\n";

const RELEASED: &str = "*1\r\n$8\r\nreleased\r\n";

const RENEWED: &str = "*2\r\n$7\r\nrenewed\r\n$1\r\n7\r\n";

/// Added to the port of a map with a third member, which serves the last slot.
const AND_THIRD: u16 = 10;

/// A reply to `CLUSTER SLOTS`: all slots are served on `port`, and the other member is a replica.
/// None for port 0.
pub(super) fn map(port: u16) -> String {
    let node = |port: u16| format!("*2\r\n$1\r\nh\r\n:{port}\r\n");
    match port {
        0 => String::new(),
        AND_THIRD.. => {
            let pair = format!("{}{}", node(port - AND_THIRD), node(3 + AND_THIRD - port));
            format!(
                "*2\r\n*4\r\n:0\r\n:16382\r\n{pair}*3\r\n:16383\r\n:16383\r\n{}",
                node(3)
            )
        }
        _ => format!(
            "*1\r\n*4\r\n:0\r\n:16383\r\n{}{}",
            node(port),
            node(3 - port)
        ),
    }
}

/// A member that gives these replies, and tells maps with these primaries.
fn member(replies: &[&'static str], maps: &[u16]) -> SimulatedServer {
    let member = SimulatedServer::replying(replies);
    member.maps.lock().unwrap().extend(maps);
    member
}

/// A lock in the cluster of these members.
fn node(members: [&SimulatedServer; 2]) -> Box<dyn Node> {
    RedisServer::at("c".to_owned(), locator(members), LIMIT, REPLY_LIMIT).open(&key())
}

/// The cluster of these members on the ports from 1 on, of which the first is the seed.
fn locator<const N: usize>(members: [&SimulatedServer; N]) -> Locator {
    let members = members.map(Clone::clone);
    let server_at = Box::new(move |location: &Location| {
        members[usize::from(location.port) - 1].connector(location.port)
    });
    let seed = Location {
        host: "h".to_owned(),
        port: 1,
    };
    Locator::Cluster(Arc::new(Cluster::new(vec![seed], server_at, LIMIT)))
}

async fn asked(member: &SimulatedServer, times: usize) {
    while member.was_asked() < times {
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_request_that_was_sent_away_goes_where_the_new_map_says() {
    virtual_time::run(async {
        let (old, new) = (member(&[MOVED], &[1, 2]), member(&[GRANTED], &[2]));
        let (node, claim) = (node([&old, &new]), claim());
        assert!(matches!(
            node.acquire(&claim).await.vote,
            Vote::Granted { .. }
        ));
        assert_eq!((old.was_asked(), new.was_asked()), (1, 1));
    });
}

#[test]
fn a_renewal_that_is_waited_for_no_more_delays_no_release() {
    virtual_time::run(async {
        let (primary, replica) = (
            member(&[GRANTED, RENEWED, RELEASED], &[1]),
            member(&[], &[1, 1, 1]),
        );
        let (node, claim) = (node([&primary, &replica]), claim());
        let Vote::Granted { fence, .. } = node.acquire(&claim).await.vote else {
            panic!()
        };
        let mut renewal = node.keep(&claim.renewal(fence));
        let is_confirmed = async {
            while replica.maps.lock().unwrap().len() > 1 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! { biased; () = is_confirmed => {} _ = &mut renewal => panic!("it is being confirmed") }
        let released = clock::until(
            clock::now() + LIMIT,
            node.release(&claim.release(QueueAction::None)),
        )
        .await;
        assert!(
            matches!(released, Some(ReleaseReply::Released)),
            "{released:?}"
        );
        drop(renewal);
    });
}

#[test]
fn a_release_cancels_a_set_that_is_on_its_way_to_another_member() {
    virtual_time::run(async {
        // The new map comes some time later, from the other member.
        let (old, new) = (
            member(&[MOVED], &[1, 0]),
            member(&["*1\r\n$6\r\nabsent\r\n"], &[2]),
        );
        let (node, claim) = (node([&old, &new]), claim());
        let mut answer = node.acquire(&claim);
        tokio::select! { biased; () = asked(&old, 1) => {} _ = &mut answer => panic!("it is on its way") }
        let release = node.release(&claim.release(QueueAction::None));
        let Vote::Failed(fault) = answer.await.vote else {
            panic!()
        };
        assert!(
            fault.kind == FaultKind::Unavailable && fault.why.contains("given up"),
            "{fault}"
        );
        assert!(matches!(release.await, ReleaseReply::NotOurs(_)));
        assert_eq!(new.was_asked(), 1, "the SET is not sent any more");
    });
}

#[test]
fn a_key_on_its_way_is_renewed_behind_asking_and_a_request_goes_to_no_other_member() {
    virtual_time::run(async {
        let (source, target) = (member(&[GRANTED, ASK], &[1]), member(&[RENEWED], &[1]));
        let (node, claim) = (node([&source, &target]), claim());
        let Vote::Granted { fence, .. } = node.acquire(&claim).await.vote else {
            panic!()
        };
        assert!(matches!(
            node.keep(&claim.renewal(fence)).await,
            Renewal::Renewed(..)
        ));
        let at_target = target.asked.lock().unwrap().clone();
        assert!(
            matches!(&at_target[..], [asking, _] if asking == "ASKING"),
            "{at_target:?}"
        );
        assert_eq!(source.was_asked(), 2);
    });
}

const TRY_AGAIN: &str = "-TRYAGAIN Multiple keys request during rehashing of slot\r\n";

const ABSENT: &str = "*2\r\n$6\r\nabsent\r\n$0\r\n\r\n";

#[test]
fn a_renewal_is_served_by_the_locks_own_key_wherever_that_is_while_the_slot_moves() {
    virtual_time::run(async {
        for at_source in [true, false] {
            let last = if at_source { RENEWED } else { ASK };
            let (source, target) = (
                member(&[GRANTED, TRY_AGAIN, last], &[1]),
                member(&[RENEWED], &[1]),
            );
            let (node, claim) = (node([&source, &target]), claim());
            let Vote::Granted { fence, .. } = node.acquire(&claim).await.vote else {
                panic!()
            };
            assert!(matches!(
                node.keep(&claim.renewal(fence)).await,
                Renewal::Renewed(..)
            ));
            assert_eq!(
                (source.was_asked(), target.was_asked()),
                (3, if at_source { 0 } else { 2 })
            );
            // It names one key.
            assert!(source.asked.lock().unwrap()[2].starts_with("job "));
        }
    });
}

#[test]
fn a_grant_is_a_missing_vote_while_the_slot_moves_and_so_is_a_confirmation() {
    virtual_time::run(async {
        for word in [ASK, TRY_AGAIN] {
            let (source, target) = (member(&[word], &[1]), member(&[GRANTED], &[1]));
            let (node, claim) = (node([&source, &target]), claim());
            let Vote::Failed(fault) = node.acquire(&claim).await.vote else {
                panic!()
            };
            assert!(
                fault.kind == FaultKind::Unavailable
                    && fault.why.contains("moving the lock's slot"),
                "{fault}"
            );
            let fence = crate::lock::fence::Fence::new(7).unwrap();
            assert!(matches!(
                node.keep(&claim.confirmation(fence)).await,
                Renewal::Failed(_)
            ));
            assert_eq!((source.was_asked(), target.was_asked()), (2, 0));
        }
    });
}

#[test]
fn absent_at_the_source_is_asked_for_at_the_target() {
    virtual_time::run(async {
        let (source, target) = (
            member(&[GRANTED, TRY_AGAIN, ASK], &[1]),
            member(&[ABSENT], &[1]),
        );
        let (node, claim) = (node([&source, &target]), claim());
        let Vote::Granted { fence, .. } = node.acquire(&claim).await.vote else {
            panic!()
        };
        assert!(matches!(
            node.keep(&claim.renewal(fence)).await,
            Renewal::NotOurs(..)
        ));
    });
}

#[test]
fn a_member_is_asked_again_over_the_connection_that_is_kept() {
    virtual_time::run(async {
        let (server, other) = (member(&[GRANTED, RENEWED], &[1]), member(&[], &[1]));
        let (node, claim) = (node([&server, &other]), claim());
        let Vote::Granted { fence, .. } = node.acquire(&claim).await.vote else {
            panic!()
        };
        for _ in 0..3 {
            assert!(matches!(
                node.keep(&claim.renewal(fence)).await,
                Renewal::Renewed(..)
            ));
        }
        let opened = [&server, &other].map(|member| member.opened.load(Ordering::Relaxed));
        assert_eq!(
            opened,
            [2, 1],
            "one as the seed, one for the lock, and one to confirm it"
        );
    });
}

#[test]
fn a_late_answer_of_the_member_to_which_a_slot_goes_is_not_confirmed() {
    virtual_time::run(async {
        let members = [1, 1].map(|port| member(&[], &[port]));
        let (locator, slot) = (locator([&members[0], &members[1]]), HashSlot::of(&key()));
        let site = locator
            .find(Some(slot))
            .await
            .unwrap_or_else(|fault| panic!("{fault}"));
        for (is_late, is_detour) in [(false, true), (true, false), (true, true)] {
            let source = Source {
                site: Arc::clone(&site),
                slot: Some(slot),
                is_late,
                is_detour,
            };
            let is_present = matches!(locator.confirm(&source).await, Confirmation::Present);
            assert_eq!(
                is_present,
                !(is_late && is_detour),
                "late: {is_late}, of that member: {is_detour}"
            );
        }
    });
}

#[test]
fn a_server_is_confirmed_by_its_replica_which_is_the_first_to_know_that_it_took_over() {
    virtual_time::run(async {
        for (of_replica, is_present) in [(AND_THIRD + 1, true), (AND_THIRD + 2, false)] {
            // The third member still names the old primary. Whose turn it is to be asked changes
            // each time.
            let maps = [AND_THIRD + 1, of_replica, AND_THIRD + 1];
            let members = maps.map(|port| member(&[], &[port]));
            let (locator, slot) = (
                locator([&members[0], &members[1], &members[2]]),
                HashSlot::of(&key()),
            );
            let site = locator
                .find(Some(slot))
                .await
                .unwrap_or_else(|fault| panic!("{fault}"));
            for round in 0..4 {
                let source = Source {
                    site: Arc::clone(&site),
                    slot: Some(slot),
                    is_late: false,
                    is_detour: false,
                };
                let confirmation = locator.confirm(&source).await;
                assert_eq!(
                    matches!(confirmation, Confirmation::Present),
                    is_present,
                    "{round}"
                );
                if !is_present {
                    break;
                }
            }
        }
    });
}

#[test]
fn a_stranger_is_asked_for_nothing() {
    virtual_time::run(async {
        for word in ["-MOVED 1 h:9\r\n", "-ASK 1 h:9\r\n"] {
            let (liar, other) = (member(&[word], &[1]), member(&[GRANTED], &[1]));
            let (node, claim) = (node([&liar, &other]), claim());
            let Vote::Failed(fault) = node.acquire(&claim).await.vote else {
                panic!()
            };
            assert_eq!(fault.kind, FaultKind::Unavailable, "{fault}");
            assert_eq!(other.was_asked(), 0);
        }
    });
}

#[test]
fn a_server_that_was_silent_counts_only_while_another_member_names_it() {
    virtual_time::run(async {
        for (maps, counts) in [([1, 1, 1], true), ([1, 1, 2], false)] {
            // The second request is not answered, the third one is. The other member confirms the
            // grant, leads to the server that was silent, and is asked again after the reply.
            let (old, other) = (member(&[GRANTED, "", RENEWED], &[1]), member(&[], &maps));
            let (node, claim) = (node([&old, &other]), claim());
            let Vote::Granted { fence, .. } = node.acquire(&claim).await.vote else {
                panic!()
            };
            drop(node.keep(&claim.renewal(fence)));
            tokio::time::sleep(LIMIT).await;
            let renewal = node.keep(&claim.renewal(fence)).await;
            assert_eq!(
                matches!(renewal, Renewal::Renewed(..)),
                counts,
                "{renewal:?}"
            );
        }
    });
}

#[test]
fn a_request_is_sent_away_five_times_at_most() {
    virtual_time::run(async {
        // Each member's map leads to the other one.
        let members = [(); 2].map(|()| member(&[MOVED], &[1, 2]));
        for member in &members {
            member.maps.lock().unwrap().extend([1, 2].repeat(20));
        }
        let (node, claim) = (node([&members[0], &members[1]]), claim());
        let Vote::Failed(fault) = node.acquire(&claim).await.vote else {
            panic!()
        };
        assert!(
            fault.kind == FaultKind::Unavailable && fault.why.contains("moving the lock's slot"),
            "{fault}"
        );
        let asked = members
            .iter()
            .map(SimulatedServer::was_asked)
            .sum::<usize>();
        assert!((2..=6).contains(&asked), "{asked}");
    });
}
