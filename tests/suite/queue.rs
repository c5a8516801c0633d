//! Waiting in line: who is next, who is skipped, and how little it takes.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;

use crate::support::{RLOCK, Rlock, Running, Server, Session, eventually, far, rlock, rlock_words, skipped, slow};

const QUEUE: &str = "rlock:queue:{job}:job";

/// The lock `job` on all of `servers`.
fn job(servers: &[Server]) -> Rlock {
    let urls = servers.iter().map(Server::url).collect::<Vec<_>>().join(",");
    rlock("job").node(&urls).args(["--restart-guard", "off"])
}

fn hold(servers: &[Server]) -> Running {
    job(servers).hold("echo ready; read line; true")
}

/// Starts a waiter that appends `name` to the list `ran` of the first server once it is let in, and waits until it stands
/// in the queue of every server.
fn queued(servers: &[Server], options: &[&str], name: &str) -> Running {
    let before = servers[0].cli(&["ZCARD", QUEUE]);
    let script = format!("redis-cli -s {} rpush ran {name} >/dev/null", servers[0].socket().display());
    let waiter = job(servers).args(options).args(["--", "sh", "-c", &script]).spawn();
    for server in servers {
        eventually("it stands in the queue", || server.cli(&["ZCARD", QUEUE]) != before);
    }
    waiter
}

fn ran(servers: &[Server]) -> Vec<String> {
    servers[0].cli(&["LRANGE", "ran", "0", "-1"]).lines().map(str::to_owned).collect()
}

fn nothing_is_left(servers: &[Server]) {
    for server in servers {
        assert_eq!(
            server.cli(&["EXISTS", "job", QUEUE, "rlock:offer:{job}:job", "rlock:watch:{job}:job"]),
            "0",
            "{}",
            server.cli(&["KEYS", "*"])
        );
    }
}

/// Lets the holder go, and all waiters run to their end.
fn all_run(holder: Running, waiters: Vec<Running>) {
    holder.finish().code(0);
    all_run_of(waiters);
}

fn all_run_of(waiters: Vec<Running>) {
    for waiter in waiters {
        waiter.finish().code(0).silent();
    }
}

fn servers(count: usize) -> Vec<Server> {
    (0..count).map(|_| Server::start()).collect()
}

#[test]
fn waiters_go_in_the_order_in_which_they_came() {
    for count in [1, 3] {
        let servers = servers(count);
        let holder = hold(&servers);
        let names: Vec<String> = (0..8).map(|number| number.to_string()).collect();
        let waiters = names.iter().map(|name| queued(&servers, &[], name)).collect();
        all_run(holder, waiters);
        assert_eq!(ran(&servers), names);
        nothing_is_left(&servers);
    }
}

#[test]
fn a_clock_that_is_ahead_puts_nobody_behind_those_who_come_later() {
    let mut servers = vec![Server::start(), Server::start(), Server::ahead(60)];
    let holder = hold(&servers);
    let first = queued(&servers, &[], "first");
    // Who comes now hears nothing of that time.
    servers[2].crash();
    let second = queued(&servers, &[], "second");
    all_run(holder, vec![first, second]);
    assert_eq!(ran(&servers), ["first", "second"]);
    nothing_is_left(&servers[..2]);
}

#[test]
fn with_newest_the_last_comes_first_and_with_any_everybody_comes() {
    let servers = servers(1);
    for (order, expected) in [("newest", Some(["c", "b", "a"])), ("any", None)] {
        let holder = hold(&servers);
        let waiters = ["a", "b", "c"].map(|name| queued(&servers, &["--order", order], name)).into();
        all_run(holder, waiters);
        let ran = ran(&servers);
        assert!(expected.is_none_or(|expected| ran == expected), "{ran:?}");
        assert_eq!(ran.len(), 3);
        servers[0].cli(&["DEL", "ran"]);
    }
}

#[test]
fn a_late_comer_does_not_overtake() {
    let servers = servers(1);
    let holder = hold(&servers);
    let first = queued(&servers, &[], "first");
    first.signal(Signal::SIGSTOP);
    holder.finish().code(0);
    // The lock is free, and the one whose turn it is has a second to take it.
    job(&servers).args(["-n"]).sh("echo ran").code(75).printed(&[]).said(&["busy: free, but next in line is", "pid"]);
    first.signal(Signal::SIGCONT);
    first.finish().code(0);
    nothing_is_left(&servers);
}

#[test]
fn waiters_that_die_are_skipped_at_once() {
    let servers = servers(3);
    let holder = hold(&servers);
    let dead: Vec<Running> = (0..3).map(|number| queued(&servers, &[], &format!("dead{number}"))).collect();
    let alive = queued(&servers, &[], "alive");
    for waiter in &dead {
        waiter.signal(Signal::SIGKILL);
    }
    // Until the servers have seen their connections end, they count as listeners.
    drop(dead);
    let begin = Instant::now();
    all_run(holder, vec![alive]);
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    assert_eq!(ran(&servers), ["alive"]);
    nothing_is_left(&servers);
}

#[test]
fn waiters_that_stopped_cost_seconds_and_get_their_turn_when_they_go_on() {
    let servers = servers(1);
    let holder = hold(&servers);
    let stopped = [queued(&servers, &[], "stopped"), queued(&servers, &[], "stopped")];
    let alive = queued(&servers, &[], "alive");
    for waiter in &stopped {
        waiter.signal(Signal::SIGSTOP);
    }
    let begin = Instant::now();
    all_run(holder, vec![alive]);
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    for waiter in stopped {
        waiter.signal(Signal::SIGCONT);
        waiter.finish().code(0).silent();
    }
    assert_eq!(ran(&servers), ["alive", "stopped", "stopped"]);
    nothing_is_left(&servers);
}

#[test]
fn those_behind_one_that_stopped_keep_their_order() {
    for count in [1, 3] {
        let servers = servers(count);
        let holder = hold(&servers);
        let stopped = queued(&servers, &[], "stopped");
        let names = ["a", "b", "c", "d", "e"];
        let waiters: Vec<Running> = names.iter().map(|name| queued(&servers, &[], name)).collect();
        stopped.signal(Signal::SIGSTOP);
        all_run(holder, waiters);
        assert_eq!(ran(&servers), names);
        stopped.signal(Signal::SIGCONT);
        stopped.finish().code(0);
        nothing_is_left(&servers);
    }
}

#[test]
fn one_that_stopped_is_passed_by_though_all_were_told_to_watch_another() {
    let servers = servers(1);
    let holder = hold(&servers);
    let first = queued(&servers, &[], "first");
    let stopped = queued(&servers, &[], "stopped");
    let waiters = ["a", "b", "c"].map(|name| queued(&servers, &[], name)).into();
    stopped.signal(Signal::SIGSTOP);
    let begin = Instant::now();
    holder.finish().code(0);
    first.finish().code(0);
    all_run_of(waiters);
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    assert_eq!(ran(&servers), ["first", "a", "b", "c"]);
    stopped.signal(Signal::SIGCONT);
    stopped.finish().code(0);
    nothing_is_left(&servers);
}

/// An offer that was made in the future is none that the head still has time to take.
#[test]
fn one_that_stopped_is_passed_by_though_the_clock_is_set_back() {
    let servers = [Server::ahead(0)];
    let holder = hold(&servers);
    let stopped = queued(&servers, &[], "stopped");
    let waiter = queued(&servers, &[], "waiter");
    stopped.signal(Signal::SIGSTOP);
    holder.finish().code(0);
    servers[0].set_clock(-300);
    let begin = Instant::now();
    waiter.finish().code(0).silent();
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    stopped.signal(Signal::SIGCONT);
    stopped.finish().code(0);
    assert_eq!(ran(&servers), ["waiter", "stopped"]);
    nothing_is_left(&servers);
}

#[test]
fn a_waiter_that_leaves_passes_its_turn_on() {
    let servers = servers(1);
    let holder = hold(&servers);
    let leaver = queued(&servers, &[], "leaver");
    let next = queued(&servers, &[], "next");
    leaver.signal(Signal::SIGSTOP);
    holder.finish().code(0);
    leaver.signal(Signal::SIGTERM);
    let begin = Instant::now();
    leaver.signal(Signal::SIGCONT);
    leaver.finish().code(143);
    next.finish().code(0);
    assert!(begin.elapsed() < Duration::from_millis(800), "{:?}", begin.elapsed());
    assert_eq!(ran(&servers), ["next"]);
    nothing_is_left(&servers);
}

#[test]
fn a_wait_that_is_over_leaves_the_queue_as_it_was() {
    let servers = servers(3);
    let holder = hold(&servers);
    let stays = queued(&servers, &[], "stays");
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let goes = queued(&servers, &[], "goes");
        let begin = Instant::now();
        goes.signal(signal);
        goes.finish().code(128 + signal as i32);
        assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    }
    queued(&servers, &["--wait", "400ms"], "goes").finish().code(75).said(&["busy: held by"]);
    for server in &servers {
        assert_eq!(server.cli(&["ZCARD", QUEUE]), "1");
    }
    all_run(holder, vec![stays]);
    nothing_is_left(&servers);
}

#[test]
fn nobody_polls_while_the_holder_is_one_of_ours() {
    let servers = servers(1);
    let holder = hold(&servers);
    let waiters: Vec<Running> = (0..5).map(|number| queued(&servers, &[], &number.to_string())).collect();
    let asked = servers[0].monitored(|| {
        // Longer than any polling would pause.
        std::thread::sleep(Duration::from_millis(700));
    });
    assert_eq!(asked, Vec::<String>::new());
    all_run(holder, waiters);
}

#[test]
fn nobody_polls_because_one_node_is_gone() {
    let mut servers = servers(3);
    let holder = hold(&servers);
    let waiters: Vec<Running> = ["a", "b"].iter().map(|name| queued(&servers, &[], name)).collect();
    let asked = servers[0].asked();
    servers[2].crash();
    eventually("both have looked", || servers[0].asked() >= asked + 2);
    // They may look once more: those that heard of it while they looked.
    std::thread::sleep(Duration::from_millis(500));
    let asked = servers[0].asked();
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(servers[0].asked(), asked);
    all_run(holder, waiters);
    assert_eq!(ran(&servers), ["a", "b"]);
}

#[test]
fn a_hand_over_takes_two_commands_however_many_wait() {
    let servers = servers(1);
    let holder = hold(&servers);
    let waiters: Vec<Running> = (0..10).map(|number| queued(&servers, &[], &number.to_string())).collect();
    let asked = servers[0].monitored(|| all_run(holder, waiters));
    let evals = asked.iter().filter(|line| line.contains("\"EVAL\"")).count();
    // The holder's release, and an acquire and a release of each. A busy machine adds a look now and then.
    assert!((21..=26).contains(&evals), "{evals}: {asked:?}");
}

#[test]
fn a_hand_over_tells_one_and_each_second_three_more() {
    let servers = servers(1);
    let holder = hold(&servers);
    let waiters: Vec<Running> = (0..20).map(|number| queued(&servers, &[], &number.to_string())).collect();
    let begin = Instant::now();
    all_run(holder, waiters);
    let told = servers[0].calls("publish");
    // At the end of the line some watch others who are told to go before the second is over.
    let most = 20 + 3 * (begin.elapsed().as_secs() + 1) + 6;
    assert!((20..=most).contains(&told), "{told} of {most}");
}

#[test]
fn a_holder_that_crashed_is_followed_when_its_lease_is_over() {
    let servers = servers(1);
    let holder = job(&servers).args(["--ttl", "2s"]).hold("echo ready; read line; true");
    let waiters = vec![queued(&servers, &[], "a"), queued(&servers, &[], "b")];
    holder.signal(Signal::SIGKILL);
    let begin = Instant::now();
    for waiter in waiters {
        waiter.finish().code(0);
    }
    assert!(begin.elapsed() < Duration::from_millis(3500), "{:?}", begin.elapsed());
    assert_eq!(ran(&servers), ["a", "b"]);
}

/// The members of the queue, the first first.
fn line(server: &Server) -> Vec<String> {
    server.cli(&["ZRANGE", QUEUE, "0", "-1"]).lines().map(str::to_owned).collect()
}

fn listening(server: &Server) -> usize {
    server.cli(&["PUBSUB", "CHANNELS", "rlock:wake:*"]).lines().count()
}

#[test]
fn dead_waiters_do_not_delay_those_behind_them_when_the_holder_is_dead_too() {
    let servers = servers(1);
    let holder = hold(&servers);
    let value = servers[0].cli(&["GET", "job"]);
    let dead: Vec<Running> = (0..20).map(|number| queued(&servers, &[], &format!("dead{number}"))).collect();
    for waiter in &dead {
        waiter.signal(Signal::SIGKILL);
    }
    drop(dead);
    eventually("their connections have ended", || listening(&servers[0]) == 0);
    // A holder that will neither renew nor release.
    servers[0].cli(&["SET", "job", &value, "PX", "3000"]);
    let ends = Instant::now() + Duration::from_secs(3);
    let script = format!("redis-cli -s {} rpush ran alive >/dev/null", servers[0].socket().display());
    let alive = job(&servers).args(["--", "sh", "-c", &script]).spawn();
    let pid = alive.pid().to_string();
    let is_alone = |line: Vec<String>| line.len() == 1 && line[0].split(' ').nth(2) == Some(&pid);
    eventually("only the one that lives is in the queue", || is_alone(line(&servers[0])));
    alive.finish().code(0).silent();
    let late = Instant::now().saturating_duration_since(ends);
    assert!(late < Duration::from_secs(1), "{late:?} after the end of the lease");
    assert_eq!(ran(&servers), ["alive"]);
    holder.finish();
}

#[test]
fn a_waiter_that_is_taken_out_while_it_has_no_connection_comes_back_to_its_place() {
    let servers = servers(1);
    let holder = hold(&servers);
    let first = queued(&servers, &[], "first");
    let place = line(&servers[0]);
    first.signal(Signal::SIGSTOP);
    servers[0].cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    eventually("its connection has ended", || listening(&servers[0]) == 0);
    let second = job(&servers).args(["--", "sh", "-c", "true"]).spawn();
    eventually("the second has taken it out", || line(&servers[0]).len() == 1 && line(&servers[0]) != place);
    first.signal(Signal::SIGCONT);
    eventually("it is back", || line(&servers[0]).len() == 2 && listening(&servers[0]) == 2);
    assert_eq!(line(&servers[0])[0], place[0]);
    all_run(holder, vec![first, second]);
    nothing_is_left(&servers);
}

#[test]
fn servers_that_forget_everything_keep_nobody_from_getting_on() {
    let servers = servers(1);
    let holder = job(&servers).args(["--ttl", "2s"]).hold("echo ready; read line; true");
    let waiters = vec![queued(&servers, &[], "a"), queued(&servers, &[], "b")];
    servers[0].cli(&["FLUSHALL"]);
    let begin = Instant::now();
    holder.finish();
    for waiter in waiters {
        waiter.finish().code(0);
    }
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
    nothing_is_left(&servers);
}

#[test]
fn waiters_whose_connections_are_cut_keep_their_places() {
    let servers = servers(1);
    let holder = hold(&servers);
    let waiters: Vec<Running> = ["a", "b", "c"].iter().map(|name| queued(&servers, &[], name)).collect();
    // The holder's first: one that comes back to listen is a normal client until it does.
    servers[0].cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    servers[0].cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    eventually("all listen again", || servers[0].cli(&["PUBSUB", "CHANNELS", "rlock:wake:*"]).lines().count() == 3);
    all_run(holder, waiters);
    assert_eq!(ran(&servers), ["a", "b", "c"]);
}

#[test]
fn a_connection_that_breaks_while_we_ask_to_listen_is_not_taken_for_a_refusal() {
    let servers = servers(1);
    let holder = hold(&servers);
    let waiter = queued(&servers, &["-v"], "waiter");
    for _ in 0..100 {
        servers[0].cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        servers[0].cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    }
    holder.finish().code(0);
    waiter.finish().code(0).never_said("may not listen");
}

#[test]
fn who_was_told_nothing_looks_once_more_before_its_time_is_over() {
    let server = Server::start();
    let holder = rlock("job").on(&server).hold("echo ready; read line; true");
    // A holder that will never release.
    let value = server.cli(&["GET", "job"]);
    holder.finish().code(0);
    server.cli(&["SET", "job", &value, "PX", "60000"]);
    let waiter = queued(std::slice::from_ref(&server), &["--wait", "2"], "late");
    server.cli(&["DEL", "job"]);
    waiter.finish().code(0).silent().within(Duration::from_millis(2200));
}

#[test]
fn the_first_in_line_sees_a_foreign_client_go() {
    let servers = servers(1);
    servers[0].cli(&["SET", "job", "foreign", "PX", "60000"]);
    let waiters = vec![queued(&servers, &[], "a"), queued(&servers, &[], "b")];
    servers[0].cli(&["DEL", "job"]);
    let begin = Instant::now();
    for waiter in waiters {
        waiter.finish().code(0);
    }
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    assert_eq!(ran(&servers), ["a", "b"]);
}

/// A tie may be its own fault, so it goes behind the others; what it listens to must go with it.
#[test]
fn who_gives_its_place_up_after_ties_still_listens() {
    let servers = servers(3);
    servers[0].cli(&["SET", "job", "one"]);
    servers[1].cli(&["SET", "job", "another"]);
    let waiter = job(&servers).args(["--", "true"]).spawn();
    let member = || servers[2].cli(&["ZRANGE", QUEUE, "0", "0", "WITHSCORES"]);
    let heard = || {
        let member = member();
        let channel = format!("rlock:wake:{}", member.split(' ').next().unwrap_or_default());
        !member.is_empty() && servers[2].cli(&["PUBSUB", "NUMSUB", &channel]).ends_with('1')
    };
    eventually("it listens", heard);
    let ticket = |member: String| member.lines().nth(1).map(str::to_owned);
    let first = ticket(member());
    eventually("it has another ticket", || ticket(member()).is_some_and(|now| Some(now) != first));
    eventually("it listens again", heard);
    servers[0].cli(&["DEL", "job"]);
    waiter.finish().code(0).silent();
}

#[test]
fn the_order_is_kept_with_a_node_that_hangs_and_with_one_that_is_gone() {
    let mut servers = servers(5);
    let holder = hold(&servers);
    let waiters: Vec<Running> = ["a", "b", "c"].iter().map(|name| queued(&servers, &[], name)).collect();
    servers[3].freeze();
    servers[4].crash();
    let begin = Instant::now();
    all_run(holder, waiters);
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    assert_eq!(ran(&servers), ["a", "b", "c"]);
    servers[3].thaw();
    eventually("the one that hung is clean", || servers[3].cli(&["EXISTS", "job"]) == "0");
    servers.truncate(3);
    nothing_is_left(&servers);
}

#[test]
fn nobody_stands_in_line_where_it_does_not_listen() {
    let servers = [Server::start(), Server::start(), Server::tcp(&[])];
    let urls = [servers[0].url(), servers[1].url(), slow(&servers[2], Duration::from_millis(100))].join(",");
    let job = || rlock("job").node(&urls).args(["--restart-guard", "off"]);
    let holder = job().hold("echo ready; read line; true");
    // It learns that it must wait before a connection to the third is open.
    let waiter = job().args(["--", "true"]).spawn();
    eventually("it stands in line", || servers[2].cli(&["ZCARD", QUEUE]) == "1");
    assert_eq!(servers[2].cli(&["PUBSUB", "CHANNELS", "rlock:wake:*"]).lines().count(), 1);
    holder.finish().code(0);
    waiter.finish().code(0).silent();
    nothing_is_left(&servers);
}

#[test]
fn a_node_that_says_go_is_asked_again_at_once_though_another_hangs() {
    let servers = [Server::start(), Server::tcp(&[]), Server::start()];
    let job = |second: &str| {
        let urls = [&servers[0].url(), second, &servers[2].url()].join(",");
        rlock("job").node(&urls).args(["--restart-guard", "off", "--ttl", "2m", "--node-timeout", "10s"])
    };
    // What the holder gives back reaches the second later than the first.
    let holder = job(&far(&servers[1], Duration::from_millis(200))).hold("echo ready; read line; true");
    eventually("it has the second too", || servers[1].cli(&["EXISTS", "job"]) == "1");
    let waiter = job(&servers[1].tcp_url()).args(["--", "true"]).spawn();
    for server in &servers {
        eventually("it stands in the queue", || server.cli(&["ZCARD", QUEUE]) == "1");
    }
    servers[2].freeze();
    let begin = Instant::now();
    holder.finish().code(0);
    waiter.finish().code(0).silent();
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
}

#[test]
fn who_keeps_no_node_from_others_keeps_its_place_whatever_they_do() {
    let servers = servers(3);
    for (server, value) in servers.iter().zip(["one", "another", "a third"]) {
        server.cli(&["SET", "job", value]);
    }
    let waiter = job(&servers).args(["--", "true"]).spawn();
    let ticket = || servers[2].cli(&["ZRANGE", QUEUE, "0", "0", "WITHSCORES"]);
    eventually("it has a ticket", || !ticket().is_empty());
    let first = ticket();
    servers[2].wait_until_asked(8);
    assert_eq!(ticket(), first);
    for server in &servers {
        server.cli(&["DEL", "job"]);
    }
    waiter.finish().code(0).silent();
}

/// A server reads so much at a time (Redis 6.2: 16 KiB), and no more from one who has gone once it failed to answer him: a
/// release that lies further behind the SET than that is never executed.
#[test]
fn a_node_that_hangs_is_not_asked_for_the_lock_again_before_it_has_answered() {
    let servers = servers(3);
    servers[0].cli(&["SET", "job", "one"]);
    servers[1].cli(&["SET", "job", "another"]);
    let waiter = job(&servers).args(["--", "true"]).spawn();
    eventually("it waits", || servers[2].cli(&["ZCARD", QUEUE]) == "1");
    let mut frozen = UNIX_EPOCH;
    let seen = servers[2].monitored(|| {
        servers[2].freeze();
        frozen = SystemTime::now();
        servers[0].wait_until_asked(8);
        waiter.signal(Signal::SIGTERM);
        waiter.finish().code(143);
        servers[2].thaw();
    });
    let since = |line: &&String| {
        let at = line.split(' ').next().and_then(|at| at.parse().ok()).map(Duration::from_secs_f64);
        UNIX_EPOCH + at.expect("a time") > frozen
    };
    let tries = seen.iter().filter(since).filter(|line| line.contains("'granted'")).count();
    assert!(tries <= 1, "{tries} tries are executed by a server that hung");
    eventually("it is clean", || servers[2].cli(&["EXISTS", "job", QUEUE]) == "0");
}

#[test]
fn a_wait_is_kept_to_its_time_whatever_the_nodes_do() {
    let servers = servers(3);
    let holder = hold(&servers);
    let waiter = queued(&servers, &["--wait", "1500ms"], "late");
    for server in &servers[..2] {
        server.freeze();
    }
    let finished = waiter.finish();
    assert!(
        finished.took >= Duration::from_millis(1490) && finished.took < Duration::from_millis(1700),
        "{:?}",
        finished.took
    );
    for server in &servers {
        server.thaw();
    }
    holder.finish().code(0);
    for server in &servers {
        eventually("it is clean", || server.cli(&["EXISTS", "job", QUEUE]) == "0");
    }
}

#[test]
fn nodes_that_go_away_while_one_waits_are_waited_for_and_then_69() {
    let mut servers = servers(1);
    let holder =
        job(&servers).args(["--ttl", "1500ms"]).hold("trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done");
    let waiter = queued(&servers, &["--wait", "3"], "never");
    servers[0].crash();
    waiter.finish().code(69).mentions(&["job", "cannot connect", "trying again"]);
    holder.finish().code(79);
}

#[test]
fn an_acl_without_the_queue_costs_the_order_and_not_the_lock() {
    let server = Server::tcp(&[]);
    let rights = "on >pw ~job ~rlock:* +eval +type +strlen +getrange +pttl +time +get +set +pexpire +del";
    let mut words = vec!["ACL", "SETUSER", "narrow"];
    words.extend(rights.split(' '));
    server.cli(&words);
    let url = format!("redis://narrow@127.0.0.1:{}", server.port());
    let narrow = || rlock("job").node(&url).env("RLOCK_PASSWORD", "pw");
    narrow().command(["true"]).code(0).silent();
    let holder = narrow().hold("echo ready; read line; true");
    let mut waiter = narrow().args(["-v", "--", "true"]).spawn();
    waiter.wait_until_told("waiting without a place in the queue");
    let mut told = rlock("job").on(&server).args(["-v", "--", "true"]).spawn();
    eventually("one waits in the queue", || server.cli(&["ZCARD", QUEUE]) == "1");
    assert!(told.is_running());
    holder.finish().code(0).silent();
    waiter.finish().code(0);
    told.finish().code(0);
}

#[test]
fn a_waiter_that_may_not_listen_says_so_once_and_looks_for_itself() {
    let server = Server::tcp(&[]);
    server.cli(&["ACL", "SETUSER", "deaf", "on", ">pw", "~*", "+@all", "resetchannels"]);
    let url = format!("redis://deaf@127.0.0.1:{}", server.port());
    let holder = rlock("job").on(&server).hold("echo ready; read line; true");
    let mut waiter = rlock("job").node(&url).env("RLOCK_PASSWORD", "pw").args(["--", "echo", "ran"]).spawn();
    waiter.wait_until_told("we may not listen there");
    let begin = Instant::now();
    holder.finish().code(0).silent();
    waiter.finish().code(0).said(&["job", "redis://127.0.0.1", "rlock:wake:*"]).printed(&["ran"]);
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
}

/// A release by such a user wakes no waiter.
#[test]
fn a_waiter_whose_user_may_not_publish_says_so_once_and_looks_for_itself() {
    let server = Server::tcp(&[]);
    server.cli(&["ACL", "SETUSER", "mute", "on", ">pw", "~*", "&*", "+@all", "-publish"]);
    if server.cli(&["EVAL", "return redis.acl_check_cmd and 1 or 0", "0"]) != "1" {
        return skipped("this server's scripts cannot ask what a user may do");
    }
    let url = format!("redis://mute@127.0.0.1:{}", server.port());
    let mute = || rlock("job").node(&url).env("RLOCK_PASSWORD", "pw");
    let holder = mute().hold("echo ready; read line; true");
    let mut waiter = mute().args(["--", "echo", "ran"]).spawn();
    waiter.wait_until_told("may not PUBLISH");
    assert_eq!(server.cli(&["EXISTS", QUEUE]), "0");
    let begin = Instant::now();
    holder.finish().code(0).silent();
    waiter.finish().code(0).said(&["job", "redis://127.0.0.1", "rlock:wake:*"]).printed(&["ran"]);
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
}

#[test]
fn a_stranger_in_the_queue_is_cut_to_what_a_reply_has_room_for() {
    let server = Server::start();
    let member = format!("{} {}", "6b29fc40-ca47-4067-b31d-00dd010662da", "y".repeat(100_000));
    server.cli(&["ZADD", QUEUE, "1", &member]);
    // It counts as there as long as it is listened to.
    let mut listener = std::process::Command::new("redis-cli")
        .arg("-s")
        .arg(server.socket())
        .args(["SUBSCRIBE", "rlock:wake:6b29fc40-ca47-4067-b31d-00dd010662da"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("redis-cli");
    eventually("it listens", || listening(&server) == 1);
    let finished = job(std::slice::from_ref(&server)).args(["-n"]).sh("echo ran");
    let _ = listener.kill();
    let _ = listener.wait();
    finished.code(75).printed(&[]).said(&["busy", "an entry that is not rlock's is next in its queue"]);
}

#[test]
fn the_rights_that_the_documentation_names_are_enough_to_wait_in_line() {
    let server = Server::tcp(&[]);
    let page = include_str!("../../docs/nodes.md");
    let line = page.lines().find(|line| line.starts_with("ACL SETUSER rlock ")).expect("the line");
    let words: Vec<String> =
        line.split(' ').map(|word| word.replace("PASSWORD", "pw").replace("backup", "job")).collect();
    assert_eq!(server.cli(&words.iter().map(String::as_str).collect::<Vec<_>>()), "OK");
    let url = format!("redis://rlock@127.0.0.1:{}", server.port());
    let user = || rlock("job").node(&url).env("RLOCK_PASSWORD", "pw");
    let holder = user().hold("echo ready; read line; true");
    let mut first = user().args(["--", "echo", "first"]).spawn();
    eventually("it stands in line", || server.cli(&["ZCARD", QUEUE]) == "1");
    assert!(first.is_running());
    holder.finish().code(0).silent();
    first.finish().code(0).silent().printed(&["first"]);
    assert_eq!(server.cli(&["ACL", "LOG"]), "");
}

#[test]
fn a_terminal_shows_whom_one_waits_for_in_one_line_that_goes_away() {
    let server = Server::start();
    let holder = rlock("job").on(&server).args(["--note", "why"]).hold("echo ready; read line; true");
    let mut bash = Session::bash_on(RLOCK, &server);
    bash.line("rlock run -k job -- echo let in");
    let line = bash.sees("(why)");
    assert!(line.contains("\rrlock: job: waiting 1s: held by tester@"), "{line:?}");
    bash.sees("\rrlock: job: waiting 2s");
    holder.finish().code(0);
    let rest = bash.sees("let in");
    assert!(rest.contains("\r\x1b[K") && !rest.contains('\n'), "{rest:?}");
}

#[test]
fn the_line_stays_while_a_foreign_holder_is_looked_at() {
    let server = Server::start();
    server.cli(&["SET", "job", "foreign", "PX", "60000"]);
    let mut bash = Session::bash_on(RLOCK, &server);
    bash.line("rlock run -k job --wait 3 -- true");
    bash.sees("\rrlock: job: waiting 1s: held by a client that is not rlock");
    let until_next = bash.sees("\rrlock: job: waiting 2s");
    assert!(!until_next.contains("\r\x1b[K"), "{until_next:?}");
    assert!(bash.sees("rlock: job: busy").contains("\r\x1b[K"));
}

#[test]
fn a_waiter_sent_to_the_background_leaves_the_line_of_others_alone() {
    let server = Server::start();
    let holder = rlock("job").on(&server).hold("echo ready; read line; true");
    let mut bash = Session::bash_on(RLOCK, &server);
    bash.line("rlock run -k job -- echo let in");
    bash.sees("\rrlock: job: waiting 1s");
    bash.press("\x1a");
    bash.prompt();
    bash.line("bg");
    bash.prompt();
    holder.finish().code(0);
    let rest = bash.sees("let in");
    assert!(!rest.contains("\x1b[K"), "{rest:?}");
}

/// Nobody renews a lock that `acquire` took, so the third node stays free.
#[test]
fn a_waiter_that_gives_a_minority_up_does_not_call_itself() {
    let mut servers = servers(3);
    servers[2].crash();
    let urls = servers.iter().map(Server::url).collect::<Vec<_>>().join(",");
    let acquire = rlock_words(&["acquire", "-k", "job", "--ttl", "5m", "--restart-guard", "off", "--node", &urls]);
    acquire.finish().code(0);
    servers[2].come_back();
    let waiter = job(&servers).args(["--", "true"]).spawn();
    eventually("it stands in the queue", || servers[2].cli(&["ZCARD", QUEUE]) == "1");
    let (asked, begin) = (servers[2].asked(), Instant::now());
    while begin.elapsed() < Duration::from_secs(3) {
        let more = servers[2].asked() - asked;
        assert!(more < 8, "{more} requests in {:?}", begin.elapsed());
    }
    waiter.signal(Signal::SIGTERM);
    waiter.finish().code(143);
}

#[test]
fn a_queue_has_an_expiry_while_a_waiter_takes_a_minority_and_gives_it_up() {
    let servers = servers(3);
    for server in &servers[..2] {
        server.cli(&["SET", "job", "theirs"]);
    }
    let waiter = job(&servers).args(["--", "true"]).spawn();
    eventually("it stands in the queue", || servers[2].cli(&["ZCARD", QUEUE]) == "1");
    let asked = servers[2].asked();
    while servers[2].asked() < asked + 8 {
        assert_ne!(servers[2].cli(&["PTTL", QUEUE]), "-1");
    }
    waiter.signal(Signal::SIGTERM);
    waiter.finish().code(143);
}
