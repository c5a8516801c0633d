//! Users, passwords, TLS, and servers that are no etcd.

use std::net::TcpListener;

use crate::support::{Certificates, Etcd, Server, rlock, rlock_words};

/// Makes a user `job` who may use the lock `job` only, and asks for users from then on.
fn with_users(etcd: &Etcd) {
    for words in [
        &["user", "add", "root:secret"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "rlock"],
        &[
            "role",
            "grant-permission",
            "rlock",
            "readwrite",
            "job/",
            "--prefix=true",
        ],
        &[
            "role",
            "grant-permission",
            "rlock",
            "readwrite",
            "rlock:once:job",
        ],
        &[
            "role",
            "grant-permission",
            "rlock",
            "readwrite",
            "rlock:newest:job",
        ],
        &["user", "add", "job:pass"],
        &["user", "grant-role", "job", "rlock"],
        &["auth", "enable"],
    ] {
        etcd.ctl(words);
    }
}

#[test]
fn a_user_has_the_locks_of_its_role() {
    let Some(etcd) = Etcd::start(1) else { return };
    with_users(&etcd);
    let as_user = |user: &str| etcd.url().replace("://", &format!("://{user}"));
    let run = |key: &str, user: &str| rlock(key).node(&as_user(user)).sh("echo ran");
    run("job", "job:pass@").code(0).printed(&["ran"]);
    rlock("job")
        .node(&as_user("job@"))
        .env("RLOCK_PASSWORD", "pass")
        .args(["--once", "1h", "--supersede"])
        .sh("echo ran")
        .code(0)
        .printed(&["ran"]);
    run("job", "job:wrong@")
        .code(77)
        .said(&["authentication failed"]);
    run("job", "").code(77).said(&["user name is empty"]);
    run("other", "job:pass@")
        .code(77)
        .said(&["permission denied"]);
    run("job", "job@").code(78).said(&["needs a password"]);
    let doctor = rlock_words(["doctor", "-k", "other"]).node(&as_user("job:pass@"));
    doctor.finish().code(77);
}

#[test]
fn doctor_tries_each_right_and_changes_nothing() {
    let Some(etcd) = Etcd::start(1) else { return };
    let grant = |role: &str, right: &str, key: &str| {
        etcd.ctl(&["role", "add", role]);
        etcd.ctl(&[
            "role",
            "grant-permission",
            role,
            right,
            key,
            "--prefix=true",
        ]);
        etcd.ctl(&["user", "add", &format!("{role}:pass")]);
        etcd.ctl(&["user", "grant-role", role, role]);
    };
    grant("reader", "read", "job/");
    grant("entries", "readwrite", "job/");
    with_users(&etcd);
    let revision = || etcd.ctl(&["--user=root:secret", "get", "job", "-w", "fields"]);
    let before = revision();
    let told = |user: &str, words: &[&str]| {
        let node = etcd.url().replace("://", &format!("://{user}:pass@"));
        let told = rlock_words([&["doctor", "-k", "job"], words].concat()).node(&node);
        told.finish().stdout.join("\n")
    };
    let monitor = told("reader", &["--role", "monitor"]);
    assert!(!monitor.contains("the keys of job"), "{monitor}");
    let once = "the user may not read rlock:once:job: inspect and --once fail";
    assert!(monitor.contains(once), "{monitor}");
    let reader = told("reader", &[]);
    assert!(
        reader.contains("the user may not write the keys of job;"),
        "{reader}"
    );
    assert!(!reader.contains("read the keys of job"), "{reader}");
    let entries = told("entries", &[]);
    let supersede = "the user may not write rlock:newest:job: --supersede fails";
    assert!(entries.contains(supersede), "{entries}");
    assert!(
        entries.contains("readwrite 'rlock:newest:job'"),
        "{entries}"
    );
    let all = told("job", &[]);
    assert!(!all.contains("may not"), "{all}");
    assert_eq!(before, revision());
}

/// A token lasts two seconds at most, from its last use on. Renewals are farther apart, and each
/// needs a login. With the default cost of a password, logins that are given up keep etcd busy.
#[test]
fn a_login_that_is_over_is_made_anew_by_a_holder_and_by_a_waiter() {
    let Some(etcd) = Etcd::start_with(1, &["--auth-token-ttl=1", "--bcrypt-cost=4"]) else {
        return;
    };
    with_users(&etcd);
    let node = etcd.url().replace("://", "://job:pass@");
    let run = || rlock("job").node(&node);
    // Longer than a lease without renewals.
    let holder = run()
        .args(["--ttl", "9s", "--node-timeout", "1500ms"])
        .hold("echo ready; sleep 10; echo ran");
    let waiter = run()
        .args(["--ttl", "30s", "--wait", "1m", "--", "echo", "ran"])
        .spawn();
    for run in [holder, waiter] {
        let run = run.finish().code(0);
        let run = run.never_said("invalid auth token");
        assert_eq!(run.stdout.last().map(String::as_str), Some("ran"));
    }
}

#[test]
fn tls_verifies_both_sides() {
    let certificates = Certificates::for_name("127.0.0.1");
    let Some(etcd) = Etcd::tls(&certificates) else {
        return;
    };
    let run = || rlock("job").node(&etcd.url());
    let trusting = || run().trusting(&certificates);
    let shown = trusting().showing(&certificates).sh("echo ran");
    shown.code(0).printed(&["ran"]);
    trusting().sh("true").code(77).said(&[
        "it asks for a client certificate",
        "give --cert and --cert-key",
    ]);
    trusting()
        .showing(&Certificates::for_name("127.0.0.1"))
        .sh("true")
        .code(77)
        .said(&["or does not accept that of --cert"]);
    run()
        .sh("true")
        .code(77)
        .said(&["its certificate is not trusted"]);
    let plain = etcd.url().replace("etcds", "etcd");
    let plain = rlock("job").node(&plain).sh("true");
    assert!(
        plain.exited_with(78) || plain.exited_with(69),
        "{}",
        plain.stderr
    );
}

#[test]
fn a_server_that_is_no_etcd_is_told_from_one() {
    let server = Server::tcp(&[]);
    let at = |scheme: &str, port: u16| {
        rlock("job")
            .node(&format!("{scheme}://127.0.0.1:{port}"))
            .args(["-n"])
            .sh("true")
    };
    at("etcd", server.port())
        .code(78)
        .said(&["does not speak etcd's protocol"]);
    let Some(etcd) = Etcd::start(1) else { return };
    let port: u16 = etcd
        .endpoint(0)
        .rsplit_once(':')
        .expect("a port")
        .1
        .parse()
        .expect("a port");
    let certificates = Certificates::for_name("127.0.0.1");
    let ca = certificates.file("ca.pem");
    let tls = rlock("job")
        .node(&format!("etcds://127.0.0.1:{port}"))
        .args([std::ffi::OsStr::new("--ca"), ca.as_os_str()]);
    tls.sh("true")
        .code(78)
        .said(&["does not speak TLS; write etcd://"]);
    at("etcd", 1).code(69).mentions(&["cannot connect"]);
    let closing = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = closing.local_addr().expect("an address").port();
    std::thread::spawn(move || closing.incoming().for_each(drop));
    for scheme in ["etcd", "redis"] {
        let told = at(scheme, port).code(69);
        told.said(&["it said nothing: see its log, and the port"]);
    }
}
