//! Passwords and certificates that are replaced while rlock runs.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::{Certificates, Rlock, STEADY, Server, rlock};

/// Writes `text` to `file`, which others cannot read.
fn write(file: &Path, text: &[u8]) {
    std::fs::write(file, text).expect("a file");
    std::fs::set_permissions(file, PermissionsExt::from_mode(0o600)).expect("its mode");
}

/// Returns `rlock run` on `url`, with these options that name files.
fn with_files(url: &str, files: &[(&str, &Path)]) -> Rlock {
    files.iter().fold(
        rlock("job").node(url).args(STEADY),
        |run, (option, file)| run.args([(*option).as_ref(), file.as_os_str()]),
    )
}

#[test]
fn a_password_that_is_replaced_in_its_file_is_used_by_holders_and_waiters() {
    let server = Server::tcp(&[]);
    server.cli(&["ACL", "SETUSER", "app", "on", ">old", "~*", "&*", "+@all"]);
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("password");
    write(&file, b"old\n");
    let url = server.tcp_url().replace("://", "://app@");
    let run = || with_files(&url, &[("--password-file", &file)]);
    let holder = run().hold("echo ready; read line; true");
    let waiter = run().args(["--", "echo", "next"]).spawn();
    server.wait_until_asked(3);
    server.cli(&["ACL", "SETUSER", "app", ">new"]);
    write(&file, b"new\n");
    server.cli(&["ACL", "SETUSER", "app", "<old"]);
    server.cli(&["CLIENT", "KILL", "USER", "app"]);
    server.wait_until_asked(3);
    holder.finish().code(0).silent();
    waiter.finish().code(0).silent().printed(&["next"]);
}

#[test]
fn certificates_that_are_replaced_in_their_files_are_used_by_a_run() {
    let server_too = [
        ("server.pem", "ca.pem"),
        ("server.key", "client.pem"),
        ("ca.pem", "client.key"),
    ];
    // Without the server's own, a client learns from the first reply that it is refused.
    let clients_only = [("ca.pem", "client.pem"), ("ca.pem", "client.key")];
    for replaced in [&server_too[..], &clients_only[..]] {
        let [of_server, new] = [(); 2].map(|()| Certificates::for_name("127.0.0.1"));
        let Some(server) = Server::tls(&of_server) else {
            return;
        };
        server.cli(&["CONFIG", "SET", "tls-auth-clients", "yes"]);
        let dir = tempfile::tempdir().expect("a directory");
        let of_client = |name: &str| dir.path().join(name);
        let copy = |from: &Certificates, name: &str, to: &Path| {
            write(to, &std::fs::read(from.file(name)).expect("a file"));
        };
        for name in ["ca.pem", "client.pem", "client.key"] {
            copy(&of_server, name, &of_client(name));
        }
        let files = [
            ("--ca", "ca.pem"),
            ("--cert", "client.pem"),
            ("--cert-key", "client.key"),
        ];
        let files = files.map(|(option, name)| (option, of_client(name)));
        let files = files.each_ref().map(|(option, file)| (*option, &**file));
        let url = format!("rediss://127.0.0.1:{}", server.port());
        let holder = with_files(&url, &files).hold("echo ready; read line; true");
        server.wait_until_asked(2);
        for (of_the_server, of_the_client) in replaced {
            copy(&new, of_the_server, &of_server.file(of_the_server));
            copy(&new, of_the_client, &of_client(of_the_client));
        }
        assert_eq!(
            server.cli(&["CONFIG", "SET", "tls-session-caching", "no"]),
            "OK"
        );
        assert_eq!(
            server.cli(&["CLIENT", "KILL", "USER", "default", "SKIPME", "yes"]),
            "1"
        );
        server.wait_until_asked(2);
        holder.finish().code(0);
    }
}
