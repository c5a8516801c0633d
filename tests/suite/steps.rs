//! A lock for work of several steps: `acquire`, `renew`, `release`, and `check` before a step that
//! needs the lock.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::{Finished, RLOCK, Rlock, Server, eventually, rlock, rlock_words};

/// Returns `rlock VERB -k job`, to be completed.
fn step(verb: &str, node: &str) -> Rlock {
    rlock_words([verb, "-k", "job"]).node(node)
}

/// Acquires the lock for a minute, and returns its token.
fn acquired(node: &str) -> String {
    step("acquire", node)
        .args(["--ttl", "1m", "--restart-guard", "off"])
        .finish()
        .code(0)
        .silent()
        .stdout
        .remove(0)
}

fn with(token: &str, verb: &str, node: &str) -> Rlock {
    step(verb, node).args(["--token", token])
}

fn three() -> (Vec<Server>, String) {
    let servers: Vec<Server> = (0..3).map(|_| Server::start()).collect();
    let nodes = servers
        .iter()
        .map(Server::url)
        .collect::<Vec<_>>()
        .join(",");
    (servers, nodes)
}

const NOBODY: &str = "5ae7c1be-3e1a-4a44-8c5a-0d3b6b3cbb4f";

#[test]
fn a_lock_that_was_acquired_keeps_others_out_until_it_is_released() {
    let server = Server::start();
    let node = server.url();
    let token = acquired(&node);
    rlock("job")
        .on(&server)
        .args(["-n"])
        .command(["true"])
        .code(75)
        .said(&["tester@", "taken with acquire"]);
    step("acquire", &node)
        .args(["-n"])
        .finish()
        .code(75)
        .printed(&[])
        .said(&["job: busy", "tester@"]);
    with(&token, "check", &node)
        .finish()
        .code(0)
        .silent()
        .printed(&[]);
    with(&token, "release", &node)
        .finish()
        .code(0)
        .silent()
        .printed(&[]);
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
    rlock("job")
        .on(&server)
        .args(["-n"])
        .command(["true"])
        .code(0)
        .silent();
}

#[test]
fn a_long_hold_is_told_with_the_time_of_day_at_which_it_ends() {
    let server = Server::start();
    let steps = |words: &[&str]| {
        let words = words.iter().chain(&["-k", "job", "--ttl", "2h", "-v"]);
        rlock_words(words).on(&server)
    };
    let taken = steps(&["acquire"]).finish().code(0);
    let renewed = steps(&["renew"]).env("RLOCK_TOKEN", &taken.stdout[0]);
    let renewed = renewed.finish().code(0);
    let shown = rlock_words(["inspect", "job"]).on(&server).finish().code(0);
    let shown = shown.stdout.join("\n");
    assert!(
        shown.contains("  1h ") && shown.contains(" UTC)"),
        "{shown}"
    );
    for (told, words) in [(taken, "; held for 1h "), (renewed, "renewed for 1h ")] {
        let said = told.stderr;
        let end = said.split_once(words).expect("the time").1;
        let (_, end) = end.trim_end().split_once(" (").expect("the time of day");
        let [day, time, "UTC)"] = end.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{said}");
        };
        assert!(day.len() == 3 && time.len() == 5, "{said}");
    }
}

#[test]
fn what_acquire_prints_is_fit_for_a_shell_and_for_a_program() {
    let server = Server::start();
    let script = format!(
        "set -ea; taken=$({RLOCK} acquire -k job --format env); eval \"$taken\"
         {RLOCK} check; {RLOCK} check --for 20s; {RLOCK} renew; echo \"$RLOCK_KEY $RLOCK_FENCE\"; {RLOCK} release"
    );
    let shell = std::process::Command::new("sh")
        .args(["-c", &script])
        .env("RLOCK_NODE", server.url())
        .output()
        .expect("sh");
    let (told, said) = (
        String::from_utf8_lossy(&shell.stdout),
        String::from_utf8_lossy(&shell.stderr),
    );
    assert!(shell.status.success() && said.is_empty(), "{told} {said}");
    let fence = server.cli(&["GET", "rlock:fence:{job}:job"]);
    assert_eq!(told.trim(), format!("job {fence}"));

    let printed = step("acquire", &server.url())
        .args(["--format", "json"])
        .finish()
        .code(0)
        .stdout;
    let json: serde_json::Value = serde_json::from_str(&printed.join("\n")).expect("an object");
    assert_eq!(json["key"], "job");
    assert!(json["fence"].as_u64() > fence.parse().ok(), "{json}");
    let left = json["ttl_ms"].as_u64().expect("a number");
    assert!((25_000..=29_698).contains(&left), "{left}");
    let proof = json["token"].as_str().expect("a string");
    assert!(
        server
            .cli(&["GET", "job"])
            .starts_with(&format!("{proof} {{"))
    );
}

#[test]
fn a_token_that_is_not_the_holders_changes_nothing_and_names_the_holder() {
    let server = Server::start();
    let node = server.url();
    let token = acquired(&node);
    let value = server.cli(&["GET", "job"]);
    for verb in ["renew", "release", "check"] {
        with(NOBODY, verb, &node).finish().code(1).said(&[
            "job: not the holder's token",
            "tester@",
            "lease ends in",
        ]);
    }
    assert_eq!(server.cli(&["GET", "job"]), value);
    let left: u64 = server.cli(&["PTTL", "job"]).parse().expect("a number");
    assert!(left > 50_000, "{left}");
    with(&token, "release", &node).finish().code(0);
    for verb in ["release", "renew", "check"] {
        with(&token, verb, &node)
            .finish()
            .code(1)
            .said(&["not the holder's token", "the lock is free"]);
    }
    with(&token, "check", &node)
        .args(["-q"])
        .finish()
        .code(1)
        .silent();
    server.cli(&["SET", "job", "f00dfeed"]);
    with(&token, "check", &node)
        .finish()
        .code(1)
        .said(&["not rlock", "f00dfeed"]);
}

#[test]
fn renewing_without_a_ttl_keeps_the_one_it_was_taken_with() {
    let server = Server::start();
    let node = server.url();
    let token = acquired(&node);
    let left = || {
        server
            .cli(&["PTTL", "job"])
            .parse::<u64>()
            .expect("a number")
    };
    with(&token, "renew", &node)
        .args(["--ttl", "5s"])
        .finish()
        .code(0)
        .silent();
    assert!(left() <= 5000);
    with(&token, "renew", &node).finish().code(0).silent();
    assert!(left() > 50_000);
    with(&token, "renew", &node)
        .args(["--ttl", "5m"])
        .finish()
        .code(0)
        .silent();
    assert!(left() > 290_000);
}

#[test]
fn a_renewal_carries_the_fence_and_no_other_one() {
    let server = Server::start();
    let node = server.url();
    let token = acquired(&node);
    let counter = "rlock:fence:{job}:job";
    let fence = server.cli(&["GET", counter]);
    with(&token, "renew", &node)
        .args(["--fence", "4503599627370495"])
        .finish()
        .code(64)
        .said(&["--fence", &fence]);
    server.cli(&["DEL", counter]);
    with(&token, "renew", &node)
        .args(["--fence", &fence])
        .finish()
        .code(0)
        .silent();
    assert_eq!(server.cli(&["GET", counter]), fence);
}

#[test]
fn a_fence_that_no_server_can_have_is_64_though_the_counter_was_lost() {
    let server = Server::start();
    let node = server.url();
    let token = acquired(&node);
    let counter = "rlock:fence:{job}:job";
    server.cli(&["DEL", counter]);
    with(&token, "renew", &node)
        .args(["--fence", "4503599627370496"])
        .finish()
        .code(64)
        .said(&["--fence 4503599627370496 is above 4503599627370495"]);
    assert_eq!(server.cli(&["EXISTS", counter]), "0");
}

#[test]
fn a_renewal_extends_no_member_at_another_ones_slot() {
    let (servers, nodes) = three();
    let token = step("acquire", &nodes)
        .args(["--ttl", "1m", "--restart-guard", "off", "--slots", "2"])
        .finish()
        .code(0)
        .stdout
        .remove(0);
    // Where the grant came late, it is set now.
    with(&token, "renew", &nodes).finish().code(0);
    let [leases, holders] = ["leases", "holders"].map(|kind| format!("rlock:{kind}:{{job}}:job"));
    let [ours, other] = [&servers[0], &servers[2]];
    let entry = other.cli(&["HGET", &holders, &token]);
    let (index, rest) = entry.split_once(' ').expect("an index");
    let wrong = if index == "1" { "2" } else { "1" };
    // At the third server the slot is another member's, and the token has that one's.
    let theirs = entry.replace(&token, NOBODY);
    let ends = other.cli(&["ZSCORE", &leases, &token]);
    other.cli(&["ZADD", &leases, &ends, NOBODY]);
    other.cli(&[
        "HSET",
        &holders,
        &token,
        &format!("{wrong} {rest}"),
        wrong,
        &token,
    ]);
    other.cli(&["HSET", &holders, NOBODY, &theirs, index, NOBODY]);
    let before = ours.cli(&["ZSCORE", &leases, &token]);
    with(&token, "renew", &nodes).finish().code(0);
    assert!(ours.cli(&["ZSCORE", &leases, &token]) > before);
    assert_eq!(other.cli(&["ZSCORE", &leases, &token]), ends);
}

#[test]
fn check_needs_no_flags_inside_run_and_none_of_its_variables_choose_what_run_locks() {
    let server = Server::start();
    let rlock_bin = RLOCK;
    let script =
        format!("{rlock_bin} check --for 20s && {rlock_bin} check -k job && echo $RLOCK_KEY");
    rlock("job")
        .on(&server)
        .args(["--prefix", "p:"])
        .sh(&script)
        .code(0)
        .silent()
        .printed(&["job"]);
    // A token of one run is not valid for another.
    let script = format!("{rlock_bin} run -k other -c 'RLOCK_KEY=job {rlock_bin} check'");
    rlock("job")
        .on(&server)
        .sh(&script)
        .code(1)
        .said(&["not the holder's token"]);
}

#[test]
fn run_refuses_a_lock_of_acquire_that_no_process_would_renew() {
    let server = Server::start();
    let token = acquired(&server.url());
    let run = || {
        rlock("job")
            .on(&server)
            .env("RLOCK_KEY", "job")
            .env("RLOCK_TOKEN", &token)
    };
    run()
        .sh("echo ran")
        .code(64)
        .printed(&[])
        .said(&["job: held by rlock acquire already", "release it first"]);
    with(&token, "release", &server.url()).finish().code(0);
    run().sh("echo ran").code(0).printed(&["ran"]).silent();
}

#[test]
fn check_works_inside_a_local_lock() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = format!("local:{}", dir.path().display());
    let rlock_bin = RLOCK;
    let script = format!("{rlock_bin} check && {rlock_bin} check --for 1h && echo yes");
    rlock("job")
        .node(&node)
        .sh(&script)
        .code(0)
        .silent()
        .printed(&["yes"]);
    with(NOBODY, "check", &node)
        .finish()
        .code(1)
        .said(&["the lock is free"]);
    with(NOBODY, "check", &node)
        .args(["--fence", "7"])
        .finish()
        .code(64)
        .said(&["--fence needs a server"]);
}

#[test]
fn check_asks_for_time_and_fence() {
    let server = Server::start();
    let node = server.url();
    let token = acquired(&node);
    let fence: u64 = server
        .cli(&["GET", "rlock:fence:{job}:job"])
        .parse()
        .expect("a number");
    let check = |words: &[&str]| with(&token, "check", &node).args(words).finish();
    check(&["--for", "50s", "--fence", &fence.to_string()])
        .code(0)
        .silent();
    check(&["--for", "1m"])
        .code(1)
        .said(&["only 5", "certainly left"]);
    check(&["--fence", &(fence - 1).to_string()])
        .code(1)
        .said(&["its fence is", &fence.to_string()]);
    check(&["--fence", &(fence + 1).to_string()])
        .code(1)
        .said(&["its fence is"]);
    server.cli(&["PERSIST", "job"]);
    check(&["--for", "1h"]).code(0).silent();
}

#[test]
fn a_majority_decides_and_none_is_69() {
    let (servers, nodes) = three();
    let token = acquired(&nodes);
    servers[0].freeze();
    for verb in ["check", "renew", "release"] {
        with(&token, verb, &nodes)
            .finish()
            .code(0)
            .within(Duration::from_secs(3));
    }
    with(&token, "check", &nodes)
        .finish()
        .code(1)
        .said(&["the lock is free"]);
    servers[1].freeze();
    for verb in ["check", "renew", "release"] {
        let words = ["job: no majority of the 3 nodes", "no answer within 1s"];
        with(&token, verb, &nodes)
            .finish()
            .code(69)
            .said(&words)
            .within(Duration::from_secs(5));
    }
}

#[test]
fn a_release_that_no_majority_answers_still_reaches_the_nodes_when_they_wake() {
    let (servers, nodes) = three();
    let token = acquired(&nodes);
    servers[..2].iter().for_each(Server::freeze);
    let told = with(&token, "release", &nodes)
        .args(["--node-timeout", "3s"])
        .finish()
        .code(69)
        .said(&["no majority", "no answer within 3s"]);
    // A second wait for an answer would be over after six seconds.
    told.within(Duration::from_millis(5900));
    servers[..2].iter().for_each(Server::thaw);
    eventually("all have it back", || {
        servers
            .iter()
            .all(|server| server.cli(&["EXISTS", "job"]) == "0")
    });
}

#[test]
fn a_renewal_sets_the_lock_again_where_a_minority_lost_it() {
    let (servers, nodes) = three();
    let token = acquired(&nodes);
    let values: Vec<String> = servers.iter().map(|it| it.cli(&["GET", "job"])).collect();
    // One server after another, and both the key and all that is beside it.
    for (lost, words) in [(0, ["DEL", "job"].as_slice()), (1, &["FLUSHALL"])] {
        servers[lost].cli(words);
        // Attempts that fail raise the counter there.
        rlock("job")
            .node(&nodes)
            .args(["-n"])
            .command(["true"])
            .code(75);
        with(&token, "renew", &nodes).finish().code(0).silent();
        let again = servers[lost].cli(&["GET", "job"]);
        let (told, detail) = again.split_once(",\"fence\":").expect("its fence");
        assert!(values[lost].starts_with(told), "{again}");
        let fence = detail.split(',').next().expect("a number");
        with(&token, "check", &nodes)
            .args(["--fence", fence, "--for", "50s"])
            .finish()
            .code(0)
            .silent();
        rlock("job")
            .node(&nodes)
            .args(["-n"])
            .command(["true"])
            .code(75);
    }
    with(&token, "release", &nodes).finish().code(0).silent();
    assert!(servers.iter().all(|it| it.cli(&["EXISTS", "job"]) == "0"));
}

#[test]
fn a_renewal_sets_the_lock_again_at_a_server_that_has_lost_the_script_too() {
    let (servers, nodes) = three();
    let token = acquired(&nodes);
    // Where the grant came late, it is set now.
    with(&token, "renew", &nodes).finish().code(0);
    servers[0].cli(&["FLUSHALL"]);
    servers[0].cli(&["SCRIPT", "FLUSH"]);
    with(&token, "renew", &nodes).finish().code(0).silent();
    assert!(servers[0].cli(&["GET", "job"]).starts_with(&token));
}

#[test]
fn a_minority_does_not_hold_the_lock() {
    let (servers, nodes) = three();
    let token = acquired(&nodes);
    servers[0].cli(&["DEL", "job"]);
    with(&token, "check", &nodes).finish().code(0).silent();
    servers[1].cli(&["DEL", "job"]);
    for verb in ["check", "renew"] {
        with(&token, verb, &nodes)
            .finish()
            .code(1)
            .said(&["the lock is free"]);
    }
    with(&token, "renew", &nodes)
        .args(["--ttl", "2m"])
        .finish()
        .code(1);
    with(&token, "release", &nodes)
        .finish()
        .code(1)
        .said(&["the lock is free"]);
    assert_eq!(servers[2].cli(&["EXISTS", "job"]), "0");
}

#[test]
fn a_token_that_is_not_the_holders_is_1_and_names_the_holder_on_several_nodes_too() {
    let (servers, nodes) = three();
    let token = acquired(&nodes);
    for verb in ["check", "renew", "release"] {
        let words = [
            "job: not the holder's token: held by tester@",
            "taken with acquire",
        ];
        with(NOBODY, verb, &nodes).finish().code(1).said(&words);
    }
    with(&token, "check", &nodes).finish().code(0).silent();
    // The holder is named though the first node that answers has no key.
    servers[0].cli(&["DEL", "job"]);
    for verb in ["check", "renew", "release"] {
        with(NOBODY, verb, &nodes)
            .finish()
            .code(1)
            .said(&["not the holder's token: held by tester@"]);
    }
}

#[test]
fn a_lock_of_another_number_of_nodes_is_78_and_is_not_touched() {
    let (servers, nodes) = three();
    let token = acquired(&nodes);
    let (one, five) = (
        servers[0].url(),
        format!("{nodes},{}", Server::start().url()),
    );
    let ours = ["we have 1:", "we have 4:"];
    for (list, ours) in [&one, &five].into_iter().zip(ours) {
        for verb in ["check", "renew", "release"] {
            let words = [
                "held by tester@",
                "with 3 nodes",
                ours,
                "same list everywhere",
            ];
            with(&token, verb, list).finish().code(78).said(&words);
        }
    }
    with(NOBODY, "check", &one).finish().code(78);
    assert!(
        servers
            .iter()
            .all(|server| server.cli(&["GET", "job"]).starts_with(&token))
    );
    with(&token, "release", &nodes).finish().code(0).silent();
}

#[test]
fn a_minority_that_refuses_us_is_one_warning_and_a_majority_77() {
    let servers: Vec<Server> = (0..3).map(|_| Server::tcp(&[])).collect();
    let nodes = servers
        .iter()
        .map(Server::tcp_url)
        .collect::<Vec<_>>()
        .join(",");
    let token = acquired(&nodes);
    servers[0].cli(&["CONFIG", "SET", "requirepass", "hunter2"]);
    for verb in ["check", "renew", "release"] {
        let told = with(&token, verb, &nodes).finish().code(0);
        // Two replies are enough for check, which does not wait for the third.
        assert!(
            told.stderr.lines().count() <= 1 && (verb == "check" || !told.stderr.is_empty()),
            "{}",
            told.stderr
        );
        assert!(
            told.stderr.is_empty() || told.stderr.contains("its vote is missing"),
            "{}",
            told.stderr
        );
    }
    servers[1].cli(&["CONFIG", "SET", "requirepass", "hunter2"]);
    for verb in ["check", "renew", "release"] {
        with(&token, verb, &nodes)
            .finish()
            .code(77)
            .said(&["job: no majority of the 3 nodes", "NOAUTH"]);
    }
}

#[test]
fn several_nodes_rely_on_the_ttl_that_stands_in_the_value() {
    let (_servers, nodes) = three();
    let token = acquired(&nodes);
    with(&token, "renew", &nodes)
        .args(["--ttl", "2m"])
        .finish()
        .code(64)
        .said(&["--ttl", "1m"]);
    with(&token, "renew", &nodes)
        .args(["--ttl", "50s"])
        .finish()
        .code(0)
        .silent();
}

#[test]
fn a_signal_ends_the_wait_and_leaves_no_lock() {
    let server = Server::start();
    let token = acquired(&server.url());
    let waiter = step("acquire", &server.url()).args(["-v"]).spawn();
    eventually("it has asked", || {
        server
            .cli(&["INFO", "commandstats"])
            .contains("cmdstat_evalsha:calls=3")
    });
    waiter.signal(Signal::SIGTERM);
    waiter.finish().code(143).printed(&[]);
    with(&token, "check", &server.url()).finish().code(0);
}

#[test]
fn a_token_that_cannot_be_told_is_a_lock_that_is_not_kept() {
    let server = Server::start();
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("/dev/full");
    let finished = std::process::Command::new(RLOCK)
        .args(["acquire", "-k", "job", "--node", &server.url()])
        .stdout(full)
        .output()
        .expect("rlock");
    assert_eq!(finished.status.code(), Some(74), "{finished:?}");
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn a_token_that_is_told_to_a_closed_stdout_is_a_lock_that_is_not_kept() {
    let server = Server::start();
    let node = server.url();
    for redirection in [">&-", "<&- >&-", ">&- 2>&-", "1</dev/null"] {
        let script = format!("exec {RLOCK} acquire -k job --node {node} {redirection}");
        let output = std::process::Command::new("sh")
            .args(["-c", &script])
            .output()
            .expect("sh");
        assert_eq!(output.status.code(), Some(74), "{redirection}: {output:?}");
        assert_eq!(server.cli(&["EXISTS", "job"]), "0", "{redirection}");
    }
}

#[test]
fn what_was_asked_for_and_cannot_be_printed_is_74_and_no_bug() {
    let server = Server::start();
    for redirection in [">&-", ">/dev/full"] {
        let script = format!(
            "exec {} inspect --node {} {redirection}",
            RLOCK,
            server.url()
        );
        let output = std::process::Command::new("sh")
            .args(["-c", &script])
            .output()
            .expect("sh");
        assert_eq!(output.status.code(), Some(74), "{redirection}: {output:?}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("cannot print"),
            "{redirection}: {output:?}"
        );
    }
}

#[test]
fn bad_input_is_64_and_changes_nothing() {
    let server = Server::start();
    let local = "local:/tmp/rlock-suite-steps";
    let refused = |finished: Finished, words: &[&str]| finished.code(64).said(words);
    for verb in ["acquire", "renew", "release"] {
        let words = if verb == "acquire" {
            vec![]
        } else {
            vec!["--token", NOBODY]
        };
        refused(step(verb, local).args(words).finish(), &["needs a server"]);
    }
    let node = server.url();
    refused(step("check", &node).finish(), &["--token"]);
    refused(
        rlock_words(["check", "--token", NOBODY])
            .node(&node)
            .finish(),
        &["--key"],
    );
    refused(with("nonsense", "release", &node).finish(), &["--token"]);
    refused(
        with(NOBODY, "check", &node).args(["--fence", "0"]).finish(),
        &["--fence"],
    );
    refused(
        with(NOBODY, "check", &node).args(["--for", "5"]).finish(),
        &["--for"],
    );
    refused(
        with(NOBODY, "renew", &node).args(["--ttl", "1ms"]).finish(),
        &["--ttl"],
    );
    refused(
        rlock_words(["acquire", "-k", "a b", "--format", "env"])
            .node(&node)
            .finish(),
        &["--format json"],
    );
    refused(
        rlock_words(["acquire"])
            .env("RLOCK_KEY", "job")
            .node(&node)
            .finish(),
        &["--key"],
    );
    assert_eq!(
        server
            .cli(&["INFO", "commandstats"])
            .matches("cmdstat_evalsha:")
            .count(),
        0
    );
}

#[test]
fn the_name_of_a_lock_may_stand_without_a_flag_and_comes_before_the_variable() {
    let server = Server::start();
    let acquire = |key: &str| {
        let taken = rlock_words(["acquire", "-k", key]).on(&server).finish();
        taken.code(0).stdout.remove(0)
    };
    let (token, _other) = (acquire("job"), acquire("other"));
    let of = |words: &[&str]| {
        rlock_words(words)
            .on(&server)
            .args(["--token", &token])
            .env("RLOCK_KEY", "other")
            .finish()
    };
    of(&["check", "job"]).code(0);
    of(&["renew", "job"]).code(0);
    of(&["check"]).code(1).said(&["other: "]);
    of(&["release", "-k", "job", "job"])
        .code(64)
        .said(&["KEY and --key contradict each other"]);
    of(&["release", "redis://:secret@h"])
        .code(64)
        .said(&["a node's address is given with --node"])
        .never_said("secret");
    of(&["release", "job"]).code(0);
    assert_eq!(server.cli(&["EXISTS", "job", "other"]), "1");
}
