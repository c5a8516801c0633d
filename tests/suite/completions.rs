//! The completions in the shells that they are for: a test types a line, and has the shell complete
//! it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{RLOCK, Running, Server, Session, rlock, rlock_words, skipped};

/// Completes the end of a line with all that fits.
const INSERT_ALL: &str = "\x1b*";

const TAB: &str = "\t";

/// A shell at a terminal with rlock's completions, in a folder with some files.
struct Shell {
    session: Session,
    complete: &'static str,
}

impl Shell {
    /// Starts a shell that completes when it is told `complete`, and has it run `setup`.
    fn start(words: &[&str], setup: &str, complete: &'static str) -> Self {
        let mut session = Session::of(RLOCK, words);
        for name in ["ca.pem", "one.txt", "two.txt"] {
            std::fs::write(session.dir().join(name), "").expect("a file");
        }
        std::fs::create_dir(session.dir().join("metrics")).expect("a folder");
        std::fs::write(
            session.dir().join("setup"),
            format!("{setup}\nshown() {{ echo \"<<$*>>\"; }}\n"),
        )
        .expect("a file");
        session.line(". ./setup; shown ready");
        session.sees("<<ready>>");
        Self { session, complete }
    }

    fn bash(setup: &str) -> Self {
        let script = printed("bash");
        Self::start(
            &["bash", "--norc", "--noprofile", "-i"],
            &format!("{setup}\n{script}"),
            INSERT_ALL,
        )
    }

    /// Returns the line `typed` as the shell completes it.
    fn completed(&mut self, typed: &str) -> String {
        self.session.prompt();
        // To the begin of the line, and to its end.
        self.session
            .press(&format!("{typed}{}\x01shown \x05\n", self.complete));
        self.session.sees("<<");
        self.session.sees(">>").trim_end().to_owned()
    }

    #[track_caller]
    fn completes(&mut self, lines: &[(&str, &str)]) {
        for (typed, expected) in lines {
            assert_eq!(self.completed(typed), *expected, "{typed}");
        }
    }

    #[track_caller]
    fn leaves_alone(&mut self, lines: &[&str]) {
        for line in lines {
            assert_eq!(self.completed(line), line.trim_end(), "{line}");
        }
    }
}

/// The completions for a shell.
fn printed(shell: &str) -> String {
    rlock_words(["completions", shell])
        .finish()
        .code(0)
        .silent()
        .stdout
        .join("\n")
        + "\n"
}

/// The root of the shells' packages; skipped where they are not installed
/// (tests/packaging/install).
fn installed() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/packaging/.installed/shells");
    if root.exists() {
        return Some(root);
    }
    let missing = "the shells are not installed (tests/packaging/install)";
    assert!(
        std::env::var_os("TEST_PACKAGING").is_none_or(|wish| wish != "required"),
        "{missing}"
    );
    skipped(missing);
    None
}

/// Lines that each shell completes.
const WORDS: [(&str, &str); 4] = [
    ("rlock insp", "rlock inspect"),
    ("rlock run -k x --ca c", "rlock run -k x --ca ca.pem"),
    ("rlock run -n -k x on", "rlock run -n -k x on"),
    (
        "rlock run -k x --metrics-dir ",
        "rlock run -k x --metrics-dir metrics",
    ),
];

/// Lines at whose end a name stands that no file has.
const NAMES: [&str; 4] = [
    "rlock run -k ",
    "rlock break c",
    "rlock inspect c",
    "rlock run -k x --note o",
];

#[test]
fn bash_completes_rlocks_words() {
    let mut bash = Shell::bash("");
    bash.completes(&WORDS[..2]);
    bash.completes(&WORDS[3..]);
    bash.leaves_alone(&["rlock run -k ", "rlock run -k x --note o"]);
    bash.completes(&[
        (
            "rlock run --signal T",
            "rlock run --signal TERM TRAP TSTP TTIN TTOU",
        ),
        ("rlock inspect --watch --js", "rlock inspect --watch --json"),
        (
            "rlock acquire --format ",
            "rlock acquire --format env json token",
        ),
        ("rlock completions f", "rlock completions fish"),
    ]);
}

/// Two held locks, one with a name that a shell would expand.
fn held(server: &Server) -> [Running; 2] {
    ["deploy-a", "deploy $(touch evil)"].map(|name| {
        let run = rlock(name).on(server);
        run.hold("echo ready; read line; true")
    })
}

/// Has rlock find the server, and a busy machine take longer than a user would.
fn finding(server: &Server) -> String {
    format!(
        "export RLOCK_NODE={}\ntimeout() {{ shift; \"$@\"; }}\n",
        server.url()
    )
}

#[test]
fn bash_completes_the_names_of_held_locks_and_expands_none() {
    let server = Server::start();
    let _held = held(&server);
    let mut bash = Shell::bash(&finding(&server));
    bash.completes(&[
        ("rlock break deploy-", "rlock break deploy-a"),
        ("rlock inspect -k deploy-", "rlock inspect -k deploy-a"),
        ("rlock break --ye", "rlock break --yes"),
    ]);
    // echo joins the words that the shell was given.
    bash.completes(&[(
        "rlock break --yes d",
        "rlock break --yes deploy-a deploy $(touch evil)",
    )]);
    bash.leaves_alone(&["rlock break x", "rlock run -k d"]);
    assert!(!bash.session.dir().join("evil").exists());
}

/// The function stands for that of the package bash-completion.
#[test]
fn bash_hands_the_command_over() {
    for name in ["_command_offset", "_comp_command_offset"] {
        let mut bash = Shell::bash(&format!(
            "{name}() {{ COMPREPLY=(\"from:${{COMP_WORDS[$1]}}\"); }}"
        ));
        bash.completes(&[
            (
                "rlock run -k x -- job --si",
                "rlock run -k x -- job from:job",
            ),
            (
                "rlock run -k a:b --node redis://h:1 -- job --si",
                "rlock run -k a:b --node redis://h:1 -- job from:job",
            ),
            (
                "rlock run -k x -- run -k ",
                "rlock run -k x -- run -k from:run",
            ),
            ("rlock run -k x -- jo", "rlock run -k x -- from:jo"),
        ]);
    }
    let mut bash = Shell::bash("");
    bash.completes(&[
        ("rlock run -k x -- cat on", "rlock run -k x -- cat one.txt"),
        ("rlock run -k x -- cat --si", "rlock run -k x -- cat --si"),
    ]);
}

#[test]
fn bash_completes_a_command_with_its_own_completions() {
    let Some(root) = installed() else { return };
    let package = root.join("usr/share/bash-completion");
    let package = package.display();
    let setup = format!(
        "BASH_COMPLETION_USER_DIR=/nonexistent\n. {package}/bash_completion\n. {package}/completions/timeout\n"
    );
    let mut bash = Shell::bash(&setup);
    bash.completes(&[
        (
            "rlock run -k x -- timeout --si",
            "rlock run -k x -- timeout --signal=",
        ),
        (
            "rlock run -k x -- rlock run -k y --sig",
            "rlock run -k x -- rlock run -k y --signal",
        ),
    ]);
}

#[test]
fn zsh_completes_rlocks_words_and_the_command() {
    let Some(root) = installed() else { return };
    let functions = root.join("usr/share/zsh/functions");
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("_rlock"), printed("zsh")).expect("a file");
    let folders = [
        "Misc",
        "Completion",
        "Completion/Base",
        "Completion/Unix",
        "Completion/Linux",
        "Completion/Zsh",
    ];
    let folders = folders
        .map(|name| functions.join(name).display().to_string())
        .join(" ");
    let modules = modules(&root.join("usr/lib")).expect("zsh's modules");
    let setup = format!(
        "bindkey -e; PROMPT=$PS1; module_path=({})\nfpath=({} {folders})\nautoload -U compinit; compinit -u -D\n",
        modules.display(),
        folder.path().display()
    );
    // Debian 13 has it in /usr/bin alone.
    let zsh = ["bin/zsh", "usr/bin/zsh"]
        .map(|path| root.join(path))
        .into_iter()
        .find(|path| path.exists());
    let zsh = zsh.expect("zsh");
    let server = Server::start();
    let _held = held(&server);
    let setup = setup + &finding(&server);
    let mut zsh = Shell::start(&[&zsh.display().to_string(), "-f", "-i"], &setup, TAB);
    zsh.completes(&[("rlock break deploy-", "rlock break deploy-a")]);
    assert!(!zsh.session.dir().join("evil").exists());
    zsh.completes(&WORDS[..2]);
    zsh.leaves_alone(&NAMES);
    zsh.completes(&[
        ("rlock run --signal TE", "rlock run --signal TERM"),
        ("rlock run -k x xarg", "rlock run -k x xargs"),
        ("rlock run -k x -- xarg", "rlock run -k x -- xargs"),
        (
            "rlock run -k x -- xargs --max-p",
            "rlock run -k x -- xargs --max-procs",
        ),
        ("rlock run -k x -- cat on", "rlock run -k x -- cat one.txt"),
        ("rlock run -k x cat --si", "rlock run -k x cat --si"),
    ]);
}

/// The folder of zsh's modules, which the packages have in a folder of the machine's architecture.
fn modules(lib: &Path) -> Option<PathBuf> {
    let folders = std::fs::read_dir(lib)
        .ok()?
        .flatten()
        .map(|entry| entry.path().join("zsh"));
    let versions = folders
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .flatten();
    versions
        .map(|entry| entry.path())
        .find(|folder| folder.join("zsh/complete.so").exists())
}

#[test]
fn fish_completes_rlocks_words_and_the_command() {
    let Some(root) = installed() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in [
        ("rlock.fish", printed("fish").as_str()),
        ("ca.pem", ""),
        ("one.txt", ""),
    ] {
        std::fs::write(folder.path().join(name), text).expect("a file");
    }
    let server = Server::start();
    let _held = held(&server);
    let rlocks = Path::new(RLOCK).parent().expect("a folder");
    let path = format!(
        "{}:{}",
        rlocks.display(),
        std::env::var("PATH").expect("a path")
    );
    let completed = |typed: &str| {
        let mut fish = Command::new(root.join("usr/bin/fish"));
        let timeout = "function timeout; $argv[2..]; end; source rlock.fish";
        fish.args(["-c", &format!("{timeout}; complete -C '{typed}'")])
            .env("RLOCK_NODE", server.url())
            .env("PATH", &path)
            .current_dir(folder.path());
        let libraries = modules(&root.join("usr/lib")).expect("a folder");
        let libraries = libraries
            .ancestors()
            .nth(2)
            .expect("that of the architecture")
            .to_owned();
        let output = fish
            .env("HOME", folder.path())
            .env("LD_LIBRARY_PATH", libraries)
            .output()
            .expect("fish");
        assert!(
            output.stderr.is_empty(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        lines
            .lines()
            .map(|line| line.split('\t').next().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
    };
    for (typed, expected) in [
        ("rlock insp", &["inspect"][..]),
        ("rlock run --sig", &["--signal"]),
        (
            "rlock run --signal T",
            &["TERM", "TRAP", "TSTP", "TTIN", "TTOU"],
        ),
        ("rlock run -k x --ca c", &["ca.pem"]),
        ("rlock run -k ", &[]),
        // fish finds a letter within a name, too.
        ("rlock inspect q", &[]),
        ("rlock break q", &[]),
        ("rlock break deploy-", &["deploy-a"]),
        ("rlock break d", &["deploy $(touch evil)", "deploy-a"]),
        ("rlock run -k x -- xargs --max-p", &["--max-procs"]),
        ("rlock run -k x -- xarg", &["xargs"]),
        ("rlock run -k x -- cat on", &["one.txt"]),
    ] {
        assert_eq!(completed(typed), expected, "{typed}");
    }
}
