//! Scripts and command lines of README and the pages, run as a reader would run them.

use std::path::Path;
use std::process::{Command, Stdio};

use testkit::program::install_script;

use super::{script, words};
use crate::support::{Finished, RLOCK, Server, rlock, rlock_words, skipped};

/// A program of a page, in `folder`.
fn install(folder: &Path, name: &str, text: &str) {
    install_script(text, &folder.join(name)).expect("a script");
}

/// A folder with rlock, and programs that print how they were called.
pub(super) fn programs(names: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink(RLOCK, folder.path().join("rlock")).expect("a link");
    for name in names {
        install(
            folder.path(),
            name,
            &format!("#!/bin/sh\necho {name} \"$@\"\n"),
        );
    }
    folder
}

/// Runs `script` with sh where `folder` is first in the PATH.
pub(super) fn sh(script: &str, folder: &Path, node: &str) -> (Option<i32>, String) {
    // A script that waits for what does not come is ended, and fails.
    let mut command = Command::new("timeout");
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"RLOCK_"))
    {
        command.env_remove(name);
    }
    let path = format!(
        "{}:{}",
        folder.display(),
        std::env::var("PATH").expect("a PATH")
    );
    command
        .args(["-k1", "30", "sh", "-c", script])
        .current_dir(folder)
        .env("PATH", path)
        .env("RLOCK_NODE", node);
    command.env("RLOCK_CONFIG", "none").stdin(Stdio::null());
    let output = command.output().expect("sh");
    let told = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&told).into_owned(),
    )
}

#[test]
fn the_several_steps_of_the_recipe_hold_one_lock() {
    let server = Server::start();
    let folder = programs(&["make", "switch-over.sh"]);
    let (code, told) = sh(
        &script("docs/recipes/scripts.md", "$(rlock acquire"),
        folder.path(),
        &server.url(),
    );
    assert_eq!(
        (code, told.as_str()),
        (Some(0), "make build\nswitch-over.sh\n")
    );
    assert_eq!(server.cli(&["EXISTS", "deploy"]), "0");
}

#[test]
fn the_deploy_freeze_of_the_recipe_keeps_deploys_out_until_it_is_broken() {
    let server = Server::start();
    let page = script("docs/recipes/ci.md", "frozen");
    let freeze = page
        .lines()
        .find_map(|line| line.strip_prefix("$ rlock acquire"))
        .expect("the command");
    let (code, _) = sh(
        &format!("rlock acquire{freeze}"),
        programs(&[]).path(),
        &server.url(),
    );
    assert_eq!(code, Some(0));
    let deploy = || {
        rlock("deploy-production")
            .on(&server)
            .args(["-n"])
            .command(["true"])
    };
    deploy()
        .code(75)
        .said(&["taken with acquire (frozen until Monday, ask ops)"]);
    rlock_words(["break", "deploy-production", "--yes"])
        .on(&server)
        .finish()
        .code(0);
    deploy().code(0).silent();
}

#[test]
fn the_migration_that_has_succeeded_is_not_run_again() {
    let server = Server::start();
    let folder = programs(&["migrate.sh"]);
    for told in ["migrate.sh\n", ""] {
        // The page starts a program of the working directory; this one stands in the PATH.
        let found = script("docs/kinds.md", "--once").replace("./", "");
        let expected = (Some(0), told.to_owned());
        assert_eq!(sh(&found, folder.path(), &server.url()), expected);
    }
}

#[test]
fn the_script_that_locks_itself_runs_once_at_a_time() {
    let server = Server::start();
    for (page, words) in [
        ("README.md", "nightly ] || exec"),
        ("docs/recipes/scripts.md", "nightly ] || exec"),
        ("docs/recipes/scripts.md", "check -q"),
    ] {
        let folder = programs(&[]);
        install(folder.path(), "nightly.sh", &script(page, words));
        let (code, told) = sh("./nightly.sh", folder.path(), &server.url());
        assert_eq!(
            (code, told.as_str()),
            (Some(0), "one of these at a time\n"),
            "{page}: {words}"
        );
        let holder = rlock("nightly")
            .on(&server)
            .hold("echo ready; read line; true");
        let (code, told) = sh("./nightly.sh", folder.path(), &server.url());
        assert!(code == Some(75) && told.contains("busy"), "{page}: {told}");
        holder.finish().code(0);
    }
}

#[test]
fn the_first_command_of_readme_runs_without_a_server() {
    let line = script("README.md", "cargo run --release -- run");
    let words = words(
        line.split_once("cargo run --release -- ")
            .expect("the command")
            .1,
    );
    let folder = tempfile::tempdir().expect("a folder");
    let node = format!("local:{}", folder.path().display());
    let words: Vec<String> = words
        .into_iter()
        .map(|word| if word == "local" { node.clone() } else { word })
        .collect();
    let finished: Finished = rlock_words(&words).finish();
    finished
        .code(0)
        .silent()
        .printed(&["this ran under a lock"]);
}

/// The crontab's line, with a job in the place of its job.
#[test]
fn the_cron_line_skips_a_busy_lock_in_silence() {
    let server = Server::start();
    let line = script("README.md", "30 3 * * *");
    let line = line
        .lines()
        .last()
        .expect("the line")
        .replace("30 3 * * *  ", "");
    let line = line.replace("/usr/local/sbin/backup.sh", "backup.sh");
    let folder = programs(&["backup.sh"]);
    let run = || sh(&line, folder.path(), &server.url());
    assert_eq!(run(), (Some(0), "backup.sh\n".to_owned()));
    assert_eq!(
        run(),
        (Some(0), String::new()),
        "the other host, whose clock is late"
    );
    crate::support::rlock_words(["break", "backup", "-y"])
        .on(&server)
        .finish()
        .code(0);
    let holder = rlock("backup")
        .on(&server)
        .hold("echo ready; read line; true");
    assert_eq!(run(), (Some(0), String::new()));
    holder.finish().code(0);
}

/// aws stands for a store whose object was written with fence 17.
#[test]
fn the_script_for_s3_refuses_a_fence_below_the_last() {
    let folder = programs(&[]);
    let aws =
        "#!/bin/sh\ncase $2 in head-object) printf '\"tag\"\\t17\\n' ;; *) echo \"$@\" ;; esac\n";
    install(folder.path(), "aws", aws);
    install(
        folder.path(),
        "put.sh",
        &script("docs/fencing.md", "# put.sh"),
    );
    let put = |fence: u32| {
        sh(
            &format!("RLOCK_FENCE={fence} sh ./put.sh report.csv"),
            folder.path(),
            "local",
        )
    };
    assert_eq!(
        put(16),
        (Some(1), "fence 16 is below 17: too late\n".to_owned())
    );
    for fence in [17, 18] {
        let (code, told) = put(fence);
        assert_eq!(code, Some(0), "{told}");
        let words = format!("--body report.csv --if-match \"tag\" --metadata fence={fence}\n");
        assert!(told.ends_with(&words), "{told}");
    }
}

#[test]
fn the_hook_for_git_refuses_a_fence_below_the_last() {
    if Command::new("git").arg("--version").output().is_err() {
        return skipped("git is not installed");
    }
    let folder = programs(&[]);
    let git = "export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b\n";
    let run = |script: &str| sh(&format!("{git}{script}"), folder.path(), "local");
    let made = run(
        "git init -q --bare site && git -C site config receive.advertisePushOptions true && git init -q work",
    );
    assert_eq!(made, (Some(0), String::new()));
    install(
        &folder.path().join("site/hooks"),
        "pre-receive",
        &script("docs/fencing.md", "# hooks/pre-receive"),
    );
    let push = |options: &str| {
        run(&format!(
            "cd work && git commit -q --allow-empty -m x && git push -q {options} ../site HEAD:refs/heads/main"
        ))
    };
    let refused = |options: &str, why: &str| {
        let (code, told) = push(options);
        assert!(
            code == Some(1) && told.contains(why),
            "{options}: {code:?}: {told}"
        );
    };
    assert_eq!(push("-o fence=17"), (Some(0), String::new()));
    assert_eq!(push("-o fence=17"), (Some(0), String::new()));
    refused("-o fence=16", "fence 16 is below 17");
    refused("-o fence=x", "under rlock");
    refused("", "under rlock");
    assert_eq!(push("-o fence=18"), (Some(0), String::new()));
}
