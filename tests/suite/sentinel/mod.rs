//! Nodes that sentinels name: `redis-sentinel://`. What a failover does is in
//! `sentinel/failovers.rs`.

mod failovers;

use crate::support::{
    Certificates, Finished, Nodes, Rlock, STEADY, Sentinel, Server, Watched, eventually, lasts,
    rlock, rlock_words, runs,
};

/// A server and one sentinel that names it: enough where no failover is meant.
fn single(lines: &str) -> (Server, Sentinel, String) {
    let server = Server::tcp(&[]);
    let sentinel = Sentinel::start(server.port(), lines);
    let url = Watched::url_of(&[&sentinel]);
    (server, sentinel, url)
}

fn run(url: &str) -> Rlock {
    rlock("job").node(url).args(["-n"])
}

/// Checks that nothing was run and nothing is stored.
fn refused(finished: Finished, server: &Server, code: i32, words: &[&str]) {
    finished.code(code).printed(&[]).said(words);
    assert_eq!(server.cli(&["DBSIZE"]), "0");
}

#[test]
fn every_command_works_through_sentinels_and_names_the_primary() {
    let (server, _sentinel, url) = single("");
    let (server_at, named) = (format!("primary 127.0.0.1:{}", server.port()), url.as_str());
    let holder = rlock("job")
        .node(&url)
        .args(STEADY)
        .hold("echo ready; read line; true");
    assert_eq!(server.token().len(), 36);
    rlock_words(["inspect"])
        .node(&url)
        .finish()
        .code(0)
        .silent();
    let shown = rlock_words(["inspect", "job"])
        .node(&url)
        .finish()
        .code(0)
        .stdout
        .join("\n");
    assert!(
        shown.contains(&format!("{named}: {server_at}, epoch 0")),
        "{shown}"
    );
    let shown = rlock_words(["inspect", "job", "--json"])
        .node(&url)
        .finish()
        .code(0)
        .stdout
        .join("\n");
    assert!(
        shown.contains(&format!("\"primary\":\"127.0.0.1:{}\"", server.port())),
        "{shown}"
    );
    rlock_words(["break", "job", "--yes"])
        .node(&url)
        .finish()
        .code(0);
    holder.finish().code(79);

    let token = rlock_words(["acquire", "--key", "job"])
        .node(&url)
        .finish()
        .code(0)
        .silent()
        .stdout
        .remove(0);
    for verb in ["check", "renew", "release"] {
        rlock_words([verb, "--key", "job", "--token", &token])
            .node(&url)
            .finish()
            .code(0)
            .silent();
    }
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");

    let told = rlock_words(["doctor"])
        .node(&url)
        .finish()
        .stdout
        .join("\n");
    assert!(
        told.contains(&format!("{named}: {server_at}, epoch 0")),
        "{told}"
    );
    assert!(!told.contains("failover takes"), "{told}");
    let told = rlock_words(["doctor", "--ttl", "3s"])
        .node(&url)
        .finish()
        .code(1)
        .stdout
        .join("\n");
    assert!(
        told.contains("a failover takes 2s 900ms") && told.contains("it needs --ttl 8s or more"),
        "{told}"
    );
}

#[test]
fn what_is_wrong_with_an_address_is_said_in_one_line_and_nothing_is_changed() {
    let (server, sentinel, url) = single("");
    let elsewhere = Server::tcp(&[]);
    let other = Sentinel::start(elsewhere.port(), "");
    let wrong = url.replace("/svc", "/other");
    refused(
        run(&wrong).command(["echo", "ran"]),
        &server,
        78,
        &["the sentinel knows no service other"],
    );
    let server_url = server.tcp_url().replace("redis://", "redis-sentinel://") + "/svc";
    refused(
        run(&server_url).command(["echo", "ran"]),
        &server,
        78,
        &["it is no sentinel; write redis://"],
    );
    let plain = format!("redis://127.0.0.1:{}", sentinel.port());
    refused(
        run(&plain).command(["echo", "ran"]),
        &server,
        78,
        &["it is a sentinel; write redis-sentinel://"],
    );
    rlock_words(["inspect", "job"])
        .node(&plain)
        .finish()
        .code(78)
        .said(&["write redis-sentinel://"]);
    let told = rlock_words(["doctor"])
        .node(&plain)
        .finish()
        .code(78)
        .stdout
        .join("\n");
    assert!(
        told.contains("it is a sentinel") && told.contains("write redis-sentinel://"),
        "{told}"
    );
    let both = Watched::url_of(&[&sentinel, &other]);
    refused(
        run(&both).command(["echo", "ran"]),
        &server,
        78,
        &["the sentinels disagree", "both at epoch 0"],
    );
    let twice = format!("{url},{url}");
    refused(
        run(&twice).command(["echo", "ran"]),
        &server,
        78,
        &["twice"],
    );
    assert_eq!(elsewhere.cli(&["DBSIZE"]), "0");
}

#[test]
fn sentinels_have_a_password_of_their_own_and_never_see_the_servers() {
    let (server, sentinel, url) = single("requirepass hunter2");
    // The sentinel is not the server's client here: it would need the password.
    server.cli(&["CONFIG", "SET", "requirepass", "hunter3"]);
    let url = url.replace("redis-sentinel://", "redis-sentinel://:hunter3@");
    let told = run(&url)
        .env("RLOCK_PASSWORD", "hunter4")
        .command(["true"])
        .code(77);
    told.said(&["NOAUTH", "--sentinel-password-file"])
        .never_said("hunter");
    let told = run(&url)
        .env("RLOCK_SENTINEL_PASSWORD", "hunter3")
        .command(["true"])
        .code(77);
    told.said(&["sentinel 127.0.0.1", "--sentinel-password-file"])
        .never_said("hunter");
    run(&url)
        .env("RLOCK_SENTINEL_PASSWORD", "hunter2")
        .command(["true"])
        .code(0)
        .silent();
    let with_user = || {
        run(&url)
            .env("RLOCK_SENTINEL_USER", "default")
            .env("RLOCK_SENTINEL_PASSWORD", "hunter2")
    };
    with_user().command(["true"]).code(0).silent();
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(&file, "hunter2\n").expect("a password");
    let path = file.path().to_str().expect("a name").to_owned();
    let with_file = || run(&url).args(["--sentinel-password-file", &path]);
    with_file()
        .sh("echo $RLOCK_SENTINEL_PASSWORD_FILE")
        .code(0)
        .silent()
        .printed(&[&path]);
    let rights =
        "+sentinel|get-master-addr-by-name +sentinel|master +subscribe +hello &+switch-master";
    let words = ["ACL", "SETUSER", "rl", "on", ">hunter5", "resetchannels"];
    let set = sentinel.cli(
        &words
            .into_iter()
            .chain(rights.split(' '))
            .collect::<Vec<_>>(),
    );
    assert!(set == "OK", "{set}");
    let user = || {
        run(&url)
            .env("RLOCK_SENTINEL_USER", "rl")
            .env("RLOCK_SENTINEL_PASSWORD", "hunter5")
    };
    sentinel.cli(&["ACL", "LOG", "RESET"]);
    user().command(["true"]).code(0).silent();
    let log = sentinel.cli(&["ACL", "LOG"]);
    assert!(
        log.is_empty(),
        "every right that rlock uses is granted: {log}"
    );
    let wrong = url.replace("hunter3", "hunter4");
    let told = run(&wrong)
        .env("RLOCK_SENTINEL_PASSWORD", "hunter2")
        .command(["true"])
        .code(77);
    told.said(&["primary 127.0.0.1", "password"])
        .never_said("hunter");
}

#[test]
fn a_killed_rlock_has_its_lock_released_through_sentinels_with_passwords() {
    let (server, _sentinel, url) = single("requirepass hunter2");
    server.cli(&["CONFIG", "SET", "requirepass", "hunter3"]);
    let job = rlock("job")
        .node(&url)
        .env("RLOCK_PASSWORD", "hunter3")
        .env("RLOCK_SENTINEL_PASSWORD", "hunter2");
    let holder = job.hold("echo ready; read line; true");
    holder.signal(nix::sys::signal::Signal::SIGKILL);
    eventually("the guard has released the lock", || {
        server.cli_as(&["hunter3"], &["EXISTS", "job"]) == "0"
    });
}

#[test]
fn a_minority_of_the_sentinels_may_be_dead_and_of_a_majority_none() {
    let server = Server::tcp(&[]);
    let mut sentinels: Vec<Sentinel> = (0..3).map(|_| Sentinel::start(server.port(), "")).collect();
    let url = Watched::url_of(&sentinels.iter().collect::<Vec<_>>());
    sentinels[0].crash();
    run(&url)
        .command(["echo", "ran"])
        .code(0)
        .silent()
        .printed(&["ran"]);
    let told = rlock_words(["doctor"])
        .node(&url)
        .finish()
        .code(1)
        .stdout
        .join("\n");
    assert!(
        told.contains("only 2 of 3 sentinels name a primary"),
        "{told}"
    );
    sentinels[1].freeze();
    let told = rlock("job")
        .node(&url)
        .args(["--wait", "1"])
        .command(["true"])
        .code(69);
    told.said(&["1 of 3 sentinels name a primary, and 2 must"]);
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[test]
fn a_holder_that_hears_no_majority_of_the_sentinels_is_stopped_before_its_lease_ends() {
    let server = Server::tcp(&[]);
    let sentinels: Vec<Sentinel> = (0..3).map(|_| Sentinel::start(server.port(), "")).collect();
    let url = Watched::url_of(&sentinels.iter().collect::<Vec<_>>());
    let holder = rlock("job")
        .node(&url)
        .args(["--ttl", "2s"])
        .hold("echo self $$; echo ready; exec sleep 60");
    sentinels[0].freeze();
    sentinels[1].freeze();
    let command = holder.seen_pids(&["self"])[0];
    let ran = lasts(|| runs(command));
    assert!(ran < std::time::Duration::from_secs(2), "{ran:?}");
    // Whether the sentinels or the node timeout is named depends on which is noticed first.
    holder
        .finish()
        .code(79)
        .mentions(&["lost the lock: it could not be renewed in time"]);
    assert_eq!(
        server.cli(&["EXISTS", "job"]),
        "0",
        "it is released where it was"
    );
}

#[test]
fn a_service_is_one_node_of_several() {
    let (server, _sentinel, url) = single("");
    let others = Nodes::start(2);
    let all = format!("{url},{}", others.url());
    let holder = rlock("job")
        .node(&all)
        .args(["--restart-guard", "off"])
        .hold("echo ready; read line; true");
    assert!(
        server.token() == others[0].token()
            && server.token() == others[1].token()
            && !server.token().is_empty()
    );
    holder.finish().code(0).silent();
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
    others.are_clean();
    let told = rlock("job")
        .node(&all)
        .args(["-n"])
        .command(["true"])
        .code(69);
    told.mentions(&["restart guard", "sentinel://"]);
}

#[test]
fn tls_reaches_the_sentinels_and_the_servers() {
    let certificates = Certificates::for_name("127.0.0.1");
    let Some(server) = Server::tls(&certificates) else {
        return;
    };
    let sentinel = Sentinel::tls(server.port(), &certificates);
    let url = Watched::url_of(&[&sentinel]).replace("redis-sentinel://", "rediss-sentinel://");
    let ca = certificates.file("ca.pem");
    let ca = ca.to_str().expect("a name");
    run(&url)
        .args(["--ca", ca])
        .command(["echo", "ran"])
        .code(0)
        .silent()
        .printed(&["ran"]);
    run(&url)
        .command(["echo", "ran"])
        .printed(&[])
        .code(77)
        .said(&["certificate", "--ca"]);
}
