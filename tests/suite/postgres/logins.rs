//! Users, passwords, TLS, sockets, and servers that are no PostgreSQL.

use std::os::unix::fs::PermissionsExt;

use crate::sql::{HOLD, job, wait_for_waiters};
use crate::support::{Certificates, Database, Postgres, eventually, rlock};

/// Lets TCP connections in by `method`, and gives rlock a password.
fn ask_for(server: &Postgres, method: &str) {
    let file = server.sql("SHOW hba_file");
    let lines = format!("local all all trust\nhost all all all {method}\n");
    std::fs::write(file, lines).expect("its file");
    let encryption = if method == "md5" {
        "md5"
    } else {
        "scram-sha-256"
    };
    server.sql(&format!(
        "SET password_encryption = '{encryption}'; ALTER ROLE rlock PASSWORD 'pass:word'; SELECT pg_reload_conf()"
    ));
}

#[test]
fn a_password_comes_from_each_of_its_places() {
    let Some(server) = Postgres::start() else {
        return;
    };
    ask_for(&server, "scram-sha-256");
    let dir = tempfile::tempdir().expect("a directory");
    let pgpass = dir.path().join("pgpass");
    let file = pgpass.to_str().expect("a name");
    let run = || rlock("job").env("PGPASSFILE", file);
    let with = |password: &str| {
        server
            .url()
            .replace("rlock@", &format!("rlock:{password}@"))
    };
    let bare = server.url();
    // psql itself is asked too, and ends the wait for the new rules.
    run().node(&with("pass%3Aword")).sh("true").code(0).silent();
    run()
        .node(&bare)
        .env("PGPASSWORD", "pass:word")
        .sh("true")
        .code(0)
        .silent();
    run()
        .node(&bare)
        .env("RLOCK_PASSWORD", "pass:word")
        .env("PGPASSWORD", "no")
        .sh("true")
        .code(0);
    let wrong = run()
        .node(&bare)
        .env("PGPASSWORD", "hunter2")
        .sh("true")
        .code(77);
    wrong
        .never_said("hunter2")
        .said(&["28P01", "password from PGPASSWORD"]);
    run()
        .node(&bare)
        .sh("true")
        .code(77)
        .said(&["it asks for a password"]);
    let (host, port) = ("127.0.0.1", server.port());
    std::fs::write(&pgpass, format!("{host}:{port}:rlock:rlock:pass\\:word\n")).expect("a file");
    run().node(&bare).sh("true").code(78).said(&["chmod 600"]);
    std::fs::set_permissions(&pgpass, PermissionsExt::from_mode(0o600)).expect("a mode");
    run().node(&bare).sh("true").code(0).silent();
}

#[test]
fn a_password_that_is_replaced_is_read_again_while_a_lock_is_held_and_waited_for() {
    let Some(server) = Postgres::start() else {
        return;
    };
    ask_for(&server, "scram-sha-256");
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("password");
    let write = |password: &str| {
        std::fs::write(&file, password).expect("a file");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("a mode");
    };
    write("pass:word");
    let option = ["--password-file", file.to_str().expect("a name")];
    let job = || job(&server).args(option);
    let mut held = job().args(["--ttl", "9s"]).hold(HOLD);
    let waiter = job().args(["--", "echo", "ran"]).spawn();
    wait_for_waiters(&server, 1);
    write("other");
    server.sql("ALTER ROLE rlock PASSWORD 'other'");
    let until = || server.sql("SELECT lock_until FROM shedlock WHERE name = 'job'");
    let before = until();
    server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'rlock'");
    eventually("it is renewed", || until() > before);
    // The holder's place has gone with its session.
    let first = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted";
    eventually("the waiter is the first", || server.sql(first) == "1");
    drop(held.stdin.take());
    held.finish().code(0);
    waiter.finish().code(0).printed(&["ran"]);
}

#[test]
fn the_password_itself_is_given_over_tls_and_sockets_only() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let run = |url: &str| rlock("job").env("PGPASSWORD", "pass:word").node(url);
    ask_for(&server, "md5");
    run(&server.url()).sh("true").code(0).silent();
    ask_for(&server, "password");
    let refused = run(&server.url()).sh("true").code(77);
    refused.said(&["it asks for the password itself, over a connection without TLS"]);
    let socket = server
        .socket()
        .to_str()
        .expect("a name")
        .replace('/', "%2F");
    let socket = format!("postgresql://rlock@{socket}:{}/rlock", server.port());
    run(&socket).sh("true").code(0).silent();
}

#[test]
fn a_server_with_tls_must_be_who_it_says() {
    let certificates = Certificates::for_name("localhost");
    let Some(server) = Postgres::tls(&certificates) else {
        return;
    };
    ask_for(&server, "password");
    let url = format!("{}?sslmode=require", server.url());
    let run = |url: &str| rlock("job").env("PGPASSWORD", "pass:word").node(url);
    let named = url.replace("127.0.0.1", "localhost");
    let trusting = || run(&named).trusting(&certificates);
    trusting().sh("true").code(0).silent();
    run(&named).sh("true").code(77).said(&["not trusted"]);
    trusting()
        .showing(&Certificates::for_name("localhost"))
        .sh("true")
        .code(77)
        .said(&["does not accept the certificate of --cert"]);
    let Some(plain) = Postgres::start() else {
        return;
    };
    let refused = run(&format!("{}?sslmode=require", plain.url())).trusting(&certificates);
    refused
        .sh("true")
        .code(78)
        .said(&["it does not speak TLS", "sslmode="]);
}

#[test]
fn what_is_not_there_is_told_with_its_remedy() {
    let Some(server) = Postgres::start() else {
        return;
    };
    let run = |url: &str| rlock("job").args(["-n"]).node(url);
    let missing = format!("{}s", server.url());
    run(&missing).sh("true").code(78).said(&["3D000"]);
    let stranger = server.url().replace("rlock@", "nobody@");
    run(&stranger).sh("true").code(77).said(&["28000"]);
    let schema = format!("{}?table=app.locks", server.url());
    run(&schema)
        .sh("true")
        .code(78)
        .said(&["relation \"app.locks\" does not exist"]);
    server.sql("CREATE SCHEMA app; ALTER TABLE shedlock SET SCHEMA app; ALTER TABLE app.shedlock RENAME TO locks; GRANT USAGE ON SCHEMA app TO rlock");
    server.sql("ALTER TABLE app.locks RENAME COLUMN name TO lock");
    let columns = format!("{schema}&columns=lock,lock_until,locked_at,locked_by");
    run(&schema).sh("true").code(78).said(&["no column name"]);
    run(&columns).sh("true").code(0).silent();
}
