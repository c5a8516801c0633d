//! Users, passwords, TLS, sockets, and servers that are no MySQL.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use crate::sql::job;
use crate::support::{Certificates, Database, MariaDb, Rlock, rlock, skipped};

/// The plugin by which a server knows the password.
fn plugin() -> &'static str {
    if MariaDb::is_mysql() {
        "caching_sha2_password"
    } else {
        "mysql_native_password"
    }
}

/// Gives rlock a password, which the server knows by `plugin`.
fn ask_for(server: &MariaDb, plugin: &str) {
    let by = if MariaDb::is_mysql() {
        format!("WITH {plugin} BY 'pass:word'")
    } else {
        format!("VIA {plugin} USING PASSWORD('pass:word')")
    };
    server.sql(&format!("ALTER USER rlock@'%' IDENTIFIED {by}"));
}

/// Returns a run over the server's socket, with this password.
fn by_socket(server: &MariaDb, password: &str) -> Rlock {
    let socket = server.socket();
    let socket = socket.to_str().expect("a name").replace('/', "%2F");
    let url = format!("mysql://rlock@{socket}/rlock");
    rlock("first").env("MYSQL_PWD", password).node(&url)
}

/// Asks for a password, which the server has seen.
fn known(server: &MariaDb) {
    ask_for(server, plugin());
    by_socket(server, "pass:word").sh("true").code(0).silent();
}

#[test]
fn the_first_login_at_a_mysql_takes_a_private_way() {
    if !MariaDb::is_mysql() {
        return skipped("TEST_MYSQL names no MySQL");
    }
    let Some(server) = MariaDb::start() else {
        return;
    };
    ask_for(&server, plugin());
    let run = |password: &str| job(&server).env("MYSQL_PWD", password).sh("true");
    let asked = ["it asks for the password itself", "a user's first login"];
    run("pass:word").code(77).said(&asked);
    by_socket(&server, "hunter2")
        .sh("true")
        .code(77)
        .said(&["1045"]);
    by_socket(&server, "pass:word").sh("true").code(0).silent();
    run("pass:word").code(0).silent();
    run("hunter2").code(77).said(&asked).never_said("hunter2");
}

#[test]
fn a_password_comes_from_each_of_its_places() {
    let Some(server) = MariaDb::start() else {
        return;
    };
    known(&server);
    let wrong = if MariaDb::is_mysql() {
        "for a wrong user or password"
    } else {
        "1045"
    };
    let home = tempfile::tempdir().expect("a directory");
    let run = || rlock("job").env("HOME", home.path().to_str().expect("a name"));
    let with = |password: &str| {
        server
            .url()
            .replace("rlock@", &format!("rlock:{password}@"))
    };
    let bare = server.url();
    run().node(&with("pass%3Aword")).sh("true").code(0).silent();
    run()
        .node(&bare)
        .env("MYSQL_PWD", "pass:word")
        .sh("true")
        .code(0)
        .silent();
    run()
        .node(&bare)
        .env("RLOCK_PASSWORD", "pass:word")
        .env("MYSQL_PWD", "no")
        .sh("true")
        .code(0);
    let refused = run()
        .node(&bare)
        .env("MYSQL_PWD", "hunter2")
        .sh("true")
        .code(77);
    refused
        .never_said("hunter2")
        .said(&[wrong, "password from MYSQL_PWD"]);
    run().node(&bare).sh("true").code(77).said(&["1045"]);
    let file = home.path().join(".my.cnf");
    std::fs::write(
        &file,
        "[mysql]\nuser=no\n[client]\nuser = rlock\npassword=\"pass:word\"\n",
    )
    .expect("a file");
    run().node(&bare).sh("true").code(78).said(&["chmod 600"]);
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("a mode");
    run().node(&bare).sh("true").code(0).silent();
    let nameless = bare.replace("rlock@", "");
    run().node(&nameless).sh("true").code(0).silent();
}

#[test]
fn a_socket_is_a_way_and_its_user_needs_no_password() {
    let Some(server) = MariaDb::start() else {
        return;
    };
    let socket = server.socket();
    let socket = socket.to_str().expect("a name");
    let encoded = socket.replace('/', "%2F");
    ask_for(&server, plugin());
    by_socket(&server, "pass:word").sh("true").code(0).silent();
    rlock("job")
        .env("MYSQL_PWD", "pass:word")
        .node(&format!("mysql://rlock@/rlock?socket={socket}"))
        .sh("true")
        .code(0)
        .silent();
    if MariaDb::is_mysql() {
        return skipped("auth_socket is a plugin of MySQL's");
    }
    let user = nix::unistd::User::from_uid(nix::unistd::Uid::effective());
    let user = user.expect("users").expect("a user").name;
    server.sql(&format!(
        "CREATE OR REPLACE USER {user}@localhost IDENTIFIED VIA unix_socket; GRANT ALL ON *.* TO {user}@localhost"
    ));
    rlock("job")
        .node(&format!("mysql://{user}@{encoded}/rlock"))
        .sh("true")
        .code(0)
        .silent();
}

#[test]
fn a_server_with_tls_must_be_who_it_says() {
    let certificates = Certificates::for_name("localhost");
    let Some(server) = MariaDb::tls(&certificates) else {
        return;
    };
    server.sql("ALTER USER rlock@'%' REQUIRE SSL");
    ask_for(&server, plugin());
    let run = |url: &str| rlock("job").env("MYSQL_PWD", "pass:word").node(url);
    for mode in ["REQUIRED", "VERIFY_IDENTITY"] {
        let url = format!("{}?ssl-mode={mode}", server.url());
        let named = url.replace("127.0.0.1", "localhost");
        let trusting = || run(&named).trusting(&certificates);
        trusting().sh("true").code(0).silent();
        run(&named).sh("true").code(77).said(&["not trusted"]);
        let stranger = run(&named.replace("rlock@", "nobody@"));
        let refused = stranger.trusting(&certificates).sh("true");
        refused.code(77).said(&["1045"]);
        trusting()
            .showing(&Certificates::for_name("localhost"))
            .sh("true")
            .code(77)
            .said(&["does not accept the certificate of --cert"]);
    }
    run(&server.url()).sh("true").code(77).said(&["1045"]);
    let without = if MariaDb::is_mysql() {
        "tls-version="
    } else {
        "skip-ssl"
    };
    let Some(plain) = MariaDb::start_with(&[without]) else {
        return;
    };
    let refused = run(&format!("{}?ssl-mode=REQUIRED", plain.url())).trusting(&certificates);
    refused
        .sh("true")
        .code(78)
        .said(&["it does not speak TLS", "ssl-mode="]);
}

#[test]
fn what_is_not_there_is_told_with_its_remedy() {
    let Some(server) = MariaDb::start() else {
        return;
    };
    let run = |url: &str| rlock("job").args(["-n"]).node(url);
    let missing = format!("{}s", server.url());
    run(&missing).sh("true").code(77).said(&["1044"]);
    server.sql("GRANT ALL ON *.* TO rlock@'%'");
    run(&missing)
        .sh("true")
        .code(78)
        .said(&["1049", "name the database"]);
    let table = format!("{}?table=rlock.locks", server.url());
    run(&table).sh("true").code(78).said(&["1146"]);
    let stranger = server.url().replace("rlock@", "nobody@");
    run(&stranger).sh("true").code(77).said(&["1045"]);
    // One without a name stands before one whose host is a pattern.
    let hidden = server.url().replace("rlock@", "rlock:pass%3Aword@");
    known(&server);
    run(&hidden).sh("true").code(0);
    server.sql("CREATE USER ''@'localhost', ''@'127.0.0.1'");
    let refused = run(&hidden).sh("true").code(77);
    if MariaDb::is_mysql() {
        refused.said(&["for a wrong user or password"]);
    } else {
        refused.said(&[
            "1045",
            "a user without a name, ''@'localhost', may stand before it",
        ]);
    }
}

#[test]
fn a_login_that_rlock_does_not_know_is_named() {
    if MariaDb::is_mysql() {
        return skipped("such logins are plugins of MySQL's");
    }
    let Some(server) = MariaDb::start() else {
        return;
    };
    server.sql("INSTALL SONAME 'auth_ed25519'");
    ask_for(&server, "ed25519");
    let refused = job(&server)
        .env("MYSQL_PWD", "pass:word")
        .sh("true")
        .code(77);
    refused.said(&["it asks for what rlock cannot give: the plugin client_ed25519"]);
}

/// The greeting of MySQL 8, whose default is `caching_sha2_password`, as a server sends it.
fn greeting_of_mysql_8() -> Vec<u8> {
    let mut body = vec![10];
    body.extend(b"8.0.36\0\x07\0\0\0AAAAAAAA\0\xff\xff\x2d\x02\0\xff\xdf\x15");
    body.extend([0; 10]);
    body.extend(b"BBBBBBBBBBBB\0caching_sha2_password\0");
    let length = u8::try_from(body.len()).expect("a short one");
    [&[length, 0, 0, 0][..], &body].concat()
}

/// A server that claims not to know the password asks for it, and could
/// name any key to encrypt it with: one in the middle would then have it.
#[test]
fn a_server_that_asks_for_the_password_does_not_get_it_without_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        stream
            .write_all(&greeting_of_mysql_8())
            .expect("a greeting");
        let mut header = [0; 4];
        stream.read_exact(&mut header).expect("a response");
        let mut response = vec![0; usize::from(header[0])];
        stream.read_exact(&mut response).expect("a response");
        // It asks for the whole password.
        stream.write_all(&[2, 0, 0, 2, 1, 4]).expect("a question");
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        (response, rest)
    });
    let refused = rlock("job")
        .node(&format!("mysql://rlock:hunter2@127.0.0.1:{port}/app"))
        .args(["-n"])
        .sh("true")
        .code(77);
    refused
        .never_said("hunter2")
        .said(&["it asks for the password itself, over a connection without TLS"]);
    let (response, rest) = server.join().expect("a server");
    assert_eq!(rest, b"");
    assert!(response.ends_with(b"app\0caching_sha2_password\0"));
    assert!(!response.windows(7).any(|part| part == b"hunter2"));
}
