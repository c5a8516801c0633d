//! In one line with the locks of Curator and kazoo.

use testkit::ZooKeeper;
use testkit::zookeeper::Peer;

use crate::support::{alive, eventually};

use super::{HOLD, about, curator, kazoo, run, until_waiting, waiter, with_server};

/// The clients and the kinds of their locks; `true`: a reader's.
fn all(server: &ZooKeeper) -> Vec<(Peer, Vec<(&'static str, bool)>)> {
    let of_kazoo = vec![("Lock", false), ("WriteLock", false), ("ReadLock", true)];
    let of_curator = vec![("Mutex", false), ("Write", false), ("Read", true)];
    let clients = [(kazoo(server), of_kazoo), (curator(server), of_curator)];
    let is_there = |(client, kinds): (Option<Peer>, _)| Some((client?, kinds));
    clients.into_iter().filter_map(is_there).collect()
}

/// The lock of kazoo behind which no writer may wait. It waits for writers that came later than
/// itself, kazoo's own too (kazoo 2.8, `_get_predecessor`). Then both wait for ever.
const STUCK: &str = "ReadLock";

#[test]
fn each_lock_of_another_client_waits_behind_a_run_and_keeps_the_next_one_out() {
    with_server(|server| {
        for (mut peer, kinds) in all(server) {
            for (kind, _) in kinds {
                let mut holder = run(server, "peers").hold(HOLD);
                peer.ask(&format!("lock mine {kind} /peers"));
                until_waiting(server, "peers", 1);
                run(server, "peers").args(["-n"]).sh("true").code(75);
                let has_next = kind != STUCK;
                let next = has_next.then(|| waiter(server, "peers", 2, "echo mine"));
                assert!(!peer.has("mine"), "{kind} beside an rlock");
                drop(holder.stdin.take());
                holder.finish().code(0);
                peer.holds("mine");
                let busy = run(server, "peers").args(["-n"]).sh("true").code(75);
                busy.mentions(&["held by a client that is not rlock", "of session 0x"]);
                if let Some(mut next) = next {
                    assert!(next.is_running(), "an rlock beside {kind}");
                    peer.ask("unlock mine");
                    next.wait_for("mine");
                } else {
                    peer.ask("unlock mine");
                }
            }
        }
    });
}

#[test]
fn readers_of_all_clients_share_the_lock_and_keep_writers_out() {
    with_server(|server| {
        let mut peers = all(server);
        for (peer, kinds) in &mut peers {
            for (kind, _) in kinds.iter().filter(|(_, is_reader)| *is_reader) {
                peer.ask(&format!("lock mine {kind} /readers"));
                peer.holds("mine");
            }
        }
        run(server, "readers").args(["-n", "-s"]).sh("true").code(0);
        if !peers.is_empty() {
            run(server, "readers").args(["-n"]).sh("true").code(75);
        }
        let reader = run(server, "readers").args(["-s"]).hold(HOLD);
        for (peer, _) in &mut peers {
            peer.ask("unlock mine");
        }
        for (index, (peer, kinds)) in peers.iter_mut().enumerate() {
            let writer = kinds[1].0;
            peer.ask(&format!("lock writer {writer} /readers"));
            until_waiting(server, "readers", index + 1);
            run(server, "readers")
                .args(["-n", "-s"])
                .sh("true")
                .code(75);
            assert!(!peer.has("writer"), "{writer} beside a reader");
        }
        drop(reader);
        for (peer, _) in &mut peers {
            peer.holds("writer");
            peer.ask("unlock writer");
        }
    });
}

#[test]
fn a_lock_that_curator_wants_back_is_given_back() {
    with_server(|server| {
        let Some(mut curator) = curator(server) else {
            return;
        };
        let Some(mut kazoo) = kazoo(server) else {
            return;
        };
        let holder = run(server, "revoked").hold(HOLD);
        let entries = kazoo.ask("children /revoked");
        let first = entries.split(' ').find(|entry| entry.contains("-lock-"));
        let first = first.expect("an entry of a mutex");
        curator.ask(&format!("revoke /revoked/{first}"));
        let pid = holder.seen_pids(&["pid"])[0];
        eventually("the command is dead", || !alive(pid));
        holder
            .finish()
            .code(79)
            .mentions(&["a client of Curator broke the lock"]);
        run(server, "revoked").args(["-n"]).sh("true").code(0);
    });
}

#[test]
fn another_clients_lock_is_deleted_on_request() {
    with_server(|server| {
        let Some(mut kazoo) = kazoo(server) else {
            return;
        };
        kazoo.ask("lock mine Lock /foreign");
        kazoo.holds("mine");
        let refused = about(server, "break", "foreign")
            .args(["--yes"])
            .finish()
            .code(64);
        refused.mentions(&["give --foreign"]);
        about(server, "break", "foreign")
            .args(["--yes", "--foreign"])
            .finish()
            .code(0);
        run(server, "foreign").args(["-n"]).sh("true").code(0);
    });
}
