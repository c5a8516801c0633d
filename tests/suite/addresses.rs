//! The spellings of a server's address.

use crate::support::{Server, rlock, rlock_words};

#[test]
fn every_spelling_of_an_address_leads_to_the_server() {
    let server = Server::tcp(&[]);
    let (port, socket) = (server.port(), server.socket().display().to_string());
    for node in [
        format!("127.0.0.1:{port}"),
        format!("localhost:{port}"),
        format!("REDIS://127.0.0.1:{port}"),
        format!("Valkey://127.0.0.1:{port}"),
        socket.clone(),
        format!("Redis+Unix://{socket}"),
    ] {
        let told = rlock_words(["acquire", "-k", "job"])
            .node(&node)
            .finish()
            .code(0)
            .silent()
            .stdout
            .remove(0);
        assert_eq!(server.token(), told, "{node}");
        rlock_words(["release", "-k", "job", "--token", &told])
            .node(&node)
            .finish()
            .code(0)
            .silent();
    }
    // The command inside is given the whole form.
    rlock("job")
        .node(&socket)
        .sh("echo $RLOCK_NODE")
        .printed(&[&format!("redis+unix://{socket}")]);
}

#[test]
fn a_user_on_a_unix_socket_is_that_of_the_address() {
    let server = Server::tcp(&[]);
    server.cli(&[
        "ACL",
        "SETUSER",
        "job",
        "on",
        ">hunter2",
        "allkeys",
        "allchannels",
        "+@all",
    ]);
    server.cli(&["CONFIG", "SET", "requirepass", "hunter3"]);
    let socket = server.socket().display().to_string();
    let run = |user: &str| rlock("job").node(&format!("redis+unix://{user}@{socket}"));
    run("job:hunter2")
        .sh("echo $RLOCK_NODE")
        .code(0)
        .silent()
        .printed(&[&format!("redis+unix://job@{socket}")]);
    run("job")
        .env("RLOCK_PASSWORD", "hunter2")
        .command(["true"])
        .code(0)
        .silent();
    run("job").sh("true").code(77).said(&[
        "(user job; no password)",
        "give its password with RLOCK_PASSWORD or --password-file",
    ]);
    let told = run("job:hunter4").command(["true"]).code(77).printed(&[]);
    told.said(&["the user or the password is wrong"])
        .never_said("hunter");
}

#[test]
fn what_is_no_address_is_78_and_shows_no_password() {
    for (node, words) in [
        ("u:hunter2@h", "begins with redis://"),
        ("h/2", "not an address"),
        ("6379", "write host:port"),
        ("redis+unix://u:hunter2@run/x", "three slashes"),
        ("redis://u:hunt,er2@h", "%2C"),
    ] {
        let told = rlock("job").node(node).command(["true"]).code(78);
        told.said(&[words]).never_said("hunter2").never_said("er2");
    }
}
