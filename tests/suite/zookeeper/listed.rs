//! `inspect` without a lock's name.

use testkit::ZooKeeper;

use crate::support::{eventually, rlock_words};

use super::{HOLD, curator, kazoo, run, with_server};

/// Returns the names of the locks that `inspect` finds.
fn found(server: &ZooKeeper, chroot: &str, words: &[&str]) -> Vec<String> {
    let node = format!("{}{chroot}", server.url());
    let seen = rlock_words([&["inspect", "--format", "json"], words].concat()).node(&node);
    let seen = seen.finish();
    let told = seen.stdout.join("\n");
    let names = told.split("\"key\":\"").skip(1);
    let names = names.filter_map(|rest| rest.split('"').next());
    names.map(str::to_owned).collect()
}

#[test]
fn locks_of_all_clients_are_found_below_the_chroot() {
    with_server(|server| {
        let holders = ["listed/a", "listed/deep/b"].map(|name| run(server, name).hold(HOLD));
        let mut expected = vec!["a".to_owned(), "deep/b".to_owned()];
        let mut peers = Vec::new();
        for (peer, kind, name) in [
            (kazoo(server), "Lock", "kazoo"),
            (curator(server), "Mutex", "curator"),
        ] {
            let Some(mut peer) = peer else { continue };
            peer.ask(&format!("lock mine {kind} /listed/{name}"));
            peer.holds("mine");
            expected.push(name.to_owned());
            peers.push(peer);
        }
        expected.sort();
        assert_eq!(found(server, "/listed", &[]), expected);
        assert_eq!(found(server, "/listed", &["deep/*"]), ["deep/b"]);
        assert!(found(server, "", &[]).contains(&"listed/deep/b".to_owned()));
        assert_eq!(found(server, "", &["listed/a"]), ["listed/a"]);
        assert!(found(server, "/nothing", &[]).is_empty());
        drop((holders, peers));
        eventually("none is left", || found(server, "/listed", &[]).is_empty());
    });
}
