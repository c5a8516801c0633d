//! The blocks of the pages that are scripts, or files of other tools with commands in them, run one
//! after the other. What a page does not show stands in for itself: a program prints its name.
//!
//! A comment `<!-- not run: WHY -->` before a block leaves it out. One with `tests: ` is README's
//! own test command, which CI runs.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use testkit::program::install_script;

use super::examples::{programs, sh};
use super::{Block, blocks, command_lines, pages};
use crate::generated::subcommands;
use crate::support::Server;

/// Programs that are not for a test to run.
const STAND_INS: [&str; 6] = ["make", "git", "sudo", "sudoedit", "man", "journalctl"];

/// cargo runs nothing but rlock.
const CARGO: &str = "#!/bin/sh
case $*/$3 in
'run --release -- '*) shift 3; exec rlock \"$@\" ;;
*) echo cargo \"$@\" ;;
esac
";

/// Whether it is left out, and its page says why.
fn is_excused(block: &Block<'_>) -> bool {
    let reason = |marker| block.before.strip_prefix(marker)?.strip_suffix(" -->");
    let reason: Option<&str> = reason("<!-- not run: ").or_else(|| reason("<!-- tests: "));
    reason.is_some_and(|reason| !reason.is_empty())
}

/// Returns what a shell has to run to do what the block says, or none if it has no command.
fn commands(block: &Block<'_>) -> Option<String> {
    let text = block.lines.join("\n");
    match block.language {
        "sh" => Some(text),
        "crontab" => Some(of_crontab(&block.lines)),
        "yaml" if text.contains("rlock ") => Some(of_workflow(&block.lines)),
        "ini" if text.contains("rlock ") => Some(of_unit(&block.lines)),
        "dockerfile" => Some(of_image(&block.lines)),
        _ => None,
    }
}

fn of_crontab(lines: &[&str]) -> String {
    let commands = lines.iter().map(|line| match line.split_once("  ") {
        // The fields of the time are followed by two spaces.
        Some((_, rest)) if line.starts_with(['*', '0', '3']) => {
            rest.trim_start_matches(['*', ' ']).to_owned()
        }
        _ if line.starts_with("PATH=") => String::new(),
        _ if line.contains('=') && !line.starts_with('#') => format!("export {line}"),
        _ => String::new(),
    });
    commands.collect::<Vec<_>>().join("\n")
}

/// The steps of a job, each of which has the variables that those before it have set.
fn of_workflow(lines: &[&str]) -> String {
    let mut commands = String::new();
    let mut lines = lines.iter().map(|line| line.trim_start()).peekable();
    while let Some(line) = lines.next() {
        let line = line.strip_prefix("- ").unwrap_or(line);
        if line == "run: |" {
            while let Some(line) = lines.next_if(|line| !line.starts_with("- ")) {
                writeln!(commands, "{line}").expect("a string");
            }
        } else if let Some(command) = line.strip_prefix("run: ") {
            writeln!(commands, "{command}\nset -a; . ./env; set +a").expect("a string");
        } else if line.starts_with("rlock ") {
            writeln!(commands, "{line}").expect("a string");
        }
    }
    commands
}

fn of_unit(lines: &[&str]) -> String {
    let commands = lines.iter().filter_map(|line| {
        let set = line
            .strip_prefix("Environment=")
            .map(|set| format!("export {set}"));
        set.or_else(|| line.strip_prefix("ExecStart=").map(str::to_owned))
    });
    format!(
        "export CREDENTIALS_DIRECTORY=$PWD\n{}",
        commands.collect::<Vec<_>>().join("\n")
    )
}

fn of_image(lines: &[&str]) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut set = String::new();
    for line in lines {
        if let Some(variable) = line.strip_prefix("ENV ") {
            set = format!("export {variable}\n");
        }
        for name in ["ENTRYPOINT ", "CMD "] {
            let list = line.strip_prefix(name).unwrap_or("[]");
            words.extend(serde_json::from_str::<Vec<String>>(list).expect("a list of words"));
        }
    }
    set + &words.join(" ")
}

/// Programs of the working directory that a script calls.
fn programs_of(script: &str) -> BTreeSet<&str> {
    let names = script.split("./").skip(1).map(|rest| {
        let ends = rest.find(|c: char| !c.is_alphanumeric() && !"-.".contains(c));
        &rest[..ends.unwrap_or(rest.len())]
    });
    names
        .filter(|name| !name.is_empty() && *name != "env")
        .collect()
}

/// Runs the commands in a folder of their own. Returns what is wrong.
fn run(commands: &str, server: &Server) -> Option<String> {
    let folder = programs(&STAND_INS);
    let work = folder.path().join("work");
    std::fs::create_dir(&work).expect("a folder");
    let here = work.display();
    let node = format!("127.0.0.1:{}", server.port());
    let mut script = commands.to_owned();
    for (what, by) in [
        (
            "rediss://redis1.example.com:6380",
            &format!("redis://{node}"),
        ),
        ("redis://redis1", &format!("redis://{node}")),
        ("redis://rlock@redis1", &format!("redis://rlock@{node}")),
        ("--node local ", &format!("--node local:{here}/locks ")),
        ("/etc/rlock/password", &format!("{here}/rlock.password")),
        ("/var/lib/prometheus/node-exporter", &here.to_string()),
        ("/usr/local/sbin/", &"./".to_owned()),
        (" /worker.sh", &" ./worker.sh".to_owned()),
    ] {
        script = script.replace(what, by);
    }
    let install = |name: &str, text: &str| {
        install_script(text, &work.join(name)).expect("a script");
    };
    let called = programs_of(&script);
    for name in &called {
        install(name, &format!("#!/bin/sh\necho {name} \"$@\"\n"));
    }
    install_script(CARGO, &folder.path().join("cargo")).expect("a script");
    install("rlock.password", "secret\n");
    install("env", "");
    install("block", &script);
    let man = testkit::repository().join("man");
    std::os::unix::fs::symlink(man, work.join("man")).expect("a link");
    let before = "cd work; chmod 600 rlock.password; export HOME=$PWD GITHUB_ENV=env CI_JOB_URL=https://ci/7 RLOCK_RESTART_GUARD=off";
    let (code, told) = sh(
        &format!("{before}; sh -e ./block"),
        folder.path(),
        &server.tcp_url(),
    );
    let is_quiet = commands.contains("rlock break") || !told.contains("rlock: ");
    let is_fine = code == Some(0) && is_quiet && !told.contains("error");
    let has_called = called.iter().all(|name| told.contains(name));
    (!is_fine || !has_called).then(|| format!("{code:?}: {script}\n{told}"))
}

#[test]
fn every_command_of_the_pages_runs_or_is_excused() {
    let server = Server::tcp(&["--appendonly", "yes"]);
    server.cli(&[
        "ACL", "SETUSER", "rlock", "on", ">secret", "~*", "&*", "+@all",
    ]);
    let names = subcommands();
    let (mut ran, mut wrong) = (0, Vec::new());
    // The reference has the examples of help.
    for (page, text) in pages()
        .into_iter()
        .filter(|(page, _)| !page.starts_with("docs/reference"))
    {
        for block in blocks(&text) {
            let place = format!("{}:{} [{}]", page.display(), block.line, block.language);
            if is_excused(&block) {
                continue;
            }
            // `transcript` plays what a terminal shows.
            let is_run = ["sh", "crontab", "yaml", "ini", "dockerfile", "console"];
            let mut lines = block.lines.iter().flat_map(|line| command_lines(line));
            let has_command = lines.any(|words| words.len() > 1 && names.contains(&words[1]));
            assert!(
                !has_command || is_run.contains(&block.language),
                "{place}: a command in a block of no language that is run"
            );
            let Some(commands) = commands(&block) else {
                continue;
            };
            server.cli(&["FLUSHALL"]);
            ran += 1;
            wrong.extend(run(&commands, &server).map(|wrong| format!("{place}: {wrong}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(ran > 25, "{ran}");
}
