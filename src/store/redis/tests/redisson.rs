//! Locks in the form of Redisson's, and locks of Redisson, on a server in memory.

use ::simulation::server::Value as Stored;

use super::memory::{Host, wall};
use super::*;
use crate::lock::blocker::Blocker;
use crate::lock::fence::Fence;
use crate::lock::occupant::OccupantKind;
use crate::store::Keep;

const CHANNEL: &str = "redisson_lock__channel:{job}";

fn redissons(host: &Host) -> RedisNode {
    RedisNode {
        form: Form::Redisson,
        ..host.node()
    }
}

fn fresh() -> Claim {
    let details = Details {
        ttl: 30_000,
        n: 3,
        ..Details::default()
    };
    Claim {
        token: Token::fresh(),
        details,
        ..claim(false)
    }
}

fn waits(number: u8) -> Claim {
    let id = Uuid::from_u128(u128::from(number));
    let (host, user, note) = (format!("host{number}"), String::new(), None);
    let waiter = Waiter {
        id,
        host,
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
        ..fresh()
    }
}

async fn grant(node: &RedisNode, claim: &Claim) -> Fence {
    match node.acquire(claim).await.vote {
        Vote::Granted { fence, .. } => fence,
        vote => panic!("{vote:?}"),
    }
}

fn renew(claim: &Claim, fence: Fence) -> Keep {
    Keep {
        token: claim.token,
        fence,
        term: term(),
        index: 0,
        mode: Mode::Exclusive,
        raises_counter: false,
        heal: None,
    }
}

/// Returns the fields of the lock's hash, and the ms that it has left.
fn hash(host: &Host) -> (Vec<(String, String)>, i64) {
    let memory = host.memory();
    let entry = memory.get(b"job", wall()).expect("a lock");
    let Stored::Hash(fields) = &entry.value else {
        panic!("no hash")
    };
    let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
    let fields = fields
        .iter()
        .map(|(field, value)| (text(field), text(value)))
        .collect();
    (fields, entry.expires.expect("an expiry") - wall().0 / 1000)
}

fn field(host: &Host, name: &str) -> Option<String> {
    hash(host)
        .0
        .into_iter()
        .find_map(|(field, value)| (field == name).then_some(value))
}

#[test]
fn the_hash_is_granted_renewed_healed_and_released_as_the_string_is() {
    virtual_time::run(async {
        let (host, ours, other) = (Host::new(), fresh(), fresh());
        let node = redissons(&host);
        let fence = grant(&node, &ours).await;
        let ttl = i64::try_from(TTL.as_millis()).unwrap();
        assert_eq!(
            field(&host, &format!("{}:1", ours.token)).as_deref(),
            Some("1")
        );
        assert_eq!(
            (field(&host, "mode").as_deref(), hash(&host).1),
            (Some("rlock"), ttl)
        );
        assert!(
            matches!(node.acquire(&other).await.vote, Vote::Blocked(Blocker::Occupant(who)) if who.holder().unwrap().0 == ours.token)
        );
        tokio::time::sleep(TTL / 2).await;
        let taken_over = node.keep(&renew(&other, fence)).await;
        assert!(
            matches!(taken_over, Renewal::NotOurs(Revoked::TakenOver, _, _)) && hash(&host).1 < ttl,
            "{taken_over:?}"
        );
        assert!(
            matches!(node.keep(&renew(&ours, fence)).await, Renewal::Renewed(..))
                && hash(&host).1 == ttl
        );
        host.by_hand(&["DEL", "job"]);
        assert!(matches!(
            node.keep(&renew(&ours, fence)).await,
            Renewal::NotOurs(Revoked::Missing, _, _)
        ));
        assert!(matches!(
            node.keep(&ours.healing(fence, Some(fence.get()))).await,
            Renewal::Healed(..)
        ));
        assert!(
            field(&host, "rlock").is_some_and(|value| value.starts_with(&ours.token.to_string()))
        );
        assert!(matches!(
            node.release(&other.release(QueueAction::None)).await,
            ReleaseReply::NotOurs(_)
        ));
        assert_eq!(hash(&host).1, ttl);
        assert!(matches!(
            node.release(&ours.release(QueueAction::None)).await,
            ReleaseReply::Released
        ));
        assert!(host.memory().get(b"job", wall()).is_none());
        assert!(grant(&node, &other).await > fence);
    });
}

#[test]
fn a_tombstone_stays_in_the_hash_until_the_holder_deletes_it() {
    virtual_time::run(async {
        let (host, ours) = (Host::new(), fresh());
        let node = redissons(&host);
        let fence = grant(&node, &ours).await;
        let tombstone = ours.details.tombstone(ours.token, "me".into());
        let broken = node
            .take_away(TakeAway::Tombstone(ours.token, tombstone.clone()))
            .await;
        assert_eq!(broken.unwrap(), None);
        assert_eq!(field(&host, "rlock"), Some(tombstone));
        assert!(matches!(
            node.keep(&renew(&ours, fence)).await,
            Renewal::Broken(..)
        ));
        assert!(matches!(
            host.node().acquire(&fresh()).await.vote,
            Vote::Blocked(Blocker::Occupant(_))
        ));
        assert!(matches!(
            node.release(&ours.release(QueueAction::None)).await,
            ReleaseReply::Released
        ));
        assert!(host.memory().get(b"job", wall()).is_none());
    });
}

#[test]
fn each_end_of_the_hash_is_told_on_redissons_channel_and_that_of_a_string_is_not() {
    virtual_time::run(async {
        let (host, heard) = (Host::new(), Arc::new(Words::default()));
        let hearing = host.node();
        let Vote::Blocked(Blocker::Occupant(_)) = ({
            host.by_hand(&["HSET", "job", "7c8a:1", "1"]);
            hearing.acquire(&waits(1)).await.vote
        }) else {
            panic!("a lock of Redisson's")
        };
        hearing.leave(&waits(1).ticket.unwrap().waiter).await;
        hearing.pool.listen(CHANNEL, &heard);
        host.by_hand(&["DEL", "job"]);
        let told = || async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            heard.try_next().is_some()
        };
        for (node, is_told) in [(redissons(&host), true), (host.node(), false)] {
            let ours = fresh();
            grant(&node, &ours).await;
            assert!(matches!(
                node.release(&ours.release(QueueAction::None)).await,
                ReleaseReply::Released
            ));
            assert_eq!(told().await, is_told);
            let fence = grant(&node, &ours).await;
            let how = TakeAway::Delete(ours.token, fence.get(), None);
            assert_eq!(node.take_away(how).await.unwrap(), None);
            assert_eq!(told().await, is_told);
        }
    });
}

#[test]
fn the_first_waiter_behind_a_lock_of_redisson_hears_of_its_end_at_once() {
    virtual_time::run(async {
        let host = Host::new();
        host.by_hand(&["HSET", "job", "7c8a:1", "1"]);
        let (first, second) = (host.node(), host.node());
        for (node, number) in [(&first, 1), (&second, 2)] {
            let Vote::Blocked(Blocker::Occupant(who)) = node.acquire(&waits(number)).await.vote
            else {
                panic!("it is held")
            };
            assert!(matches!(who.who, OccupantKind::Foreign(_)), "{who:?}");
        }
        assert_eq!(
            host.by_hand(&["PUBLISH", CHANNEL, "0"]),
            ":1\r\n",
            "only the first one listens"
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(
            (wake_of(&first), wake_of(&second)),
            (Some(Wake::YourTurn), None)
        );
    });
}

#[test]
fn a_hash_without_a_value_of_ours_is_foreign_however_large_its_fields_are() {
    virtual_time::run(async {
        let (host, long) = (Host::new(), "x".repeat(1025));
        let node = redissons(&host);
        for fields in [["7c8a:1", "1"], ["rlock", ""], ["rlock", &long]] {
            host.by_hand(&["DEL", "job"]);
            host.by_hand(&["HSET", "job", fields[0], fields[1]]);
            let Vote::Blocked(Blocker::Occupant(who)) = node.acquire(&fresh()).await.vote else {
                panic!("it is held")
            };
            assert_eq!(who.who, OccupantKind::Foreign("a hash".to_owned()));
        }
    });
}
