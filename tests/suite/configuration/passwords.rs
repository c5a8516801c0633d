//! Where a password comes from, and how its source is told.

use std::os::unix::fs::PermissionsExt;

use super::Configured;
use crate::support::{Rlock, Server};

#[test]
fn a_password_of_a_configuration_file_comes_after_the_variables_and_systemds() {
    let server = Server::tcp(&["--requirepass", "hunter2"]);
    let set = Configured::new("");
    let secret = |name: &str, text: &str, mode| {
        let file = set.folder.path().join(name);
        std::fs::write(&file, text).expect("a file");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).expect("its mode");
        file.display().to_string()
    };
    let (right, wrong) = (
        secret("right", "hunter2\n", 0o600),
        secret("wrong", "hunter3\n", 0o600),
    );
    let run = ["run", "-n", "-k", "job", "true"];
    let url = server.tcp_url();
    set.write(&format!(
        "[defaults]\nnode = '{url}'\npassword-file = '{right}'\n"
    ));
    set.rlock(&run).finish().code(0).silent();
    let told = |run: Rlock, source: &str| {
        let source = format!("as none is named; password from {source}); correct it");
        run.finish().code(77).said(&[&source]).never_said("hunter");
    };
    told(
        set.rlock(&run).env("RLOCK_PASSWORD", "hunter3"),
        "RLOCK_PASSWORD",
    );
    set.write(&format!(
        "[defaults]\nnode = '{url}'\npassword-file = '{wrong}'\n"
    ));
    set.rlock(&run)
        .env("RLOCK_PASSWORD", "hunter2")
        .finish()
        .code(0)
        .silent();
    // Of systemd's credentials the group may read one: an ACL shows so.
    secret("rlock.password", "hunter2\n", 0o440);
    let folder = set.folder.path().display().to_string();
    told(
        set.rlock(&run),
        &format!("{wrong}, named by {}:3", set.file().display()),
    );
    told(
        set.rlock(&run).env("REDISCLI_AUTH", "hunter3"),
        "REDISCLI_AUTH",
    );
    told(
        set.rlock(&run).env("RLOCK_PASSWORD_FILE", &wrong),
        &format!("{wrong}, named by RLOCK_PASSWORD_FILE"),
    );
    let with_url = [
        "run",
        "--node",
        &url.replace("://", "://:hunter3@"),
        "-n",
        "-k",
        "job",
        "true",
    ];
    told(set.rlock(&with_url), "the address");
    set.rlock(&run)
        .env("CREDENTIALS_DIRECTORY", &folder)
        .finish()
        .code(0)
        .silent();
    // A file of the host that the service may not read is not asked for.
    set.write(&format!(
        "[defaults]\nnode = '{url}'\npassword-file = '/no/such/file'\n"
    ));
    set.rlock(&run)
        .env("CREDENTIALS_DIRECTORY", &folder)
        .finish()
        .code(0)
        .silent();
    let typed = ["run", "--password-file", &wrong, "-n", "-k", "job", "true"];
    let with_credential = |words: &[&str]| set.rlock(words).env("CREDENTIALS_DIRECTORY", &folder);
    told(
        with_credential(&typed),
        &format!("{wrong}, named by --password-file"),
    );
    told(
        with_credential(&run).env("RLOCK_PASSWORD", "hunter3"),
        "RLOCK_PASSWORD",
    );
    set.write(&format!("[defaults]\nnode = '{url}'\n"));
    with_credential(&run).finish().code(0).silent();
    secret("rlock.password", "hunter3\n", 0o440);
    told(with_credential(&run), &format!("{folder}/rlock.password"));
    secret("rlock.password", "hunter2\n", 0o444);
    set.rlock(&run)
        .env("CREDENTIALS_DIRECTORY", &folder)
        .finish()
        .code(78)
        .said(&["rlock.password", "444"]);
    // As where the user may not look into the directory.
    set.rlock(&run)
        .env("CREDENTIALS_DIRECTORY", &wrong)
        .finish()
        .code(78)
        .said(&["/rlock.password: Not a directory"]);
}
