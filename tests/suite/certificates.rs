//! Servers with TLS that ask for a client certificate, or whose certificate has another name than
//! their address.

use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::Signal;

use crate::support::{Certificates, Finished, Rlock, Sentinel, Server, eventually, rlock};

/// Starts a server that asks for certificates, and returns its address.
fn asking(certificates: &Certificates) -> Option<(Server, String)> {
    let server = Server::tls(certificates)?;
    server.cli(&["CONFIG", "SET", "tls-auth-clients", "yes"]);
    let url = format!("rediss://127.0.0.1:{}", server.port());
    Some((server, url))
}

fn path(certificates: &Certificates, name: &str) -> String {
    certificates.file(name).display().to_string()
}

/// Returns `rlock run -n` on `url`, which trusts the issuer of `certificates`.
fn run(url: &str, certificates: &Certificates) -> Rlock {
    rlock("job").node(url).args(["-n"]).trusting(certificates)
}

fn refused(run: Rlock, code: i32, words: &[&str]) -> Finished {
    run.command(["echo", "ran"])
        .code(code)
        .printed(&[])
        .said(words)
}

#[test]
fn a_server_that_asks_for_a_certificate_gets_the_one_that_was_named() {
    let certificates = Certificates::for_name("127.0.0.1");
    let Some((server, url)) = asking(&certificates) else {
        return;
    };
    let names = "echo $RLOCK_CERT $RLOCK_CERT_KEY";
    let printed = format!(
        "{} {}",
        path(&certificates, "client.pem"),
        path(&certificates, "client.key")
    );
    run(&url, &certificates)
        .showing(&certificates)
        .sh(names)
        .code(0)
        .silent()
        .printed(&[&printed]);
    refused(
        run(&url, &certificates),
        77,
        &["it asks for a client certificate; give --cert and --cert-key"],
    );
    let other = Certificates::for_name("127.0.0.1");
    refused(
        run(&url, &certificates).showing(&other),
        77,
        &["does not accept the certificate of --cert: UnknownCA; see its issuer"],
    );
    assert_eq!(
        server.cli(&["DBSIZE"]),
        "2",
        "the fence counter and the record of the first run alone"
    );
}

#[test]
fn a_killed_rlock_has_its_lock_released_with_its_certificate() {
    let certificates = Certificates::for_name("redis.example");
    let Some((server, url)) = asking(&certificates) else {
        return;
    };
    let holder = run(&url, &certificates)
        .showing(&certificates)
        .args(["--tls-server-name", "redis.example"]);
    let holder = holder.hold("echo ready; read line; true");
    holder.signal(Signal::SIGKILL);
    eventually("the guard has released the lock", || {
        server.cli(&["EXISTS", "job"]) == "0"
    });
}

#[test]
fn a_certificate_and_its_key_are_checked_before_a_server_is_asked() {
    let certificates = Certificates::for_name("127.0.0.1");
    let other = Certificates::for_name("127.0.0.1");
    let (cert, key) = (
        path(&certificates, "client.pem"),
        path(&certificates, "client.key"),
    );
    let with = |words: &[&str]| run("rediss://127.0.0.1:1", &certificates).args(words);
    refused(
        with(&["--cert", &cert]),
        64,
        &["--cert needs its private key: give --cert-key"],
    );
    refused(
        with(&["--cert-key", &key]),
        64,
        &["--cert-key needs its certificate: give --cert"],
    );
    // Neither is of use here, and the mistake is the same.
    refused(
        rlock("job").node("local").args(["--cert", &cert]),
        64,
        &["give --cert-key"],
    );
    refused(
        with(&["--cert", &key, "--cert-key", &key]),
        78,
        &["--cert ", "no PEM certificate"],
    );
    refused(
        with(&["--cert", &cert, "--cert-key", "/no/such/key"]),
        78,
        &["--cert-key /no/such/key"],
    );
    let key_of_other = path(&other, "client.key");
    refused(
        with(&["--cert", &cert, "--cert-key", &key_of_other]),
        78,
        &["the key is not the certificate's"],
    );
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&key, open).expect("its mode");
    refused(
        with(&["--cert", &cert, "--cert-key", &key]),
        78,
        &["--cert-key", "mode 644", "chmod 600"],
    );
    let no_name = with(&["--tls-server-name", "h:6379"]);
    refused(no_name, 64, &["--tls-server-name", "without a port"]);
}

#[test]
fn a_certificate_of_another_name_is_taken_where_that_name_was_given() {
    let certificates = Certificates::for_name("redis.example");
    let Some(server) = Server::tls(&certificates) else {
        return;
    };
    let url = format!("rediss://127.0.0.1:{}", server.port());
    refused(
        run(&url, &certificates),
        77,
        &[
            "it is for redis.example, not for 127.0.0.1",
            "--tls-server-name",
        ],
    );
    let named = |name| run(&url, &certificates).args(["--tls-server-name", name]);
    named("redis.example")
        .sh("echo $RLOCK_TLS_SERVER_NAME")
        .code(0)
        .silent()
        .printed(&["redis.example"]);
    refused(
        named("other.example"),
        77,
        &["it is for redis.example, not for other.example"],
    );
    // Sentinels tell an IP address, for which the certificate is not valid.
    let sentinel = Sentinel::tls(server.port(), &certificates);
    let url = format!("rediss-sentinel://127.0.0.1:{}/svc", sentinel.port());
    let watched = run(&url, &certificates).args(["--tls-server-name", "redis.example"]);
    watched.command(["true"]).code(0).silent();
}
