//! Clients that are killed, leave, or lose their session; and a server that refuses them.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use testkit::ZooKeeper;
use testkit::zookeeper::{Peer, has_zookeeper};

use crate::support::{alive, eventually, guard_of, rlock, rlock_words, signal};

use super::{HOLD, kazoo, run, run_for, until_waiting, waiter, with_server};

/// Returns the path of the mutex' entry of the client at this place in the line.
fn entry(kazoo: &mut Peer, lock: &str, place: usize) -> String {
    let entries = kazoo.ask(&format!("children /{lock}"));
    let is_mutex = |entry: &&str| entry.contains("-lock-");
    let mut of_mutex: Vec<&str> = entries.split(' ').filter(is_mutex).collect();
    of_mutex.sort_by_key(|entry| entry.rsplit('-').next());
    format!("/{lock}/{}", of_mutex[place])
}

/// The kernel kills the command's first process with rlock. No process is left that knows of those
/// which that had started.
#[test]
fn without_rlock_and_its_guard_the_lock_ends_with_its_session() {
    with_server(|server| {
        let script = "sleep 60 & echo child $!; echo self $$; echo ready; wait";
        let holder = run_for(server, "both-killed", "15s").hold(script);
        let pids = holder.seen_pids(&["child", "self"]);
        let mut next = waiter(server, "both-killed", 1, "echo next");
        let guard = guard_of(holder.pid());
        // It would start another guard.
        holder.signal(Signal::SIGSTOP);
        signal(guard, Signal::SIGKILL);
        let begun = Instant::now();
        holder.signal(Signal::SIGKILL);
        eventually("the first process is dead", || !alive(pids[1]));
        next.wait_for("next");
        let took = begun.elapsed();
        assert!(alive(pids[0]), "what it had started goes on");
        signal(pids[0], Signal::SIGKILL);
        // A third of the lease may be over at the kill.
        let (least, most) = (Duration::from_secs(8), Duration::from_secs(25));
        assert!(least < took && took < most, "{took:?}");
        next.finish().code(0);
    });
}

#[test]
fn a_waiter_that_leaves_while_its_server_hangs_is_gone_once_that_goes_on() {
    with_server(|server| {
        let mut holder = run_for(server, "hangs", "60s").hold(HOLD);
        for kind in [&[][..], &["--slots", "2"]] {
            let leaves = run_for(server, "hangs", "60s").args(kind);
            let leaves = leaves.args(["--", "true"]).spawn();
            until_waiting(server, "hangs", 1);
            server.freeze();
            leaves.signal(Signal::SIGTERM);
            leaves.finish().code(143);
            server.thaw();
            let begun = Instant::now();
            let next = run_for(server, "hangs", "60s").args(["--", "true"]).spawn();
            eventually("its entries are gone", || {
                let seen = super::about(server, "inspect", "hangs").finish();
                seen.stdout.join(" ").contains(": 1 wait")
            });
            assert!(begun.elapsed() < Duration::from_secs(30));
            next.signal(Signal::SIGTERM);
            next.finish().code(143);
        }
        drop(holder.stdin.take());
        holder.finish().code(0);
    });
}

#[test]
fn a_session_that_is_ended_kills_the_command_at_once_and_a_waiter_enters_again_at_the_end() {
    with_server(|server| {
        let Some(mut kazoo) = kazoo(server) else {
            return;
        };
        let mut holder = run_for(server, "ended", "60s").hold(HOLD);
        let mut first = waiter(server, "ended", 1, "echo first $(date +%s%N)");
        let path = entry(&mut kazoo, "ended", 1);
        let mut second = waiter(server, "ended", 2, "echo second $(date +%s%N)");
        kazoo.ask(&format!("end {path}"));
        eventually("it stands at the end", || {
            let entries = kazoo.ask("children /ended");
            entries.split(' ').count() == 9 && !entries.contains(&path["/ended/".len()..])
        });
        drop(holder.stdin.take());
        holder.finish().code(0);
        let second_at = second.wait_for("second");
        assert!(second_at < first.wait_for("first"));
        // A holder listens after a second.
        let holder = run_for(server, "ended", "60s").hold(HOLD);
        std::thread::sleep(Duration::from_millis(1500));
        let path = entry(&mut kazoo, "ended", 0);
        let begun = Instant::now();
        kazoo.ask(&format!("end {path}"));
        let pid = holder.seen_pids(&["pid"])[0];
        eventually("the command is dead", || !alive(pid));
        // The first renewal is due after 20 s.
        assert!(begun.elapsed() < Duration::from_secs(15));
        holder.finish().code(79);
    });
}

#[test]
fn a_server_that_takes_one_connection_of_an_address_keeps_a_lock() {
    if !has_zookeeper() {
        return;
    }
    let server = ZooKeeper::start(&["maxClientCnxns=1"]);
    let mut holder = run_for(&server, "connections", "12s").hold(HOLD);
    // No other client gets in.
    let other = run(&server, "connections").args(["-n"]).sh("true");
    other
        .code(69)
        .said(&["see whether its ensemble has a quorum, and its maxClientCnxns"]);
    // A lease later.
    std::thread::sleep(Duration::from_secs(13));
    assert!(holder.is_running());
    drop(holder.stdin.take());
    holder.finish().code(0).never_said("not confirmed");
    run(&server, "connections").args(["-n"]).sh("true").code(0);
}

#[test]
fn a_user_without_rights_is_refused() {
    with_server(|server| {
        let Some(mut kazoo) = kazoo(server) else {
            return;
        };
        kazoo.ask("own /owned anna secret");
        // Each has a znode of its own, which is open to all once it is there.
        let to = |user: &str| {
            let node = server.url().replace("://", &format!("://{user}"));
            let name = user.replace([':', '@'], "-");
            rlock(&format!("owned/job{name}"))
                .node(&node)
                .args(["-n"])
                .sh("echo ran")
        };
        to("anna:secret@").code(0).printed(&["ran"]);
        for user in ["", "anna:wrong@", "bert:secret@"] {
            let refused = to(user).code(77).printed(&[]);
            refused.said(&[
                "NoAuth",
                "see the password: ZooKeeper does not tell that it is wrong",
            ]);
        }
    });
}

#[test]
fn what_a_user_may_not_do_is_told_by_doctor_and_what_it_may_not_list_by_inspect() {
    with_server(|server| {
        let Some(mut kazoo) = kazoo(server) else {
            return;
        };
        kazoo.ask("own /closed anna secret");
        kazoo.ask("protect /readable");
        kazoo.ask("occupy /open");
        let as_user = |user: &str| server.url().replace("://", &format!("://{user}"));
        let doctor = |key: &str, user: &str, words: &[&str]| {
            let told = rlock_words([&["doctor", "-k", key], words].concat()).node(&as_user(user));
            let told = told.finish();
            (told.exited_with(77), told.stdout.join("\n"))
        };
        for (key, user, words, lacks) in [
            ("closed", "", &[][..], "list children of the znode /closed"),
            ("closed", "anna:wrong@", &[], "see the password"),
            (
                "closed/a/b",
                "",
                &[],
                "create children of the znode /closed",
            ),
            (
                "readable",
                "",
                &[],
                "create children of the znode /readable",
            ),
        ] {
            let (is_refused, told) = doctor(key, user, words);
            assert!(is_refused && told.contains(lacks), "{key}: {told}");
        }
        for (key, user, words) in [
            ("closed", "anna:secret@", &[][..]),
            ("open", "", &[]),
            ("none/at/all", "", &[]),
            ("readable", "", &["--role", "operator"]),
        ] {
            let (is_refused, told) = doctor(key, user, words);
            assert!(!is_refused && !told.contains("may not"), "{key}: {told}");
        }
        let left = kazoo.ask("children /open");
        assert!(!left.contains("doctor"), "{left}");
        let inspect = |user: &str, chroot: &str| {
            let node = format!("{}{chroot}", as_user(user));
            rlock_words(["inspect"]).node(&node).finish()
        };
        let told = inspect("", "").code(0).stdout.join("\n");
        assert!(told.contains("that this user may not read"), "{told}");
        inspect("", "/closed").code(77).said(&["NoAuth"]);
        let words = |words: &[&str]| rlock_words(words).node(&as_user("")).finish();
        for word in ["inspect", "break"] {
            words(&[word, "closed/*"]).code(77).mentions(&["NoAuth"]);
        }
        words(&["inspect", "open/*"]).code(1);
        // What it may list can be broken.
        let broken = words(&["break", "op*", "--yes", "--foreign"]);
        broken.code(0).never_said("NoAuth");
        inspect("anna:secret@", "/closed")
            .code(0)
            .printed(&["no lock is held"]);
        // Other tests have the server after this one.
        for znode in ["/readable", "/closed"] {
            kazoo.ask(&format!("delete {znode}"));
        }
    });
}
