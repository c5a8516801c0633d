//! The restart guard at a server that was promoted, on a server in memory that executes the script.

use super::memory::Host;
use super::*;
use crate::node::ServerInfo;

const GUARD: Duration = Duration::from_secs(30);

fn guarded() -> Claim {
    Claim { min_uptime: Some(GUARD), token: Token::fresh(), ..claim("job", false) }
}

fn marker() -> String {
    key().derived(Derived::Primary)
}

/// A server that has been up for an hour, and has just been promoted.
fn promoted() -> Host {
    let host = Host::new();
    promote(&host);
    host
}

fn promote(host: &Host) {
    host.memory().set_replica(true);
    host.memory().set_replica(false);
}

/// Whether the lock is granted, which is given back then; and the time for which the server is known as the primary.
async fn attempt(host: &Host, claim: Claim) -> (bool, Option<u64>) {
    let node = host.node();
    let answer = node.acquire(&claim).await;
    let is_granted = match answer.vote {
        Vote::Granted { .. } => true,
        Vote::Restarted => false,
        vote => panic!("{vote:?}"),
    };
    node.release(&claim.release(QueueAction::None)).await;
    let ServerInfo::Told(identity) = answer.server else { panic!("{:?}", answer.server) };
    (is_granted, identity.is_promoted.then_some(identity.uptime))
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[test]
fn a_server_that_was_promoted_grants_a_lock_some_time_after_the_first_request_for_it() {
    virtual_time::run(async {
        let host = promoted();
        assert_eq!(attempt(&host, guarded()).await, (false, Some(0)));
        pass(30).await;
        assert_eq!(attempt(&host, guarded()).await, (false, Some(30)));
        pass(1).await;
        assert_eq!(attempt(&host, guarded()).await, (true, Some(31)));
        // Another lock there begins anew, and a request without the guard does not wait.
        let other = Claim { key: Key::new("", "other").unwrap(), ..guarded() };
        assert_eq!(attempt(&host, other).await, (false, Some(0)));
        let unguarded = Claim { min_uptime: Some(Duration::ZERO), ..guarded() };
        assert_eq!(attempt(&host, unguarded).await, (true, None));
    });
}

#[test]
fn a_server_that_was_never_promoted_keeps_no_marker() {
    virtual_time::run(async {
        let host = Host::new();
        assert_eq!(attempt(&host, guarded()).await, (true, None));
        assert_eq!(host.get(&marker()), None);
    });
}

#[test]
fn a_marker_that_came_with_its_slot_counts_at_a_server_that_was_never_promoted() {
    virtual_time::run(async {
        let host = Host::new();
        let now = super::memory::wall().0 / 1000;
        host.by_hand(&["SET", &marker(), &format!("0a1b {}", now - 9_000), "PX", "100000"]);
        assert_eq!(attempt(&host, guarded()).await, (false, Some(9)));
        pass(22).await;
        assert_eq!(attempt(&host, guarded()).await, (true, Some(31)));
        // The uptime counts if it is shorter.
        host.by_hand(&["SET", &marker(), &format!("0a1b {}", now - 9_000_000), "PX", "100000"]);
        assert_eq!(attempt(&host, guarded()).await, (true, Some(3_622)));
    });
}

#[test]
fn each_promotion_begins_the_time_anew_though_the_marker_was_kept() {
    virtual_time::run(async {
        let host = promoted();
        attempt(&host, guarded()).await;
        pass(40).await;
        assert_eq!(attempt(&host, guarded()).await, (true, Some(40)));
        promote(&host);
        assert_eq!(attempt(&host, guarded()).await, (false, Some(0)));
    });
}

#[test]
fn a_marker_from_before_the_clock_was_set_back_begins_anew() {
    virtual_time::run(async {
        let host = promoted();
        attempt(&host, guarded()).await;
        let (text, _) = host.get(&marker()).unwrap();
        let (id, since) = text.split_once(' ').unwrap();
        let later = since.parse::<u64>().unwrap() + 3_600_000;
        host.by_hand(&["SET", &marker(), &format!("{id} {later}"), "PX", "100000"]);
        assert_eq!(attempt(&host, guarded()).await, (false, Some(0)));
        pass(31).await;
        assert_eq!(attempt(&host, guarded()).await, (true, Some(31)));
        assert_eq!(host.get(&marker()).unwrap().1, 35 * 24 * 3_600_000);
    });
}

#[test]
fn a_held_lock_is_told_and_the_time_begins_with_that_request() {
    virtual_time::run(async {
        let host = promoted();
        let holder = Claim { min_uptime: None, ..guarded() };
        let node = host.node();
        assert!(matches!(node.acquire(&holder).await.vote, Vote::Granted { .. }));
        assert!(matches!(host.node().acquire(&guarded()).await.vote, Vote::Held(_)));
        pass(31).await;
        node.release(&holder.release(QueueAction::None)).await;
        assert_eq!(attempt(&host, guarded()).await, (true, Some(31)));
    });
}
