//! The examples of help and of the man pages, run where they are meant to be run.

use testkit::program::first_line;

use super::examples::{programs, sh};
use crate::generated::subcommands;
use crate::support::{RLOCK, Server, Session};

/// The script before a line: a home, the variables of a CI job, and, where the line needs one, a
/// lock.
fn setting(subcommand: Option<&str>, number: usize, home: &str) -> String {
    let setting = format!(
        "cd {home}; export HOME=$PWD CI_JOB_URL=https://ci/7 GITHUB_ENV=env RLOCK_PREFIX={number}:\n"
    );
    match subcommand {
        None | Some("run" | "acquire") => setting,
        _ => {
            let taken = "taken=$(rlock acquire -k deploy --ttl 20m --format env) || exit";
            format!("{setting}{taken}\nset -a; eval \"$taken\"; set +a; token=$RLOCK_TOKEN\n")
        }
    }
}

#[test]
fn every_example_of_help_runs() {
    let server = Server::with(&["--appendonly", "yes"]);
    let servers: Vec<Server> = (0..3)
        .map(|_| Server::with(&["--appendonly", "yes"]))
        .collect();
    let three = servers
        .iter()
        .map(Server::url)
        .collect::<Vec<_>>()
        .join(",");
    let folder = programs(&[
        "backup.sh",
        "deploy.sh",
        "report.sh",
        "switch-over.sh",
        "pg_dump",
        "man",
    ]);
    let home = folder.path().display().to_string();
    let names: Vec<String> = subcommands();
    let mut number = 0;
    for subcommand in std::iter::once(None).chain(names.iter().map(|name| Some(name.as_str()))) {
        let examples = rlock::cli::examples(subcommand);
        assert!(examples.len() >= 2, "{subcommand:?} has too few examples");
        for (line, _) in examples {
            number += 1;
            let line = line.replace("--node local", &format!("--node local:{home}/locks"));
            let line = line.replace("redis://redis1,redis://redis2,redis://redis3", &three);
            let Some(line) = in_its_shell(subcommand, line) else {
                continue;
            };
            let script = format!(
                "{}export RLOCK_RESTART_GUARD=off\n{line}",
                setting(subcommand, number, &home)
            );
            if line == "rlock break deploy" {
                let mut session = Session::of_on(RLOCK, &["sh", "-c", &script], &server);
                session.sees("[y/N]");
                session.line("y");
                assert_eq!(session.ends(), Some(0), "{line}");
            } else {
                let (code, told) = sh(&script, folder.path(), &server.url());
                // break says on stderr what it has done.
                let is_quiet = !told.contains("rlock: ") || subcommand == Some("break");
                assert!(code == Some(0) && is_quiet, "{line}: {code:?}: {told}");
            }
            let is_held = server.cli(&["EXISTS", &format!("{number}:deploy")]) == "1";
            assert_eq!(is_held, keeps(subcommand), "{line}");
        }
    }
}

/// Returns the line of a shell's start-up file as sh runs it, and any other as it is. `None` if
/// this machine lacks the shell.
fn in_its_shell(subcommand: Option<&str>, line: String) -> Option<String> {
    if subcommand != Some("completions") {
        return Some(line);
    }
    let shell = ["bash", "zsh", "fish"]
        .into_iter()
        .find(|shell| line.contains(shell))
        .expect("a shell");
    first_line(shell, &["--version"]).ok()?;
    let before = if shell == "zsh" {
        "autoload -Uz compinit; compinit -u; "
    } else {
        ""
    };
    Some(format!("{shell} -c '{before}{line}'"))
}

/// Whether the lock `deploy` is held after an example.
fn keeps(subcommand: Option<&str>) -> bool {
    !matches!(subcommand, None | Some("run" | "release" | "break"))
}
