//! `acquire`, `check`, `renew` and `release` of several locks: lists in, lists out.

use serde_json::Value;

use super::run;
use crate::support::{RLOCK, Rlock, Server, rlock_words};

fn taken(server: &Server, words: &[&str]) -> Vec<String> {
    rlock_words(["acquire", "-k", "b", "-k", "a"]).on(server).args(words).finish().code(0).silent().stdout
}

/// Returns `rlock COMMAND` for `a` and `b` with these tokens.
fn on_both(server: &Server, command: &str, tokens: &str) -> Rlock {
    rlock_words([command, "-k", "b", "-k", "a", "--token", tokens]).on(server)
}

#[test]
fn acquire_prints_lists_in_the_order_of_the_names() {
    let server = Server::start();
    let token = |key: &str| server.cli(&["GET", key]).split(' ').next().unwrap_or_default().to_owned();
    let both = || format!("{},{}", token("a"), token("b"));
    assert_eq!(taken(&server, &[]), [both()]);
    on_both(&server, "release", &both()).finish().code(0);

    let lines = taken(&server, &["--format", "env"]);
    let fences = ["a", "b"].map(|key| server.cli(&["GET", &format!("rlock:fence:{{{key}}}:{key}")])).join(",");
    assert_eq!(lines, ["RLOCK_KEY=a,b".to_owned(), format!("RLOCK_TOKEN={}", both()), format!("RLOCK_FENCE={fences}")]);
    on_both(&server, "release", &both()).finish().code(0);

    let shown: Value = serde_json::from_str(&taken(&server, &["--format", "json"])[0]).expect("JSON");
    let locks = shown.as_array().expect("an array");
    assert_eq!(locks.iter().map(|lock| lock["key"].as_str().expect("a key")).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(locks[1]["token"], token("b").as_str());
    assert!(locks.iter().all(|lock| lock["fence"].is_u64() && lock["ttl_ms"].is_u64()), "{shown}");
}

#[test]
fn lists_are_taken_from_the_variables_that_acquire_prints() {
    let server = Server::start();
    let lines = taken(&server, &["--format", "env"]);
    let with = |job: Rlock| {
        lines.iter().fold(job, |job, line| {
            let (name, value) = line.split_once('=').expect("a variable");
            job.env(name, value)
        })
    };
    with(rlock_words(["check", "-v"])).on(&server).finish().code(0).mentions(&["a: the lock is", "b: the lock is"]);
    with(rlock_words(["renew"])).on(&server).finish().code(0).silent();
    // One of them by its name: its token and fence are found by the name.
    with(rlock_words(["check", "-k", "b"])).on(&server).finish().code(0).silent();
    with(rlock_words(["check", "-k", "c"])).on(&server).finish().code(64).said(&["--token: 2 given for 1 lock"]);
    with(rlock_words(["release"])).on(&server).finish().code(0).silent();
    assert_eq!(server.cli(&["EXISTS", "a", "b"]), "0");
}

#[test]
fn the_locks_that_are_not_the_callers_are_named_and_the_others_are_served() {
    let server = Server::start();
    let tokens = taken(&server, &[]).remove(0);
    server.cli(&["SET", "b", "another's"]);
    for command in ["check", "renew"] {
        let answer = on_both(&server, command, &tokens).finish().code(1);
        answer.said(&["rlock: b: not the holder's token: held by a client that is not rlock"]).never_said("a: ");
    }
    on_both(&server, "check", &tokens).args(["-q"]).finish().code(1).silent();
    on_both(&server, "release", &tokens).finish().code(1).said(&["rlock: b: not the holder's token"]);
    assert_eq!(server.cli(&["EXISTS", "a"]), "0");
    assert_eq!(server.cli(&["GET", "b"]), "another's");
    let answer = on_both(&server, "check", &tokens).args(["--log", "json"]).finish().code(1);
    let line: Value = serde_json::from_str(&answer.stderr).expect("one line of JSON");
    assert_eq!((line["key"].as_str(), line["code"].as_u64()), (Some("a,b"), Some(1)));
    assert_eq!(line["locks"].as_array().map(Vec::len), Some(2));
}

#[test]
fn check_needs_no_flags_inside_a_run_of_several_locks() {
    let server = Server::start();
    let script = format!("{RLOCK} check && {RLOCK} check -k b && {RLOCK} check --for 1s && echo ours; {RLOCK} release");
    let finished = run(&["a", "b"]).on(&server).args(["-c", &script]).finish().code(64).printed(&["ours"]);
    finished.mentions(&["a: rlock run (pid", "b: rlock run (pid"]);
}
