//! The ACL line that `doctor` prints: its words, and its effect where it is pasted unchanged.

use super::{Told, doctor, good};
use crate::support::{Running, Server, rlock_words};

#[test]
fn the_documentation_has_the_line_that_doctor_prints() {
    let line = include_str!("../../../docs/redis.md")
        .lines()
        .find(|line| line.starts_with("ACL SETUSER "))
        .expect("the line");
    let told = doctor("redis://127.0.0.1:1")
        .args(["-k", "backup", "--acl"])
        .finish();
    told.tells(&[&format!("in place of {{>PASSWORD}}: {line}")]);
}

#[test]
fn a_users_name_that_would_add_words_to_the_line_is_refused() {
    for name in ["x%20nopass%20~%2A%20%2B%40all", "x%0Ay", "x%E2%80%AEy"] {
        let told = doctor(&format!("redis://{name}@127.0.0.1:1"))
            .finish()
            .code(78)
            .printed(&[]);
        told.said(&["--node redis://127.0.0.1:1", "no server has a user"])
            .never_said("nopass");
    }
    let told = doctor("redis://a%22b@127.0.0.1:1")
        .args(["--acl"])
        .finish()
        .code(69);
    told.tells(&[r#"ACL SETUSER "a\"b" on {>PASSWORD} "#]);
}

#[test]
fn an_acl_line_that_is_pasted_unchanged_changes_nothing() {
    let server = Server::tcp(&[]);
    server.cli(&["ACL", "SETUSER", "rlock", "on", ">hunter2", "~mine", "+get"]);
    let before = server.cli(&["ACL", "LIST"]);
    let told = doctor(&server.url())
        .args(["-k", "job", "--acl"])
        .finish()
        .stdout;
    let line = told
        .iter()
        .find(|line| line.contains("ACL SETUSER"))
        .expect("the line");
    let (advice, line) = line.split_once(": ").expect("the line");
    assert!(
        advice.ends_with("or nothing if the user has one, in place of {>PASSWORD}"),
        "{advice}"
    );
    let pasted = |line: &str| server.cli(&line.split(' ').collect::<Vec<_>>());
    // A shell takes the place for a redirection, and its brace is left.
    for line in [line, &line.replace("{>PASSWORD}", "{")] {
        let refusal = pasted(line);
        assert!(refusal.contains("Syntax error"), "{refusal}");
        assert_eq!(server.cli(&["ACL", "LIST"]), before);
    }
    // The password stays, and no right that is not named.
    assert_eq!(pasted(&line.replace("{>PASSWORD} ", "")), "OK");
    let password = |list: &str| {
        let words = list.split_whitespace();
        words
            .filter(|word| word.starts_with('#'))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let after = server.cli(&["ACL", "LIST"]);
    assert_eq!(password(&after), password(&before));
    assert!(
        !after.contains("~mine") && after.contains("~job"),
        "{after}"
    );
    assert_eq!(pasted(&line.replace("{>PASSWORD}", ">hunter3")), "OK");
}

/// Gives the user of `line` its password, and returns its address.
pub(super) fn admit(server: &Server, told: &[String], user: &str) -> String {
    let line = told
        .iter()
        .find_map(|line| line.split_once("}: "))
        .expect("the line")
        .1;
    let line = line.replace("{>PASSWORD}", ">pw").replace('"', "");
    assert_eq!(server.cli(&line.split(' ').collect::<Vec<_>>()), "OK");
    server.tcp_url().replace("://", &format!("://{user}@"))
}

#[test]
fn an_operator_shows_and_breaks_every_kind_of_lock_and_a_monitor_shows_them() {
    let server = Server::tcp(&["--appendonly", "yes"]);
    let kinds: [&[&str]; 5] = [
        &["-k", "deploy-a"],
        &["-k", "deploy-b", "--shared"],
        &["-k", "deploy-c", "--slots", "2"],
        &["-k", "deploy-d", "--as", "redisson"],
        &["-k", "other"],
    ];
    let hold = |words: &&[&str]| {
        let run = rlock_words(["run"]).on(&server).args(*words);
        run.hold("echo ready; read line")
    };
    let _holders: Vec<Running> = kinds.iter().map(hold).collect();
    server.cli(&["SET", "deploy-e", "foreign", "PX", "60000"]);
    let user_of = |name: &str| {
        let url = server.tcp_url().replace("://", &format!("://{name}@"));
        let words = ["--acl", "--role", name, "--pattern", "deploy-*"];
        let told = doctor(&url).args(words).finish().stdout;
        admit(&server, &told, name)
    };
    let as_user = |url: &str, words: &[&str]| {
        let rlock = rlock_words(words).node(url);
        rlock.env("RLOCK_PASSWORD", "pw").finish()
    };
    let (monitor, operator) = (user_of("monitor"), user_of("operator"));
    for (url, name) in [(&monitor, "monitor"), (&operator, "operator")] {
        as_user(url, &["doctor", "--role", name, "-k", "deploy-a"]).code(0);
        let shown = as_user(url, &["inspect"]).code(0).silent().stdout;
        let rows = shown.iter().filter(|line| line.contains("tester@"));
        assert!(rows.count() >= 4, "{shown:?}");
        let last = shown.last().expect("a line");
        assert_eq!(last, "1 lock that this user may not read");
    }
    as_user(&monitor, &["break", "--yes", "deploy-a"]).code(77);
    for name in ["deploy-a", "deploy-b", "deploy-c", "deploy-d"] {
        as_user(&operator, &["break", "--yes", name]).code(0);
    }
    as_user(&operator, &["break", "--yes", "--foreign", "deploy-e"]).code(0);
    as_user(&operator, &["break", "--yes", "other"]).code(77);
}

#[test]
fn a_name_that_looks_like_a_pattern_is_taken_literally_and_a_note_says_so() {
    let server = good();
    let told = doctor(&server.url())
        .args(["-k", "deploy-*", "-k", "job", "--acl"])
        .finish();
    told.code(0).tells(&[
        r"~deploy-\\*",
        "note: deploy-* is taken as the name of one lock, and no pattern",
    ]);
}
