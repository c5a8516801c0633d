//! Access to servers: passwords, rights and certificates.

use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::{Uid, mkfifo};
use testkit::program::install;

use crate::support::{Certificates, NOBODY, RLOCK, Rlock, Server, rlock, skipped};

#[test]
fn a_password_comes_from_the_url_a_file_or_the_environment() {
    let server = Server::tcp(&["--requirepass", "hunter2"]);
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("password");
    std::fs::write(&file, "hunter2\n").expect("a file");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("its mode");
    let file = file.to_str().expect("a name");

    let url = server.tcp_url();
    rlock("job")
        .node(&url.replace("redis://", "redis://:hunter2@"))
        .command(["true"])
        .code(0)
        .silent();
    rlock("job")
        .node(&url)
        .args(["--password-file", file])
        .command(["true"])
        .code(0)
        .silent();
    rlock("job")
        .node(&url)
        .env("RLOCK_PASSWORD_FILE", file)
        .command(["true"])
        .code(0)
        .silent();
    rlock("job")
        .node(&url)
        .env("RLOCK_PASSWORD", "hunter2")
        .env("REDISCLI_AUTH", "no")
        .command(["true"])
        .code(0)
        .silent();
    rlock("job")
        .node(&url)
        .env("REDISCLI_AUTH", "hunter2")
        .env("RLOCK_PASSWORD", "")
        .command(["true"])
        .code(0)
        .silent();
    rlock("job")
        .node(&format!("{}?db=3", server.url()))
        .env("RLOCK_PASSWORD", "hunter2")
        .command(["true"])
        .code(0)
        .silent();
}

#[test]
fn a_node_that_refuses_us_is_77_before_anything_runs() {
    let server = Server::tcp(&[]);
    server.cli(&[
        "ACL", "SETUSER", "weak", "on", ">pw", "~*", "+@all", "-eval",
    ]);
    server.cli(&["ACL", "SETUSER", "narrow", "on", ">pw", "~x*", "+@all"]);
    server.cli(&["CONFIG", "SET", "requirepass", "hunter2"]);
    let url = server.tcp_url();
    let refused = |node: &str, password: &str, words: &[&str]| {
        let finished = rlock("job")
            .node(node)
            .env("RLOCK_PASSWORD", password)
            .sh("echo ran")
            .code(77)
            .printed(&[]);
        assert!(!finished.stderr.contains("hunter"), "{}", finished.stderr);
        finished.said(words);
    };
    refused(
        &url,
        "",
        &[
            "job",
            "NOAUTH",
            "required; give the password that the server knows",
            "redis://USER@HOST",
        ],
    );
    let wrong = "the user or the password is wrong (user";
    let unnamed = format!(
        "{wrong} default, as none is named; password from RLOCK_PASSWORD); correct it, or name its user"
    );
    refused(
        &url,
        "hunter3",
        &["job", &url, &unnamed, "redis://USER@HOST"],
    );
    let named = format!("{wrong} weak; password from RLOCK_PASSWORD); correct the password");
    refused(&url.replace("://", "://weak@"), "hunter3", &[&named]);
    refused(&url.replace("://", "://weak@"), "pw", &["NOPERM"]);
    refused(&url.replace("://", "://narrow@"), "pw", &["NOPERM"]);
}

#[test]
fn a_database_that_does_not_exist_is_78() {
    let server = Server::tcp(&[]);
    rlock("job")
        .node(&format!("{}/99", server.tcp_url()))
        .command(["true"])
        .code(78)
        .said(&["job", "/99", "out of range"]);
    rlock("job")
        .node(&format!("{}/3", server.tcp_url()))
        .command(["true"])
        .code(0)
        .silent();
}

#[test]
fn a_password_file_that_others_may_read_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("password");
    std::fs::write(&file, "hunter2\n").expect("a file");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).expect("its mode");
    let with = |path: &str| {
        rlock("job")
            .node("redis://127.0.0.1:1")
            .args(["--password-file", path])
            .command(["true"])
            .code(78)
    };
    with(file.to_str().expect("a name")).said(&["--password-file", "644", "chmod 600"]);
    with("/no/such/file").said(&["--password-file /no/such/file"]);
    with(dir.path().to_str().expect("a name")).said(&["--password-file", "not a regular file"]);
}

#[test]
fn a_password_file_of_root_may_be_read_by_its_group() {
    if !Uid::effective().is_root() {
        return skipped("only root can write a file of root");
    }
    let server = Server::tcp(&["--requirepass", "hunter2"]);
    // A user other than root cannot enter the folder of the binary under test, so the binary is
    // copied.
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).expect("its mode");
    let (file, program) = (dir.path().join("password"), dir.path().join("rlock"));
    install(Path::new(RLOCK), &program, 0o755).expect("a copy");
    std::fs::write(&file, "hunter2\n").expect("a file");
    let run = |mode, group| {
        std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).expect("its mode");
        chown(&file, Some(0), Some(group)).expect("its group");
        let run = Rlock::of(&program, ["run", "-k", "job"])
            .node(&server.tcp_url())
            .args(["--password-file"])
            .args([&file]);
        run.with(|command| {
            command.uid(NOBODY).gid(NOBODY).current_dir("/");
        })
        .command(["true"])
    };
    run(0o640, NOBODY).code(0).silent();
    run(0o640, 0)
        .code(78)
        .said(&["uid 65534 must be able to read it"]);
    run(0o600, NOBODY)
        .code(78)
        .said(&["uid 65534 must be able to read it"]);
    run(0o660, NOBODY)
        .code(78)
        .said(&["(mode 660); run chmod 640"]);
    run(0o644, 0).code(78).said(&["(mode 644); run chmod 640"]);
}

#[test]
fn a_password_file_of_another_user_is_refused() {
    if !Uid::effective().is_root() {
        return skipped("only root can give a file away");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("password");
    std::fs::write(&file, "hunter2\n").expect("a file");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("its mode");
    chown(&file, Some(65534), None).expect("another owner");
    let file = file.to_str().expect("a name");
    let finished = rlock("job")
        .node("redis://127.0.0.1:1")
        .args(["--password-file", file])
        .command(["true"]);
    finished
        .code(78)
        .said(&["--password-file", "uid 65534", "chown"]);
}

#[test]
fn tls_works_with_the_issuer_that_was_named() {
    let certificates = Certificates::for_name("127.0.0.1");
    let Some(server) = Server::tls(&certificates) else {
        return;
    };
    let port = server.port();
    let url = format!("rediss://127.0.0.1:{port}");
    let ca = certificates.file("ca.pem");
    let ca = ca.to_str().expect("a name");
    rlock("job")
        .node(&url)
        .args(["--ca", ca])
        .sh("echo $RLOCK_CA")
        .code(0)
        .silent()
        .printed(&[ca]);
    // Without --ca the system's store is used, and a variable can point elsewhere.
    rlock("job")
        .node(&url)
        .env("SSL_CERT_FILE", ca)
        .command(["true"])
        .code(0)
        .silent();
}

#[test]
fn a_certificate_that_proves_nothing_is_refused_before_the_password_is_sent() {
    let other = Certificates::for_name("127.0.0.1");
    let unknown = Certificates::for_name("127.0.0.1");
    let misnamed = Certificates::for_name("redis.example");
    let expired = Certificates::expired();
    let issuers = Certificates::of_issuer();
    for (certificates, trusted, why) in [
        (
            &unknown,
            &other,
            "its issuer is unknown; give its issuer with --ca",
        ),
        (
            &misnamed,
            &misnamed,
            "it is for redis.example, not for 127.0.0.1; give the name",
        ),
        (&expired, &expired, "it has expired; see its dates"),
        (
            &issuers,
            &issuers,
            "CaUsedAsEndEntity)); give the server one of X.509 version 3",
        ),
    ] {
        let Some(server) = Server::tls(certificates) else {
            return;
        };
        let port = server.port();
        let url = format!("rediss://127.0.0.1:{port}");
        let ca = trusted.file("ca.pem");
        let finished = rlock("job")
            .node(&url)
            .env("RLOCK_PASSWORD", "hunter2")
            .args(["--ca", ca.to_str().expect("a name")]);
        finished
            .command(["true"])
            .code(77)
            .said(&["job", &url, "not trusted", why]);
        assert!(
            !server
                .cli(&["INFO", "commandstats"])
                .contains("cmdstat_auth")
        );
    }
}

#[test]
fn a_plaintext_peer_of_a_tls_node_never_sees_the_password() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("rediss://{}", listener.local_addr().expect("its address"));
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut seen = vec![0; 4096];
        let count = stream.read(&mut seen).expect("a hello");
        std::io::Write::write_all(&mut stream, b"-ERR unknown command\r\n").expect("an answer");
        seen.truncate(count);
        let _ = stream.read_to_end(&mut seen);
        seen
    });
    let finished = rlock("job")
        .node(&url)
        .env("RLOCK_PASSWORD", "hunter2")
        .args(["-n"])
        .command(["true"])
        .code(78);
    finished
        .said(&["it does not speak TLS; write redis:// if that is meant"])
        .never_said("--ca");
    let seen = peer.join().expect("the peer");
    assert!(!String::from_utf8_lossy(&seen).contains("hunter2"));
}

#[test]
fn an_issuer_file_without_a_certificate_is_78() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("ca.pem");
    std::fs::write(&file, "no certificate\n").expect("a file");
    let with = |path: &str| {
        rlock("job")
            .node("rediss://127.0.0.1:1")
            .args(["--ca", path])
            .command(["true"])
            .code(78)
    };
    with(file.to_str().expect("a name")).said(&["--ca", "no PEM certificate"]);
    with("/no/such/ca").said(&["--ca /no/such/ca"]);
    // A FIFO is not waited for, and an endless file is not read to its end.
    let fifo = dir.path().join("fifo");
    mkfifo(&fifo, Mode::S_IRWXU).expect("a fifo");
    for path in [fifo.to_str().expect("a name"), "/dev/zero"] {
        with(path)
            .said(&["--ca", "not a regular file"])
            .within(Duration::from_secs(5));
    }
    std::fs::File::create(&file)
        .and_then(|file| file.set_len(1 << 40))
        .expect("a sparse file");
    with(file.to_str().expect("a name"))
        .said(&["--ca", "larger than 1 MiB"])
        .within(Duration::from_secs(5));
}
