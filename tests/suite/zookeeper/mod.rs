//! Locks in ZooKeeper (docs/zookeeper.md).

mod ensemble;
mod failures;
mod listed;
mod newest;
mod peers;
mod remains;
mod slots;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use testkit::zookeeper::{Peer, has_zookeeper, has_zookeeper_with_tls};
use testkit::{Certificates, ZooKeeper};

use crate::support::{Delay, Proxy, Rlock, Running, Shared, alive, eventually, rlock, rlock_words};

/// Servers, so that several tests run at once.
static SHARED: [Shared<ZooKeeper>; 6] = [const { Shared::new() }; 6];

/// Number of tests that have got one of them.
static TURN: AtomicUsize = AtomicUsize::new(0);

/// A command that holds the lock until its stdin ends. It prints its fence and its pid.
const HOLD: &str = "echo fence $RLOCK_FENCE; echo pid $$; echo ready; read _; true";

/// Lets `test` have a server for itself.
fn with_server(test: impl FnOnce(&mut ZooKeeper)) {
    if has_zookeeper() {
        let turn = TURN.fetch_add(1, Ordering::Relaxed) % SHARED.len();
        SHARED[turn].with(|| ZooKeeper::start(&[]), |server| test(server));
    }
}

/// Returns `rlock run` for the lock `name`, with a short lease.
fn run(server: &ZooKeeper, name: &str) -> Rlock {
    run_for(server, name, "9s")
}

/// The same with a lease of its own. A busy machine's server may be slow.
fn run_for(server: &ZooKeeper, name: &str, ttl: &str) -> Rlock {
    let options = ["--ttl", ttl, "--node-timeout", "2s"];
    rlock(name).node(&server.url()).args(options)
}

/// The same where the server has just started.
fn run_patiently(server: &ZooKeeper, name: &str) -> Rlock {
    let options = ["--ttl", "60s", "--node-timeout", "5s"];
    rlock(name).node(&server.url()).args(options)
}

/// Returns `rlock WORD -k NAME`, with time for a server that is busy.
fn about(server: &ZooKeeper, word: &str, name: &str) -> Rlock {
    rlock_words([word, "-k", name])
        .node(&server.url())
        .env("RLOCK_NODE_TIMEOUT", "5s")
}

/// Returns a client of kazoo, if it is installed.
fn kazoo(server: &ZooKeeper) -> Option<Peer> {
    let hosts = format!("127.0.0.1:{}", server.port());
    Peer::kazoo(&hosts, Duration::from_secs(10))
}

/// Returns a client of Curator, if it is installed.
fn curator(server: &ZooKeeper) -> Option<Peer> {
    let hosts = format!("127.0.0.1:{}", server.port());
    Peer::curator(&hosts, Duration::from_secs(10))
}

/// Starts a waiter that does what `script` says, and waits until `inspect` shows as many waiters.
fn waiter(server: &ZooKeeper, name: &str, count: usize, script: &str) -> Running {
    let waiter = run(server, name).args(["--", "sh", "-c", script]).spawn();
    until_waiting(server, name, count);
    waiter
}

/// A script that says `overlap` if the process `pid` can still run, and then `next`. One that was
/// killed stays as a zombie while its rlock is stopped.
fn overlap_or_next(pid: i32) -> String {
    format!("grep -qs '^State:.[^ZX]' /proc/{pid}/status && echo overlap; echo next")
}

/// Waits until `inspect` shows as many waiters.
fn until_waiting(server: &ZooKeeper, name: &str, count: usize) {
    eventually("the waiter is shown", || {
        let seen = rlock_words(["inspect", name]).node(&server.url()).finish();
        let lines = seen.stdout.join("\n");
        lines.contains(&format!(": {count} wait"))
    });
}

#[test]
fn runs_have_the_lock_one_after_another_and_their_fences_rise() {
    with_server(|server| {
        let mut holder = run(server, "order").hold(HOLD);
        let busy = run(server, "order").args(["-n"]).sh("true").code(75);
        busy.mentions(&["busy: held by", "running sh"]);
        let say = "echo fence $RLOCK_FENCE; echo end $(date +%s%N)";
        let mut waiters: Vec<Running> = (1..=3)
            .map(|count| waiter(server, "order", count, say))
            .collect();
        let mut fences = holder.seen_pids(&["fence"]);
        drop(holder.stdin.take());
        holder.finish().code(0);
        let mut ends = Vec::new();
        for waiter in &mut waiters {
            fences.push(waiter.wait_for_pid("fence"));
            ends.push(waiter.wait_for("end"));
        }
        assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
        assert!(ends.is_sorted(), "{ends:?}");
    });
}

#[test]
fn readers_share_the_lock_and_a_writer_waits_for_the_last() {
    with_server(|server| {
        let readers = [(); 2].map(|()| run(server, "shared").args(["-s"]).hold(HOLD));
        let busy = run(server, "shared").args(["-n"]).sh("true").code(75);
        busy.mentions(&["held shared by"]);
        let mut writer = waiter(server, "shared", 1, "echo wrote");
        // Later readers cannot overtake it.
        run(server, "shared").args(["-n", "-s"]).sh("true").code(75);
        for mut reader in readers {
            assert!(writer.is_running());
            drop(reader.stdin.take());
            reader.finish().code(0);
        }
        writer.wait_for("wrote");
    });
}

#[test]
fn another_process_checks_renews_and_releases_a_lock_that_none_keeps() {
    with_server(|server| {
        let acquired = about(server, "acquire", "kept")
            .args(["--ttl", "12s", "--node-timeout", "2s"])
            .finish()
            .code(0);
        let token = &acquired.stdout[0][..];
        let of = |word: &str| {
            let options = ["--token", token, "--node-timeout", "2s"];
            about(server, word, "kept").args(options)
        };
        let begun = Instant::now();
        // Longer than a lease without renewals.
        while begun.elapsed() < Duration::from_secs(15) {
            std::thread::sleep(Duration::from_secs(2));
            of("check").finish().code(0);
            of("renew").finish().code(0);
            run_patiently(server, "kept")
                .args(["-n"])
                .sh("true")
                .code(75)
                .mentions(&["taken with acquire"]);
        }
        of("renew")
            .args(["--ttl", "1h"])
            .finish()
            .code(78)
            .mentions(&["cannot be made longer"]);
        of("check")
            .args(["--for", "1s"])
            .finish()
            .code(64)
            .mentions(&["use renew"]);
        of("release").finish().code(0);
        for word in ["check", "renew", "release"] {
            of(word).finish().code(1);
        }
        run(server, "kept").args(["-n"]).sh("true").code(0);
        // One that is not renewed ends with its session.
        about(server, "acquire", "kept")
            .args(["--ttl", "4s", "--node-timeout", "1s"])
            .finish()
            .code(0);
        run(server, "kept").sh("true").code(0);
    });
}

#[test]
fn a_lock_that_is_broken_is_given_back_once_its_command_is_dead() {
    with_server(|server| {
        let mut holder = run(server, "broken").hold(HOLD);
        let pid = holder.seen_pids(&["pid"])[0];
        let broken = about(server, "break", "broken")
            .args(["--yes"])
            .finish()
            .code(0);
        broken.mentions(&["its holder released it"]);
        assert!(!alive(pid));
        assert!(!holder.is_running() || holder.stdin.is_some());
        holder.finish().code(79).mentions(&["broke the lock"]);
        let holder = run(server, "broken").hold(HOLD);
        about(server, "break", "broken")
            .args(["--yes", "--now"])
            .finish()
            .code(0);
        holder.finish().code(79);
        about(server, "break", "broken")
            .args(["--yes"])
            .finish()
            .code(1);
    });
}

#[test]
fn a_lock_whose_entries_are_deleted_by_hand_is_lost_at_once() {
    with_server(|server| {
        let Some(mut kazoo) = kazoo(server) else {
            return;
        };
        let holder = run_for(server, "deleted", "60s").hold(HOLD);
        // A holder listens after a second.
        std::thread::sleep(Duration::from_millis(1500));
        let begun = Instant::now();
        kazoo.ask("clear /deleted");
        eventually("the command is dead", || {
            !alive(holder.seen_pids(&["pid"])[0])
        });
        // The first renewal is due after 20 s.
        assert!(begun.elapsed() < Duration::from_secs(15));
        holder.finish().code(79);
    });
}

#[test]
fn a_lock_of_which_one_entry_is_deleted_by_hand_is_lost_at_once() {
    with_server(|server| {
        let Some(mut kazoo) = kazoo(server) else {
            return;
        };
        for stem in ["-lock-", "__WRIT__", "__lock__"] {
            let holder = run_for(server, "one", "60s").hold(HOLD);
            // A holder listens after a second.
            std::thread::sleep(Duration::from_millis(1500));
            let begun = Instant::now();
            let entries = kazoo.ask("children /one");
            let entry = entries.split(' ').find(|entry| entry.contains(stem));
            kazoo.ask(&format!("delete /one/{}", entry.expect("its entry")));
            let pid = holder.seen_pids(&["pid"])[0];
            eventually("the command is dead", || !alive(pid));
            // The first renewal is due after 20 s.
            assert!(begun.elapsed() < Duration::from_secs(15), "{stem}");
            holder.finish().code(79);
        }
    });
}

#[test]
fn a_run_whose_rlock_is_killed_leaves_no_entry_behind() {
    with_server(|server| {
        let holder = run_for(server, "killed", "60s").hold(HOLD);
        let mut next = waiter(server, "killed", 1, "echo next");
        let pid = holder.seen_pids(&["pid"])[0];
        let begun = Instant::now();
        holder.signal(Signal::SIGKILL);
        next.wait_for("next");
        assert!(!alive(pid) && begun.elapsed() < Duration::from_secs(20));
        // A waiter's guard takes its entry away too.
        let holder = run_for(server, "killed", "60s").hold(HOLD);
        let gone = waiter(server, "killed", 1, "true");
        gone.signal(Signal::SIGKILL);
        let mut next = run(server, "killed").args(["--", "echo", "next"]).spawn();
        drop(holder);
        next.wait_for("next");
    });
}

#[test]
fn a_command_does_not_notice_a_server_that_restarts_in_time() {
    with_server(|server| {
        let mut holder = run_patiently(server, "restart").hold(HOLD);
        server.crash();
        server.come_back();
        let busy = run_patiently(server, "restart").args(["-n"]);
        busy.sh("true").code(75);
        drop(holder.stdin.take());
        holder.finish().code(0);
        // One that returns empty has lost the lock, and the command does not outlive that.
        let holder = run_for(server, "restart", "20s").hold(HOLD);
        server.crash();
        server.forget();
        server.come_back();
        holder.finish().code(79);
    });
}

/// The promise. The server ends the session of an rlock that is stopped.
#[test]
fn a_stopped_rlock_loses_its_command_before_its_lock() {
    with_server(|server| {
        let holder = run(server, "stopped").hold(HOLD);
        let pid = holder.seen_pids(&["pid"])[0];
        let script = overlap_or_next(pid);
        let mut next = waiter(server, "stopped", 1, &script);
        holder.signal(Signal::SIGSTOP);
        next.wait_for("next");
        next.finish().code(0).printed(&["next"]);
        holder.signal(Signal::SIGCONT);
        holder.finish().code(79);
    });
}

#[test]
fn a_waiter_that_is_stopped_at_its_turn_is_passed_over_once_its_session_is_over() {
    with_server(|server| {
        let mut holder = run(server, "turn").hold(HOLD);
        let mut first = waiter(server, "turn", 1, "echo first");
        let mut second = waiter(server, "turn", 2, "echo second");
        first.signal(Signal::SIGSTOP);
        drop(holder.stdin.take());
        holder.finish().code(0);
        second.wait_for("second");
        second.finish().code(0);
        assert!(first.is_running());
        // It enters the line again.
        first.signal(Signal::SIGCONT);
        first.wait_for("first");
        first.finish().code(0);
    });
}

/// Its last proof is young enough (docs/zookeeper.md, The lease).
#[test]
fn a_waiter_takes_its_turn_over_the_connection_that_it_has() {
    with_server(|server| {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let delays = move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            [(); 2].map(|()| Box::new(|| Duration::ZERO) as Delay)
        };
        let proxy = Proxy::open(Ipv4Addr::LOCALHOST, server.port(), delays).expect("a proxy");
        let url = format!("zookeeper://127.0.0.1:{}", proxy.port());
        for kind in [&["-s"][..], &[], &["--slots", "1"]] {
            let mut holder = run_for(server, "taken", "60s").hold(HOLD);
            count.store(0, Ordering::Relaxed);
            let next = rlock("taken").node(&url).args(["--ttl", "60s"]).args(kind);
            let next = next.args(["--", "true"]).spawn();
            until_waiting(server, "taken", 1);
            drop(holder.stdin.take());
            holder.finish().code(0);
            next.finish().code(0);
            assert_eq!(count.load(Ordering::Relaxed), 1, "{kind:?}");
        }
    });
}

#[test]
fn the_entry_of_a_waiter_whose_turn_has_come_tells_since_when_it_holds() {
    with_server(|server| {
        let Some(mut kazoo) = kazoo(server) else {
            return;
        };
        let mut holder = run_for(server, "since", "60s").hold(HOLD);
        let next = run_for(server, "since", "60s").args(["--", "sleep", "60"]);
        let next = next.spawn();
        until_waiting(server, "since", 1);
        let entries = kazoo.ask("children /since");
        let of_mutex = entries.split(' ').filter(|entry| entry.contains("-lock-"));
        let entry = of_mutex.max_by_key(|entry| entry.rsplit('-').next());
        let told = format!("get /since/{}", entry.expect("an entry of a mutex"));
        let as_waiter = kazoo.ask(&told);
        drop(holder.stdin.take());
        holder.finish().code(0);
        eventually("its value is a holder's", || kazoo.ask(&told) != as_waiter);
        next.signal(Signal::SIGTERM);
        next.finish().code(143);
    });
}

#[test]
fn a_waiter_that_is_broken_before_it_knows_of_its_turn_gives_the_lock_back() {
    with_server(|server| {
        let Some(mut kazoo) = kazoo(server) else {
            return;
        };
        let mut holder = run(server, "early").hold(HOLD);
        let next = run_for(server, "early", "60s");
        let next = next.args(["--", "sh", "-c", "sleep 60"]).spawn();
        until_waiting(server, "early", 1);
        next.signal(Signal::SIGSTOP);
        drop(holder.stdin.take());
        holder.finish().code(0);
        let entries = kazoo.ask("children /early");
        let first = entries.split(' ').find(|entry| entry.contains("-lock-"));
        let first = first.expect("an entry of a mutex");
        kazoo.ask(&format!("set /early/{first} __REVOKE__"));
        next.signal(Signal::SIGCONT);
        let ended = next.finish().code(79);
        ended.mentions(&["a client of Curator broke the lock"]);
    });
}

#[test]
fn an_address_with_tls_takes_a_server_with_the_right_certificate_and_shows_its_own() {
    if !has_zookeeper_with_tls() {
        return;
    }
    let certificates = Certificates::for_name("127.0.0.1");
    let server = ZooKeeper::start_secure(&certificates);
    // The first handshake of a server takes long.
    let patient = ["--ttl", "30s", "--node-timeout", "5s", "-n"];
    let to = |url: &str| rlock("tls").node(url).args(patient);
    let trusting = |url: &str| to(url).trusting(&certificates);
    let url = server.secure_url();
    let shown = trusting(&url).showing(&certificates).sh("echo ran");
    shown.code(0).printed(&["ran"]);
    trusting(&url).sh("true").code(77).said(&[
        "it asks for a client certificate",
        "give --cert and --cert-key",
    ]);
    to(&url)
        .sh("true")
        .code(77)
        .said(&["its issuer is unknown", "--ca"]);
    let plain = server.url().replace("zookeeper:", "zookeepers:");
    trusting(&plain)
        .showing(&certificates)
        .sh("true")
        .code(78)
        .said(&["write zookeeper:// if that is meant"]);
    let without = url.replace("zookeepers:", "zookeeper:");
    to(&without)
        .sh("true")
        .code(78)
        .said(&["it speaks TLS; write zookeepers in place of zookeeper"]);
}

#[test]
fn a_server_of_another_protocol_is_named() {
    for told in [
        "-ERR unknown command\r\n",
        "HTTP/1.1 400 Bad Request\r\n\r\n",
    ] {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let node = format!("zookeeper://{}", server.local_addr().expect("its address"));
        std::thread::spawn(move || {
            for mut client in server.incoming().map_while(Result::ok) {
                let _ = client.write_all(told.as_bytes());
                let _ = client.read(&mut [0; 4096]);
            }
        });
        let job = rlock("other").node(&node).args(["-n"]);
        job.sh("echo ran")
            .code(78)
            .printed(&[])
            .said(&["it does not speak ZooKeeper's protocol"]);
    }
}

/// No herd: a release wakes one waiter.
#[test]
fn each_waiter_watches_the_one_before_it_and_no_other_entry() {
    if !has_zookeeper() {
        return;
    }
    let server = ZooKeeper::start(&["4lw.commands.whitelist=*"]);
    for kind in [&[][..], &["--slots", "2"]] {
        let name = if kind.is_empty() {
            "herd"
        } else {
            "herd-slots"
        };
        let run = || run_for(&server, name, "60s").args(kind);
        let mut holders = vec![run().hold(HOLD)];
        if !kind.is_empty() {
            holders.push(run().hold(HOLD));
        }
        let mut waiters = Vec::new();
        for count in 1..=4 {
            waiters.push(run().args(["--", "echo", "ran"]).spawn());
            until_waiting(&server, name, count);
        }
        // A holder watches its own entries, too.
        eventually("each is watched by few", || {
            let told = server.told("wchp");
            let watched = told.split("\n/").map(|path| path.matches("\n\t0x").count());
            let (most, all) = watched.fold((0, 0), |(most, all), count| {
                (usize::max(most, count), all + count)
            });
            most == 2 - usize::from(!kind.is_empty()) && all >= 4 + 3 * holders.len()
        });
        drop(holders);
        for waiter in &mut waiters {
            waiter.wait_for("ran");
        }
    }
}

/// As where large packets are lost on the way: the greeting comes, and nothing behind it.
#[test]
fn a_server_that_answers_nothing_but_its_greeting_is_left_for_the_next() {
    with_server(|server| {
        let delays = |_| {
            let is_first = AtomicBool::new(true);
            let reply = move || {
                let is_first = is_first.swap(false, Ordering::Relaxed);
                Duration::from_secs(if is_first { 0 } else { 600 })
            };
            [Box::new(|| Duration::ZERO) as Delay, Box::new(reply)]
        };
        let silent = Proxy::open(Ipv4Addr::LOCALHOST, server.port(), delays).expect("a proxy");
        let url = format!("{},127.0.0.1:{}", server.url(), silent.port());
        // It is the first one to be asked in half of the runs.
        for _ in 0..8 {
            let job = rlock("greeting").node(&url);
            let job = job.args(["--ttl", "12s", "--node-timeout", "2s"]);
            job.sh("true").code(0);
        }
    });
}

#[test]
fn what_zookeeper_cannot_do_is_refused_before_a_server_is_asked() {
    let nowhere = "zk://127.0.0.1:1/locks";
    for (options, why) in [
        (&["--as", "redisson"][..], "is for Redis"),
        (&["--wait-replicas", "1"], "is for Redis"),
        (&["--fsync"], "is for Redis"),
        (&["--restart-guard", "1m"], "forget nothing"),
    ] {
        let refused = rlock("job").node(nowhere).args(options).sh("true").code(64);
        refused.said(&[why]);
    }
    rlock("rlock:once:job")
        .node(nowhere)
        .sh("true")
        .code(64)
        .said(&["the name begins with rlock:once:"]);
    // One that is possible needs a server.
    rlock("job")
        .node(nowhere)
        .args(["-n"])
        .sh("true")
        .code(69)
        .said(&["cannot connect"]);
    for name in ["a//b", "a/../b", "x-lock-0000000001", "😀"] {
        rlock(name)
            .node(nowhere)
            .sh("true")
            .code(64)
            .said(&["the name has"]);
    }
    rlock("job")
        .node("zk://a,redis://b")
        .sh("true")
        .code(64)
        .said(&["quorum of its own"]);
}

#[test]
fn a_ttl_that_no_session_has_is_refused_and_leaves_nothing() {
    with_server(|server| {
        let long = rlock("long")
            .node(&server.url())
            .args(["--ttl", "1h"])
            .sh("true")
            .code(78);
        long.said(&["its longest session is 16m40s", "maxSessionTimeout"]);
        run(server, "long").args(["-n"]).sh("true").code(0);
        let doctor = rlock_words(["doctor", "--ttl", "1h"])
            .node(&server.url())
            .finish()
            .code(78);
        let told = doctor.stdout.join(" ");
        for words in ["its longest session is 16m40s", "maxClientCnxns"] {
            assert!(told.contains(words), "{told}");
        }
        let doctor = rlock_words(["doctor", "--try", "-k", "job"])
            .node(&server.url())
            .finish();
        let told = doctor.code(0).stdout.join(" ");
        assert!(
            told.contains("standalone") && told.contains("fit to hold locks"),
            "{told}"
        );
    });
}
